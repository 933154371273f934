package settings

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"github.com/sethvargo/go-envconfig"
)

// Env is the environment as clawbot reads it. A variable of type Secret can
// also be given as NAME_FILE, the path of a file that holds it.
type Env struct {
	// Config is the path of the settings file; empty is no file.
	Config string `env:"CLAWBOT_CONFIG"`
	// DataDir holds the embedded database, keys and files.
	DataDir string `env:"CLAWBOT_DATA_DIR"`
	// HTTPAddr is where health and Slack's HTTP endpoints listen; port 0 picks one.
	HTTPAddr string `env:"CLAWBOT_HTTP_ADDR, default=127.0.0.1:8420"`

	// DatabaseURL is the Postgres to use; not set is the embedded one.
	DatabaseURL Secret `env:"DATABASE_URL"`
	// DatabaseMigrateURL is a role that owns the schema; not set is DatabaseURL.
	DatabaseMigrateURL Secret `env:"DATABASE_MIGRATE_URL"`

	// Model is openai:NAME, anthropic:NAME or demo; empty is the first provider
	// that has a key.
	Model            string `env:"CLAWBOT_MODEL"`
	OpenAIKey        Secret `env:"OPENAI_API_KEY"`
	OpenAIBaseURL    string `env:"OPENAI_BASE_URL"`
	AnthropicKey     Secret `env:"ANTHROPIC_API_KEY"`
	AnthropicBaseURL string `env:"ANTHROPIC_BASE_URL"`

	// SlackBotToken turns Slack on; then one of the next two must be there.
	SlackBotToken      Secret `env:"SLACK_BOT_TOKEN"`
	SlackAppToken      Secret `env:"SLACK_APP_TOKEN"`
	SlackSigningSecret Secret `env:"SLACK_SIGNING_SECRET"`
	// SlackAPIURL ends in a slash.
	SlackAPIURL string `env:"SLACK_API_URL, default=https://slack.com/api/"`

	// DiscordBotToken turns Discord on.
	DiscordBotToken Secret `env:"DISCORD_BOT_TOKEN"`
	// DiscordAPIURL ends in a slash.
	DiscordAPIURL string `env:"DISCORD_API_URL, default=https://discord.com/"`

	LogLevel  string `env:"CLAWBOT_LOG_LEVEL, default=info"`
	LogFormat string `env:"CLAWBOT_LOG_FORMAT, default=text"`

	// OTLPEndpoint takes traces and metrics by OTLP, the next two one of them alone. All
	// OTEL_ variables are read by the exporters themselves too.
	OTLPEndpoint        string `env:"OTEL_EXPORTER_OTLP_ENDPOINT"`
	OTLPTracesEndpoint  string `env:"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"`
	OTLPMetricsEndpoint string `env:"OTEL_EXPORTER_OTLP_METRICS_ENDPOINT"`
	OTLPProtocol        string `env:"OTEL_EXPORTER_OTLP_PROTOCOL"`
	// OTLPHeaders are NAME=VALUE with commas between; the values are secrets.
	OTLPHeaders  string `env:"OTEL_EXPORTER_OTLP_HEADERS"`
	OTelDisabled bool   `env:"OTEL_SDK_DISABLED"`
}

// SendsTraces and SendsMetrics report what goes out by OTLP.
func (e Env) SendsTraces() bool {
	return !e.OTelDisabled && (e.OTLPEndpoint != "" || e.OTLPTracesEndpoint != "")
}

// SendsMetrics is beside SendsTraces.
func (e Env) SendsMetrics() bool {
	return !e.OTelDisabled && (e.OTLPEndpoint != "" || e.OTLPMetricsEndpoint != "")
}

// Model is the language model to use.
type Model struct {
	Provider string // "openai", "anthropic" or "demo"
	Name     string // empty for demo
}

// String returns the form of CLAWBOT_MODEL.
func (m Model) String() string {
	if m.Name == "" {
		return m.Provider
	}
	return m.Provider + ":" + m.Name
}

// The models that are used where a key is given and CLAWBOT_MODEL is not.
const (
	DefaultOpenAIModel    = "gpt-6-astra"
	DefaultAnthropicModel = "claude-sonnet-5-5"
)

