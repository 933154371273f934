package settings

import (
	"fmt"
	"strings"

	"github.com/clawbot/clawbot/approval"
)

// feature is something that can be configured but is not in this version.
type feature struct {
	path string // of the key; "" for a variable
	what string // one line for people
}

// unavailable returns what these settings ask for and this version lacks. To
// make a feature available, delete its lines here.
func (s Settings) unavailable() []feature {
	var out []feature
	lacks := func(used bool, path, what string) {
		if used {
			out = append(out, feature{path: path, what: what})
		}
	}
	lacks(s.Env.DiscordBotToken.Set(), "", "DISCORD_BOT_TOKEN: the Discord channel is not available in this version; nothing connects to Discord")
	lacks(s.MCP.Deferred || len(s.MCP.Servers) > 0, "mcp", "MCP servers are not available in this version; none is started or called")
	lacks(len(s.ToolFilterGroups) > 0, "tool_filter_groups", "filter groups are not available in this version; there are no MCP tools to filter")
	lacks(s.Approval.Reminder > 0, "approval.reminder", "reminders are not available in this version; a card is posted once")
	web := func(path string, a approval.Approvers) {
		for i, user := range a.Users {
			lacks(strings.HasPrefix(user, "web:"), fmt.Sprintf("%s.users[%d]", path, i), "the web console is not available in this version; "+user+" cannot decide there")
		}
	}
	web("approval.approvers", s.Approval.Approvers)
	for i, r := range s.Approval.Rules {
		if r.Approvers != nil {
			web(fmt.Sprintf("approval.rules[%d].approvers", i), *r.Approvers)
		}
	}
	return out
}
