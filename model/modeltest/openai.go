package modeltest

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
)

// openaiAPI is Chat Completions.
type openaiAPI struct{}

const openaiFields = "model messages tools tool_choice stream stream_options max_tokens max_completion_tokens temperature top_p stop user parallel_tool_calls reasoning_effort seed n metadata store prompt_cache_key safety_identifier service_tier response_format"

func (openaiAPI) name() string { return "openai" }

func (openaiAPI) key(h http.Header) string {
	key, _ := strings.CutPrefix(h.Get("Authorization"), "Bearer ")
	return key
}

func (openaiAPI) parse(body []byte, _ http.Header, r *Request) error {
	if err := checkFields(body, openaiFields); err != nil {
		return err
	}
	var in struct {
		Model      string
		Stream     bool
		Messages   []openaiMessage
		Tools      []openaiTool
		ToolChoice json.RawMessage `json:"tool_choice"`
	}
	if err := json.Unmarshal(body, &in); err != nil {
		return fmt.Errorf("the body has a field of the wrong type: %v", err)
	}
	r.Model = in.Model
	for i, m := range in.Messages {
		if err := m.add(r, i); err != nil {
			return err
		}
	}
	for i, tool := range in.Tools {
		if tool.Type != "function" {
			return fmt.Errorf("tools.%d.type: %q is not function", i, tool.Type)
		}
		r.Tools = append(r.Tools, Tool{tool.Function.Name, tool.Function.Description, tool.Function.Parameters})
	}
	if len(in.ToolChoice) > 0 && json.Unmarshal(in.ToolChoice, &r.ToolChoice) != nil {
		r.ToolChoice = string(in.ToolChoice)
	}
	switch {
	case !in.Stream:
		return errors.New("stream: true is required here")
	case in.Model == "":
		return errors.New("model: a name is required")
	case in.Tools != nil && len(in.Tools) == 0:
		return errors.New("tools: [] is too short, at least one tool is required")
	case r.ToolChoice != "" && len(in.Tools) == 0:
		return errors.New("tool_choice is only allowed when tools are specified")
	}
	if err := checkTools(r.Tools); err != nil {
		return err
	}
	// Some servers answer ids that repeat in a session; the API takes them back,
	// this server does not.
	seen := map[string]bool{}
	for _, m := range r.Messages {
		if err := checkCalls(m.Calls, seen); err != nil {
			return err
		}
	}
	for id := range seen {
		if len(id) > 40 {
			return fmt.Errorf("the id %s of a call is longer than 40", id)
		}
	}
	return checkConversation(r.Messages)
}

type openaiMessage struct {
	Role      string
	Content   json.RawMessage
	ToolCalls []struct {
		ID       string
		Type     string
		Function struct {
			Name      string
			Arguments *string
		}
	} `json:"tool_calls"`
	ToolCallID string `json:"tool_call_id"`
}

type openaiTool struct {
	Type     string
	Function struct {
		Name        string
		Description string
		Parameters  json.RawMessage
	}
}

func (m openaiMessage) add(r *Request, i int) error {
	text, err := m.text()
	if err != nil {
		return fmt.Errorf("messages.%d.content: %v", i, err)
	}
	out := Message{Role: m.Role, Text: text}
	for _, call := range m.ToolCalls {
		if call.Type != "function" {
			return fmt.Errorf("messages.%d.tool_calls: type %q is not function", i, call.Type)
		}
		if call.Function.Arguments == nil {
			return fmt.Errorf("messages.%d.tool_calls: %s has no arguments", i, call.ID)
		}
		out.Calls = append(out.Calls, ToolCall{call.ID, call.Function.Name, *call.Function.Arguments})
	}
	switch m.Role {
	case "system", "developer":
		if i != 0 {
			return fmt.Errorf("messages.%d: the system message must be the first", i)
		}
		r.System = text
		return nil
	case "user":
	case "assistant":
		if strings.TrimSpace(text) == "" && len(m.ToolCalls) == 0 {
			return fmt.Errorf("messages.%d: an assistant message needs content or tool_calls", i)
		}
		r.Messages = append(r.Messages, out)
		return nil
	case "tool":
		out.CallID = m.ToolCallID
	default:
		return fmt.Errorf("messages.%d.role: %q is none of system, user, assistant, tool", i, m.Role)
	}
	if len(m.ToolCalls) > 0 {
		return fmt.Errorf("messages.%d: tool_calls in a message of role %s", i, m.Role)
	}
	if strings.TrimSpace(text) == "" {
		return fmt.Errorf("messages.%d.content: the text must not be blank", i)
	}
	r.Messages = append(r.Messages, out)
	return nil
}

