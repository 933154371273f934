package settings

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/sethvargo/go-envconfig"
)

// vars is an environment with a home directory.
func vars(pairs ...string) map[string]string {
	m := map[string]string{"HOME": "/home/ann"}
	for i := 0; i < len(pairs); i += 2 {
		m[pairs[i]] = pairs[i+1]
	}
	return m
}

func TestEmptyEnvironment(t *testing.T) {
	s, err := Load(envconfig.MapLookuper(vars()))
	if err != nil {
		t.Fatal(err)
	}
	if s.Env.HTTPAddr != "127.0.0.1:8420" || s.Env.SlackAPIURL != "https://slack.com/api/" || s.Env.DiscordAPIURL != "https://discord.com/" {
		t.Errorf("%+v", s.Env)
	}
	if s.Model.String() != "demo" || s.LogLevel != slog.LevelInfo || s.Env.LogFormat != "text" || s.SlackOn() || s.DiscordOn() {
		t.Errorf("%+v", s)
	}
	if n := s.Notices(); n != nil {
		t.Errorf("notices: %q", n)
	}
}

func TestVariablesReachTheirFields(t *testing.T) {
	s, err := Load(envconfig.MapLookuper(vars(
		"CLAWBOT_DATA_DIR", "/srv/claw/", "CLAWBOT_HTTP_ADDR", ":0", "CLAWBOT_MODEL", "anthropic:some-model",
		"DATABASE_URL", "postgres://bot:p%20w@db/claw", "DATABASE_MIGRATE_URL", "host=db user=owner password=x",
		"OPENAI_API_KEY", "sk-1", "OPENAI_BASE_URL", "http://127.0.0.1:9/v1", "ANTHROPIC_API_KEY", "sk-2", "ANTHROPIC_BASE_URL", "https://a.example/",
		"SLACK_BOT_TOKEN", "xoxb-1", "SLACK_APP_TOKEN", "xapp-1", "SLACK_SIGNING_SECRET", "sig", "SLACK_API_URL", "http://127.0.0.1:8/api",
		"DISCORD_BOT_TOKEN", "d-1", "DISCORD_API_URL", "http://127.0.0.1:7",
		"CLAWBOT_LOG_LEVEL", "DEBUG", "CLAWBOT_LOG_FORMAT", "json", "OTEL_EXPORTER_OTLP_ENDPOINT", "http://otel:4318",
		"CLAWBOT_CONFIG", "testdata/all-channels.yaml",
	)))
	if err != nil {
		t.Fatal(err)
	}
	e := s.Env
	got := fmt.Sprint(
		s.DataDir, e.HTTPAddr, s.Model, e.DatabaseURL.Reveal(), e.DatabaseMigrateURL.Reveal(), e.OpenAIKey.Reveal(), e.OpenAIBaseURL,
		e.AnthropicKey.Reveal(), e.AnthropicBaseURL, e.SlackBotToken.Reveal(), e.SlackAppToken.Reveal(), e.SlackSigningSecret.Reveal(),
		e.SlackAPIURL, e.DiscordBotToken.Reveal(), e.DiscordAPIURL, s.LogLevel, e.LogFormat, e.OTLPEndpoint,
	)
	want := fmt.Sprint(
		"/srv/claw", ":0", "anthropic:some-model", "postgres://bot:p%20w@db/claw", "host=db user=owner password=x", "sk-1", "http://127.0.0.1:9/v1",
		"sk-2", "https://a.example/", "xoxb-1", "xapp-1", "sig",
		"http://127.0.0.1:8/api/", "d-1", "http://127.0.0.1:7/", "DEBUG", "json", "http://otel:4318",
	)
	if got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

func TestModel(t *testing.T) {
	for _, test := range []struct {
		env  map[string]string
		want string
	}{
		{vars("OPENAI_API_KEY", "a", "ANTHROPIC_API_KEY", "b"), "openai:" + DefaultOpenAIModel},
		{vars("ANTHROPIC_API_KEY", "b"), "anthropic:" + DefaultAnthropicModel},
		{vars("ANTHROPIC_API_KEY", "b", "CLAWBOT_MODEL", "demo"), "demo"},
		{vars("OPENAI_API_KEY", "a", "CLAWBOT_MODEL", "openai:ft:model:x"), "openai:ft:model:x"},
		{vars("OPENAI_API_KEY", "a", "CLAWBOT_MODEL", " "), "openai:" + DefaultOpenAIModel},
	} {
		s, err := Load(envconfig.MapLookuper(test.env))
		if err != nil || s.Model.String() != test.want {
			t.Errorf("%v: %s, %v", test.env, s.Model, err)
		}
	}
}

func TestDataDir(t *testing.T) {
	for _, test := range []struct {
		env  map[string]string
		root bool
		want string
	}{
		{vars(), false, "/home/ann/.local/share/clawbot"},
		{vars("XDG_DATA_HOME", "/data"), false, "/data/clawbot"},
		{vars("XDG_DATA_HOME", "relative"), false, "/home/ann/.local/share/clawbot"},
		{vars("XDG_DATA_HOME", "/data"), true, "/var/lib/clawbot"},
		{vars("CLAWBOT_DATA_DIR", "x/../y"), true, "y"},
		{map[string]string{}, false, ""},
	} {
		environ := envconfig.MapLookuper(test.env)
		env, errs := readEnv(environ)
		got := dataDir(env, environ, test.root, &errs)
		if got != test.want || (got == "") != (len(errs) == 1) {
			t.Errorf("%v: %q, %v", test.env, got, errs)
		}
	}
}

// Every mistake names its variable, says what to write, and never shows a secret.
func TestEnvironmentMistakes(t *testing.T) {
	dir := t.TempDir()
	file := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	for name, test := range map[string]struct {
		env  map[string]string
		want []string
	}{
		"address":         {vars("CLAWBOT_HTTP_ADDR", "localhost"), []string{"CLAWBOT_HTTP_ADDR: write HOST:PORT"}},
		"port":            {vars("CLAWBOT_HTTP_ADDR", "localhost:99999"), []string{"CLAWBOT_HTTP_ADDR: write HOST:PORT"}},
		"log words":       {vars("CLAWBOT_LOG_LEVEL", "loud", "CLAWBOT_LOG_FORMAT", "xml"), []string{"CLAWBOT_LOG_FORMAT: write text or json", "CLAWBOT_LOG_LEVEL: write debug"}},
		"database":        {vars("DATABASE_URL", "mysql://u:canary@db/x"), []string{"DATABASE_URL: write postgres://"}},
		"broken database": {vars("DATABASE_URL", "postgres://u:canary%zz@db/x"), []string{"DATABASE_URL: special characters of the password as %XX"}},
		"migrate alone":   {vars("DATABASE_MIGRATE_URL", "postgres://u:canary@db/x"), []string{"DATABASE_MIGRATE_URL: set DATABASE_URL"}},
		"addresses": {
			vars("OPENAI_BASE_URL", "ftp://x/", "ANTHROPIC_BASE_URL", "https://u:canary@x/", "OTEL_EXPORTER_OTLP_ENDPOINT", "otel:4317", "DISCORD_API_URL", "https:///x", "SLACK_API_URL", "https://x/?token=canary"),
			[]string{"ANTHROPIC_BASE_URL: user name or password", "DISCORD_API_URL: no address", "OPENAI_BASE_URL: no address", "OTEL_EXPORTER_OTLP_ENDPOINT: no address", "SLACK_API_URL: ? or # part"},
		},
		"prefixes": {
			vars("SLACK_BOT_TOKEN", "xapp-canary", "SLACK_APP_TOKEN", "xoxb-canary", "CLAWBOT_CONFIG", "testdata/contract.yaml"),
			[]string{"SLACK_APP_TOKEN: does not begin with xapp-", "SLACK_BOT_TOKEN: does not begin with xoxb-"},
		},
		"Slack without a way in": {
			vars("SLACK_BOT_TOKEN", "xoxb-canary", "CLAWBOT_CONFIG", "testdata/contract.yaml"),
			[]string{"SLACK_BOT_TOKEN: set SLACK_APP_TOKEN (xapp-…, Socket Mode) or SLACK_SIGNING_SECRET (HTTP)"},
		},
		"blank": {
			vars("SLACK_BOT_TOKEN", "xoxb-canary", "SLACK_SIGNING_SECRET", " ", "OPENAI_API_KEY", "", "CLAWBOT_CONFIG", "testdata/contract.yaml"),
			[]string{"OPENAI_API_KEY: set, but blank", "SLACK_SIGNING_SECRET: set, but blank"},
		},
		"white space":        {vars("OPENAI_API_KEY", "canary \n"), []string{"OPENAI_API_KEY: white space"}},
		"model":              {vars("CLAWBOT_MODEL", "gpt"), []string{"CLAWBOT_MODEL: write openai:NAME, anthropic:NAME or demo"}},
		"model without name": {vars("CLAWBOT_MODEL", "openai:", "OPENAI_API_KEY", "canary"), []string{"CLAWBOT_MODEL: write openai:NAME"}},
		"demo with a name":   {vars("CLAWBOT_MODEL", "demo:x"), []string{"CLAWBOT_MODEL: write openai:NAME"}},
		"model without key":  {vars("CLAWBOT_MODEL", "openai:x", "ANTHROPIC_API_KEY", "canary"), []string{"CLAWBOT_MODEL: set OPENAI_API_KEY"}},
		"both":               {vars("OPENAI_API_KEY", "canary", "OPENAI_API_KEY_FILE", file("key", "canary")), []string{"OPENAI_API_KEY: it is set and OPENAI_API_KEY_FILE too"}},
		"no file":            {vars("OPENAI_API_KEY_FILE", dir+"/canary"), []string{"OPENAI_API_KEY_FILE: cannot be read: no such file"}},
		"a directory":        {vars("OPENAI_API_KEY_FILE", dir), []string{"OPENAI_API_KEY_FILE: cannot be read: is a directory"}},
		"blank path":         {vars("OPENAI_API_KEY_FILE", ""), []string{"OPENAI_API_KEY_FILE: set, but blank"}},
		"empty file":         {vars("OPENAI_API_KEY_FILE", file("empty", "\n")), []string{"OPENAI_API_KEY_FILE: set, but blank"}},
		"two lines":          {vars("DATABASE_URL_FILE", file("lines", "postgres://db/x\ncanary\n")), []string{"DATABASE_URL_FILE: white space"}},
		"large file":         {vars("SLACK_APP_TOKEN_FILE", file("large", strings.Repeat("canary", 5000))), []string{"SLACK_APP_TOKEN_FILE: larger than 16 KiB"}},
		"no settings file":   {vars("CLAWBOT_CONFIG", "testdata/none.yaml"), []string{"testdata/none.yaml: there is no such file"}},
		"a file without any approver for Slack": {
			vars("SLACK_BOT_TOKEN", "xoxb-canary", "SLACK_APP_TOKEN", "xapp-canary"),
			[]string{`approval.approvers: Slack is on (SLACK_BOT_TOKEN), but nobody there may decide what is asked; write users: ["slack:TEAM/USER"], slack_groups: ["ID"] or requester: true (in the file that CLAWBOT_CONFIG names; there is none)`},
		},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Load(envconfig.MapLookuper(test.env))
			if err == nil {
				t.Fatal("no mistake was found")
			}
			if strings.Contains(strings.ReplaceAll(err.Error(), dir, ""), "canary") {
				t.Errorf("a secret got out: %v", err)
			}
			lines := strings.Split(err.Error(), "\n")
			for i, want := range test.want {
				name, part, _ := strings.Cut(want, ": ")
				if i >= len(lines) || !strings.HasPrefix(lines[i], name+": ") || !strings.Contains(lines[i], part) {
					t.Errorf("got\n%s\nwant\n%s", err, strings.Join(test.want, "\n"))
					return
				}
			}
			if len(lines) > len(test.want) {
				t.Errorf("more than expected: %v", err)
			}
		})
	}
}

