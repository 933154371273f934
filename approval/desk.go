package approval

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"time"

	"github.com/clawbot/clawbot/agent"
)

// Directory looks people up on one platform.
type Directory interface {
	// Person returns what is known of a now, and in which of the given groups a
	// is. An error means unknown, and unknown may not decide.
	Person(ctx context.Context, a agent.Actor, groups []string) (agent.Person, error)
}

// Store is where approvals are.
type Store interface {
	// Approval returns one approval; agent.ErrNotFound if there is none.
	Approval(ctx context.Context, id agent.ApprovalID) (agent.Approval, error)
	// Approvals lists the latest.
	Approvals(ctx context.Context, q Query) ([]agent.Approval, error)
	// Decide locks the approval, asks rule, and applies its ruling in one commit.
	// A repeated call finds the approval decided, and rule says what follows.
	Decide(ctx context.Context, id agent.ApprovalID, rule func(a agent.Approval, now time.Time) Ruling) (Ruling, error)
	// NextDeadline returns how long until a pending approval is overdue.
	NextDeadline(ctx context.Context) (time.Duration, error)
}

// Query narrows a list of approvals.
type Query struct {
	Pending bool // only those still open
	Overdue bool // only those open past their deadline
	Limit   int  // at most so many
}

// Ruling is what one event does to an approval. No audit row, no effect.
type Ruling struct {
	Status      agent.ApprovalStatus // the new state; pending leaves it
	Vote        agent.Verb           // a vote to record, or empty
	Source      agent.Source
	Actor       agent.Actor
	ActorName   string
	Backchannel agent.ChannelName
	Reason      string
	Args        string       // the arguments with the value that a person gave: they replace the frozen ones; empty leaves those
	Definition  string       // hash of the tool's definition that Args were checked against
	Grant       *agent.Grant // to create with the approval
	Replacement string       // what a person said instead of letting the call run
	Audit       []agent.AuditRecord
	Events      []agent.Event
	Redraw      bool // the card looks different now
	Verdict     agent.Verdict
}

// Desk implements agent.Desk.
type Desk struct {
	store Store
	dirs  map[agent.ChannelName]Directory
	box   agent.Toolbox
	mask  *agent.Masker
	bell  *agent.Bell
	log   *slog.Logger
}

var _ agent.Desk = (*Desk)(nil)

// NewDesk returns a desk. People of a channel without a directory cannot decide. The
// toolbox checks the values that people give.
func NewDesk(store Store, dirs map[agent.ChannelName]Directory, box agent.Toolbox, mask *agent.Masker, bell *agent.Bell, log *slog.Logger) *Desk {
	return &Desk{store: store, dirs: dirs, box: box, mask: mask, bell: bell, log: log}
}

// Decide implements agent.Desk. The person is looked up first, since no
// transaction may wait for a network; the decision itself, with the check
// whether that person may decide, is made under the approval's lock.
func (d *Desk) Decide(ctx context.Context, c agent.Click) (agent.Verdict, error) {
	a, err := d.store.Approval(ctx, c.Approval)
	if errors.Is(err, agent.ErrNotFound) {
		return agent.Verdict{Text: "There is no such question. Nothing was decided."}, nil
	}
	if err != nil {
		return agent.Verdict{}, fmt.Errorf("read approval: %w", err)
	}
	p, unknown := d.person(ctx, a, c)
	ruling, err := d.store.Decide(ctx, c.Approval, func(a agent.Approval, now time.Time) Ruling {
		return d.rule(a, now, c, p, unknown)
	})
	if err != nil {
		return agent.Verdict{}, fmt.Errorf("decide approval: %w", err)
	}
	d.bell.RingWork()
	d.bell.RingPost()
	return ruling.Verdict, nil
}

