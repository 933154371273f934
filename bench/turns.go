package main

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"time"

	"github.com/clawbot/clawbot/channels/slack/slacktest"
)

// maxApproved is how many approved turns a freshly started program takes at full
// speed: each edits its card twice, and after 20 edits the program keeps to the
// pace that Slack allows.
const maxApproved = 10

// turns measures start-up, acknowledgements and single turns. The program is
// started again for each round, on the same database, so each round has its
// whole allowance of edits and no figure depends on one lucky start.
func turns(ctx context.Context, w *world, n sizes, t *table) error {
	url, err := w.pg.Create(ctx, "turns")
	if err != nil {
		return err
	}
	first, err := w.start(ctx, url) // makes the schema
	if err != nil {
		return err
	}
	if err := first.stop(); err != nil {
		return err
	}
	s := &samples{}
	var trips times
	for range n.rounds {
		if err := w.round(ctx, url, n, s); err != nil {
			return err
		}
		r, err := w.roundTrips(ctx, 20)
		if err != nil {
			return err
		}
		trips = append(trips, r...)
	}
	t.row("raw commit", ms(s.raw.all().median()), ms(s.raw.all().p95()), "1.0", "", fmt.Sprintf("%d samples, one beside each of the next two groups", len(s.raw.all())))
	t.times("round trip, nothing written", trips, s.raw.all(), 0)
	t.head("Slack")
	t.times("receive → acknowledged, socket", s.socket, s.raw.socket, 0)
	t.times("receive → acknowledged, HTTP", s.http, s.raw.http, 0)
	t.times("plain turn", s.plain, s.raw.plain, 6)
	t.times("approved turn", s.approved, s.raw.approved, 14)
	t.times("  message → card", s.card, s.raw.approved, 0)
	t.times("  click → tool start", s.tool, s.raw.approved, 0)
	t.times("  tool start → answer", s.rest, s.raw.approved, 0)
	t.head("start-up")
	t.times("start → ready, DATABASE_URL", s.start, s.raw.start, 0)
	return nil
}

// samples are the times of all rounds, each with the raw commits beside it.
type samples struct {
	socket, http, plain, approved, card, tool, rest, start times
	raw                                                    raws
}

type raws struct{ socket, http, plain, approved, start times }

func (r raws) all() times {
	var out times
	for _, t := range []times{r.socket, r.http, r.plain, r.approved, r.start} {
		out = append(out, t...)
	}
	return out
}

