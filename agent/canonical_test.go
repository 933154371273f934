package agent

import (
	"encoding/json"
	"math/big"
	"reflect"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// Rows: T1, L42.
func TestCanonical(t *testing.T) {
	for in, want := range map[string]string{
		`{}`:                          `{}`,
		" {\n\t} ":                    `{}`,
		`{"b":1,"a":2}`:               `{"a":2,"b":1}`,
		`{"a" : [ 1 , 2 ] }`:          `{"a":[1,2]}`,
		`{"\u0061":"\u003c\/\u00e9"}`: `{"a":"</é"}`,
		`{"a":"\b\f\n\r\t\"\\"}`:      `{"a":"\b\f\n\r\t\"\\"}`,
		`{"a":"\u0000\u001F\u007f"}`:  `{"a":"\u0000\u001f` + "\x7f" + `"}`,
		`{"a":"\ud83d\ude00"}`:        `{"a":"😀"}`,
		`{"a":1.0,"b":1e5,"c":-0}`:    `{"a":1.0,"b":1e5,"c":-0}`, // as written: rounding would run something else
		`{"a":123456789012345678901}`: `{"a":123456789012345678901}`,
		`{"é":1,"z":2,"Z":3}`:         `{"Z":3,"z":2,"é":1}`, // by bytes
		`{"a":{"c":null,"b":[{}]}}`:   `{"a":{"b":[{}],"c":null}}`,
		`{"a":` + strings.Repeat("[", 63) + strings.Repeat("]", 63) + `}`: `{"a":` + strings.Repeat("[", 63) + strings.Repeat("]", 63) + `}`,
	} {
		if got, err := Canonical(in); err != nil || got != want {
			t.Errorf("Canonical(%s) = %s, %v, want %s", in, got, err, want)
		}
	}
	for name, in := range map[string]string{
		"empty": "", "blank": " \n", "null": "null", "text": `"{}"`, "array": "[]", "number": "1", "cut off": `{"a":`, "cut off in a key": `{"a`,
		"no value": `{"a"}`, "comma": `{"a":1,}`, "comma in an array": `{"a":[1,]}`, "leading comma": `{,}`, "wrong bracket": `{"a":[1}`,
		"two objects": `{}{}`, "rest": `{} x`, "key twice": `{"a":1,"a":1}`, "key twice, escaped": `{"a":1,"\u0061":2}`, "key twice, deeper": `{"x":[{"a":1,"a":2}]}`,
		"keys that are one in text": `{"\ud800":1,"\ud801":2}`, "single quotes": `{'a':1}`, "comment": `{/**/}`, "NaN": `{"a":NaN}`, "leading zero": `{"a":01}`,
		"raw control": "{\"a\":\"\n\"}", "invalid UTF-8": "{\"a\":\"\xff\"}", "byte order mark": "\uFEFF{}", "number as key": `{1:2}`, "object as key": `{{}:1}`,
		"too deep":     `{"a":` + strings.Repeat("[", 64) + strings.Repeat("]", 64) + `}`,
		"far too deep": strings.Repeat(`{"a":`, 1_000_000), "too long": `{"a":"` + strings.Repeat("x", MaxArgsBytes) + `"}`,
	} {
		if got, err := Canonical(in); err == nil {
			t.Errorf("%s: went through as %s", name, Bound(got, 200))
		}
	}
}

// The limits are for what comes from outside; what passed them once and grew since
// is brought back to its form all the same.
func TestRecanonical(t *testing.T) {
	long, err := Canonical(`{"a":[` + strings.Repeat("1,", 500_000) + `1]}`)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := Recanonical(strings.ReplaceAll(long, ",", ", ")); err != nil || got != long {
		t.Errorf("a long one with blanks: %v", err)
	}
	if _, err := Recanonical(strings.Repeat(`{"a":`, 100_000)); err == nil {
		t.Error("there is no end to the depth")
	}
}

// sameValue reports whether two JSON texts mean the same, with numbers compared
// exactly.
func sameValue(a, b string) bool {
	read := func(s string) (v any, err error) {
		dec := json.NewDecoder(strings.NewReader(s))
		dec.UseNumber()
		return v, dec.Decode(&v)
	}
	x, err1 := read(a)
	y, err2 := read(b)
	return err1 == nil && err2 == nil && reflect.DeepEqual(x, y)
}

func FuzzCanonical(f *testing.F) {
	for _, s := range []string{`{}`, `{"b":1,"a":[true,null,"x"]}`, `{"a":1e5,"b":-0.0}`, `{"a":"\u0000\ud800"}`, `{"a":1,"a":2}`, `{"a":{"b":{}}}`, "{\"a\":\"\xff\"}", `{"a":[1,]}`, `[]`, ``} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, raw string) {
		c, err := Canonical(raw)
		if err != nil {
			return
		}
		if !json.Valid([]byte(c)) || !sameValue(raw, c) {
			t.Fatalf("%q became %q", raw, c)
		}
		if again, err := Recanonical(c); err != nil || again != c {
			t.Fatalf("%q, then %q, %v", c, again, err)
		}
		// Blanks and the order of what stands in an object are no difference.
		var members map[string]json.RawMessage
		if err := json.Unmarshal([]byte(c), &members); err != nil {
			t.Fatal(err)
		}
		var other strings.Builder
		other.WriteString("{ ")
		first := true
		for k, v := range members { // in any order
			if !first {
				other.WriteString(" , ")
			}
			first = false
			key, err := json.Marshal(k)
			if err != nil {
				t.Fatal(err)
			}
			other.WriteString(string(key) + " : " + string(v))
		}
		other.WriteString("\n}")
		if same, err := Recanonical(other.String()); err != nil || same != c {
			t.Fatalf("%q and %q: %v", c, same, err)
		}
		// What is masked for show is an object with as many members.
		shown, n := NewMasker().Object(c)
		var left map[string]json.RawMessage
		if err := json.Unmarshal([]byte(shown), &left); err != nil || len(left) != len(members) {
			t.Fatalf("%q is shown as %q: %v", c, shown, err)
		}
		if n == 0 && shown != c {
			t.Fatalf("nothing is masked, and %q is shown as %q", c, shown)
		}
	})
}

