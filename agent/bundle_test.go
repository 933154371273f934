package agent_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/clawbot/clawbot/agent"
)

// recorded is a model that keeps what it was asked.
type recorded struct {
	modelFunc
	name string

	mu       sync.Mutex
	requests []agent.ModelRequest
}

func (m *recorded) Name() string { return m.name }

func (m *recorded) Complete(_ context.Context, req agent.ModelRequest) (agent.ModelReply, error) {
	m.mu.Lock()
	m.requests = append(m.requests, req)
	m.mu.Unlock()
	return m.modelFunc(req)
}

func (m *recorded) asked() []agent.ModelRequest {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.requests
}

// Two sessions in work at the same time on one engine: each has its own text, card,
// results and history, and nothing of one is ever seen in the other.
//
// Rows: L10, L106.
func TestSessionsDoNotMeet(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.policy = b.rules("ask gated by boss\nallow *")
	model := &recorded{modelFunc: obedient, name: "one"}
	b.brain = model
	b.start()
	words := map[string]agent.Place{"alpha": place(1), "beta": place(2)}
	for word, p := range words {
		b.receive(p, word, word+" 1", fmt.Sprintf(`hold {"x":"%s held"} ; gated {"x":"%[1]s asked"}`, word))
	}
	b.step("wait for hold 2") // both tools run
	b.ledger.letGo()
	cards := map[string]agent.ApprovalID{}
	for word, p := range words {
		cards[word] = b.openAt(p) // both wait
	}
	for word, p := range words {
		b.click("boss", agent.VerbApprove, cards[word])
		b.over(p)
		b.receive(p, word, word+" 2", fmt.Sprintf(`note {"x":"%s again"}`, word))
	}
	for word, p := range words {
		b.until("the second answer is there", func() bool { return strings.Contains(b.room.shownAt(p), word+` again"}`) })
	}
	b.stop()
	meets := func(where, text string) {
		t.Helper()
		if strings.Contains(text, "alpha") == strings.Contains(text, "beta") {
			t.Errorf("%s holds something of both or of none:\n%s", where, text)
		}
	}
	for word, p := range words {
		if text := b.room.shownAt(p); !strings.Contains(text, word+" asked") {
			t.Errorf("the card of %s is not in its thread:\n%s", word, text)
		}
		meets("the thread of "+word, b.room.shownAt(p))
		for _, table := range []string{"messages", "tool_calls", "approvals", "deliveries", "events", "audit_log", "turns"} {
			meets(table+" of "+word, b.query(`SELECT x::text FROM `+table+` x WHERE session_id = $1`, b.sessionAt(p)))
		}
	}
	if n := len(model.asked()); n != 8 {
		t.Errorf("the model was asked %d times, want 8", n)
	}
	for _, req := range model.asked() {
		text, err := json.Marshal(req.Messages)
		if err != nil {
			t.Fatal(err)
		}
		meets("a request", string(text))
	}
	b.checkInvariants()
}

// Two engines in one process, with different tools, rules, limits, models and
// people, work at the same time as each would alone.
//
// Rows: L11.
func TestEnginesDoNotDisturbEachOther(t *testing.T) {
	t.Parallel()
	calls := []string{`quiet {"x":1}`, `note {"x":2} ; note {"x":3}`, `gated {}`}
	play := func(t *testing.T, b *bench, began func()) string {
		b.brain = stepwise(calls...)
		b.start()
		began()
		b.step("ann: go")
		b.settle()
		if b.room.cardCount() > 0 {
			b.step("boss clicks approve")
		}
		b.settle()
		b.stop()
		b.checkInvariants()
		return b.callText() + b.ledger.text() + b.room.shown()
	}
	one := func(b *bench) {
		b.config.ExcludedTools = []string{"note"}
		b.config.ParallelTools = true
		b.policy = b.rules("ask quiet by boss\nallow *")
	}
	other := func(b *bench) {
		b.config.MaxToolIterations = 2
		b.config.MaxToolResultChars = 200
		b.denial = agent.DenialFail
		b.policy = b.rules("allow note\ndeny gated\nallow quiet")
	}
	made := func(configure func(*bench)) *bench {
		b := newBench(t)
		configure(b)
		return b
	}
	alone := [2]string{play(t, made(one), func() {}), play(t, made(other), func() {})}
	if alone[0] == alone[1] {
		t.Fatalf("the settings make no difference:\n%s", alone[0])
	}
	var together [2]string
	var both, ended sync.WaitGroup
	both.Add(2)
	for i, b := range []*bench{made(one), made(other)} {
		ended.Go(func() {
			together[i] = play(t, b, func() { both.Done(); both.Wait() })
		})
	}
	ended.Wait()
	for i := range alone {
		if together[i] != alone[i] {
			t.Errorf("engine %d, alone:\n%s\nbeside the other:\n%s", i+1, alone[i], together[i])
		}
	}
}

