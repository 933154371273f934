package approval

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/clawbot/clawbot/agent"
)

// maxFieldChars is how much of one argument the card itself shows; the rest is
// behind Details.
const maxFieldChars = 700

// maxFields is how many arguments the card itself lists.
const maxFields = 20

// Card implements agent.Desk.
func (d *Desk) Card(ctx context.Context, id agent.ApprovalID) (agent.Card, error) {
	a, err := d.store.Approval(ctx, id)
	if err != nil {
		return agent.Card{}, fmt.Errorf("read approval: %w", err)
	}
	return Draw(a, d.mask), nil
}

// Draw returns the card of an approval. Everything in it comes from the stored
// row; texts that people or the model wrote are made visible character by
// character, and secrets in the arguments are masked and counted.
func Draw(a agent.Approval, mask *agent.Masker) agent.Card {
	show := func(s string) string {
		s, _ = mask.Text(agent.Clean(s))
		return agent.VisibleLine(s)
	}
	c := agent.Card{Approval: a.ID, Status: a.Status, Place: a.Place, Ref: a.CardRef, Tool: show(a.Tool)}
	c.Title = "Approval needed: " + c.Tool
	args, masked := mask.Call(a.Args, a.SecretArg())
	c.Masked = masked
	c.Full = agent.Visible(indent(args))
	c.Fields, c.Cut = fields(args, a.Filled)

	who := show(a.RequesterName)
	if id := a.Requester.String(); id != "" && id != who {
		who = strings.TrimSpace(who + " (" + show(id) + ")")
	}
	c.Facts = append(c.Facts, agent.CardField{Name: "Requested by", Value: who})
	if a.Rule != "" {
		c.Facts = append(c.Facts, agent.CardField{Name: "Rule", Value: show(a.Rule)})
	}
	if a.Why != "" {
		c.Facts = append(c.Facts, agent.CardField{Name: "Why", Value: agent.Bound(show(a.Why), 300)})
	}
	if masked > 0 {
		c.Facts = append(c.Facts, agent.CardField{Name: "Masked", Value: fmt.Sprintf("%d secret value(s) are hidden here and used as they are when it runs", masked)})
	}
	c.Facts = append(c.Facts, agent.CardField{Name: "SHA-256", Value: a.ArgsSHA256, Code: true})
	if a.Status == agent.ApprovalPending {
		if a.Quorum > 1 {
			c.Facts = append(c.Facts, agent.CardField{Name: "Approvals", Value: fmt.Sprintf("%d of %d approved", len(a.Votes), a.Quorum)})
		}
		c.Facts = append(c.Facts,
			agent.CardField{Name: "Decide before", Value: moment(a.Deadline)},
			agent.CardField{Name: "Approval", Value: string(a.ID), Code: true})
		yes := agent.VerbApprove
		if a.TargetArg != "" {
			yes = agent.VerbInput
			c.Input = &agent.CardInput{Arg: show(a.TargetArg), Prompt: agent.Bound(show(a.Prompt), 500), Secret: a.Secret}
			c.Facts = append(c.Facts, agent.CardField{Name: "Wanted", Value: cmp.Or(c.Input.Prompt, "a value for "+c.Input.Arg)})
		}
		c.Buttons = []agent.Button{
			{Verb: yes, Label: "Approve"},
			{Verb: agent.VerbDeny, Label: "Deny"},
			{Verb: agent.VerbDetails, Label: "Details"},
		}
		if a.TargetArg == "" && a.Quorum == 1 {
			c.Buttons = slices.Insert(c.Buttons, 2, agent.Button{Verb: agent.VerbAlways, Label: "Always allow…"})
		}
		return c
	}
	c.Title = strings.ToUpper(string(a.Status[:1])) + string(a.Status[1:]) + ": " + c.Tool
	c.Outcome = Outcome(a)
	if a.Reason != "" && a.Source == agent.SourcePerson && a.Replacement == "" {
		c.Outcome += ": " + agent.Bound(show(a.Reason), 500)
	}
	if a.Replacement != "" {
		c.Outcome += ": " + agent.Bound(show(a.Replacement), 500)
	}
	if h := happened(a); h != "" {
		c.Outcome += ". " + h
	}
	return c
}

