package store

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/clawbot/clawbot/agent"
)

func TestReceive(t *testing.T) {
	t.Parallel()
	db := newDB(t)
	joined := message("1.0", "m0", "and me?")
	joined.JoinedOnly = true
	if r := db.receive(joined); r.New || r.Session != "" {
		t.Errorf("a thread that was never joined: %+v", r)
	}
	first := db.receive(message("1.0", "m1", "hello"))
	if !first.New || first.Session == "" {
		t.Errorf("the first message: %+v", first)
	}
	if r := db.receive(message("1.0", "m1", "hello")); r.New {
		t.Errorf("its repeat: %+v", r)
	}
	if r := db.receive(joined); !r.New || r.Session != first.Session {
		t.Errorf("a message in the joined thread: %+v", r)
	}
	if r := db.receive(joined); r.New {
		t.Errorf("its repeat: %+v", r)
	}
	other := message("1.0", "m1", "hello")
	other.Origin.Channel = "discord"
	if r := db.receive(other); !r.New || r.Session == first.Session {
		t.Errorf("the same key of another channel: %+v", r)
	}
	if n := get[int](db, `SELECT count(*) FROM inbox`); n != 3 {
		t.Errorf("%d messages are stored, want 3", n)
	}
}

// The same message from sixteen connections at the same moment is one message.
//
// Rows: F63, F3.
func TestReceiveTogether(t *testing.T) {
	t.Parallel()
	db := newDB(t)
	for _, joinedOnly := range []bool{false, true} {
		for round := range 5 {
			m := message("1.0", fmt.Sprint("m", round, joinedOnly), "hello")
			m.JoinedOnly = joinedOnly
			var news atomic.Int32
			together(16, func(int) {
				r, err := db.Receive(context.Background(), m)
				if err != nil {
					t.Error(err)
				}
				if r.New {
					news.Add(1)
				}
			})
			if n := news.Load(); n != 1 {
				t.Errorf("it was new %d times", n)
			}
		}
	}
	if n := get[int](db, `SELECT count(*) FROM inbox`); n != 10 {
		t.Errorf("%d messages are stored, want 10", n)
	}
	if n := get[int](db, `SELECT count(*) FROM sessions`); n != 1 {
		t.Errorf("%d sessions", n)
	}
}

// No message is left behind, whenever it comes: workers end turns and give the
// session back while others write.
func TestNoWakeUpIsLost(t *testing.T) {
	t.Parallel()
	db := newDB(t)
	const writers, each = 4, 40
	var turns atomic.Int32
	ctx, stop := context.WithCancel(t.Context())
	var workers, people sync.WaitGroup
	for i := range 3 {
		workers.Go(func() {
			for ctx.Err() == nil {
				w, err := db.Claim(ctx, fmt.Sprint("w", i), slack)
				if err != nil || w == nil {
					continue
				}
				if w.Turn == nil {
					t.Error("woken for nothing although no message was taken away")
					continue
				}
				if _, err := db.Save(context.Background(), w.Lease, ended(w)); err != nil {
					t.Error(err)
				}
				turns.Add(1)
			}
		})
	}
	for i := range writers {
		people.Go(func() {
			for n := range each {
				db.receive(message("1.0", fmt.Sprintf("%d.%d", i, n), "hello"))
			}
		})
	}
	people.Wait()
	// Nothing wakes anybody from here on.
	deadline := time.Now().Add(20 * time.Second)
	for turns.Load() < writers*each && time.Now().Before(deadline) {
		time.Sleep(5 * time.Millisecond)
	}
	stop()
	workers.Wait()
	if n := turns.Load(); n != writers*each {
		t.Errorf("%d turns for %d messages; the session is runnable: %v", n, writers*each, get[bool](db, `SELECT runnable_at IS NOT NULL FROM sessions`))
	}
	// Turns took the messages in the order in which they were stored.
	if n := get[int](db, `SELECT count(*) FROM (SELECT t.started_at < lag(t.started_at) OVER (ORDER BY i.id) AS early
		FROM inbox i JOIN turns t ON t.id = i.turn_id) x WHERE early`); n != 0 {
		t.Errorf("%d turns began before the one of an earlier message", n)
	}
}

// A decision at the very moment in which the turn parks is seen.
func TestDecisionWhileParking(t *testing.T) {
	t.Parallel()
	db := newDB(t)
	for i := range 40 {
		thread := fmt.Sprint(i)
		db.receive(message(thread, "m"+thread, "do it"))
		w := db.claim("w")
		s := parked(w, 1, time.Minute)
		s.Release = false
		db.save(w, s)
		together(2, func(n int) {
			if n == 0 {
				if _, err := db.decide(s.Approvals[0].ID, agent.ApprovalApproved, "boss"); err != nil {
					t.Error(err)
				}
				return
			}
			if _, err := db.Save(context.Background(), w.Lease, agent.Step{Turn: s.Turn, Release: true}); err != nil {
				t.Error(err)
			}
		})
		again := db.claim("w2")
		if again.Session != w.Session || again.Approvals[s.Approvals[0].ID].Status != agent.ApprovalApproved {
			t.Fatalf("round %d: the decision was missed", i)
		}
		db.save(again, agent.Step{Turn: s.Turn, Release: true})
	}
}

