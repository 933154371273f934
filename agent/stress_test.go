package agent_test

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/clawbot/clawbot/agent"
)

// TestStress lets three engines work on one database: 30 sessions with two
// messages each, whose calls are allowed, asked about, or denied. Cards are
// clicked at random, twice, by the wrong people, and through any engine; in one
// of the two runs engines die at any moment and are replaced. In the end every
// message is answered and every call ran as often as its record says.
//
// Rows: F79, F80, T5.
func TestStress(t *testing.T) {
	t.Run("nobody dies", func(t *testing.T) { t.Parallel(); stress(t, 0) })
	t.Run("engines die", func(t *testing.T) { t.Parallel(); stress(t, 8) })
}

func stress(t *testing.T, deaths int) {
	lease := time.Minute // nobody loses it
	if deaths > 0 {
		lease = time.Second
	}
	const engines, sessions, messages = 3, 30, 2
	url, room, ledger := database(t), newRoom(), newLedger()
	model := stepwise(
		`note {"x":"TEXT 1"} ; gated {"x":"TEXT 2"} ; forbidden {"x":"TEXT 3"}`,
		`gated {"x":"TEXT 4"} ; gated {"x":"TEXT 5"} ; quiet {"x":"TEXT 6"}`)
	var benches []*bench
	for range engines {
		b := &bench{t: t, url: url, model: &scriptedModel{}, room: room, ledger: ledger, brain: model,
			config: agent.DefaultConfig(), lease: lease, runs: 100 * len(benches)}
		b.db = openStoreFor(t, url, lease)
		b.policy = b.rules("ask gated by boss\ndeny forbidden\nallow *")
		t.Cleanup(b.stop)
		b.start()
		benches = append(benches, b)
	}
	var guard sync.RWMutex // of the benches' engines against their replacement
	anybody := func(f func(b *bench)) {
		guard.RLock()
		defer guard.RUnlock()
		f(benches[rand.IntN(engines)])
	}

	ctx, finish := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	for s := range sessions {
		wg.Go(func() {
			for m := range messages {
				key := fmt.Sprintf("s%d-m%d", s, m)
				for range 2 { // each message comes twice
					anybody(func(b *bench) { b.receive(place(s), "ann", key, key) })
				}
				// What comes while a turn runs joins it; here each message is to be a turn.
				for ctx.Err() == nil && !strings.Contains(room.shown(), "clawbot: done with "+key+"\n") {
					time.Sleep(20 * time.Millisecond)
				}
			}
		})
	}
	for range 4 {
		wg.Go(func() {
			for ctx.Err() == nil {
				time.Sleep(2 * time.Millisecond) // people are not that quick
				id, ok := room.anyCard()
				if !ok {
					continue
				}
				who := []string{"boss", "boss", "boss", "ann", "stranger"}[rand.IntN(5)]
				verb := []agent.Verb{agent.VerbApprove, agent.VerbApprove, agent.VerbDeny}[rand.IntN(3)]
				anybody(func(b *bench) {
					b.engine.Decide(ctx, agent.Click{Approval: id, Verb: verb, Backchannel: "slack",
						Actor: agent.Actor{Channel: "slack", Workspace: "T1", User: who}})
				})
			}
		})
	}
	wg.Go(func() {
		for range deaths {
			select {
			case <-ctx.Done():
				return
			case <-time.After(time.Duration(100+rand.IntN(400)) * time.Millisecond):
			}
			guard.Lock()
			b := benches[rand.IntN(engines)]
			b.crash()
			b.start()
			guard.Unlock()
		}
	})

	watch := benches[0]
	answered := func() bool {
		shown := room.shown()
		for s := range sessions { // a message that comes while a turn works is answered with it
			if !strings.Contains(shown, fmt.Sprintf("clawbot: done with s%d-m%d\n", s, messages-1)) {
				return false
			}
		}
		return true
	}
	deadline := time.Now().Add(90 * time.Second)
	for !answered() {
		if time.Now().After(deadline) {
			t.Errorf("not every message was answered:\n%s", room.shown())
			break
		}
		time.Sleep(20 * time.Millisecond)
	}
	finish()
	wg.Wait()
	for _, b := range benches {
		b.stop()
	}
	checkStress(t, watch, deaths > 0, sessions, messages)
}

// checkStress compares the ledger with the records.
func checkStress(t *testing.T, b *bench, deaths bool, number, messages int) {
	ran := map[string]int{}
	for _, r := range b.ledger.runs {
		ran[r.key]++
		if (r.tool == "gated") != r.approved {
			t.Errorf("%s ran with approved=%v", r.tool, r.approved)
		}
	}
	known := 0
	sessions, err := b.db.Sessions(t.Context(), 1000)
	if err != nil {
		t.Fatal(err)
	}
	if len(sessions) != number {
		t.Errorf("%d sessions, want %d", len(sessions), number)
	}
	answers := 0
	for _, s := range sessions {
		h, err := b.db.History(t.Context(), s.ID, 1000)
		if err != nil {
			t.Fatal(err)
		}
		var said []string
		for _, m := range h {
			if m.Role == agent.RoleUser {
				said = append(said, m.Text)
			}
		}
		if len(said) != messages || !slices.IsSorted(said) {
			t.Errorf("session %s has the messages %q", s.ID, said)
		}
		of, err := b.db.Turns(t.Context(), s.ID)
		if err != nil {
			t.Fatal(err)
		}
		for _, turn := range of {
			answers++
			if turn.Status != agent.TurnDone {
				t.Errorf("turn %s is %s", turn.ID, turn.Status)
			}
			for _, e := range turn.Events {
				if e.Type != agent.EventToolCompleted {
					continue
				}
				n := ran[fmt.Sprint(s.ID, turn.ID, e.Fields["tool_call_id"])]
				known += n
				switch outcome := e.Fields["outcome"]; {
				case outcome == "succeeded" && n == 1:
				case outcome == "unknown" && n <= 1 && deaths:
				case outcome == "interrupted" && n == 1 && deaths:
				case outcome == "denied" && n == 0:
				default:
					t.Errorf("%s ended as %s and ran %d times", e.Fields["tool_name"], outcome, n)
				}
			}
		}
	}
	if known != len(b.ledger.runs) {
		t.Errorf("%d executions are in the ledger, %d in the records", len(b.ledger.runs), known)
	}
	// Each session's chain is without gaps and each question has one decision.
	decided := map[string]int{}
	for _, r := range b.auditRows() {
		if r.Kind == string(agent.AuditApprovalDecided) {
			decided[*r.ApprovalID]++
		}
	}
	for id, n := range decided {
		if n != 1 {
			t.Errorf("approval %s was decided %d times", id, n)
		}
	}
	b.checkInvariants()
	if got := strings.Count(b.room.shown(), "clawbot: done with"); !deaths && got != answers {
		t.Errorf("%d answers, want %d", got, answers)
	}
}

func place(session int) agent.Place {
	p := thread
	p.Thread = fmt.Sprint(session)
	return p
}

// anyCard is a card at random, most of the time one that looks open.
func (r *room) anyCard() (agent.ApprovalID, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	from := r.cards
	if rand.IntN(5) > 0 {
		from = slices.Collect(maps.Keys(r.open))
	}
	if len(from) == 0 {
		return "", false
	}
	return from[rand.IntN(len(from))], true
}
