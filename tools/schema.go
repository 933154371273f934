package tools

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/santhosh-tekuri/jsonschema/v6/kind"
	"golang.org/x/text/language"
	"golang.org/x/text/message"

	"github.com/clawbot/clawbot/agent"
)

// Bounds of what a refusal tells the model.
const (
	maxProblems     = 5
	maxProblemBytes = 300
)

var toolName = regexp.MustCompile(`^[a-zA-Z0-9_-]{1,64}$`)

// Check implements agent.Toolbox.
func (b *Toolbox) Check(tool string, args []byte, later string) (err error) {
	schema := b.schemas[tool]
	if schema == nil {
		return fmt.Errorf("there is no tool %q", tool)
	}
	defer func() { // the validator meets data of strangers
		if r := recover(); r != nil {
			err = fmt.Errorf("the arguments of %s cannot be checked: %v", tool, r)
		}
	}()
	value, err := jsonschema.UnmarshalJSON(bytes.NewReader(args))
	if err != nil {
		return fmt.Errorf("the arguments of %s are no JSON object", tool)
	}
	if _, ok := value.(map[string]any); !ok {
		return fmt.Errorf("the arguments of %s are no JSON object", tool)
	}
	if bad := hugeNumber(value); bad != "" {
		return fmt.Errorf("the arguments of %s hold a number that is too large: %s", tool, short(bad, 40))
	}
	if err := schema.Validate(value); err != nil {
		return unfit(tool, err, later)
	}
	if later != "" {
		return nil // what follows needs the whole
	}
	if check := b.checks[tool]; check != nil {
		if err := check(args); err != nil {
			return fmt.Errorf("the arguments of %s do not fit: %s", tool, short(err.Error(), maxProblemBytes))
		}
	}
	return nil
}

// unfit words what is wrong, without what is wrong with the argument later.
func unfit(tool string, err error, later string) error {
	var v *jsonschema.ValidationError
	if !errors.As(err, &v) {
		return fmt.Errorf("the arguments of %s do not fit: %w", tool, err)
	}
	list := problems(v, later)
	if len(list) == 0 {
		return nil
	}
	return fmt.Errorf("the arguments of %s do not fit: %s", tool, strings.Join(list, "; "))
}

func compile(t agent.Tool) (schema *jsonschema.Schema, err error) {
	if !toolName.MatchString(t.Name) {
		return nil, fmt.Errorf("tool %q: the name needs 1 to 64 of a-z, A-Z, 0-9, _ and -", short(t.Name, 80))
	}
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("tool %q: its schema cannot be used: %v", t.Name, r)
		}
	}()
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(t.Schema))
	if err != nil {
		return nil, fmt.Errorf("tool %q: its schema is no JSON: %w", t.Name, err)
	}
	object, ok := doc.(map[string]any)
	if !ok || object["type"] != "object" {
		return nil, fmt.Errorf(`tool %q: its schema must be an object with "type": "object"`, t.Name)
	}
	if bad := hugeNumber(doc); bad != "" {
		return nil, fmt.Errorf("tool %q: its schema holds a number that is too large: %s", t.Name, short(bad, 40))
	}
	c := jsonschema.NewCompiler()
	c.UseLoader(noLoader{})
	const url = "clawbot:tool"
	if err := c.AddResource(url, doc); err != nil {
		return nil, fmt.Errorf("tool %q: its schema cannot be used: %w", t.Name, err)
	}
	if schema, err = c.Compile(url); err != nil {
		return nil, fmt.Errorf("tool %q: its schema cannot be used: %s", t.Name, short(err.Error(), maxProblemBytes))
	}
	return schema, nil
}

// noLoader keeps a schema from reading files or the network by $ref.
type noLoader struct{}

func (noLoader) Load(url string) (any, error) {
	return nil, fmt.Errorf("schema refers to %s, and only references within itself are followed", short(url, 80))
}

// hugeNumber finds a number that the validator would expand to an enormous
// fraction, or cannot read at all (1e1000001).
func hugeNumber(v any) string {
	switch v := v.(type) {
	case json.Number:
		s := v.String()
		if len(s) > 400 {
			return s
		}
		if i := strings.IndexAny(s, "eE"); i >= 0 {
			if n, err := strconv.Atoi(s[i+1:]); err != nil || n > 400 || n < -400 {
				return s
			}
		}
	case map[string]any:
		for _, member := range v {
			if bad := hugeNumber(member); bad != "" {
				return bad
			}
		}
	case []any:
		for _, item := range v {
			if bad := hugeNumber(item); bad != "" {
				return bad
			}
		}
	}
	return ""
}

// problems flattens a validation error to its leaves, one sentence each.
func problems(v *jsonschema.ValidationError, later string) []string {
	var list []string
	var walk func(e *jsonschema.ValidationError)
	walk = func(e *jsonschema.ValidationError) {
		if later != "" && len(e.InstanceLocation) > 0 && e.InstanceLocation[0] == later {
			return
		}
		if k, ok := e.ErrorKind.(*kind.Required); ok && later != "" && len(e.InstanceLocation) == 0 {
			k.Missing = slices.DeleteFunc(k.Missing, func(name string) bool { return name == later })
			if len(k.Missing) == 0 {
				return
			}
		}
		if len(e.Causes) == 0 {
			if p := short(problem(e), maxProblemBytes); !slices.Contains(list, p) {
				list = append(list, p)
			}
			return
		}
		for _, cause := range e.Causes {
			walk(cause)
		}
	}
	walk(v)
	slices.Sort(list) // the validator walks maps
	if len(list) > maxProblems {
		list = append(list[:maxProblems], fmt.Sprintf("and %d more", len(list)-maxProblems))
	}
	return list
}

func problem(e *jsonschema.ValidationError) string {
	path := strings.Join(e.InstanceLocation, ".")
	of := func(property string) string {
		if path == "" {
			return property
		}
		return path + "." + property
	}
	at := path
	if at == "" {
		at = "the object"
	}
	switch k := e.ErrorKind.(type) {
	case *kind.Required:
		for i, m := range k.Missing {
			k.Missing[i] = of(m)
		}
		return "missing " + strings.Join(k.Missing, ", ")
	case *kind.AdditionalProperties:
		names := slices.Sorted(slices.Values(k.Properties))
		for i, p := range names {
			names[i] = strconv.Quote(of(p))
		}
		return "unknown property " + strings.Join(names, ", ")
	case *kind.Type:
		return fmt.Sprintf("%s must be %s, not %s", at, strings.Join(k.Want, " or "), k.Got)
	case *kind.FalseSchema:
		return at + " is not allowed"
	}
	return at + ": " + e.ErrorKind.LocalizedString(message.NewPrinter(language.English))
}
