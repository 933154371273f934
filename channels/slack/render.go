package slack

import (
	"net/url"
	"strconv"
	"strings"

	slackgo "github.com/slack-go/slack"
	"github.com/yuin/goldmark"
	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/extension"
	extast "github.com/yuin/goldmark/extension/ast"
	"github.com/yuin/goldmark/parser"
	gmtext "github.com/yuin/goldmark/text"
	"github.com/yuin/goldmark/util"
)

// Elements of rich text. Their texts are literal: Slack looks for no mention,
// address or markup in them.

type (
	style   = slackgo.RichTextSectionTextStyle
	element = slackgo.RichTextSectionElement
)

func styled(s string, st style) element {
	if st == (style{}) {
		return slackgo.NewRichTextSectionTextElement(s, nil)
	}
	return slackgo.NewRichTextSectionTextElement(s, &st)
}

func plainText(s string) element { return styled(s, style{}) }
func bold(s string) element      { return styled(s, style{Bold: true}) }
func italic(s string) element    { return styled(s, style{Italic: true}) }

func section(e ...element) *slackgo.RichTextSection { return slackgo.NewRichTextSection(e...) }

func preformatted(s string) *slackgo.RichTextPreformatted {
	return &slackgo.RichTextPreformatted{Type: slackgo.RTEPreformatted, Elements: []element{plainText(s)}}
}

func richText(id string, e ...slackgo.RichTextElement) *slackgo.RichTextBlock {
	return slackgo.NewRichTextBlock(id, e...)
}

// markdown is the dialect of models: CommonMark with tables, strikethrough and
// bare addresses.
var markdown = goldmark.New(goldmark.WithExtensions(
	extension.Table, extension.Strikethrough,
	extension.NewLinkify(extension.WithLinkifyAllowedProtocols([]string{"http:", "https:"})),
)).Parser()

// maxNesting bounds how far lists and quotes are indented.
const maxNesting = 8

// plain is a text without characters that Slack or a terminal may choke on.
func plain(s string) string {
	s = strings.ReplaceAll(strings.ToValidUTF8(s, "\uFFFD"), "\r\n", "\n")
	return strings.Map(func(r rune) rune {
		if r < 0x20 && r != '\n' && r != '\t' || r == 0x7F {
			return '\uFFFD'
		}
		return r
	}, s)
}

// fallback is a part as text for notifications: its source, escaped.
func fallback(md string) string { return escape(strings.TrimSpace(plain(md))) }

// markdownBlocks turns a part into one rich text block. Addresses are shown as
// they are, never behind a label; images become their addresses.
func markdownBlocks(md, id string) []slackgo.Block {
	src := []byte(plain(md))
	b := &builder{src: src}
	b.blocks(markdown.Parse(gmtext.NewReader(src), parser.WithContext(parser.NewContext())), 0)
	b.flush()
	if !b.seen {
		b.out = []slackgo.RichTextElement{section(plainText(or(string(src), "…")))}
	}
	return []slackgo.Block{richText(id, b.out...)}
}

// builder collects rich text.
type builder struct {
	src  []byte
	out  []slackgo.RichTextElement
	cur  []element       // the section being written
	text strings.Builder // what is to follow in it, in one style
	st   style
	seen bool // something that shows was written
}

// write adds text to the current section.
func (b *builder) write(s string, st style) {
	if s == "" {
		return
	}
	b.seen = b.seen || strings.TrimSpace(s) != ""
	if st != b.st {
		b.settle()
		b.st = st
	}
	b.text.WriteString(s)
}

// settle makes an element of the text written so far.
func (b *builder) settle() {
	if b.text.Len() > 0 {
		b.cur = append(b.cur, styled(b.text.String(), b.st))
		b.text.Reset()
	}
}

// add puts an element into the current section.
func (b *builder) add(e element) {
	b.settle()
	b.cur = append(b.cur, e)
	b.seen = true
}

