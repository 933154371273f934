package slack

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"
	slackgo "github.com/slack-go/slack"
)

func good() Config {
	c := DefaultConfig()
	c.Secrets = Secrets{BotToken: "xoxb-canary", AppToken: "xapp-canary", SigningSecret: "canary"}
	return c
}

func TestConfigSaysWhatIsWrong(t *testing.T) {
	if errs := good().Validate(); errs != nil {
		t.Fatal(errs)
	}
	for want, change := range map[string]func(*Config){
		"SLACK_BOT_TOKEN is blank":              func(c *Config) { c.Secrets.BotToken = " " },
		"belongs in SLACK_APP_TOKEN":            func(c *Config) { c.Secrets.BotToken = "xapp-x" },
		"SLACK_SIGNING_SECRET is blank":         func(c *Config) { c.Secrets.SigningSecret = " \n" },
		"SLACK_APP_TOKEN is no app token":       func(c *Config) { c.Secrets.AppToken = "xoxb-x" },
		"set one of them":                       func(c *Config) { c.Secrets.AppToken, c.Secrets.SigningSecret = "", "" },
		"SLACK_API_URL":                         func(c *Config) { c.APIURL = "slack" },
		"nobody could speak":                    func(c *Config) { c.Allow.Users = nil },
		"is no person on Slack":                 func(c *Config) { c.Allow.Users = []string{"discord:1/2"} },
		"no channel would be heard":             func(c *Config) { c.Allow.Channels = nil },
		"write mention or all":                  func(c *Config) { c.Trigger = "always" },
		"approval_channel: it is not available": func(c *Config) { c.ApprovalChannel = "C0001" },
		"channels.slack.connections: 11":        func(c *Config) { c.Connections = 11 },
	} {
		c := good()
		change(&c)
		_, err := New(c)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("want %q, got %v", want, err)
		}
		if err != nil && strings.Contains(err.Error(), "canary") {
			t.Errorf("a secret is in the error: %v", err)
		}
	}
}

// T14: secrets do not print, whatever prints them.
func TestSecretsDoNotPrint(t *testing.T) {
	c := good()
	js, _ := json.Marshal(c.Secrets)
	ya, _ := yaml.Marshal(map[string]any{"c": Config{Allow: c.Allow, Secrets: c.Secrets}, "s": c.Secrets})
	var log strings.Builder
	slog.New(slog.NewTextHandler(&log, nil)).Info("x", "secrets", c.Secrets, "config", fmt.Sprintf("%+v", c))
	for _, out := range []string{string(js), string(ya), log.String(), fmt.Sprintf("%v %+v %#v %s", c, c, c, c.Secrets)} {
		if strings.Contains(out, "canary") {
			t.Errorf("printed: %s", out)
		}
	}
}

func TestConfigFromYAML(t *testing.T) {
	c := DefaultConfig()
	err := yaml.UnmarshalWithOptions([]byte("allow: { users: [U0001], channels: [C0001], guests: true, external: true }\ntrigger: all\napproval_channel: \"\"\nconnections: 2\n"), &c, yaml.Strict())
	if err != nil || c.Allow.Users[0] != "U0001" || !c.Allow.Guests || !c.Allow.External || c.Trigger != "all" || c.Connections != 2 {
		t.Errorf("%+v, %v", c, err)
	}
}

// The manifest asks for exactly what is used.
func TestManifest(t *testing.T) {
	for _, base := range []string{"", "https://bot.example.com/"} {
		doc, err := Manifest(base)
		if err != nil {
			t.Fatal(err)
		}
		var got slackgo.Manifest
		if err := yaml.Unmarshal(doc, &got); err != nil {
			t.Fatalf("%v\n%s", err, doc)
		}
		want := []string{
			"app_mentions:read", "channels:history", "chat:write", "commands", "files:write", "groups:history",
			"im:history", "mpim:history", "usergroups:read", "users:read",
		}
		if !slices.Equal(got.OAuthConfig.Scopes.Bot, want) {
			t.Errorf("scopes %v", got.OAuthConfig.Scopes.Bot)
		}
		if e := got.Settings.EventSubscriptions.BotEvents; !slices.Equal(e, []string{"app_mention", "message.channels", "message.groups", "message.im", "message.mpim"}) {
			t.Errorf("events %v", e)
		}
		socket := base == ""
		if got.Settings.SocketModeEnabled != socket || !got.Settings.Interactivity.IsEnabled {
			t.Errorf("settings %+v", got.Settings)
		}
		if url := got.Settings.EventSubscriptions.RequestUrl; (url == "") != socket || !socket && url != "https://bot.example.com/slack/events" {
			t.Errorf("url %q", url)
		}
		if got.Features.SlashCommands[0].Command != "/clawbot" {
			t.Errorf("commands %+v", got.Features.SlashCommands)
		}
	}
}
