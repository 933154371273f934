package audit

import (
	"encoding/json"
	"errors"
	"os"
	"reflect"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/clawbot/clawbot/agent"
)

// golden are rows with their hashes, as testdata/golden.jsonl has them. They hold
// the encoding still: a change of it is a new Version, with golden rows of its own.
func golden(t *testing.T) []Row {
	t.Helper()
	data, err := os.ReadFile("testdata/golden.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	var rows []Row
	for _, line := range strings.Split(strings.TrimSpace(string(data)), "\n") {
		var r Row
		if err := json.Unmarshal([]byte(line), &r); err != nil {
			t.Fatal(err)
		}
		rows = append(rows, r)
	}
	return rows
}

// Rows: T19.
func TestGolden(t *testing.T) {
	rows := golden(t)
	if len(rows) < 5 {
		t.Fatalf("%d golden rows", len(rows))
	}
	v := NewVerifier(rows[0].SessionID)
	for _, r := range rows {
		if got := Sum(r); got != r.Hash {
			t.Errorf("seq %d: hash %s, golden %s", r.Seq, got, r.Hash)
		}
		if err := v.Row(r); err != nil {
			t.Error(err)
		}
	}
	if err := v.End(Head{Seq: rows[len(rows)-1].Seq, Hash: rows[len(rows)-1].Hash}); err != nil {
		t.Error(err)
	}
}

// verify checks a whole chain against the head its session has.
func verifyGolden(rows []Row, head Head) error {
	v := NewVerifier("ses_golden")
	for _, r := range rows {
		if err := v.Row(r); err != nil {
			return err
		}
	}
	return v.End(head)
}

// Each column of each row: changed, emptied, or set where it was null, the row is
// named. Any row taken away, moved, or put in twice, and its place is named.
//
// Rows: T19.
func TestTampering(t *testing.T) {
	rows := golden(t)
	last := rows[len(rows)-1]
	head := Head{Seq: last.Seq, Hash: last.Hash}
	if err := verifyGolden(rows, head); err != nil {
		t.Fatal(err)
	}
	caught := func(what string, tampered []Row, seq int64) {
		t.Helper()
		var bad *BadRow
		if err := verifyGolden(tampered, head); !errors.As(err, &bad) {
			t.Errorf("%s: not noticed", what)
		} else if bad.Seq != seq || bad.SessionID != "ses_golden" {
			t.Errorf("%s: %v, want seq %d", what, bad, seq)
		}
	}
	for i, row := range rows {
		for f := range reflect.TypeFor[Row]().NumField() {
			name := reflect.TypeFor[Row]().Field(f).Name
			for _, change := range changes(reflect.ValueOf(row).Field(f).Interface()) {
				tampered := append([]Row(nil), rows...)
				reflect.ValueOf(&tampered[i]).Elem().Field(f).Set(reflect.ValueOf(change))
				// The place is named, whatever the row now says of itself.
				caught(name+" of a "+row.Kind, tampered, row.Seq)
			}
		}
		caught("deleted "+row.Kind, append(append([]Row(nil), rows[:i]...), rows[i+1:]...), row.Seq)
		if i > 0 {
			swapped := append([]Row(nil), rows...)
			swapped[i-1], swapped[i] = swapped[i], swapped[i-1]
			caught("swapped "+row.Kind, swapped, row.Seq-1)
		}
		twice := append(append(append([]Row(nil), rows[:i+1]...), row), rows[i+1:]...)
		caught("twice "+row.Kind, twice, row.Seq+1)
	}
	caught("all deleted", nil, 1)

	// A row forged with a fitting hash breaks the link of the next, or the head.
	for i := range rows {
		forged := append([]Row(nil), rows...)
		reason := "forged"
		forged[i].Reason = &reason
		forged[i].Hash = Sum(forged[i])
		caught("forged with its hash", forged, rows[i].Seq+1)
	}
}

// changes are other values of a column.
func changes(v any) []any {
	switch v := v.(type) {
	case string:
		return []any{v + "x", strings.ToUpper(v) + "y"}
	case int64:
		return []any{v + 1, v - 1, -v - 1}
	case time.Time:
		return []any{v.Add(time.Microsecond), v.Add(-time.Hour)}
	case *string:
		empty, other := "", "other"
		if v == nil {
			return []any{&empty, &other}
		}
		more := *v + " "
		return []any{(*string)(nil), &more, &other}
	case *int64:
		zero, one := int64(0), int64(1_000_000)
		if v == nil {
			return []any{&zero, &one}
		}
		return []any{(*int64)(nil), &one}
	}
	panic("a column of an unknown type")
}

// No two rows share an encoding: moving text from one field to the next, or null
// for the empty text, is another hash.
func TestFieldsDoNotRunTogether(t *testing.T) {
	text := func(s string) *string { return &s }
	for name, pair := range map[string][2]Row{
		"shifted text":  {{TurnID: text("ab"), CallID: text("c")}, {TurnID: text("a"), CallID: text("bc")}},
		"shifted null":  {{TurnID: text("a")}, {CallID: text("a")}},
		"null or empty": {{Reason: nil}, {Reason: text("")}},
		"null or zero":  {{LatencyMS: nil}, {LatencyMS: new(int64)}},
	} {
		if Sum(pair[0]) == Sum(pair[1]) {
			t.Errorf("%s: one hash for two rows", name)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		draw := func(name string) Row {
			field := func(f string) *string {
				return rapid.Ptr(rapid.StringOfN(rapid.SampledFrom([]rune("a\x00\x01")), 0, 3, -1), true).Draw(t, name+f)
			}
			return Row{TurnID: field("turn"), CallID: field("call"), Tool: field("tool"), LatencyMS: rapid.Ptr(rapid.Int64Range(0, 1), true).Draw(t, name+"ms")}
		}
		a, b := draw("a"), draw("b")
		if reflect.DeepEqual(a, b) != (Sum(a) == Sum(b)) {
			t.Fatalf("%+v and %+v", a, b)
		}
	})
}

// objects are JSON objects as a model may write them: odd numbers, escapes, NUL,
// keys that differ in what is cleaned away.
func objects() *rapid.Generator[string] {
	number := rapid.OneOf(
		rapid.StringMatching(`-?(0|[1-9][0-9]{0,40})(\.[0-9]{1,20})?([eE][+-]?[0-9]{1,6})?`),
		rapid.SampledFrom([]string{"1e999999", "-0", "-0.0", "0.0", "-0e5", "1.0", "1.50", "1E5", "1e-999999", strings.Repeat("9", 400), "0." + strings.Repeat("1", 400)}))
	text := rapid.OneOf(
		rapid.String(),
		rapid.SampledFrom([]string{"", "\x00", "a\x00", "a\uFFFD", "\u2028", "<&>", "\x01\x1f\x7f", "\U0001F600", `\u0000`, "é"}))
	quote := func(s string) string {
		js, err := json.Marshal(s)
		if err != nil {
			panic(err)
		}
		return string(js)
	}
	var value func(depth int) *rapid.Generator[string]
	value = func(depth int) *rapid.Generator[string] {
		plain := rapid.OneOf(number, rapid.Map(text, quote), rapid.SampledFrom([]string{"true", "false", "null", "{}", "[]"}))
		if depth == 0 {
			return plain
		}
		return rapid.OneOf(plain,
			rapid.Map(rapid.SliceOfN(value(depth-1), 0, 4), func(v []string) string { return "[" + strings.Join(v, " , ") + "]" }),
			rapid.Map(rapid.MapOfN(text, value(depth-1), 0, 4), func(m map[string]string) string {
				var out []string
				for k, v := range m {
					out = append(out, quote(k)+": "+v)
				}
				return "{" + strings.Join(out, ",") + "}"
			}))
	}
	return rapid.Map(rapid.MapOfN(text, value(2), 0, 5), func(m map[string]string) string {
		var out []string
		for k, v := range m {
			out = append(out, quote(k)+": "+v)
		}
		return "{" + strings.Join(out, ",") + "}"
	})
}

// StableArgs is canonical, stable under itself, and loses no member.
func TestStableArgsOfAnything(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		canonical, err := agent.Canonical(objects().Draw(t, "object"))
		if err != nil {
			t.Skip("not canonical")
		}
		stable, err := StableArgs(canonical)
		if err != nil {
			t.Fatalf("%s: %v", canonical, err)
		}
		if again, err := StableArgs(stable); err != nil || again != stable {
			t.Fatalf("%s, then %s, %v", stable, again, err)
		}
		if c, err := agent.Recanonical(stable); err != nil || c != stable {
			t.Fatalf("not canonical: %s, %v", stable, err)
		}
		var before, after map[string]any
		if json.Unmarshal([]byte(canonical), &before) == nil && json.Unmarshal([]byte(stable), &after) == nil && len(before) != len(after) {
			t.Fatalf("%d members became %d", len(before), len(after))
		}
	})
	// What grows on the way does not pass a limit that is not meant for it.
	long := `{"x":[` + strings.Repeat("-0,", 300_000) + `-0]}`
	if _, err := StableArgs(long); err != nil {
		t.Errorf("a long one: %v", err)
	}
}
