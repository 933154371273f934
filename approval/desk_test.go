package approval

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/clawbot/clawbot/agent"
)

// memory is a store with the approvals of a test. It applies rulings as the real
// one does, without its locks.
type memory struct {
	open    map[agent.ApprovalID]*agent.Approval
	rulings []Ruling
	broken  map[agent.ApprovalID]bool // cannot be written
}

func (m *memory) Approval(_ context.Context, id agent.ApprovalID) (agent.Approval, error) {
	a := m.open[id]
	if a == nil {
		return agent.Approval{}, agent.ErrNotFound
	}
	return *a, nil
}

func (m *memory) Approvals(_ context.Context, q Query) (out []agent.Approval, _ error) {
	for _, a := range m.open {
		if a.Status == agent.ApprovalPending && (!q.Overdue || !time.Now().Before(a.Deadline)) {
			out = append(out, *a)
		}
	}
	return out, nil
}

func (m *memory) Decide(_ context.Context, id agent.ApprovalID, rule func(agent.Approval, time.Time) Ruling) (Ruling, error) {
	a := m.open[id]
	r := rule(*a, time.Now())
	if m.broken[id] {
		return Ruling{}, errors.New("database refused")
	}
	m.rulings = append(m.rulings, r)
	if r.Vote == agent.VerbApprove {
		a.Votes = append(a.Votes, agent.Vote{Actor: r.Actor, Name: r.ActorName})
	}
	if r.Status != agent.ApprovalPending {
		a.Status, a.Source, a.DecidedBy, a.Reason, a.DecidedAt = r.Status, r.Source, r.Actor, r.Reason, time.Now()
	}
	return r, nil
}

func (m *memory) NextDeadline(context.Context) (time.Duration, error) {
	wait := time.Hour
	for _, a := range m.open {
		if a.Status == agent.ApprovalPending {
			wait = min(wait, max(time.Until(a.Deadline), 0))
		}
	}
	return wait, nil
}

// people is a directory that answers when it wants to.
type people func(ctx context.Context, a agent.Actor) (agent.Person, error)

func (p people) Person(ctx context.Context, a agent.Actor, _ []string) (agent.Person, error) {
	return p(ctx, a)
}

func user(name string) agent.Actor {
	return agent.Actor{Channel: "slack", Workspace: "T1", User: name}
}

func newTestDesk(m *memory, dir Directory) *Desk {
	dirs := map[agent.ChannelName]Directory{}
	if dir != nil {
		dirs["slack"] = dir
	}
	return NewDesk(m, dirs, nil, agent.NewMasker("hunter2-canary"), agent.NewBell(), slog.New(slog.DiscardHandler))
}

func question(id agent.ApprovalID, deadline time.Duration) *agent.Approval {
	return &agent.Approval{ID: id, Status: agent.ApprovalPending, Tool: "note", Args: `{"token":"abc"}`, Requester: user("ann"), CardRef: "r1", Quorum: 1,
		Approvers: agent.Approvers{Users: []string{"slack:T1/boss", "slack:T1/chief", "cli:op"}}, AskedAt: time.Now(), Deadline: time.Now().Add(deadline)}
}

var everybody = people(func(_ context.Context, a agent.Actor) (agent.Person, error) { return agent.Person{Name: a.User}, nil })