// person looks the clicker up. The text is why that failed, in words for them.
func (d *Desk) person(ctx context.Context, a agent.Approval, c agent.Click) (agent.Person, string) {
	p := agent.Person{Actor: c.Actor, Name: c.ActorName}
	if c.Actor.Local() {
		return p, ""
	}
	dir := d.dirs[c.Actor.Channel]
	if dir == nil {
		return p, "It cannot be checked who you are, so nothing was decided."
	}
	ctx, cancel := context.WithTimeout(ctx, lookUpTimeout)
	defer cancel()
	found, err := dir.Person(ctx, c.Actor, groups(a.Approvers, c.Actor.Channel))
	if err != nil {
		d.log.WarnContext(ctx, "approver look-up failed, click refused", "approval", c.Approval, "actor", c.Actor.String(), "err", err)
		return p, "It could not be checked who you are, so nothing was decided. Please try again."
	}
	found.Actor = c.Actor
	return found, ""
}

// lookUpTimeout bounds one question to a directory; a clicker waits for it.
const lookUpTimeout = 10 * time.Second

// rule is the one decision function: every way in ends here.
func (d *Desk) rule(a agent.Approval, now time.Time, c agent.Click, p agent.Person, unknown string) Ruling {
	c.Reason = d.mask.Bounded(agent.Clean(c.Reason), 1000)
	refuse := func(text string) Ruling {
		return Ruling{
			Status:  agent.ApprovalPending,
			Verdict: agent.Verdict{Status: a.Status, Text: text},
			Audit: []agent.AuditRecord{d.record(a, agent.AuditClickRefused, agent.AuditRecord{
				Decision: attempted(c.Verb), Source: agent.SourcePerson, Actor: c.Actor, Backchannel: c.Backchannel, Reason: text, Latency: now.Sub(a.AskedAt),
			})},
		}
	}
	switch {
	case c.Actor == agent.Actor{}:
		return Ruling{Status: agent.ApprovalPending, Verdict: agent.Verdict{Status: a.Status, Text: "It is not known who you are, so nothing was decided."}}
	case a.Status != agent.ApprovalPending:
		return refuse("This was decided already: " + Outcome(a) + ". Nothing has changed.")
	case !now.Before(a.Deadline):
		// The clock decides, whoever notices first; the click is recorded as late.
		r := d.expire(a, now)
		text := "This question expired at " + a.Deadline.UTC().Format("15:04 MST") + " and was not executed. Ask again if it is still wanted."
		r.Audit = append(r.Audit, refuse(text).Audit...)
		r.Verdict = agent.Verdict{Status: r.Status, Text: text}
		return r
	case unknown != "":
		return refuse(unknown)
	}
	if why := Authorise(a, p); why != "" {
		return refuse(why)
	}
	if c.Try {
		return Ruling{Status: agent.ApprovalPending, Verdict: agent.Verdict{Accepted: true, Status: a.Status}}
	}
	by := Ruling{Source: agent.SourcePerson, Actor: c.Actor, ActorName: p.Name, Backchannel: c.Backchannel, Reason: c.Reason}
	switch {
	case c.Verb == agent.VerbApprove && a.TargetArg == "":
		return d.approve(a, now, by)
	case c.Verb == agent.VerbApprove:
		return refuse("This question wants a value for " + agent.VisibleLine(a.TargetArg) + ", so nothing was decided. Please give it.")
	case c.Verb == agent.VerbAlways && a.TargetArg == "" && a.Quorum == 1:
		g, why := newGrant(a, now, c)
		if why != "" {
			return refuse(why)
		}
		by.Grant = &g
		r := d.approve(a, now, by)
		r.Audit = append(r.Audit, d.record(a, agent.AuditGrantCreated, agent.AuditRecord{
			Source: agent.SourcePerson, Actor: c.Actor, Backchannel: c.Backchannel, Latency: -1,
			Reason: fmt.Sprintf("%s: this exact call of %s in this conversation, %d times until %s", g.ID, g.GrantedTo, g.UsesLeft, moment(g.ExpiresAt))}))
		return r
	case c.Verb == agent.VerbAlways:
		return refuse("This cannot be allowed once and for all, because each call of it needs a value or several people. Nothing was decided; please approve or deny it.")
	case c.Verb == agent.VerbInput && a.TargetArg != "":
		value, err := typed(c.Value)
		args, tool := "", agent.Tool{}
		if err == nil {
			args, tool, err = withValue(d.box, a, value)
		}
		if err != nil {
			return refuse("This value was not taken: " + d.mask.Bounded(err.Error(), 500) + ". Nothing was decided; please give another.")
		}
		by.Args, by.Definition = args, d.box.Definition(tool)
		a.Args, a.ArgsSHA256 = args, agent.SHA256(args) // what is recorded from here on
		return d.approve(a, now, by)
	case c.Verb == agent.VerbDeny:
		by.Status, by.Vote = agent.ApprovalDenied, agent.VerbDeny
		return d.close(a, now, by)
	case c.Verb == agent.VerbReplace:
		text, err := typed(c.Value)
		if err != nil {
			return refuse("This answer was not taken: " + err.Error() + ". Nothing was decided; please write another.")
		}
		by.Status, by.Vote, by.Replacement = agent.ApprovalReplaced, agent.VerbDeny, text
		by.Reason = cmp.Or(by.Reason, d.mask.Bounded(text, 1000))
		return d.close(a, now, by)
	}
	return refuse("That is not something that can be done with this question.")
}