// maxSecretFile bounds what is read from a NAME_FILE, in bytes.
const maxSecretFile = 16 << 10

// readEnv reads the environment, with every mistake.
func readEnv(environ envconfig.Lookuper) (Env, Errors) {
	in := &secretReader{Lookuper: environ, secrets: map[string]bool{}}
	for name, secret := range Variables() {
		in.secrets[name] = secret
	}
	var env Env
	err := envconfig.ProcessWith(context.Background(), &envconfig.Config{Target: &env, Lookuper: in})
	if err != nil { // all fields take any text, so this is a mistake in Env itself
		in.errs.variable("", "read the environment: %v", err)
	}
	errs := in.errs
	env.check(&errs)
	return env, errs
}

// Variables returns the name of each variable and whether it is a secret, which
// can be given as NAME_FILE as well.
func Variables() map[string]bool {
	names := map[string]bool{}
	for t, i := reflect.TypeFor[Env](), 0; i < t.NumField(); i++ {
		name, _, _ := strings.Cut(t.Field(i).Tag.Get("env"), ",")
		names[name] = t.Field(i).Type == reflect.TypeFor[Secret]()
	}
	return names
}

// secretFiles returns the paths that the variables NAME_FILE name, sorted.
func secretFiles(environ envconfig.Lookuper) []string {
	var paths []string
	for name, secret := range Variables() {
		if path, set := environ.Lookup(name + "_FILE"); secret && set && strings.TrimSpace(path) != "" {
			paths = append(paths, path)
		}
	}
	slices.Sort(paths)
	return paths
}

// secretReader looks variables up: secrets also in files; a blank variable that
// is no secret counts as not set, as compose files leave them so.
type secretReader struct {
	envconfig.Lookuper
	secrets map[string]bool
	errs    Errors
}

// Lookup implements envconfig.Lookuper.
func (r *secretReader) Lookup(name string) (string, bool) {
	text, set := r.Lookuper.Lookup(name)
	if !r.secrets[name] {
		text = strings.TrimSpace(text)
		return text, text != ""
	}
	path, asFile := r.Lookuper.Lookup(name + "_FILE")
	switch {
	case set && asFile:
		r.errs.variable(name, "it is set and %s_FILE too; unset one of them", name)
		return "", false
	case asFile:
		var problem string
		if text, problem = readSecret(path); problem != "" {
			r.errs.variable(name+"_FILE", "%s", problem)
			return "", false
		}
		name += "_FILE"
	case !set:
		return "", false
	}
	if strings.TrimSpace(text) == "" {
		r.errs.variable(name, "it is set, but blank; write the secret or unset it")
		return "", false
	}
	if strings.ContainsFunc(text, func(c rune) bool { return unicode.IsSpace(c) || unicode.IsControl(c) }) && !keyValueDSN.MatchString(text) {
		r.errs.variable(name, "it has white space in it; write the secret alone, without quotes or line breaks")
		return "", false
	}
	return text, true
}

// readSecret reads a secret's file. The problem names neither the path, which
// may be the secret by mistake, nor the content.
func readSecret(path string) (text, problem string) {
	if strings.TrimSpace(path) == "" {
		return "", "it is set, but blank; write the path of a file or unset it"
	}
	f, err := os.Open(path)
	if err == nil {
		defer f.Close()
		var b []byte
		if b, err = io.ReadAll(io.LimitReader(f, maxSecretFile+1)); err == nil {
			if len(b) > maxSecretFile {
				return "", "the file is larger than " + strconv.Itoa(maxSecretFile>>10) + " KiB, which no secret is; write the path of the right file"
			}
			return strings.TrimRight(string(b), "\r\n"), ""
		}
	}
	var at *fs.PathError
	if errors.As(err, &at) {
		err = at.Err
	}
	return "", "the file cannot be read: " + err.Error() + "; write the path of a file that clawbot may read"
}

// keyValueDSN recognises the other form of a Postgres address, "host=… user=…".
var keyValueDSN = regexp.MustCompile(`^\s*[a-z_]+\s*=`)

// dsnPassword finds the password in that form, in quotes or without.
var dsnPassword = regexp.MustCompile(`(?:^|\s)password\s*=\s*('(?:[^'\\]|\\.)*'|\S+)`)

