package slack

import (
	"context"
	"sync"
	"time"

	"github.com/clawbot/clawbot/agent"
)

// pacer keeps calls below Slack's rate limits: a bucket for each method, or for
// each channel where Slack counts so. Who would have to wait long is told when
// to come back instead.
type pacer struct {
	now func() time.Time

	mu      sync.Mutex
	buckets map[string]*paced
}

type paced struct {
	tokens float64
	at     time.Time
	until  time.Time // Slack's Retry-After
}

// budget is how many calls may come at once, and how many a second after that.
type budget struct{ burst, perSecond float64 }

// Below Slack's own: about one post a second in a channel with short bursts,
// and fifty updates a minute. A burst of one would starve turns with several
// parts.
var (
	posts   = budget{4, 1}
	updates = budget{20, 0.75}
)

// maxPace is how long a caller waits here. Longer waits belong to the caller,
// who has the message stored.
const maxPace = 5 * time.Second

func newPacer(now func() time.Time) *pacer { return &pacer{now: now, buckets: map[string]*paced{}} }

// wait takes a token for key, waiting for it if that is short, else it returns
// a *agent.SendError with RetryAfter.
func (p *pacer) wait(ctx context.Context, key string, b budget) error {
	d := p.take(key, b)
	if d > maxPace {
		return &agent.SendError{RetryAfter: d, Reason: "rate_limited"}
	}
	if d <= 0 {
		return nil
	}
	if err := sleep(ctx, d); err != nil {
		return &agent.SendError{Reason: "cancelled", Err: err}
	}
	return nil
}

// take reserves a token and returns how long to wait for it. Where that is
// longer than maxPace nothing is reserved.
func (p *pacer) take(key string, b budget) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := p.now()
	if len(p.buckets) > cacheMost {
		p.forget(now)
	}
	q := p.buckets[key]
	if q == nil {
		q = &paced{tokens: b.burst, at: now}
		p.buckets[key] = q
	}
	q.tokens = min(b.burst, q.tokens+max(0, now.Sub(q.at).Seconds())*b.perSecond)
	q.at = now
	d := max(0, q.until.Sub(now))
	if q.tokens < 1 {
		d = max(d, time.Duration((1-q.tokens)/b.perSecond*float64(time.Second)))
	}
	if d <= maxPace {
		q.tokens--
	}
	return d
}

// hold stops all calls with key for d, as Slack asked.
func (p *pacer) hold(key string, d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if q := p.buckets[key]; q != nil {
		if until := p.now().Add(d); until.After(q.until) {
			q.until = until
		}
	}
}

// forget drops the buckets that are idle.
func (p *pacer) forget(now time.Time) {
	for key, q := range p.buckets {
		if now.Sub(q.at) > time.Minute && now.After(q.until) {
			delete(p.buckets, key)
		}
	}
}
