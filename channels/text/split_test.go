package text

import (
	"fmt"
	"html"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/yuin/goldmark"
	"github.com/yuin/goldmark/ast"
	gmtext "github.com/yuin/goldmark/text"
	"pgregory.net/rapid"
)

func TestSplit(t *testing.T) {
	for _, c := range []struct {
		name  string
		in    string
		limit int
		want  []string
	}{
		{"short", "hello", 10, []string{"hello"}},
		{"blank (F26)", " \n\t\u200b\n", 10, nil},
		{"empty", "", 10, nil},
		{"paragraphs", "one two\n\nthree four\n\nfive", 20, []string{"one two\n\nthree four", "five"}},
		{"lines", "one\ntwo\nthree\nfour", 9, []string{"one\ntwo", "three", "four"}},
		{"words", "aaaa bbbb cccc", 10, []string{"aaaa bbbb", "cccc"}},
		{"one long word", "abcdefghij", 4, []string{"abcd", "efgh", "ij"}},
		{"fence in each part (F50)", "```go\na := 1\nb := 2\nc := 3\n```\ndone", 22,
			[]string{"```go\na := 1\n```", "```go\nb := 2\n```", "```go\nc := 3\n```\ndone"}},
		{"closer needs room (F49)", "```\n12345678\n```", 15, []string{"```\n1234567\n```", "```\n8\n```"}},
		{"list fence", "- a\n  ```sh\n  ls\n  pwd\n  ```\n- b", 22,
			[]string{"- a\n  ```sh\n  ls\n  ```", "```sh\npwd\n```\n- b"}},
		{"quote fence", "> ```\n> one\n> two\n> ```", 20, []string{"> ```\n> one\n> ```", "> ```\n> two\n> ```"}},
		{"invalid UTF-8 (F119)", "a\xffb", 10, []string{"a\uFFFDb"}},
	} {
		got := Split(c.in, c.limit, nil)
		if fmt.Sprintf("%q", got) != fmt.Sprintf("%q", c.want) {
			t.Errorf("%s:\n got %q\nwant %q", c.name, got, c.want)
		}
	}
}

// F48: an info string of 300 characters is budgeted in each part.
func TestF48_LongInfoString(t *testing.T) {
	md := "```" + strings.Repeat("i", 300) + "\n" + strings.Repeat("some code here\n", 400) + "```"
	for i, part := range Split(md, 2000, nil) {
		if n := utf8.RuneCountInString(part); n > 2000 {
			t.Errorf("part %d has %d characters", i, n)
		}
		if !strings.HasPrefix(part, "```iii") || !strings.HasSuffix(part, "\n```") {
			t.Errorf("part %d is not fenced: %.20q … %.20q", i, part, part[len(part)-20:])
		}
	}
}

// F51: 1,999 CJK characters are one part of 2,000.
func TestF51_CountsCodePoints(t *testing.T) {
	if got := Split(strings.Repeat("漢", 1999), 2000, nil); len(got) != 1 {
		t.Errorf("%d parts", len(got))
	}
}

func TestCharactersStayWhole(t *testing.T) {
	for _, c := range []string{"e\u0301", "👩‍👩‍👧‍👦", "🇩🇪", "👍🏽", "❤️", "각", "\u1112\u1161\u11ab", "🏴\U000E0067\U000E0062\U000E0065\U000E006E\U000E0067\U000E007F"} {
		n := utf8.RuneCountInString(c)
		for limit := n; limit < 3*n; limit++ {
			for _, part := range Split(strings.Repeat(c, 12), limit, nil) {
				if strings.ReplaceAll(part, c, "") != "" {
					t.Errorf("limit %d cuts %+q: %+q", limit, c, part)
				}
			}
		}
	}
}

func TestHugeTextIsSplitQuickly(t *testing.T) {
	for name, md := range map[string]string{
		"one line": strings.Repeat("x", 1<<20),
		"words":    strings.Repeat("word ", 1<<18),
		"newlines": "a" + strings.Repeat("\n", 1<<20) + "b",
		"backtick": strings.Repeat("`", 1<<20),
		"fences":   strings.Repeat("```\n", 1<<18),
		"code":     "```\n" + strings.Repeat("  return nil\n", 1<<16),
	} {
		for i, part := range Split(md, 4000, nil) {
			if utf8.RuneCountInString(part) > 4000 {
				t.Fatalf("%s: part %d is too long", name, i)
			}
		}
	}
}

