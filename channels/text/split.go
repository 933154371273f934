package text

import (
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Split cuts Markdown into parts of at most limit, as measure counts them. It
// cuts between paragraphs if it can, else between lines, then words, then
// characters as people see them. A code fence that is cut is closed at the end
// of the part and opened again in the next, both within the limit. White space
// at a cut is dropped; all else is kept, in order. A text with nothing to see
// has no parts, and no part is empty.
//
// measure is called with whole parts, should grow with their length, and counts
// at least one for each code point. A nil measure counts code points.
func Split(md string, limit int, measure func(part string) int) []string {
	if measure == nil {
		measure = utf8.RuneCountInString
	}
	md = strings.ToValidUTF8(md, "\uFFFD")
	if Blank(md) {
		return nil
	}
	s := splitter{limit: limit, measure: measure, lines: strings.Split(md, "\n")}
	var parts []string
	for len(s.lines) > 0 {
		if part := s.next(); part != "" {
			parts = append(parts, part)
		}
	}
	return parts
}

// Blank reports whether a text has nothing to see.
func Blank(s string) bool {
	for _, r := range s {
		if unicode.IsGraphic(r) && !unicode.IsSpace(r) {
			return false
		}
	}
	return true
}

// splitter takes part after part off the front of lines.
type splitter struct {
	limit   int
	measure func(string) int
	lines   []string
	open    *fence // open before lines, from an earlier part
}

// next takes some lines, at least a character, and returns them as a part; ""
// if there is nothing to see in them.
func (s *splitter) next() string {
	if s.open != nil && s.open.leftBy(s.lines[0]) {
		s.open = nil
	}
	if s.open != nil && s.open.closedBy(s.open.dedent(s.lines[0])) {
		s.lines, s.open = s.lines[1:], nil // the part before closed it already
		return ""
	}
	for s.open == nil && Blank(s.lines[0]) {
		if s.lines = s.lines[1:]; len(s.lines) == 0 {
			return ""
		}
	}
	fit := s.fit()
	if fit == len(s.lines) {
		return s.take(fit, "")
	}
	for n := s.cut(fit); n > 0; n-- {
		if s.fits(s.lines[:n]) { // fewer lines may be longer: their fence is still open
			return s.take(n, "")
		}
	}
	// Not even one line fits, or only the line that opens a fence: cut the next.
	head := s.headOf(fit)
	return s.take(fit, head)
}

// take removes the first n lines and head, the beginning of the line after
// them, and returns them as a part.
func (s *splitter) take(n int, head string) string {
	lines := s.lines[:n]
	if head != "" {
		lines = append(slices.Clone(lines), head)
	}
	part, after, seen := s.render(lines)
	s.lines = s.lines[n:]
	if head != "" {
		s.lines = slices.Clone(s.lines)
		s.lines[0] = s.lines[0][len(head):]
		if after == nil {
			s.lines[0] = strings.TrimLeft(s.lines[0], " \t")
		}
	}
	if len(s.lines) == 0 {
		after = nil
	}
	s.open = s.carry(after)
	if !seen {
		return ""
	}
	return part
}

// carry is an open fence as the next part opens it again: without its info
// string, or not at all, where that would take too much of each part.
func (s *splitter) carry(f *fence) *fence {
	if f == nil {
		return nil
	}
	c := *f
	c.carried = true
	tooMuch := func() bool { return s.measure(c.opener()+"\n\n"+c.closer()) > s.limit*3/4 }
	if tooMuch() {
		c.info = ""
	}
	if tooMuch() {
		return nil
	}
	return &c
}

// render is lines as they are sent, the fence that is open behind them, and
// whether there is anything to see.
func (s *splitter) render(lines []string) (part string, after *fence, seen bool) {
	var out strings.Builder
	open := s.open
	if open != nil {
		out.WriteString(open.opener())
		out.WriteByte('\n')
	}
	for i, line := range lines {
		if i > 0 {
			out.WriteByte('\n')
		}
		before := open
		if open != nil {
			line = open.dedent(line)
		}
		open = step(open, line)
		seen = seen || !Blank(line) && !(before != nil && before.carried && open == nil)
		out.WriteString(line)
	}
	if open != nil {
		return out.String() + "\n" + open.closer(), open, seen
	}
	return strings.TrimRight(out.String(), " \t\n"), nil, seen
}

func (s *splitter) fits(lines []string) bool {
	part, _, _ := s.render(lines)
	return s.measure(part) <= s.limit
}

// fit is how many lines fit into one part.
func (s *splitter) fit() int {
	most, size := 0, 0
	for most < len(s.lines) && size <= s.limit { // a code point measures at least one
		size += utf8.RuneCountInString(s.lines[most]) + 1
		most++
	}
	return search(most, func(n int) bool { return s.fits(s.lines[:n]) })
}

// search finds the largest n in 0…most for which ok holds, given that ok(0)
// holds; ok need not be quite monotonic, but it holds for the result.
func search(most int, ok func(int) bool) int {
	if most > 0 && ok(most) {
		return most
	}
	lo, hi := 0, most
	for lo+1 < hi {
		if mid := (lo + hi) / 2; ok(mid) {
			lo = mid
		} else {
			hi = mid
		}
	}
	return lo
}

// cut chooses where to cut, given that the first fit lines fit: behind the last
// paragraph, else behind the last line outside of code, unless that would make
// the part much smaller. Never behind a line that opens a fence; 0 if there is
// no other.
func (s *splitter) cut(fit int) int {
	total := 0
	for _, line := range s.lines[:fit] {
		total += len(line) + 1
	}
	paragraph, outside, last, size := 0, 0, 0, 0
	open := s.open
	for i, line := range s.lines[:fit] {
		size += len(line) + 1
		before := open
		if open != nil {
			line = open.dedent(line)
		}
		if open = step(open, line); open != nil && open != before {
			continue
		}
		last = i + 1
		if open == nil && size*2 >= total {
			outside = i + 1
			if Blank(line) || Blank(s.lines[i+1]) {
				paragraph = i + 1
			}
		}
	}
	switch {
	case paragraph > 0:
		return paragraph
	case outside > 0:
		return outside
	}
	return last
}

// headOf is the longest beginning of line n that fits behind the lines before
// it, cut behind a space or else between characters. Where there are no lines
// before it, it is at least one character.
func (s *splitter) headOf(n int) string {
	line := s.lines[n]
	before := slices.Clone(s.lines[:n])
	var ends []int // of the code points
	for i, r := range line {
		if len(ends) > s.limit {
			break
		}
		ends = append(ends, i+utf8.RuneLen(r))
	}
	k := search(len(ends), func(k int) bool { return k == 0 || s.fits(append(before, line[:ends[k-1]])) })
	switch {
	case k == 0 && n > 0:
		return "" // the lines before take all the room
	case k == 0:
		return line[:boundaryAfter(line)]
	}
	end := ends[k-1]
	if end == len(line) {
		return line
	}
	if space := strings.LastIndexAny(line[:end], " \t"); space+1 > end/2 && !Blank(line[:space]) {
		end = space + 1
	} else {
		end = boundaryBefore(line, end)
	}
	// A shorter beginning may be longer as it is sent: a code span that lost its
	// end looks like a fence.
	for end > 0 && !s.fits(append(before, line[:end])) {
		end = boundaryBefore(line, end*3/4)
	}
	if end == 0 && n == 0 {
		end = boundaryAfter(line)
	}
	return line[:end]
}
