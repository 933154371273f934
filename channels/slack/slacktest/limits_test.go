package slacktest_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/slack-go/slack"

	"github.com/clawbot/clawbot/channels/slack/slacktest"
)

// Each limit of a message holds exactly: n passes, n+1 does not.
func TestMessageLimits(t *testing.T) {
	s := slacktest.Start(t)
	api := client(t, s)
	x := func(n int) string { return strings.Repeat("x", n) }
	blocks := func(b ...slack.Block) slack.MsgOption { return slack.MsgOptionBlocks(b...) }
	accessory := func(b *slack.ButtonBlockElement) slack.MsgOption {
		return blocks(slack.NewSectionBlock(text("x"), nil, slack.NewAccessory(b)))
	}
	confirm := func(title, body, yes int) slack.MsgOption {
		b := button("a", "A")
		b.Confirm = slack.NewConfirmationBlockObject(plain(x(title)), text(x(body)), plain(x(yes)), plain("No"))
		return accessory(b)
	}
	for _, tc := range []struct {
		name  string
		limit int
		make  func(n int) slack.MsgOption
		code  string
	}{
		{"blocks", 50, func(n int) slack.MsgOption {
			list := make([]slack.Block, n)
			for i := range list {
				list[i] = slack.NewDividerBlock()
			}
			return blocks(list...)
		}, "invalid_blocks"},
		{"section", 3000, func(n int) slack.MsgOption { return blocks(slack.NewSectionBlock(text(x(n)), nil, nil)) }, "invalid_blocks"},
		{"field", 2000, func(n int) slack.MsgOption {
			return blocks(slack.NewSectionBlock(nil, []*slack.TextBlockObject{text(x(n))}, nil))
		}, "invalid_blocks"},
		{"fields", 10, func(n int) slack.MsgOption {
			fields := make([]*slack.TextBlockObject, n)
			for i := range fields {
				fields[i] = text("x")
			}
			return blocks(slack.NewSectionBlock(nil, fields, nil))
		}, "invalid_blocks"},
		{"header", 150, func(n int) slack.MsgOption { return blocks(slack.NewHeaderBlock(plain(x(n)))) }, "invalid_blocks"},
		{"context", 10, func(n int) slack.MsgOption {
			elements := make([]slack.MixedElement, n)
			for i := range elements {
				elements[i] = text("x")
			}
			return blocks(slack.NewContextBlock("", elements...))
		}, "invalid_blocks"},
		{"actions", 25, func(n int) slack.MsgOption {
			elements := make([]slack.BlockElement, n)
			for i := range elements {
				elements[i] = button(fmt.Sprint("a", i), "A")
			}
			return blocks(slack.NewActionBlock("", elements...))
		}, "invalid_blocks"},
		{"button text", 75, func(n int) slack.MsgOption { return accessory(button("a", x(n))) }, "invalid_blocks"},
		{"button value", 2000, func(n int) slack.MsgOption {
			return accessory(slack.NewButtonBlockElement("a", x(n), plain("A")))
		}, "invalid_blocks"},
		{"button url", 3000, func(n int) slack.MsgOption { return accessory(button("a", "A").WithURL(x(n))) }, "invalid_blocks"},
		{"action_id", 255, func(n int) slack.MsgOption { return accessory(button(x(n), "A")) }, "invalid_blocks"},
		{"block_id", 255, func(n int) slack.MsgOption { return blocks(slack.NewActionBlock(x(n), button("a", "A"))) }, "invalid_blocks"},
		{"confirm title", 100, func(n int) slack.MsgOption { return confirm(n, 1, 1) }, "invalid_blocks"},
		{"confirm text", 300, func(n int) slack.MsgOption { return confirm(1, n, 1) }, "invalid_blocks"},
		{"confirm button", 30, func(n int) slack.MsgOption { return confirm(1, 1, n) }, "invalid_blocks"},
		{"option text", 75, func(n int) slack.MsgOption {
			return blocks(slack.NewActionBlock("", slack.NewOptionsSelectBlockElement("static_select", plain("p"), "s",
				slack.NewOptionBlockObject("v", plain(x(n)), nil))))
		}, "invalid_blocks"},
		{"markdown", 12000, func(n int) slack.MsgOption { return blocks(slack.NewMarkdownBlock("", x(n))) }, "msg_too_long"},
		{"markdown sum", 6000, func(n int) slack.MsgOption {
			return blocks(slack.NewMarkdownBlock("", x(n)), slack.NewMarkdownBlock("", x(6000)))
		}, "msg_too_long"},
		{"markdown_text", 12000, func(n int) slack.MsgOption { return slack.MsgOptionMarkdownText(x(n)) }, "msg_too_long"},
		// {"type":"section","text":{"type":"mrkdwn","text":"…"}} is 53 characters plus a comma, in an array.
		{"all blocks", 13200 - 4*2953 - 2 - 5*54 + 1, func(n int) slack.MsgOption {
			list := []slack.Block{slack.NewSectionBlock(text(x(n)), nil, nil)}
			for range 4 {
				list = append(list, slack.NewSectionBlock(text(x(2953)), nil, nil))
			}
			return blocks(list...)
		}, "msg_blocks_too_long"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if _, _, err := api.PostMessage("C0001", quiet(tc.make(tc.limit))); err != nil {
				t.Errorf("at the limit of %d: %v", tc.limit, err)
			}
			_, _, err := api.PostMessage("C0001", quiet(tc.make(tc.limit+1)))
			wantError(t, err, tc.code)
		})
	}
	s.NoViolations(t)
}

