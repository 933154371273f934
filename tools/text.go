package tools

import (
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// clean makes text that a model, a database and a chat platform can take: valid
// UTF-8 without NUL. Each run of what is no text becomes one U+FFFD.
func clean(s string) string {
	s = strings.ToValidUTF8(s, "\uFFFD")
	if !strings.ContainsRune(s, 0) {
		return s
	}
	var out strings.Builder
	for s != "" {
		i := strings.IndexByte(s, 0)
		if i < 0 {
			break
		}
		out.WriteString(s[:i])
		out.WriteString("\uFFFD")
		s = strings.TrimLeft(s[i:], "\x00")
	}
	out.WriteString(s)
	return out.String()
}

// wholeRunes cuts off a character that is incomplete at the end of b.
func wholeRunes(b []byte) []byte {
	for i := 1; i <= utf8.UTFMax && i <= len(b); i++ {
		if c := b[len(b)-i]; utf8.RuneStart(c) {
			if !utf8.FullRune(b[len(b)-i:]) {
				return b[:len(b)-i]
			}
			break
		}
	}
	return b
}

// name writes a file name in one line: as it is if it shows, else quoted.
func name(s string) string {
	if s == "" || s != strings.TrimSpace(s) || strings.HasPrefix(s, `"`) {
		return strconv.Quote(s)
	}
	for _, r := range s {
		if r == utf8.RuneError || !unicode.IsPrint(r) {
			return strconv.Quote(s)
		}
	}
	return s
}
