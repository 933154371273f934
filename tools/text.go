package tools

import (
	"regexp"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/clawbot/clawbot/agent"
)

// nuls are runs of NUL, as binary files are full of.
var nuls = regexp.MustCompile(`\x00+`)

// clean is agent.Clean with one U+FFFD for each run of NUL, so that what was
// bounded in bytes does not grow to three times as much.
func clean(s string) string { return agent.Clean(nuls.ReplaceAllString(s, "\uFFFD")) }

// short cuts s to at most n bytes, at a whole character.
func short(s string, n int) string {
	s = clean(s)
	if len(s) <= n {
		return s
	}
	return string(wholeRunes([]byte(s[:n]))) + "…"
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
