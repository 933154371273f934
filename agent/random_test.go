package agent_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	"pgregory.net/rapid"

	"github.com/clawbot/clawbot/agent"
	"github.com/clawbot/clawbot/store"
)

// randomTurn is a turn as rapid draws it.
type randomTurn struct {
	batches  []string // calls of each answer
	parallel bool
	denial   agent.AfterDenial
	people   []string // what they do, one after the other, whenever a question is open
	dies     int      // the process dies with this commit of its; 0 is never
	applied  bool     // whether that commit is in the database
}

func drawTurn(t *rapid.T) randomTurn {
	call := rapid.SampledFrom([]string{
		`note {"x":1}`, `note {"x":2}`, `quiet {}`, `broken {}`, `panics {}`, `again {}`, `forbidden {}`, `nosuchtool {}`,
		`note not json`, `gated {"x":1}`, `gated {"x":2}`, `transfer {"amount":7}`, `transfer {"amount":"x"}`,
	})
	batch := rapid.Custom(func(t *rapid.T) string {
		return strings.Join(rapid.SliceOfN(call, 1, 5).Draw(t, "calls"), " ; ")
	})
	return randomTurn{
		batches:  rapid.SliceOfN(batch, 1, 3).Draw(t, "batches"),
		parallel: rapid.Bool().Draw(t, "parallel"),
		denial:   rapid.SampledFrom([]agent.AfterDenial{agent.DenialContinue, agent.DenialContinue, agent.DenialDegrade, agent.DenialFail}).Draw(t, "denial"),
		people: rapid.SliceOfN(rapid.SampledFrom([]string{"approve", "approve", "input", "input", "bad input", "deny", "replace", "stranger", "write", "stop"}),
			0, 8).Draw(t, "people"),
		dies:    rapid.IntRange(0, 8).Draw(t, "dies"),
		applied: rapid.Bool().Draw(t, "applied"),
	}
}

// TestRandomTurns plays random batches of calls, with random decisions of people,
// cancelling and the death of the process at a random commit. Whatever happens, the
// turn comes to its end; the history needs no repair; each call has one result, in
// the model's order; nothing runs more often than its record says.
//
// Rows: L28, L84, L88, L89, L90, L91, L103, L105, L112.
func TestRandomTurns(t *testing.T) {
	b := newBench(t)
	b.policy = b.rules("ask gated by boss\nask_input transfer by boss into code\ndeny forbidden\nallow *")
	b.ledger.letGo()
	n := 0
	rapid.Check(t, func(rt *rapid.T) {
		n++
		turn := drawTurn(rt)
		at := place(n)
		b.playRandom(rt, turn, at)
		b.checkRandom(rt, at)
	})
	b.checkInvariants()
}

func (b *bench) playRandom(t *rapid.T, turn randomTurn, at agent.Place) {
	b.config.ParallelTools, b.denial, b.brain = turn.parallel, turn.denial, stepwise(turn.batches...)
	var saves atomic.Int32
	died := make(chan struct{})
	b.faults = func(s *mortalStore) {
		s.save = func(apply func() (agent.Saved, error)) (agent.Saved, error) {
			if int(saves.Add(1)) != turn.dies {
				return apply()
			}
			var saved agent.Saved
			var err error
			if turn.applied {
				saved, err = apply()
			}
			s.dead.Store(true)
			close(died)
			return saved, errors.Join(err, errDead)
		}
	}
	b.start()
	defer b.stop()
	b.receive(at, "ann", at.Thread, "go")
	people, asked := turn.people, 0
	b.until("the random turn is over", func() bool {
		select {
		case <-died:
			b.stop()
			if err := b.db.ReleaseAll(context.Background()); err != nil { // as a start with the private database does
				t.Fatal(err)
			}
			b.start()
			died = nil
		default:
		}
		busy, open, err := b.db.Going(context.Background(), at)
		if err != nil {
			t.Fatal(err)
		}
		if busy || len(open) == 0 {
			return !busy
		}
		asked++
		act := "approve or input" // once people have done all that was drawn
		if len(people) > 0 {
			act, people = people[0], people[1:]
		}
		b.random(act, at, open[asked%len(open)], asked)
		return false
	})
}

// random lets somebody do something about a question. What is refused, or fails
// because the process is dying, has no effect and needs none.
func (b *bench) random(act string, at agent.Place, id agent.ApprovalID, n int) {
	do := func(who string, c agent.Click) agent.Verdict {
		c.Approval, c.Backchannel, c.Actor, c.ActorName = id, "slack", agent.Actor{Channel: "slack", Workspace: "T1", User: who}, who
		v, _ := b.engine.Decide(context.Background(), c)
		return v
	}
	switch act {
	case "approve":
		do("boss", agent.Click{Verb: agent.VerbApprove})
	case "input":
		do("boss", agent.Click{Verb: agent.VerbInput, Value: "123456"})
	case "bad input":
		do("boss", agent.Click{Verb: agent.VerbInput, Value: "no code"})
	case "deny":
		do("boss", agent.Click{Verb: agent.VerbDeny, Reason: "no"})
	case "replace":
		do("boss", agent.Click{Verb: agent.VerbReplace, Value: "use the other one"})
	case "stranger":
		do("eve", agent.Click{Verb: agent.VerbApprove})
	case "write", "stop":
		text := map[string]string{"write": "and this", "stop": "stop"}[act]
		b.engine.Receive(context.Background(), inbound(at, "bob", fmt.Sprintf("%s-%d", at.Thread, n), text))
	default:
		if !do("boss", agent.Click{Verb: agent.VerbApprove}).Accepted {
			do("boss", agent.Click{Verb: agent.VerbInput, Value: "123456"})
		}
	}
}

func (b *bench) checkRandom(t *rapid.T, at agent.Place) {
	session, turns := b.at(at)
	history, err := b.db.History(context.Background(), session, 100_000)
	if err != nil {
		t.Fatal(err)
	}
	checkHistory(t, history) // as it is, without repair
	ran := map[string]int{}
	for _, r := range b.ledger.runs {
		ran[r.key]++
	}
	for _, it := range turns {
		if !it.Status.Ended() {
			t.Fatalf("turn %s is %s", it.ID, it.Status)
		}
		checkTimeline(t, it)
		for _, e := range it.Events {
			if e.Type != agent.EventToolCompleted {
				continue
			}
			n, tool, outcome := ran[fmt.Sprint(session, it.ID, e.Fields["tool_call_id"])], e.Fields["tool_name"], e.Fields["outcome"]
			started := map[string]bool{"succeeded": true, "failed": true, "interrupted": true, "unknown": true}[outcome]
			switch {
			case !started && n == 0, started && n == 1, outcome == "unknown" && n == 0, tool == "again" && started: // idempotent: may run again
			default:
				t.Fatalf("%s ended as %s and ran %d times", tool, outcome, n)
			}
		}
	}
}

// at returns the session of a place and its turns.
func (b *bench) at(p agent.Place) (agent.SessionID, []store.TurnInfo) {
	b.t.Helper()
	sessions, err := b.db.Sessions(context.Background(), 1000)
	if err != nil {
		b.t.Fatal(err)
	}
	for _, s := range sessions {
		if s.Place == p {
			turns, err := b.db.Turns(context.Background(), s.ID)
			if err != nil {
				b.t.Fatal(err)
			}
			return s.ID, turns
		}
	}
	b.t.Fatalf("there is no session at %v", p)
	return "", nil
}
