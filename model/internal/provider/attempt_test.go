package provider

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/clawbot/clawbot/agent"
)

// always fails the way it is told and counts the attempts.
type failing struct {
	err   error
	times []time.Duration
	begin time.Time
}

func (f *failing) attempt(context.Context) (agent.ModelReply, error) {
	f.times = append(f.times, time.Since(f.begin))
	return agent.ModelReply{Text: "half"}, f.err
}

func run(ctx context.Context, retries int, err error) (*failing, error) {
	f := &failing{err: err, begin: time.Now()}
	reply, err := do(ctx, retries, Scrubber{}, f.attempt)
	if reply.Text != "" {
		panic("a failed attempt's text came out")
	}
	return f, err
}

func TestWaitsDouble(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, err := run(t.Context(), 0, Broken("cut"))
		if len(f.times) != 1+DefaultRetries || !errors.Is(err, agent.ErrModelUnavailable) || !strings.Contains(err.Error(), "attempt 5") {
			t.Fatalf("%v, %v", f.times, err)
		}
		for n := range DefaultRetries {
			wait := f.times[n+1] - f.times[n]
			full := firstWait << n
			if wait < full/2 || wait > full {
				t.Errorf("wait %d is %v, want %v to %v", n, wait, full/2, full)
			}
		}
	})
}

func TestRetryAfterIsHonouredAndCapped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for value, want := range map[string]time.Duration{
			"7":     7 * time.Second,
			"7.5":   7500 * time.Millisecond,
			"86400": longestWait,
			"1e300": longestWait,
			"-5":    0,
			"soon":  0,
		} {
			e := Scrubber{}.FromStatus(429, http.Header{"Retry-After": {value}}, Detail{})
			f, _ := run(t.Context(), 1, e)
			if wait := f.times[1]; wait < want || want > 0 && wait > want+time.Second || want == 0 && wait > firstWait {
				t.Errorf("Retry-After %s: waited %v, want %v", value, wait, want)
			}
		}
		for ahead, want := range map[time.Duration]time.Duration{9 * time.Second: 9 * time.Second, -9 * time.Second: 0} {
			date := time.Now().Add(ahead).UTC().Format(http.TimeFormat)
			if e := (Scrubber{}).FromStatus(503, http.Header{"Retry-After": {date}}, Detail{}); e.After > want || e.After < want-time.Second { // a date has no fraction of a second
				t.Errorf("a date %v ahead: %v", ahead, e.After)
			}
		}
		e := Scrubber{}.FromStatus(429, http.Header{"Retry-After-Ms": {"2500"}, "Retry-After": {"9"}}, Detail{})
		if e.After != 2500*time.Millisecond {
			t.Errorf("Retry-After-Ms: %v", e.After)
		}
	})
}

func TestAttemptsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		// By count, even if every attempt is told to wait long.
		slow := &Error{Kind: agent.ErrModelUnavailable, Text: "busy", Retry: true, After: time.Hour}
		begin := time.Now()
		f, err := run(t.Context(), 1000, slow)
		if d := time.Since(begin); d > budget || len(f.times) > int(budget/longestWait)+1 || err == nil {
			t.Errorf("%d attempts in %v: %v", len(f.times), d, err)
		}
		// Not at all where none is worth it, or none may follow.
		if f, _ := run(t.Context(), 3, refused("no")); len(f.times) != 1 {
			t.Errorf("%d attempts of a refused request", len(f.times))
		}
		if f, _ := run(t.Context(), -1, Broken("cut")); len(f.times) != 1 {
			t.Errorf("%d attempts where none may follow", len(f.times))
		}
		// When the wait would outlast the caller's deadline, at once.
		ctx, stop := context.WithTimeout(t.Context(), 5*time.Second)
		defer stop()
		begin = time.Now()
		if f, err := run(ctx, 3, slow); len(f.times) != 1 || time.Since(begin) > 0 || !strings.Contains(err.Error(), "busy") {
			t.Errorf("%v in %v: %v", f.times, time.Since(begin), err)
		}
		// When the caller stops it, at once.
		ctx, stop = context.WithCancel(t.Context())
		time.AfterFunc(3*time.Second, stop)
		begin = time.Now()
		if _, err := run(ctx, 3, slow); time.Since(begin) != 3*time.Second || !errors.Is(err, context.Canceled) || !errors.Is(err, agent.ErrModelUnavailable) {
			t.Errorf("after %v: %v", time.Since(begin), err)
		}
	})
}
