package agent

import (
	"fmt"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Visible writes what does not show in s, or shows as something else, as a
// visible escape like \u{202E}: control characters, direction overrides, zero
// width characters, spaces that look like a space, fillers, variation
// selectors, private and unassigned characters, marks drawn over other
// characters, and bytes that are no UTF-8 (\x{FF}). Line feed and tab stay. The
// backslash of a text that already looks like such an escape becomes \u{5C}, so
// that two different texts never look the same and the original can be read
// back. Apply it once: it is not idempotent.
func Visible(s string) string { return visible(s, false) }

// VisibleLine is Visible for texts that must stay on one line, such as names:
// line feed and tab are escaped as well.
func VisibleLine(s string) string { return visible(s, true) }

func visible(s string, line bool) string {
	var out strings.Builder
	base := false // the character before can carry a combining mark
	marks := 0    // combining marks since then
	last := 0     // everything before is written
	for i := 0; i < len(s); {
		r, size := utf8.DecodeRuneInString(s[i:])
		esc := ""
		switch {
		case r == utf8.RuneError && size == 1:
			esc = fmt.Sprintf(`\x{%02X}`, s[i])
		case (r == '\n' || r == '\t') && !line:
			base = false
		case r == '\\' && looksEscaped(s[i:]):
			esc = `\u{5C}`
		case Hidden(r):
			esc = fmt.Sprintf(`\u{%X}`, r)
		case unicode.Is(unicode.M, r):
			marks++
			if !base || marks > maxMarks {
				esc = fmt.Sprintf(`\u{%X}`, r)
			}
		default:
			base, marks = r != ' ', 0
		}
		if esc != "" {
			out.WriteString(s[last:i])
			out.WriteString(esc)
			last = i + size
			base, marks = false, 0
		}
		i += size
	}
	if last == 0 {
		return s
	}
	out.WriteString(s[last:])
	return out.String()
}

// maxMarks is how many combining marks one character may carry. Languages need
// up to three or four; long stacks draw over the lines around them.
const maxMarks = 4

// looksEscaped reports whether s begins like an escape that Visible writes.
func looksEscaped(s string) bool {
	return strings.HasPrefix(s, `\u{`) || strings.HasPrefix(s, `\x{`)
}

// Hidden reports whether a character does not show, or shows as another one,
// by its Unicode class. A line feed and a tab count as hidden here.
func Hidden(r rune) bool {
	switch {
	case r == ' ':
		return false
	case r < 0x80:
		return r < 0x20 || r == 0x7F
	case !unicode.IsPrint(r) && !unicode.Is(unicode.M, r):
		// No letter, mark, number, punctuation or symbol: controls, formats,
		// look-alike spaces, line separators, private use, unassigned.
		return true
	}
	return unicode.In(r, unicode.Me, unicode.Other_Default_Ignorable_Code_Point, unicode.Variation_Selector, hiddenMore)
}

// hiddenMore are characters of visible classes that draw nothing or draw over
// others: the blank Braille pattern, blank musical and Khitan characters, and
// overlays such as the long stroke.
var hiddenMore = &unicode.RangeTable{
	R16: []unicode.Range16{
		{Lo: 0x0334, Hi: 0x0338, Stride: 1},
		{Lo: 0x20D2, Hi: 0x20D3, Stride: 1},
		{Lo: 0x20D8, Hi: 0x20DA, Stride: 1},
		{Lo: 0x20E5, Hi: 0x20E6, Stride: 1},
		{Lo: 0x20EA, Hi: 0x20EB, Stride: 1},
		{Lo: 0x2800, Hi: 0x2800, Stride: 1},
	},
	R32: []unicode.Range32{
		{Lo: 0x16FE4, Hi: 0x16FE4, Stride: 1},
		{Lo: 0x1D159, Hi: 0x1D159, Stride: 1},
	},
}

// Unescape reads back what Visible or VisibleLine wrote.
func Unescape(s string) string {
	var out strings.Builder
	for {
		i := strings.IndexByte(s, '\\')
		if i < 0 {
			out.WriteString(s)
			return out.String()
		}
		out.WriteString(s[:i])
		s = s[i:]
		end := strings.IndexByte(s, '}')
		if !looksEscaped(s) || end < 0 {
			out.WriteByte('\\')
			s = s[1:]
			continue
		}
		n, err := strconv.ParseUint(s[len(`\u{`):end], 16, 32)
		switch {
		case err != nil:
			out.WriteString(s[:end+1])
		case s[1] == 'x':
			out.WriteByte(byte(n))
		default:
			out.WriteRune(rune(n))
		}
		s = s[end+1:]
	}
}
