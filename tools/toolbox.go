package tools

import (
	"encoding/hex"
	"errors"
	"fmt"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/clawbot/clawbot/agent"
)

// Toolbox implements agent.Toolbox for a set of tools, whose schemas it has
// compiled. It never changes and may be used by many goroutines.
type Toolbox struct {
	list    []agent.Tool
	schemas map[string]*jsonschema.Schema
	checks  map[string]func(args []byte) error // of built-in tools, beyond the schema
}

var _ agent.Toolbox = (*Toolbox)(nil)

// NewToolbox compiles the schemas of the tools. The error names each tool
// whose definition cannot be used, and two tools of one name.
func NewToolbox(list []agent.Tool) (*Toolbox, error) {
	b := &Toolbox{list: list, schemas: map[string]*jsonschema.Schema{}, checks: map[string]func([]byte) error{}}
	var errs []error
	for _, t := range list {
		schema, err := compile(t)
		if err == nil && b.schemas[t.Name] != nil {
			err = fmt.Errorf("tool %q is defined twice: rename one of them or its server", t.Name)
		}
		if err != nil {
			errs = append(errs, err)
			continue
		}
		b.schemas[t.Name] = schema
		b.checks[t.Name] = precheck(t)
	}
	if len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	return b, nil
}

// Tools implements agent.Toolbox.
func (b *Toolbox) Tools() []agent.Tool { return b.list }

// Definition implements agent.Toolbox. It hashes what people trust a tool by:
// its name, description, schema and owner.
func (*Toolbox) Definition(t agent.Tool) string {
	sum := agent.HashParts(t.Name, t.Description, string(t.Schema), t.Owner)
	return hex.EncodeToString(sum[:])
}
