package terminal

import (
	"context"
	"io"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/clawbot/clawbot/agent"
)

// bench is a terminal whose open questions the test sets.
type bench struct {
	mu      sync.Mutex
	open    []agent.ApprovalID
	out     strings.Builder
	decided []agent.ApprovalID
	heard   []string
}

func (b *bench) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.out.Write(p)
}

func (b *bench) Receive(_ context.Context, m agent.Inbound) (agent.Receipt, error) {
	b.heard = append(b.heard, m.Text)
	return agent.Receipt{New: true}, nil
}

func (b *bench) Decide(_ context.Context, c agent.Click) (agent.Verdict, error) {
	b.decided = append(b.decided, c.Approval)
	b.set()
	return agent.Verdict{Accepted: true}, nil
}

func (b *bench) Card(_ context.Context, id agent.ApprovalID) (agent.Card, error) {
	return agent.Card{Approval: id, Tool: "tool_of_" + string(id)}, nil
}

func (b *bench) set(open ...agent.ApprovalID) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.open = open
}

func (b *bench) state(context.Context, agent.Place) (State, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return State{Open: slices.Clone(b.open)}, nil
}

// What a person types answers the question that the prompt named: not one that
// took its place meanwhile, nor one that came up unseen.
func TestLineAnswersTheQuestionOfThePrompt(t *testing.T) {
	for name, test := range map[string]struct {
		before, after []agent.ApprovalID
		line          string
		decided       []agent.ApprovalID
		heard         []string
		says          string
	}{
		"the same":      {[]agent.ApprovalID{"a", "b"}, []agent.ApprovalID{"a", "b"}, "y", []agent.ApprovalID{"a"}, nil, "Approve tool_of_a (a)?"},
		"another now":   {[]agent.ApprovalID{"a", "b"}, []agent.ApprovalID{"b"}, "y", nil, nil, "Another question is open by now"},
		"none now":      {[]agent.ApprovalID{"a"}, nil, "y", nil, nil, "The question is closed by now"},
		"came up since": {nil, []agent.ApprovalID{"a"}, "yes", nil, nil, "Another question is open by now"},
		"a message":     {nil, nil, "hello", nil, []string{"hello"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := &bench{open: test.before}
				r, w := io.Pipe()
				c := New(Config{In: r, Out: b, Session: "s", User: "u", Prompt: "> ", Run: "r", State: b.state,
					Close: func(context.Context, agent.ApprovalID, agent.ApprovalStatus, string) error { b.set(); return nil }})
				ended := make(chan error)
				go func() { ended <- c.Run(t.Context(), b) }()
				synctest.Wait() // the prompt is written
				b.set(test.after...)
				if _, err := io.WriteString(w, test.line+"\n"); err != nil {
					t.Fatal(err)
				}
				synctest.Wait()
				w.Close()
				if err := <-ended; err != nil {
					t.Fatal(err)
				}
				if !slices.Equal(b.decided, test.decided) || !slices.Equal(b.heard, test.heard) || !strings.Contains(b.out.String(), test.says) {
					t.Errorf("decided %v, heard %v\n%s", b.decided, b.heard, b.out.String())
				}
			})
		})
	}
}
