package provider

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/clawbot/clawbot/agent"
)

// The bounds of all attempts of one request.
const (
	DefaultRetries = 4                // after the first attempt
	firstWait      = time.Second      // doubles each time
	longestWait    = 30 * time.Second // also caps a provider's Retry-After
	budget         = 5 * time.Minute  // no attempt begins after it
)

// Complete answers req for the provider of the given name by as many attempts as
// it takes; see do. Errors begin with the name.
func Complete(ctx context.Context, name string, req agent.ModelRequest, retries int, s Scrubber, attempt func(context.Context) (agent.ModelReply, error)) (agent.ModelReply, error) {
	reply, err := do(ctx, retries, s, attempt)
	if err != nil {
		return agent.ModelReply{}, fmt.Errorf("%s: %w", name, err)
	}
	if req.NoTools && len(reply.Calls) > 0 { // a server that knows no tool_choice
		reply.Calls, reply.Stop = nil, agent.StopEnd
	}
	return reply, nil
}

// do makes attempts until one yields a whole answer, an error is not worth
// another attempt, or the bounds above are reached. retries is how many may
// follow the first; 0 means DefaultRetries and less none. It returns at once
// when ctx ends, with an error that wraps agent.ErrModelUnavailable and ctx's.
func do(ctx context.Context, retries int, s Scrubber, attempt func(context.Context) (agent.ModelReply, error)) (agent.ModelReply, error) {
	if retries == 0 {
		retries = DefaultRetries
	}
	begin := time.Now()
	for n := 0; ; n++ {
		if ctx.Err() != nil {
			return agent.ModelReply{}, cancelled(ctx)
		}
		reply, err := attempt(ctx)
		if err == nil {
			return reply, nil
		}
		if ctx.Err() != nil {
			return agent.ModelReply{}, cancelled(ctx)
		}
		e := s.FromCause(err)
		wait := waitBefore(n, e.After)
		deadline, limited := ctx.Deadline()
		if !e.Retry || n >= retries || time.Since(begin)+wait > budget || limited && time.Until(deadline) < wait {
			if n > 0 {
				return agent.ModelReply{}, fmt.Errorf("%w (attempt %d)", e, n+1)
			}
			return agent.ModelReply{}, e
		}
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
		}
	}
}

// waitBefore returns how long to wait after the n-th failed attempt, from 0:
// half to all of a doubling time, so that many sessions that failed together do
// not come back together, and never less than the provider asked for.
func waitBefore(n int, asked time.Duration) time.Duration {
	full := min(firstWait<<min(n, 10), longestWait)
	return max(full/2+rand.N(full/2), min(asked, longestWait))
}
