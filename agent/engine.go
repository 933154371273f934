package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// Toolbox is what the engine knows of tools. Package tools implements it.
type Toolbox interface {
	// Tools lists what exists, in a fixed order.
	Tools() []Tool
	// Check says what is wrong with arguments, in words for the model. What is wrong
	// with the argument later does not count: its value is still to come.
	Check(tool string, args []byte, later string) error
	// Fill completes delivery arguments from the origin and names those it filled.
	Fill(tool Tool, args []byte, origin Origin) ([]byte, []string, error)
	// Definition is a hash over what people and the model were told of a tool.
	Definition(tool Tool) string
}

// Parts is what an Engine is made of. All are required but Log.
type Parts struct {
	Bundle   Bundle // of the first turns; see Use
	Store    Store
	Desk     Desk
	Channels []Channel
	Mask     *Masker
	Bell     *Bell
	Log      *slog.Logger
	// Owner names this process among the replicas; unique for each start.
	Owner string
	// Lease is how long a claimed session stays without being renewed, and how long
	// a delivery may take; it must be the store's.
	Lease time.Duration
	// Grace is how long a turn may go on after the end was asked for.
	Grace time.Duration
}

// Engine turns messages into turns. Any number of engines work on one database.
type Engine struct {
	Parts
	bundle   atomic.Pointer[Bundle]
	channels map[ChannelName]Channel
	names    []ChannelName // of the sessions this engine works on

	mu     sync.Mutex
	active map[SessionID]*claimed
}

// claimed is a session in work here.
type claimed struct {
	revision int64
	cancel   context.CancelCauseFunc
	until    time.Time // the lease has not run out before, by this process's clock
}

const (
	maxWorkers  = 32 // turns at once
	pollEvery   = time.Second
	maxCalls    = 32 // calls in one answer of the model; the rest is blocked
	maxPending  = 10 // open questions of a turn; the rest is denied
	maxRefusals = 3  // of the same call in a turn: asked, told that it is not asked again, and once more; then the turn ends
	maxClaims   = 8  // times a turn is taken up from a worker that gave no sign; then it is given up
	historyRows = 400
	historySize = 400_000 // bytes of text sent to the model
)

// NewEngine puts the parts together.
func NewEngine(p Parts) *Engine {
	if p.Log == nil {
		p.Log = slog.New(slog.DiscardHandler)
	}
	e := &Engine{Parts: p, channels: map[ChannelName]Channel{}, active: map[SessionID]*claimed{}}
	e.Use(p.Bundle)
	for _, c := range p.Channels {
		e.channels[c.Name()] = c
	}
	e.names = append(slices.Sorted(maps.Keys(e.channels)), "cron")
	return e
}

// Use gives another bundle to the turns that are claimed from now on. Those in work
// keep theirs. A turn that waits for a person goes on with the new one, and what
// was judged before is judged again: the stricter side wins.
func (e *Engine) Use(b Bundle) { e.bundle.Store(b.resolved()) }

// Receive implements Inlet.
func (e *Engine) Receive(ctx context.Context, m Inbound) (Receipt, error) {
	m.Stop = m.Turn != "" || m.Job == "" && IsStop(m.Text)
	r, err := e.Store.Receive(ctx, m)
	if err != nil {
		return r, fmt.Errorf("store message: %w", err)
	}
	if r.Stopped {
		e.interrupt(r.Session)
	}
	if r.New {
		e.Bell.RingWork()
	}
	return r, nil
}

// Decide implements Inlet.
func (e *Engine) Decide(ctx context.Context, c Click) (Verdict, error) { return e.Desk.Decide(ctx, c) }

// Card implements Inlet.
func (e *Engine) Card(ctx context.Context, id ApprovalID) (Card, error) { return e.Desk.Card(ctx, id) }

var _ Inlet = (*Engine)(nil)

// Run works until ctx ends, then lets running turns come to a step's end within
// the grace, interrupts what is left, and waits for everything it started. What
// was cut off is in the database and goes on at the next start.
func (e *Engine) Run(ctx context.Context) error {
	work, cut := context.WithCancel(context.WithoutCancel(ctx))
	defer cut()
	stop := context.AfterFunc(ctx, func() { time.AfterFunc(e.Grace, cut) })
	defer stop()

	leases, stopLeases := context.WithCancel(context.WithoutCancel(ctx))
	var wg sync.WaitGroup
	wg.Go(func() { e.renewLeases(leases) })
	wg.Go(func() { e.deliverDue(ctx, work) })
	wg.Go(func() { e.drawStatuses(ctx, work) })
	e.claimWork(ctx, work)
	stopLeases()
	wg.Wait()
	return nil
}