// Every secret can come from a file, with a line break at its end.
func TestSecretsFromFiles(t *testing.T) {
	count := 0
	for name, secret := range Variables() {
		if !secret {
			continue
		}
		count++
		path := filepath.Join(t.TempDir(), "secret")
		text := map[string]string{
			"DATABASE_URL": "postgres://u:p@db/x", "SLACK_BOT_TOKEN": "xoxb-1", "SLACK_APP_TOKEN": "xapp-1",
		}[name]
		if text == "" {
			text = "some-text"
		}
		if err := os.WriteFile(path, []byte(text+"\r\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		r := &secretReader{Lookuper: envconfig.MapLookuper(vars(name+"_FILE", path)), secrets: Variables()}
		if got, ok := r.Lookup(name); !ok || got != text || r.errs != nil {
			t.Errorf("%s: %q, %v", name, got, r.errs)
		}
	}
	if count != 8 {
		t.Errorf("%d secrets", count)
	}
}

// The password of a database is a secret of its own, in both forms of an address.
func TestSecretsHoldThePassword(t *testing.T) {
	for address, want := range map[string]string{
		"postgres://u:pa%2Fss-word@h/db":             "pa/ss-word",
		"host=h user=u password=pass-word dbname=db": "pass-word",
		`host=h password = 'pa ss\'word' user=u`:     `pa ss'word`,
	} {
		env, errs := readEnv(envconfig.MapLookuper(vars("DATABASE_URL", address)))
		if len(errs) > 0 {
			t.Fatal(errs)
		}
		if !slices.Contains(env.Secrets(), want) {
			t.Errorf("%s: %q is not among the secrets", address, want)
		}
	}
}
