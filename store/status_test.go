package store

import (
	"testing"
	"time"

	"github.com/clawbot/clawbot/agent"
)

// A status line falls due once for many changes, is drawn by one process, is due again
// for what changed meanwhile, and is dropped where a turn ends before it was shown.
//
// Rows: L117.
func TestStatusLines(t *testing.T) {
	t.Parallel()
	db := newDB(t)
	ctx := t.Context()
	db.receive(message("1.0", "m1", "hello"))
	w := db.claim("w")
	save := func(status agent.TurnStatus, progress time.Duration) {
		t.Helper()
		turn := *w.Turn
		turn.Status = status
		if _, err := db.Save(ctx, w.Lease, agent.Step{Turn: turn, Progress: progress}); err != nil {
			t.Fatal(err)
		}
	}
	due := func() []agent.StatusDue {
		t.Helper()
		list, err := db.DueStatuses(ctx, slack, 10)
		if err != nil {
			t.Fatal(err)
		}
		return list
	}
	at := func() string {
		return get[string](db, `SELECT CASE WHEN status_due_at IS NULL THEN 'never' WHEN status_due_at <= now() THEN 'now'
			WHEN status_due_at < now() + interval '10 seconds' THEN 'soon' ELSE 'later' END FROM turns`)
	}
	want := func(state, when string) {
		t.Helper()
		if got := at(); got != state {
			t.Errorf("%s it is due %s, want %s", when, got, state)
		}
	}

	save(agent.TurnRunning, 0)
	want("never", "without anything to show")
	save(agent.TurnRunning, 3*time.Second)
	want("soon", "with calls")
	save(agent.TurnParked, 3*time.Second)
	want("later", "while only people are waited for")
	if list := due(); len(list) != 0 {
		t.Errorf("%d are due", len(list))
	}
	save(agent.TurnDone, 3*time.Second)
	want("never", "when the turn ended before it was shown")

	db.exec(`UPDATE turns SET status = 'running', ended_at = NULL, status_due_at = now()`)
	list := due()
	if len(list) != 1 || list[0].Tries != 1 || list[0].Ref != "" || list[0].Turn.ID != w.Turn.ID || list[0].Turn.Origin.Place != w.Turn.Origin.Place {
		t.Fatalf("%+v", list)
	}
	if again := due(); len(again) != 0 {
		t.Error("two processes draw it")
	}
	save(agent.TurnDone, 3*time.Second) // while it is being drawn
	if err := db.StatusDrawn(ctx, list[0], "r1"); err != nil {
		t.Fatal(err)
	}
	want("soon", "after a change while it was drawn")
	db.exec(`UPDATE turns SET status_due_at = now()`)
	list = due()
	if len(list) != 1 || list[0].Ref != "r1" || list[0].Turn.Status != agent.TurnDone {
		t.Fatalf("%+v", list)
	}
	if err := db.StatusDrawn(ctx, list[0], "r1"); err != nil {
		t.Fatal(err)
	}
	want("never", "in its final form")

	// A process died while it drew: the next attempt knows that nobody recorded the end.
	db.exec(`UPDATE turns SET status_due_at = now() - interval '1 second', status_tries = 1`)
	if list = due(); len(list) != 1 || list[0].Tries != 2 {
		t.Errorf("%+v", list)
	}
	// Given up: nothing is due until the turn changes.
	if err := db.StatusDrawn(ctx, list[0], ""); err != nil {
		t.Fatal(err)
	}
	want("never", "given up")
}
