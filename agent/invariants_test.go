package agent_test

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"

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
	started := map[string]int{}
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
			started[id]++
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
	for id, n := range started {
		if results[id] != n {
			t.Errorf("turn %s: call %s was started %d times and has %d results", turn.ID, id, n, results[id])
		}
	}
}

// checkFacts reports events without the row that they tell of, from the same
// transaction; warnings that are not in the log; and turns that ended without a
// word to the people who wait for one.
func (b *bench) checkFacts() {
	b.t.Helper()
	for what, sql := range map[string]string{
		"an event without its audit row": `SELECT e.seq, e.type FROM events e
			JOIN (VALUES ('policy_decision', 'policy_decision'), ('run_paused', 'approval_requested'), ('run_resumed', 'approval_decided'),
				('tool_call', 'tool_started'), ('tool_result', 'tool_finished')) k (type, kind) USING (type)
			WHERE NOT EXISTS (SELECT 1 FROM audit_log a WHERE a.turn_id = e.turn_id AND a.call_id = e.call_id AND a.kind = k.kind AND a.xmin = e.xmin)`,
		"an end of a call that its row does not have": `SELECT e.seq, e.fields FROM events e LEFT JOIN tool_calls c USING (turn_id, call_id)
			WHERE e.type = 'tool_completed' AND (c.outcome, c.tool, c.finished_at <= e.at) IS DISTINCT FROM (e.fields ->> 'outcome', e.fields ->> 'tool_name', true)`,
		"a question that its row does not have": `SELECT e.seq, e.fields FROM events e LEFT JOIN approvals a ON a.id = e.fields ->> 'approval_id'
			WHERE e.type = 'run_paused' AND a.id IS NULL OR e.type = 'run_resumed' AND a.status IS DISTINCT FROM e.fields ->> 'decision'`,
		"an event that does not name its call": `SELECT seq, type, fields FROM events
			WHERE type <> 'tool_batch_started' AND (fields ->> 'tool_call_id' IS DISTINCT FROM call_id OR coalesce(fields ->> 'tool_name', '') = '')`,
		"a turn that ended in silence": `SELECT t.id, t.status FROM turns t WHERE t.ended_at IS NOT NULL AND t.channel = 'slack'
			AND NOT EXISTS (SELECT 1 FROM deliveries d WHERE d.turn_id = t.id AND d.kind = 'text' AND d.text <> '' AND d.created_at = t.ended_at)`,
	} {
		if rows := b.query(sql); rows != "" {
			b.t.Errorf("there is %s:\n%s", what, rows)
		}
	}
	logged := b.log.text()
	for _, turn := range b.turns() {
		for _, e := range turn.Events {
			if m := e.Fields["message"]; e.Type == agent.EventWarning && !strings.Contains(logged, m) {
				b.t.Errorf("a warning is not in the log: %s", m)
			}
		}
	}
}

// query returns rows as text, one a line.
func (b *bench) query(sql string, args ...any) string {
	b.t.Helper()
	conn, err := pgx.Connect(context.Background(), b.url)
	if err != nil {
		b.t.Fatal(err)
	}
	defer conn.Close(context.Background())
	rows, err := conn.Query(context.Background(), sql, args...)
	if err != nil {
		b.t.Fatal(err)
	}
	var out strings.Builder
	for rows.Next() {
		values, err := rows.Values()
		if err != nil {
			b.t.Fatal(err)
		}
		fmt.Fprintln(&out, values...)
	}
	if err := rows.Err(); err != nil {
		b.t.Fatal(err)
	}
	return out.String()
}
