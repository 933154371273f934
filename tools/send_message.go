package tools

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/clawbot/clawbot/agent"
)

// Outbox sends messages for send_message.
type Outbox interface {
	// Send stores text for delivery to a place. A second call with the same
	// Session, Turn and Call of inv changes nothing and returns nil. The error's
	// text is not shown to the model.
	Send(ctx context.Context, inv agent.Invocation, to agent.Place, text string) error
}

func sendMessage(outbox Outbox) agent.Tool {
	return agent.Tool{
		Name: "send_message",
		Description: "Send a message. Without a destination it goes to the conversation and thread that asked; " +
			"your final answer goes there anyway, so use this for other places or for news along the way.",
		Schema: json.RawMessage(`{"type":"object","properties":{` +
			`"text":{"type":"string","description":"the message, Markdown","minLength":1,"maxLength":40000},` +
			`"channel":{"type":"string","description":"the platform, for instance slack; leave out","maxLength":64},` +
			`"conversation":{"type":"string","description":"id of the conversation on the platform; leave out for the one that asked","maxLength":200},` +
			`"thread":{"type":"string","description":"id of the thread; leave out for the one that asked","maxLength":200}` +
			`},"required":["text"],"additionalProperties":false}`),
		Owner:      Owner,
		Idempotent: true, // Outbox knows the call
		Delivery:   true,
		Default: func(args map[string]any, origin agent.Origin) agent.Action {
			here := origin.Conversation != "" &&
				args["channel"] == string(origin.Channel) &&
				args["conversation"] == origin.Conversation &&
				text(args["thread"]) == origin.Thread
			if here {
				return agent.Allow
			}
			return agent.Ask
		},
		Run: func(ctx context.Context, inv agent.Invocation) agent.Result {
			var args struct{ Text, Channel, Conversation, Thread string }
			if err := json.Unmarshal(inv.Args, &args); err != nil {
				return agent.Failed("the arguments are no JSON object with a text")
			}
			if strings.TrimSpace(args.Text) == "" {
				return agent.Failed("the text is blank")
			}
			to, err := destination(inv.Origin, args.Channel, args.Conversation, args.Thread)
			if err != nil {
				return agent.Failed(clean(err.Error()))
			}
			if err := outbox.Send(ctx, inv, to, clean(args.Text)); err != nil {
				return agent.Failed("the message could not be stored for sending")
			}
			return agent.Succeeded(clean("the message is on its way to " + placeText(to)))
		},
	}
}

// text is a string argument; "" if it is missing, NUL if it is no string, so
// that it equals nothing.
func text(v any) string {
	switch v := v.(type) {
	case nil:
		return ""
	case string:
		return v
	}
	return "\x00"
}

// destination builds a place from arguments. The workspace comes from the
// origin, so nothing can be sent to another installation, and hence to no other
// platform.
func destination(origin agent.Origin, channel, conversation, thread string) (agent.Place, error) {
	if strings.TrimSpace(conversation) == "" {
		return agent.Place{}, fmt.Errorf("no conversation is named, and this turn has none of its own: name one")
	}
	if channel = strings.TrimSpace(channel); channel != "" && channel != string(origin.Channel) {
		return agent.Place{}, fmt.Errorf("channel is the platform, and messages go to the one that asked: write %s, or leave it out (an id like %s belongs into the conversation)",
			name(string(origin.Channel)), name(channel))
	}
	if strings.TrimSpace(thread) == "" {
		thread = ""
	}
	return agent.Place{Channel: origin.Channel, Workspace: origin.Workspace, Conversation: conversation, Thread: thread}, nil
}

func placeText(p agent.Place) string {
	s := name(string(p.Channel)) + " " + name(p.Conversation)
	if p.Thread != "" {
		s += ", thread " + name(p.Thread)
	}
	return s
}