func TestBlockRules(t *testing.T) {
	s := slacktest.Start(t)
	api := client(t, s)
	two := func(a, b slack.Block) []slack.Block { return []slack.Block{a, b} }
	for name, blocks := range map[string][]slack.Block{
		"empty section":     {slack.NewSectionBlock(text(""), nil, nil)},
		"no text":           {slack.NewSectionBlock(nil, nil, nil)},
		"action_id twice":   {slack.NewActionBlock("", button("a", "A"), button("a", "B"))},
		"block_id twice":    two(slack.NewActionBlock("b", button("a", "A")), slack.NewActionBlock("b", button("a", "A"))),
		"empty actions":     {slack.NewActionBlock("")},
		"empty markdown":    {slack.NewMarkdownBlock("", "")},
		"empty rich text":   {slack.NewRichTextBlock("", slack.NewRichTextSection(slack.NewRichTextSectionTextElement("", nil)))},
		"header in mrkdwn":  {slack.NewHeaderBlock(text("x"))},
		"empty button":      {slack.NewActionBlock("", button("a", ""))},
		"emoji with mrkdwn": {slack.NewSectionBlock(&slack.TextBlockObject{Type: "mrkdwn", Text: "x", Emoji: new(bool)}, nil, nil)},
		"style":             {slack.NewActionBlock("", button("a", "A").WithStyle("green"))},
		"unknown":           {&slack.UnknownBlock{Type: "hologram"}},
	} {
		t.Run(name, func(t *testing.T) {
			_, _, err := api.PostMessage("C0001", quiet(slack.MsgOptionBlocks(blocks...)))
			wantError(t, err, "invalid_blocks")
		})
	}
	rows := slack.NewTableBlock("").AddRow(slack.NewTableRawTextCell("cell"), slack.NewTableRichTextCell(slack.NewRichTextSection(slack.NewRichTextSectionTextElement("rich", nil))))
	post(t, api, "C0001", slack.MsgOptionBlocks(rows))
	if got := s.Thread("C0001", ""); got[len(got)-1].Shown != "| cell | rich |" {
		t.Errorf("table shows %q", got[len(got)-1].Shown)
	}
}

// chat.update refuses what posting only advises against.
func TestUpdateLength(t *testing.T) {
	s := slacktest.Start(t)
	api := client(t, s)
	ts := post(t, api, "C0001", slack.MsgOptionText("x", false))
	update := func(n int) error {
		_, _, _, err := api.UpdateMessage("C0001", ts, slack.MsgOptionText(strings.Repeat("é", n), false), slack.MsgOptionParse(false))
		return err
	}
	if err := update(4000); err != nil {
		t.Error(err)
	}
	wantError(t, update(4001), "msg_too_long")
	wantError(t, func() error {
		_, _, _, err := api.UpdateMessage("C0001", ts, slack.MsgOptionText(strings.Repeat("😀", 2001), false))
		return err
	}(), "msg_too_long")
	s.NoViolations(t)
}

// Each limit of a modal holds exactly.
func TestViewLimits(t *testing.T) {
	s := slacktest.Start(t)
	p := startProgram(t, s, nil)
	s.WaitConnected(t, 1)
	m := card(t, p, s, "")
	x := func(n int) string { return strings.Repeat("x", n) }
	open := func(v slack.ModalViewRequest) error {
		if err := s.Click("U0001", m, "Approve"); err != nil {
			t.Fatal(err)
		}
		clicks := p.snapshot().clicks
		_, err := p.api.OpenView(clicks[len(clicks)-1].TriggerID, v)
		return err
	}
	for _, tc := range []struct {
		name  string
		limit int
		set   func(v *slack.ModalViewRequest, n int)
	}{
		{"title", 24, func(v *slack.ModalViewRequest, n int) { v.Title = plain(x(n)) }},
		{"submit", 24, func(v *slack.ModalViewRequest, n int) { v.Submit = plain(x(n)) }},
		{"close", 24, func(v *slack.ModalViewRequest, n int) { v.Close = plain(x(n)) }},
		{"private_metadata", 3000, func(v *slack.ModalViewRequest, n int) { v.PrivateMetadata = x(n) }},
		{"callback_id", 255, func(v *slack.ModalViewRequest, n int) { v.CallbackID = x(n) }},
		{"blocks", 100, func(v *slack.ModalViewRequest, n int) {
			for len(v.Blocks.BlockSet) < n {
				v.Blocks.BlockSet = append(v.Blocks.BlockSet, slack.NewDividerBlock())
			}
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			v := modal(1)
			tc.set(&v, tc.limit)
			if err := open(v); err != nil {
				t.Errorf("at the limit of %d: %v", tc.limit, err)
			}
			v = modal(1)
			tc.set(&v, tc.limit+1)
			if err := open(v); err == nil || !strings.HasPrefix(err.Error(), "invalid_arguments") {
				t.Errorf("one over: %v", err)
			}
		})
	}
	v := modal(1)
	v.Submit = nil
	if open(v) == nil {
		t.Error("an input without a submit button was accepted")
	}
}
