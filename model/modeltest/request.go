package modeltest

import (
	"encoding/json"
	"net/http"
	"strings"
	"time"
)

// Request is one request as it came in, whatever API it came by.
type Request struct {
	API        string // "openai" or "anthropic"
	Model      string
	System     string
	Messages   []Message
	Tools      []Tool
	ToolChoice string // "auto", "none", "any", …; empty if not given
	Header     http.Header
	Body       []byte
	At         time.Time
	// Invalid is the rule that the request breaks; empty if it breaks none. The
	// parsed fields above may then be incomplete.
	Invalid string
}

// Message is one text, one answer of the model, or one tool result. A message of
// Anthropic's API with several blocks becomes several of these.
type Message struct {
	Role   string // "user", "assistant" or "tool"
	Text   string
	Calls  []ToolCall // role assistant
	CallID string     // role tool
	Failed bool       // role tool; Anthropic's API only
}

// ToolCall is one call within a request's history or a Reply.
type ToolCall struct {
	ID        string
	Name      string
	Arguments string // JSON text
}

// Tool is one tool definition.
type Tool struct {
	Name        string
	Description string
	Schema      json.RawMessage
}

// LastUser returns the last text of a person.
func (r Request) LastUser() string {
	for i := len(r.Messages) - 1; i >= 0; i-- {
		if r.Messages[i].Role == "user" {
			return r.Messages[i].Text
		}
	}
	return ""
}

// Steps returns how many answers of the model follow the last text of a person:
// 0 for the first request of a turn.
func (r Request) Steps() int {
	steps := 0
	for i := len(r.Messages) - 1; i >= 0 && r.Messages[i].Role != "user"; i-- {
		if r.Messages[i].Role == "assistant" {
			steps++
		}
	}
	return steps
}

// Results returns the tool results at the end of the request.
func (r Request) Results() []Message {
	i := len(r.Messages)
	for i > 0 && r.Messages[i-1].Role == "tool" {
		i--
	}
	return r.Messages[i:]
}

// HasTool reports whether the request offers a tool of that name.
func (r Request) HasTool(name string) bool {
	for _, tool := range r.Tools {
		if tool.Name == name {
			return true
		}
	}
	return false
}

// String draws the conversation, one line a message, for failures of tests.
func (r Request) String() string {
	var b strings.Builder
	line := func(parts ...string) { b.WriteString(strings.Join(parts, " ") + "\n") }
	if r.System != "" {
		line("system:", r.System)
	}
	for _, m := range r.Messages {
		switch {
		case m.Role == "tool" && m.Failed:
			line("tool", m.CallID, "failed:", m.Text)
		case m.Role == "tool":
			line("tool", m.CallID+":", m.Text)
		default:
			line(m.Role+":", m.Text)
		}
		for _, call := range m.Calls {
			line("  call", call.ID, call.Name, call.Arguments)
		}
	}
	return b.String()
}
