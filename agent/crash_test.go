package agent_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/clawbot/clawbot/agent"
)

// outcomes maps each call of all turns to how it ended.
func (b *bench) outcomes() map[string]string {
	out := map[string]string{}
	for _, turn := range b.turns() {
		for _, e := range turn.Events {
			if e.Type == agent.EventToolCompleted {
				out[e.Fields["tool_call_id"]] = e.Fields["outcome"]
			}
		}
	}
	return out
}

// TestEveryCommit lets each commit of a turn go wrong, in every way in which a
// commit can: it is not there and the process knows, it is there and the process
// does not know, and both with the death of the process. The turn comes to its
// end without anybody's doing, nothing is lost, and nothing runs twice.
//
// Rows: F126, L103, L119.
func TestEveryCommit(t *testing.T) {
	errLost := errors.New("connection lost")
	ways := map[string]struct{ applied, dies bool }{
		"not applied":               {false, false},
		"applied":                   {true, false},
		"not applied, process dies": {false, true},
		"applied, process dies":     {true, true},
	}
	for way, w := range ways {
		for n := int32(1); n <= 6; n++ {
			t.Run(fmt.Sprintf("%s/%d", way, n), func(t *testing.T) {
				t.Parallel()
				b := newBench(t)
				b.leaseFor(300 * time.Millisecond)
				b.policy = b.rules("allow quiet\nask note by boss")
				b.brain = stepwise(`quiet {}`, `note {"x":1}`)
				var saves atomic.Int32
				died := make(chan struct{})
				b.faults = func(s *mortalStore) {
					s.save = func(apply func() (agent.Saved, error)) (agent.Saved, error) {
						if saves.Add(1) != n {
							return apply()
						}
						if w.applied {
							if _, err := apply(); err != nil {
								return agent.Saved{}, err
							}
						}
						if w.dies {
							s.dead.Store(true)
							close(died)
						}
						return agent.Saved{}, errLost
					}
				}
				b.start()
				b.step("ann: go")
				clicked := false
				b.until("the answer is there", func() bool {
					select {
					case <-died:
						b.stop()
						b.start()
						died = nil
					default:
					}
					if !clicked && b.room.cardCount() > 0 {
						// A click is answered or fails, and may then be repeated.
						v, err := b.engine.Decide(t.Context(), agent.Click{Approval: b.room.cardID(t, 1), Verb: agent.VerbApprove,
							Actor: agent.Actor{Channel: "slack", Workspace: "T1", User: "boss"}, Backchannel: "slack"})
						clicked = err == nil && v.Accepted
					}
					return strings.Contains(b.room.shown(), "clawbot: done with go")
				})
				b.settle()
				b.stop()
				if saves.Load() < n {
					t.Fatalf("the turn has %d commits only", saves.Load())
				}
				for id, outcome := range b.outcomes() {
					tool := map[string]string{"b1c1": "quiet", "b2c1": "note"}[id]
					ran := b.ledger.count(tool)
					switch outcome {
					case "succeeded":
						if ran != 1 {
							t.Errorf("%s succeeded and ran %d times", tool, ran)
						}
					case "unknown":
						if ran > 1 {
							t.Errorf("%s is unknown and ran %d times", tool, ran)
						}
						if !strings.Contains(b.room.shown(), "I was stopped while "+tool+" ran") {
							t.Errorf("nobody was told that the outcome of %s is unknown", tool)
						}
					default:
						t.Errorf("%s ended as %s", tool, outcome)
					}
				}
				if got := len(b.outcomes()); got != 2 {
					t.Errorf("%d calls ended, want 2", got)
				}
				b.checkInvariants()
			})
		}
	}
}

