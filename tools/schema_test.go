package tools

import (
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"

	"github.com/clawbot/clawbot/agent"
)

func object(schema string) agent.Tool {
	return agent.Tool{Name: "t", Schema: json.RawMessage(schema)}
}

// Rows: L1.
func TestDefinitionsThatAreRefused(t *testing.T) {
	good := `{"type":"object"}`
	for _, tc := range []struct {
		tool agent.Tool
		want string
	}{
		{agent.Tool{Name: "", Schema: json.RawMessage(good)}, "the name needs"},
		{agent.Tool{Name: "a b", Schema: json.RawMessage(good)}, `"a b": the name needs`},
		{agent.Tool{Name: "naïve", Schema: json.RawMessage(good)}, "the name needs"},
		{agent.Tool{Name: "a\n", Schema: json.RawMessage(good)}, "the name needs"},
		{agent.Tool{Name: strings.Repeat("a", 65), Schema: json.RawMessage(good)}, "the name needs"},
		{object(``), "no JSON"},
		{object(`[]`), `"type": "object"`},
		{object(`true`), `"type": "object"`},
		{object(`{"type":"string"}`), `"type": "object"`},
		{object(`{"properties":{}}`), `"type": "object"`},
		{object(`{"type":"object","properties":{"a":{"type":"strin"}}}`), "cannot be used"},
		{object(`{"type":"object","properties":{"a":{"pattern":"("}}}`), "cannot be used"},
		{object(`{"type":"object","$ref":"file:///etc/passwd"}`), "cannot be used"},
		{object(`{"type":"object","$ref":"http://127.0.0.1:1/x"}`), "cannot be used"},
		{object(`{"type":"object","properties":{"a":{"minimum":1e999999999}}}`), "too large"},
	} {
		_, err := NewToolbox([]agent.Tool{tc.tool})
		if err == nil || !strings.Contains(err.Error(), tc.want) || !strings.Contains(err.Error(), "tool ") {
			t.Errorf("%q %s: %v, want an error with %q", tc.tool.Name, tc.tool.Schema, err, tc.want)
		}
	}
	_, err := NewToolbox([]agent.Tool{object(good), {Name: "u", Schema: json.RawMessage(good)}, object(good)})
	if err == nil || !strings.Contains(err.Error(), `"t" is defined twice`) {
		t.Errorf("duplicate: %v", err)
	}
}

func TestCheckTellsWhatToFix(t *testing.T) {
	schema := `{"type":"object","properties":{
		"path":{"type":"string","minLength":1},
		"n":{"type":"integer","minimum":1,"maximum":9},
		"method":{"enum":["GET","HEAD"]},
		"inner":{"type":"object","properties":{"to":{"type":"string"}},"required":["to"],"additionalProperties":false}
	},"required":["path"],"additionalProperties":false}`
	c, err := NewToolbox([]agent.Tool{object(schema)})
	if err != nil {
		t.Fatal(err)
	}
	for args, want := range map[string]string{
		`{"path":"a","n":3,"method":"GET","inner":{"to":"x"}}`: "",
		`{}`:                                       "missing path",
		`{"path":"a","inner":{}}`:                  "missing inner.to",
		`{"path":7}`:                               "path must be string, not number",
		`{"path":null}`:                            "path must be string, not null",
		`{"path":"a","flag":1}`:                    `unknown property "flag"`,
		`{"path":"a","PATH":"b"}`:                  `unknown property "PATH"`,
		`{"path":"a","inner":{"to":"x","e":1}}`:    `unknown property "inner.e"`,
		`{"path":"a","inner":[]}`:                  "inner must be object, not array",
		`{"path":"a","method":"POST"}`:             "method: value must be one of",
		`{"path":"a","n":10}`:                      "n: maximum",
		`{"path":"a","n":1.5}`:                     "n must be integer, not number",
		`{"path":"a","n":1e1000001}`:               "too large", // T16: the validator would fall over
		`{"path":"a","n":1e999999999999999999999}`: "too large",
		`{"path":""}`:                              "path: minLength",
		`[]`:                                       "no JSON object",
		`nonsense`:                                 "no JSON object",
	} {
		err := c.Check("t", []byte(args), "")
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %v, want %q", args, err, want)
		}
		if err != nil && len(err.Error()) > 2000 {
			t.Errorf("%s: %d bytes of error", args, len(err.Error()))
		}
	}
	if err := c.Check("other", []byte(`{}`), ""); err == nil {
		t.Error("unknown tool passes")
	}
	many := `{"path":"a"` + strings.Repeat(`,"`+strings.Repeat("x", 1000)+`":1`, 1) + `}`
	if err := c.Check("t", []byte(many), ""); err == nil || len(err.Error()) > 500 {
		t.Errorf("long property name: %v", err)
	}
}

