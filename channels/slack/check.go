package slack

import (
	"context"
	"strings"
)

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
