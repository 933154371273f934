package agent_test

import (
	"strconv"
	"strings"

	"github.com/clawbot/clawbot/agent"
	"github.com/clawbot/clawbot/store"
)

// reporter is a test, rapid's too.
type reporter interface {
	Helper()
	Errorf(format string, args ...any)
}

// checkHistory reports what a provider would refuse: a history that does not
// begin with a person, an empty text, a call without exactly one result right
// behind it and in order, a result without its call.
func checkHistory(t reporter, h []agent.Message) {
	t.Helper()
	var open []agent.CallID
	for i, m := range h {
		if i == 0 && m.Role != agent.RoleUser {
			t.Errorf("history begins with %s", m.Role)
		}
		if strings.TrimSpace(m.Text) == "" && len(m.Calls) == 0 {
			t.Errorf("message %d (%s) is empty", i, m.Role)
		}
		if m.Role == agent.RoleTool {
			if len(open) == 0 || open[0] != m.CallID {
				t.Errorf("message %d answers %s, but %v is open", i, m.CallID, open)
				return
			}
			open = open[1:]
			continue
		}
		if len(open) > 0 {
			t.Errorf("message %d (%s) comes before the results of %v", i, m.Role, open)
			return
		}
		for _, c := range m.Calls {
			open = append(open, c.ID)
			if _, err := agent.Canonical(c.Arguments); err != nil {
				t.Errorf("message %d calls %s with arguments no provider takes back: %v", i, c.ID, err)
			}
		}
	}
	if len(open) > 0 {
		t.Errorf("the history ends before the results of %v", open)
	}
}

// checkTimeline reports a timeline that does not tell of every call exactly once
// how it ended, or of a start without a result.
func checkTimeline(t reporter, turn store.TurnInfo) {
	t.Helper()
	if turn.Status == agent.TurnRunning || turn.Status == agent.TurnParked {
		return
	}
	announced := 0
	judged, completed, results := map[string]int{}, map[string]int{}, map[string]int{}
	started := map[string]bool{}
	given := map[string]int{} // values that people gave: the call is judged again
	for _, e := range turn.Events {
		id := e.Fields["tool_call_id"]
		switch e.Type {
		case agent.EventToolBatchStarted:
			n, err := strconv.Atoi(e.Fields["tool_call_count"])
			if err != nil {
				t.Errorf("%v", err)
			}
			announced += n
		case agent.EventPolicyDecision:
			judged[id]++
			if e.Fields["action"] == string(agent.AskInput) && judged[id] == 1 {
				given[id] = 0
			}
		case agent.EventRunResumed:
			if _, input := given[id]; input && e.Fields["approved"] == "true" {
				given[id] = 1
			}
		case agent.EventToolCall:
			started[id] = true
		case agent.EventToolResult:
			results[id]++
		case agent.EventToolCompleted:
			completed[id]++
		}
	}
	if len(completed) != announced {
		t.Errorf("turn %s: %d calls were announced, %d completed", turn.ID, announced, len(completed))
	}
	for id, n := range completed {
		if n != 1 || judged[id] != 1+given[id] {
			t.Errorf("turn %s: call %s was judged %d times and completed %d times", turn.ID, id, judged[id], n)
		}
	}
	for id := range started {
		if results[id] != 1 {
			t.Errorf("turn %s: call %s was started and has %d results", turn.ID, id, results[id])
		}
	}
}
