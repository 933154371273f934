package slacktest

import (
	"regexp"
	"slices"
	"strings"
)

// Escape encodes the three characters that have a meaning in Slack's text, for
// what people type in [Server.Say].
func Escape(s string) string {
	return strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;").Replace(s)
}

// decode undoes [Escape], once.
func decode(s string) string {
	return strings.NewReplacer("&lt;", "<", "&gt;", ">", "&amp;", "&").Replace(s)
}

// Patterns of Slack's text.
var (
	tokenPattern = regexp.MustCompile(`<([^<>\n]+)>`)
	userToken    = regexp.MustCompile(`^@([UW][A-Z0-9]+)(?:\|.*)?$`)
	groupToken   = regexp.MustCompile(`^!subteam\^(S[A-Z0-9]+)(?:\|.*)?$`)
	rangeToken   = regexp.MustCompile(`^!(channel|here|everyone|group)(?:\|.*)?$`)
	channelToken = regexp.MustCompile(`^#([CGD][A-Z0-9]+)(?:\|.*)?$`)
	dateToken    = regexp.MustCompile(`^!date\^\d+\^[^|]*\|(.*)$`)
	linkToken    = regexp.MustCompile(`^((?:https?|mailto|ftp|tel|slack):[^|]+)(?:\|(.*))?$`)

	bareURL      = regexp.MustCompile(`\b(?:https?://[^\s<>|)\]]+|(?:[a-z0-9-]+\.)+(?:com|org|net|io|dev|ai|co|app|sh)\b(?:/[^\s<>|)\]]*)?)`)
	markdownLink = regexp.MustCompile(`!?\[([^\]]*)\]\(\s*<?([^)\s>]+)[^)]*\)`)
	codeSpan     = regexp.MustCompile("(?s:```.*?```)|`[^`\n]+`")
	linkable     = regexp.MustCompile(codeSpan.String() + "|" + tokenPattern.String() + "|" + markdownLink.String() + "|" + bareURL.String())
	bareEntity   = regexp.MustCompile(`&(?:lt|gt|amp);`)
	namePing     = regexp.MustCompile(`(?:^|[\s(])@(channel|here|everyone)\b`)
)

// textKind says how Slack reads a piece of text.
type textKind int

const (
	mrkdwn   textKind = iota // tokens work, entities are decoded
	plain                    // entities are decoded, nothing else
	markdown                 // Markdown; tokens work, entities are decoded
	literal                  // shown as it is
)

// piece is one text within a message.
type piece struct {
	kind     textKind
	text     string
	verbatim bool // mrkdwn without automatic links
}

// pieces lists every text in blocks, at any depth, and calls on for each rich
// text element that is no text.
func pieces(v any, on func(object)) []piece {
	var out []piece
	switch v := v.(type) {
	case []object:
		for _, o := range v {
			out = append(out, pieces(map[string]any(o), on)...)
		}
	case []any:
		for _, item := range v {
			out = append(out, pieces(item, on)...)
		}
	case map[string]any:
		o := object(v)
		switch o.str("type") {
		case "mrkdwn":
			verbatim, _ := o["verbatim"].(bool)
			return []piece{{mrkdwn, o.str("text"), verbatim}}
		case "plain_text":
			return []piece{{kind: plain, text: o.str("text")}}
		case "markdown":
			return []piece{{kind: markdown, text: o.str("text")}}
		case "text":
			return []piece{{kind: literal, text: o.str("text")}}
		case "user", "usergroup", "broadcast", "link":
			on(o)
		}
		for _, key := range sortedKeys(v) {
			out = append(out, pieces(v[key], on)...)
		}
	}
	return out
}

func sortedKeys(m map[string]any) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

// signals computes whom a message notifies and what it makes clickable. The
// top-level text counts even under blocks: it is what notifications show.
func signals(text string, blocks []object) (pings []string, links []Link) {
	addPing := func(id string) {
		if id != "" && !slices.Contains(pings, id) {
			pings = append(pings, id)
		}
	}
	addLink := func(l Link) {
		if !slices.Contains(links, l) {
			links = append(links, l)
		}
	}
	all := pieces(blocks, func(o object) {
		switch o.str("type") {
		case "user":
			addPing(o.str("user_id"))
		case "usergroup":
			addPing(o.str("usergroup_id"))
		case "broadcast":
			addPing(o.str("range"))
		case "link":
			addLink(Link{URL: o.str("url"), Label: o.str("text")})
		}
	})
	if len(blocks) == 0 {
		// Posted with parse=none, the text alone gets no automatic links.
		all = append(all, piece{mrkdwn, text, true})
	} else {
		for _, id := range tokenPings(text) {
			addPing(id)
		}
	}
	for _, p := range all {
		if p.kind != mrkdwn && p.kind != markdown {
			continue
		}
		for _, id := range tokenPings(p.text) {
			addPing(id)
		}
		for _, l := range textLinks(p) {
			addLink(l)
		}
	}
	return pings, links
}

