package modeltest

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
)

// anthropicAPI is Messages.
type anthropicAPI struct{}

const anthropicFields = "model messages max_tokens system tools tool_choice stream temperature top_p top_k stop_sequences metadata thinking service_tier cache_control output_config"

func (anthropicAPI) name() string { return "anthropic" }

func (anthropicAPI) key(h http.Header) string { return h.Get("X-Api-Key") }

func (anthropicAPI) parse(body []byte, header http.Header, r *Request) error {
	if err := checkFields(body, anthropicFields); err != nil {
		return err
	}
	var in struct {
		Model     string
		MaxTokens int `json:"max_tokens"`
		Stream    bool
		System    json.RawMessage
		Messages  []struct {
			Role    string
			Content json.RawMessage
		}
		Tools []struct {
			Name        string
			Description string
			InputSchema json.RawMessage `json:"input_schema"`
		}
		ToolChoice *struct{ Type string } `json:"tool_choice"`
	}
	if err := json.Unmarshal(body, &in); err != nil {
		return fmt.Errorf("the body has a field of the wrong type: %v", err)
	}
	r.Model = in.Model
	if err := parseSystem(in.System, r); err != nil {
		return err
	}
	for i, m := range in.Messages {
		if i > 0 && in.Messages[i-1].Role == m.Role {
			return fmt.Errorf("messages: roles must alternate, messages.%d and the one before are both of %s", i, m.Role)
		}
		blocks, err := parseBlocks(m.Content)
		if err != nil {
			return fmt.Errorf("messages.%d.content: %v", i, err)
		}
		switch m.Role {
		case "user":
			err = addUser(r, blocks)
		case "assistant":
			err = addAssistant(r, blocks)
		default:
			err = fmt.Errorf("role %q is neither user nor assistant", m.Role)
		}
		if err != nil {
			return fmt.Errorf("messages.%d: %v", i, err)
		}
	}
	for _, tool := range in.Tools {
		r.Tools = append(r.Tools, Tool{tool.Name, tool.Description, tool.InputSchema})
	}
	if in.ToolChoice != nil {
		r.ToolChoice = in.ToolChoice.Type
	}
	switch {
	case header.Get("Anthropic-Version") == "":
		return errors.New("anthropic-version: header is required")
	case !in.Stream:
		return errors.New("stream: true is required here")
	case in.Model == "":
		return errors.New("model: a name is required")
	case in.MaxTokens < 1:
		return errors.New("max_tokens: must be at least 1")
	case r.ToolChoice != "" && len(in.Tools) == 0:
		return errors.New("tool_choice may only be specified while providing tools")
	}
	if err := checkTools(r.Tools); err != nil {
		return err
	}
	seen := map[string]bool{}
	for _, m := range r.Messages {
		if err := checkCalls(m.Calls, seen); err != nil {
			return err
		}
	}
	if len(seen) > 0 && len(in.Tools) == 0 {
		return errors.New("requests which include tool_use or tool_result blocks must define tools")
	}
	return checkConversation(r.Messages)
}

type block struct {
	Type      string
	Text      string
	ID        string
	Name      string
	Input     json.RawMessage
	ToolUseID string `json:"tool_use_id"`
	Content   json.RawMessage
	IsError   bool `json:"is_error"`
}

// parseBlocks reads content, which is text or a list of blocks.
func parseBlocks(content json.RawMessage) ([]block, error) {
	var text string
	if json.Unmarshal(content, &text) == nil {
		return []block{{Type: "text", Text: text}}, nil
	}
	var blocks []block
	if err := json.Unmarshal(content, &blocks); err != nil {
		return nil, errors.New("neither text nor a list of blocks")
	}
	if len(blocks) == 0 {
		return nil, errors.New("must not be empty")
	}
	return blocks, nil
}

func parseSystem(content json.RawMessage, r *Request) error {
	if len(content) == 0 {
		return nil
	}
	blocks, err := parseBlocks(content)
	if err != nil {
		return fmt.Errorf("system: %v", err)
	}
	for _, b := range blocks {
		if b.Type != "text" || strings.TrimSpace(b.Text) == "" {
			return errors.New("system: text content blocks must be non-empty")
		}
		r.System += b.Text
	}
	return nil
}

