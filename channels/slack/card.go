package slack

import (
	"encoding/json"
	"fmt"
	"strings"

	slackgo "github.com/slack-go/slack"

	"github.com/clawbot/clawbot/agent"
)

// Limits of a card. Values above fieldMost are cut, and further as long as the
// whole is too long.
const (
	fieldMost   = 2800
	fieldLeast  = 80
	maxButton   = 75
	modalBlock  = 2800
	modalBlocks = 60
	modalJSON   = 200_000 // a view may have 250,000
	modalEnds   = 20_000  // shown of each end where the whole does not fit
)

// cardBlocks draws a card. All texts of the card are literal elements of rich
// text: Slack reads no markup in them.
func (a *Adapter) cardBlocks(c agent.Card) []slackgo.Block {
	most, fields := fieldMost, len(c.Fields)
	for {
		blocks, cut := a.drawCard(c, most, fields)
		doc, err := json.Marshal(blocks)
		if err == nil && units(string(doc)) <= maxBlocks || most <= fieldLeast && fields == 0 {
			return a.withButtons(blocks, c, cut)
		}
		if most > fieldLeast {
			most = max(fieldLeast, most*2/3)
		} else {
			fields /= 2
		}
	}
}

// drawCard draws everything but the buttons, with values of at most most
// characters and the first fields fields. cut says whether something is missing.
func (a *Adapter) drawCard(c agent.Card, most, fields int) (blocks []slackgo.Block, cut bool) {
	cut = c.Cut
	short := func(s string, most int) string {
		s = shown(s)
		if units(s) > most {
			cut = true
			return shorten(s, most)
		}
		return s
	}
	blocks = append(blocks, richText(a.blockID("title"), section(bold(short(or(c.Title, "Approval"), 300)))))

	var args []slackgo.RichTextElement
	for _, f := range c.Fields[:fields] {
		name, value := or(short(f.Name, 200), "argument"), short(f.Value, most)
		switch {
		case value == "":
			args = append(args, section(bold(name+": "), italic("empty")))
		case f.Code:
			args = append(args, section(bold(name)), preformatted(value))
		default:
			args = append(args, section(bold(name+": "), plainText(value)))
		}
	}
	if left := len(c.Fields) - fields; left > 0 {
		cut = true
		args = append(args, section(italic(fmt.Sprintf("%d more arguments are not shown here.", left))))
	}
	if len(args) > 0 {
		blocks = append(blocks, richText(a.blockID("args"), args...))
	}

	var facts []slackgo.RichTextElement
	for _, f := range c.Facts[:min(len(c.Facts), 20)] {
		facts = append(facts, section(plainText(short(f.Name, 200)+": "+or(short(f.Value, min(most, 300)), "–"))))
	}
	if c.Masked > 0 {
		facts = append(facts, section(italic(counted(c.Masked, "value is masked.", "values are masked."))))
	}
	if cut {
		facts = append(facts, section(italic("Shortened. Details shows the whole.")))
	}
	if len(facts) > 0 {
		blocks = append(blocks, richText(a.blockID("facts"), facts...))
	}
	if c.Outcome != "" {
		blocks = append(blocks, richText(a.blockID("outcome"), section(bold(short(c.Outcome, 1000)))))
	}
	return blocks, cut
}

// withButtons adds the buttons. A card that can be approved and does not show
// everything always has Details.
func (a *Adapter) withButtons(blocks []slackgo.Block, c agent.Card, cut bool) []slackgo.Block {
	var row []slackgo.BlockElement
	hasDetails := false
	for _, b := range c.Buttons {
		hasDetails = hasDetails || b.Verb == agent.VerbDetails
		row = append(row, button(b, c.Approval))
	}
	if cut && !hasDetails && len(row) > 0 {
		row = append(row, button(agent.Button{Verb: agent.VerbDetails, Label: "Details"}, c.Approval))
	}
	if len(row) == 0 {
		return blocks
	}
	return append(blocks, slackgo.NewActionBlock(a.blockID("buttons"), row...))
}

// button carries the approval's id and nothing else.
func button(b agent.Button, id agent.ApprovalID) *slackgo.ButtonBlockElement {
	label := slackgo.NewTextBlockObject(slackgo.PlainTextType, shorten(or(shown(b.Label), string(b.Verb)), maxButton), false, false)
	e := slackgo.NewButtonBlockElement(actionPrefix+string(b.Verb), string(id), label)
	switch b.Verb {
	case agent.VerbApprove:
		e.Style = slackgo.StylePrimary
	case agent.VerbDeny:
		e.Style = slackgo.StyleDanger
	}
	return e
}

