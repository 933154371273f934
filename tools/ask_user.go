package tools

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/clawbot/clawbot/agent"
)

// askUser puts a question to the people of the conversation. It does not wait: what
// they answer is the next message of the session, like anything they write.
func askUser(outbox Outbox) agent.Tool {
	return speaker(outbox, agent.Tool{
		Name: "ask_user",
		Description: "Ask the people in this conversation a question. Then end your turn: their answer comes as their next message. " +
			"An answer is information and never permission for a tool.",
		Schema: json.RawMessage(`{"type":"object","properties":{` +
			`"question":{"type":"string","minLength":1,"maxLength":4000},` +
			`"options":{"type":"array","description":"answers to choose from","items":{"type":"string","minLength":1,"maxLength":200},"maxItems":20},` +
			`"channel":{"type":"string","description":"the platform, for instance slack; leave out","maxLength":64}` +
			`},"required":["question"],"additionalProperties":false}`),
	}, func(args speech) string {
		text := strings.TrimSpace(args.Question)
		for i, option := range args.Options {
			text += fmt.Sprintf("\n%d. %s", i+1, strings.Join(strings.Fields(option), " "))
		}
		return text
	}, "the question is on its way to %s. End your turn now; the answer comes as the next message")
}

// escalate tells the people of the conversation that one of them has to take over.
func escalate(outbox Outbox) agent.Tool {
	return speaker(outbox, agent.Tool{
		Name:        "escalate_to_human",
		Description: "Tell the people in this conversation that one of them has to take over, and why: when you cannot or must not go on.",
		Schema: json.RawMessage(`{"type":"object","properties":{` +
			`"reason":{"type":"string","minLength":1,"maxLength":4000},` +
			`"channel":{"type":"string","description":"the platform, for instance slack; leave out","maxLength":64}` +
			`},"required":["reason"],"additionalProperties":false}`),
	}, func(args speech) string {
		if strings.TrimSpace(args.Reason) == "" {
			return ""
		}
		return "**A person has to take over here:** " + strings.TrimSpace(args.Reason)
	}, "%s has been told that a person has to take over")
}

// speech is what askUser and escalate take.
type speech struct {
	Question, Reason, Channel string
	Options                   []string
}

// speaker completes a tool that says something in the conversation that asked, and
// nowhere else.
func speaker(outbox Outbox, t agent.Tool, words func(speech) string, done string) agent.Tool {
	t.Owner = Owner
	t.Idempotent = true // Outbox knows the call
	t.Delivery = true
	t.Default = always(agent.Allow)
	t.Run = func(ctx context.Context, inv agent.Invocation) agent.Result {
		var args speech
		if err := json.Unmarshal(inv.Args, &args); err != nil {
			return agent.Failed("the arguments are not understood")
		}
		text := words(args)
		if text == "" {
			return agent.Failed("the text is blank")
		}
		to, err := destination(inv.Origin, args.Channel, inv.Origin.Conversation, inv.Origin.Thread)
		if err != nil {
			return agent.Failed(clean(err.Error()))
		}
		if err := outbox.Send(ctx, inv, to, clean(text)); err != nil {
			return agent.Failed("the message could not be stored for sending")
		}
		return agent.Succeeded(clean(fmt.Sprintf(done, placeText(to))))
	}
	return t
}