// Outcome says how an approval ended, in words for people: what, who, when.
func Outcome(a agent.Approval) string {
	at := moment(a.DecidedAt)
	by := agent.VisibleLine(a.DecidedBy.String())
	if a.DecidedByName != "" {
		by = agent.VisibleLine(agent.Bound(a.DecidedByName, 100)) + " (" + by + ")"
	}
	if n := len(a.Votes); a.Status == agent.ApprovalApproved && n > 1 {
		others := make([]string, 0, n)
		for _, v := range a.Votes {
			others = append(others, agent.VisibleLine(v.Actor.String()))
		}
		by = strings.Join(others, ", ")
	}
	switch a.Status {
	case agent.ApprovalApproved:
		return "approved by " + by + " at " + at
	case agent.ApprovalDenied:
		return "denied by " + by + " at " + at
	case agent.ApprovalReplaced:
		return "answered by " + by + " instead at " + at
	case agent.ApprovalExpired:
		return "expired at " + at + ", nobody decided in time"
	case agent.ApprovalCancelled:
		return "cancelled at " + at
	case agent.ApprovalUndeliverable:
		return "could not be shown to anybody, " + at
	}
	return "waiting for a decision"
}

// happened says what became of the call after the decision.
func happened(a agent.Approval) string {
	switch a.CallStatus {
	case agent.CallSucceeded:
		return "It ran and succeeded in " + round(a.CallLatency)
	case agent.CallFailed:
		return "It ran and failed after " + round(a.CallLatency)
	case agent.CallInterrupted:
		return "It was interrupted while it ran"
	case agent.CallUnknown:
		return "It was started and clawbot stopped before the result was known; whether it took effect must be checked by hand"
	case agent.CallStarted:
		return "It is running"
	case agent.CallApproved:
		return "It will run in its turn"
	case agent.CallBlocked:
		return "It was not executed, because it was no longer allowed when its turn came"
	}
	return "It was not executed"
}

func moment(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05 MST") }

func round(d time.Duration) string { return d.Round(time.Millisecond).String() }

// fields lists the arguments by name, each shortened to its head and tail.
func fields(args string, filled []string) (out []agent.CardField, cut bool) {
	var members map[string]json.RawMessage
	if json.Unmarshal([]byte(args), &members) != nil {
		return []agent.CardField{{Name: "arguments", Value: agent.Visible(agent.Bound(args, maxFieldChars)), Code: true}}, true
	}
	names := make([]string, 0, len(members))
	for name := range members {
		names = append(names, name)
	}
	slices.Sort(names)
	for i, name := range names {
		if i == maxFields {
			out = append(out, agent.CardField{Name: "…", Value: fmt.Sprintf("%d more arguments, see Details", len(names)-i)})
			return out, true
		}
		var text string
		if json.Unmarshal(members[name], &text) != nil {
			text = string(members[name])
		}
		value := agent.Visible(text)
		if n := utf8.RuneCountInString(value); n > maxFieldChars {
			value = fmt.Sprintf("%s\n(%d characters in all, see Details)", agent.Bound(value, maxFieldChars), n)
			cut = true
		}
		shown := agent.VisibleLine(name)
		if n := utf8.RuneCountInString(shown); n > 60 {
			shown, cut = strings.ReplaceAll(agent.Bound(shown, 60), "\n", " "), true // it stays one line
		}
		if what, ok := filledIn(filled, name); ok {
			shown += " (" + what + "filled in from this conversation)"
		}
		out = append(out, agent.CardField{Name: shown, Value: value, Code: true})
	}
	return out, cut
}

// filledIn reports whether an argument was filled in, or, in what, which of its
// own members were.
func filledIn(filled []string, name string) (what string, ok bool) {
	var members []string
	for _, f := range filled {
		if f == name {
			return "", true
		}
		if member, within := strings.CutPrefix(f, name+"."); within {
			members = append(members, member)
		}
	}
	return strings.Join(members, ", ") + " ", len(members) > 0
}

func indent(js string) string {
	var b bytes.Buffer
	if json.Indent(&b, []byte(js), "", "  ") != nil {
		return js
	}
	return b.String()
}
