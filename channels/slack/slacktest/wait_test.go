package slacktest_test

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/slack-go/slack"

	"github.com/clawbot/clawbot/channels/slack/slacktest"
)

// failing is a test that is expected to fail and tells how.
type failing struct {
	testing.TB
	said string
}

func (f *failing) Helper() {}

func (f *failing) Errorf(format string, args ...any) { f.said += fmt.Sprintf(format, args...) }

func (f *failing) Fatalf(format string, args ...any) {
	f.Errorf(format, args...)
	runtime.Goexit()
}

// A wait in vain shows the thread and the last calls.
func TestWaitInVain(t *testing.T) {
	s := slacktest.Start(t, slacktest.WithWaitTimeout(20*time.Millisecond))
	api := client(t, s)
	root := s.Say("C0001", "U0001", "root")
	_, _, _ = api.PostMessage("C0001", slack.MsgOptionTS(root.TS), slack.MsgOptionText("hello", false))
	f := &failing{TB: t}
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.WaitText(f, "C0001", root.TS, "never")
	}()
	<-done
	for _, want := range []string{"clawbot: hello", "chat.postMessage ok", "unfurl_links is not false"} {
		if !strings.Contains(f.said, want) {
			t.Errorf("the failure does not say %q:\n%s", want, f.said)
		}
	}
	f = &failing{TB: t}
	s.NoViolations(f)
	if f.said == "" {
		t.Error("NoViolations said nothing")
	}
}

// What a person reads of each kind of text, and what in it is live.
func TestReading(t *testing.T) {
	s := slacktest.Start(t)
	api := client(t, s)
	s.AddGroup(slacktest.Group{ID: "S0001", Handle: "admins"})
	section := func(t string) slack.MsgOption {
		return slack.MsgOptionBlocks(slack.NewSectionBlock(text(t), nil, nil))
	}
	rich := func(e ...slack.RichTextSectionElement) slack.MsgOption {
		return slack.MsgOptionBlocks(slack.NewRichTextBlock("", slack.NewRichTextSection(e...)))
	}
	for _, tc := range []struct {
		name  string
		msg   slack.MsgOption
		shown string
		links int
	}{
		{"escaped once", slack.MsgOptionText("a &amp;lt; b", false), "a &lt; b", 0},
		{"bare address in text", slack.MsgOptionText("see https://a.example", false), "see https://a.example", 0},
		{"bare address in a section", section("see https://a.example."), "see {link https://a.example}.", 1},
		{"bare name in a section", section("see evil.com now"), "see {link evil.com} now", 1},
		{"address in code", section("`https://a.example`"), "`https://a.example`", 0},
		{"masked link in Markdown", slack.MsgOptionMarkdownText("[bank](https://evil.example)"), "{link bank -> https://evil.example}", 1},
		{"Markdown link in mrkdwn", section("[bank](https://evil.example)"), "[bank]({link https://evil.example})", 1},
		{"escaped mention in Markdown", slack.MsgOptionMarkdownText("&lt;!channel&gt;"), "<!channel>", 0},
		{"mention in Markdown", slack.MsgOptionMarkdownText("<!channel> <b>"), "{ping @channel} <b>", 0},
		{"group", section("<!subteam^S0001>"), "{ping @admins}", 0},
		{"channel", section("<#C0001>"), "#general", 0},
		{"date", section("<!date^1700000000^{date}|a day>"), "a day", 0},
		{"tag in mrkdwn", section("<b>"), "{link b}", 0},
		{"rich text", rich(slack.NewRichTextSectionTextElement("<!here> &lt;", nil)), "<!here> &lt;", 0},
		{"rich link", rich(slack.NewRichTextSectionLinkElement("https://a.example", "a", nil)), "{link a -> https://a.example}", 1},
		{"plain text", slack.MsgOptionBlocks(slack.NewHeaderBlock(plain("<!here> https://a.example"))), "# <!here> https://a.example", 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			ts := post(t, api, "C0001", tc.msg)
			m, _ := s.Message("C0001", ts)
			if diff := cmp.Diff(tc.shown, m.Shown); diff != "" {
				t.Error(diff)
			}
			if len(m.Links) != tc.links {
				t.Errorf("links %v, want %d", m.Links, tc.links)
			}
		})
	}
}
