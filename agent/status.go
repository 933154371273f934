package agent

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// Status is how far a turn is, in one message that is edited as it goes on. It is drawn
// by code from stored rows and holds neither arguments nor results: those can be long
// and secret, and what they say could look like ours.
type Status struct {
	Turn  TurnID
	Title string
	Lines []string // one for each of the latest calls; plain text
	Open  bool     // the turn is open, so it can be stopped
}

// maxStatusLines is how many calls a status line shows.
const maxStatusLines = 10

// DrawStatus draws the status line of a turn.
func DrawStatus(t Turn, calls []ToolCall, mask *Masker) Status {
	s := Status{Turn: t.ID, Open: !t.Status.Ended()}
	counts := map[CallStatus]int{}
	for i, c := range calls {
		counts[c.Status]++
		if i >= len(calls)-maxStatusLines {
			s.Lines = append(s.Lines, statusLine(c, mask))
		}
	}
	if more := len(calls) - len(s.Lines); more > 0 {
		s.Lines = append([]string{fmt.Sprintf("… %d calls before these", more)}, s.Lines...)
	}
	switch t.Status {
	case TurnParked:
		s.Title = "Waiting for a decision"
	case TurnRunning:
		s.Title = "Working"
	case TurnCancelled:
		s.Title = "Stopped"
	case TurnFailed, TurnDegraded:
		s.Title = "Ended early"
	default:
		s.Title = "Done"
	}
	if t.Status.Ended() {
		s.Title += fmt.Sprintf(": %d of %d calls succeeded", counts[CallSucceeded], len(calls))
	}
	return s
}

func statusLine(c ToolCall, mask *Masker) string {
	name := VisibleLine(Bound(c.Tool, 64))
	switch c.Status {
	case CallPrepared:
		if c.Approval != "" {
			return "? " + name + " waits for a decision"
		}
		return "· " + name
	case CallApproved:
		return "· " + name + " is approved"
	case CallStarted:
		return "▸ " + name + " is running"
	case CallSucceeded:
		return "✓ " + name
	case CallFailed, CallInterrupted, CallUnknown:
		return "✗ " + name + ": " + string(c.Status) + shortly(mask.Bounded(Clean(c.Error), 120))
	}
	return "– " + name + ": " + string(c.Status)
}

// shortly is a text behind a dash, if there is one, on one line.
func shortly(text string) string {
	if text == "" {
		return ""
	}
	return ", " + VisibleLine(text)
}

// drawStatuses draws what is due until ctx ends, and waits for what it has begun.
func (e *Engine) drawStatuses(ctx, work context.Context) {
	var wg sync.WaitGroup
	defer wg.Wait()
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(pollEvery):
		}
		due, err := e.Store.DueStatuses(ctx, e.names, maxSending)
		if err != nil && ctx.Err() == nil {
			e.Log.ErrorContext(ctx, "reading due status lines failed, trying again", "err", err)
		}
		for _, s := range due {
			wg.Go(func() { e.drawStatus(work, s) })
		}
	}
}

// maxStatusTries is how often a status line is tried; nobody misses one that is not there.
const maxStatusTries = 5

// drawStatus posts or edits one status line. What fails for the moment is tried again
// when its lease has run out.
func (e *Engine) drawStatus(ctx context.Context, s StatusDue) {
	sending, cancel := context.WithTimeout(ctx, e.Lease*2/3)
	defer cancel()
	ref, err := e.showStatus(sending, s)
	if err != nil {
		e.Log.DebugContext(ctx, "a status line could not be shown", "turn", s.Turn.ID, "err", err)
		if !permanent(err) && s.Tries < maxStatusTries {
			return
		}
	}
	recording, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	if err := e.Store.StatusDrawn(recording, s, ref); err != nil {
		e.Log.ErrorContext(ctx, "recording a status line failed, it is drawn again", "turn", s.Turn.ID, "err", err)
	}
}

func (e *Engine) showStatus(ctx context.Context, s StatusDue) (ref string, err error) {
	defer panicked(&err)
	ch := e.channels[s.Turn.Origin.Channel]
	if ch == nil {
		return "", &SendError{Permanent: true, Reason: "no such channel here"}
	}
	picture := DrawStatus(s.Turn, s.Calls, e.Mask)
	p := Post{Key: DeliveryID("status_" + s.Turn.ID), Status: &picture, Unsure: s.Tries > 1}
	if s.Ref == "" {
		if ref, err = ch.Post(ctx, s.Turn.Origin.Place, p); err != nil || !p.Unsure {
			return ref, err
		}
		s.Ref = ref // it may have been there already, and look as it did then
	}
	return s.Ref, ch.Edit(ctx, s.Turn.Origin.Place, s.Ref, p)
}