// Another bundle takes effect with the next turn that is claimed. A turn in work
// keeps tools, rules and model to its end, so the results of a batch go to the model
// that asked for it; all requests of a bundle share its tools.
//
// Rows: L5, L8, L12.
func TestAnotherBundleIsForLaterTurns(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.policy = b.rules("allow *")
	before := &recorded{modelFunc: stepwise(`hold {"x":1}`, `note {"x":"TEXT"}`), name: "before"}
	after := &recorded{modelFunc: stepwise(`hold {"x":1}`, `note {"x":"TEXT"}`), name: "after"}
	b.brain = before
	b.start()
	b.step("ann: one")
	b.step("wait for hold")
	b.brain, b.policy = after, b.rules("deny hold\nallow *")
	b.config.ExcludedTools = []string{"note"}
	b.engine.Use(b.bundle())
	b.ledger.letGo()
	b.settle()
	b.step("ann: two")
	b.settle()
	b.stop()
	if got, want := b.callText(), "turn done\n  b1c1 hold succeeded\n  b2c1 note succeeded\nturn done\n  b1c1 hold denied\n  b2c1 note blocked\n"; got != want {
		t.Errorf("the calls ended as\n%swant\n%s", got, want)
	}
	if models := b.query(`SELECT model FROM turns ORDER BY started_at`); models != "before\nafter\n" {
		t.Errorf("models of the turns: %s", models)
	}
	if len(before.asked()) != 3 || len(after.asked()) != 3 {
		t.Errorf("%d and %d requests, want 3 and 3", len(before.asked()), len(after.asked()))
	}
	for _, m := range []*recorded{before, after} {
		for i, req := range m.asked() {
			if &req.Tools[0] != &m.asked()[0].Tools[0] {
				t.Errorf("request %d to %s has tools of its own; those of a bundle are shared", i+1, m.name)
			}
			offers := 0
			for _, tool := range req.Tools {
				if tool.Name == "note" {
					offers++
				}
			}
			if offers != map[string]int{"before": 1, "after": 0}[m.name] {
				t.Errorf("request %d to %s offers note %d times", i+1, m.name, offers)
			}
		}
	}
	b.checkInvariants()
}

// A turn that waits goes on with the bundle of then, whose model gets the results.
//
// Rows: L12.
func TestParkedTurnGoesOnWithAnotherModel(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.policy = b.rules("ask gated by boss\nallow *")
	before := &recorded{modelFunc: stepwise(`note {"x":1} ; gated {}`), name: "before"}
	after := &recorded{modelFunc: stepwise(`note {"x":1} ; gated {}`), name: "after"}
	b.brain = before
	b.start()
	b.step("ann: go")
	b.settle()
	b.brain = after
	b.engine.Use(b.bundle())
	b.step("boss clicks approve")
	b.settle()
	b.stop()
	if len(before.asked()) != 1 || len(after.asked()) != 1 {
		t.Fatalf("%d and %d requests", len(before.asked()), len(after.asked()))
	}
	read := after.asked()[0].Messages
	checkHistory(t, read)
	if n := len(read); n != 4 || !strings.Contains(read[2].Text, "noted 1") || !strings.Contains(read[3].Text, "done") {
		t.Errorf("the other model reads %v", read)
	}
}

// The marker of consent reaches a tool in its invocation alone, and only when a
// person has approved these very bytes. What the model claims gives no right, even
// where the tool's own schema has an argument of that name.
//
// Rows: L37, L41.
func TestApprovedMarkerIsOurs(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.policy = b.rules("ask gated by boss\nallow *")
	b.brain = stepwise(`note {"approved":true,"x":1} ; claims {"approved":true} ; gated {"approved":true,"x":2}`)
	b.alter = func(bundle *agent.Bundle) {
		claims := b.ledger.Tools()[0]
		claims.Name, claims.Schema = "claims", json.RawMessage(`{"type":"object","properties":{"approved":{"type":"boolean"}}}`)
		bundle.Toolbox = &withTool{b.ledger, claims}
	}
	b.start()
	b.step("ann: go")
	b.settle()
	b.step("boss clicks approve")
	b.settle()
	b.stop()
	got := ""
	for _, r := range b.ledger.runs {
		got += fmt.Sprintf("%s %s %t\n", r.tool, r.args, r.approved)
	}
	if want := "note {\"x\":1} false\nnote {\"approved\":true} false\ngated {\"x\":2} true\n"; got != want {
		t.Errorf("this ran:\n%swant\n%s", got, want)
	}
	if notes := b.query(`SELECT count(*) FROM audit_log WHERE kind = 'policy_decision' AND reason LIKE '%an argument approved of the model was removed%'`); notes != "2\n" {
		t.Errorf("the audit notes it %s times", notes)
	}
}

