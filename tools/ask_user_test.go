package tools

import (
	"strings"
	"testing"

	"github.com/clawbot/clawbot/agent"
)

// Both speak in the thread that asked and nowhere else; the platform is filled in.
//
// Rows: L33, L34, L36.
func TestAskUserAndEscalate(t *testing.T) {
	nowhere := agent.Origin{Place: agent.Place{Channel: "cli"}}
	for _, tc := range []struct {
		name, tool, args string
		origin           agent.Origin
		filled           string
		says, fails      string
	}{
		{"question", "ask_user", `{"question":" Which one? "}`, asked, "channel", "Which one?", ""},
		{"options", "ask_user", `{"question":"Which?","options":["red","dark\n1. blue"]}`, asked, "channel", "Which?\n1. red\n2. dark 1. blue", ""},
		{"channel given", "ask_user", `{"question":"Which?","channel":"slack"}`, asked, "", "Which?", ""},
		{"channel blank", "ask_user", `{"question":"Which?","channel":" "}`, asked, "channel", "Which?", ""},
		{"another platform", "ask_user", `{"question":"Which?","channel":"discord"}`, asked, "", "", "channel is the platform"},
		{"blank", "ask_user", `{"question":" "}`, asked, "channel", "", "blank"},
		{"escalate", "escalate_to_human", `{"reason":"I may not pay"}`, asked, "channel", "**A person has to take over here:** I may not pay", ""},
		{"escalate blank", "escalate_to_human", `{"reason":"\t"}`, asked, "channel", "", "blank"},
		{"no conversation", "ask_user", `{"question":"Which?"}`, nowhere, "", "", "no conversation"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			o := &outbox{}
			tool := map[string]agent.Tool{"ask_user": askUser(o), "escalate_to_human": escalate(o)}[tc.tool]
			args, filled, err := new(Toolbox).Fill(tool, []byte(tc.args), tc.origin)
			if err != nil || strings.Join(filled, " ") != tc.filled {
				t.Fatalf("filled %v, want %q: %v", filled, tc.filled, err)
			}
			if got := tool.Default(nil, tc.origin); got != agent.Allow {
				t.Errorf("the default is %s", got)
			}
			res := tool.Run(t.Context(), agent.Invocation{Args: args, Origin: tc.origin})
			checkText(t, res)
			if tc.fails != "" {
				if res.Success || !strings.Contains(res.Error, tc.fails) || len(o.sent) > 0 {
					t.Errorf("%+v, sent %v", res, o.sent)
				}
				return
			}
			if !res.Success || len(o.sent) != 1 || o.sent[0] != asked.Place || o.text[0] != tc.says {
				t.Errorf("%+v, sent %v %q", res, o.sent, o.text)
			}
		})
	}
}