// TestLostLease takes a session away from a worker while its tool runs. The loser
// writes nothing, whether it notices before the tool ends or only when it writes;
// the other worker reports the call as unknown and does not run it.
//
// Rows: F79.
func TestLostLease(t *testing.T) {
	ways := map[string]func(ids []agent.SessionID) ([]agent.SessionID, error){
		"it notices":                   func([]agent.SessionID) ([]agent.SessionID, error) { return nil, nil },
		"it cannot ask":                func([]agent.SessionID) ([]agent.SessionID, error) { return nil, errors.New("no connection") },
		"it believes to have it still": func(ids []agent.SessionID) ([]agent.SessionID, error) { return ids, nil },
	}
	for name, renew := range ways {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			b.policy = b.rules("allow hold")
			b.brain = stepwise(`hold {}`)
			b.faults = func(s *mortalStore) {
				if b.runs == 1 {
					s.renew = renew
				}
			}
			b.start()
			loserStops := b.cancel
			loserDone := b.done
			b.step("ann: go")
			b.step("wait for hold")
			b.start() // a second engine, while the first goes on
			b.until("the other worker has answered", func() bool { return strings.Contains(b.room.shown(), "clawbot: done with go") })
			b.ledger.letGo() // the loser's tool comes back now, if it did not before
			b.settle()
			time.Sleep(100 * time.Millisecond) // long enough for a wrong write
			loserStops()
			<-loserDone
			b.stop()
			if got := b.outcomes()["b1c1"]; got != "unknown" {
				t.Errorf("the call ended as %s", got)
			}
			if n := b.ledger.count("hold"); n != 1 {
				t.Errorf("it ran %d times", n)
			}
			if n := strings.Count(b.room.shown(), "clawbot: done with go"); n != 1 {
				t.Errorf("%d answers\n%s", n, b.room.shown())
			}
			b.checkInvariants()
		})
	}
}

// TestGivenUp: a turn that breaks its worker each time it is taken up is given up
// at last, and says so; the session's next message is answered.
func TestGivenUp(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.leaseFor(200 * time.Millisecond)
	var asked atomic.Int32
	b.brain = modelFunc(func(req agent.ModelRequest) (agent.ModelReply, error) {
		if last := req.Messages[len(req.Messages)-1]; last.Text == "break" {
			asked.Add(1)
			panic("the adapter breaks down")
		}
		return agent.ModelReply{Text: "hello"}, nil
	})
	b.policy = b.rules("")
	b.start()
	b.step("ann: break")
	b.step("ann: hello?")
	b.settle()
	b.stop()
	if n := asked.Load(); n > 10 {
		t.Errorf("the model was asked %d times", n)
	}
	if s := b.room.shown(); !strings.Contains(s, "went wrong several times in a row") || !strings.Contains(s, "clawbot: hello") {
		t.Error(s)
	}
	b.checkInvariants()
}

// TestKilledProcess kills a real process while its tool runs, and looks at what
// the next one makes of it.
//
// Rows: F88, L103.
func TestKilledProcess(t *testing.T) {
	for _, c := range []struct {
		tool, outcome string
		runs          int
	}{{"hold", "unknown", 1}, {"again", "succeeded", 2}} {
		t.Run(c.tool, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			b.policy = b.rules("allow *")
			b.brain = stepwise(c.tool + ` {"x":1}`)
			if _, err := b.db.Receive(t.Context(), inbound(thread, "ann", "m1", "go")); err != nil {
				t.Fatal(err)
			}
			file := filepath.Join(t.TempDir(), "ledger")
			child := exec.Command(os.Args[0], "-test.run=^TestChildProcess$")
			child.Env = append(os.Environ(), "CLAWBOT_TEST_CHILD="+b.url, "CLAWBOT_TEST_LEDGER="+file, "CLAWBOT_TEST_TOOL="+c.tool)
			child.Stderr = t.Output()
			if err := child.Start(); err != nil {
				t.Fatal(err)
			}
			b.until("the child's tool runs", func() bool { line, _ := os.ReadFile(file); return strings.HasSuffix(string(line), "\n") })
			child.Process.Kill()
			child.Wait()

			b.start()
			if c.runs > 1 {
				b.step("wait for " + c.tool)
				b.ledger.letGo()
			}
			b.until("the answer is there", func() bool { return strings.Contains(b.room.shown(), "clawbot: done with go") })
			b.settle()
			b.stop()
			theirs, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			keys := strings.Fields(string(theirs))
			for _, r := range b.ledger.runs {
				keys = append(keys, r.key)
			}
			if len(keys) != c.runs {
				t.Errorf("it ran %d times, want %d", len(keys), c.runs)
			}
			for _, k := range keys {
				if k != keys[0] {
					t.Errorf("it ran with the keys %q", keys)
				}
			}
			if got := b.outcomes()["b1c1"]; got != c.outcome {
				t.Errorf("it ended as %s, want %s", got, c.outcome)
			}
			b.checkInvariants()
		})
	}
}