func TestClaim(t *testing.T) {
	t.Parallel()
	db := newDBWith(t, Config{LeaseFor: 300 * time.Millisecond})
	db.receive(message("1", "m1", "first"))
	db.receive(message("2", "m2", "second"))
	db.receive(message("1", "m3", "third"))

	if w, err := db.Claim(t.Context(), "w", []agent.ChannelName{"discord"}); err != nil || w != nil {
		t.Errorf("work of another channel: %v %v", w, err)
	}
	a, b := db.claim("w1"), db.claim("w2")
	if a.Session == b.Session {
		t.Fatal("one session has two workers")
	}
	if w, err := db.Claim(t.Context(), "w3", slack); err != nil || w != nil {
		t.Errorf("a claimed session was claimed: %v %v", w, err)
	}
	if a.Claims != 1 || a.Turn.Origin.AuthorName != "Ann" || a.Turn.Origin.Author != person("ann") || a.Turn.Origin.Place != inThread("1") {
		t.Errorf("the work: %+v, its turn: %+v", a, a.Turn)
	}

	// The lease runs out, another takes over; the first may write nothing more.
	time.Sleep(400 * time.Millisecond)
	again := db.claim("w3")
	if again.Session != a.Session || again.Turn.ID != a.Turn.ID || again.Claims != 2 {
		t.Errorf("taken over: %+v", again)
	}
	if _, err := db.Save(t.Context(), a.Lease, ended(a)); !errors.Is(err, agent.ErrLeaseLost) {
		t.Errorf("a write after the lease was lost: %v", err)
	}
	forged := again.Lease
	forged.Owner = "w1"
	if _, err := db.Save(t.Context(), forged, ended(a)); !errors.Is(err, agent.ErrLeaseLost) {
		t.Errorf("a write with another's revision: %v", err)
	}
	if got := get[string](db, `SELECT status FROM turns WHERE id = $1`, a.Turn.ID); got != "running" {
		t.Errorf("the turn is %s", got)
	}
	kept, _, err := db.Renew(t.Context(), "w3", []agent.SessionID{again.Session, b.Session, "ses_unknown"})
	if err != nil || len(kept) != 1 || kept[0] != again.Session {
		t.Errorf("renewed: %v %v", kept, err)
	}

	// Released, the next message follows; an orderly release counts no claims.
	db.save(again, ended(again))
	if _, err := db.Save(t.Context(), again.Lease, ended(again)); !errors.Is(err, agent.ErrLeaseLost) {
		t.Errorf("a write after the release: %v", err)
	}
	next := db.claim("w1")
	if next.Session != b.Session { // its lease ran out too, and it waits longer
		db.t.Errorf("claimed %s", next.Session)
	}
	third := db.claim("w1")
	if third.Session != a.Session || third.Turn.ID == a.Turn.ID || third.Claims != 1 {
		t.Errorf("the third message: %+v", third)
	}
	h, err := db.History(t.Context(), third.Session, 10)
	if err != nil || len(h) != 2 || h[0].Text != "first" || h[1].Text != "third" {
		t.Errorf("history: %v %v", h, err)
	}
	if h, err := db.History(t.Context(), third.Session, 1); err != nil || len(h) != 1 || h[0].Text != "third" {
		t.Errorf("its end: %v %v", h, err)
	}

	if err := db.ReleaseAll(t.Context()); err != nil {
		t.Fatal(err)
	}
	if w := db.claim("w9"); w.Claims < 2 {
		t.Errorf("after the only process died: %d claims", w.Claims)
	}
}

// While a writer waits for the session's lock, what it knows grows old. What
// counts is how things are once it has the lock.
func TestWhatIsReadUnderTheLock(t *testing.T) {
	t.Parallel()
	db := newDB(t)
	db.receive(message("1", "m1", "hello"))
	w := db.claim("w")
	step := ended(w)
	step.Deliveries = []agent.Delivery{{ID: "dlv_late", Session: w.Session, Turn: w.Turn.ID, Kind: agent.DeliverText, Place: inThread("1"), Text: "late"}}

	tx, err := db.pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(t.Context(), `UPDATE sessions SET event_seq = event_seq WHERE id = $1`, w.Session); err != nil {
		t.Fatal(err)
	}
	saved := make(chan agent.Saved)
	go func() { saved <- db.save(w, step) }()
	for get[int](db, `SELECT count(*) FROM pg_locks WHERE NOT granted`) == 0 {
		time.Sleep(5 * time.Millisecond)
	}
	if _, err := tx.Exec(t.Context(), `INSERT INTO deliveries (id, session_id, turn_id, kind, channel, workspace, conversation, thread, text, state)
		VALUES ('dlv_early', $1, 'turn', 'text', 'slack', 'T1', 'C1', '1', 'early', 'due')`, w.Session); err != nil {
		t.Fatal(err)
	}
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if s := <-saved; len(s.Deliveries) != 0 {
		t.Errorf("the saver may send %s at once, before what was queued earlier", s.Deliveries[0].ID)
	}
}

// A stop that the platform delivers again, or late, stops nothing that began after it.
func TestRepeatedStop(t *testing.T) {
	t.Parallel()
	db := newDB(t)
	stop := message("1", "stop", "stop")
	stop.Stop = true
	db.receive(message("1", "m1", "first"))
	w := db.claim("w")
	if r := db.receive(stop); !r.Stopped {
		t.Errorf("the stop: %+v", r)
	}
	db.save(w, ended(w))
	for w := db.claim("w"); w.Turn != nil; w = db.claim("w") {
		t.Fatalf("a turn began with the stop: %+v", w.Turn)
	}
	db.exec(`UPDATE sessions SET lease_owner = NULL, leased_until = NULL, runnable_at = NULL`)
	db.receive(message("1", "m2", "second"))
	w = db.claim("w")
	if r := db.receive(stop); r.Stopped || r.New {
		t.Errorf("its repeat: %+v", r)
	}
	if n := get[int](db, `SELECT count(*) FROM turns WHERE id = $1 AND stopped_by IS NOT NULL`, w.Turn.ID); n != 0 {
		t.Error("the repeat stopped a later turn")
	}
}
