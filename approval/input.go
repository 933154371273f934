package approval

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/clawbot/clawbot/agent"
)

// maxTyped bounds what a person may type into a question, in bytes.
const maxTyped = 64 << 10

// typed cleans what a person typed: valid UTF-8, no control characters but line
// breaks and tabs, nothing blank around it.
func typed(s string) (string, error) {
	s = strings.ReplaceAll(strings.ReplaceAll(agent.Clean(s), "\r\n", "\n"), "\r", "\n")
	s = strings.TrimSpace(strings.Map(func(r rune) rune {
		if r < ' ' && r != '\n' && r != '\t' || r == 0x7f || r >= 0x80 && r < 0xa0 {
			return -1
		}
		return r
	}, s))
	switch {
	case s == "":
		return "", errors.New("it is empty")
	case len(s) > maxTyped:
		return "", fmt.Errorf("it is longer than %d bytes", maxTyped)
	}
	return s, nil
}

// withValue returns the arguments of a question with the value that a person gave,
// as canonical bytes that pass the tool's own check. The error is for that person
// and does not repeat a secret value.
func withValue(box agent.Toolbox, a agent.Approval, value string) (args string, tool agent.Tool, err error) {
	list := box.Tools()
	i := slices.IndexFunc(list, func(t agent.Tool) bool { return t.Name == a.Tool })
	if i < 0 {
		return "", tool, errors.New("the tool is not available here any more")
	}
	tool = list[i]
	members := map[string]json.RawMessage{}
	if err := json.Unmarshal([]byte(a.Args), &members); err != nil {
		return "", tool, errors.New("the stored arguments cannot be read")
	}
	if members[a.TargetArg], err = argument(tool, a.TargetArg, value); err != nil {
		return "", tool, err
	}
	if args, err = agent.CanonicalOf(members); err != nil {
		return "", tool, errors.New("it cannot be written as an argument")
	}
	if err := box.Check(a.Tool, []byte(args), ""); err != nil {
		if a.Secret {
			return "", tool, errors.New("the tool does not take it")
		}
		return "", tool, err
	}
	return args, tool, nil
}

// argument writes a typed text as the JSON that the tool's schema wants there: the
// text itself where it may be a text, else what the text says as JSON.
func argument(tool agent.Tool, name, text string) (json.RawMessage, error) {
	var schema struct {
		Properties map[string]struct {
			Type any `json:"type"`
		} `json:"properties"`
	}
	if err := json.Unmarshal(tool.Schema, &schema); err != nil {
		return nil, errors.New("the tool's schema cannot be read")
	}
	var types []string
	switch t := schema.Properties[name].Type.(type) {
	case string:
		types = []string{t}
	case []any:
		for _, e := range t {
			types = append(types, fmt.Sprint(e))
		}
	}
	if len(types) == 0 || slices.Contains(types, "string") {
		return json.Marshal(text)
	}
	canonical, err := agent.Canonical(`{"v":` + text + `}`)
	if err != nil || !utf8.ValidString(canonical) {
		return nil, fmt.Errorf("it must be %s", strings.Join(types, " or "))
	}
	var v struct {
		V json.RawMessage `json:"v"`
	}
	var members map[string]json.RawMessage
	if json.Unmarshal([]byte(canonical), &v) != nil || json.Unmarshal([]byte(canonical), &members) != nil || len(members) != 1 {
		return nil, fmt.Errorf("it must be %s", strings.Join(types, " or "))
	}
	return v.V, nil
}
