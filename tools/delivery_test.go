package tools

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/clawbot/clawbot/agent"
)

var asked = agent.Origin{Place: agent.Place{Channel: "slack", Workspace: "T1", Conversation: "C1", Thread: "17.1"}}

func deliveryTool(properties string) agent.Tool {
	return agent.Tool{Name: "x", Delivery: true, Schema: json.RawMessage(`{"type":"object","properties":` + properties + `}`)}
}

// Rows: L33, L34, L35, L36.
func TestFill(t *testing.T) {
	flat := deliveryTool(`{"text":{},"channel":{},"conversation":{},"thread":{}}`)
	question := deliveryTool(`{"question":{},"channel":{}}`)
	job := deliveryTool(`{"prompt":{},"delivery":{}}`)
	direct := asked
	direct.Thread = ""
	for _, tc := range []struct {
		name   string
		tool   agent.Tool
		origin agent.Origin
		args   string
		want   string
		filled string
	}{
		{"L33 all missing", flat, asked, `{"text":"x"}`, `{"channel":"slack","conversation":"C1","text":"x","thread":"17.1"}`, "channel conversation thread"},
		{"L33 blank is missing", flat, asked, `{"channel":"","conversation":" \t","thread":null}`, `{"channel":"slack","conversation":"C1","thread":"17.1"}`, "channel conversation thread"},
		{"L33 only what the schema knows", question, asked, `{"question":"?"}`, `{"channel":"slack","question":"?"}`, "channel"},
		{"L33 no thread to fill", flat, direct, `{}`, `{"channel":"slack","conversation":"C1"}`, "channel conversation"},
		{"L34 given values stay", flat, asked, `{"channel":"slack","conversation":"C2","thread":"9.9"}`, `{"channel":"slack","conversation":"C2","thread":"9.9"}`, ""},
		{"no thread for another conversation", flat, asked, `{"conversation":"C2"}`, `{"channel":"slack","conversation":"C2"}`, "channel"},
		{"blank thread for another conversation", flat, asked, `{"conversation":"C2","thread":" "}`, `{"channel":"slack","conversation":"C2","thread":" "}`, "channel"},
		{"thread for the same conversation", flat, asked, `{"conversation":"C1"}`, `{"channel":"slack","conversation":"C1","thread":"17.1"}`, "channel thread"},
		{"nothing of here on another platform", flat, asked, `{"channel":"discord"}`, `{"channel":"discord"}`, ""},
		{"wrong types are left", flat, asked, `{"conversation":7}`, `{"channel":"slack","conversation":7}`, "channel"},
		{"L36 no conversation", flat, agent.Origin{Place: agent.Place{Channel: "cli"}}, `{"text":"x"}`, `{"text":"x"}`, ""},
		{"not a delivery tool", agent.Tool{Schema: flat.Schema}, asked, `{"text":"x"}`, `{"text":"x"}`, ""},
		{"L35 no delivery", job, asked, `{"prompt":"p"}`, `{"delivery":{"channel":"slack","mode":"post","thread":"17.1","to":"C1"},"prompt":"p"}`, "delivery.mode delivery.channel delivery.to delivery.thread"},
		{"L35 null", job, asked, `{"delivery":null}`, `{"delivery":{"channel":"slack","mode":"post","thread":"17.1","to":"C1"}}`, "delivery.mode delivery.channel delivery.to delivery.thread"},
		{"L35 gaps", job, asked, `{"delivery":{"mode":"post","to":""}}`, `{"delivery":{"channel":"slack","mode":"post","thread":"17.1","to":"C1"}}`, "delivery.channel delivery.to delivery.thread"},
		{"L35 mode none", job, asked, `{"delivery":{"mode":"none"}}`, `{"delivery":{"mode":"none"}}`, ""},
		{"L35 another place", job, asked, `{"delivery":{"to":"C2"}}`, `{"delivery":{"channel":"slack","mode":"post","to":"C2"}}`, "delivery.mode delivery.channel"},
		{"L35 no object", job, asked, `{"delivery":"C2"}`, `{"delivery":"C2"}`, ""},
		{"L35 list", job, asked, `{"delivery":[]}`, `{"delivery":[]}`, ""},
		{"L36 job", job, agent.Origin{}, `{"prompt":"p"}`, `{"prompt":"p"}`, ""},
		{"numbers stay as written", flat, asked, `{"text":1.50e2,"channel":"slack","conversation":"C2"}`, `{"channel":"slack","conversation":"C2","text":1.50e2}`, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got, filled, err := new(Toolbox).Fill(tc.tool, []byte(tc.args), tc.origin)
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(tc.want, string(got)); d != "" {
				t.Error(d)
			}
			if s := strings.Join(filled, " "); s != tc.filled {
				t.Errorf("filled %q, want %q", s, tc.filled)
			}
		})
	}
	for _, bad := range []string{``, `[]`, `{`, `{"channel":"a","channel":"b"}`} {
		if _, _, err := new(Toolbox).Fill(flat, []byte(bad), asked); err == nil {
			t.Errorf("%s is taken", bad)
		}
	}
}

// Whatever the arguments: given values stay, filling again changes nothing, and
// only delivery arguments are ever added.
//
// Rows: L34.
func TestFillDeliveryProperties(t *testing.T) {
	flat := deliveryTool(`{"text":{},"channel":{},"conversation":{},"thread":{}}`)
	rapid.Check(t, func(t *rapid.T) {
		value := rapid.SampledFrom([]any{nil, "", " ", "slack", "discord", "C1", "C2", "17.1", 5, true, []int{1}})
		in := map[string]any{}
		for _, k := range []string{"text", "channel", "conversation", "thread", "other"} {
			if rapid.Bool().Draw(t, k) {
				in[k] = value.Draw(t, "value of "+k)
			}
		}
		raw, _ := json.Marshal(in)
		out, filled, err := new(Toolbox).Fill(flat, raw, asked)
		if err != nil {
			t.Fatal(err)
		}
		var got map[string]any
		json.Unmarshal(out, &got)
		for k := range got {
			if _, had := in[k]; !had && !slices.Contains(filled, k) {
				t.Fatalf("%s was added and not named", k)
			}
		}
		for k, v := range in {
			s, isText := v.(string)
			blank := v == nil || isText && strings.TrimSpace(s) == ""
			was, _ := json.Marshal(v)
			is, _ := json.Marshal(got[k])
			if string(was) != string(is) && !blank {
				t.Fatalf("%s was %s and is %s", k, was, is)
			}
		}
		again, filled, err := new(Toolbox).Fill(flat, out, asked)
		if err != nil || string(again) != string(out) || len(filled) > 0 {
			t.Fatalf("second time: %s, %v, %v", again, filled, err)
		}
	})
}
