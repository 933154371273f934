package provider

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"sync"

	"github.com/clawbot/clawbot/agent"
)

// Definition is a tool as a provider is told of it.
type Definition struct {
	Name        string
	Description string
	Schema      map[string]any // an object schema; encodes to the same bytes each time
}

// Specs turns tools into a provider's own form T, and keeps what it made: a schema
// is read and encoded once, and all requests share it. Encode must give the same T
// for the same Definition, and nobody may change a T. Safe for concurrent use.
type Specs[T any] struct {
	Encode func(Definition) T

	mu    sync.Mutex
	known map[specKey]T
}

// specKey is all that a definition is made of.
type specKey struct{ name, description, schema string }

// maxSpecs bounds what is kept; beyond it everything is made anew.
const maxSpecs = 2000

// Of returns the tools in the order of their names, whatever order they came in,
// because providers cache by common beginning. One bad definition would make a
// provider refuse the whole request, with words that name nobody; so it is an error
// here that names the tool and wraps agent.ErrModelRefused.
func (s *Specs[T]) Of(tools []agent.Tool) ([]T, error) {
	if len(tools) == 0 {
		return nil, nil // no field at all: providers refuse an empty list
	}
	ordered := slices.Clone(tools)
	slices.SortFunc(ordered, func(a, b agent.Tool) int { return cmp.Compare(a.Name, b.Name) })
	out := make([]T, len(ordered))
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, tool := range ordered {
		if i > 0 && tool.Name == ordered[i-1].Name {
			return nil, refused("tool %s: the name is used twice", tool.Name)
		}
		spec, ok := s.known[specKey{tool.Name, tool.Description, string(tool.Schema)}]
		if !ok {
			d, err := define(tool)
			if err != nil {
				return nil, err
			}
			if s.known == nil || len(s.known) >= maxSpecs {
				s.known = map[specKey]T{}
			}
			spec = s.Encode(d)
			s.known[specKey{tool.Name, tool.Description, string(tool.Schema)}] = spec
		}
		out[i] = spec
	}
	return out, nil
}

func define(tool agent.Tool) (Definition, error) {
	if !allowed(tool.Name) || len(tool.Name) > maxName {
		return Definition{}, refused("tool %q: a name has 1 to %d characters of a-z, A-Z, 0-9, _ and -", tool.Name, maxName)
	}
	schema, err := objectSchema(tool.Schema)
	if err != nil {
		return Definition{}, refused("tool %s: %v", tool.Name, err)
	}
	return Definition{tool.Name, agent.Clean(tool.Description), schema}, nil
}

// PastDefinitions returns a definition for each tool that the history has calls
// of: Anthropic refuses calls in a request that defines no tool at all.
func PastDefinitions(history []agent.Message) []Definition {
	var names []string
	for _, m := range history {
		for _, call := range m.Calls {
			names = append(names, call.Tool)
		}
	}
	slices.Sort(names)
	var out []Definition
	for _, name := range slices.Compact(names) {
		out = append(out, Definition{name, "No longer available.", map[string]any{"type": "object", "properties": map[string]any{}}})
	}
	return out
}

// objectSchema brings a schema to what both providers take: an object with
// properties and without alternatives at its top. Leaving the alternatives out
// only tells the model less; the engine checks arguments against the original.
func objectSchema(raw json.RawMessage) (map[string]any, error) {
	schema := map[string]any{}
	if len(bytes.TrimSpace(raw)) > 0 {
		dec := json.NewDecoder(bytes.NewReader(raw))
		dec.UseNumber()
		if err := dec.Decode(&schema); err != nil {
			return nil, fmt.Errorf("its schema is no JSON object: %w", err)
		}
	}
	if schema == nil {
		schema = map[string]any{}
	}
	if t, ok := schema["type"]; ok && t != "object" {
		return nil, fmt.Errorf("its schema is of type %v, an object is needed", t)
	}
	schema["type"] = "object"
	if _, ok := schema["properties"].(map[string]any); !ok {
		schema["properties"] = map[string]any{}
	}
	for _, keyword := range []string{"oneOf", "anyOf", "allOf", "not", "enum"} {
		delete(schema, keyword)
	}
	return schema, nil
}
