package modeltest

import (
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"sort"
	"strings"
)

// The rules that both APIs share. Messages of the errors resemble theirs, so
// that what a log says in a test is what it says in earnest.

var (
	toolName = regexp.MustCompile(`^[a-zA-Z0-9_-]{1,64}$`)
	callID   = regexp.MustCompile(`^[a-zA-Z0-9_-]+$`)
)

// checkFields refuses fields at the top of the body that the API does not know.
func checkFields(body []byte, known string) error {
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(body, &fields); err != nil {
		return fmt.Errorf("the body is no JSON object: %v", err)
	}
	var unknown []string
	for name := range fields {
		if !strings.Contains(" "+known+" ", " "+name+" ") {
			unknown = append(unknown, name)
		}
	}
	if sort.Strings(unknown); len(unknown) > 0 {
		return fmt.Errorf("unknown fields: %s", strings.Join(unknown, ", "))
	}
	return nil
}

func checkTools(tools []Tool) error {
	seen := map[string]bool{}
	for i, tool := range tools {
		if !toolName.MatchString(tool.Name) {
			return fmt.Errorf("tools.%d.name: %q does not match %s", i, tool.Name, toolName)
		}
		if seen[tool.Name] {
			return fmt.Errorf("tools: tool names must be unique, %q is not", tool.Name)
		}
		seen[tool.Name] = true
		var schema map[string]json.RawMessage
		if err := json.Unmarshal(tool.Schema, &schema); err != nil || schema == nil {
			return fmt.Errorf("tools.%d: the schema of %s is no JSON object", i, tool.Name)
		}
		if string(schema["type"]) != `"object"` {
			return fmt.Errorf("tools.%d: the schema of %s must have type object", i, tool.Name)
		}
		for _, keyword := range []string{"oneOf", "anyOf", "allOf"} {
			if _, ok := schema[keyword]; ok {
				return fmt.Errorf("tools.%d: the schema of %s must not have %s at the top level", i, tool.Name, keyword)
			}
		}
	}
	return nil
}

// checkCalls checks the calls of one answer and adds their ids to seen.
func checkCalls(calls []ToolCall, seen map[string]bool) error {
	for _, call := range calls {
		if !callID.MatchString(call.ID) {
			return fmt.Errorf("the id %q of a call does not match %s", call.ID, callID)
		}
		if seen[call.ID] {
			return fmt.Errorf("the ids of calls must be unique, %s is not", call.ID)
		}
		seen[call.ID] = true
		if !toolName.MatchString(call.Name) {
			return fmt.Errorf("the name %q of the call %s does not match %s", call.Name, call.ID, toolName)
		}
		var object map[string]json.RawMessage
		if err := json.Unmarshal([]byte(call.Arguments), &object); err != nil || object == nil {
			return fmt.Errorf("the arguments of the call %s are no JSON object", call.ID)
		}
	}
	return nil
}

// checkConversation checks what holds between the messages: the first is a
// person's, every call is answered right after it and nothing else is.
func checkConversation(messages []Message) error {
	if len(messages) == 0 {
		return errors.New("messages: at least one message is required")
	}
	if messages[0].Role != "user" {
		return fmt.Errorf("messages: the first message must be of role user, it is of %s", messages[0].Role)
	}
	var open []string // calls without a result so far
	for i, m := range messages {
		if m.Role == "tool" {
			at := -1
			for j, id := range open {
				if id == m.CallID {
					at = j
				}
			}
			if at < 0 {
				return fmt.Errorf("messages.%d: the tool result for %q answers no call of the message before it", i, m.CallID)
			}
			open = append(open[:at:at], open[at+1:]...)
			continue
		}
		if len(open) > 0 {
			return fmt.Errorf("messages.%d: these calls have no tool result right after them: %s", i, strings.Join(open, ", "))
		}
		for _, call := range m.Calls {
			open = append(open, call.ID)
		}
	}
	if len(open) > 0 {
		return fmt.Errorf("messages: these calls have no tool result right after them: %s", strings.Join(open, ", "))
	}
	if last := messages[len(messages)-1]; last.Role == "assistant" {
		return errors.New("messages: the last message must not be of role assistant")
	}
	return nil
}
