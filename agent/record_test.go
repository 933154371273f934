package agent_test

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/clawbot/clawbot/agent"
)

// obedient asks for what the latest message says, calls with " ; " between, and
// then says that it is done.
var obedient = modelFunc(func(req agent.ModelRequest) (agent.ModelReply, error) {
	for i := len(req.Messages) - 1; i >= 0; i-- {
		if m := req.Messages[i]; m.Role == agent.RoleUser {
			return stepwise(m.Text)(req)
		}
	}
	return agent.ModelReply{}, agent.ErrModelRefused
})

// sessionAt returns the id of the session at a place.
func (b *bench) sessionAt(p agent.Place) string {
	b.t.Helper()
	return strings.TrimSpace(b.query(`SELECT id FROM sessions WHERE channel = $1 AND conversation = $2 AND thread = $3`, string(p.Channel), p.Conversation, p.Thread))
}

// over waits until the turn at a place has ended.
func (b *bench) over(p agent.Place) {
	b.t.Helper()
	b.until("the turn is over", func() bool {
		ended := b.query(`SELECT count(*) FROM turns WHERE session_id = $1 AND ended_at IS NOT NULL`, b.sessionAt(p))
		return ended == "1\n"
	})
}

// openAt waits for the open question of a place.
func (b *bench) openAt(p agent.Place) agent.ApprovalID {
	b.t.Helper()
	var id agent.ApprovalID
	b.until("a question is open and shown", func() bool {
		id = agent.ApprovalID(strings.TrimSpace(b.query(`SELECT id FROM approvals WHERE session_id = $1 AND status = 'pending' AND card_ref <> ''`, b.sessionAt(p))))
		return id != ""
	})
	return id
}

// Whatever becomes of a call, there is one record of it: name, arguments, outcome,
// output, error and time; the model reads the same; and the audit names the call.
// What did not start has no time, and its error says which of all the reasons it was.
//
// Rows: L2, L52, L56, L62, L102.
func TestRecordOfEveryEnd(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.policy = b.rules("deny forbidden because off-limits\nask note by boss for 300ms\nask gated by boss\nallow *")
	b.brain = obedient
	b.start()
	decide := func(c agent.Click) func(agent.Place) {
		return func(p agent.Place) {
			c.Approval = b.openAt(p)
			b.act("boss", c)
		}
	}
	for i, c := range []struct {
		calls  string
		act    func(p agent.Place)
		record string // of the last call
		audit  string
	}{
		{`transfer {"code":"123456", "amount":7}`, nil,
			`transfer {"amount":7,"code":"123456"}|succeeded|sent 7 with code 123456||ran true`, "policy_decision allow rule-4, tool_started -, tool_finished succeeded"},
		{`broken {}`, nil, `broken {}|failed||it did not work|ran true`, "policy_decision allow rule-4, tool_started -, tool_finished failed"},
		{`hold {}`, func(p agent.Place) { b.step("wait for hold"); b.receive(p, "ann", "stop it", "stop") },
			`hold {}|interrupted||stopped|ran true`, "policy_decision allow rule-4, tool_started -, tool_finished interrupted"},
		{`forbidden {}`, nil, `forbidden {}|denied||Denied by policy: off-limits|ran false`, "policy_decision deny rule-1 off-limits"},
		{`gated {}`, decide(agent.Click{Verb: agent.VerbDeny, Reason: "too late"}), `gated {}|denied||Denied by a person: too late|ran false`,
			"policy_decision ask rule-3, approval_requested ask, approval_decided denied"},
		{`gated {}`, decide(agent.Click{Verb: agent.VerbReplace, Value: "use the list"}), `gated {}|replaced|use the list||ran false`,
			"policy_decision ask rule-3, approval_requested ask, approval_decided replaced"},
		{`note {}`, nil, `note {}|expired||Not executed: nobody decided before the deadline. Nobody denied it either|ran false`,
			"policy_decision ask rule-2, approval_requested ask, approval_decided expired"},
		{`gated {}`, func(p agent.Place) { b.openAt(p); b.receive(p, "ann", "stop this", "stop") },
			`gated {}|cancelled||Not executed: slack:T1/ann stopped the turn|ran false`, "policy_decision ask rule-3, approval_requested ask, approval_decided cancelled"},
		{`nothing {"x":1}`, nil, `nothing |blocked||Not executed: there is no tool named "nothing" here|ran false`,
			`policy_decision deny Not executed: there is no tool named "nothing" here`},
		{`quiet {} ; quiet {}`, nil, `quiet {}|deduplicated||Not executed again: the same call is b1c1 of this answer|ran false`, "policy_decision allow rule-4"},
	} {
		p := place(i)
		b.receive(p, "ann", fmt.Sprint("m", i), c.calls)
		if c.act != nil {
			c.act(p)
		}
		b.over(p)
		b.checkRecord(p, c.calls, c.record, c.audit)
	}

	// Where nobody can be asked: a turn that came from no conversation.
	nowhere := agent.Place{Channel: "cron", Workspace: "T1", Conversation: "job"}
	b.receive(nowhere, "ann", "n1", "gated {}")
	b.over(nowhere)
	b.checkRecord(nowhere, "gated {}", `gated {}|undeliverable||Not executed: nobody can be asked where this turn came from|ran false`,
		"policy_decision ask rule-3, approval_decided undeliverable rule-3 nobody can be asked where this turn came from")

	b.stop()
	b.denial = agent.DenialDegrade
	b.start()
	b.receive(place(100), "ann", "d1", "forbidden {} ; quiet {}")
	b.over(place(100))
	b.checkRecord(place(100), "forbidden {} ; quiet {}", `quiet {}|skipped||Skipped: another call of this answer was refused, and then the turn ends|ran false`, "policy_decision allow rule-4")
	b.stop()

	// Started by a process that died.
	b.denial = ""
	b.start()
	b.receive(place(101), "ann", "u1", "hold {\"x\":1}")
	b.step("wait for hold 2")
	b.crash()
	b.start()
	b.over(place(101))
	b.checkRecord(place(101), "hold", `hold {"x":1}|unknown||Unknown: clawbot was stopped while this ran. It may or may not have taken effect, and it was not run again|ran true`,
		"policy_decision allow rule-4, tool_started -, tool_finished unknown")
	b.stop()
	b.checkInvariants()
}

