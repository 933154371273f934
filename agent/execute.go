package agent

import (
	"cmp"
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// maxStoredOutput bounds what a tool's output may take in the database, in
// characters.
const maxStoredOutput = 2_000_000

// settleOpen brings every open call to its end, in call order. It reports whether
// the turn has to wait for a person: calls behind an open question wait with it.
func (r *run) settleOpen(ctx context.Context) (parked bool, err error) {
	if err := r.runTogether(ctx); err != nil {
		return false, err
	}
	for i := range r.work.Calls {
		c := &r.work.Calls[i]
		if c.Status.Ended() {
			continue
		}
		if r.denial() != nil {
			return false, nil
		}
		if c.Status == CallStarted { // by a process that died
			if err := r.takeUp(ctx, c); err != nil {
				return false, err
			}
			continue
		}
		if c.Approval != "" {
			a := r.work.Approvals[c.Approval]
			if a.Status == ApprovalPending {
				return true, nil
			}
			r.Observer.Waited(ctx, c.Tool, a.Status, a.DecidedAt.Sub(a.AskedAt))
			switch a.Status {
			case ApprovalApproved:
			case ApprovalReplaced:
				r.settle(c, CallReplaced, a.Replacement, "")
				continue
			default:
				status, why := refusalText(a)
				r.settle(c, status, "", why)
				if status == CallUndeliverable {
					r.post(undeliverableNotice(c.Tool, a.ID))
				}
				continue
			}
		}
		if r.stopping.Err() != nil {
			return false, nil
		}
		if r.work.Turn.Stop != (Stop{}) {
			return false, errStopped
		}
		if ctx.Err() != nil {
			return false, context.Cause(ctx)
		}
		if err := r.execute(ctx, c); err != nil {
			return false, err
		}
	}
	return false, nil
}

// takeUp goes on with a call that was started and never finished. Only an
// idempotent tool runs again; of all others nobody can know.
func (r *run) takeUp(ctx context.Context, c *ToolCall) error {
	tool, ok := r.byName[c.Tool]
	if ok && tool.Idempotent && r.admissible(tool, c) == "" {
		r.lost(c, "it is idempotent and runs again")
		return r.start(ctx, tool, c, "taken up again after a restart")
	}
	r.Log.WarnContext(ctx, "outcome of a call is unknown", "turn", c.Turn, "call", c.ID, "tool", c.Tool)
	r.unknown(c)
	return nil
}

// lost records that nobody knows how a start ended: each has one result.
func (r *run) lost(c *ToolCall, reason string) {
	r.event(EventToolResult, c.ID, map[string]string{
		"tool_name": c.Tool, "tool_call_id": string(c.ID), "success": "false", "outcome": string(CallUnknown), "latency_ms": "0"})
	r.audit(AuditRecord{Kind: AuditToolFinished, Approval: c.Approval, Decision: string(CallUnknown), Source: SourceSystem, Rule: c.Rule, Reason: reason, Latency: -1}, c)
}

// unknown ends a call that was started by a process that died.
func (r *run) unknown(c *ToolCall) {
	r.settle(c, CallUnknown, "", "Unknown: clawbot was stopped while this ran. It may or may not have taken effect, and it was not run again")
	r.post(unknownNotice(*c))
}

// execute runs a call that was allowed or approved, if that still holds: a turn
// can outlive a change of settings, and then the stricter side wins.
func (r *run) execute(ctx context.Context, c *ToolCall) error {
	tool := r.byName[c.Tool]
	if r.work.Approvals[c.Approval].TargetArg != "" && tool.Name != "" {
		// A person has completed the arguments: they are judged like any others.
		j := r.judgement(tool, c.Args)
		r.decided(c, j, "a person gave a value")
		if j.Action == Deny {
			r.settle(c, CallDenied, "", j.denial())
			return nil
		}
	}
	why := r.admissible(tool, c)
	if why == "" && c.Grant != "" {
		holds, err := r.Store.GrantHolds(ctx, c.Grant)
		switch {
		case err != nil:
			return fmt.Errorf("%w: look at a grant: %w", errSave, err)
		case !holds:
			why = "the standing consent " + string(c.Grant) + " has ended"
		}
	}
	if why != "" {
		r.refuse(ctx, c, why)
		return nil
	}
	return r.start(ctx, tool, c, "")
}

// refuse ends a call that may not run any more.
func (r *run) refuse(ctx context.Context, c *ToolCall, why string) {
	r.event(EventWarning, c.ID, map[string]string{"tool_name": c.Tool, "tool_call_id": string(c.ID), "message": why})
	r.Log.WarnContext(ctx, "call not executed", "turn", c.Turn, "call", c.ID, "tool", c.Tool, "why", why)
	r.audit(AuditRecord{Kind: AuditPolicyDecision, Approval: c.Approval, Decision: string(Deny), Source: SourceSystem, Reason: why, Latency: -1}, c)
	r.settle(c, CallBlocked, "", "Not executed: "+why)
}

// admissible reports why a frozen call may not run now; "" if it may.
func (r *run) admissible(tool Tool, c *ToolCall) string {
	t := r.work.Turn
	switch {
	case tool.Name == "":
		return "the tool is no longer available"
	case c.Args == "" || SHA256(c.Args) != c.ArgsSHA256:
		return "the stored arguments are not those that were judged"
	case r.Toolbox.Definition(tool) != c.Definition:
		return "the tool's definition has changed since the call was judged"
	}
	j := r.judgement(tool, c.Args)
	switch {
	case j.Action == Deny:
		return "the policy denies this call now"
	case j.Action == AskInput && r.work.Approvals[c.Approval].TargetArg != j.TargetArg:
		return "the policy asks for a value now, and nobody gave it"
	}
	if c.Approval == "" {
		if j.Action != Allow && c.Grant == "" {
			return "the policy asks for consent now, and nobody gave it"
		}
		return ""
	}
	a := r.work.Approvals[c.Approval]
	if a.Status != ApprovalApproved || a.Call != c.ID || a.Tool != c.Tool || a.Args != c.Args || a.ArgsSHA256 != c.ArgsSHA256 ||
		a.RequestSHA256 != RequestSHA256(t.Session, t.Origin.Place, *c) {
		return "the approval is not for this call"
	}
	if j.Action != Allow && j.Terms() != (Judgement{Approvers: a.Approvers, Quorum: a.Quorum}).Terms() {
		return "other people have to decide about this call than those who did"
	}
	return ""
}

// start commits that the call runs, then runs it, then notes how it ended.
func (r *run) start(ctx context.Context, tool Tool, c *ToolCall, reason string) error {
	r.begin(c, reason)
	if err := r.flush(ctx); err != nil {
		return err
	}
	return r.finish(ctx, c, r.invoke(ctx, tool, c))
}

// begin notes that the call runs.
func (r *run) begin(c *ToolCall, reason string) {
	c.Status = CallStarted
	r.step.Calls = append(r.step.Calls, *c)
	if c.Approval != "" {
		a := r.work.Approvals[c.Approval]
		a.CallStatus = CallStarted
		r.work.Approvals[c.Approval] = a
	}
	r.event(EventToolCall, c.ID, map[string]string{"tool_name": c.Tool, "tool_call_id": string(c.ID), "args": r.shownArgs(c), "args_sha256": c.ArgsSHA256})
	r.audit(AuditRecord{Kind: AuditToolStarted, Approval: c.Approval, Source: SourceSystem, Rule: c.Rule, Reason: reason, Latency: -1}, c)
}

// outcome is how an execution ended.
type outcome struct {
	Result
	stopped bool // false: it went on although it was told to stop
	latency time.Duration
}

// status is how the call ended; ctx is what it ran under.
func (o outcome) status(ctx context.Context) CallStatus {
	switch {
	case !o.stopped:
		return CallUnknown
	case o.Success:
		return CallSucceeded
	case ctx.Err() != nil:
		return CallInterrupted
	}
	return CallFailed
}

// maskOf is the masker for what a call hands back.
func (r *run) maskOf(c *ToolCall) *Masker {
	if c.SecretArg == "" {
		return r.Mask
	}
	var args map[string]json.RawMessage
	if json.Unmarshal([]byte(c.Args), &args) != nil {
		return r.Mask
	}
	value := string(args[c.SecretArg])
	var text string
	if json.Unmarshal(args[c.SecretArg], &text) == nil {
		value = text
	}
	return r.Mask.With(value)
}

// note is a call as observers see it.
func (r *run) note(c *ToolCall) CallNote {
	return CallNote{Tool: r.shown(c.Tool, 200), Call: c.ID, Turn: c.Turn, Channel: r.work.Turn.Origin.Channel, Args: Bound(r.shownArgs(c), 4000), Status: c.Status, Latency: c.Latency}
}

// invoke runs a call's tool with the frozen bytes.
func (r *run) invoke(ctx context.Context, tool Tool, c *ToolCall) outcome {
	t := r.work.Turn
	began := time.Now()
	ctx, ended := r.Observer.Call(ctx, r.note(c))
	result, stopped := invoke(ctx, r.Grace, tool, Invocation{
		Session: t.Session, Turn: t.ID, Call: c.ID, Args: []byte(c.Args), Origin: t.Origin, Approved: c.Approval != "" || c.Grant != ""})
	mask := r.maskOf(c) // our own secrets are nothing for the model, nor is one that a person gave
	result.Output, _ = mask.Known(result.Output)
	result.Error, _ = mask.Known(result.Error)
	r.Bell.RingPost() // it may have queued a message
	o := outcome{result, stopped, time.Since(began)}
	note := r.note(c)
	note.Status, note.Latency = o.status(ctx), o.latency
	note.Result = r.shown(cmp.Or(o.Error, o.Output), 2000)
	ended(note)
	return o
}

// finish notes how a call ended. Where ctx has ended, that is written at once,
// even though the turn's time is over, and the cause is returned.
func (r *run) finish(ctx context.Context, c *ToolCall, o outcome) error {
	if context.Cause(ctx) == ErrLeaseLost {
		return ErrLeaseLost
	}
	c.Latency = o.latency
	r.settle(c, o.status(ctx), Bound(Clean(o.Output), maxStoredOutput), Bound(Clean(o.Error), maxStoredOutput))
	if !o.stopped {
		r.Log.ErrorContext(ctx, "tool does not stop and is left alone", "turn", c.Turn, "call", c.ID, "tool", c.Tool)
		r.post(deafNotice(*c))
	}
	if ctx.Err() != nil || len(r.After) > 0 { // hooks follow the facts
		if err := r.flush(ctx); err != nil {
			return err
		}
	}
	r.hooksAfter(ctx, c)
	return context.Cause(ctx)
}

// invoke runs a tool and turns a panic into a failure. A tool that goes on
// although ctx ended is not waited for longer than grace: it is then not stopped,
// and what it does nobody knows. Its goroutine is the one thing of the engine
// that nothing can wait for.
func invoke(ctx context.Context, grace time.Duration, tool Tool, inv Invocation) (result Result, stopped bool) {
	done := make(chan Result, 1)
	go func() {
		defer func() {
			if p := recover(); p != nil {
				done <- Failed(fmt.Sprintf("the tool broke down: %v", p))
			}
		}()
		done <- tool.Run(ctx, inv)
	}()
	select {
	case result = <-done:
		return result, true
	case <-ctx.Done():
	}
	select {
	case result = <-done:
		return result, true
	case <-time.After(grace):
		return Failed("Unknown: the tool did not stop when it was told to. It may or may not have taken effect"), false
	}
}

// settle gives a call its one end. With the last one of a batch the results
// enter the history, in call order, in the same commit.
func (r *run) settle(c *ToolCall, status CallStatus, output, errText string) {
	ran := c.Status == CallStarted
	if status == CallSucceeded && strings.TrimSpace(output) == "" {
		output = noOutput
	}
	c.Status, c.Output, c.Error = status, output, errText
	if ran {
		c.ResultSHA256 = r.resultSHA256(c)
	}
	if status == CallSucceeded && r.Receipts != nil {
		c.Receipt = r.Receipts.Sign(Evidence{Session: r.work.Turn.Session, Turn: c.Turn, Call: c.ID, Tool: c.Tool, ArgsSHA256: c.ArgsSHA256, Output: c.Output})
	}
	r.step.Calls = append(r.step.Calls, *c)
	shownOut, shownErr := r.shown(output, 2000), r.shown(errText, 2000)
	success := strconv.FormatBool(status == CallSucceeded)
	if ran {
		ms := strconv.FormatInt(c.Latency.Milliseconds(), 10)
		r.event(EventToolResult, c.ID, map[string]string{
			"tool_name": c.Tool, "tool_call_id": string(c.ID), "success": success, "outcome": string(status), "latency_ms": ms})
		latency := c.Latency
		if status == CallUnknown {
			latency = -1
		}
		r.audit(AuditRecord{Kind: AuditToolFinished, Approval: c.Approval, Decision: string(status), Source: SourceSystem, Rule: c.Rule, Reason: shownErr, Latency: latency}, c)
	}
	r.event(EventToolCompleted, c.ID, map[string]string{
		"tool_name": c.Tool, "tool_call_id": string(c.ID), "success": success, "outcome": string(status), "output": shownOut, "error": shownErr})
	if a := r.work.Approvals[c.Approval]; a.Status == ApprovalApproved {
		// The card says what came of the decision; any other end it shows already.
		r.step.Refresh = append(r.step.Refresh, c.Approval)
	}
	r.closeBatch(c.Batch)
}

// closeBatch appends the results of a batch once all its calls have ended.
func (r *run) closeBatch(batch int) {
	var results []Message
	failures := 0
	for i, c := range r.work.Calls {
		if c.Batch != batch {
			continue
		}
		if !c.Status.Ended() {
			return
		}
		if c.Status != CallSucceeded {
			failures++
		}
		results = append(results, Message{Role: RoleTool, Turn: c.Turn, CallID: c.ID, Failed: c.Status != CallSucceeded && c.Status != CallReplaced, Text: r.resultText(c) + r.warning(i)})
	}
	for _, m := range results {
		r.say(m)
	}
	t := r.work.Turn
	r.Observer.Batch(r.seen, len(results), failures, t.Active+time.Since(r.began)-t.BatchActive)
}

// warning stands behind the result of a call that the loop guard let pass with a
// word to the model.
func (r *run) warning(at int) string {
	verdict, why := r.Config.LoopGuard.guard(r.work.Calls, at)
	if verdict != guardWarn || !r.work.Calls[at].Status.Ran() {
		return ""
	}
	return "\n[clawbot: " + why + "; the next one is blocked]"
}

// resultText is what the model reads of a call.
func (r *run) resultText(c ToolCall) string {
	if c.Status == CallSucceeded {
		text := c.Output
		if text != noOutput {
			text = framed(Bound(text, r.Config.MaxToolResultChars))
		}
		if c.Receipt != "" {
			text += "\n[receipt: " + c.Receipt + "]"
		}
		return text
	}
	if c.Status == CallReplaced {
		return "Not executed. Instead a person answered:\n" + Bound(c.Output, r.Config.MaxToolResultChars)
	}
	text := Bound(strings.TrimSuffix(c.Error+"\n"+c.Output, "\n"), r.Config.MaxToolResultChars)
	if c.Status == CallFailed || c.Status == CallInterrupted { // the tool's words; all others are ours
		text = framed(text)
	}
	return failureText(c.ID, c.Status, text)
}

// framed marks a text that a tool handed back as data. What looks like a frame in
// it is spoilt, so no text can end its frame and speak outside of it.
func framed(text string) string {
	return "<tool_output>\n" + frame.ReplaceAllString(text, `<\$1`) + "\n</tool_output>"
}

var frame = regexp.MustCompile(`(?i)<(\s*/?\s*tool_output)`)

// resultSHA256 binds a result to its call.
func (r *run) resultSHA256(c *ToolCall) string {
	sum := HashParts("clawbot result 1", string(r.work.Turn.Session), string(c.Turn), string(c.ID), c.Tool, c.Args, string(c.Status), c.Output, c.Error)
	return hex.EncodeToString(sum[:])
}

// errForeign: a stored result is not that of its call.
var errForeign = errors.New("a stored result does not belong to its call")

// checkStored goes through the stored results that a turn which is taken up again
// builds on: each must be that of its call.
func (r *run) checkStored(ctx context.Context) error {
	calls := r.work.Calls
	for i := range calls {
		c := &calls[i]
		if c.Batch != calls[len(calls)-1].Batch || !c.Status.Ended() || !c.Status.Ran() {
			continue
		}
		if c.ResultSHA256 != "" && c.ResultSHA256 != r.resultSHA256(c) { // "" is from before there was one
			r.warn(ctx, c, errForeign.Error())
			return errForeign
		}
		r.Observer.Replay(ctx, r.note(c))
	}
	return nil
}
