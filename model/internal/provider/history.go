package provider

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/clawbot/clawbot/agent"
)

// What stands in for something that a provider would not accept to be empty.
const (
	emptyMessage = "(empty message)"
	emptyResult  = "(no output)"
	interrupted  = "interrupted: this call has no result"
	beginning    = "(The beginning of this conversation is left out.)"
	goOn         = "(Please go on.)"
)

// History returns messages in a form that every provider accepts. The engine
// keeps its history valid; this is the second line, because one bad message
// would make a provider refuse every later request of the session.
//
//   - Text is valid UTF-8 without NUL, and never blank.
//   - People's messages carry their author (agent.Attributed).
//   - Each call is answered directly after its message, in the order of the
//     calls; a call without result gets a failed one, a result without call goes.
//   - Arguments are a JSON object, tool names and call ids have the characters
//     and length that providers allow, and no id appears twice.
//   - It begins with a message of a person and ends with one or with results.
//
// The same history gives the same messages, so that a provider's cache of a
// common beginning stays good.
func History(messages []agent.Message) []agent.Message {
	results := indexResults(messages)
	ids := wireIDs{}
	var out []agent.Message
	for i, m := range messages {
		switch m.Role {
		case agent.RoleUser:
			m.Text = agent.Clean(m.Text)
			if blank(m.Text) {
				m.Text = emptyMessage
			}
			out = append(out, agent.Message{Role: agent.RoleUser, Text: agent.Attributed(m)})
		case agent.RoleAssistant:
			text := agent.Clean(m.Text)
			if blank(text) {
				text = ""
			}
			if text == "" && len(m.Calls) == 0 {
				continue
			}
			said := agent.Message{Role: agent.RoleAssistant, Text: text}
			var answers []agent.Message
			for _, call := range m.Calls {
				id := ids.next(call.ID)
				said.Calls = append(said.Calls, agent.ProposedCall{ID: id, Tool: wireName(call.Tool), Arguments: object(call.Arguments)})
				answers = append(answers, answer(results.take(messages, call.ID, i), id))
			}
			out = append(append(out, said), answers...)
		}
	}
	if len(out) == 0 || out[0].Role != agent.RoleUser {
		out = append([]agent.Message{{Role: agent.RoleUser, Text: beginning}}, out...)
	}
	if out[len(out)-1].Role == agent.RoleAssistant {
		out = append(out, agent.Message{Role: agent.RoleUser, Text: goOn})
	}
	return out
}

// HasCalls reports whether the history has tool calls.
func HasCalls(messages []agent.Message) bool {
	for _, m := range messages {
		if len(m.Calls) > 0 {
			return true
		}
	}
	return false
}

func answer(result *agent.Message, id agent.CallID) agent.Message {
	if result == nil {
		return agent.Message{Role: agent.RoleTool, CallID: id, Text: interrupted, Failed: true}
	}
	text := agent.Clean(result.Text)
	if blank(text) {
		text = emptyResult
	}
	return agent.Message{Role: agent.RoleTool, CallID: id, Text: text, Failed: result.Failed}
}

// places is where the results of an id are, and where it was called. Ids are
// unique within a turn only, so a result belongs to the last call before it.
type places struct{ results, calls []int }

type resultIndex map[agent.CallID]*places

func indexResults(messages []agent.Message) resultIndex {
	index := resultIndex{}
	at := func(id agent.CallID) *places {
		if index[id] == nil {
			index[id] = &places{}
		}
		return index[id]
	}
	for i, m := range messages {
		if m.Role == agent.RoleTool {
			p := at(m.CallID)
			p.results = append(p.results, i)
		}
		if m.Role == agent.RoleAssistant {
			for _, call := range m.Calls {
				p := at(call.ID)
				p.calls = append(p.calls, i)
			}
		}
	}
	return index
}

// take returns the first result of the call that message i made and that no
// call has taken yet, or nil.
func (index resultIndex) take(messages []agent.Message, id agent.CallID, i int) *agent.Message {
	p := index[id]
	for len(p.calls) > 0 && p.calls[0] <= i {
		p.calls = p.calls[1:]
	}
	for len(p.results) > 0 && p.results[0] < i {
		p.results = p.results[1:] // came before its call
	}
	if len(p.results) == 0 || len(p.calls) > 0 && p.results[0] > p.calls[0] {
		return nil
	}
	found := &messages[p.results[0]]
	p.results = p.results[1:]
	return found
}

// maxID is what OpenAI allows; Anthropic names no limit.
const maxID = 40

// wireIDs gives each call of a request an id of its own that all providers
// accept: its own where possible. Ids come from other providers too, and are
// unique within their turn only.
type wireIDs map[string]bool

func (used wireIDs) next(id agent.CallID) agent.CallID {
	wire := string(id)
	if len(wire) > maxID || !allowed(wire) {
		wire = "call_" + agent.SHA256(wire)[:24]
	}
	base := wire
	for n := 2; used[wire]; n++ {
		suffix := fmt.Sprintf("_%d", n)
		wire = base[:min(len(base), maxID-len(suffix))] + suffix
	}
	used[wire] = true
	return agent.CallID(wire)
}

// maxName is OpenAI's limit for a tool's name and was Anthropic's.
const maxName = 64

// wireName makes the name of a tool, as a model once wrote it, one that
// providers take back.
func wireName(name string) string {
	name = strings.Map(func(r rune) rune {
		if allowed(string(r)) {
			return r
		}
		return '_'
	}, name)
	if name == "" {
		return "unknown"
	}
	return name[:min(len(name), maxName)]
}

// allowed reports whether s is not empty and all of [a-zA-Z0-9_-].
func allowed(s string) bool {
	for _, r := range s {
		if !('a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9' || r == '_' || r == '-') {
			return false
		}
	}
	return s != ""
}

// object returns raw if it is a JSON object, else an empty one.
func object(raw string) string {
	raw = agent.Clean(raw)
	if !json.Valid([]byte(raw)) || !strings.HasPrefix(strings.TrimSpace(raw), "{") {
		return "{}"
	}
	return raw
}

func blank(s string) bool { return strings.TrimSpace(s) == "" }
