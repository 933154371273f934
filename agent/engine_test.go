package agent

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// stubStore is a database of which a test says what it does.
type stubStore struct {
	Store
	renew func(ids []SessionID) ([]SessionID, error)
	due   func(limit int) []Delivery
	done  func(d Delivery, a Attempt)
}

func (s stubStore) Renew(_ context.Context, _ string, ids []SessionID) (kept, stopped []SessionID, err error) {
	kept, err = s.renew(ids)
	return kept, nil, err
}
func (s stubStore) DueDeliveries(_ context.Context, _ string, _ []ChannelName, limit int) ([]Delivery, error) {
	return s.due(limit), nil
}
func (s stubStore) Delivered(_ context.Context, d Delivery, a Attempt) error {
	s.done(d, a)
	return nil
}

type noTools struct{ Toolbox }

func (noTools) Tools() []Tool { return nil }

// slowRoom posts when it is let.
type slowRoom struct {
	Channel
	post func() error
}

func (slowRoom) Name() ChannelName          { return "slack" }
func (slowRoom) Split(text string) []string { return []string{text} }
func (r slowRoom) Post(context.Context, Place, Post) (string, error) {
	return "ref", r.post()
}
func (r slowRoom) Edit(context.Context, Place, string, Post) error { return r.post() }

type stubDesk struct {
	Desk
	card   Card
	closed []ApprovalStatus
}

func (d *stubDesk) Card(context.Context, ApprovalID) (Card, error) { return d.card, nil }
func (d *stubDesk) Close(_ context.Context, _ ApprovalID, s ApprovalStatus, _ string) error {
	d.closed = append(d.closed, s)
	return nil
}

func stubEngine(p Parts) *Engine {
	p.Bundle.Toolbox, p.Bell, p.Lease = noTools{}, NewBell(), 30*time.Second
	return NewEngine(p)
}

func (e *Engine) holding(t *testing.T, id SessionID, revision int64) (*claimed, context.Context) {
	ctx, cancel := context.WithCancelCause(t.Context())
	c := &claimed{revision: revision, cancel: cancel, until: time.Now().Add(e.Lease)}
	e.hold(id, c)
	return c, ctx
}

// A session that ended and was claimed anew while its lease was being renewed is
// not dropped because of the answer about the old one.
func TestRenewKeepsWhatWasClaimedMeanwhile(t *testing.T) {
	e := stubEngine(Parts{})
	first, _ := e.holding(t, "ses", 1)
	var second context.Context
	e.Store = stubStore{renew: func([]SessionID) ([]SessionID, error) {
		e.letGo("ses", first)
		_, second = e.holding(t, "ses", 2)
		return nil, nil // at that moment nobody had it
	}}
	if err := e.renew(t.Context(), time.Second); err != nil {
		t.Fatal(err)
	}
	if second.Err() != nil {
		t.Error("the new work was dropped")
	}
}

// A worker whose session was claimed again by the same process has lost it, and
// its end does not end the renewals of the new one.
func TestHoldTwice(t *testing.T) {
	e := stubEngine(Parts{})
	first, ctx := e.holding(t, "ses", 1)
	_, second := e.holding(t, "ses", 2)
	if !errors.Is(context.Cause(ctx), ErrLeaseLost) || second.Err() != nil {
		t.Errorf("first: %v, second: %v", context.Cause(ctx), second.Err())
	}
	e.letGo("ses", first)
	if got := e.revisions()["ses"]; got != 2 {
		t.Errorf("revision %d is renewed, want 2", got)
	}
}

// While the database cannot be asked, work goes on as long as its lease certainly
// holds, and not longer.
func TestRenewGivesUpInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := stubEngine(Parts{Store: stubStore{renew: func([]SessionID) ([]SessionID, error) { return nil, errors.New("down") }}})
		began := time.Now()
		_, work := e.holding(t, "ses", 1)
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		wg.Go(func() { e.renewLeases(ctx) })
		<-work.Done()
		if after := time.Since(began); after > e.Lease || after < e.Lease/2 {
			t.Errorf("dropped after %s of a lease of %s", after, e.Lease)
		}
		cancel()
		wg.Wait()
	})
}

