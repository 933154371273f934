package agent

import (
	"strings"
	"testing"
	"unicode"

	"pgregory.net/rapid"
)

func TestVisible(t *testing.T) {
	for _, c := range []struct{ name, in, want string }{
		{"plain", "rm -rf ./build && echo \"done\"", "rm -rf ./build && echo \"done\""},
		{"languages", "naïve Ελλάδα Привет 漢字 עברית हिन्दी 한국어", "naïve Ελλάδα Привет 漢字 עברית हिन्दी 한국어"},
		{"lines", "a\n\tb", "a\n\tb"},
		{"carriage return", "harmless\rrm", `harmless\u{D}rm`},
		{"control", "a\x00b\x1b[2Kc\x7f", `a\u{0}b\u{1B}[2Kc\u{7F}`},
		{"direction", "a\u202Eb\u2066c", `a\u{202E}b\u{2066}c`},
		{"zero width", "r\u200Bm\uFEFF", `r\u{200B}m\u{FEFF}`},
		{"spaces", "a\u00A0b\u3000c\u2028d", `a\u{A0}b\u{3000}c\u{2028}d`},
		{"fillers", "a\u3164b\uFFA0c\u115Fd\u2800e\u034Ff", `a\u{3164}b\u{FFA0}c\u{115F}d\u{2800}e\u{34F}f`},
		{"tags", "a\U000E0061b", `a\u{E0061}b`},
		{"variation", "a\uFE0Fb\U000E0100", `a\u{FE0F}b\u{E0100}`},
		{"private", "a\uE000b", `a\u{E000}b`},
		{"overlay", "s\u0336a\u20DD", `s\u{336}a\u{20DD}`},
		{"mark without base", "\u0301a \u0301", `\u{301}a \u{301}`},
		{"stack", "a" + strings.Repeat("\u0301", 5), "a" + strings.Repeat("\u0301", 4) + `\u{301}`},
		{"bytes", "a\xffb\xc3", `a\x{FF}b\x{C3}`},
		{"looks escaped", `a\u{202E}b\x{FF}c\n`, `a\u{5C}u{202E}b\u{5C}x{FF}c\n`},
	} {
		if got := Visible(c.in); got != c.want {
			t.Errorf("%s: Visible(%q) = %q, want %q", c.name, c.in, got, c.want)
		}
	}
	if got, want := VisibleLine("a\nb\tc"), `a\u{A}b\u{9}c`; got != want {
		t.Errorf("VisibleLine = %q, want %q", got, want)
	}
}

// hostile draws text in which every other character is one that hides.
func hostile() *rapid.Generator[string] {
	pick := rapid.OneOf(
		rapid.StringN(0, 8, -1),
		rapid.SampledFrom([]string{"\u202E", "\u200B", "\x00", "\\u{202E}", "\\", "\xff", "\u0301", "\u3164", "\r", "\n", "{", "}", "\\x{", "😀\uFE0F"}),
		rapid.Custom(func(t *rapid.T) string { return string(rapid.Byte().Draw(t, "b")) }),
	)
	return rapid.Custom(func(t *rapid.T) string { return strings.Join(rapid.SliceOfN(pick, 0, 20).Draw(t, "s"), "") })
}

func TestVisibleShowsEverythingAndCanBeReadBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := hostile().Draw(t, "text")
		for _, f := range []func(string) string{Visible, VisibleLine} {
			got := f(s)
			for _, r := range got {
				if Hidden(r) && r != '\n' && r != '\t' {
					t.Fatalf("%q still holds U+%04X", got, r)
				}
			}
			if back := Unescape(got); back != s {
				t.Fatalf("%q is shown as %q and read back as %q", s, got, back)
			}
		}
		if strings.ContainsAny(VisibleLine(s), "\n\t") {
			t.Fatalf("VisibleLine(%q) has more than one line", s)
		}
	})
}

// The classes are Unicode's, so a new version of the tables cannot open a hole.
func TestHiddenFollowsUnicodeClasses(t *testing.T) {
	for r := rune(0); r <= unicode.MaxRune; r++ {
		if 0xD800 <= r && r < 0xE000 {
			continue
		}
		hidden := unicode.In(r, unicode.C, unicode.Zl, unicode.Zp) || unicode.Is(unicode.Zs, r) && r != ' ' ||
			unicode.In(r, unicode.Other_Default_Ignorable_Code_Point, unicode.Variation_Selector)
		if hidden && !Hidden(r) {
			t.Fatalf("U+%04X does not show and is not hidden", r)
		}
	}
}
