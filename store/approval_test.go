package store

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/clawbot/clawbot/agent"
	"github.com/clawbot/clawbot/approval"
)

// Sixteen clicks on each of fifty approvals at the same moment: each has one
// winner, and every loser is told who that was.
//
// Rows: F78, F79, T5.
func TestRacingClicks(t *testing.T) {
	t.Parallel()
	db := newDB(t)
	users := []string{"u0", "u1", "u2", "u3", "u4", "u5", "u6", "u7", "u8", "u9", "ua", "ub", "uc", "ud", "ue", "uf"}
	for s := range 5 {
		for _, id := range db.asked(string(rune('a'+s)), 10, time.Minute) {
			var winner atomic.Pointer[string]
			verdicts := make([]agent.Verdict, len(users))
			together(len(users), func(i int) {
				status := agent.ApprovalApproved
				if i%2 == 1 {
					status = agent.ApprovalDenied
				}
				r, err := db.decide(id, status, users[i])
				if err != nil {
					t.Error(err)
				}
				if verdicts[i] = r.Verdict; r.Verdict.Accepted && !winner.CompareAndSwap(nil, &users[i]) {
					t.Errorf("%s and %s both decided", *winner.Load(), users[i])
				}
			})
			if winner.Load() == nil {
				t.Fatal("nobody decided")
			}
			won := person(*winner.Load())
			for i, v := range verdicts {
				if person(users[i]) != won && (v.Accepted || v.Text != won.String()) {
					t.Errorf("%s was told %+v, but %s decided", users[i], v, won)
				}
			}
			a, err := db.Approval(t.Context(), id)
			if err != nil || a.DecidedBy != won || a.DecidedByName != won.User {
				t.Errorf("stored: %s %q, winner %s, %v", a.DecidedBy, a.DecidedByName, won, err)
			}
		}
	}
	if n := get[int](db, `SELECT count(*) FROM audit_log WHERE kind = 'approval_decided'`); n != 50 {
		t.Errorf("%d decisions in the audit, want 50", n)
	}
	if n := get[int](db, `SELECT count(*) FROM audit_log WHERE kind = 'click_refused'`); n != 50*15 {
		t.Errorf("%d refusals in the audit, want %d", n, 50*15)
	}
	if n := get[int](db, `SELECT count(*) FROM approvals a JOIN tool_calls c USING (turn_id, call_id) WHERE (a.status = 'approved') <> (c.status = 'approved')`); n != 0 {
		t.Errorf("%d calls do not go with their approvals", n)
	}
	db.verify()
}

// Approve, deny, expire and cancel compete; whoever wins, it is one, and the
// session is woken by that commit.
//
// Rows: F78, T5.
func TestRacingEnds(t *testing.T) {
	t.Parallel()
	db := newDB(t)
	won := map[agent.ApprovalStatus]int{}
	for i := range 40 {
		id := db.asked(string(rune('A'+i)), 1, time.Minute)[0]
		var n atomic.Int32
		ends := []struct {
			status agent.ApprovalStatus
			who    string
		}{{agent.ApprovalApproved, "boss"}, {agent.ApprovalDenied, "chief"}, {agent.ApprovalExpired, ""}, {agent.ApprovalCancelled, ""}}
		together(len(ends), func(i int) {
			r, err := db.decide(id, ends[i].status, ends[i].who)
			if err == nil && r.Verdict.Accepted {
				n.Add(1)
			}
			// The clock and the system lose in silence: their ruling has no person.
			if err != nil && ends[i].who != "" {
				t.Error(err)
			}
		})
		a, err := db.Approval(t.Context(), id)
		if err != nil || n.Load() != 1 || a.Status == agent.ApprovalPending {
			t.Fatalf("%d winners, status %s, %v", n.Load(), a.Status, err)
		}
		won[a.Status]++
		w := db.claim("w")
		if w.Approvals[id].Status != a.Status {
			t.Errorf("the turn was woken with %s", w.Approvals[id].Status)
		}
		db.save(w, ended(w))
	}
	t.Log(won)
	db.verify()
}