// What cannot be checked is no yes, and is told to the clicker; what is refused is
// a row in the audit as far as there is a person.
//
// Rows: F70, F71, F82, T3, L74.
func TestRefusals(t *testing.T) {
	for name, c := range map[string]struct {
		dir     Directory
		click   agent.Click
		text    string
		refused bool // in the audit
	}{
		"unknown question":  {everybody, agent.Click{Approval: "ap_other", Verb: agent.VerbApprove, Actor: user("boss")}, "no such question", false},
		"nobody":            {everybody, agent.Click{Approval: "ap", Verb: agent.VerbApprove}, "not known who you are", false},
		"no directory":      {nil, agent.Click{Approval: "ap", Verb: agent.VerbApprove, Actor: user("boss")}, "cannot be checked", true},
		"look-up fails":     {people(func(context.Context, agent.Actor) (agent.Person, error) { return agent.Person{}, errors.New("down") }), agent.Click{Approval: "ap", Verb: agent.VerbApprove, Actor: user("boss")}, "could not be checked", true},
		"details":           {everybody, agent.Click{Approval: "ap", Verb: agent.VerbDetails, Actor: user("boss")}, "not something that can be done", true},
		"unknown verb":      {everybody, agent.Click{Approval: "ap", Verb: "yes", Actor: user("boss")}, "not something that can be done", true},
		"requester":         {everybody, agent.Click{Approval: "ap", Verb: agent.VerbApprove, Actor: user("ann")}, "another person has to decide", true},
		"another workspace": {everybody, agent.Click{Approval: "ap", Verb: agent.VerbApprove, Actor: agent.Actor{Channel: "slack", Workspace: "T2", User: "boss"}}, "not among the people", true},
		"another channel":   {everybody, agent.Click{Approval: "ap", Verb: agent.VerbApprove, Actor: agent.Actor{Channel: "discord", Workspace: "T1", User: "boss"}}, "cannot be checked", true},
		"console":           {everybody, agent.Click{Approval: "ap", Verb: agent.VerbApprove, Actor: agent.Actor{Channel: "cli", User: "other"}}, "local console", true},
	} {
		t.Run(name, func(t *testing.T) {
			m := &memory{open: map[agent.ApprovalID]*agent.Approval{"ap": question("ap", time.Minute)}}
			v, err := newTestDesk(m, c.dir).Decide(t.Context(), c.click)
			if err != nil || v.Accepted || !strings.Contains(v.Text, c.text) {
				t.Errorf("%+v, %v", v, err)
			}
			if a := m.open["ap"]; a.Status != agent.ApprovalPending || len(a.Votes) != 0 {
				t.Errorf("it changed something: %+v", a)
			}
			rows := 0
			for _, r := range m.rulings {
				for _, row := range r.Audit {
					rows++
					if row.Kind != agent.AuditClickRefused || row.Source != agent.SourcePerson || row.Actor != c.click.Actor || strings.Contains(row.Args, "abc") ||
						row.Decision != "" && row.Decision != "approve" && row.Decision != "deny" {
						t.Errorf("audit: %+v", row)
					}
				}
			}
			if (rows == 1) != c.refused {
				t.Errorf("%d audit rows", rows)
			}
		})
	}
}

// A directory that does not answer is a failed look-up, in time for the clicker.
func TestLookUpHasAnEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &memory{open: map[agent.ApprovalID]*agent.Approval{"ap": question("ap", time.Hour)}}
		d := newTestDesk(m, people(func(ctx context.Context, _ agent.Actor) (agent.Person, error) {
			<-ctx.Done()
			return agent.Person{}, ctx.Err()
		}))
		began := time.Now()
		v, err := d.Decide(t.Context(), agent.Click{Approval: "ap", Verb: agent.VerbApprove, Actor: user("boss")})
		if err != nil || v.Accepted || time.Since(began) > lookUpTimeout {
			t.Errorf("after %s: %+v, %v", time.Since(began), v, err)
		}
	})
}

// The clock decides: a click one moment before the deadline counts, one at the
// deadline does not, whoever notices first.
//
// Rows: F84.
func TestDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, late := range []bool{false, true} {
			m := &memory{open: map[agent.ApprovalID]*agent.Approval{"ap": question("ap", time.Minute)}}
			time.Sleep(time.Minute - time.Nanosecond)
			if late {
				time.Sleep(time.Nanosecond)
			}
			v, err := newTestDesk(m, everybody).Decide(t.Context(), agent.Click{Approval: "ap", Verb: agent.VerbApprove, Actor: user("boss")})
			if err != nil || v.Accepted == late {
				t.Errorf("late %v: %+v, %v", late, v, err)
			}
			if late {
				a, r := m.open["ap"], m.rulings[0]
				if a.Status != agent.ApprovalExpired || a.Source != agent.SourceTimeout || a.DecidedBy != (agent.Actor{}) || len(r.Audit) != 2 || r.Audit[1].Kind != agent.AuditClickRefused {
					t.Errorf("%+v, %+v", a, r.Audit)
				}
			}
		}
	})
}

// Questions end by the clock with nobody's doing, also behind one that cannot be
// ended; one that no platform has confirmed was not left unanswered by anybody.
func TestSweep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &memory{
			open: map[agent.ApprovalID]*agent.Approval{
				"a": question("a", time.Second), "b": question("b", 3*time.Second), "c": question("c", 2*time.Second), "unseen": question("unseen", time.Second),
				"later": question("later", time.Hour)},
			broken: map[agent.ApprovalID]bool{"a": true},
		}
		m.open["unseen"].CardRef = ""
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- newTestDesk(m, everybody).Run(ctx) }()
		time.Sleep(10 * time.Second)
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
		for id, want := range map[agent.ApprovalID]agent.ApprovalStatus{"a": agent.ApprovalPending, "b": agent.ApprovalExpired, "c": agent.ApprovalExpired,
			"unseen": agent.ApprovalUndeliverable, "later": agent.ApprovalPending} {
			if got := m.open[id].Status; got != want {
				t.Errorf("%s is %s, want %s", id, got, want)
			}
		}
	})
}

