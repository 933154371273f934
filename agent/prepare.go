package agent

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// providerID is an id that every provider takes back.
var providerID = regexp.MustCompile(`^[A-Za-z0-9_-]{1,64}$`)

// prepare takes in an answer with calls. Every call is judged, in order, before
// anything of the batch runs; what needs a person becomes a question. All of it
// is one commit with the assistant's message.
func (r *run) prepare(ctx context.Context, reply ModelReply) error {
	t := r.work.Turn
	t.BatchActive = t.Active + time.Since(r.began)
	batch := 1
	used := map[CallID]bool{}
	for _, c := range r.work.Calls {
		batch = max(batch, c.Batch+1)
		used[c.ID] = true
	}
	step, history, first := r.step, len(r.history), len(r.work.Calls)
	r.event(EventToolBatchStarted, "", map[string]string{"tool_call_count": strconv.Itoa(len(reply.Calls))})
	message := Message{Role: RoleAssistant, Turn: t.ID, Text: reply.Text}
	for i, p := range reply.Calls {
		if !providerID.MatchString(string(p.ID)) || used[p.ID] {
			p.ID = NewID[CallID]("call", time.Now())
		}
		used[p.ID] = true
		c := ToolCall{ID: p.ID, Turn: t.ID, Batch: batch, Position: i, Tool: Bound(Clean(p.Tool), 200), Raw: Clean(p.Arguments), Status: CallPrepared}
		r.work.Calls = append(r.work.Calls, c)
	}
	pending := 0
	for _, a := range r.work.Approvals {
		if a.Status == ApprovalPending {
			pending++
		}
	}
	// The message goes before the results that a call refused below gets at once;
	// its arguments are filled in as the calls are frozen.
	at := len(r.step.Messages)
	r.say(message)
	judged := make([]judgedCall, len(reply.Calls))
	ends := false // a refusal by the policy ends the turn, so nobody is asked about the rest
	for i := range judged {
		c := &r.work.Calls[first+i]
		judged[i] = r.judge(ctx, c, i)
		message.Calls = append(message.Calls, ProposedCall{ID: c.ID, Tool: toolName(c.Tool), Arguments: c.told()})
		ends = ends || judged[i].refused == nil && judged[i].Action == Deny && r.AfterDenial.ends()
	}
	if ctx.Err() != nil && len(r.Before) > 0 {
		// A hook was cut off, and what it did not say must not become a refusal: nothing of
		// this answer has happened.
		r.step, r.history, r.work.Calls = step, r.history[:min(history, len(r.history))], r.work.Calls[:first]
		return context.Cause(ctx)
	}
	seen := map[string]CallID{}
	for i, j := range judged {
		c, tool := &r.work.Calls[first+i], j.tool
		if j.refused != nil {
			r.settle(c, j.refused.status, "", j.refused.why)
			continue
		}
		// The guard comes before consent: nobody is asked about a call that a loop
		// repeats.
		verdict, loop := r.Config.LoopGuard.guard(r.work.Calls, first+i)
		key := strings.ToLower(c.Tool) + "\x00" + c.Args
		switch earlier, twice := seen[key]; {
		case j.Action == Deny:
			r.settle(c, CallDenied, "", j.denial())
		case ends:
			r.settle(c, CallSkipped, "", skippedText)
		case twice && !tool.Repeatable:
			r.settle(c, CallDeduplicated, "", fmt.Sprintf("Not executed again: the same call is %s of this answer", earlier))
		case verdict >= guardBlock:
			r.warn(ctx, c, loop)
			r.settle(c, CallBlocked, "", guardBlockedText+loop+". Do something else, or answer without it")
		case j.Action == Allow:
			seen[key] = c.ID
			r.step.Calls = append(r.step.Calls, *c)
		case j.Action == Ask, j.Action == AskInput:
			seen[key] = c.ID
			if granted, err := r.granted(ctx, c, j.Judgement); err != nil {
				return err
			} else if granted {
				continue
			}
			if r.question(c, j.Judgement, pending) {
				pending++
			}
		default:
			r.settle(c, CallDenied, "", "Denied: the policy gave no answer that is understood")
		}
	}
	r.step.Messages[at] = message
	if r.loaded {
		for i := len(r.history) - 1; i >= 0; i-- {
			if r.history[i].Role == RoleAssistant {
				r.history[i] = message
				break
			}
		}
	}
	return nil
}

