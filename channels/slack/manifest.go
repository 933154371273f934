package slack

import (
	"maps"
	"slices"
	"strings"

	"github.com/goccy/go-yaml"
	slackgo "github.com/slack-go/slack"
)

// command is the slash command of the app.
const command = "/clawbot"

// Manifest is the app manifest as YAML, with exactly the scopes and events that
// are used. publicURL is where Slack reaches the HTTP endpoints, such as
// https://bot.example.com; empty means Socket Mode, which needs no public address.
func Manifest(publicURL string) ([]byte, error) {
	base := strings.TrimRight(publicURL, "/")
	slash := slackgo.ManifestSlashCommand{Command: command, Description: "What clawbot can do", UsageHint: "help"}
	events := &slackgo.EventSubscriptions{BotEvents: slices.Sorted(maps.Keys(scopesByEvent))}
	clicks := &slackgo.Interactivity{IsEnabled: true}
	if base != "" {
		slash.Url = base + PathCommands
		events.RequestUrl = base + PathEvents
		clicks.RequestUrl = base + PathInteractions
	}
	return yaml.Marshal(slackgo.Manifest{
		Display: slackgo.Display{
			Name:        "clawbot",
			Description: "An agent that asks before it acts",
		},
		Features: slackgo.Features{
			AppHome:       slackgo.AppHome{MessagesTabEnabled: true},
			BotUser:       slackgo.BotUser{DisplayName: "clawbot", AlwaysOnline: true},
			SlashCommands: []slackgo.ManifestSlashCommand{slash},
		},
		OAuthConfig: slackgo.OAuthConfig{Scopes: slackgo.OAuthScopes{Bot: RequiredScopes()}},
		Settings: slackgo.Settings{
			EventSubscriptions: events,
			Interactivity:      clicks,
			SocketModeEnabled:  base == "",
		},
	})
}
