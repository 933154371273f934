package slacktest

import (
	"math"
	"time"
)

// tier is how often a method may be called.
type tier int

const (
	special    tier = iota // hundreds a minute
	tier2                  // 20 a minute
	tier3                  // 50 a minute
	tier4                  // 100 a minute
	perChannel             // one a second in each channel
)

// budget is the size of a bucket and how fast it fills again.
func (t tier) budget() (burst, perSecond float64) {
	switch t {
	case tier2:
		return 20, 20.0 / 60
	case tier3:
		return 50, 50.0 / 60
	case tier4:
		return 100, 100.0 / 60
	case perChannel:
		return 5, 1
	}
	return 600, 10
}

type bucket struct {
	tokens float64
	at     time.Time
}

// EnforceRates applies Slack's rate limits from now on: a minute's allowance at
// once for tiers 2 to 4; for chat.postMessage one a second in each channel and
// five at once. Calls beyond it get 429 and Retry-After.
func (s *Server) EnforceRates() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.buckets = map[string]*bucket{}
}

// checkRate takes a token from the method's bucket.
func (s *Server) checkRate(name string, t tier, a args) error {
	if s.buckets == nil {
		return nil
	}
	key := name
	if t == perChannel {
		key += " " + a.str("channel")
	}
	burst, perSecond := t.budget()
	now := time.Now()
	b := s.buckets[key]
	if b == nil {
		b = &bucket{tokens: burst, at: now}
		s.buckets[key] = b
	}
	b.tokens = min(burst, b.tokens+now.Sub(b.at).Seconds()*perSecond)
	b.at = now
	if b.tokens < 1 {
		wait := math.Ceil((1 - b.tokens) / perSecond)
		return &apiError{code: "ratelimited", more: object{"retry_after": int(wait)}}
	}
	b.tokens--
	return nil
}
