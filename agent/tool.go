package agent

import (
	"context"
	"encoding/json"
)

// Tool is something the model may ask for. It has no logging, approval or
// event path of its own; the engine owns all of that.
type Tool struct {
	Name        string          // unique, [a-zA-Z0-9_-], at most 64 characters
	Description string          // for the model
	Schema      json.RawMessage // JSON Schema of the arguments object
	Owner       string          // "builtin" or the MCP server's name

	// Idempotent: may run again with the same Invocation after a crash between
	// start and finish. All others are reported as unknown.
	Idempotent bool
	// Repeatable: identical calls in one answer of the model all run.
	Repeatable bool
	// Delivery: the tool's delivery arguments are filled from the origin.
	Delivery bool

	// Default is the rule of lowest priority for this tool, given its decoded
	// arguments; nil means ask.
	Default func(args map[string]any, origin Origin) Action

	// Run does the work with the frozen arguments. It must stop when ctx ends.
	// A panic counts as a failure.
	Run func(ctx context.Context, inv Invocation) Result
}

// Invocation is one execution. Its key (Session, Turn, Call) stays the same when
// an idempotent tool runs again after a crash.
type Invocation struct {
	Session  SessionID
	Turn     TurnID
	Call     CallID
	Args     []byte // canonical JSON object, already checked against Schema
	Origin   Origin
	Approved bool // a person approved exactly these bytes
}

// Result is what a tool hands back: text for the model. Exactly one of Output
// and Error is meant; Success says which.
type Result struct {
	Success bool
	Output  string
	Error   string
}

// Succeeded returns a successful result.
func Succeeded(output string) Result { return Result{Success: true, Output: output} }

// Failed returns a failed result; the text says what went wrong and what to do.
func Failed(text string) Result { return Result{Error: text} }