// told is what the model reads of its own call later: the arguments as they were
// frozen, else as it wrote them, if they can be read at all.
func (c *ToolCall) told() string {
	raw, err := Canonical(c.Raw)
	if err != nil {
		raw = "{}"
	}
	return cmp.Or(c.Args, raw)
}

// judgedCall is a call with what the policy said, or why it was not asked.
type judgedCall struct {
	Judgement
	tool    Tool
	refused *refusal
}

// refusal is why a call ended before the policy was asked.
type refusal struct {
	status CallStatus
	why    string
}

func blocked(format string, args ...any) *refusal {
	return &refusal{CallBlocked, "Not executed" + fmt.Sprintf(format, args...)}
}

// judge freezes the nth call of an answer and has it judged.
func (r *run) judge(ctx context.Context, c *ToolCall, n int) judgedCall {
	tool, notes, refused := Tool{}, []string(nil), (*refusal)(nil)
	switch {
	case n >= maxCalls:
		refused = blocked(": at most %d calls are taken from one answer", maxCalls)
	default:
		tool, notes, refused = r.freeze(ctx, c)
	}
	j := Judgement{Action: Deny, Source: SourceSystem}
	if refused != nil {
		j.Reason = refused.why
	} else {
		j = r.judgement(tool, c.Args)
		c.Rule = j.Rule
	}
	r.decided(c, j, notes...)
	return judgedCall{Judgement: j, tool: tool, refused: refused}
}

// freeze fixes the bytes of a call: decode, hooks, fill in, clear, available?,
// check. It returns the tool, what was changed on the way in words for the audit,
// and why the call cannot run.
func (r *run) freeze(ctx context.Context, c *ToolCall) (tool Tool, notes []string, refused *refusal) {
	args, err := Canonical(c.Raw)
	if err != nil {
		return tool, nil, blocked(": %v", err)
	}
	args, notes, refused = r.hooksBefore(ctx, c, args)
	if refused != nil {
		return tool, notes, refused
	}
	tool, ok := r.byName[c.Tool]
	if !ok {
		return tool, notes, blocked(": there is no tool named %q here", c.Tool)
	}
	filled, names, err := r.Toolbox.Fill(tool, []byte(args), r.work.Turn.Origin)
	if err != nil {
		return tool, notes, blocked(": %v", err)
	}
	args, cleared, err := clearMarker(string(filled), tool)
	if err != nil {
		return tool, notes, blocked(": %v", err)
	}
	if cleared {
		notes = append(notes, "an argument approved of the model was removed")
	}
	if err := r.check(tool, args); err != nil {
		return tool, notes, blocked(", the arguments are wrong: %v", err)
	}
	c.Args, c.ArgsSHA256, c.Filled = args, SHA256(args), names
	c.Definition = r.Toolbox.Definition(tool)
	return tool, notes, nil
}

// check says what is wrong with the arguments of a call, without the one that a
// person is to give: nobody is asked about a call that cannot run.
func (r *run) check(tool Tool, args string) error {
	err := r.Toolbox.Check(tool.Name, []byte(args), "")
	if err == nil {
		return nil
	}
	if j := r.judgement(tool, args); j.Action == AskInput {
		return r.Toolbox.Check(tool.Name, []byte(args), j.TargetArg)
	}
	return err
}