// withTool is a toolbox with one tool more.
type withTool struct {
	*ledger
	tool agent.Tool
}

func (w *withTool) Tools() []agent.Tool { return append(w.ledger.Tools(), w.tool) }
func (w *withTool) Check(tool string, args []byte, later string) error {
	if tool == w.tool.Name {
		return nil
	}
	return w.ledger.Check(tool, args, later)
}

// gateFunc is a policy.
type gateFunc func(q agent.Question) agent.Judgement

func (f gateFunc) Judge(q agent.Question) agent.Judgement { return f(q) }

// Nothing runs that was not judged: not where the policy says nothing or a word that
// nobody knows, and not a call that came into the database past the policy.
//
// Rows: L43, L53.
func TestUnjudgedCallDoesNotRun(t *testing.T) {
	t.Parallel()
	for name, j := range map[string]agent.Judgement{
		"nothing": {}, "unknown word": {Action: "permit", Source: agent.SourcePolicy}, "another case": {Action: "Allow"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			b.policy = b.rules("allow *")
			b.brain = stepwise(`note {"x":1}`)
			b.alter = func(bundle *agent.Bundle) { bundle.Gate = gateFunc(func(agent.Question) agent.Judgement { return j }) }
			b.start()
			b.step("ann: go")
			b.settle()
			b.stop()
			if b.ledger.text() != "" || b.outcomes()["b1c1"] != "denied" {
				t.Errorf("it ended as %s, and this ran: %s", b.outcomes()["b1c1"], b.ledger.text())
			}
			b.checkInvariants()
		})
	}
	t.Run("put into the database", func(t *testing.T) {
		t.Parallel()
		b := newBench(t)
		b.policy = b.rules("ask gated by boss\nallow *")
		b.brain = stepwise(`gated {}`)
		b.start()
		b.step("ann: go")
		b.settle()
		b.exec(`INSERT INTO tool_calls (turn_id, call_id, session_id, batch, position, tool, raw, args, args_sha256, definition, status)
			SELECT turn_id, 'forged', session_id, batch, 7, 'note', '{}', '{}', encode(sha256('{}'), 'hex'), '', 'prepared' FROM tool_calls`)
		b.step("boss clicks approve")
		b.settle()
		b.stop()
		if got := b.ledger.text(); got != "gated {}\n" || b.outcomes()["forged"] != "blocked" {
			t.Errorf("it ended as %s, and this ran: %s", b.outcomes()["forged"], got)
		}
	})
}

// A tool whose definition has changed since the call was judged does not run, though
// a person approved it.
//
// Rows: L1, L8.
func TestChangedDefinitionDoesNotRun(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.policy = b.rules("ask note by boss")
	b.brain = stepwise(`note {"x":1}`)
	b.start()
	b.step("ann: go")
	b.settle()
	b.stop()
	b.ledger.revision = "2"
	b.start()
	b.step("boss clicks approve")
	b.settle()
	b.stop()
	if b.ledger.text() != "" || b.outcomes()["b1c1"] != "blocked" || !strings.Contains(b.log.text(), "definition has changed") {
		t.Errorf("it ended as %s, this ran: %s, the log says: %s", b.outcomes()["b1c1"], b.ledger.text(), b.log.text())
	}
	b.checkInvariants()
}

// At most eight calls of a turn run at once; the next begin when these have ended.
//
// Rows: L82, L85.
func TestCallsTogetherAreBounded(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.policy = b.rules("allow *")
	b.config.ParallelTools = true
	var calls []string
	for i := range 11 {
		calls = append(calls, fmt.Sprintf(`hold {"x":%d}`, i))
	}
	b.brain = stepwise(strings.Join(calls, " ; "))
	b.start()
	b.step("ann: go")
	b.step("wait for hold 8")
	if got := b.query(`SELECT status, count(*) FROM tool_calls GROUP BY 1 ORDER BY 1`); got != "prepared 3\nstarted 8\n" {
		t.Errorf("while they run:\n%s", got)
	}
	b.ledger.letGo()
	b.settle()
	b.stop()
	if n := b.ledger.count("hold"); n != 11 {
		t.Errorf("%d ran", n)
	}
	b.checkInvariants()
}