// TestChildProcess is the process that TestKilledProcess kills.
func TestChildProcess(t *testing.T) {
	url := os.Getenv("CLAWBOT_TEST_CHILD")
	if url == "" {
		t.Skip("for TestKilledProcess alone")
	}
	b := &bench{t: t, url: url, model: &scriptedModel{}, room: newRoom(), ledger: newLedger(), config: agent.DefaultConfig(), lease: testLease}
	b.db = openStore(t, url)
	b.policy = b.rules("allow *")
	b.brain = stepwise(os.Getenv("CLAWBOT_TEST_TOOL") + ` {"x":1}`)
	b.ledger.file = os.Getenv("CLAWBOT_TEST_LEDGER")
	b.start()
	time.Sleep(time.Minute)
	b.stop()
}

// TestPostsKeepOrder: while the platform refuses for the moment, what comes later
// in a thread waits behind what came first.
func TestPostsKeepOrder(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.policy = b.rules("allow hold")
	b.brain = stepwise(`hold {}`)
	b.start()
	b.step("ann: go")
	b.step("wait for hold")
	b.step("crash")
	b.room.setBusy(2)
	b.step("start") // now come the notice of the unknown outcome, and the answer
	b.until("the answer is there", func() bool { return strings.Contains(b.room.shown(), "clawbot: done with go") })
	notice, answer := strings.Index(b.room.shown(), "I was stopped while hold ran"), strings.Index(b.room.shown(), "done with go")
	if notice < 0 || notice > answer {
		t.Errorf("the order is wrong:\n%s", b.room.shown())
	}
}

// TestDecidedBeforeItWasShown: a question is answered at another door while its
// card cannot be posted yet. The card comes in its final state.
func TestDecidedBeforeItWasShown(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.policy = b.rules("ask note by boss")
	b.brain = stepwise(`note {"x":1}`)
	b.room.setBusy(1)
	b.start()
	b.step("ann: go")
	var open []agent.ApprovalID
	b.until("a question is open", func() bool {
		var err error
		if _, open, err = b.db.Going(t.Context(), thread); err != nil {
			t.Fatal(err)
		}
		return len(open) == 1
	})
	b.click("boss", agent.VerbApprove, open[0])
	b.settle()
	b.stop()
	if s := b.room.shown(); strings.Count(s, "card:") != 1 || !strings.Contains(s, "card: Approved: note") || !strings.Contains(s, "It ran and succeeded") {
		t.Error(s)
	}
	if n := b.ledger.count("note"); n != 1 {
		t.Errorf("it ran %d times", n)
	}
}

// TestUnseenQuestion: the platform takes no card until the deadline has passed.
// Nobody left anything unanswered, and nobody is said to have.
//
// Rows: F103.
func TestUnseenQuestion(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.policy = b.rules("ask note by boss for 200ms")
	b.brain = stepwise(`note {"x":1}`)
	b.room.setBusy(3)
	b.start()
	b.step("ann: go")
	b.until("the answer is there", func() bool { return strings.Contains(b.room.shown(), "clawbot: done with go") })
	b.stop()
	if got := b.outcomes()["b1c1"]; got != "undeliverable" {
		t.Errorf("the call ended as %s", got)
	}
	if b.ledger.count("note") != 0 {
		t.Error("it ran")
	}
}

