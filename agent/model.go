package agent

import (
	"context"
	"errors"
)

// Model answers one request. Implementations read the provider's stream to its
// end, retry what is worth retrying (429, 5xx, connection lost, stream cut)
// with backoff, and return either a whole answer or an error: a cut stream
// never yields part of a tool call.
type Model interface {
	// Name is "openai:NAME", "anthropic:NAME" or "demo".
	Name() string
	// Complete sends the history and returns the next answer. Errors wrap one of
	// the ErrModel… values; their text is for logs and holds no secret.
	Complete(ctx context.Context, req ModelRequest) (ModelReply, error)
}

// ModelRequest is one request. Messages alternate freely but are always valid:
// every call of an assistant message is answered by tool messages right after it.
type ModelRequest struct {
	System   string
	Messages []Message
	Tools    []Tool
	// NoTools bars tool use for this request, for the summary at the step limit.
	// Tools may still be listed, because some providers insist on definitions
	// while the history has calls.
	NoTools bool
}

// ModelReply is a whole answer. Text and Calls may both be empty.
type ModelReply struct {
	Text         string
	Calls        []ProposedCall // ID may be empty or repeated; the engine mints then
	Stop         StopReason
	InputTokens  int
	OutputTokens int
}

// StopReason says why the model stopped.
type StopReason string

const (
	StopEnd    StopReason = "end"
	StopTools  StopReason = "tools"
	StopLength StopReason = "length"
	StopFilter StopReason = "filter" // refused or filtered by the provider
)

// What can be wrong with a model, as far as people are told different things.
var (
	ErrModelAuth        = errors.New("the model refuses the key")
	ErrModelUnavailable = errors.New("the model cannot be reached")
	ErrModelRefused     = errors.New("the model refuses the request")
)
