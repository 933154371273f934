// Package demo is a model that needs no network and no key: a script that
// understands a handful of plain wishes, so that everything around the model,
// from approval cards to the audit, can be seen and tried at once. It says what
// it is in the first answer of every session.
//
// A request comes in as for any model. The last message of a person is read for
// wishes (wish.go), which become tool calls; tool results become a sentence
// (answer.go). The same request gives the same reply, except that "remind me in
// 5 minutes" looks at the clock. It has no state and starts nothing.
package demo

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/clawbot/clawbot/agent"
)

// Model is the demo model.
type Model struct{ now func() time.Time }

var _ agent.Model = (*Model)(nil)

// New returns the model. now is the clock for wishes like "in 5 minutes".
func New(now func() time.Time) *Model { return &Model{now} }

// Name returns "demo".
func (m *Model) Name() string { return "demo" }

// Complete implements agent.Model. It fails only when ctx has ended.
func (m *Model) Complete(ctx context.Context, req agent.ModelRequest) (agent.ModelReply, error) {
	if err := ctx.Err(); err != nil {
		return agent.ModelReply{}, fmt.Errorf("demo: %w: %w", agent.ErrModelUnavailable, err)
	}
	reply := m.reply(req)
	reply.Stop = agent.StopEnd
	if len(reply.Calls) > 0 {
		reply.Stop = agent.StopTools
	}
	for _, message := range req.Messages {
		reply.InputTokens += len(message.Text)/4 + 1
	}
	reply.OutputTokens = len(reply.Text)/4 + 1
	return reply, nil
}

func (m *Model) reply(req agent.ModelRequest) agent.ModelReply {
	if batch := lastBatch(req.Messages); batch != nil {
		text := report(batch)
		if req.NoTools {
			text = "I have used up my steps for this message. " + text
		}
		return agent.ModelReply{Text: introduce(req, text)}
	}
	if text := lastText(req.Messages); strings.HasPrefix(text, reminder) {
		return agent.ModelReply{Text: text}
	}
	wishes := parse(lastText(req.Messages), m.now())
	if len(wishes) == 0 {
		return agent.ModelReply{Text: introduce(req, examples)}
	}
	if req.NoTools {
		return agent.ModelReply{Text: introduce(req, "I may not use tools any more for this message.")}
	}
	reply := agent.ModelReply{}
	next := countCalls(req.Messages)
	for _, w := range wishes {
		if !offered(req.Tools, w.tool) {
			reply.Text += unavailable(w.tool) + "\n"
			continue
		}
		next++
		reply.Calls = append(reply.Calls, agent.ProposedCall{
			ID:        agent.CallID(fmt.Sprintf("demo_%d", next)),
			Tool:      w.tool,
			Arguments: w.args,
		})
	}
	if len(reply.Calls) == 0 {
		reply.Text = introduce(req, reply.Text)
	} else {
		reply.Text = announce(req, reply)
	}
	return reply
}

// lastBatch returns what the last answer asked for, with its results, if nobody
// has spoken since; else nil.
func lastBatch(messages []agent.Message) []done {
	results := map[agent.CallID]agent.Message{}
	for i := len(messages) - 1; i >= 0; i-- {
		switch m := messages[i]; m.Role {
		case agent.RoleTool:
			results[m.CallID] = m
		case agent.RoleAssistant:
			var batch []done
			for _, call := range m.Calls {
				result, ok := results[call.ID]
				if !ok {
					result = agent.Message{Text: "there is no result", Failed: true}
				}
				batch = append(batch, done{call.Tool, result})
			}
			return batch
		default:
			return nil
		}
	}
	return nil
}

func lastText(messages []agent.Message) string {
	for i := len(messages) - 1; i >= 0; i-- {
		if messages[i].Role == agent.RoleUser {
			return messages[i].Text
		}
	}
	return ""
}

// countCalls makes ids unique within the session.
func countCalls(messages []agent.Message) int {
	n := 0
	for _, m := range messages {
		n += len(m.Calls)
	}
	return n
}

func offered(tools []agent.Tool, name string) bool {
	for _, tool := range tools {
		if tool.Name == name {
			return true
		}
	}
	return false
}