// cardText is the card for notifications and screen readers.
func cardText(c agent.Card) string {
	var lines []string
	add := func(s string, most int) {
		if s = shown(s); strings.TrimSpace(s) != "" {
			lines = append(lines, shorten(s, most))
		}
	}
	add(or(c.Title, "Approval"), 200)
	add(c.Outcome, 500)
	for _, f := range c.Fields[:min(len(c.Fields), 10)] {
		add(f.Name+": "+f.Value, 200)
	}
	for _, f := range c.Facts[:min(len(c.Facts), 10)] {
		add(f.Name+": "+f.Value, 100)
	}
	body := escape(strings.Join(lines, "\n"))
	for most := maxText; units(body) > maxText; most = most * 3 / 4 {
		body = escape(shorten(strings.Join(lines, "\n"), most))
	}
	return body
}

// modal shows the whole of the arguments; whole is false where it does not fit
// and a file must hold the rest.
func (a *Adapter) modal(c agent.Card) (view slackgo.ModalViewRequest, whole bool) {
	full := shown(c.Full)
	view = a.modalOf(c, full, "")
	doc, err := json.Marshal(view)
	if err == nil && len(view.Blocks.BlockSet) <= modalBlocks && len(doc) <= modalJSON {
		return view, true
	}
	for most := modalEnds; ; most /= 2 {
		view = a.modalOf(c, shorten(full, most), "The whole is in the file "+fileName(c)+" in the thread.")
		if doc, err := json.Marshal(view); err == nil && len(view.Blocks.BlockSet) <= modalBlocks && len(doc) <= modalJSON || most < 100 {
			return view, false
		}
	}
}

func (a *Adapter) modalOf(c agent.Card, body, note string) slackgo.ModalViewRequest {
	head := []slackgo.RichTextElement{
		section(bold(shorten(shown(or(c.Title, "Approval")), 300))),
		section(plainText(fmt.Sprintf("%d characters, SHA-256 of this text: %s", len([]rune(c.Full)), agent.SHA256(c.Full)))),
	}
	if c.Masked > 0 {
		head = append(head, section(italic(counted(c.Masked, "value is masked.", "values are masked."))))
	}
	if note != "" {
		head = append(head, section(italic(note)))
	}
	blocks := []slackgo.Block{richText(a.blockID("head"), head...)}
	if body == "" {
		blocks = append(blocks, richText(a.blockID("args"), section(italic("no arguments"))))
	}
	for _, piece := range pieces(body, modalBlock) {
		blocks = append(blocks, richText(a.blockID("args"), preformatted(piece)))
	}
	return slackgo.ModalViewRequest{
		Type:   slackgo.VTModal,
		Title:  slackgo.NewTextBlockObject(slackgo.PlainTextType, "Details", false, false),
		Close:  slackgo.NewTextBlockObject(slackgo.PlainTextType, "Close", false, false),
		Blocks: slackgo.Blocks{BlockSet: blocks},
	}
}

func fileName(c agent.Card) string { return "arguments-" + string(c.Approval) + ".txt" }

// pieces cuts a text into pieces of at most most units, behind a line where it
// can. Nothing is dropped.
func pieces(s string, most int) []string {
	var out []string
	for s != "" {
		n, count, line := 0, 0, 0
		for i, r := range s {
			if count++; r > 0xFFFF {
				count++
			}
			if count > most {
				break
			}
			n = i + len(string(r))
			if r == '\n' {
				line = n
			}
		}
		if n < len(s) && line > n/2 {
			n = line
		}
		out = append(out, s[:n])
		s = s[n:]
	}
	return out
}

// shorten keeps head and tail of a text that has more than most units, and says
// how long it is.
func shorten(s string, most int) string {
	if units(s) <= most {
		return s
	}
	r := []rune(s)
	mark := fmt.Sprintf("\n… %d characters, the middle is not shown …\n", len(r))
	if most < 200 {
		mark = " … "
	}
	keep := max(0, most-units(mark))
	head, used := 0, 0
	for ; head < len(r) && used+units(string(r[head])) <= keep*2/3; head++ {
		used += units(string(r[head]))
	}
	tail := len(r)
	for ; tail > head && used+units(string(r[tail-1])) <= keep; tail-- {
		used += units(string(r[tail-1]))
	}
	return string(r[:head]) + mark + string(r[tail:])
}

// shown is a text of a card as it goes into a literal element. The texts have
// been made visible where the card was drawn; this catches what was not, since
// one field forgotten would be enough.
func shown(s string) string {
	s = strings.ToValidUTF8(s, "\uFFFD")
	hides := func(r rune) bool { return agent.Hidden(r) && r != '\n' && r != '\t' }
	if strings.IndexFunc(s, hides) < 0 {
		return s
	}
	var out strings.Builder
	for _, r := range s {
		if hides(r) {
			fmt.Fprintf(&out, `\u{%X}`, r)
		} else {
			out.WriteRune(r)
		}
	}
	return out.String()
}

func or(s, other string) string {
	if strings.TrimSpace(s) == "" {
		return other
	}
	return s
}

func counted(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}
