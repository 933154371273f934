package slack

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/clawbot/clawbot/agent"
)

// Config is everything the adapter needs. The fields with a yaml name are the
// section channels.slack of the settings file. Start from [DefaultConfig]: the
// zero Config admits nobody and is refused.
type Config struct {
	// Allow says who may speak to the bot, and where.
	Allow Allow `yaml:"allow"`
	// Trigger is "mention" or "all". With "mention" a message in a
	// channel or group direct message must name the bot, or be in a thread that
	// the bot has joined; with "all" every message of a person counts. Direct
	// messages always trigger, other bots and edits never do.
	Trigger string `yaml:"trigger"`
	// ApprovalChannel must be empty: cards appear in the asking thread.
	ApprovalChannel string `yaml:"approval_channel"`
	// Connections is how many Socket Mode connections are held, 1 to 10. An app
	// may have 10 in all. With 2 a click is not lost while Slack
	// refreshes a connection, because Slack never sends a click again.
	Connections int `yaml:"connections"`

	Secrets Secrets `yaml:"-" json:"-"`
	// APIURL is the base of the Web API; empty means https://slack.com/api/. For
	// proxies and tests.
	APIURL string `yaml:"-"`
	// HTTP makes the calls to Slack. nil means a client with a timeout of 15 s.
	HTTP *http.Client `yaml:"-"`
	// Log gets what an operator should know. nil means slog.Default.
	Log *slog.Logger `yaml:"-"`
	// Now is the clock. nil means time.Now.
	Now func() time.Time `yaml:"-"`
}

// Allow is who may speak to the bot, and where.
type Allow struct {
	// Users are members by id ("U0001", or "slack:T0001/U0001"); "*" is every
	// member of the installed workspace. Empty is nobody and is refused.
	Users []string `yaml:"users"`
	// Channels are channel ids, "*" is every channel the bot is in. Direct
	// messages are not narrowed by it. Empty is none and is refused.
	Channels []string `yaml:"channels"`
	// Guests admits guest accounts that Users admits.
	Guests bool `yaml:"guests"`
	// External admits people of other organisations in shared channels.
	External bool `yaml:"external"`
}

// The values of Config.Trigger.
const (
	TriggerMention = "mention"
	TriggerAll     = "all"
)

// Secrets are the credentials. They print, log and marshal as "[secrets]".
type Secrets struct {
	// BotToken (xoxb-…) is needed always.
	BotToken string
	// AppToken (xapp-…, scope connections:write) turns Socket Mode on.
	AppToken string
	// SigningSecret turns the HTTP endpoints on. One of AppToken and
	// SigningSecret must be there; both may be.
	SigningSecret string
}

const hidden = "[secrets]"

// String hides the secrets.
func (Secrets) String() string { return hidden }

// GoString hides the secrets from %#v.
func (Secrets) GoString() string { return hidden }

// LogValue hides the secrets from slog.
func (Secrets) LogValue() slog.Value { return slog.StringValue(hidden) }

// MarshalText hides the secrets from encoders.
func (Secrets) MarshalText() ([]byte, error) { return []byte(hidden), nil }

// MarshalJSON hides the secrets from encoders.
func (Secrets) MarshalJSON() ([]byte, error) { return json.Marshal(hidden) }

// DefaultConfig admits the members of the workspace in every channel that the
// bot is in.
func DefaultConfig() Config {
	return Config{Allow: Allow{Users: []string{"*"}, Channels: []string{"*"}}, Trigger: TriggerMention, Connections: 1}
}