func addUser(r *Request, blocks []block) error {
	text := false
	for _, b := range blocks {
		switch b.Type {
		case "text":
			text = true
			if strings.TrimSpace(b.Text) == "" {
				return errors.New("text content blocks must be non-empty and contain non-whitespace text")
			}
			r.Messages = append(r.Messages, Message{Role: "user", Text: b.Text})
		case "tool_result":
			if text {
				return fmt.Errorf("the tool_result for %s comes after a text block", b.ToolUseID)
			}
			out := Message{Role: "tool", CallID: b.ToolUseID, Failed: b.IsError}
			if len(b.Content) > 0 {
				parts, err := parseBlocks(b.Content)
				if err != nil {
					return fmt.Errorf("tool_result %s: %v", b.ToolUseID, err)
				}
				for _, p := range parts {
					if p.Type != "text" || strings.TrimSpace(p.Text) == "" {
						return fmt.Errorf("tool_result %s: text content blocks must be non-empty", b.ToolUseID)
					}
					out.Text += p.Text
				}
			}
			r.Messages = append(r.Messages, out)
		default:
			return fmt.Errorf("blocks of type %q are not known here in a user message", b.Type)
		}
	}
	return nil
}

func addAssistant(r *Request, blocks []block) error {
	out := Message{Role: "assistant"}
	for _, b := range blocks {
		switch b.Type {
		case "text":
			if strings.TrimSpace(b.Text) == "" {
				return errors.New("text content blocks must be non-empty and contain non-whitespace text")
			}
			out.Text += b.Text
		case "tool_use":
			out.Calls = append(out.Calls, ToolCall{b.ID, b.Name, string(b.Input)})
		default:
			return fmt.Errorf("blocks of type %q are not known here in an assistant message", b.Type)
		}
	}
	r.Messages = append(r.Messages, out)
	return nil
}

func (anthropicAPI) events(r Request, reply Reply, id func(string) string) []event {
	var out []event
	send := func(p part, name, rest string) {
		out = append(out, event{name: name, part: p, data: fmt.Sprintf(`{"type":%q%s}`, name, rest)})
	}
	send(partStart, "message_start", fmt.Sprintf(
		`,"message":{"id":%q,"type":"message","role":"assistant","model":%s,"content":[],"stop_reason":null,"stop_sequence":null,"usage":{"input_tokens":%d,"output_tokens":1}}`,
		id("msg_"), quote(r.Model), inputTokens(r)))
	send(partStart, "ping", "")
	send(partStart, "weather_report", `,"sunny":true`) // new event types may come at any time
	index := 0
	block := func(p part, start, deltaType, field, content string) {
		send(p, "content_block_start", fmt.Sprintf(`,"index":%d,"content_block":%s`, index, start))
		for _, piece := range append([]string{""}, pieces(content)...) {
			send(p, "content_block_delta", fmt.Sprintf(`,"index":%d,"delta":{"type":%q,%q:%s}`, index, deltaType, field, quote(piece)))
		}
		send(p, "content_block_stop", fmt.Sprintf(`,"index":%d`, index))
		index++
	}
	if reply.text != "" {
		block(partText, `{"type":"text","text":""}`, "text_delta", "text", reply.text)
	}
	if reply.errorEvent != "" {
		return append(out, event{name: "error", part: partLast, data: errorJSON("anthropic", reply.errorEvent, "scripted error")})
	}
	for _, call := range reply.calls {
		start := fmt.Sprintf(`{"type":"tool_use","id":%s,"name":%s,"input":{}}`, quote(sentID(call.ID, "toolu_", id)), quote(call.Name))
		block(partCall, start, "input_json_delta", "partial_json", call.Arguments)
	}
	stop := "end_turn"
	switch {
	case reply.stop == "length":
		stop = "max_tokens"
	case reply.stop == "filter":
		stop = "refusal"
	case len(reply.calls) > 0:
		stop = "tool_use"
	}
	send(partEnd, "ping", "")
	send(partEnd, "message_delta", fmt.Sprintf(`,"delta":{"stop_reason":%q,"stop_sequence":null},"usage":{"output_tokens":%d}`, stop, outputTokens(reply)))
	send(partLast, "message_stop", "")
	return out
}
