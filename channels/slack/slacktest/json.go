package slacktest

import (
	"bytes"
	"encoding/json"
	"unicode/utf16"
)

// object is a JSON object of Slack's that we look into without a type of its
// own: blocks and views come in more shapes than are worth declaring.
type object map[string]any

func (o object) str(key string) string {
	v, _ := o[key].(string)
	return v
}

func (o object) has(key string) bool {
	v, ok := o[key]
	return ok && v != nil
}

// obj is the object under key, or nil.
func (o object) obj(key string) object {
	v, _ := o[key].(map[string]any)
	return v
}

// list holds the elements under key; those that are no objects are nil.
func (o object) list(key string) []object { return objects(o[key]) }

func objects(v any) []object {
	items, _ := v.([]any)
	out := make([]object, len(items))
	for i, item := range items {
		out[i], _ = item.(map[string]any)
	}
	return out
}

// decodeObjects reads a JSON array of objects.
func decodeObjects(raw json.RawMessage) ([]object, error) {
	if len(raw) == 0 {
		return nil, nil
	}
	var v []any
	if err := json.Unmarshal(raw, &v); err != nil {
		return nil, err
	}
	return objects(v), nil
}

// marshalPlain is json.Marshal that leaves < > & alone.
func marshalPlain(v any) (json.RawMessage, error) {
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimRight(buf.Bytes(), "\n"), nil
}

// length counts UTF-16 code units.
func length(s string) int {
	n := 0
	for _, r := range s {
		n += utf16.RuneLen(r)
	}
	return n
}