// Validate returns every mistake of the section, each an *agent.ConfigError.
func (c Config) Validate() []error {
	var errs []error
	wrong := func(key, format string, args ...any) {
		errs = append(errs, &agent.ConfigError{Path: "channels.slack." + key, Msg: fmt.Sprintf(format, args...)})
	}
	ids := func(key string, list []string) {
		for i, id := range list {
			if id == "" || strings.ContainsFunc(id, unicode.IsSpace) {
				wrong(fmt.Sprintf("%s[%d]", key, i), "%q is no id; write the id that Slack shows", id)
			}
		}
	}
	if len(c.Allow.Users) == 0 {
		wrong("allow.users", `it is empty, so nobody could speak; write "*" or user ids`)
	}
	ids("allow.users", c.Allow.Users)
	for i, u := range c.Allow.Users {
		if strings.Contains(u, ":") {
			if a, err := agent.ParseActor(u); err != nil || a.Channel != Name {
				wrong(fmt.Sprintf("allow.users[%d]", i), "%q is no person on Slack; write U… or slack:T…/U…", u)
			}
		}
	}
	if len(c.Allow.Channels) == 0 {
		wrong("allow.channels", `it is empty, so no channel would be heard; write "*" or channel ids`)
	}
	ids("allow.channels", c.Allow.Channels)
	if c.Trigger != TriggerMention && c.Trigger != TriggerAll {
		wrong("trigger", "%q is unknown; write mention or all", c.Trigger)
	}
	if c.ApprovalChannel != "" {
		wrong("approval_channel", "it is not available in this version; leave it empty, cards appear in the thread that asked")
	}
	if c.Connections < 1 || c.Connections > maxConnections {
		wrong("connections", "%d is out of range; write 1 to %d", c.Connections, maxConnections)
	}
	return errs
}

// check says what is wrong with the tokens and the address, which come from the
// environment, and with the section.
func (c Config) check() error {
	errs := c.Validate()
	bad := func(text string) { errs = append(errs, errors.New(text)) }
	s := c.Secrets
	switch {
	case strings.TrimSpace(s.BotToken) == "":
		bad("SLACK_BOT_TOKEN is blank: set the bot token (xoxb-…) of the Slack app")
	case strings.HasPrefix(s.BotToken, "xapp-"):
		bad("SLACK_BOT_TOKEN holds an app token (xapp-…): it belongs in SLACK_APP_TOKEN")
	}
	if s.SigningSecret != "" && strings.TrimSpace(s.SigningSecret) == "" {
		bad("SLACK_SIGNING_SECRET is blank: a blank secret would admit forged requests")
	}
	if s.AppToken != "" && !strings.HasPrefix(s.AppToken, "xapp-") {
		bad("SLACK_APP_TOKEN is no app token: it begins with xapp-")
	}
	if s.AppToken == "" && s.SigningSecret == "" {
		bad("neither SLACK_APP_TOKEN (Socket Mode) nor SLACK_SIGNING_SECRET (HTTP) is set: set one of them")
	}
	if c.APIURL != "" {
		if u, err := url.Parse(c.APIURL); err != nil || u.Host == "" || !strings.HasPrefix(u.Scheme, "http") {
			bad("SLACK_API_URL is no address such as https://slack.com/api/")
		}
	}
	return errors.Join(errs...)
}

// maxConnections is how many Socket Mode connections Slack gives an app.
const maxConnections = 10

func (c Config) withDefaults() Config {
	if c.APIURL == "" {
		c.APIURL = "https://slack.com/api/"
	}
	if !strings.HasSuffix(c.APIURL, "/") {
		c.APIURL += "/" // slack-go appends the method as it is
	}
	if c.HTTP == nil {
		c.HTTP = &http.Client{Timeout: httpTimeout} // slack-go's own client never times out
	}
	if c.Log == nil {
		c.Log = slog.Default()
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	return c
}

const httpTimeout = 15 * time.Second

// admitsChannel reports whether a channel may be heard.
func (a Allow) admitsChannel(id string) bool {
	return slices.Contains(a.Channels, "*") || slices.Contains(a.Channels, id)
}

// refusal says why a person may not speak; "" if they may.
func (a Allow) refusal(p agent.Person) string {
	switch {
	case p.Inactive:
		return "I cannot answer you: your account is not active in this workspace."
	case p.External && !a.External:
		return "I cannot answer you: I only answer members of the workspace I am installed in."
	case p.Guest && !a.Guests:
		return "I cannot answer you: I do not answer guests."
	case slices.Contains(a.Users, p.Actor.User) || slices.Contains(a.Users, p.Actor.String()):
		return ""
	case slices.Contains(a.Users, "*"):
		return ""
	}
	return "I cannot answer you: you are not on the list of people I answer."
}
