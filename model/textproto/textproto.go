// Package textproto lets a model that knows no tool calls make them in its text.
//
// The tools are described in the system text; what the model asks for stands in its
// answer in one form, each call beginning on a line of its own:
//
//	<tool_call>
//	{"name": "read_file", "arguments": {"path": "notes.txt"}}
//	</tool_call>
//
// White space does not matter, the JSON may stand on the line of the tag, calls may
// follow each other with text between, the last closing tag may be missing, and
// "arguments" too where there are none. Only the model's current answer is read, and
// of it nothing in code fences and nothing in quotes. What is no call stays text.
package textproto

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"regexp"
	"strings"

	"github.com/clawbot/clawbot/agent"
)

// Model is a model with the protocol around it.
type Model struct{ inner agent.Model }

var _ agent.Model = Model{}

// Wrap puts the protocol around a model, which never sees a tool.
func Wrap(inner agent.Model) Model { return Model{inner} }

// Name implements agent.Model.
func (m Model) Name() string { return m.inner.Name() }

// Complete implements agent.Model. Where tools are barred the model is not told of
// any, and nothing in its answer is a call. An answer that was cut off has no calls,
// since the last may be half.
func (m Model) Complete(ctx context.Context, req agent.ModelRequest) (agent.ModelReply, error) {
	plain := agent.ModelRequest{System: req.System, Messages: flatten(req.Messages)}
	if !req.NoTools {
		plain.System += instructions(req.Tools)
	}
	reply, err := m.inner.Complete(ctx, plain)
	if err != nil || req.NoTools || reply.Stop == agent.StopLength || reply.Stop == agent.StopFilter {
		return reply, err
	}
	reply.Text, reply.Calls = Parse(reply.Text)
	if len(reply.Calls) > 0 {
		reply.Stop = agent.StopTools
	}
	return reply, nil
}

const (
	openCall   = "<tool_call>"
	closeCall  = "</tool_call>"
	openResult = "<tool_result"
)

// instructions tell a model of its tools.
func instructions(tools []agent.Tool) string {
	if len(tools) == 0 {
		return ""
	}
	var b strings.Builder
	b.WriteString("\n\nYou can call tools. To call one, write this, beginning on a line of its own:\n" +
		openCall + "\n{\"name\": \"NAME\", \"arguments\": {}}\n" + closeCall + "\n" +
		"Several calls may follow each other. Then end your answer: the results come with the next message, each in <tool_result>. " +
		"Never write a result yourself. A call in a code block or a quote is not made.\n\nThese are the tools, with the JSON schemas of their arguments:\n")
	for _, t := range tools {
		var schema bytes.Buffer
		if json.Compact(&schema, t.Schema) != nil {
			schema.Reset()
			schema.WriteString("{}")
		}
		fmt.Fprintf(&b, "\n%s: %s\n%s\n", t.Name, strings.Join(strings.Fields(t.Description), " "), schema.Bytes())
	}
	return b.String()
}

// flatten writes calls and results of a history as text. The results of one answer
// are one message of nobody.
func flatten(in []agent.Message) []agent.Message {
	var out []agent.Message
	names := map[agent.CallID]string{}
	for i, m := range in {
		switch m.Role {
		case agent.RoleTool:
			text := fmt.Sprintf("%s name=%q id=%q>\n%s\n</tool_result>", openResult, names[m.CallID], m.CallID, defuse(m.Text))
			if i > 0 && in[i-1].Role == agent.RoleTool {
				out[len(out)-1].Text += "\n" + text
				continue
			}
			out = append(out, agent.Message{Role: agent.RoleUser, Turn: m.Turn, Text: text})
		case agent.RoleAssistant:
			parts := []string{defuse(strings.TrimSpace(m.Text))}
			if parts[0] == "" {
				parts = nil
			}
			for _, c := range m.Calls {
				names[c.ID] = c.Tool
				parts = append(parts, Render(c))
			}
			m.Text, m.Calls = strings.Join(parts, "\n"), nil
			out = append(out, m)
		default:
			m.Text = defuse(m.Text)
			out = append(out, m)
		}
	}
	return out
}

