package slack

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	slackgo "github.com/slack-go/slack"
	"pgregory.net/rapid"
)

// sketch writes rich text so that a test can compare it: *bold*, _italic_,
// ~strike~, `code`, {links}, lists with their indent.
func sketch(blocks []slackgo.Block) string {
	var out strings.Builder
	inline := func(es []element) string {
		var out strings.Builder
		for _, e := range es {
			switch e := e.(type) {
			case *slackgo.RichTextSectionTextElement:
				s := e.Text
				if st := e.Style; st != nil {
					for _, m := range []struct {
						on   bool
						mark string
					}{{st.Code, "`"}, {st.Bold, "*"}, {st.Italic, "_"}, {st.Strike, "~"}} {
						if m.on {
							s = m.mark + s + m.mark
						}
					}
				}
				out.WriteString(s)
			case *slackgo.RichTextSectionLinkElement:
				out.WriteString("{" + e.URL + "}")
				if e.Text != "" {
					out.WriteString("!LABEL!")
				}
			default:
				fmt.Fprintf(&out, "!%T!", e)
			}
		}
		return out.String()
	}
	for _, b := range blocks {
		for _, e := range b.(*slackgo.RichTextBlock).Elements {
			switch e := e.(type) {
			case *slackgo.RichTextSection:
				out.WriteString(inline(e.Elements) + "\n")
			case *slackgo.RichTextPreformatted:
				out.WriteString("[[" + inline(e.Elements) + "]]\n")
			case *slackgo.RichTextQuote:
				out.WriteString("> " + inline(e.Elements) + "\n")
			case *slackgo.RichTextList:
				for i, item := range e.Elements {
					mark := "-"
					if e.Style == slackgo.RTEListOrdered {
						mark = fmt.Sprintf("%d.", e.Offset+i+1)
					}
					out.WriteString(strings.Repeat("  ", e.Indent) + mark + " " + inline(item.(*slackgo.RichTextSection).Elements) + "\n")
				}
			}
		}
	}
	return strings.TrimSuffix(out.String(), "\n")
}

func TestMarkdownBecomesRichText(t *testing.T) {
	for _, c := range []struct{ name, in, want string }{
		{"F30 comparison", "if a<b && c>d", "if a<b && c>d"},
		{"styles", "a **b** _c_ ~~d~~ `e*f*`", "a *b* _c_ ~d~ `e*f*`"},
		{"heading", "# Title\ntext", "*Title*\n\ntext"},
		{"paragraphs", "one\n\ntwo\nthree", "one\n\ntwo\nthree"},
		{"F31 code is left alone", "```go\na := \"**x**\" // <b> &amp; [l](u)\n```", "[[a := \"**x**\" // <b> &amp; [l](u)]]"},
		{"F32 leading spaces", "```\n    four\n\ttab\n```", "[[    four\n\ttab]]"},
		{"F29 mentions", "hi <@U0001> <!channel> @here <!subteam^S1|x>", "hi <@U0001> <!channel> @here <!subteam^S1|x>"},
		{"T12 masked link", "[harmless](https://evil.example/?q=1)", "harmless ({https://evil.example/?q=1})"},
		{"T12 masked by an address", "[https://good.example](https://evil.example)", "https://good.example ({https://evil.example})"},
		{"T12 Slack link", "<https://evil.example/|good>", "https://evil.example/|good"},
		{"T12 image", "![alt](https://evil.example/x.png)", "alt ({https://evil.example/x.png})"},
		{"T12 reference", "[good][r]\n\n[r]: https://evil.example", "good ({https://evil.example})\n\n[r]: {https://evil.example}"},
		{"T12 bare", "see https://a.example/x?y=1&z=2.", "see {https://a.example/x?y=1&z=2}."},
		{"T12 bare domain", "see www.a.example and a.example", "see www.a.example and a.example"},
		{"T12 international", "[x](https://еxample.com)", "x (https://еxample.com)"},
		{"T12 user name", "[x](https://good.example@evil.example)", "x (https://good.example@evil.example)"},
		{"T12 script", "[x](javascript:alert)", "x (javascript:alert)"},
		{"autolink", "<https://a.example>", "{https://a.example}"},
		{"mail", "<a@b.example>", "a@b.example"},
		{"list", "- a\n- b\n  - c\n    1. d\n- e", "- a\n- b\n  - c\n    1. d\n- e"},
		{"ordered from 3", "3. a\n4. b", "3. a\n4. b"},
		{"code in list", "1. a\n   ```\n   x\n   ```\n2. b", "1. a\n[[x]]\n2. b"},
		{"code between texts in list", "- a\n\n  ```\n  x\n  ```\n\n  b\n- c", "- a\n[[x]]\n- b\n- c"},
		{"quote in list", "- a\n  > q\n- b", "- a\n> q\n- b"},
		{"empty item", "- \n- a", "- a"},
		{"deep", strings.Repeat("> ", 40) + "x", "> x"},
		{"quote", "> a\n> **b**\n>\n> - c", "> a\n*b*\n• c"},
		{"table", "| a | bb |\n|---|---|\n| ccc | d |", "[[a   | bb\n----+---\nccc | d]]"},
		{"html", "<b>x</b> <script>", "<b>x</b> <script>"},
		{"html block", "<div>\nx\n</div>", "<div>\nx\n</div>"},
		{"entities", "&lt;@U1&gt; &amp; \\*x\\* &#x41;", "<@U1> & *x* A"},
		{"rule", "a\n\n---\n\nb", "a\n\n───\n\nb"},
		{"only a fence", "```\n```", "```\n```"},
		{"info that is a text", "```do this now please\nx\n```", "[[do this now please\nx]]"},
		{"control", "a\x00b\x1b", "a\uFFFDb\uFFFD"},
	} {
		got := sketch(markdownBlocks(c.in, ""))
		if got != c.want {
			t.Errorf("%s: %q\n got %q\nwant %q", c.name, c.in, got, c.want)
		}
	}
}