// markdown draws texts with the shapes that break splitters.
func markdown() *rapid.Generator[string] {
	word := rapid.OneOf(rapid.StringMatching(`[a-z]{1,12}`), rapid.SampledFrom([]string{
		"**bold**", "`code`", "<@U1>", "&", "漢字漢字", "👩‍👩‍👧", "https://example.com/a?b=c", "[x](y)", "```", "~~~", "# ", "> ", "- ",
	}))
	line := rapid.Custom(func(t *rapid.T) string { return strings.Join(rapid.SliceOfN(word, 0, 30).Draw(t, "words"), " ") })
	para := rapid.Custom(func(t *rapid.T) string { return strings.Join(rapid.SliceOfN(line, 1, 6).Draw(t, "lines"), "\n") })
	code := rapid.Custom(func(t *rapid.T) string {
		marker := rapid.SampledFrom([]string{"```", "````", "~~~"}).Draw(t, "marker")
		info := rapid.StringMatching(`[a-z]{0,40}`).Draw(t, "info")
		indent := rapid.SampledFrom([]string{"", "", "  "}).Draw(t, "indent")
		body := rapid.SliceOfN(rapid.StringMatching(`[ ]{0,6}[a-z(){};=]{0,60}`), 0, 30).Draw(t, "body")
		for i := range body {
			body[i] = indent + body[i]
		}
		return indent + marker + info + "\n" + strings.Join(body, "\n") + "\n" + indent + marker
	})
	block := rapid.OneOf(para, code)
	return rapid.Custom(func(t *rapid.T) string { return strings.Join(rapid.SliceOfN(block, 0, 8).Draw(t, "blocks"), "\n\n") })
}

func squeeze(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsSpace(r) || r == '`' || r == '~' {
			return -1
		}
		return r
	}, s)
}

func TestPartsFitAndKeepTheText(t *testing.T) {
	escaped := func(s string) int { return utf8.RuneCountInString(html.EscapeString(s)) }
	rapid.Check(t, func(t *rapid.T) {
		md := markdown().Draw(t, "md")
		limit := rapid.IntRange(60, 400).Draw(t, "limit")
		parts := Split(md, limit, escaped)
		if Blank(md) != (len(parts) == 0) {
			t.Fatalf("%q has %d parts", md, len(parts))
		}
		all := ""
		for i, part := range parts {
			if n := escaped(part); n > limit {
				t.Fatalf("part %d measures %d of %d: %q", i, n, limit, part)
			}
			if Blank(part) {
				t.Fatalf("part %d is blank", i)
			}
			all += squeeze(part)
		}
		// The info string is repeated where a fence is carried over; without it
		// nothing is added or lost.
		if !strings.Contains(md, "```") && !strings.Contains(md, "~~~") && all != squeeze(md) {
			t.Fatalf("content changed:\n%q\n%q", squeeze(md), all)
		}
	})
}

// code is what is in code blocks, as a Markdown parser sees it.
func code(md string) (out string, fences int) {
	src := []byte(md)
	_ = ast.Walk(goldmark.New().Parser().Parse(gmtext.NewReader(src)), func(n ast.Node, entering bool) (ast.WalkStatus, error) {
		if f, ok := n.(*ast.FencedCodeBlock); ok && entering {
			fences++
			for i := range f.Lines().Len() {
				seg := f.Lines().At(i)
				out += string(seg.Value(src))
			}
		}
		return ast.WalkContinue, nil
	})
	return out, fences
}

// F50: a parser finds the same lines of code in the parts as in the whole.
func TestCodeStaysCode(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		lines := rapid.SliceOfN(rapid.StringMatching(`[ ]{0,6}[a-z(){};=*_<>]{1,30}`), 1, 60).Draw(t, "lines")
		indent := rapid.SampledFrom([]string{"", " ", "   "}).Draw(t, "indent")
		md := "intro\n\n" + indent + "```go\n"
		for _, l := range lines {
			md += indent + l + "\n"
		}
		md += indent + "```\n\nend"
		want, _ := code(md)
		got := ""
		for _, part := range Split(md, rapid.IntRange(60, 300).Draw(t, "limit"), nil) {
			c, fences := code(part)
			if fences > 1 {
				t.Fatalf("a part has %d fences: %q", fences, part)
			}
			got += c
		}
		if got != want {
			t.Fatalf("code changed:\n%q\n%q", want, got)
		}
	})
}
