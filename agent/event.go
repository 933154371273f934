package agent

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
