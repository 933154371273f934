package text

import (
	"unicode"
	"unicode/utf8"
)

// maxCluster is how many code points we look back for the beginning of a
// character. Longer ones are cut.
const maxCluster = 64

// boundaryBefore is the last border between characters, as people see them, at
// or before end. A character that fills everything up to end is cut.
func boundaryBefore(s string, end int) int {
	for end > 0 && end < len(s) && !utf8.RuneStart(s[end]) {
		end--
	}
	at := end
	for range maxCluster {
		if at <= 0 {
			return end
		}
		if isBoundary(s, at) {
			return at
		}
		_, size := utf8.DecodeLastRuneInString(s[:at])
		at -= size
	}
	return end
}

// boundaryAfter is the end of the first character.
func boundaryAfter(s string) int {
	_, at := utf8.DecodeRuneInString(s)
	for n := 1; n < maxCluster && at < len(s) && !isBoundary(s, at); n++ {
		_, size := utf8.DecodeRuneInString(s[at:])
		at += size
	}
	return at
}

// isBoundary reports whether s may be cut at i: not before a mark that belongs
// to the character before it, not inside a joined emoji, a flag or a Korean
// syllable. It knows the cases of Unicode's text segmentation that occur in
// chats.
func isBoundary(s string, i int) bool {
	if i <= 0 || i >= len(s) {
		return true
	}
	if !utf8.RuneStart(s[i]) {
		return false
	}
	before, _ := utf8.DecodeLastRuneInString(s[:i])
	after, _ := utf8.DecodeRuneInString(s[i:])
	const joiner = '\u200D'
	switch {
	case before == '\r' && after == '\n',
		before == joiner,
		after == joiner, after == '\u200C', after == '\u0E33', after == '\u0EB3',
		unicode.Is(unicode.M, after),
		0x1F3FB <= after && after <= 0x1F3FF, // skin colours
		0xE0020 <= after && after <= 0xE007F, // tags of regional flags
		isJamo(before) && 0x1160 <= after && after <= 0x11FF:
		return false
	case isRegional(before) && isRegional(after):
		n := 0
		for j := i; j > 0; n++ {
			r, size := utf8.DecodeLastRuneInString(s[:j])
			if !isRegional(r) || n > maxCluster {
				break
			}
			j -= size
		}
		return n%2 == 0
	}
	return true
}

func isJamo(r rune) bool     { return 0x1100 <= r && r <= 0x11FF || 0xAC00 <= r && r <= 0xD7A3 }
func isRegional(r rune) bool { return 0x1F1E6 <= r && r <= 0x1F1FF }
