package store

import (
	"context"
	"errors"
	"reflect"
	"testing"
	"time"

	"github.com/clawbot/clawbot/agent"
	"github.com/clawbot/clawbot/approval"
	"github.com/clawbot/clawbot/tools"
)

// everything calls each method that talks to the database once.
func (db testDB) everything(ctx context.Context) map[string]func() error {
	inv := agent.Invocation{Session: "s", Turn: "t", Call: "c"}
	job := tools.Job{ID: "job", Prompt: "x"}
	job.Delivery.Mode = "none"
	return map[string]func() error{
		"Ping":          func() error { return db.Ping(ctx) },
		"Receive":       func() error { _, err := db.Receive(ctx, message("1", "m1", "x")); return err },
		"Claim":         func() error { _, err := db.Claim(ctx, "w", slack); return err },
		"Renew":         func() error { _, _, err := db.Renew(ctx, "w", []agent.SessionID{"s"}); return err },
		"Save":          func() error { _, err := db.Save(ctx, agent.Lease{Session: "s"}, agent.Step{}); return err },
		"History":       func() error { _, err := db.History(ctx, "s", 1); return err },
		"DueDeliveries": func() error { _, err := db.DueDeliveries(ctx, "w", slack, 1); return err },
		"Delivered":     func() error { return db.Delivered(ctx, agent.Delivery{ID: "d"}, agent.Attempt{}) },
		"FindGrant":     func() error { _, err := db.FindGrant(ctx, agent.GrantQuery{}); return err },
		"GrantHolds":    func() error { _, err := db.GrantHolds(ctx, "g"); return err },
		"Grants":        func() error { _, err := db.Grants(ctx, true, 1); return err },
		"RevokeGrant": func() error {
			_, err := db.RevokeGrant(ctx, "g", agent.Actor{}, func(agent.Grant) agent.AuditRecord { return agent.AuditRecord{} })
			return err
		},
		"DueStatuses":   func() error { _, err := db.DueStatuses(ctx, slack, 1); return err },
		"StatusDrawn":   func() error { return db.StatusDrawn(ctx, agent.StatusDue{}, "r") },
		"DeliveredPart": func() error { return db.DeliveredPart(ctx, "d", 1, "r") },
		"Approval":      func() error { _, err := db.Approval(ctx, "ap"); return err },
		"Approvals":     func() error { _, err := db.Approvals(ctx, approval.Query{Limit: 1}); return err },
		"NextDeadline":  func() error { _, err := db.NextDeadline(ctx); return err },
		"Decide":        func() error { _, err := db.decideIn(ctx, "ap"); return err },
		"ReleaseAll":    func() error { return db.ReleaseAll(ctx) },
		"Send":          func() error { return db.Send(ctx, inv, inThread("1"), "x") },
		"AddJob":        func() error { return db.AddJob(ctx, job) },
		"Jobs":          func() error { _, err := db.Jobs(ctx, tools.Scope{}); return err },
		"RemoveJob":     func() error { return db.RemoveJob(ctx, tools.Scope{}, "job") },
		"DueJobs":       func() error { _, err := db.DueJobs(ctx, 1); return err },
		"JobDone":       func() error { return db.JobDone(ctx, "job", time.Now(), time.Time{}) },
		"AuditRows":     func() error { _, err := db.AuditRows(ctx, AuditQuery{Limit: 1}); return err },
		"AuditCall":     func() error { _, err := db.AuditCall(ctx, "c"); return err },
		"Receipts":      func() error { return db.Receipts(ctx, "", func(Receipt) error { return nil }) },
		"VerifyAudit":   func() error { _, err := db.VerifyAudit(ctx); return err },
		"Sessions":      func() error { _, err := db.Sessions(ctx, 1); return err },
		"Turns":         func() error { _, err := db.Turns(ctx, "s"); return err },
		"Going":         func() error { _, _, err := db.Going(ctx, inThread("1")); return err },
	}
}

func (db testDB) decideIn(ctx context.Context, id agent.ApprovalID) (approval.Ruling, error) {
	return db.Decide(ctx, id, func(a agent.Approval, _ time.Time) approval.Ruling { return ruling(a, agent.ApprovalApproved, "boss") })
}

// No method holds a connection when it returns, whether it went well, was cut
// off, or found its connection dead; and none needs a second one while it holds
// the first, for the pool has one.
//
// Rows: F122, F124.
func TestNoConnectionIsHeld(t *testing.T) {
	t.Parallel()
	db := newDBWith(t, Config{MaxConns: 1})
	all := db.everything(t.Context())
	methods := reflect.TypeFor[*DB]()
	for i := range methods.NumMethod() {
		name := methods.Method(i).Name
		if name == "Close" || name == "HoldTerminal" { // it holds one on purpose, see TestHoldTerminal
			continue
		}
		if all[name] == nil {
			t.Errorf("method %s is not looked at here", name)
		}
	}
	free := func(name, when string) {
		t.Helper()
		held := func() int32 { return db.pool.Stat().AcquiredConns() + db.renew.Stat().AcquiredConns() }
		for range 200 { // a dead one is cleared away in the background
			if held() == 0 {
				return
			}
			time.Sleep(5 * time.Millisecond)
		}
		t.Errorf("%s holds %d connections %s", name, held(), when)
	}
	cut, cancel := context.WithCancel(t.Context())
	cancel()
	for name, call := range db.everything(cut) {
		if err := call(); !errors.Is(err, context.Canceled) {
			t.Errorf("%s, cut off: %v", name, err)
		}
		free(name, "after it was cut off")
	}
	for name, call := range all {
		bounded, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		err := db.everything(bounded)[name]()
		cancel()
		if err != nil && !errors.Is(err, agent.ErrNotFound) && !errors.Is(err, agent.ErrLeaseLost) && name != "Send" { // its session is not there
			t.Errorf("%s: %v", name, err)
		}
		free(name, "when it returned")
		// The server ends the connection: one call may fail, the next does not.
		db.exec(`SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()`)
		call()
		db.Ping(t.Context()) // the other pool's turn to notice
		free(name, "after the server had ended it")
		if err := db.Ping(t.Context()); err != nil {
			t.Errorf("after the server had ended a connection: %v", err)
		}
	}
}

// One process at a time serves terminal sessions.
func TestHoldTerminal(t *testing.T) {
	t.Parallel()
	db := newDB(t)
	free, err := db.HoldTerminal(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := openDB(t, Config{URL: db.url}).HoldTerminal(t.Context()); err == nil {
		t.Error("two hold it")
	}
	free()
	if free, err = db.HoldTerminal(t.Context()); err != nil {
		t.Errorf("after it was let go: %v", err)
	} else {
		free()
	}
}

// More callers than connections wait for each other and all come through.
func TestFewConnections(t *testing.T) {
	t.Parallel()
	db := newDBWith(t, Config{MaxConns: 2})
	ids := db.asked("1", 4, time.Minute)
	together(32, func(i int) {
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		defer cancel()
		for name, call := range map[string]func() error{
			"receive": func() error { _, err := db.Receive(ctx, message("1", string(rune('a'+i)), "x")); return err },
			"decide":  func() error { _, err := db.decideIn(ctx, ids[i%len(ids)]); return err },
			"due":     func() error { _, err := db.DueDeliveries(ctx, "w", slack, 4); return err },
			"verify":  func() error { _, err := db.VerifyAudit(ctx); return err },
		} {
			if err := call(); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
	})
	db.verify()
}