// checkRecord compares the record of the last call at a place, what the audit has
// about it by its id, and what the model read.
func (b *bench) checkRecord(p agent.Place, about, record, audit string) {
	b.t.Helper()
	session := b.sessionAt(p)
	const last = ` WHERE session_id = $1 AND turn_id || call_id = (SELECT turn_id || call_id FROM tool_calls WHERE session_id = $1 ORDER BY position DESC LIMIT 1)`
	got := b.query(`SELECT tool || ' ' || args || '|' || outcome || '|' || output || '|' || error || '|ran ' || (latency_ms IS NOT NULL AND started_at IS NOT NULL)
		FROM tool_calls`+last, session)
	if got != record+"\n" {
		b.t.Errorf("%s: the record is\n%swant\n%s", about, got, record)
	}
	// Rule and reason of what clawbot itself decided; those of people stand in the call's error.
	got = b.query(`SELECT string_agg(concat_ws(' ', kind, CASE WHEN kind = 'tool_started' THEN '-' ELSE decision END,
			CASE WHEN kind IN ('policy_decision') OR decision = 'undeliverable' THEN rule END,
			CASE WHEN kind IN ('policy_decision') OR decision = 'undeliverable' THEN nullif(reason, 'rule ' || rule || ' says ' || decision) END), ', ' ORDER BY seq)
		FROM audit_log`+last+` AND kind <> 'approval_vote'`, session)
	if got != audit+"\n" {
		b.t.Errorf("%s: the audit has\n%swant\n%s", about, got, audit)
	}
	f := strings.Split(record, "|")
	read := b.query(`SELECT text FROM messages`+last+` AND role = 'tool'`, session)
	for _, part := range f[2:4] {
		if !strings.Contains(strings.ReplaceAll(read, `\"`, `"`), part) {
			b.t.Errorf("%s: the model does not read %q:\n%s", about, part, read)
		}
	}
	if f[3] != "" && (!strings.Contains(read, `"outcome":"`+f[1]+`"`) || !strings.Contains(read, `"tool_call_id":"b1c`)) {
		b.t.Errorf("%s: the model is not told which call ended how:\n%s", about, read)
	}
}

// At the moment a tool runs, everybody can see that it does: status, event and
// audit row are committed. While the call only waits, its row is there already.
//
// Rows: L80, L102, L114, L119.
func TestStartIsSeenBeforeTheEffect(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.policy = b.rules("ask note by boss\nallow *")
	b.brain = stepwise(`note {"x":1}`)
	const seen = `SELECT c.status, (SELECT string_agg(type, ' ' ORDER BY seq) FROM events), (SELECT string_agg(kind, ' ' ORDER BY seq) FROM audit_log) FROM tool_calls c`
	var during string
	b.ledger.watch = func(agent.Invocation) { during = b.query(seen) }
	b.start()
	b.step("ann: go")
	b.settle()
	if got := b.query(seen); got != "prepared tool_batch_started policy_decision run_paused policy_decision approval_requested\n" {
		t.Errorf("while it waits: %s", got)
	}
	b.step("boss clicks approve")
	b.settle()
	b.stop()
	if want := "started tool_batch_started policy_decision run_paused run_resumed tool_call " +
		"policy_decision approval_requested approval_vote approval_decided tool_started\n"; during != want {
		t.Errorf("while it runs:\n%swant\n%s", during, want)
	}
	b.checkInvariants()
}

// If the start cannot be committed, nothing runs.
//
// Rows: L80, L119.
func TestNoStartWithoutItsCommit(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.leaseFor(200 * time.Millisecond)
	b.policy = b.rules("allow *")
	b.config.ParallelTools = true
	b.brain = obedient
	var refused atomic.Int32
	b.faults = func(s *mortalStore) {
		s.refuse = func(step agent.Step) error {
			for _, c := range step.Calls {
				if c.Status == agent.CallStarted {
					refused.Add(1)
					return context.DeadlineExceeded
				}
			}
			return nil
		}
	}
	b.start()
	for i, calls := range []string{`note {"x":1}`, `note {"x":1} ; note {"x":2}`} {
		b.receive(place(i), "ann", fmt.Sprint("m", i), calls)
	}
	b.until("starts were refused again and again", func() bool { return refused.Load() >= 4 })
	b.stop()
	if b.ledger.text() != "" {
		t.Errorf("this ran:\n%s", b.ledger.text())
	}
	if rows := b.query(`SELECT type FROM events WHERE type IN ('tool_call', 'tool_result') UNION SELECT kind FROM audit_log WHERE kind LIKE 'tool_%'`); rows != "" {
		t.Errorf("of what did not run there is\n%s", rows)
	}
	b.checkInvariants()
}
