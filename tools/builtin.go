package tools

import (
	"errors"
	"os"
	"time"

	"github.com/clawbot/clawbot/agent"
)

// Owner is the Tool.Owner of all built-in tools.
const Owner = "builtin"

// Deps are what built-in tools use of the rest of clawbot.
type Deps struct {
	Outbox Outbox           // nil: no send_message, ask_user, escalate_to_human
	Jobs   Jobs             // nil: no cron_add, cron_list, cron_remove
	Now    func() time.Time // nil: time.Now

	// Resolver looks up the hosts of http_fetch; nil: the system's resolver.
	Resolver Resolver
}

// Builtin returns the built-in tools that the settings offer, in a fixed order.
// It makes the workspace, and with the shell enabled it tries the sandbox once:
// what does not hold is an error here and not a surprise later.
func Builtin(cfg Config, deps Deps) ([]agent.Tool, error) {
	if err := errors.Join(cfg.Validate()...); err != nil {
		return nil, err
	}
	if deps.Now == nil {
		deps.Now = time.Now
	}
	dir, root, err := openWorkspace(cfg)
	if err != nil {
		return nil, err
	}
	ws := workspace{root: root}
	if os.Geteuid() == 0 { // commands must be able to change what the file tools make
		ws.uid, ws.gid = ownerOf(dir)
		if cfg.Shell.Enabled && cfg.Shell.Sandbox != SandboxNone {
			ws.uid, ws.gid, _ = sandboxUser(dir)
		}
	}
	list := []agent.Tool{readFile(ws), listDir(ws), writeFile(ws)}
	if cfg.Shell.Enabled {
		tool, err := shell(cfg, dir, ws)
		if err != nil {
			root.Close()
			return nil, err
		}
		list = append(list, tool)
	}
	if cfg.HTTPFetch.Enabled {
		list = append(list, httpFetch(cfg.HTTPFetch, deps.Resolver))
	}
	if deps.Outbox != nil {
		list = append(list, sendMessage(deps.Outbox), askUser(deps.Outbox), escalate(deps.Outbox))
	}
	if deps.Jobs != nil {
		list = append(list, cronAdd(deps.Jobs, deps.Now), cronList(deps.Jobs), cronRemove(deps.Jobs))
	}
	return list, nil
}

// always is a Tool.Default that looks at nothing.
func always(a agent.Action) func(map[string]any, agent.Origin) agent.Action {
	return func(map[string]any, agent.Origin) agent.Action { return a }
}
