package agent_test

import (
	"context"
	"errors"
	"strings"

	"github.com/clawbot/clawbot/agent"
)

// hooks reads the section of that name.
func (b *bench) hooks(text string) {
	for _, line := range lines(text) {
		f := strings.Fields(line)
		switch {
		case f[0] == "after":
			b.after = append(b.after, storyHook{b: b, tool: f[1]})
		case f[0] == "fail" && f[1] == "after":
			b.after = append(b.after, storyHook{b: b, tool: f[2], verb: "fail"})
		default:
			b.before = append(b.before, storyHook{b: b, verb: f[0], tool: f[1], rest: f[2:]})
		}
	}
}

// storyHook does what a line of a story says. What it is told of is in the ledger.
type storyHook struct {
	b          *bench
	verb, tool string
	rest       []string
}

func (h storyHook) Name() string { return "of-" + h.tool }

func (h storyHook) Before(_ context.Context, c agent.HookCall) (agent.HookReply, error) {
	if c.Tool != h.tool {
		return agent.HookReply{}, nil
	}
	switch h.verb {
	case "cancel":
		return agent.HookReply{Cancel: true, Reason: h.rest[1]}, nil
	case "rewrite":
		return agent.HookReply{Tool: h.rest[1], Args: strings.Join(h.rest[2:], " ")}, nil
	case "fail":
		return agent.HookReply{}, errors.New("out of order")
	case "panic":
		panic("oh")
	}
	h.b.t.Errorf("hook is not understood: %s", h.verb)
	return agent.HookReply{}, nil
}

func (h storyHook) After(_ context.Context, c agent.HookCall, r agent.HookResult) error {
	if c.Tool != h.tool {
		return nil
	}
	h.b.ledger.note("after", c.Tool+" "+string(r.Status)+" "+r.Output+r.Error)
	if h.verb == "fail" {
		return errors.New("out of order")
	}
	return nil
}
