package agent

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode/utf8"

	"pgregory.net/rapid"
)

// Rows: F114, L96.
func TestBound(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := rapid.StringN(0, 400, -1).Draw(t, "s")
		limit := rapid.IntRange(-1, 300).Draw(t, "limit")
		got := Bound(s, limit)
		n := utf8.RuneCountInString(s)
		if limit <= 0 || n <= limit {
			if got != s {
				t.Fatalf("%q was shortened", s)
			}
			return
		}
		r := []rune(s)
		head, tail := limit-limit/3, limit/3
		want := fmt.Sprintf("%s\n[… %d characters left out …]\n%s", string(r[:head]), n-limit, string(r[n-tail:]))
		if got != want || !utf8.ValidString(got) {
			t.Fatalf("Bound(%q, %d) = %q, want %q", s, limit, got, want)
		}
	})
	// Cut texts may have been no UTF-8 before; shortening adds no damage and no panic.
	for limit := range 20 {
		Bound("a\xff\xc3é\x00\xed\xa0\x80bcdefghijk", limit)
	}
}

// Rows: F118, F119, L95.
func TestClean(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := string(rapid.SliceOf(rapid.Byte()).Draw(t, "bytes"))
		got := Clean(s)
		if !utf8.ValidString(got) || strings.Contains(got, "\x00") || Clean(got) != got {
			t.Fatalf("Clean(%q) = %q", s, got)
		}
		if utf8.ValidString(s) && !strings.Contains(s, "\x00") && got != s {
			t.Fatalf("Clean(%q) = %q changed what was clean", s, got)
		}
	})
}

// histories are what a database could hold after anything: calls without results,
// results without calls, twice, in any order, and empty texts.
func histories() *rapid.Generator[[]Message] {
	id := rapid.Map(rapid.IntRange(0, 4), func(n int) CallID { return CallID(fmt.Sprint("c", n)) })
	text := rapid.SampledFrom([]string{"", " \n", "hello", strings.Repeat("long ", 30)})
	message := rapid.Custom(func(t *rapid.T) Message {
		m := Message{Role: rapid.SampledFrom([]Role{RoleUser, RoleAssistant, RoleTool, RoleTool}).Draw(t, "role"), Text: text.Draw(t, "text")}
		switch m.Role {
		case RoleTool:
			m.CallID = id.Draw(t, "answers")
		case RoleAssistant:
			for _, c := range rapid.SliceOfNDistinct(id, 0, 3, rapid.ID[CallID]).Draw(t, "calls") {
				m.Calls = append(m.Calls, ProposedCall{ID: c, Tool: "note", Arguments: "{}"})
			}
		}
		return m
	})
	return rapid.SliceOfN(message, 0, 20)
}

// invalid says what a provider would refuse, "" if nothing.
func invalid(h []Message) string {
	var open []CallID
	for i, m := range h {
		switch {
		case i == 0 && m.Role != RoleUser:
			return "it does not begin with a person"
		case strings.TrimSpace(m.Text) == "" && len(m.Calls) == 0:
			return fmt.Sprintf("message %d is empty", i)
		case m.Role == RoleTool:
			if len(open) == 0 || open[0] != m.CallID {
				return fmt.Sprintf("message %d answers %s, open is %v", i, m.CallID, open)
			}
			open = open[1:]
		case len(open) > 0:
			return fmt.Sprintf("message %d comes before the results of %v", i, open)
		}
		for _, c := range m.Calls {
			open = append(open, c.ID)
		}
	}
	if len(open) > 0 {
		return fmt.Sprintf("no results of %v", open)
	}
	return ""
}

// Rows: F109, F110, F112, F113, L91.
func TestRepair(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		in := histories().Draw(t, "history")
		before := slices.Clone(in)
		out := Repair(in)
		if why := invalid(out); why != "" {
			t.Fatalf("%s: %v", why, out)
		}
		if fmt.Sprint(in) != fmt.Sprint(before) {
			t.Fatal("what came in was changed")
		}
		if again := Repair(out); fmt.Sprint(again) != fmt.Sprint(out) {
			t.Fatalf("repaired twice: %v", again)
		}
		if invalid(in) == "" && fmt.Sprint(out) != fmt.Sprint(in) {
			t.Fatalf("a valid history was changed: %v", out)
		}
		people := func(h []Message) (n int) {
			for _, m := range h {
				if m.Role == RoleUser {
					n++
				}
			}
			return n
		}
		if people(in) != people(out) {
			t.Fatal("a person's message is lost")
		}
	})
}

