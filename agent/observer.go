package agent

import (
	"context"
	"time"
)

// Observer is told what turns and calls do, for metrics and traces. It gets no
// text that is not masked and bounded, decides nothing, and must not block.
type Observer interface {
	// Turn is called when a worker begins or goes on with a turn, and the returned
	// function when it lets it go. The context carries the span to what is within.
	Turn(ctx context.Context, t Turn) (context.Context, func(t Turn))
	// Request is called around a model request.
	Request(ctx context.Context, model string) func(reply ModelReply, err error)
	// Call is called around an execution, and by nothing else: a call that was
	// refused has no latency.
	Call(ctx context.Context, c CallNote) (context.Context, func(c CallNote))
	// Replay is called for a stored result that a resumed turn uses.
	Replay(ctx context.Context, c CallNote)
	// Batch is called when the calls of an answer have all ended. took is the wall
	// clock from the answer on, without waiting for people.
	Batch(ctx context.Context, calls, failures int, took time.Duration)
	// Waited is called when a question to people has ended.
	Waited(ctx context.Context, tool string, decision ApprovalStatus, waited time.Duration)
}

// CallNote is an execution as observers see it.
type CallNote struct {
	Tool    string
	Call    CallID // the correlation id
	Turn    TurnID
	Channel ChannelName
	Args    string // masked and bounded

	// Once it has ended:
	Status  CallStatus
	Latency time.Duration
	Result  string // masked and bounded
}

// unobserved is the Observer of a Bundle that has none.
type unobserved struct{}

func (unobserved) Turn(ctx context.Context, _ Turn) (context.Context, func(Turn)) {
	return ctx, func(Turn) {}
}
func (unobserved) Request(context.Context, string) func(ModelReply, error) {
	return func(ModelReply, error) {}
}
func (unobserved) Call(ctx context.Context, _ CallNote) (context.Context, func(CallNote)) {
	return ctx, func(CallNote) {}
}
func (unobserved) Replay(context.Context, CallNote)                              {}
func (unobserved) Batch(context.Context, int, int, time.Duration)                {}
func (unobserved) Waited(context.Context, string, ApprovalStatus, time.Duration) {}
