package tools

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/clawbot/clawbot/agent"
)

// outbox remembers what was sent.
type outbox struct {
	sent []agent.Place
	text []string
	err  error
}

func (o *outbox) Send(_ context.Context, _ agent.Invocation, to agent.Place, text string) error {
	o.sent, o.text = append(o.sent, to), append(o.text, text)
	return o.err
}

// The steps of the engine in order: fill, judge, run.
func TestSendMessage(t *testing.T) {
	for _, tc := range []struct {
		name, args string
		origin     agent.Origin
		action     agent.Action
		to         agent.Place
		fails      string
	}{
		{"here", `{"text":"x"}`, asked, agent.Allow, asked.Place, ""},
		{"here, spelled out", `{"text":"x","channel":"slack","conversation":"C1","thread":"17.1"}`, asked, agent.Allow, asked.Place, ""},
		{"another thread", `{"text":"x","thread":"9.9"}`, asked, agent.Ask, agent.Place{Channel: "slack", Workspace: "T1", Conversation: "C1", Thread: "9.9"}, ""},
		{"another conversation", `{"text":"x","conversation":"C2"}`, asked, agent.Ask, agent.Place{Channel: "slack", Workspace: "T1", Conversation: "C2"}, ""},
		{"almost the same", `{"text":"x","conversation":"C1 "}`, asked, agent.Ask, agent.Place{Channel: "slack", Workspace: "T1", Conversation: "C1 "}, ""},
		{"another platform", `{"text":"x","channel":"discord","conversation":"5"}`, asked, agent.Ask, agent.Place{}, "channel is the platform"},
		{"no conversation", `{"text":"x"}`, agent.Origin{Place: agent.Place{Channel: "cli"}}, agent.Ask, agent.Place{}, "name one"},
		{"blank", `{"text":" \n"}`, asked, agent.Allow, agent.Place{}, "blank"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			o := &outbox{}
			tool := sendMessage(o)
			args, _, err := new(Toolbox).Fill(tool, []byte(tc.args), tc.origin)
			if err != nil {
				t.Fatal(err)
			}
			var decoded map[string]any
			json.Unmarshal(args, &decoded)
			if got := tool.Default(decoded, tc.origin); got != tc.action {
				t.Errorf("%s, want %s", got, tc.action)
			}
			res := tool.Run(t.Context(), agent.Invocation{Args: args, Origin: tc.origin})
			checkText(t, res)
			if tc.fails != "" {
				if res.Success || !strings.Contains(res.Error, tc.fails) || len(o.sent) > 0 {
					t.Errorf("%+v, sent %v", res, o.sent)
				}
				return
			}
			if !res.Success || len(o.sent) != 1 || o.sent[0] != tc.to {
				t.Errorf("%+v, sent %v, want %v", res, o.sent, tc.to)
			}
		})
	}
	o := &outbox{err: errors.New("secret detail of the database")}
	res := run(t, sendMessage(o), map[string]any{"text": "x\x00y", "conversation": "C1"}, asked)
	if res.Success || strings.Contains(res.Error, "secret") || o.text[0] != "x\uFFFDy" {
		t.Errorf("%+v %q", res, o.text)
	}
}
