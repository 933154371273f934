package slack

import (
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