// claimWork hands sessions to workers until ctx ends, and waits for them.
func (e *Engine) claimWork(ctx, work context.Context) {
	var wg sync.WaitGroup
	defer wg.Wait()
	slots := make(chan struct{}, maxWorkers)
	for {
		select {
		case <-ctx.Done():
			return
		case slots <- struct{}{}:
		}
		until := time.Now().Add(e.Lease)
		w, err := e.Store.Claim(ctx, e.Owner, e.names)
		if err != nil && ctx.Err() == nil {
			e.Log.ErrorContext(ctx, "claiming work failed, trying again", "err", err)
		}
		if w == nil {
			<-slots
			select {
			case <-ctx.Done():
				return
			case <-e.Bell.work:
			case <-time.After(pollEvery):
			}
			continue
		}
		wg.Go(func() {
			defer func() { <-slots }()
			e.advance(ctx, work, w, until)
		})
	}
}

// renewLeases keeps the sessions in work ours. One that is lost, or could not be
// renewed in time, is dropped at once.
func (e *Engine) renewLeases(ctx context.Context) {
	usual, hurry := e.Lease/3, e.Lease/15
	wait := usual
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(wait):
		}
		wait = usual
		if err := e.renew(ctx, e.Lease/5); err != nil {
			e.Log.ErrorContext(ctx, "renewing leases failed, trying again", "err", err)
			wait = hurry
		}
	}
}

// renew renews once, within the given time. On an error those are dropped whose
// lease may have run out by the time of another attempt.
func (e *Engine) renew(ctx context.Context, within time.Duration) error {
	mine := e.revisions()
	if len(mine) == 0 {
		return nil
	}
	until := time.Now().Add(e.Lease)
	bounded, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	kept, stopped, err := e.Store.Renew(bounded, e.Owner, slices.Collect(maps.Keys(mine)))
	for _, id := range stopped { // asked for on another replica
		e.interrupt(id)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	for id, revision := range mine {
		c := e.active[id]
		switch {
		case c == nil || c.revision != revision: // ended meanwhile, and perhaps claimed anew
		case err != nil && c.until.After(time.Now().Add(within)):
		case err == nil && slices.Contains(kept, id):
			c.until = until
		default:
			c.cancel(ErrLeaseLost)
		}
	}
	return err
}

// interrupt ends what a session's turn is doing here, because a person stopped it.
func (e *Engine) interrupt(id SessionID) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if c := e.active[id]; c != nil {
		c.cancel(errStopped)
	}
}

// revisions are the sessions in work and the revisions of their leases.
func (e *Engine) revisions() map[SessionID]int64 {
	e.mu.Lock()
	defer e.mu.Unlock()
	out := make(map[SessionID]int64, len(e.active))
	for id, c := range e.active {
		out[id] = c.revision
	}
	return out
}

// hold notes that a session is in work. Who worked on it here before has lost
// it, or it could not have been claimed.
func (e *Engine) hold(id SessionID, c *claimed) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if before := e.active[id]; before != nil {
		before.cancel(ErrLeaseLost)
	}
	e.active[id] = c
}

func (e *Engine) letGo(id SessionID, c *claimed) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.active[id] == c {
		delete(e.active, id)
	}
}

// advance works on one claimed session until its turn ends or parks. A panic
// is caught: the lease runs out and the turn is taken up again from the database.
func (e *Engine) advance(stopping, work context.Context, w *Work, until time.Time) {
	ctx, cancel := context.WithCancelCause(work)
	defer cancel(nil)
	c := &claimed{revision: w.Revision, cancel: cancel, until: until}
	e.hold(w.Session, c)
	defer e.letGo(w.Session, c)
	r := &run{Engine: e, Bundle: e.bundle.Load(), stopping: stopping, outside: work, work: w, began: time.Now()}
	err := r.guarded(ctx)
	switch {
	case err == nil:
	case errors.Is(err, ErrLeaseLost), errors.Is(context.Cause(ctx), ErrLeaseLost):
		e.Log.WarnContext(ctx, "session went to another worker", "session", w.Session)
	default:
		e.Log.ErrorContext(ctx, "turn interrupted, it is taken up again from the database", "session", w.Session, "turn", r.turn().ID, "err", err)
	}
	// Its end may be the beginning of the session's next turn.
	e.Bell.RingWork()
}
