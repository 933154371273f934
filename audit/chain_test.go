package audit

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"
)

// The encoding is as docs/audit.md writes it down, so that another program can
// recompute it. A change here needs a new Version.
func TestEncoding(t *testing.T) {
	tool, latency := "sh", int64(258)
	r := Row{SessionID: "ses_1", Seq: 1, At: time.Unix(0, 3_000_999), Kind: "k", Tool: &tool, LatencyMS: &latency}
	text := func(s string) string {
		return "01" + hex.EncodeToString([]byte{0, 0, 0, byte(len(s))}) + hex.EncodeToString([]byte(s))
	}
	const null = "00"
	want := "00" + "01" +
		text("ses_1") + "01" + "0000000000000001" + // seq
		"01" + "0000000000000bb8" + // at: 3000 µs, nothing finer
		text("k") +
		strings.Repeat(null, 3) + // turn, call, approval
		text("sh") +
		strings.Repeat(null, 9) + // args … reason
		"01" + "0000000000000102" + // latency
		text("") // prev_hash of the first row
	raw, err := hex.DecodeString(want)
	if err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256(raw)
	if got := Sum(r); got != hex.EncodeToString(sum[:]) {
		t.Errorf("hash %s, want that of %s", got, want)
	}
}

// chain returns n linked rows and their head.
func chain(n int) ([]Row, Head) {
	var head Head
	rows := make([]Row, n)
	for i := range rows {
		reason := strings.Repeat("x", i)
		rows[i] = Row{SessionID: "ses_1", At: time.UnixMicro(int64(i)), Kind: "tool_started", Reason: &reason}
		head = head.Link(&rows[i])
	}
	return rows, head
}

func verify(rows []Row, head Head) error {
	v := NewVerifier("ses_1")
	for _, r := range rows {
		if err := v.Row(r); err != nil {
			return err
		}
	}
	return v.End(head)
}

func TestVerifierFindsTheFirstBadRow(t *testing.T) {
	rows, head := chain(4)
	if err := verify(rows, head); err != nil {
		t.Fatal(err)
	}
	for what, tc := range map[string]struct {
		spoil func(rows []Row) []Row
		seq   int64
	}{
		"changed":        {func(r []Row) []Row { r[1].Kind = "tool_finished"; return r }, 2},
		"null for empty": {func(r []Row) []Row { r[0].Reason = nil; return r }, 1},
		"removed":        {func(r []Row) []Row { return append(r[:1:1], r[2:]...) }, 2},
		"first removed":  {func(r []Row) []Row { return r[1:] }, 1},
		"swapped":        {func(r []Row) []Row { r[1], r[2] = r[2], r[1]; return r }, 2},
		"twice":          {func(r []Row) []Row { return append(r[:2:2], r[1:]...) }, 3},
		"cut off":        {func(r []Row) []Row { return r[:3] }, 4},
		"of another":     {func(r []Row) []Row { r[3].SessionID = "ses_2"; return r }, 4},
		"hashed anew":    {func(r []Row) []Row { r[1].Kind = "x"; r[1].Hash = Sum(r[1]); return r }, 3},
	} {
		rows, head := chain(4)
		var bad *BadRow
		if err := verify(tc.spoil(rows), head); !errors.As(err, &bad) || bad.Seq != tc.seq {
			t.Errorf("%s: %v, want a bad row %d", what, err, tc.seq)
		}
	}
}

// No field can be changed without changing the hash.
func TestEveryFieldIsHashed(t *testing.T) {
	rows, _ := chain(1)
	before := Sum(rows[0])
	for i := range reflect.TypeFor[Row]().NumField() {
		r := rows[0]
		f := reflect.ValueOf(&r).Elem().Field(i)
		switch f.Interface().(type) {
		case string:
			f.SetString(f.String() + "x")
		case int64:
			f.SetInt(f.Int() + 1)
		case time.Time:
			f.Set(reflect.ValueOf(r.At.Add(time.Microsecond)))
		case *string:
			s := "changed"
			f.Set(reflect.ValueOf(&s))
		case *int64:
			n := int64(0)
			f.Set(reflect.ValueOf(&n))
		default:
			t.Fatalf("field %d has a type this test does not know", i)
		}
		name := reflect.TypeFor[Row]().Field(i).Name
		if changed := Sum(r) != before; changed != (name != "Hash") {
			t.Errorf("%s: the hash changes: %t", name, changed)
		}
	}
}

// What jsonb would rewrite becomes text; all else stays.
func TestStableArgs(t *testing.T) {
	for in, want := range map[string]string{
		`{"a":1,"b":-1.50,"c":"<&>"}`:     `{"a":1,"b":-1.50,"c":"<&>"}`,
		`{"e":1e3,"z":-0,"y":-0.0}`:       `{"e":"1e3","y":"-0.0","z":"-0"}`,
		`{"n":"a\u0000b","k\u0000":null}`: "{\"k\uFFFD\":null,\"n\":\"a\uFFFDb\"}",
		`{"l":[1E2,{"m":true}]}`:          `{"l":["1E2",{"m":true}]}`,
	} {
		if got, err := StableArgs(in); err != nil || got != want {
			t.Errorf("%s: %s, %v, want %s", in, got, err, want)
		}
	}
	if _, err := StableArgs("{"); err == nil {
		t.Error("what is no JSON is taken")
	}
}