func hostileMarkdown() *rapid.Generator[string] {
	piece := rapid.OneOf(
		rapid.String(),
		rapid.StringMatching(`[a-z ]{0,40}`),
		rapid.SampledFrom([]string{
			"<!channel>", "<@U0001>", "<!subteam^S1>", "@here", "@channel", "[x](https://evil.example)", "<https://a.example|b>",
			"```", "```go\n", "\n\n", "\n- ", "\n1. ", "\n> ", "**", "`", "| a | b |\n|---|---|\n| c | d |\n", "![i](http://x.example/y)",
			"\x00", "\u202e", "&amp;", "&", "<", ">", "😀", "\xff", "\\", "[", "]", "](", "~~~", "    ", "\t", "#", "https://a.example/",
		}),
	)
	return rapid.Custom(func(t *rapid.T) string { return strings.Join(rapid.SliceOfN(piece, 0, 60).Draw(t, "pieces"), "") })
}

// No text of a model becomes anything but literal text and addresses in the open.
func TestRenderingIsLiteral(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		md := hostileMarkdown().Draw(t, "md")
		blocks := markdownBlocks(md, "id")
		if got := sketch(blocks); strings.Contains(got, "!LABEL!") || strings.Contains(got, "!*slack.") {
			t.Fatalf("%q became %s", md, got)
		}
		doc, err := json.Marshal(blocks)
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(doc), `"text":""`) || strings.Contains(string(doc), `"elements":[]`) || strings.Contains(string(doc), `"elements":null`) {
			t.Fatalf("%q has an empty element: %s", md, doc)
		}
	})
}

// Whatever the markup, every word is shown.
func TestRenderingLosesNoWord(t *testing.T) {
	shape := rapid.SampledFrom([]string{
		"%s", "**%s**", "_%s_", "`%s`", "~~%s~~", "# %s\n", "\n- %s", "\n  - %s", "\n1. %s", "\n> %s", "\n> - %s", "\n> > %s", "\n\n%s\n\n",
		"\n```\n%s\n```\n", "\n    %s\n", "\n- a\n\n  ```\n  %s\n  ```\n", "[%s](https://a.example)", "[l](https://a.example/%s)", "![%s](u)",
		"<b>%s</b>", "\n<div>\n%s\n</div>\n", "\n| %s | b |\n|---|---|\n| c | d |\n", "| %s |", "\n|---|\n", "<!-- %s -->", "\n***\n%s", "\n===\n%s",
		"<https://b.example/%s>", "https://c.example/%s ", "\n[%s]: https://d.example\n", "\n> ```\n> %s\n> ```\n", "\\%s", "&amp;%s;", "\n```%s and more\n", "<![CDATA[%s", "<?%s",
	})
	rapid.Check(t, func(t *rapid.T) {
		md, n := "", rapid.IntRange(1, 25).Draw(t, "n")
		for i := range n {
			md += fmt.Sprintf(strings.ReplaceAll(shape.Draw(t, "shape"), "%s", "%[1]s"), fmt.Sprintf("w%02dw", i))
		}
		got := sketch(markdownBlocks(md, ""))
		for i := range n {
			if w := fmt.Sprintf("w%02dw", i); strings.Contains(md, w) && !strings.Contains(got, w) {
				t.Fatalf("%s is missing\n%q\n%s", w, md, got)
			}
		}
	})
}

func TestRenderingIsFastEnough(t *testing.T) {
	a := &Adapter{}
	for name, unit := range map[string]string{
		"brackets": "[", "images": "![", "stars": "*a ", "quotes": "> ", "nested": "- ", "backticks": "`a``b", "lt": "<a ", "links": "[a](", "tabs": "\t-",
	} {
		start := time.Now()
		defer func() { t.Log(name, time.Since(start)) }()
		for i, part := range a.Split(strings.Repeat(unit, 100_000/len(unit))) {
			if n := size(part); n > maxText {
				t.Errorf("%s: part %d measures %d", name, i, n)
			}
		}
	}
}
