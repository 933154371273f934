package agent

import "context"

// AfterDenial is what becomes of a turn when one of its calls was refused.
type AfterDenial string

const (
	DenialContinue AfterDenial = "continue" // the model hears of it and goes on; also the zero value
	DenialDegrade  AfterDenial = "degrade"  // the turn ends as degraded, with a post that says so
	DenialFail     AfterDenial = "fail"     // the turn ends as failed, with a post that says so
)

// refused reports whether a call ended in a way that AfterDenial is about: a no
// of the policy or of a person, the clock, or nobody to ask.
func refused(s CallStatus) bool {
	return s == CallDenied || s == CallExpired || s == CallUndeliverable
}

// ends reports whether a refusal ends the turn.
func (d AfterDenial) ends() bool { return d == DenialDegrade || d == DenialFail }

// denial returns the refused call that ends the turn, or nil. It is worked out
// from the calls alone, so that a turn that is taken up again ends alike.
func (r *run) denial() *ToolCall {
	if !r.AfterDenial.ends() || len(r.work.Calls) == 0 {
		return nil
	}
	batch := r.work.Calls[len(r.work.Calls)-1].Batch
	for i := range r.work.Calls {
		if c := &r.work.Calls[i]; c.Batch == batch && refused(c.Status) {
			return c
		}
	}
	return nil
}

// endDenied closes what is open and ends the turn after a refusal. No model
// request follows, but history is closed: every call has its result.
func (r *run) endDenied(ctx context.Context, c *ToolCall) error {
	if err := r.closeOpen(ctx, CallSkipped, skippedText); err != nil {
		return err
	}
	t := r.work.Turn
	t.Status = TurnDegraded
	if r.AfterDenial == DenialFail {
		t.Status = TurnFailed
	}
	t.Error = deniedNotice(*c)
	r.post(t.Error)
	return nil
}

// skippedText is the result of a call behind a refusal that ends the turn.
const skippedText = "Skipped: another call of this answer was refused, and then the turn ends"

// closeOpen gives every open call the same end and takes its question back.
func (r *run) closeOpen(ctx context.Context, status CallStatus, why string) error {
	// A question must be stored before it can be closed.
	if err := r.flush(ctx); err != nil {
		return err
	}
	for i := range r.work.Calls {
		c := &r.work.Calls[i]
		if c.Status.Ended() {
			continue
		}
		if c.Status == CallStarted { // by a process that died
			r.unknown(c)
			continue
		}
		if c.Approval != "" && r.work.Approvals[c.Approval].Status == ApprovalPending {
			if err := r.Desk.Close(ctx, c.Approval, ApprovalCancelled, why); err != nil {
				return err
			}
		}
		r.settle(c, status, "", why)
	}
	return nil
}
