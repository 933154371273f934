package agent

import (
	"regexp"
	"strings"
	"unicode"
)

const maxAuthorName = 80 // characters of a display name that a model gets to see

// forgedAuthor matches a line that looks like the attribution below.
var forgedAuthor = regexp.MustCompile(`(?m)^([^\S\n]*)(\[[^\[\]\n]*[a-z]+:[^\[\]\s]+\])`)

// Attributed returns the text of a person's message as a model is to read it:
//
//	[Alice, slack:T0001/U0001] deploy the site
//
// The id is the authenticated author's and always the last part within the
// brackets. A name loses every character that could end the brackets, begin a
// line or look like an id, so nobody can call himself into being somebody else;
// a line of the text that copies the form gets a backslash before its bracket.
// A message of nobody has no attribution.
func Attributed(m Message) string {
	text := forgedAuthor.ReplaceAllString(m.Text, `$1\$2`)
	id := strings.Map(func(r rune) rune {
		if unicode.IsSpace(r) || breaksAttribution(r) {
			return -1
		}
		return r
	}, m.Author.String())
	name := authorName(m.AuthorName)
	switch {
	case id == "" && name == "":
		return text
	case id == "":
		id = "unknown"
	case name == "":
		name = "someone"
	}
	return "[" + name + ", " + id + "] " + text
}

// authorName makes an untrusted display name one plain run of words.
func authorName(name string) string {
	name = strings.Map(func(r rune) rune {
		switch {
		case unicode.IsSpace(r):
			return ' '
		case breaksAttribution(r), r == ':', r == '：', r == '/':
			return -1
		}
		return r
	}, name)
	name = strings.Join(strings.Fields(name), " ")
	if runes := []rune(name); len(runes) > maxAuthorName {
		name = strings.TrimSpace(string(runes[:maxAuthorName]))
	}
	return name
}

// breaksAttribution reports brackets of any script, commas, and all that does
// not show: controls, directions, joiners, private and unassigned characters.
func breaksAttribution(r rune) bool {
	return unicode.In(r, unicode.Ps, unicode.Pe) && r != '(' && r != ')' ||
		strings.ContainsRune(",，、﹐⹁", r) ||
		r == unicode.ReplacementChar || !unicode.IsPrint(r)
}