// judgement asks the policy about a call with these arguments.
func (r *run) judgement(tool Tool, args string) Judgement {
	t := r.work.Turn
	return r.Gate.Judge(Question{Tool: tool, Args: []byte(args), Origin: t.Origin, Session: t.Session})
}

// clearMarker removes an argument "approved" in any spelling of case: consent
// never comes from the model. A tool whose own schema declares it keeps it as
// ordinary data.
func clearMarker(args string, tool Tool) (_ string, cleared bool, _ error) {
	if !strings.Contains(strings.ToLower(args), `"approved"`) {
		return args, false, nil
	}
	var schema struct {
		Properties map[string]json.RawMessage `json:"properties"`
	}
	if err := json.Unmarshal(tool.Schema, &schema); err != nil {
		return "", false, err
	}
	var members map[string]json.RawMessage
	if err := json.Unmarshal([]byte(args), &members); err != nil {
		return "", false, err
	}
	for name := range members {
		if _, own := schema.Properties[name]; strings.EqualFold(name, "approved") && !own {
			delete(members, name)
			cleared = true
		}
	}
	out, err := CanonicalOf(members)
	return out, cleared, err
}

// question asks people about a call, or settles it if nobody can be asked. It
// reports whether a question was asked.
func (r *run) question(c *ToolCall, j Judgement, pending int) bool {
	t := r.work.Turn
	if a, again := r.refusedBefore(c); again {
		status, why := refusalText(a)
		r.settle(c, status, "", why+". It is not asked again in this turn")
		return false
	}
	why := ""
	switch {
	case r.channels[t.Origin.Channel] == nil:
		why = "nobody can be asked where this turn came from"
	case j.Approvers.Empty() || j.Quorum < 1 || j.Timeout <= 0:
		why = "the settings name nobody who could decide"
	case pending >= maxPending:
		why = fmt.Sprintf("there are %d open questions already", maxPending)
	}
	if why != "" {
		r.audit(AuditRecord{Kind: AuditApprovalDecided, Decision: string(ApprovalUndeliverable), Source: SourceSystem, Rule: j.Rule, Reason: why, Latency: -1}, c)
		r.settle(c, CallUndeliverable, "", "Not executed: "+why)
		return false
	}
	a := Approval{
		ID: NewID[ApprovalID]("ap", time.Now()), Session: t.Session, Turn: t.ID, Call: c.ID, Place: t.Origin.Place, Status: ApprovalPending,
		Tool: c.Tool, Args: c.Args, ArgsSHA256: c.ArgsSHA256, RequestSHA256: RequestSHA256(t.Session, t.Origin.Place, *c), Filled: c.Filled,
		Requester: t.Origin.Author, RequesterName: t.Origin.AuthorName, Rule: j.Rule, Why: j.Reason,
		Approvers: j.Approvers, Quorum: j.Quorum, Timeout: j.Timeout, TargetArg: j.TargetArg, Prompt: j.Prompt, Secret: j.Secret,
	}
	c.Approval = a.ID
	if r.work.Approvals == nil {
		r.work.Approvals = map[ApprovalID]Approval{}
	}
	r.work.Approvals[a.ID] = a
	r.step.Calls = append(r.step.Calls, *c)
	r.step.Approvals = append(r.step.Approvals, a)
	r.step.Deliveries = append(r.step.Deliveries, Delivery{
		ID: NewID[DeliveryID]("dlv", time.Now()), Session: t.Session, Turn: t.ID, Kind: DeliverCard, Place: a.Place, Approval: &Approval{ID: a.ID}})
	r.event(EventRunPaused, c.ID, map[string]string{
		"tool_name": c.Tool, "tool_call_id": string(c.ID), "reason": j.Reason, "payload": j.payload(r.shownArgs(c)),
		"approval_id": string(a.ID), "timeout_ms": strconv.FormatInt(j.Timeout.Milliseconds(), 10),
	})
	r.audit(AuditRecord{Kind: AuditApprovalRequested, Approval: a.ID, Decision: string(j.Action), Source: SourcePolicy, Rule: j.Rule, Reason: j.Reason, Latency: -1}, c)
	return true
}