// No audit, no effect: while the audit cannot be written, nothing can be decided
// or started, and afterwards all is as if nobody had tried.
//
// Rows: F106.
func TestNoAuditNoEffect(t *testing.T) {
	t.Parallel()
	db := newDB(t)
	id := db.asked("1", 1, time.Minute)[0]
	db.exec(`ALTER TABLE audit_log ADD CONSTRAINT full_disk CHECK (kind NOT IN ('approval_decided', 'tool_started')) NOT VALID`)
	wakes := get[int](db, `SELECT wakes FROM sessions`)

	if _, err := db.decide(id, agent.ApprovalApproved, "boss"); err == nil {
		t.Error("a decision was taken without its audit row")
	}
	a, err := db.Approval(t.Context(), id)
	if err != nil || a.Status != agent.ApprovalPending || len(a.Votes) != 0 || a.CallStatus != agent.CallPrepared {
		t.Errorf("left behind: %+v %v", a, err)
	}
	if n := get[int](db, `SELECT wakes FROM sessions`); n != wakes {
		t.Error("the session was woken")
	}
	if n := get[int](db, `SELECT count(*) FROM deliveries`); n != 1 {
		t.Errorf("%d deliveries, want the card alone", n)
	}

	db.exec(`ALTER TABLE audit_log DROP CONSTRAINT full_disk`)
	if r, err := db.decide(id, agent.ApprovalApproved, "boss"); err != nil || !r.Verdict.Accepted {
		t.Errorf("afterwards: %+v %v", r, err)
	}
	db.exec(`ALTER TABLE audit_log RENAME TO gone`)
	w := db.claim("w")
	c := w.Calls[0]
	c.Status = agent.CallStarted
	_, err = db.Save(t.Context(), w.Lease, agent.Step{Turn: *w.Turn, Calls: []agent.ToolCall{c},
		Audit: []agent.AuditRecord{{Kind: agent.AuditToolStarted, Call: c.ID, Source: agent.SourceSystem, Latency: -1}}})
	if err == nil {
		t.Error("a start was committed without its audit row")
	}
	if s := get[string](db, `SELECT status FROM tool_calls`); s != "approved" {
		t.Errorf("the call is %s", s)
	}
	db.exec(`ALTER TABLE gone RENAME TO audit_log`)
	db.verify()
}

// Deadlines are the database's: asked, judged and listed by its clock.
//
// Rows: F84, F85, T7.
func TestDeadlines(t *testing.T) {
	t.Parallel()
	db := newDB(t)
	if wait, err := db.NextDeadline(t.Context()); err != nil || wait < time.Minute {
		t.Errorf("with nothing open: %s %v", wait, err)
	}
	long := db.asked("1", 1, time.Hour)[0]
	soon := db.asked("2", 1, 400*time.Millisecond)[0]
	if wait, err := db.NextDeadline(t.Context()); err != nil || wait <= 0 || wait > 400*time.Millisecond {
		t.Errorf("the next deadline is in %s, %v", wait, err)
	}
	if got, err := db.Approvals(t.Context(), approval.Query{Overdue: true, Limit: 10}); err != nil || len(got) != 0 {
		t.Errorf("overdue already: %v %v", got, err)
	}
	time.Sleep(500 * time.Millisecond)
	if wait, err := db.NextDeadline(t.Context()); err != nil || wait != 0 {
		t.Errorf("an overdue one is due in %s, %v", wait, err)
	}
	got, err := db.Approvals(t.Context(), approval.Query{Overdue: true, Limit: 10})
	if err != nil || len(got) != 1 || got[0].ID != soon {
		t.Errorf("overdue: %v %v", got, err)
	}
	_, err = db.Decide(t.Context(), soon, func(a agent.Approval, now time.Time) approval.Ruling {
		if now.Before(a.Deadline) {
			t.Errorf("under the lock it is %s, the deadline %s", now, a.Deadline)
		}
		return ruling(a, agent.ApprovalExpired, "")
	})
	if err != nil {
		t.Error(err)
	}
	open, err := db.Approvals(t.Context(), approval.Query{Pending: true, Limit: 10})
	if err != nil || len(open) != 1 || open[0].ID != long {
		t.Errorf("open: %v %v", open, err)
	}
	if all, err := db.Approvals(t.Context(), approval.Query{Limit: 1}); err != nil || len(all) != 1 || all[0].ID != soon {
		t.Errorf("the latest: %v %v", all, err)
	}
}

func TestDecideUnknown(t *testing.T) {
	t.Parallel()
	db := newDB(t)
	for _, id := range []agent.ApprovalID{"ap_unknown", "", "a\x00\xff"} {
		if _, err := db.decide(id, agent.ApprovalApproved, "boss"); !errors.Is(err, agent.ErrNotFound) {
			t.Errorf("decide %q: %v", id, err)
		}
		if _, err := db.Approval(context.Background(), id); !errors.Is(err, agent.ErrNotFound) {
			t.Errorf("read %q: %v", id, err)
		}
	}
}

// A yes below the quorum is a vote and nothing else; one person has one voice,
// the last.
func TestVotes(t *testing.T) {
	t.Parallel()
	db := newDB(t)
	id := db.asked("1", 1, time.Minute)[0]
	vote := func(who string, verb agent.Verb) {
		_, err := db.Decide(t.Context(), id, func(a agent.Approval, _ time.Time) approval.Ruling {
			return approval.Ruling{Status: agent.ApprovalPending, Vote: verb, Actor: person(who), ActorName: who, Backchannel: "slack",
				Audit: []agent.AuditRecord{{Kind: agent.AuditApprovalVote, Approval: a.ID, Source: agent.SourcePerson, Actor: person(who), Latency: -1}}}
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	vote("boss", agent.VerbApprove)
	vote("boss", agent.VerbApprove)
	vote("chief", agent.VerbApprove)
	vote("chief", agent.VerbDeny)
	a, err := db.Approval(t.Context(), id)
	if err != nil || a.Status != agent.ApprovalPending || len(a.Votes) != 1 || a.Votes[0].Actor != person("boss") {
		t.Errorf("%+v %v", a.Votes, err)
	}
	if w, err := db.Claim(t.Context(), "w", slack); err != nil || w != nil {
		t.Errorf("a vote woke the turn: %v %v", w, err)
	}
	db.verify()
}