func TestNumbersKeepTheirValue(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.StringMatching(`-?(0|[1-9][0-9]{0,50})(\.[0-9]{1,50})?([eE][+-]?[0-9]{1,3})?`).Draw(t, "n")
		c, err := Canonical(`{"n":` + n + `}`)
		if err != nil {
			t.Fatal(err)
		}
		a, ok1 := new(big.Rat).SetString(n)
		b, ok2 := new(big.Rat).SetString(c[len(`{"n":`) : len(c)-1])
		if !ok1 || !ok2 || a.Cmp(b) != 0 {
			t.Fatalf("%s became %s", n, c)
		}
	})
}

// A hash over parts is another as soon as anything moves from one part to the next.
//
// Rows: T1.
func TestRequestSHA256(t *testing.T) {
	place := Place{Channel: "slack", Workspace: "T1", Conversation: "C1", Thread: "1"}
	call := ToolCall{ID: "c1", Turn: "turn", Tool: "note", Definition: "d", Args: `{"x":1}`}
	seen := map[string]string{RequestSHA256("ses", place, call): "the call itself"}
	for name, change := range map[string]func(s *SessionID, p *Place, c *ToolCall){
		"session":      func(s *SessionID, _ *Place, _ *ToolCall) { *s = "ses2" },
		"channel":      func(_ *SessionID, p *Place, _ *ToolCall) { p.Channel = "discord" },
		"workspace":    func(_ *SessionID, p *Place, _ *ToolCall) { p.Workspace = "T2" },
		"conversation": func(_ *SessionID, p *Place, _ *ToolCall) { p.Conversation = "C2" },
		"thread":       func(_ *SessionID, p *Place, _ *ToolCall) { p.Thread = "2" },
		"turn":         func(_ *SessionID, _ *Place, c *ToolCall) { c.Turn = "turn2" },
		"call":         func(_ *SessionID, _ *Place, c *ToolCall) { c.ID = "c2" },
		"tool":         func(_ *SessionID, _ *Place, c *ToolCall) { c.Tool = "shell" },
		"definition":   func(_ *SessionID, _ *Place, c *ToolCall) { c.Definition = "e" },
		"arguments":    func(_ *SessionID, _ *Place, c *ToolCall) { c.Args = `{"x":2}` },
		"moved text":   func(_ *SessionID, p *Place, _ *ToolCall) { p.Workspace, p.Conversation = "T1C", "1" },
		"moved more":   func(_ *SessionID, _ *Place, c *ToolCall) { c.Tool, c.Definition = "noted", "" },
	} {
		s, p, c := SessionID("ses"), place, call
		change(&s, &p, &c)
		h := RequestSHA256(s, p, c)
		if other, taken := seen[h]; taken {
			t.Errorf("%s has the hash of %s", name, other)
		}
		seen[h] = name
	}
}
