package provider

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/clawbot/clawbot/agent"
)

// list returns n tools whose schemas take about so many bytes each.
func list(n, bytes int) []agent.Tool {
	out := make([]agent.Tool, n)
	for i := range out {
		out[i] = agent.Tool{
			Name: fmt.Sprintf("tool_%02d", n-i), Description: "does something",
			Schema: json.RawMessage(`{"type":"object","properties":{"a":{"description":"` + strings.Repeat("x", bytes) + `"}}}`),
		}
	}
	return out
}

// The definitions of a request cost two allocations, however many tools there are and
// however large: what was made of a schema is shared by all requests. A tool that
// changes in any part is made anew, and what is kept has a bound.
//
// Rows: L5.
func TestSpecsAreShared(t *testing.T) {
	made := 0
	specs := Specs[*Definition]{Encode: func(d Definition) *Definition { made++; return &d }}
	of := func(tools []agent.Tool) []*Definition {
		t.Helper()
		out, err := specs.Of(tools)
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	for _, tools := range [][]agent.Tool{list(3, 10), list(40, 50_000)} {
		first := of(tools)
		if allocs := testing.AllocsPerRun(100, func() { of(tools) }); allocs > 2 {
			t.Errorf("%d tools take %v allocations", len(tools), allocs)
		}
		for i, again := range of(tools) {
			if again != first[i] {
				t.Errorf("%s was made again", again.Name)
			}
		}
	}
	before, tool := made, list(3, 10)[0]
	for _, change := range []func(*agent.Tool){
		func(t *agent.Tool) { t.Name = "another" }, func(t *agent.Tool) { t.Description = "does harm" }, func(t *agent.Tool) { t.Schema = json.RawMessage(`{}`) },
	} {
		changed := tool
		change(&changed)
		if d := of([]agent.Tool{changed})[0]; d.Name != changed.Name || d.Description != changed.Description || len(d.Schema) != 2 {
			t.Errorf("%+v became %+v", changed, d)
		}
	}
	if made != before+3 {
		t.Errorf("%d definitions were made of three changed tools", made-before)
	}
	for i := range 3 * maxSpecs {
		of([]agent.Tool{{Name: fmt.Sprint("many_", i)}})
		if n := len(specs.known); n > maxSpecs {
			t.Fatalf("%d are kept", n)
		}
	}
}
