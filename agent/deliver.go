package agent

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// How often a delivery is tried before it is given up. A card that was never
// shown is given up soon: people who wait for it must be told. One that is there
// is edited with the patience of a text, because its buttons look alive until then.
const (
	maxCardAttempts = 5
	maxTextAttempts = 50
	maxSending      = 16 // at once
)

// deliverDue sends what is due until ctx ends: retries, cards that changed, and
// what other workers left behind. It waits for what it has begun, which work cuts
// off.
func (e *Engine) deliverDue(ctx, work context.Context) {
	var wg sync.WaitGroup
	defer wg.Wait()
	slots := make(chan struct{}, maxSending)
	for {
		// Only as many are taken as can begin at once: their leases run from now.
		select {
		case slots <- struct{}{}:
			<-slots
		case <-ctx.Done():
			return
		}
		due, err := e.Store.DueDeliveries(ctx, e.Owner, e.names, cap(slots)-len(slots))
		if err != nil && ctx.Err() == nil {
			e.Log.ErrorContext(ctx, "reading due deliveries failed, trying again", "err", err)
		}
		for _, d := range due {
			slots <- struct{}{}
			wg.Go(func() {
				defer func() { <-slots }()
				e.deliver(work, d)
			})
		}
		select {
		case <-ctx.Done():
			return
		case <-e.Bell.post:
		case <-time.After(pollEvery):
		}
	}
}

// deliver tries one delivery and records how it went.
func (e *Engine) deliver(ctx context.Context, d Delivery) {
	// Below the lease, so that no two processes try one at the same time.
	sending, cancel := context.WithTimeout(ctx, e.Lease*2/3)
	defer cancel()
	a, err := e.guardedAttempt(sending, d)
	// What went out must be recorded, whatever ended meanwhile.
	recording, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	if err != nil {
		a = e.judgeFailure(recording, d, a, err)
	}
	if err := e.Store.Delivered(recording, d, a); err != nil {
		e.Log.ErrorContext(ctx, "recording a delivery failed, it may be sent again", "delivery", d.ID, "turn", d.Turn, "err", err)
		return
	}
	e.Bell.RingPost() // the session's next delivery may go
}

// guardedAttempt is attempt with a panic as its error.
func (e *Engine) guardedAttempt(ctx context.Context, d Delivery) (a Attempt, err error) {
	defer func() {
		if p := recover(); p != nil {
			a, err = Attempt{Parts: d.Parts}, fmt.Errorf("panic: %v", p)
		}
	}()
	return e.attempt(ctx, d)
}

func (e *Engine) attempt(ctx context.Context, d Delivery) (Attempt, error) {
	ch := e.channels[d.Place.Channel]
	if ch == nil {
		return Attempt{}, &SendError{Permanent: true, Reason: "no such channel here"}
	}
	if d.Kind == DeliverCard {
		return e.attemptCard(ctx, ch, d)
	}
	a := Attempt{Parts: d.Parts}
	text, _ := e.Mask.Certain(d.Text)
	parts := ch.Split(text)
	for a.Parts < len(parts) {
		key := DeliveryID(fmt.Sprintf("%s.%d", d.ID, a.Parts))
		ref, err := ch.Post(ctx, d.Place, Post{Key: key, Text: parts[a.Parts], Unsure: d.Unsure && a.Parts == d.Parts})
		if err != nil {
			return a, err
		}
		a.Parts++
		a.Ref = ref
		if a.Parts < len(parts) {
			if err := e.Store.DeliveredPart(ctx, d.ID, a.Parts, ref); err != nil {
				return a, err
			}
		}
	}
	a.Done = true
	return a, nil
}

func (e *Engine) attemptCard(ctx context.Context, ch Channel, d Delivery) (Attempt, error) {
	card, err := e.Desk.Card(ctx, d.Approval.ID)
	if err != nil {
		return Attempt{}, err
	}
	switch {
	case card.Ref != "":
		err = ch.Edit(ctx, card.Place, card.Ref, Post{Key: d.ID, Card: &card})
		return Attempt{Done: err == nil, Ref: card.Ref}, err
	case card.Status == ApprovalUndeliverable:
		return Attempt{Done: true}, nil // there is no card to close
	default:
		ref, err := ch.Post(ctx, card.Place, Post{Key: d.ID, Card: &card, Unsure: d.Unsure})
		if err != nil {
			return Attempt{}, err
		}
		if d.Unsure {
			// It may have been there already, and look as it did then.
			if err := ch.Edit(ctx, card.Place, ref, Post{Key: d.ID, Card: &card}); err != nil {
				return Attempt{Ref: ref}, err
			}
		}
		return Attempt{Done: true, Ref: ref}, nil
	}
}

// permanent reports whether trying again cannot help.
func permanent(err error) bool {
	var send *SendError
	return errors.As(err, &send) && send.Permanent
}

// judgeFailure decides whether a delivery is tried again. A question that cannot
// be shown is ended at once, before the delivery is.
func (e *Engine) judgeFailure(ctx context.Context, d Delivery, a Attempt, cause error) Attempt {
	a.Reason = cause.Error()
	limit := maxTextAttempts
	if d.Kind == DeliverCard && a.Ref == "" {
		limit = maxCardAttempts
	}
	var send *SendError
	known := errors.As(cause, &send)
	a.Unsure = !known || send.Unsure
	if !(known && send.Permanent) && d.Attempts+1 < limit {
		a.RetryIn = min(time.Second<<min(d.Attempts, 8), 5*time.Minute)
		if known {
			a.RetryIn = max(a.RetryIn, send.RetryAfter)
		}
		e.Log.WarnContext(ctx, "delivery failed, trying again", "delivery", d.ID, "turn", d.Turn, "retry_in", a.RetryIn, "err", cause)
		return a
	}
	e.Log.ErrorContext(ctx, "delivery failed for good", "delivery", d.ID, "turn", d.Turn, "kind", d.Kind, "err", cause)
	if d.Kind == DeliverCard {
		reason := "the card was refused"
		if known {
			reason = send.Reason
		}
		card, err := e.Desk.Card(ctx, d.Approval.ID)
		if err == nil && card.Ref == "" {
			err = e.Desk.Close(ctx, d.Approval.ID, ApprovalUndeliverable, reason)
		}
		if err != nil {
			e.Log.ErrorContext(ctx, "ending an approval that cannot be shown failed, trying again", "approval", d.Approval.ID, "err", err)
			a.RetryIn = time.Second
			return a
		}
	}
	a.Failed = true
	return a
}
