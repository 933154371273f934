package text

import (
	"strings"
	"unicode/utf8"
)

// What can be longer is no fence to us and is not repeated in each part.
const (
	maxInfo   = 300 // info string, in code points
	maxMarker = 30
)

// fence is an open code fence.
type fence struct {
	quote   string // block quote markers before it, such as "> "
	indent  int    // spaces before its marker
	marker  string // "```" or longer, or tildes
	info    string // what follows the marker, such as "go"
	carried bool   // opened in an earlier part
}

// opener is the line that opens the fence again at the beginning of a part. It
// is not indented, because a part begins outside of any list.
func (f *fence) opener() string { return f.quote + f.marker + f.info }

// closer is the line that closes the fence.
func (f *fence) closer() string {
	if f.carried {
		return f.quote + f.marker
	}
	return f.quote + strings.Repeat(" ", f.indent) + f.marker
}

// dedent takes from a line of a carried fence the indentation that the fence
// itself had: it is no part of the code.
func (f *fence) dedent(line string) string {
	if !f.carried || f.quote != "" {
		return line
	}
	n := 0
	for n < f.indent && n < len(line) && line[n] == ' ' {
		n++
	}
	return line[n:]
}

// step returns the fence that is open after line, where open was open before
// it; nil is none. Fences in lists and block quotes count, however far they are
// indented.
func step(open *fence, line string) *fence {
	switch {
	case open == nil || open.leftBy(line):
		return opens(line)
	case open.closedBy(line):
		return nil
	}
	return open
}

// leftBy reports whether the block quote around the fence ended before line,
// and the fence with it.
func (f *fence) leftBy(line string) bool {
	return f.quote != "" && !strings.HasPrefix(strings.TrimLeft(line, " "), strings.TrimSpace(f.quote))
}

// closedBy reports whether line is the closing marker.
func (f *fence) closedBy(line string) bool {
	if f.quote != "" {
		line = strings.TrimPrefix(strings.TrimLeft(line, " "), strings.TrimSpace(f.quote))
	}
	line = strings.TrimSpace(line)
	return len(line) >= len(f.marker) && strings.Trim(line, f.marker[:1]) == ""
}

// opens returns the fence that line opens, or nil.
func opens(line string) *fence {
	body := strings.TrimLeft(line, " >")
	before := line[:len(line)-len(body)]
	f := fence{indent: len(before)}
	if i := strings.LastIndexByte(before, '>'); i >= 0 {
		f.quote, f.indent = strings.TrimLeft(before[:i+1], " ")+" ", max(0, len(before)-i-2)
	}
	n := 0
	for n < len(body) && (body[0] == '`' || body[0] == '~') && body[n] == body[0] {
		n++
	}
	f.marker, f.info = body[:n], strings.TrimRight(body[n:], " \t\r")
	switch {
	case n < 3 || n > maxMarker:
		return nil
	case body[0] == '`' && strings.Contains(f.info, "`"):
		return nil // a code span
	case utf8.RuneCountInString(f.info) > maxInfo:
		return nil
	}
	return &f
}