func (w *world) round(ctx context.Context, url string, n sizes, s *samples) (err error) {
	// beside takes a raw commit right before a sample.
	beside := func(raw *times, sample func() error) error {
		r, err := w.raw(ctx, 1)
		if err != nil {
			return err
		}
		*raw = append(*raw, r...)
		return sample()
	}
	var p *program
	err = beside(&s.raw.start, func() error {
		p, err = w.start(ctx, url)
		return err
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, p.stop()) }()
	s.start = append(s.start, p.ready)

	for range n.warm {
		if _, err := w.plainTurn(ctx); err != nil {
			return err
		}
	}
	if _, err := w.approvedTurn(ctx); err != nil {
		return err
	}
	for range n.plain {
		err := beside(&s.raw.plain, func() error {
			d, err := w.plainTurn(ctx)
			s.plain = append(s.plain, d)
			return err
		})
		if err != nil {
			return err
		}
	}
	for range n.approved {
		err := beside(&s.raw.approved, func() error {
			a, err := w.approvedTurn(ctx)
			s.approved = append(s.approved, a.card+a.tool+a.rest)
			s.card, s.tool, s.rest = append(s.card, a.card), append(s.tool, a.tool), append(s.rest, a.rest)
			return err
		})
		if err != nil {
			return err
		}
	}
	for range n.acks {
		err := beside(&s.raw.socket, func() error {
			d, err := w.acknowledged(ctx)
			s.socket = append(s.socket, d)
			return err
		})
		if err != nil {
			return err
		}
	}
	w.slack.UseHTTP("http://" + p.addr)
	defer w.slack.UseHTTP("")
	for range n.acks {
		err := beside(&s.raw.http, func() error {
			d, err := w.acknowledged(ctx)
			s.http = append(s.http, d)
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// plainTurn is the time from a message, which names the bot in a channel, to its
// answer in the thread.
func (w *world) plainTurn(ctx context.Context) (time.Duration, error) {
	channel := w.channel()
	began := time.Now()
	_, err := w.wait(ctx, w.say(channel, sayPlain), shows(answer))
	return time.Since(began), err
}

func (w *world) say(channel, text string, how ...slacktest.How) slacktest.Message {
	return w.slack.Say(channel, "U0001", slacktest.Mention+" "+text, how...)
}

func shows(text string) func(slacktest.Message) bool {
	return func(m slacktest.Message) bool { return m.FromBot() && strings.Contains(m.Shown, text) }
}

// approvedTime is an approved turn in its three parts. The person clicks as soon
// as the card is there.
type approvedTime struct {
	card time.Duration // message to card
	tool time.Duration // click to the tool's effect
	rest time.Duration // from there to the answer
}

func (w *world) approvedTurn(ctx context.Context) (a approvedTime, err error) {
	channel := w.channel()
	began := time.Now()
	ask := w.say(channel, sayFetch)
	card, err := w.wait(ctx, ask, func(m slacktest.Message) bool { return m.HasButton("Approve") })
	if err != nil {
		return a, err
	}
	clicked := time.Now()
	a.card = clicked.Sub(began)
	if err := w.slack.Click("U0002", card, "Approve"); err != nil {
		return a, err
	}
	var started time.Time
	select {
	case started = <-w.page.hits:
	case <-time.After(time.Minute):
		return a, fmt.Errorf("the tool did not start\n%s", w.slack.Render(channel, ask.TS))
	case <-ctx.Done():
		return a, ctx.Err()
	}
	a.tool = started.Sub(clicked)
	_, err = w.wait(ctx, ask, shows(finished))
	a.rest = time.Since(started)
	return a, err
}

// acknowledged is how long Slack waits for the acknowledgement of a message. The
// turn then ends before the next one begins.
func (w *world) acknowledged(ctx context.Context) (time.Duration, error) {
	before := len(w.slack.Acks())
	if _, err := w.wait(ctx, w.say(w.channel(), sayPlain, slacktest.OnlyMention()), shows(answer)); err != nil {
		return 0, err
	}
	if err := w.slack.WaitFor(ctx, func() bool { return len(w.slack.Acks()) > before }); err != nil {
		return 0, err
	}
	return w.slack.Acks()[before].Latency, nil
}

// throughput measures turns per second with as many conversations at once, and
// what the program's own part of a turn costs.
func throughput(ctx context.Context, w *world, n sizes, t *table) (err error) {
	url, err := w.pg.Create(ctx, "throughput")
	if err != nil {
		return err
	}
	p, err := w.start(ctx, url)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, p.stop()) }()
	if _, err := w.many(ctx, n.sessions, n.warm); err != nil {
		return err
	}
	raw, err := w.raw(ctx, 50)
	if err != nil {
		return err
	}
	cpu, cpuErr := p.processor()
	began := time.Now()
	latency, err := w.many(ctx, n.sessions, n.each)
	if err != nil {
		return err
	}
	took := time.Since(began)
	cpuAfter, _ := p.processor()
	after, err := w.raw(ctx, 50)
	if err != nil {
		return err
	}
	raw = append(raw, after...)
	t.head(fmt.Sprintf("%d sessions at once", n.sessions))
	t.row("turns per second", fmt.Sprintf("%.0f", float64(len(latency))/took.Seconds()), "", "", "", fmt.Sprintf("%d turns; raw commit meanwhile %s", len(latency), ms(raw.median())))
	t.times("plain turn", latency, raw, 0)
	if cpuErr == nil {
		t.row("processor time per turn", ms((cpuAfter-cpu)/time.Duration(len(latency))), "", "", "", fmt.Sprintf("of clawbot alone, on %d processors", runtime.NumCPU()))
	}
	return nil
}

// many has each of so many people make turns one after the other.
func (w *world) many(ctx context.Context, sessions, each int) (times, error) {
	var mu sync.Mutex
	var all times
	var errs []error
	var wg sync.WaitGroup
	for range sessions {
		wg.Go(func() {
			for range each {
				d, err := w.plainTurn(ctx)
				mu.Lock()
				if all = append(all, d); err != nil {
					errs = append(errs, err)
				}
				mu.Unlock()
				if err != nil {
					return
				}
			}
		})
	}
	wg.Wait()
	return all, errors.Join(errs...)
}