// Rows: F111, L91.
func TestTrim(t *testing.T) {
	size := func(h []Message) (n int) {
		for _, m := range h {
			n += weight(m)
		}
		return n
	}
	rapid.Check(t, func(t *rapid.T) {
		in := Repair(histories().Draw(t, "history"))
		before := fmt.Sprint(in)
		limit := rapid.IntRange(0, 2000).Draw(t, "limit")
		out := Trim(in, limit)
		if why := invalid(out); why != "" {
			t.Fatalf("%s: %v", why, out)
		}
		if fmt.Sprint(in) != before {
			t.Fatal("what came in was changed")
		}
		if size(in) <= limit && len(out) != len(in) {
			t.Fatal("trimmed without need")
		}
		if len(in) > 0 && (len(out) == 0 || out[len(out)-1].Role != in[len(in)-1].Role) {
			t.Fatal("the end is lost")
		}
		exchanges := 0
		for _, m := range out {
			if m.Role == RoleUser {
				exchanges++
			}
		}
		if size(out) > limit && exchanges > 1 {
			t.Fatalf("%d bytes are left of at most %d", size(out), limit)
		}
	})
}

// One turn with more than fits: old results give way first, then the latest share
// what there is. Nothing else is touched, and nothing is parted.
//
// Rows: L106.
func TestTrimLongTurn(t *testing.T) {
	in := []Message{{Role: RoleUser, Text: "go"}}
	for b := range 6 {
		m := Message{Role: RoleAssistant, Text: "on it"}
		for c := range 20 {
			m.Calls = append(m.Calls, ProposedCall{ID: CallID(fmt.Sprint(b, ".", c)), Tool: "note", Arguments: `{}`})
		}
		in = append(in, m)
		for _, c := range m.Calls {
			in = append(in, Message{Role: RoleTool, CallID: c.ID, Text: strings.Repeat("é", 50_000)})
		}
	}
	const limit = 400_000
	out := Trim(in, limit)
	if why := invalid(out); why != "" || len(out) != len(in) {
		t.Fatalf("%s, %d of %d messages", why, len(out), len(in))
	}
	total := 0
	for i, m := range out {
		total += weight(m)
		if m.Role != RoleTool && fmt.Sprint(m) != fmt.Sprint(in[i]) {
			t.Errorf("message %d was changed: %v", i, m)
		}
		if in[i].Text != "" && len(in[i].Text) == 100_000 != (m.Role == RoleTool) {
			t.Error("what came in was changed")
		}
	}
	if total > limit {
		t.Errorf("%d bytes are left, at most %d", total, limit)
	}
	if old, latest := len(out[2].Text), len(out[len(out)-1].Text); old >= latest {
		t.Errorf("%d bytes of an old result, %d of a latest", old, latest)
	}
}

func TestNewID(t *testing.T) {
	var mu sync.Mutex
	seen := map[TurnID]bool{}
	var wg sync.WaitGroup
	now := time.Now()
	for range 8 {
		wg.Go(func() {
			for range 2000 {
				id := NewID[TurnID]("turn", now)
				mu.Lock()
				if seen[id] {
					t.Errorf("%s was given twice", id)
				}
				seen[id] = true
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	for id := range seen {
		if rest, ok := strings.CutPrefix(string(id), "turn_"); !ok || len(rest) != 26 || strings.Trim(rest, "0123456789abcdefghjkmnpqrstvwxyz") != "" {
			t.Fatalf("%q has another form", id)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		a := time.UnixMilli(rapid.Int64Range(0, 1<<47).Draw(t, "a"))
		b := a.Add(time.Duration(rapid.Int64Range(1, 1<<40).Draw(t, "later")) * time.Millisecond)
		if x, y := NewID[TurnID]("turn", a), NewID[TurnID]("turn", b); x >= y {
			t.Fatalf("%s of %s is not before %s of %s", x, a, y, b)
		}
	})
}