// check finds what is wrong with single variables and their combinations, and
// brings addresses into one form.
func (e *Env) check(errs *Errors) {
	checkAddr(e.HTTPAddr, errs)
	checkDatabase("DATABASE_URL", e.DatabaseURL, errs)
	checkDatabase("DATABASE_MIGRATE_URL", e.DatabaseMigrateURL, errs)
	if e.DatabaseMigrateURL.Set() && !e.DatabaseURL.Set() {
		errs.variable("DATABASE_MIGRATE_URL", "it is set without DATABASE_URL; set DATABASE_URL to the same database with the service's own role")
	}
	checkURL("OPENAI_BASE_URL", e.OpenAIBaseURL, errs)
	checkURL("ANTHROPIC_BASE_URL", e.AnthropicBaseURL, errs)
	checkURL("SLACK_API_URL", e.SlackAPIURL, errs)
	checkURL("DISCORD_API_URL", e.DiscordAPIURL, errs)
	checkURL("OTEL_EXPORTER_OTLP_ENDPOINT", e.OTLPEndpoint, errs)
	checkURL("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", e.OTLPTracesEndpoint, errs)
	checkURL("OTEL_EXPORTER_OTLP_METRICS_ENDPOINT", e.OTLPMetricsEndpoint, errs)
	if p := e.OTLPProtocol; p != "" && p != "http/protobuf" {
		errs.variable("OTEL_EXPORTER_OTLP_PROTOCOL", "%q is not available; write http/protobuf, whose port is 4318 as a rule", p)
	}
	e.SlackAPIURL = strings.TrimRight(e.SlackAPIURL, "/") + "/"
	e.DiscordAPIURL = strings.TrimRight(e.DiscordAPIURL, "/") + "/"

	checkPrefix("SLACK_BOT_TOKEN", "xoxb-", e.SlackBotToken, errs)
	checkPrefix("SLACK_APP_TOKEN", "xapp-", e.SlackAppToken, errs)
	if e.SlackBotToken.Set() && !e.SlackAppToken.Set() && !e.SlackSigningSecret.Set() && !errs.about("SLACK_APP_TOKEN", "SLACK_SIGNING_SECRET") {
		errs.variable("SLACK_BOT_TOKEN", "Slack is on, but nothing can reach clawbot; set SLACK_APP_TOKEN (xapp-…, Socket Mode) or SLACK_SIGNING_SECRET (HTTP)")
	}
	if _, ok := logLevel(e.LogLevel); !ok {
		errs.variable("CLAWBOT_LOG_LEVEL", "%q is unknown; write debug, info, warn or error", e.LogLevel)
	}
	if e.LogFormat != "text" && e.LogFormat != "json" {
		errs.variable("CLAWBOT_LOG_FORMAT", "%q is unknown; write text or json", e.LogFormat)
	}
}

// about reports whether there is a mistake about one of the variables or its file.
func (e Errors) about(names ...string) bool {
	for _, m := range e {
		for _, name := range names {
			if m.Path == name || m.Path == name+"_FILE" {
				return true
			}
		}
	}
	return false
}

func checkAddr(addr string, errs *Errors) {
	_, port, err := net.SplitHostPort(addr)
	if err == nil {
		_, err = strconv.ParseUint(port, 10, 16)
	}
	if err != nil {
		errs.variable("CLAWBOT_HTTP_ADDR", "%q is no address; write HOST:PORT such as 127.0.0.1:8420, or :0 for any free port", addr)
	}
}

// checkURL never shows the address, which may hold a password.
func checkURL(name, text string, errs *Errors) {
	if text == "" {
		return
	}
	u, err := url.Parse(text)
	switch {
	case err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https":
		errs.variable(name, "it is no address; write http://HOST/ or https://HOST/")
	case u.User != nil:
		errs.variable(name, "it holds a user name or password, which would get into logs; write the address without")
	case u.RawQuery != "" || u.Fragment != "":
		errs.variable(name, "it has a ? or # part; write the address without")
	}
}