// Different people make a quorum; the reason is masked and bounded before it is
// stored anywhere.
//
// Rows: L74.
func TestQuorumAndReason(t *testing.T) {
	a := question("ap", time.Minute)
	a.Quorum = 2
	m := &memory{open: map[agent.ApprovalID]*agent.Approval{"ap": a}}
	d := newTestDesk(m, everybody)
	click := func(who agent.Actor, reason string) agent.Verdict {
		v, err := d.Decide(t.Context(), agent.Click{Approval: "ap", Verb: agent.VerbApprove, Actor: who, Reason: reason})
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	if v := click(user("boss"), ""); !v.Accepted || v.Status != agent.ApprovalPending || v.Text != "1 of 2 approved." {
		t.Errorf("the first: %+v", v)
	}
	if v := click(user("boss"), ""); v.Accepted {
		t.Errorf("the same again: %+v", v)
	}
	if v := click(agent.Actor{Channel: "cli", User: "op"}, "use hunter2-canary "+strings.Repeat("x", 5000)+"\x00"); !v.Accepted || v.Status != agent.ApprovalApproved {
		t.Errorf("the second: %+v", v)
	}
	last := m.rulings[len(m.rulings)-1]
	if strings.Contains(last.Reason, "hunter2") || len(last.Reason) > 1100 || strings.Contains(last.Audit[0].Reason, "hunter2") || strings.Contains(last.Events[0].Fields["reason"], "hunter2") {
		t.Errorf("the reason is stored as %q", last.Reason)
	}
	if last.Audit[0].Kind != agent.AuditApprovalVote || last.Audit[1].Kind != agent.AuditApprovalDecided {
		t.Errorf("audit: %+v", last.Audit)
	}
}

// Rows: F70, F73, T3.
func TestAuthorise(t *testing.T) {
	boss, ann := user("boss"), user("ann")
	all := agent.Approvers{Users: []string{boss.String()}, SlackGroups: []string{"S1"}, Requester: true, Local: true}
	for name, c := range map[string]struct {
		approvers agent.Approvers
		p         agent.Person
		may       bool
	}{
		"zero approvers, anybody":      {agent.Approvers{}, agent.Person{Actor: boss}, false},
		"zero approvers, console":      {agent.Approvers{}, agent.Person{Actor: agent.Actor{Channel: "web", User: "x"}}, false},
		"nobody":                       {all, agent.Person{}, false},
		"listed":                       {all, agent.Person{Actor: boss}, true},
		"listed, but left":             {all, agent.Person{Actor: boss, Inactive: true}, false},
		"listed, but a bot":            {all, agent.Person{Actor: boss, Bot: true}, false},
		"listed guest":                 {all, agent.Person{Actor: boss, Guest: true}, true},
		"listed stranger":              {all, agent.Person{Actor: boss, External: true}, true},
		"in the group":                 {all, agent.Person{Actor: user("x"), Groups: []string{"S1"}}, true},
		"guest in the group":           {all, agent.Person{Actor: user("x"), Guest: true, Groups: []string{"S1"}}, false},
		"stranger in the group":        {all, agent.Person{Actor: user("x"), External: true, Groups: []string{"S1"}}, false},
		"in another group":             {all, agent.Person{Actor: user("x"), Groups: []string{"S2"}}, false},
		"group of another platform":    {all, agent.Person{Actor: agent.Actor{Channel: "discord", Workspace: "1", User: "x"}, Groups: []string{"S1"}}, false},
		"requester, where that may be": {all, agent.Person{Actor: ann}, true},
		"requester, listed, may not":   {agent.Approvers{Users: []string{ann.String()}}, agent.Person{Actor: ann}, false},
		"requester guest":              {all, agent.Person{Actor: ann, Guest: true}, false},
		"local":                        {all, agent.Person{Actor: agent.Actor{Channel: "cli", User: "op"}}, true},
		"local, by name":               {agent.Approvers{Users: []string{"cli:op"}}, agent.Person{Actor: agent.Actor{Channel: "cli", User: "op"}}, true},
		"local, not wanted":            {agent.Approvers{Users: []string{boss.String()}}, agent.Person{Actor: agent.Actor{Channel: "cli", User: "boss"}}, false},
	} {
		why := Authorise(agent.Approval{Approvers: c.approvers, Requester: ann}, c.p)
		if (why == "") != c.may {
			t.Errorf("%s: %q", name, why)
		}
	}
}
