package agent

// Event is one entry of a turn's timeline, written in the transaction of the
// state it tells of.
type Event struct {
	Type   string // e.g. "policy_decision"; the names are in docs/lifecycle.md
	Turn   TurnID
	Call   CallID
	Fields map[string]string // masked and bounded
}

// The types of events in a turn's timeline. Fields are in docs/lifecycle.md.
const (
	EventToolBatchStarted = "tool_batch_started"
	EventPolicyDecision   = "policy_decision"
	EventRunPaused        = "run_paused"
	EventRunResumed       = "run_resumed"
	EventToolCall         = "tool_call"
	EventToolResult       = "tool_result"
	EventToolCompleted    = "tool_completed"
	EventWarning          = "warning"
)