// checkDatabase never shows the address, which may hold a password.
func checkDatabase(name string, s Secret, errs *Errors) {
	text := s.Reveal()
	if !s.Set() || keyValueDSN.MatchString(text) {
		return
	}
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "postgres" && u.Scheme != "postgresql" {
		errs.variable(name, "it is no Postgres address; write postgres://USER:PASSWORD@HOST:5432/DATABASE, with special characters of the password as %%XX")
	}
}

func checkPrefix(name, prefix string, s Secret, errs *Errors) {
	if s.Set() && !strings.HasPrefix(s.Reveal(), prefix) {
		errs.variable(name, "it does not begin with %s; write the token that Slack shows for this app", prefix)
	}
}

func logLevel(word string) (slog.Level, bool) {
	switch strings.ToLower(word) {
	case "debug":
		return slog.LevelDebug, true
	case "info":
		return slog.LevelInfo, true
	case "warn":
		return slog.LevelWarn, true
	case "error":
		return slog.LevelError, true
	}
	return slog.LevelInfo, false
}

// model returns the model to use.
func (e Env) model(errs *Errors) Model {
	if e.Model == "" {
		switch {
		case e.OpenAIKey.Set():
			return Model{"openai", DefaultOpenAIModel}
		case e.AnthropicKey.Set():
			return Model{"anthropic", DefaultAnthropicModel}
		}
		return Model{Provider: "demo"}
	}
	provider, name, _ := strings.Cut(e.Model, ":")
	m := Model{provider, strings.TrimSpace(name)}
	var key Secret
	var variable string
	switch {
	case e.Model == "demo":
		return m
	case provider == "openai" && m.Name != "":
		key, variable = e.OpenAIKey, "OPENAI_API_KEY"
	case provider == "anthropic" && m.Name != "":
		key, variable = e.AnthropicKey, "ANTHROPIC_API_KEY"
	default:
		errs.variable("CLAWBOT_MODEL", "%q is no model; write openai:NAME, anthropic:NAME or demo", e.Model)
		return m
	}
	if !key.Set() && !errs.about(variable) {
		errs.variable("CLAWBOT_MODEL", "%s needs a key; set %s (any word, if your own server wants none) or write demo", m, variable)
	}
	return m
}

// dataDir returns where files are kept.
func dataDir(e Env, environ envconfig.Lookuper, root bool, errs *Errors) string {
	if e.DataDir != "" {
		return filepath.Clean(e.DataDir)
	}
	if root {
		return "/var/lib/clawbot"
	}
	// A relative path in XDG_DATA_HOME is to be ignored, says the XDG Base
	// Directory Specification.
	if base, _ := environ.Lookup("XDG_DATA_HOME"); filepath.IsAbs(base) {
		return filepath.Join(base, "clawbot")
	}
	if home, _ := environ.Lookup("HOME"); filepath.IsAbs(home) {
		return filepath.Join(home, ".local", "share", "clawbot")
	}
	errs.variable("CLAWBOT_DATA_DIR", "there is no home directory to keep data in; set it to a directory")
	return ""
}

// Secrets returns the value of every secret that is set, for whoever has to keep
// them out of what is shown. Of a database address it is the password.
func (e Env) Secrets() []string {
	var out []string
	for v, i := reflect.ValueOf(e), 0; i < v.NumField(); i++ {
		s, ok := v.Field(i).Interface().(Secret)
		if !ok || !s.Set() {
			continue
		}
		out = append(out, s.Reveal())
		if u, err := url.Parse(s.Reveal()); err == nil && u.User != nil {
			if password, has := u.User.Password(); has {
				out = append(out, password)
			}
		} else if m := dsnPassword.FindStringSubmatch(s.Reveal()); m != nil && keyValueDSN.MatchString(s.Reveal()) {
			out = append(out, strings.NewReplacer(`\'`, `'`, `\\`, `\`).Replace(strings.Trim(m[1], "'")))
		}
	}
	for _, pair := range strings.Split(e.OTLPHeaders, ",") {
		if _, value, ok := strings.Cut(pair, "="); ok {
			out = append(out, strings.TrimSpace(value))
			if decoded, err := url.PathUnescape(strings.TrimSpace(value)); err == nil {
				out = append(out, decoded)
			}
		}
	}
	return out
}