// tokenPings lists whom the tokens in a text notify.
func tokenPings(text string) []string {
	var out []string
	for _, m := range tokenPattern.FindAllStringSubmatch(text, -1) {
		for _, re := range []*regexp.Regexp{userToken, groupToken, rangeToken} {
			if id := re.FindStringSubmatch(m[1]); id != nil {
				out = append(out, id[1])
			}
		}
	}
	return out
}

// textLinks lists what Slack makes clickable in a text.
func textLinks(p piece) []Link {
	var out []Link
	rest := tokenPattern.ReplaceAllStringFunc(p.text, func(tok string) string {
		if m := linkToken.FindStringSubmatch(tok[1 : len(tok)-1]); m != nil {
			out = append(out, Link{URL: decode(m[1]), Label: decode(m[2])})
		}
		return " "
	})
	rest = codeSpan.ReplaceAllString(rest, " ")
	if p.kind == markdown {
		rest = markdownLink.ReplaceAllStringFunc(rest, func(tok string) string {
			m := markdownLink.FindStringSubmatch(tok)
			out = append(out, Link{URL: decode(m[2]), Label: m[1]})
			return " "
		})
	}
	if p.kind == markdown || !p.verbatim {
		for _, u := range bareURL.FindAllString(rest, -1) {
			out = append(out, Link{URL: decode(strings.TrimRight(u, ".,;:!?"))})
		}
	}
	return out
}

// knownToken says whether Slack has a meaning for <in>.
func knownToken(in string) bool {
	for _, re := range []*regexp.Regexp{userToken, groupToken, rangeToken, channelToken, dateToken, linkToken} {
		if re.MatchString(in) {
			return true
		}
	}
	return false
}

// badEscaping describes the first thing in a mrkdwn text that Slack would lose
// or garble because it was not escaped; "" if there is none.
func badEscaping(text string) string {
	rest := tokenPattern.ReplaceAllStringFunc(text, func(tok string) string {
		if knownToken(tok[1 : len(tok)-1]) {
			return ""
		}
		return tok
	})
	if tok := tokenPattern.FindString(rest); tok != "" {
		return tok
	}
	if i := strings.IndexByte(rest, '<'); i >= 0 {
		return rest[i : i+1]
	}
	if rest = bareEntity.ReplaceAllString(rest, ""); strings.Contains(rest, "&") {
		return "&"
	}
	return ""
}

// read is a piece of text as a person reads it. What pings or links is marked
// {ping @Ana} and {link label -> address}; with marks off it is plain.
func (s *Server) read(p piece, marks bool) string {
	switch p.kind {
	case literal:
		return p.text
	case plain:
		return decode(p.text)
	}
	if marks && !p.verbatim {
		p.text = markLinks(p.text, p.kind == markdown)
	}
	var out strings.Builder
	last := 0
	for _, loc := range tokenPattern.FindAllStringIndex(p.text, -1) {
		out.WriteString(decode(p.text[last:loc[0]]))
		if in := p.text[loc[0]+1 : loc[1]-1]; p.kind == mrkdwn || knownToken(in) {
			out.WriteString(s.readToken(in, marks))
		} else {
			out.WriteString(p.text[loc[0]:loc[1]])
		}
		last = loc[1]
	}
	out.WriteString(decode(p.text[last:]))
	return out.String()
}

// markLinks marks what becomes a link without being a token; nothing does
// inside code.
func markLinks(text string, md bool) string {
	bare := func(u string) string {
		address := strings.TrimRight(u, ".,;:!?")
		return readLink(Link{URL: address}, true) + u[len(address):]
	}
	return linkable.ReplaceAllStringFunc(text, func(tok string) string {
		m := markdownLink.FindStringSubmatch(tok)
		switch {
		case tok[0] == '`' || tok[0] == '<':
			return tok
		case m != nil && md:
			return readLink(Link{URL: m[2], Label: m[1]}, true)
		}
		return bareURL.ReplaceAllStringFunc(tok, bare)
	})
}

// readToken is what a person sees for <in>.
func (s *Server) readToken(in string, marks bool) string {
	ping := func(name string) string {
		if marks {
			return "{ping @" + name + "}"
		}
		return "@" + name
	}
	if m := userToken.FindStringSubmatch(in); m != nil {
		return ping(s.name(m[1]))
	}
	if m := groupToken.FindStringSubmatch(in); m != nil {
		return ping(s.name(m[1]))
	}
	if m := rangeToken.FindStringSubmatch(in); m != nil {
		return ping(m[1])
	}
	if m := channelToken.FindStringSubmatch(in); m != nil {
		return "#" + s.name(m[1])
	}
	if m := dateToken.FindStringSubmatch(in); m != nil {
		return decode(m[1])
	}
	address, label := in, ""
	if i := strings.IndexByte(in, '|'); i >= 0 {
		address, label = in[:i], in[i+1:]
	}
	return readLink(Link{URL: decode(address), Label: decode(label)}, marks)
}

func readLink(l Link, marks bool) string {
	switch {
	case marks && l.Label != "" && l.Label != l.URL:
		return "{link " + l.Label + " -> " + l.URL + "}"
	case marks:
		return "{link " + l.URL + "}"
	case l.Label != "":
		return l.Label
	}
	return l.URL
}
