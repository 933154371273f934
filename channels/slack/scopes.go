package slack

import (
	"context"
	"net/http"
	"slices"
	"strings"
)

// scopesByMethod is every Web API method this package calls and the bot scopes
// each needs. A test compares it with the manifest and with what was called.
var scopesByMethod = map[string][]string{
	"auth.test":                    nil,
	"apps.connections.open":        nil, // app token: connections:write
	"chat.postMessage":             {"chat:write"},
	"chat.update":                  {"chat:write"},
	"chat.postEphemeral":           {"chat:write"},
	"conversations.replies":        {"channels:history", "groups:history", "im:history", "mpim:history"},
	"conversations.history":        {"channels:history", "groups:history", "im:history", "mpim:history"},
	"users.info":                   {"users:read"},
	"usergroups.users.list":        {"usergroups:read"},
	"views.open":                   nil,
	"files.getUploadURLExternal":   {"files:write"},
	"files.completeUploadExternal": {"files:write"},
}

// scopesByEvent is every event this package reads and the bot scope it needs.
var scopesByEvent = map[string]string{
	"app_mention":      "app_mentions:read",
	"message.channels": "channels:history",
	"message.groups":   "groups:history",
	"message.im":       "im:history",
	"message.mpim":     "mpim:history",
}

// RequiredScopes is the bot scopes the app needs, sorted: what the methods and
// events need, and commands for /clawbot.
func RequiredScopes() []string {
	all := []string{"commands"}
	for _, scopes := range scopesByMethod {
		all = append(all, scopes...)
	}
	for _, scope := range scopesByEvent {
		all = append(all, scope)
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// grantedScopes reads the scopes of a token from the header of any answer; nil
// if Slack did not say.
func grantedScopes(h http.Header) []string {
	var out []string
	for scope := range strings.SplitSeq(h.Get("X-OAuth-Scopes"), ",") {
		if scope = strings.TrimSpace(scope); scope != "" {
			out = append(out, scope)
		}
	}
	return out
}

// missingScopes is the required scopes that were not granted; none if it is not
// known what was granted.
func missingScopes(granted []string) []string {
	if len(granted) == 0 {
		return nil
	}
	return slices.DeleteFunc(RequiredScopes(), func(s string) bool { return slices.Contains(granted, s) })
}

// Finding is one line of what Check found.
type Finding struct {
	Name string // such as "bot token"
	OK   bool
	Text string // what is right, or what is wrong and what to do
}

// Check tries the tokens against Slack for clawbot doctor. It posts nothing.
func (a *Adapter) Check(ctx context.Context) []Finding {
	var out []Finding
	res, err := a.api.AuthTestContext(ctx)
	if err != nil {
		out = append(out, Finding{Name: "bot token", Text: explain(err)})
	} else {
		out = append(out, Finding{Name: "bot token", OK: true, Text: "signed in to " + res.Team + " (" + res.TeamID + ") as " + res.User})
		granted := grantedScopes(res.Header)
		switch missing := missingScopes(granted); {
		case len(granted) == 0:
			out = append(out, Finding{Name: "scopes", OK: true, Text: "Slack did not say which scopes are granted"})
		case len(missing) > 0:
			out = append(out, Finding{Name: "scopes", Text: "missing " + strings.Join(missing, ", ") +
				": update the app with `clawbot slack manifest` and install it again"})
		default:
			out = append(out, Finding{Name: "scopes", OK: true, Text: "all granted"})
		}
	}
	if a.cfg.Secrets.AppToken != "" {
		// Opening an address does not open a connection.
		if _, _, err := a.socketAPI().StartSocketModeContext(ctx); err != nil {
			out = append(out, Finding{Name: "app token", Text: explain(err)})
		} else {
			out = append(out, Finding{Name: "app token", OK: true, Text: "Socket Mode is available"})
		}
	}
	return out
}

func explain(err error) string {
	if why, ok := hopeless(err); ok {
		return why
	}
	return "Slack cannot be reached: " + err.Error()
}