// No more deliveries are leased than can begin at once: those that waited for a
// free hand would be sent by another process as well when their leases ran out.
func TestDueDeliveriesAreTakenAsTheyCanBegin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hold := make(chan struct{})
		taken, most, begun := 0, 0, 0
		var mu sync.Mutex
		e := stubEngine(Parts{
			Channels: []Channel{slowRoom{post: func() error {
				mu.Lock()
				begun++
				mu.Unlock()
				<-hold
				return nil
			}}},
			Store: stubStore{
				due: func(limit int) []Delivery {
					var out []Delivery
					for range min(limit, 10) {
						taken++
						out = append(out, Delivery{ID: DeliveryID(strconv.Itoa(taken)), Kind: DeliverText, Text: "x", Place: Place{Channel: "slack"}})
					}
					return out
				},
				done: func(Delivery, Attempt) {},
			},
		})
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		wg.Go(func() { e.deliverDue(ctx, t.Context()) })
		for range 5 {
			e.Bell.RingPost()
			time.Sleep(pollEvery)
			synctest.Wait()
			mu.Lock()
			most = max(most, taken-begun)
			mu.Unlock()
		}
		if most > 0 || taken != maxSending {
			t.Errorf("%d were taken, %d of them could not begin; want %d and none", taken, most, maxSending)
		}
		cancel()
		close(hold)
		wg.Wait()
	})
}

// A card that people see is edited with patience, whatever the platform says for
// a while: its buttons look alive until then. One that was never shown is given up
// soon, and its question with it.
func TestCardsAreGivenUp(t *testing.T) {
	attempts := func(card Card, cause error) (int, *stubDesk) {
		desk := &stubDesk{card: card}
		e := stubEngine(Parts{Desk: desk, Channels: []Channel{slowRoom{post: func() error { return cause }}}})
		d := Delivery{ID: "dlv", Kind: DeliverCard, Approval: &Approval{ID: "ap"}, Place: Place{Channel: "slack"}}
		for d.Attempts = 0; d.Attempts < 1000; d.Attempts++ {
			a, err := e.guardedAttempt(t.Context(), d)
			if a = e.judgeFailure(t.Context(), d, a, err); a.Failed {
				break
			}
		}
		return d.Attempts + 1, desk
	}
	busy := &SendError{Reason: "ratelimited"}
	if n, desk := attempts(Card{Status: ApprovalPending, Place: Place{Channel: "slack"}}, busy); n != maxCardAttempts || len(desk.closed) != 1 {
		t.Errorf("a card that was never shown: %d attempts, closed %v", n, desk.closed)
	}
	shown := Card{Status: ApprovalPending, Place: Place{Channel: "slack"}, Ref: "r1"}
	if n, desk := attempts(shown, busy); n != maxTextAttempts || len(desk.closed) != 0 {
		t.Errorf("a card that is there: %d attempts, closed %v", n, desk.closed)
	}
	if n, desk := attempts(shown, &SendError{Permanent: true, Reason: "message_not_found"}); n != 1 || len(desk.closed) != 0 {
		t.Errorf("a card that is gone: %d attempts, closed %v", n, desk.closed)
	}
}

// What people and records get of a text is masked before it is cut, so that no
// cut leaves a part of a secret that is not recognised any more.
func TestShownMasksBeforeItCuts(t *testing.T) {
	r := &run{Engine: stubEngine(Parts{})}
	const token = "xoxb-1234567890-abcdefghij"
	for pad := range 120 {
		got := r.shown(strings.Repeat(".", pad)+" "+token+" "+strings.Repeat(".", 200), 90)
		for n := 9; n <= len(token); n++ {
			if part := token[:n]; strings.Contains(got, part) {
				t.Fatalf("%d dots before it: %q is left of the token", pad, part)
			}
		}
	}
}
