package slack

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/clawbot/clawbot/agent"
	"github.com/clawbot/clawbot/channels/slack/slacktest"
)

// status posts a status line in a thread that Ana began.
func (b *bench) status() slacktest.Message {
	b.t.Helper()
	said := b.Say("C0001", "U0001", m+" clean up")
	b.eventually("it is heard", func() bool { b.in.mu.Lock(); defer b.in.mu.Unlock(); return len(b.in.news) == 1 })
	s := &agent.Status{Turn: "turn_1", Title: "Working", Lines: []string{"✓ note", "✗ shell: failed, <!channel> *no*"}, Open: true}
	ref, err := b.a.Post(b.t.Context(), place(said), agent.Post{Key: "status_turn_1", Status: s})
	if err != nil {
		b.t.Fatal(err)
	}
	msg, _ := b.Message("C0001", ref)
	return msg
}

// A status line is literal text with one button, edited in place, and posted once
// however often that is tried.
//
// Rows: L117.
func TestStatusLine(t *testing.T) {
	b := start(t)
	msg := b.status()
	if !strings.Contains(msg.Shown, "✗ shell: failed, <!channel> *no*") || len(msg.Buttons) != 1 || !msg.HasButton("Stop") {
		t.Errorf("shown:\n%s\nbuttons %v", msg.Shown, msg.Buttons)
	}
	done := &agent.Status{Turn: "turn_1", Title: "Done: 1 of 2 calls succeeded", Lines: []string{strings.Repeat("é😀", 4000)}}
	again, err := b.a.Post(t.Context(), agent.Place{Channel: Name, Workspace: "T0001", Conversation: "C0001", Thread: msg.Root()}, agent.Post{Key: "status_turn_1", Status: done})
	if err != nil || again != msg.TS {
		t.Errorf("posted again as %s, %v", again, err)
	}
	if now, _ := b.Message("C0001", msg.TS); !strings.Contains(now.Shown, "Done: 1 of 2") || len(now.Buttons) != 0 {
		t.Errorf("shown:\n%s\nbuttons %v", now.Shown, now.Buttons)
	}
}

// Who may speak here may stop; the person and the place are those of the click. Others
// are refused, alone, and so is everybody when nobody can be looked up.
//
// Rows: L92, F41, T3.
func TestStopButton(t *testing.T) {
	bothWays(t, func(t *testing.T, how func(*settings)) {
		b := start(t, how)
		msg := b.status()
		b.people()
		stops := func() (out []agent.Inbound) {
			b.in.mu.Lock()
			defer b.in.mu.Unlock()
			for _, m := range b.in.calls {
				if m.Turn != "" {
					out = append(out, m)
				}
			}
			return out
		}
		b.click("U0002", msg, "Stop")
		b.eventually("the stop", func() bool { return len(stops()) == 1 })
		got := stops()[0]
		want := agent.Origin{Place: agent.Place{Channel: Name, Workspace: "T0001", Conversation: "C0001", Thread: msg.Root()},
			Author: agent.Actor{Channel: Name, Workspace: "T0001", User: "U0002"}, AuthorName: "Ben", Ref: msg.TS}
		if got.Origin != want || got.Turn != "turn_1" || got.JoinedOnly {
			t.Errorf("%+v", got)
		}
		b.click("U0002", msg, "Stop") // twice
		b.whispered("U0002", msg, "nothing to stop")
		for _, user := range []string{"U0GUEST", "U0EXT", "U0GONE"} {
			b.click(user, msg, "Stop")
			b.eventually(user+" is told", func() bool { return len(b.Ephemerals(user)) == 1 })
		}
		b.in.onReceive = func(context.Context, agent.Inbound) error { return errors.New("postgres://user:secret@db is away") }
		b.click("U0003", msg, "Stop")
		b.whispered("U0003", msg, "nothing was stopped")
		if n := len(stops()); n != 3 {
			t.Errorf("%d stops reached the inlet", n)
		}
	})
}

// The acknowledgement does not wait for the database.
//
// Rows: F34, F35.
func TestStopIsAcknowledgedFirst(t *testing.T) {
	b := start(t, withSlack(slacktest.WithAckTimeout(500*time.Millisecond)))
	msg := b.status()
	hold := make(chan struct{})
	b.in.onReceive = func(context.Context, agent.Inbound) error { <-hold; return nil }
	b.click("U0002", msg, "Stop")
	close(hold)
}
