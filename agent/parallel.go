package agent

import (
	"context"
	"errors"
)

// maxTogether is how many calls of a turn run at the same time.
const maxTogether = 8

// runTogether runs the open calls of a batch at the same time, where the settings
// allow that, there is more than one, and none needs consent. Whatever else is open
// is left for settleOpen. Each result is written as it comes; the results enter the
// history in call order all the same.
func (r *run) runTogether(ctx context.Context) error {
	if !r.Config.ParallelTools {
		return nil
	}
	var open []*ToolCall
	for i := range r.work.Calls {
		c := &r.work.Calls[i]
		switch {
		case c.Status.Ended():
		case c.Status != CallPrepared || c.Approval != "" || c.Grant != "":
			return nil
		default:
			open = append(open, c)
		}
	}
	if len(open) < 2 || r.denial() != nil {
		return nil
	}
	for len(open) > 0 && r.stopping.Err() == nil && r.work.Turn.Stop == (Stop{}) && ctx.Err() == nil {
		n := min(len(open), maxTogether)
		if err := r.runBatch(ctx, open[:n]); err != nil {
			return err
		}
		open = open[n:]
	}
	return nil
}

// runBatch runs some calls at the same time and waits for all of them.
func (r *run) runBatch(ctx context.Context, calls []*ToolCall) error {
	type ended struct {
		call *ToolCall
		outcome
	}
	var run []*ToolCall
	for _, c := range calls {
		if why := r.admissible(r.byName[c.Tool], c); why != "" {
			r.refuse(ctx, c, why)
			continue
		}
		r.begin(c, "")
		run = append(run, c)
	}
	if err := r.flush(ctx); err != nil {
		return err
	}
	done := make(chan ended, len(run))
	for _, c := range run {
		tool := r.byName[c.Tool]
		go func() { done <- ended{c, r.invoke(ctx, tool, c)} }() // invoke returns soon after ctx has ended
	}
	var first error
	for range run {
		e := <-done
		if errors.Is(first, errSave) {
			continue // nothing in memory counts any more
		}
		// The first error ends the turn, but what the others did is noted.
		if err := r.finish(ctx, e.call, e.outcome); err != nil && first == nil {
			first = err
		}
		if err := r.flush(ctx); err != nil && first == nil {
			first = err
		}
	}
	return first
}
