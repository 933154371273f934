package tools

import (
	"encoding/json"
	"strings"

	"github.com/clawbot/clawbot/agent"
)

// The values of a job's delivery mode.
const (
	ModePost = "post" // the answer is posted at the place that delivery names
	ModeNone = "none" // the run is recorded and nothing is posted
)

// Fill implements agent.Toolbox. It writes where a message came from into the
// delivery arguments that a call leaves missing, null or blank, and returns the
// new arguments in canonical form with the names of what it filled, e.g.
// "thread" or "delivery.to". It applies to tools with Delivery and to the
// arguments that their schema knows; it reads and changes nothing else.
//
//   - A given value is never overridden.
//   - channel is the platform ("slack"), conversation the conversation on it
//     (in a job's delivery it is called to), thread the thread in that.
//   - Where a call names another platform, its conversation and thread are not
//     filled; where it names another conversation, its thread is not.
//   - An argument "delivery" (cron_add): missing or null becomes the whole
//     object, of an object the gaps are filled, mode none is left alone, and
//     what is no object is left for the schema to refuse.
//   - An origin without a conversation fills nothing.
//
// The workspace is no argument: it always comes from the origin.
func (*Toolbox) Fill(tool agent.Tool, args []byte, origin agent.Origin) (filledArgs []byte, filled []string, err error) {
	canonical, err := agent.Canonical(string(args))
	if err != nil {
		return nil, nil, err
	}
	if !tool.Delivery || origin.Conversation == "" {
		return []byte(canonical), nil, nil
	}
	var schema struct {
		Properties map[string]json.RawMessage `json:"properties"`
	}
	if err := json.Unmarshal(tool.Schema, &schema); err != nil {
		return nil, nil, err
	}
	var object map[string]json.RawMessage
	if err := json.Unmarshal([]byte(canonical), &object); err != nil {
		return nil, nil, err
	}
	knows := func(name string) bool { return schema.Properties[name] != nil }
	if knows("delivery") {
		filled, err = fillJob(object, origin.Place)
		if err != nil {
			return nil, nil, err
		}
	} else {
		filled = fillPlace(object, origin.Place, "conversation", knows)
	}
	if len(filled) == 0 {
		return []byte(canonical), nil, nil
	}
	canonical, err = agent.CanonicalOf(object)
	if err != nil {
		return nil, nil, err
	}
	return []byte(canonical), filled, nil
}

// fillJob fills the argument "delivery" of cron_add.
func fillJob(args map[string]json.RawMessage, place agent.Place) (filled []string, err error) {
	delivery := map[string]json.RawMessage{}
	raw := args["delivery"]
	if raw != nil && string(raw) != "null" {
		if raw[0] != '{' {
			return nil, nil // the schema refuses it
		}
		if err := json.Unmarshal(raw, &delivery); err != nil {
			return nil, err
		}
	}
	if mode, ok := given(delivery["mode"]); ok && strings.TrimSpace(mode) == ModeNone {
		return nil, nil
	}
	any := func(string) bool { return true }
	if blank(delivery["mode"]) {
		delivery["mode"] = json.RawMessage(`"` + ModePost + `"`)
		filled = append(filled, "mode")
	}
	filled = append(filled, fillPlace(delivery, place, "to", any)...)
	if len(filled) == 0 {
		return nil, nil
	}
	for i := range filled {
		filled[i] = "delivery." + filled[i]
	}
	args["delivery"], err = json.Marshal(delivery)
	return filled, err
}

// fillPlace fills channel, conversation (under the given name) and thread.
func fillPlace(args map[string]json.RawMessage, place agent.Place, conversation string, knows func(string) bool) (filled []string) {
	fill := func(name, value string) {
		if value != "" && knows(name) && blank(args[name]) {
			args[name], _ = json.Marshal(value) // a string always can be
			filled = append(filled, name)
		}
	}
	other := func(name, value string) bool {
		return !blank(args[name]) && !is(args[name], value)
	}
	fill("channel", string(place.Channel))
	if other("channel", string(place.Channel)) {
		return filled
	}
	fill(conversation, place.Conversation)
	if other(conversation, place.Conversation) {
		return filled
	}
	fill("thread", place.Thread)
	return filled
}

// blank reports whether an argument is missing, null, empty or white space.
func blank(raw json.RawMessage) bool {
	if raw == nil || string(raw) == "null" {
		return true
	}
	s, ok := given(raw)
	return ok && strings.TrimSpace(s) == ""
}

func is(raw json.RawMessage, value string) bool {
	s, ok := given(raw)
	return ok && s == value
}

// given reads a string; false if the argument is none.
func given(raw json.RawMessage) (string, bool) {
	if len(raw) == 0 || raw[0] != '"' {
		return "", false
	}
	var s string
	if json.Unmarshal(raw, &s) != nil {
		return "", false
	}
	return s, true
}
