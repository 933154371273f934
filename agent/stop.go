package agent

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
)

// errStopped is the cause of a context that ends because a person wrote stop.
var errStopped = errors.New("a person stopped the turn")

// IsStop reports whether a message is the word that ends the open turn of its
// session.
func IsStop(text string) bool {
	return strings.EqualFold(strings.Trim(text, " \t\r\n.!"), "stop")
}

// endStopped ends the turn because a person said so. What has ended keeps its
// result; what runs has been interrupted by now.
func (r *run) endStopped(ctx context.Context) error {
	// The context of the work has ended, and this must be written.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	t := r.work.Turn
	if t.Stop == (Stop{}) { // heard of through ctx; the database knows who it was
		if err := r.save(ctx, false, false); err != nil {
			return err
		}
	}
	if err := r.closeOpen(ctx, CallCancelled, "Not executed: "+t.Stop.By.String()+" stopped the turn"); err != nil {
		return err
	}
	t.Status = TurnCancelled
	t.Error = stoppedNotice(t.Stop, t.ID)
	r.post(t.Error)
	return r.release(ctx, false)
}

func stoppedNotice(s Stop, id TurnID) string {
	name := s.Name
	if name == "" {
		name = s.By.String()
	}
	return fmt.Sprintf("Stopped by %s (%s).", VisibleLine(Bound(name, 100)), id)
}