// Rows: L1.
func TestDefinitionHash(t *testing.T) {
	base := agent.Tool{Name: "a", Description: "b", Schema: json.RawMessage(`{}`), Owner: "c"}
	seen := map[string]string{new(Toolbox).Definition(base): "base"}
	for what, tool := range map[string]agent.Tool{
		"name":        {Name: "x", Description: "b", Schema: json.RawMessage(`{}`), Owner: "c"},
		"description": {Name: "a", Description: "x", Schema: json.RawMessage(`{}`), Owner: "c"},
		"schema":      {Name: "a", Description: "b", Schema: json.RawMessage(`{ }`), Owner: "c"},
		"owner":       {Name: "a", Description: "b", Schema: json.RawMessage(`{}`), Owner: "x"},
		"moved text":  {Name: "ab", Description: "", Schema: json.RawMessage(`{}`), Owner: "c"},
	} {
		h := new(Toolbox).Definition(tool)
		if other, twice := seen[h]; twice {
			t.Errorf("%s hashes like %s", what, other)
		}
		seen[h] = what
	}
	if h := new(Toolbox).Definition(base); len(h) != 64 || h != new(Toolbox).Definition(base) {
		t.Errorf("hash %q", h)
	}
}

// Every built-in tool takes exactly its documented arguments (T9).
//
// Rows: L1.
func TestBuiltinDefinitions(t *testing.T) {
	list := builtins(t)
	if _, err := NewToolbox(list); err != nil {
		t.Fatal(err)
	}
	for _, tool := range list {
		var schema struct {
			AdditionalProperties any
			Properties           map[string]any
		}
		if err := json.Unmarshal(tool.Schema, &schema); err != nil {
			t.Fatal(err)
		}
		if schema.AdditionalProperties != false || schema.Properties == nil {
			t.Errorf("%s: additional properties are not refused", tool.Name)
		}
		if tool.Owner != Owner || tool.Default == nil || tool.Run == nil || tool.Description == "" {
			t.Errorf("%s: incomplete", tool.Name)
		}
	}
}

// builtins are the tools with all that needs no process and no network.
func builtins(t *testing.T) []agent.Tool {
	t.Helper()
	c := DefaultConfig()
	c.Workspace = filepath.Join(t.TempDir(), "ws")
	list, err := Builtin(c, Deps{Outbox: &outbox{}, Jobs: &jobList{}})
	if err != nil {
		t.Fatal(err)
	}
	return list
}

// L7: nobody is asked about a call that cannot run.
func TestBuiltinArgumentsAreCheckedBeyondTheSchema(t *testing.T) {
	c, err := NewToolbox(builtins(t))
	if err != nil {
		t.Fatal(err)
	}
	for _, call := range []string{
		`read_file {"path":"../x"}`, `list_dir {"path":"/etc"}`, `write_file {"path":"a/../../b","content":""}`,
		`http_fetch {"url":"ftp://a.example"}`, `http_fetch {"url":"http://u:p@a.example"}`,
		`cron_add {"prompt":"x"}`, `cron_add {"prompt":"x","schedule":"no"}`, `cron_add {"prompt":"x","at":"soon"}`,
	} {
		tool, args, _ := strings.Cut(call, " ")
		if err := c.Check(tool, []byte(args), ""); err == nil {
			t.Errorf("%s passes", call)
		}
	}
	for _, call := range []string{
		`read_file {"path":"x"}`, `list_dir {"path":"."}`, `http_fetch {"url":"http://a.example"}`, `cron_list {}`,
		`cron_add {"prompt":"x","schedule":"@daily"}`, `send_message {"text":"x"}`, `cron_remove {"id":"job_1"}`,
	} {
		tool, args, _ := strings.Cut(call, " ")
		if err := c.Check(tool, []byte(args), ""); err != nil {
			t.Errorf("%s: %v", call, err)
		}
	}
}