func (d *Desk) approve(a agent.Approval, now time.Time, vote Ruling) Ruling {
	for _, v := range a.Votes {
		if v.Actor == vote.Actor {
			return Ruling{Status: agent.ApprovalPending, Verdict: agent.Verdict{Status: a.Status,
				Text: fmt.Sprintf("You have approved this already; %d of %d approved.", len(a.Votes), a.Quorum)}}
		}
	}
	vote.Status, vote.Vote = agent.ApprovalPending, agent.VerbApprove
	record := d.record(a, agent.AuditApprovalVote, agent.AuditRecord{
		Decision: string(agent.ApprovalApproved), Source: vote.Source, Actor: vote.Actor, Backchannel: vote.Backchannel, Reason: vote.Reason, Latency: now.Sub(a.AskedAt)})
	if have := len(a.Votes) + 1; have < a.Quorum {
		vote.Audit = []agent.AuditRecord{record}
		vote.Redraw = true
		vote.Verdict = agent.Verdict{Accepted: true, Status: agent.ApprovalPending, Text: fmt.Sprintf("%d of %d approved.", have, a.Quorum)}
		return vote
	}
	vote.Status = agent.ApprovalApproved
	r := d.close(a, now, vote)
	r.Audit = append([]agent.AuditRecord{record}, r.Audit...)
	return r
}

// newGrant makes the grant that a person wants to give, or says why not.
func newGrant(a agent.Approval, now time.Time, c agent.Click) (agent.Grant, string) {
	if a.Requester == (agent.Actor{}) {
		return agent.Grant{}, "It is not known whose call this is, so it cannot be allowed once and for all. Nothing was decided; please approve or deny it."
	}
	long, uses := cmp.Or(c.AlwaysFor, agent.DefaultGrantTime), cmp.Or(c.AlwaysUses, agent.DefaultGrantUses)
	if long < time.Minute || long > agent.MaxGrantTime || uses < 1 || uses > agent.MaxGrantUses {
		return agent.Grant{}, fmt.Sprintf("A standing consent lasts a minute to %d days, for 1 to %d calls. Nothing was decided; please choose again.", int(agent.MaxGrantTime.Hours()/24), agent.MaxGrantUses)
	}
	return agent.Grant{
		ID: agent.NewID[agent.GrantID]("grt", now), Session: a.Session, Tool: a.Tool, Args: a.Args, ArgsSHA256: a.ArgsSHA256,
		Terms:     agent.Judgement{Approvers: a.Approvers, Quorum: a.Quorum}.Terms(),
		GrantedBy: c.Actor, GrantedTo: a.Requester, Approval: a.ID, CreatedAt: now, ExpiresAt: now.Add(long), UsesLeft: uses,
	}, ""
}

// attempted is what a refused click was meant to do, as the audit records it.
func attempted(v agent.Verb) string {
	switch v {
	case agent.VerbInput:
		return string(agent.VerbApprove)
	case agent.VerbApprove, agent.VerbDeny, agent.VerbReplace, agent.VerbAlways:
		return string(v)
	}
	return ""
}

