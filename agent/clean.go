package agent

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// Clean makes text storable: invalid UTF-8 and NUL, which Postgres refuses,
// become U+FFFD. Every text from outside passes here once, on its way in.
func Clean(s string) string {
	return strings.ReplaceAll(strings.ToValidUTF8(s, "\uFFFD"), "\x00", "\uFFFD")
}

// Bound shortens s to about limit characters: the first two thirds and the last
// third, with a marker between that says how many are missing. It never cuts
// inside a character. A limit of 0 or less means no limit.
func Bound(s string, limit int) string {
	if limit <= 0 || len(s) <= limit {
		return s
	}
	n := utf8.RuneCountInString(s)
	if n <= limit {
		return s
	}
	head, tail := limit-limit/3, limit/3
	return fmt.Sprintf("%s\n[… %d characters left out …]\n%s", s[:runeOffset(s, head)], n-head-tail, s[runeOffset(s, n-tail):])
}

// runeOffset returns the byte offset of the nth character of s.
func runeOffset(s string, n int) int {
	for i := range s {
		if n == 0 {
			return i
		}
		n--
	}
	return len(s)
}