// shownArgs are a call's arguments with secrets masked.
func (r *run) shownArgs(c *ToolCall) string {
	shown, _ := r.Mask.Call(c.Args, c.SecretArg)
	return shown
}

// refusedBefore finds a question about the same tool and bytes in this turn that
// ended without a yes.
func (r *run) refusedBefore(c *ToolCall) (Approval, bool) {
	for _, e := range r.work.Calls {
		if a, asked := r.work.Approvals[e.Approval]; asked && e.sameAs(c) && refused(e.Status) {
			return a, true
		}
	}
	return Approval{}, false
}

// insists reports whether the model has asked again for a call after it was told
// that it was refused and will not be asked again.
func (r *run) insists() bool {
	calls := r.work.Calls
	for i := range calls {
		if calls[i].Batch != calls[len(calls)-1].Batch {
			continue
		}
		if _, asked := r.refusedBefore(&calls[i]); !asked {
			continue
		}
		n := 0
		for _, e := range calls[:i+1] {
			if e.sameAs(&calls[i]) && refused(e.Status) {
				n++
			}
		}
		if n >= maxRefusals {
			return true
		}
	}
	return false
}

// sameAs reports whether two calls would do the same.
func (c *ToolCall) sameAs(d *ToolCall) bool { return c.Tool == d.Tool && c.ArgsSHA256 == d.ArgsSHA256 }

// payload says what people are asked: the masked arguments and, for ask_input, what
// is wanted.
func (j Judgement) payload(args string) string {
	wanted := map[string]any{"action": j.Action, "args": json.RawMessage(args)}
	if j.Action == AskInput {
		wanted["target_arg"], wanted["prompt"] = j.TargetArg, j.Prompt
	}
	text, err := CanonicalOf(wanted)
	if err != nil {
		return args
	}
	return text
}

// denial words a Judgement that denies, for the model.
func (j Judgement) denial() string {
	why := "Denied by policy"
	if j.Source == SourceSystem {
		why = "Denied: the policy could not judge this call"
	}
	if j.Reason != "" {
		why += ": " + j.Reason
	}
	return why
}

// decided records the judgement on a call. The notes say how what was judged
// differs from what the model asked for; they are for the audit alone.
func (r *run) decided(c *ToolCall, j Judgement, notes ...string) {
	r.event(EventPolicyDecision, c.ID, map[string]string{
		"tool_name": c.Tool, "tool_call_id": string(c.ID), "action": string(j.Action), "reason": j.Reason, "rule": j.Rule, "args_sha256": c.ArgsSHA256})
	reason := strings.Join(append([]string{j.Reason}, notes...), "; ")
	r.audit(AuditRecord{Kind: AuditPolicyDecision, Decision: string(j.Action), Source: j.Source, Rule: j.Rule, Reason: reason, Latency: -1}, c)
}

// audit completes a record with what is known of its call, secrets masked.
func (r *run) audit(a AuditRecord, c *ToolCall) {
	a.Turn, a.Call, a.Tool, a.ArgsSHA256, a.Channel = c.Turn, c.ID, c.Tool, c.ArgsSHA256, r.work.Turn.Origin.Channel
	if c.Args != "" {
		a.Args = r.shownArgs(c)
	}
	a.Tool = r.shown(a.Tool, 200) // a name may be the model's invention
	a.Reason = r.shown(a.Reason, 2000)
	r.step.Audit = append(r.step.Audit, a)
}

// toolName makes a name that the model invented fit for the history, where one
// bad name would make providers refuse the whole request.
func toolName(name string) string {
	clean := strings.Map(func(c rune) rune {
		if notInToolName(c) {
			return '_'
		}
		return c
	}, name)
	if clean == "" {
		clean = "unnamed"
	}
	return clean[:min(len(clean), 64)]
}