// expire ends a question whose deadline has passed. One that no platform has
// confirmed was not left unanswered by anybody: it could not be put.
func (d *Desk) expire(a agent.Approval, now time.Time) Ruling {
	if a.CardRef == "" {
		return d.close(a, now, Ruling{Status: agent.ApprovalUndeliverable, Source: agent.SourceSystem, Reason: "it could not be shown before the deadline"})
	}
	return d.close(a, now, Ruling{Status: agent.ApprovalExpired, Source: agent.SourceTimeout, Reason: "nobody decided in time"})
}

// Close implements agent.Desk.
func (d *Desk) Close(ctx context.Context, id agent.ApprovalID, status agent.ApprovalStatus, reason string) error {
	_, err := d.store.Decide(ctx, id, func(a agent.Approval, now time.Time) Ruling {
		if a.Status != agent.ApprovalPending {
			return Ruling{Status: agent.ApprovalPending}
		}
		return d.close(a, now, Ruling{Status: status, Source: agent.SourceSystem, Reason: reason})
	})
	if err != nil {
		return fmt.Errorf("close approval: %w", err)
	}
	d.bell.RingWork()
	d.bell.RingPost()
	return nil
}

// close completes a ruling that ends a: audit row, timeline, card.
func (d *Desk) close(a agent.Approval, now time.Time, r Ruling) Ruling {
	waited := now.Sub(a.AskedAt)
	r.Redraw = true
	r.Verdict = agent.Verdict{Accepted: true, Status: r.Status}
	r.Audit = []agent.AuditRecord{d.record(a, agent.AuditApprovalDecided, agent.AuditRecord{
		Decision: string(r.Status), Source: r.Source, Actor: r.Actor, Backchannel: r.Backchannel, Reason: r.Reason, Latency: waited})}
	r.Events = []agent.Event{{Type: agent.EventRunResumed, Turn: a.Turn, Call: a.Call, Fields: map[string]string{
		"tool_name": a.Tool, "tool_call_id": string(a.Call), "approval_id": string(a.ID),
		"approved": strconv.FormatBool(r.Status == agent.ApprovalApproved), "decision": string(r.Status),
		"source": string(r.Source), "actor": r.Actor.String(), "reason": r.Reason,
		"waited_ms": strconv.FormatInt(waited.Milliseconds(), 10),
	}}}
	return r
}

// record fills in what every audit row about an approval says.
func (d *Desk) record(a agent.Approval, kind agent.AuditKind, r agent.AuditRecord) agent.AuditRecord {
	r.Kind, r.Turn, r.Call, r.Approval = kind, a.Turn, a.Call, a.ID
	r.Tool, r.ArgsSHA256, r.Rule, r.Channel = a.Tool, a.ArgsSHA256, a.Rule, a.Place.Channel
	r.Args, _ = d.mask.Call(a.Args, a.SecretArg())
	return r
}

// Run expires overdue approvals until ctx ends. Any number of processes may run
// it on one database.
func (d *Desk) Run(ctx context.Context) error {
	// A question asked by another process can be due before the next deadline
	// known here, so no wait is longer than this.
	const poll = 2 * time.Second
	const least = 10 * time.Millisecond
	for {
		wait, err := d.sweep(ctx)
		if err != nil && ctx.Err() == nil {
			d.log.ErrorContext(ctx, "expiring approvals failed, trying again", "err", err)
			wait = poll
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(min(max(wait, least), poll)):
		}
	}
}

// sweep expires what is overdue and returns how long until the next.
func (d *Desk) sweep(ctx context.Context) (time.Duration, error) {
	overdue, err := d.store.Approvals(ctx, Query{Overdue: true, Limit: 100})
	if err != nil {
		return 0, err
	}
	var failed error // one that cannot be ended must not keep the others open
	for _, a := range overdue {
		_, err := d.store.Decide(ctx, a.ID, func(a agent.Approval, now time.Time) Ruling {
			if a.Status != agent.ApprovalPending || now.Before(a.Deadline) {
				return Ruling{Status: agent.ApprovalPending}
			}
			return d.expire(a, now)
		})
		if err != nil {
			failed = errors.Join(failed, fmt.Errorf("expire approval %s: %w", a.ID, err))
			continue
		}
		d.bell.RingWork()
		d.bell.RingPost()
	}
	if failed != nil {
		return 0, failed
	}
	return d.store.NextDeadline(ctx)
}