// TestLongTurn: a turn with more calls than the history is read for still begins
// with what the person wrote.
func TestLongTurn(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.policy = b.rules("allow quiet")
	b.config.MaxToolIterations = 20
	b.config.LoopGuard.Enabled = false // it is about the length alone
	var batches []string
	for i := range 15 {
		var calls []string
		for j := range 32 {
			calls = append(calls, fmt.Sprintf(`quiet {"x":"%d.%d"}`, i, j))
		}
		batches = append(batches, strings.Join(calls, " ; "))
	}
	model := stepwise(batches...)
	b.brain = modelFunc(func(req agent.ModelRequest) (agent.ModelReply, error) {
		if len(req.Messages) == 0 || req.Messages[0].Text != "go" {
			return agent.ModelReply{Text: "the beginning is gone"}, nil
		}
		return model(req)
	})
	b.start()
	b.step("ann: go")
	b.until("half of it is done", func() bool { return b.ledger.count("quiet") > 450 })
	b.step("restart") // so that the history is read anew
	b.settle()
	b.stop()
	if !strings.Contains(b.room.shown(), "clawbot: done with go") {
		t.Error(b.room.shown())
	}
	b.checkInvariants()
}

// modelFunc is a model without a memory.
type modelFunc func(req agent.ModelRequest) (agent.ModelReply, error)

func (modelFunc) Name() string { return "stateless" }

func (f modelFunc) Complete(_ context.Context, req agent.ModelRequest) (agent.ModelReply, error) {
	return f(req)
}

// stepwise is a model that asks for one batch after the other, whatever the
// results were, and then says that it is done. It goes by the history alone, as a
// real one does, so any number of engines can share it. Calls are named bXcY.
func stepwise(batches ...string) modelFunc {
	return func(req agent.ModelRequest) (agent.ModelReply, error) {
		done, text := 0, ""
		for _, m := range req.Messages {
			switch {
			case m.Role == agent.RoleUser:
				done, text = 0, m.Text
			case len(m.Calls) > 0:
				done++
			}
		}
		if done >= len(batches) {
			return agent.ModelReply{Text: "done with " + text, Stop: agent.StopEnd}, nil
		}
		reply := agent.ModelReply{Stop: agent.StopTools}
		for i, c := range strings.Split(batches[done], " ; ") {
			tool, args, _ := strings.Cut(c, " ")
			reply.Calls = append(reply.Calls, agent.ProposedCall{
				ID: agent.CallID(fmt.Sprintf("b%dc%d", done+1, i+1)), Tool: tool, Arguments: strings.ReplaceAll(args, "TEXT", text)})
		}
		return reply, nil
	}
}

// TestSteeringAfterACrash: the process dies between a result and the next request,
// and somebody writes before the next one starts. The message comes behind the
// result, not between a call and its result.
func TestSteeringAfterACrash(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.leaseFor(300 * time.Millisecond)
	b.policy = b.rules("allow *")
	model := stepwise(`quiet {"x":"TEXT"}`, `note {"x":"TEXT"}`)
	b.brain = modelFunc(func(req agent.ModelRequest) (agent.ModelReply, error) {
		checkHistory(t, req.Messages)
		for _, m := range req.Messages {
			if strings.Contains(m.Text, "has no result") {
				t.Errorf("a result was lost: %s", m.Text)
			}
		}
		return model(req)
	})
	died := make(chan struct{})
	var saves atomic.Int32
	b.faults = func(s *mortalStore) {
		s.save = func(apply func() (agent.Saved, error)) (agent.Saved, error) {
			saved, err := apply()
			if saves.Add(1) == 2 { // the result is written, the model not yet asked
				s.dead.Store(true)
				close(died)
				return agent.Saved{}, errors.New("connection lost")
			}
			return saved, err
		}
	}
	b.start()
	b.step("ann: go")
	<-died
	b.stop()
	if _, err := b.db.Receive(t.Context(), inbound(thread, "bob", "m2", "and this")); err != nil {
		t.Fatal(err)
	}
	b.start()
	b.until("the answer is there", func() bool { return strings.Contains(b.room.shown(), "clawbot: done with and this") })
	b.settle()
	b.stop()
	if n := b.ledger.count("quiet"); n != 2 { // once for each message
		t.Errorf("it ran %d times", n)
	}
	b.checkInvariants()
}
