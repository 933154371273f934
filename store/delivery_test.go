package store

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/clawbot/clawbot/agent"
)

func texts(w *agent.Work, ids ...string) []agent.Delivery {
	var out []agent.Delivery
	for _, id := range ids {
		out = append(out, agent.Delivery{ID: agent.DeliveryID(id), Session: w.Session, Turn: w.Turn.ID, Kind: agent.DeliverText, Place: w.Turn.Origin.Place, Text: id})
	}
	return out
}

func (db testDB) due(owner string) []agent.Delivery {
	db.t.Helper()
	d, err := db.DueDeliveries(db.t.Context(), owner, slack, 10)
	if err != nil {
		db.t.Fatal(err)
	}
	return d
}

func (db testDB) delivered(d agent.Delivery, a agent.Attempt) {
	db.t.Helper()
	if err := db.Delivered(db.t.Context(), d, a); err != nil {
		db.t.Fatal(err)
	}
}

func ids(ds []agent.Delivery) string {
	var out []string
	for _, d := range ds {
		out = append(out, string(d.ID))
	}
	slices.Sort(out)
	return fmt.Sprint(out)
}

// A session's posts go out one after the other in their order, whatever happens
// to one of them; sessions do not wait for each other.
func TestDeliveriesKeepOrder(t *testing.T) {
	t.Parallel()
	db := newDBWith(t, Config{LeaseFor: 400 * time.Millisecond})
	db.receive(message("1", "m1", "x"))
	db.receive(message("2", "m2", "x"))
	one, two := db.claim("w"), db.claim("w")

	// The saver may send the first at once; nobody else gets anything of it.
	saved := db.save(one, agent.Step{Turn: *one.Turn, Deliveries: texts(one, "a1", "a2")})
	if ids(saved.Deliveries) != "[a1]" {
		t.Fatalf("the saver may send %s", ids(saved.Deliveries))
	}
	if d := db.due("x"); len(d) != 0 {
		t.Fatalf("another may send %s", ids(d))
	}
	// With something waiting, the next step's has to queue up.
	if saved := db.save(one, agent.Step{Turn: *one.Turn, Deliveries: texts(one, "a3")}); len(saved.Deliveries) != 0 {
		t.Fatalf("%s overtakes", ids(saved.Deliveries))
	}
	if saved := db.save(two, agent.Step{Turn: *two.Turn, Deliveries: texts(two, "b1")}); ids(saved.Deliveries) != "[b1]" {
		t.Fatalf("another session waits: %s", ids(saved.Deliveries))
	}
	db.delivered(agent.Delivery{ID: "b1"}, agent.Attempt{Done: true, Parts: 1, Ref: "r"})

	// It fails for the moment: still nothing overtakes it.
	db.delivered(saved.Deliveries[0], agent.Attempt{RetryIn: 200 * time.Millisecond, Reason: "ratelimited"})
	if d := db.due("x"); len(d) != 0 {
		t.Fatalf("%s overtakes one that is tried again", ids(d))
	}
	time.Sleep(300 * time.Millisecond)
	d := db.due("x")
	if ids(d) != "[a1]" || d[0].Attempts != 1 || d[0].Text != "a1" || d[0].Place != one.Turn.Origin.Place || d[0].Turn != one.Turn.ID {
		t.Fatalf("tried again: %+v", d)
	}
	if again := db.due("y"); len(again) != 0 {
		t.Fatalf("two send %s", ids(again))
	}
	// Its sender dies in the middle of a long text: another goes on after the part that is out.
	if err := db.DeliveredPart(t.Context(), "a1", 2, "ref2"); err != nil {
		t.Fatal(err)
	}
	time.Sleep(500 * time.Millisecond)
	if d = db.due("y"); ids(d) != "[a1]" || d[0].Parts != 2 {
		t.Fatalf("after the lease: %+v", d)
	}
	db.delivered(d[0], agent.Attempt{Done: true, Parts: 3, Ref: "ref3"})
	// A late word of the dead one changes nothing.
	db.delivered(d[0], agent.Attempt{Failed: true, Reason: "late"})
	if s := get[string](db, `SELECT state || ' ' || parts || ' ' || ref || ' ' || reason FROM deliveries WHERE id = 'a1'`); s != "sent 3 ref3 " {
		t.Errorf("a1 is %q", s)
	}
	// One that fails for good makes way.
	d = db.due("x")
	db.delivered(d[0], agent.Attempt{Failed: true, Reason: "channel_not_found"})
	if next := db.due("x"); ids(d) != "[a2]" || ids(next) != "[a3]" {
		t.Errorf("then %s, then %s", ids(d), ids(next))
	}
}

