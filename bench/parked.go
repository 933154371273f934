package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/clawbot/clawbot/channels/slack/slacktest"
)

// memory measures what the program holds when it is idle, and what turns that
// wait for people add to it.
func memory(ctx context.Context, w *world, n sizes, t *table) error {
	url, err := w.pg.Create(ctx, "parked")
	if err != nil {
		return err
	}
	if err := w.startOnce(ctx, url); err != nil { // makes the schema
		return err
	}
	idle, err := w.idle(ctx, url, n.settle)
	if errors.Is(err, errNoMemory) {
		t.head("memory")
		t.row("not measured: only Linux tells the memory of a process")
		return nil
	}
	if err != nil {
		return err
	}
	p, err := w.start(ctx, url)
	if err != nil {
		return err
	}
	// The first tenth of a full run is only to bring the program to its working
	// size: what is asked is what a waiting turn adds.
	warm, err := w.park(ctx, p, url, max(n.parked/10, 1), n.settle)
	if err != nil {
		return errors.Join(err, p.stop())
	}
	busy, err := w.park(ctx, p, url, n.parked, n.settle)
	if err := errors.Join(err, p.stop()); err != nil {
		return err
	}
	again, err := w.idle(ctx, url, n.settle)
	if err != nil {
		return err
	}
	t.head("memory")
	t.size("idle, resident", idle.all, 20, fmt.Sprintf("connected to Slack; own %.1f MB, pages of the binary %.1f MB", float64(idle.anon)/1e6, float64(idle.file)/1e6))
	t.size(fmt.Sprintf("%d parked turns add", n.parked), again.all-idle.all, 2, fmt.Sprintf("after a restart; own %+.1f MB", float64(again.anon-idle.anon)/1e6))
	t.size("  right after parking them", busy.all-warm.all, 0, fmt.Sprintf("the last nine tenths, from %.1f MB after the first", float64(warm.all)/1e6))
	t.row("  turns parked per second", fmt.Sprintf("%.0f", busy.rate), "", "", "", fmt.Sprintf("%d at once", inFlight))
	return nil
}

var errNoMemory = errors.New("the memory of a process cannot be read here")

// startOnce starts the program and stops it again.
func (w *world) startOnce(ctx context.Context, url string) error {
	p, err := w.start(ctx, url)
	if err != nil {
		return err
	}
	return p.stop()
}

// idle starts the program and reads its memory when it has been idle for that
// long.
func (w *world) idle(ctx context.Context, url string, pause time.Duration) (resident, error) {
	p, err := w.start(ctx, url)
	if err != nil {
		return resident{}, err
	}
	m, err := settled(ctx, p, pause)
	return m, errors.Join(err, p.stop())
}

func settled(ctx context.Context, p *program, pause time.Duration) (resident, error) {
	select {
	case <-time.After(pause):
	case <-ctx.Done():
		return resident{}, ctx.Err()
	}
	m, err := p.memory()
	if err != nil {
		return m, fmt.Errorf("%w: %w", errNoMemory, err)
	}
	return m, nil
}

// parking is the program's memory after turns were parked, and how many were
// parked in a second.
type parking struct {
	resident
	rate float64
}

// inFlight is how many turns are on their way to being parked at once.
const inFlight = 48

// park has people ask for consent until n turns wait for it, each in a thread of
// its own, and returns the program's memory when all cards are posted.
func (w *world) park(ctx context.Context, p *program, url string, n int, pause time.Duration) (parking, error) {
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return parking{}, err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	count := func() (parked, due int, err error) {
		err = conn.QueryRow(ctx, `SELECT (SELECT count(*) FROM turns WHERE status = 'parked'), (SELECT count(*) FROM deliveries WHERE state = 'due')`).Scan(&parked, &due)
		return parked, due, err
	}
	have, _, err := count()
	if err != nil {
		return parking{}, err
	}
	before := have
	var channel string
	began, last := time.Now(), time.Now()
	for asked := have; ; {
		parked, due, err := count()
		if err != nil {
			return parking{}, err
		}
		if parked > have {
			have, last = parked, time.Now()
		}
		if parked >= n && due == 0 {
			break
		}
		if time.Since(last) > time.Minute {
			return parking{}, fmt.Errorf("%d of %d turns are parked, %d deliveries are due, and nothing has moved for a minute\n%s", parked, n, due, p.said)
		}
		for asked < n && asked-parked < inFlight {
			if channel == "" || asked%2 == 0 { // two posts in each
				channel = w.channel()
			}
			w.say(channel, sayWrite, slacktest.OnlyMention())
			asked++
		}
		select {
		case <-time.After(20 * time.Millisecond):
		case <-ctx.Done():
			return parking{}, ctx.Err()
		}
	}
	rate := float64(n-before) / time.Since(began).Seconds()
	m, err := settled(ctx, p, pause)
	return parking{m, rate}, err
}