func (m openaiMessage) text() (string, error) {
	if len(m.Content) == 0 || string(m.Content) == "null" {
		return "", nil
	}
	var text string
	if json.Unmarshal(m.Content, &text) == nil {
		return text, nil
	}
	var parts []struct{ Type, Text string }
	if err := json.Unmarshal(m.Content, &parts); err != nil {
		return "", errors.New("neither text nor a list of parts")
	}
	for _, p := range parts {
		if p.Type != "text" {
			return "", fmt.Errorf("parts of type %q are not known here", p.Type)
		}
		text += p.Text
	}
	return text, nil
}

func (openaiAPI) events(r Request, reply Reply, id func(string) string) []event {
	completion := id("chatcmpl-")
	var out []event
	chunk := func(p part, choices string) {
		out = append(out, event{part: p, data: fmt.Sprintf(
			`{"id":%q,"object":"chat.completion.chunk","created":1700000000,"model":%s,"system_fingerprint":"fp_test","choices":[%s],"usage":null,"obfuscation":"aX9"}`,
			completion, quote(r.Model), choices)})
	}
	delta := func(p part, delta string) {
		chunk(p, `{"index":0,"delta":`+delta+`,"logprobs":null,"finish_reason":null}`)
	}
	delta(partStart, `{"role":"assistant","content":"","refusal":null}`)
	for _, piece := range pieces(reply.text) {
		delta(partText, `{"content":`+quote(piece)+`}`)
	}
	if reply.errorEvent != "" {
		return append(out, event{part: partLast, data: errorJSON("openai", reply.errorEvent, "scripted error")})
	}
	for i, call := range reply.calls {
		delta(partCall, fmt.Sprintf(`{"tool_calls":[{"index":%d,"id":%s,"type":"function","function":{"name":%s,"arguments":""}}]}`,
			i, quote(sentID(call.ID, "call_", id)), quote(call.Name)))
		for _, piece := range pieces(call.Arguments) {
			delta(partCall, fmt.Sprintf(`{"tool_calls":[{"index":%d,"function":{"arguments":%s}}]}`, i, quote(piece)))
		}
	}
	finish := "stop"
	switch {
	case reply.stop == "length":
		finish = "length"
	case reply.stop == "filter":
		finish = "content_filter"
	case len(reply.calls) > 0:
		finish = "tool_calls"
	}
	chunk(partEnd, `{"index":0,"delta":{},"logprobs":null,"finish_reason":"`+finish+`"}`)
	out = append(out, event{part: partEnd, data: fmt.Sprintf(
		`{"id":%q,"object":"chat.completion.chunk","created":1700000000,"model":%s,"choices":[],"usage":{"prompt_tokens":%d,"completion_tokens":%d,"total_tokens":%d},"obfuscation":""}`,
		completion, quote(r.Model), inputTokens(r), outputTokens(reply), inputTokens(r)+outputTokens(reply))})
	return append(out, event{part: partLast, data: "[DONE]"})
}

// sentID is the id that a scripted call is sent with.
func sentID(scripted, prefix string, mint func(string) string) string {
	switch scripted {
	case NoID:
		return ""
	case "":
		return mint(prefix)
	}
	return scripted
}

func quote(s string) string {
	out, _ := json.Marshal(s) // a string always encodes
	return string(out)
}

// The token counts are sizes in bytes over four: made up, but the same each time.
func inputTokens(r Request) int { return len(r.Body)/4 + 1 }

func outputTokens(reply Reply) int {
	n := len(reply.text)
	for _, call := range reply.calls {
		n += len(call.Name) + len(call.Arguments)
	}
	return n/4 + 1
}