// empty reports whether nothing was written to the current section.
func (b *builder) empty() bool { return len(b.cur) == 0 && b.text.Len() == 0 }

// take returns the elements of the current section and begins another.
func (b *builder) take() []element {
	b.settle()
	cur := b.cur
	b.cur = nil
	return cur
}

// link adds an address that can be followed and is shown in full, or its text
// where it is no plain web address.
func (b *builder) link(address string, st style) {
	if !followable(address) {
		b.write(address, st)
		return
	}
	b.add(slackgo.NewRichTextSectionLinkElement(address, "", nil))
}

// followable reports whether an address goes where it seems to: http or https,
// ASCII alone, without a user name before the host, and without characters that
// mean something in Slack's own form of a link.
func followable(address string) bool {
	u, err := url.Parse(address)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.User != nil || len(address) > 2000 {
		return false
	}
	return strings.IndexFunc(address, func(r rune) bool { return r <= 0x20 || r >= 0x7F || strings.ContainsRune(`<>|"\`, r) }) < 0
}

// flush ends the current section.
func (b *builder) flush() {
	if !b.empty() {
		b.out = append(b.out, section(b.take()...))
	}
}

// gap separates what follows from what the section holds already.
func (b *builder) gap() {
	if !b.empty() {
		b.write("\n\n", style{})
	}
}

// blocks writes the blocks inside n.
func (b *builder) blocks(n ast.Node, depth int) {
	for c := n.FirstChild(); c != nil; c = c.NextSibling() {
		b.block(c, depth)
	}
}

func (b *builder) block(n ast.Node, depth int) {
	switch n := n.(type) {
	case *ast.Heading:
		b.gap()
		b.inlines(n, style{Bold: true})
	case *ast.Paragraph, *ast.TextBlock:
		b.gap()
		b.inlines(n, style{})
	case *ast.List:
		b.flush()
		b.list(n, depth)
	case *ast.FencedCodeBlock:
		b.code(info(n, b.src) + lines(n, b.src))
	case *ast.CodeBlock:
		b.code(lines(n, b.src))
	case *ast.Blockquote:
		b.quote(n)
	case *extast.Table:
		b.code(table(n, b.src))
	case *ast.ThematicBreak:
		b.gap()
		b.write("───", style{})
	case *ast.HTMLBlock:
		b.gap()
		b.write(html(n, b.src), style{})
	case *ast.LinkReferenceDefinition:
		b.gap()
		b.write("["+string(n.Label)+"]: ", style{})
		b.link(string(n.Destination), style{})
	default:
		b.blocks(n, depth)
	}
}

// html is the source of an HTML block, which is text to us.
func html(n *ast.HTMLBlock, src []byte) string {
	s := lines(n, src)
	if n.HasClosure() {
		s += string(n.ClosureLine.Value(src))
	}
	return strings.TrimRight(s, "\n")
}

func (b *builder) code(s string) {
	b.flush()
	if s = strings.TrimSuffix(s, "\n"); strings.TrimSpace(s) == "" {
		return
	}
	b.seen = true
	b.out = append(b.out, preformatted(s))
}

// quote writes a block quote, whose inner blocks become lines.
func (b *builder) quote(n ast.Node) {
	b.flush()
	b.flat(n, "", 0)
	if !b.empty() {
		b.out = append(b.out, &slackgo.RichTextQuote{Type: slackgo.RTEQuote, Elements: b.take()})
	}
}

// flat writes blocks as lines of the current section, where Slack allows no
// blocks.
func (b *builder) flat(n ast.Node, prefix string, depth int) {
	if depth > maxNesting {
		prefix = "" // deeper ones do not move further to the right
	}
	item := 0
	for c := n.FirstChild(); c != nil; c = c.NextSibling() {
		if !b.empty() && c.Kind() != ast.KindListItem && c.Kind() != ast.KindList {
			b.write("\n", style{})
		}
		switch c := c.(type) {
		case *ast.ListItem:
			mark := "• "
			if l, ok := n.(*ast.List); ok && l.IsOrdered() {
				mark = strconv.Itoa(l.Start+item) + ". "
			}
			item++
			if !b.empty() {
				b.write("\n", style{})
			}
			b.write(prefix+mark, style{})
			first := true
			for g := c.FirstChild(); g != nil; g = g.NextSibling() {
				if first && (g.Kind() == ast.KindTextBlock || g.Kind() == ast.KindParagraph) {
					b.inlines(g, style{})
				} else {
					b.one(g, prefix+"   ", depth+1)
				}
				first = false
			}
		default:
			b.one(c, prefix, depth)
		}
	}
}

// one writes a single block as lines.
func (b *builder) one(c ast.Node, prefix string, depth int) {
	switch c := c.(type) {
	case *ast.List:
		b.flat(c, prefix, depth+1)
	case *ast.Blockquote:
		b.flat(c, prefix+"> ", depth+1)
	case *ast.FencedCodeBlock:
		b.write(strings.TrimSuffix(info(c, b.src)+lines(c, b.src), "\n"), style{Code: true})
	case *ast.CodeBlock:
		b.write(strings.TrimSuffix(lines(c, b.src), "\n"), style{Code: true})
	case *extast.Table:
		b.write(table(c, b.src), style{Code: true})
	case *ast.HTMLBlock:
		b.write(html(c, b.src), style{})
	case *ast.ThematicBreak:
		b.write("───", style{})
	case *ast.Heading:
		b.write(prefix, style{})
		b.inlines(c, style{Bold: true})
	default:
		b.write(prefix, style{})
		b.inlines(c, style{})
	}
}

// list writes a list. What Slack allows in no list, such as code, comes between
// two pieces of it.
func (b *builder) list(l *ast.List, depth int) {
	kind := slackgo.RTEListBullet
	if l.IsOrdered() {
		kind = slackgo.RTEListOrdered
	}
	var cur *slackgo.RichTextList
	n := 0
	if l.IsOrdered() && l.Start > 0 {
		n = l.Start - 1
	}
	add := func() {
		if b.empty() {
			return
		}
		if cur == nil {
			cur = slackgo.NewRichTextList(kind, min(depth, maxNesting))
			cur.Offset = min(n, 1_000_000)
			b.out = append(b.out, cur)
		}
		cur.Elements = append(cur.Elements, section(b.take()...))
		n++
	}
	for item := l.FirstChild(); item != nil; item = item.NextSibling() {
		for c := item.FirstChild(); c != nil; c = c.NextSibling() {
			switch c := c.(type) {
			case *ast.Paragraph, *ast.TextBlock:
				if !b.empty() {
					b.write("\n", style{})
				}
				b.inlines(c, style{})
			case *ast.List:
				add()
				cur = nil
				if depth >= maxNesting {
					b.flat(c, "", 0)
					b.flush()
				} else {
					b.list(c, depth+1)
				}
			default:
				add()
				cur = nil
				one := &builder{src: b.src}
				one.block(c, depth)
				one.flush()
				b.out = append(b.out, one.out...)
				b.seen = b.seen || one.seen
			}
		}
		add()
	}
}

// inlines writes the text inside n.
func (b *builder) inlines(n ast.Node, st style) {
	for c := n.FirstChild(); c != nil; c = c.NextSibling() {
		switch c := c.(type) {
		case *ast.Text:
			s := string(c.Segment.Value(b.src))
			if !c.IsRaw() {
				s = literal(s)
			}
			b.write(s, st)
			if c.SoftLineBreak() || c.HardLineBreak() {
				b.write("\n", st)
			}
		case *ast.String:
			b.write(string(c.Value), st)
		case *ast.CodeSpan:
			code := st
			code.Code = true
			b.write(strings.ReplaceAll(raw(c, b.src), "\n", " "), code)
		case *ast.Emphasis:
			in := st
			if c.Level >= 2 {
				in.Bold = true
			} else {
				in.Italic = true
			}
			b.inlines(c, in)
		case *extast.Strikethrough:
			in := st
			in.Strike = true
			b.inlines(c, in)
		case *ast.AutoLink:
			if c.AutoLinkType == ast.AutoLinkEmail {
				b.write(string(c.Label(b.src)), st)
			} else {
				b.auto(string(c.URL(b.src)), string(c.Label(b.src)), st)
			}
		case *ast.Link:
			b.labelled(c, string(c.Destination), st)
		case *ast.Image:
			b.labelled(c, string(c.Destination), st)
		case *ast.RawHTML:
			for i := range c.Segments.Len() {
				seg := c.Segments.At(i)
				b.write(string(seg.Value(b.src)), st)
			}
		default:
			b.inlines(c, st)
		}
	}
}

// auto writes a bare address. One without a scheme is text as it was written.
func (b *builder) auto(address, label string, st style) {
	if address == label {
		b.link(address, st)
		return
	}
	b.write(label, st)
}

// labelled writes a link or an image as its label, and the address behind it in
// the open.
func (b *builder) labelled(n ast.Node, address string, st style) {
	label := &builder{src: b.src}
	label.inlines(n, st)
	parts := label.take()
	if shown := words(parts); shown == address || strings.TrimSpace(shown) == "" {
		b.link(address, st)
		return
	}
	for _, e := range parts {
		b.add(e)
	}
	if address == "" {
		return
	}
	b.write(" (", st)
	b.link(address, st)
	b.write(")", st)
}

// words is the text of elements, with addresses.
func words(es []element) string {
	var out strings.Builder
	for _, e := range es {
		switch e := e.(type) {
		case *slackgo.RichTextSectionTextElement:
			out.WriteString(e.Text)
		case *slackgo.RichTextSectionLinkElement:
			out.WriteString(e.URL)
		}
	}
	return out.String()
}

// lines is the source lines of a block.
func lines(n ast.Node, src []byte) string {
	var out strings.Builder
	for i := range n.Lines().Len() {
		seg := n.Lines().At(i)
		out.Write(seg.Value(src))
	}
	return out.String()
}

// info is the info string of a code block where it is more than the name of a
// language: it would not be seen otherwise.
func info(c *ast.FencedCodeBlock, src []byte) string {
	if c.Info == nil {
		return ""
	}
	s := strings.TrimSpace(string(c.Info.Segment.Value(src)))
	if len(s) <= 30 && !strings.ContainsAny(s, " \t") {
		return ""
	}
	return s + "\n"
}

// raw is the text inside n without markup.
func raw(n ast.Node, src []byte) string {
	var out strings.Builder
	for c := n.FirstChild(); c != nil; c = c.NextSibling() {
		switch c := c.(type) {
		case *ast.Text:
			out.Write(c.Segment.Value(src))
		case *ast.String:
			out.Write(c.Value)
		default:
			out.WriteString(raw(c, src))
		}
	}
	return out.String()
}

// literal undoes backslash escapes and entities in one pass.
func literal(s string) string {
	if !strings.ContainsAny(s, `\&`) {
		return s
	}
	var out strings.Builder
	for i := 0; i < len(s); i++ {
		switch {
		case s[i] == '\\' && i+1 < len(s) && util.IsPunct(s[i+1]):
			i++
			out.WriteByte(s[i])
		case s[i] == '&':
			end := strings.IndexByte(s[i:min(len(s), i+40)], ';')
			if end > 0 {
				entity := []byte(s[i : i+end+1])
				if got := util.ResolveEntityNames(util.ResolveNumericReferences(entity)); string(got) != string(entity) {
					out.WriteString(plain(string(got)))
					i += end
					continue
				}
			}
			out.WriteByte('&')
		default:
			out.WriteByte(s[i])
		}
	}
	return out.String()
}