// Render writes a call in the one form. Arguments that are no JSON are left out.
func Render(c agent.ProposedCall) string {
	args := json.RawMessage(c.Arguments)
	if !json.Valid(args) {
		args = json.RawMessage("{}")
	}
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(true) // so that no tag stands in the JSON
	if enc.Encode(call{c.Tool, args}) != nil {
		return ""
	}
	return openCall + "\n" + b.String() + closeCall
}

// tag matches what the protocol gives a meaning.
var tag = regexp.MustCompile(`(?i)<(\s*/?\s*tool_(?:call|result))`)

// defuse spoils the protocol's tags in texts of others, so that a model does not
// take them for calls or results.
func defuse(text string) string { return tag.ReplaceAllString(text, `<\$1`) }

// call is what stands between the tags.
type call struct {
	Name      string          `json:"name"`
	Arguments json.RawMessage `json:"arguments"`
}

// maxCalls bounds the calls that are read from one answer; what follows is text.
const maxCalls = 100

// Parse takes the calls out of an answer and returns the rest of the text. It never
// fails: a call that cannot be read keeps its text as arguments, so that it is
// answered with an error.
func Parse(answer string) (text string, calls []agent.ProposedCall) {
	var kept strings.Builder
	fence := ""
	for rest := answer; rest != ""; {
		line, after, more := strings.Cut(rest, "\n")
		if more {
			line += "\n"
		}
		bare := strings.TrimLeft(line, " \t")
		switch mark := fenceOf(bare); {
		case fence == "" && mark != "":
			fence = mark
		case fence != "" && len(mark) >= len(fence) && mark[0] == fence[0] && strings.Trim(bare, mark[:1]+" \t\r\n") == "":
			fence = ""
		case fence == "" && strings.HasPrefix(bare, openCall) && len(calls) < maxCalls:
			// Calls may follow each other on the line.
			tail := rest[len(line)-len(bare):]
			for strings.HasPrefix(tail, openCall) && len(calls) < maxCalls {
				var c agent.ProposedCall
				c, tail = parseCall(tail[len(openCall):])
				calls = append(calls, c)
				if next := strings.TrimLeft(tail, " \t"); strings.HasPrefix(next, openCall) {
					tail = next
				}
			}
			rest = tail
			continue
		}
		kept.WriteString(line)
		rest = after
	}
	if len(calls) == 0 {
		return answer, nil
	}
	return strings.TrimSpace(kept.String()), calls
}

// fenceOf returns the marks with which a line opens or closes a code fence: three or
// more of ` or ~.
func fenceOf(line string) string {
	for _, c := range "`~" {
		if n := len(line) - len(strings.TrimLeft(line, string(c))); n >= 3 {
			return line[:n]
		}
	}
	return ""
}

// name finds the tool in JSON that is broken further on.
var name = regexp.MustCompile(`^\s*\{\s*"name"\s*:\s*"([A-Za-z0-9_-]{1,64})"`)

// parseCall reads what follows an opening tag, and returns what is behind the call.
func parseCall(s string) (agent.ProposedCall, string) {
	dec := json.NewDecoder(strings.NewReader(s))
	var c call
	if err := dec.Decode(&c); err == nil {
		tail := s[dec.InputOffset():]
		if end := strings.TrimLeft(tail, " \t\r\n"); strings.HasPrefix(end, closeCall) {
			tail = end[len(closeCall):]
		} else if end != "" && !strings.HasPrefix(end, openCall) {
			// Something stands between the JSON and the closing tag: the call is not
			// what it seems, and goes back as what cannot be read.
			if raw, tail, closed := strings.Cut(s, closeCall); closed && int64(len(raw)) > dec.InputOffset() {
				return agent.ProposedCall{Tool: c.Name, Arguments: strings.TrimSpace(raw)}, tail
			}
		} else {
			tail = end
		}
		return agent.ProposedCall{Tool: c.Name, Arguments: arguments(c.Arguments)}, tail
	}
	raw, tail, _ := strings.Cut(s, closeCall)
	out := agent.ProposedCall{Arguments: strings.TrimSpace(raw)}
	if m := name.FindStringSubmatch(raw); m != nil {
		out.Tool = m[1]
	}
	return out, tail
}

// arguments are an object, or a text that holds one, as some models write it.
func arguments(raw json.RawMessage) string {
	var text string
	switch {
	case len(raw) == 0 || string(raw) == "null":
		return "{}"
	case json.Unmarshal(raw, &text) == nil:
		return text
	}
	return string(raw)
}
