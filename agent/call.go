package agent

import "time"

// CallStatus is the state of a tool call; the database holds the same list.
type CallStatus string

const (
	CallPrepared CallStatus = "prepared" // judged; waits for a person or for its turn to run
	CallApproved CallStatus = "approved" // a person said yes; nothing has run yet
	CallStarted  CallStatus = "started"  // committed before the effect

	CallSucceeded   CallStatus = "succeeded"
	CallFailed      CallStatus = "failed"
	CallInterrupted CallStatus = "interrupted" // stopped by us while it ran
	CallUnknown     CallStatus = "unknown"     // started, and the process died before the result

	CallDenied        CallStatus = "denied"
	CallReplaced      CallStatus = "replaced" // a person answered instead
	CallExpired       CallStatus = "expired"
	CallUndeliverable CallStatus = "undeliverable" // no person could be asked
	CallDeduplicated  CallStatus = "deduplicated"
	CallBlocked       CallStatus = "blocked" // not available, or its arguments are wrong
	CallCancelled     CallStatus = "cancelled"
	CallSkipped       CallStatus = "skipped"
)

// Ended reports whether the call has its one final status.
func (s CallStatus) Ended() bool {
	switch s {
	case CallPrepared, CallApproved, CallStarted:
		return false
	}
	return true
}

// Ran reports whether the call's effect may have happened.
func (s CallStatus) Ran() bool {
	switch s {
	case CallStarted, CallSucceeded, CallFailed, CallInterrupted, CallUnknown:
		return true
	}
	return false
}

// ToolCall is one tool call from preparation to result. Args are the exact
// bytes that are shown, hashed, approved and executed; Raw is what the model
// wrote and is kept for the audit alone.
type ToolCall struct {
	ID         CallID
	Turn       TurnID
	Batch      int // the model request of the turn that asked for it, from 1
	Position   int // place within the batch, from 0
	Tool       string
	AskedTool  string // as the model named it, where a hook changed the name
	Raw        string
	Args       string // canonical JSON object; empty if the call could not be frozen
	ArgsSHA256 string // hex over Args
	Definition string // hex hash of the tool's definition when it was judged
	Filled     []string
	SecretArg  string // the argument whose value a person gave and that is shown to nobody
	Status     CallStatus
	Grant      GrantID    // the standing consent it runs with, if any
	Approval   ApprovalID // the question that decides it, if any
	Rule       string
	Output     string // full text, cleaned
	Error      string
	// ResultSHA256 binds Output, Error and Status to the call, so that a stored
	// result is noticed that is not this call's. Empty until the call has run.
	ResultSHA256 string
	Receipt      string // a line of evidence; successful calls, where receipts are on
	Latency      time.Duration
	StartedAt    time.Time // zero until started
}