// However many look for work, each delivery is sent by one, in order.
func TestDeliveriesTogether(t *testing.T) {
	t.Parallel()
	db := newDB(t)
	const sessions, each = 8, 12
	for s := range sessions {
		db.receive(message(fmt.Sprint(s), fmt.Sprint("m", s), "x"))
		w := db.claim("w")
		step := ended(w)
		for i := range each {
			step.Deliveries = append(step.Deliveries, texts(w, fmt.Sprintf("d%d-%02d", s, i))...)
		}
		for _, d := range db.save(w, step).Deliveries {
			db.delivered(d, agent.Attempt{Done: true})
		}
	}
	var mu sync.Mutex
	sent := map[agent.SessionID][]string{}
	n := sessions
	together(4, func(i int) {
		for {
			for _, d := range db.due(fmt.Sprint("w", i)) {
				mu.Lock()
				sent[d.Session] = append(sent[d.Session], string(d.ID))
				n++
				mu.Unlock()
				db.delivered(d, agent.Attempt{Done: true})
			}
			mu.Lock()
			over := n >= sessions*each
			mu.Unlock()
			if over {
				return
			}
		}
	})
	for s, list := range sent {
		if len(list) != each-1 || !slices.IsSorted(list) {
			t.Errorf("session %s: %v", s, list)
		}
	}
}

// A card's place is remembered with the first confirmed post; its redrawing waits
// for that post.
func TestCardDeliveries(t *testing.T) {
	t.Parallel()
	db := newDB(t)
	id := db.asked("1", 1, time.Minute)[0]
	if _, err := db.decide(id, agent.ApprovalApproved, "boss"); err != nil {
		t.Fatal(err)
	}
	if d := db.due("x"); len(d) != 0 {
		t.Fatalf("the card is drawn again before it is there: %s", ids(d))
	}
	first := agent.Delivery{ID: agent.DeliveryID(get[string](db, `SELECT id FROM deliveries ORDER BY ordinal LIMIT 1`)), Approval: &agent.Approval{ID: id}}
	db.delivered(first, agent.Attempt{Done: true, Ref: "ref1"})
	redraw := db.due("x")
	if len(redraw) != 1 || redraw[0].Approval == nil || redraw[0].Approval.ID != id {
		t.Fatalf("the redrawing: %+v", redraw)
	}
	db.delivered(redraw[0], agent.Attempt{Done: true, Ref: "ref2"})
	if a, err := db.Approval(t.Context(), id); err != nil || a.CardRef != "ref1" {
		t.Errorf("the card is at %q, %v", a.CardRef, err)
	}
}

// A message that a tool sends is queued once, however often the tool runs.
func TestSendOnce(t *testing.T) {
	t.Parallel()
	db := newDB(t)
	db.receive(message("1", "m1", "x"))
	w := db.claim("w")
	inv := agent.Invocation{Session: w.Session, Turn: w.Turn.ID, Call: "c1"}
	together(4, func(int) {
		if err := db.Send(t.Context(), inv, inThread("9"), "hello"); err != nil {
			t.Error(err)
		}
	})
	inv.Call = "c2"
	if err := db.Send(t.Context(), inv, inThread("9"), "hello"); err != nil {
		t.Error(err)
	}
	if n := get[int](db, `SELECT count(*) FROM deliveries`); n != 2 {
		t.Errorf("%d messages are queued, want 2", n)
	}
}
