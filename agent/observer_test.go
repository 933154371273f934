package agent_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/clawbot/clawbot/agent"
)

// notebook is an observer that writes down what it is told.
type notebook struct {
	mu    sync.Mutex
	notes []string
	took  time.Duration // of the last batch
}

func (n *notebook) note(format string, args ...any) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.notes = append(n.notes, fmt.Sprintf(format, args...))
}

func (n *notebook) Turn(ctx context.Context, _ agent.Turn) (context.Context, func(agent.Turn)) {
	n.note("turn")
	return ctx, func(t agent.Turn) { n.note("turn %s", t.Status) }
}

func (n *notebook) Request(context.Context, string) func(agent.ModelReply, error) {
	return func(r agent.ModelReply, err error) { n.note("request %d %v", len(r.Calls), err) }
}

func (n *notebook) Call(ctx context.Context, c agent.CallNote) (context.Context, func(agent.CallNote)) {
	n.note("call %s %s %s %s", c.Call, c.Tool, c.Channel, c.Args)
	return ctx, func(c agent.CallNote) { n.note("ended %s %s %s %q", c.Call, c.Tool, c.Status, c.Result) }
}

func (n *notebook) Replay(_ context.Context, c agent.CallNote) {
	n.note("replay %s %s", c.Call, c.Status)
}

func (n *notebook) Batch(_ context.Context, calls, failures int, took time.Duration) {
	n.note("batch %d %d", calls, failures)
	n.took = took
}

func (n *notebook) Waited(_ context.Context, tool string, d agent.ApprovalStatus, waited time.Duration) {
	n.note("waited %s %s %v", tool, d, waited > 0)
}

// Observers are told of executions, with masked arguments and results, and of none for
// calls that did not run; of waiting apart from working; of a stored result that a
// resumed turn uses.
//
// Rows: L62, L115, L116, L120, L121, L122, L125.
func TestObserver(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	book := &notebook{}
	b.observer = book
	b.policy = b.rules("allow note\ndeny forbidden\nask gated by boss")
	b.brain = stepwise(`note {"password":"hunter2-canary","x":"token=hunter2-canary"} ; forbidden {} ; nosuchtool {} ; gated {"x":1} ; gated {"x":2}`)
	b.start()
	began := time.Now()
	b.step("ann: go")
	b.settle()
	worked := time.Since(began)
	time.Sleep(300 * time.Millisecond) // people think; it must not count as work
	b.step("restart")
	began = time.Now()
	b.step("boss clicks approve 1")
	b.step("boss clicks deny 2")
	b.settle()
	worked += time.Since(began)
	b.stop()
	got := strings.Join(book.notes, "\n")
	want := strings.Join([]string{
		"turn",
		"request 5 <nil>",
		`call b1c1 note slack {"password":"[masked]","x":"token=[masked]"}`,
		`ended b1c1 note succeeded "noted token=[masked]"`,
		"turn parked",
		"turn",
		"replay b1c1 succeeded",
		"waited gated approved true",
		`call b1c4 gated slack {"x":1}`,
		`ended b1c4 gated succeeded "done"`,
	}, "\n")
	if !strings.HasPrefix(got, want) {
		t.Errorf("got\n%s\nwant it to begin with\n%s", got, want)
	}
	for _, line := range []string{"waited gated denied true", "batch 5 3", "request 0 <nil>", "turn done"} {
		if !slices.Contains(book.notes, line) {
			t.Errorf("there is no %q in\n%s", line, got)
		}
	}
	if n := strings.Count(got, "call b1"); n != 2 {
		t.Errorf("%d executions", n)
	}
	if book.took <= 0 || book.took > worked {
		t.Errorf("the batch took %s, and only %s passed without waiting", book.took, worked)
	}
}
