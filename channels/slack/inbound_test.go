package slack

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/clawbot/clawbot/agent"
	"github.com/clawbot/clawbot/channels/slack/slacktest"
)

func TestMentionComesIn(t *testing.T) {
	bothWays(t, func(t *testing.T, how func(*settings)) {
		b := start(t, how)
		said := b.Say("C0001", "U0001", m+" if a&lt;b &amp;&amp; c&gt;d: see <https://a.example/x|this>")
		got := b.wait(1)[0]
		want := agent.Inbound{
			Key: "C0001:" + said.TS,
			Origin: agent.Origin{
				Place:      agent.Place{Channel: "slack", Workspace: "T0001", Conversation: "C0001", Thread: said.TS},
				Author:     agent.Actor{Channel: "slack", Workspace: "T0001", User: "U0001"},
				AuthorName: "Ana",
				Ref:        said.TS,
			},
			Text: "if a<b && c>d: see this (https://a.example/x)",
		}
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("(-want +got)\n%s", d)
		}
	})
}

func TestF1_SlowStoreIsOneTurn(t *testing.T) {
	b := start(t, withHTTP, withSlack(slacktest.WithAckTimeout(400*time.Millisecond)))
	b.in.onReceive = func(ctx context.Context, _ agent.Inbound) error {
		if b.in.attempts() == 1 {
			time.Sleep(700 * time.Millisecond) // stored, but too late for the answer
		}
		return nil
	}
	b.Say("C0001", "U0001", m+" hi", slacktest.OnlyMention())
	b.wait(1)
	if !slices.ContainsFunc(b.Acks(), func(a slacktest.Ack) bool { return a.Retry > 0 }) {
		t.Errorf("Slack repeated nothing: the test shows nothing")
	}
}

func TestF2_F3_FirstDeliveryLostRetryCounts(t *testing.T) {
	bothWays(t, func(t *testing.T, how func(*settings)) {
		b := start(t, how)
		b.Say("C0001", "U0001", m+" hi", slacktest.AsRetry(1))
		b.wait(1)
	})
}

func TestF4_MentionArrivesTwice(t *testing.T) {
	bothWays(t, func(t *testing.T, how func(*settings)) {
		b := start(t, how)
		b.Say("C0001", "U0001", m+" one")
		b.Say("C0001", "U0001", m+" two", slacktest.MentionFirst())
		b.Say("C0001", "U0001", m+" three", slacktest.Times(3), slacktest.FreshIDs(), slacktest.AtOnce())
		b.wait(3)
		if n := b.in.attempts(); n != 3 {
			t.Errorf("the store was asked %d times about 3 messages", n)
		}
	})
}

func TestF5_OnlyAppMention(t *testing.T) {
	b := start(t)
	b.Say("C0001", "U0001", m+" hi", slacktest.OnlyMention())
	b.Say("C0001", "U0001", m+" ho", slacktest.OnlyMessage())
	b.wait(2)
}

func TestF6_F45_GroupDirectMessage(t *testing.T) {
	b := start(t)
	group := b.AddChannel(slacktest.Channel{ID: "C0GROUP", Kind: slacktest.MPIM, Members: []string{slacktest.BotUserID, "U0001", "U0002"}})
	b.Say(group, "U0001", "between us")
	b.wait(0)
	said := b.Say(group, "U0001", m+" hi")
	if got := b.wait(1)[0]; got.Origin.Thread != said.TS || got.JoinedOnly {
		t.Errorf("got %+v", got)
	}
	b.Reply(group, said.TS, "U0002", "and this?")
	if got := b.wait(2)[1]; got.Origin.Thread != said.TS || !got.JoinedOnly || got.Text != "and this?" {
		t.Errorf("got %+v", got)
	}
}

func TestF7_AcknowledgedBeforeWork(t *testing.T) {
	b := start(t)
	hold := make(chan struct{})
	b.in.onReceive = func(_ context.Context, m agent.Inbound) error {
		if m.Text == "slow" {
			<-hold
		}
		return nil
	}
	b.Say("C0001", "U0001", m+" slow", slacktest.OnlyMention())
	b.Say("C0001", "U0001", m+" quick", slacktest.OnlyMention())
	b.eventually("the quick one", func() bool { return len(b.in.received()) == 1 }) // another thread is not held up
	close(hold)
	b.wait(2)
	for _, ack := range b.Acks() {
		if ack.Late {
			t.Errorf("late: %+v", ack)
		}
	}
}

// F8, and what slack-go cannot read: unknown events, elements and frames.
func TestF8_UnreadableIsAcknowledgedOnce(t *testing.T) {
	b := start(t)
	event := func(inner string) string {
		return `{"type":"event_callback","team_id":"T0001","api_app_id":"A0APP","event_id":"EvX","event":` + inner + `}`
	}
	docs := []string{
		event(`{"type":"never_heard_of"}`),
		event(`{"type":"message"}`),
		event(`{"type":"message","channel":5,"ts":{},"text":[]}`),
		event(`{"type":42}`),
		event(`null`),
		event(`[]`),
		`{"type":"event_callback"}`,
		`{"type":"app_rate_limited","minute_rate_limited":1}`,
		`{"type":"something_else"}`,
	}
	for _, d := range docs {
		b.DeliverRaw(d)
	}
	// A message with an element slack-go does not know is a message all the same.
	b.DeliverRaw(event(`{"type":"message","channel":"C0001","channel_type":"channel","user":"U0001","ts":"1700000100.000100",
		"text":"` + m + ` still readable \ud800 \u0000 x","blocks":[{"type":"actions","elements":[{"type":"hologram"}]}]}`))
	for _, frame := range []string{`{"type":"hello","num_connections":1}`, `{"type":"quantum"}`, `[]`, `"x"`, `{`, ``, strings.Repeat("[", 20000)} {
		if err := b.SendFrame(frame); err != nil {
			t.Fatal(err)
		}
	}
	got := b.wait(1)[0]
	if want := "still readable \uFFFD \uFFFD x"; got.Text != want {
		t.Errorf("text %q, want %q", got.Text, want)
	}
	if n := len(b.Acks()); n != len(docs)+1 {
		t.Errorf("%d acknowledgements for %d envelopes", n, len(docs)+1)
	}
}

func TestF8_UnreadableOverHTTP(t *testing.T) {
	b := start(t, withHTTP)
	for _, doc := range []string{`{`, `null`, `[]`, `5`, `{"type":"event_callback","event":null}`, "\x00\xff", strings.Repeat("[", 100000), ""} {
		for _, path := range []string{PathEvents, PathInteractions, PathCommands} {
			a, err := b.PostRaw(path, "application/json", []byte(doc), 0)
			if err != nil || a.Status != 200 && a.Status != 400 {
				t.Errorf("%s %.20q: %v %v", path, doc, a.Status, err)
			}
		}
	}
}

func TestHugeAndHostileTexts(t *testing.T) {
	bothWays(t, func(t *testing.T, how func(*settings)) {
		b := start(t, how)
		for i, text := range []string{
			strings.Repeat("x", 1<<20), "\x00\x00 a", "<", "<@", "<@>", "<!>", "<!date^1^{date}|then>", "&amp;lt;", "<#C1|>", "<@U0001|>", "<https://x|>", "\u202e\u200b!",
		} {
			inner, err := json.Marshal(map[string]any{
				"type": "message", "channel": "C0001", "channel_type": "channel", "user": "U0001",
				"ts": fmt.Sprintf("17000001%02d.000100", i), "text": m + " " + text,
			})
			if err != nil {
				t.Fatal(err)
			}
			b.DeliverEvent("C0001", string(inner))
		}
		got := b.wait(12)
		for _, in := range got {
			if strings.ContainsRune(in.Text, 0) {
				t.Errorf("a NUL in %q", in.Text)
			}
		}
	})
}

func TestReadText(t *testing.T) {
	me := identity{userID: "U0BOT", userName: "clawbot"}
	for in, want := range map[string]string{
		"<@U0BOT> hi":                      "hi",
		"<@U0BOT>: hi":                     "hi",
		"<@U0BOT|clawbot> <@U0BOT> hi":     "hi",
		"hi <@U0BOT>, see":                 "hi @clawbot, see",
		"<@U0001> and <@U0002|ben>":        "@U0001 and @ben",
		"in <#C0001|general> <#C2>":        "in #general #C2",
		"<!here> <!channel|channel>":       "@here @channel",
		"<!subteam^S1|@admins>":            "@admins",
		"<!date^1^{date}|yesterday>":       "yesterday",
		"<https://a.example>":              "https://a.example",
		"<http://a.example|a.example>":     "http://a.example",
		"<https://a.example/?x=1&amp;y|L>": "L (https://a.example/?x=1&y)",
		"<mailto:a@b.example|a@b.example>": "a@b.example",
		"&lt;@U0BOT&gt; &amp;lt;":          "<@U0BOT> &lt;",
		"a < b":                            "a < b",
		"<@U0BOT":                          "<@U0BOT",
		"a\r\nb":                           "a\nb",
	} {
		if got := readText(in, me); got != want {
			t.Errorf("%q: got %q, want %q", in, got, want)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		s := rapid.String().Draw(t, "s")
		if got := readText(escape(s), me); got != strings.TrimSpace(strings.ReplaceAll(strings.ReplaceAll(s, "\x00", "\uFFFD"), "\r\n", "\n")) {
			t.Fatalf("%q was read as %q", s, got)
		}
	})
}

func TestF12_OwnMessagesAreNoTrigger(t *testing.T) {
	b := start(t, withAll)
	place := agent.Place{Channel: Name, Workspace: "T0001", Conversation: "C0001"}
	if _, err := b.a.Post(t.Context(), place, agent.Post{Key: "dlv_1", Text: "an answer"}); err != nil {
		t.Fatal(err)
	}
	for i, inner := range []string{ // each identity alone
		`"user":"U0BOT"`, `"user":"U0001","bot_id":"B0BOT"`, `"user":"U0001","app_id":"A0APP"`, `"user":"U0001","subtype":"bot_message"`,
	} {
		b.DeliverEvent("C0001", fmt.Sprintf(`{"type":"message","channel":"C0001","channel_type":"channel","ts":"170000020%d.000100","text":"x",%s}`, i, inner))
	}
	b.wait(0)
}

func TestF13_T18_OtherAppsAreNoTrigger(t *testing.T) {
	b := start(t, withAll)
	root := b.Say("C0001", "U0001", m+" hi")
	b.AppSays(slacktest.App{BotID: "B0OTHER", AppID: "A0OTHER", UserID: "U0OTHER", Name: "other"}, "C0001", root.TS, m+" hello, bot")
	b.AppSays(slacktest.App{BotID: "B0OLD", AppID: "A0OLD", Name: "old"}, "C0001", root.TS, m+" hello, bot")
	b.AddUser(slacktest.User{ID: "U0ROBOT", Name: "robot", IsBot: true}) // known by the directory alone
	b.SetMember("C0001", "U0ROBOT", true)
	b.Say("C0001", "U0ROBOT", m+" beep")
	b.wait(1)
}

func TestF14_F15_F16_F17_EditsAreNoTrigger(t *testing.T) {
	b := start(t, withAll)
	said := b.Say("C0001", "U0001", m+" see https://a.example")
	b.ReplyNotice(said)
	b.Preview(said, "https://a.example")
	b.Edit(said, m+" do something else")
	dm := b.DM("U0001")
	old := b.Say(dm, "U0001", "old")
	b.Edit(old, "new")
	b.Delete(old)
	b.Join("C0001", "U0003")
	b.DeliverEvent("C0001", `{"type":"app_mention","channel":"C0001","user":"U0001","ts":"1700000300.000100","text":"`+m+` edited in","edited":{"user":"U0001","ts":"1700000301.000100"}}`)
	b.DeliverEvent("C0001", `{"type":"message","hidden":true,"channel":"C0001","channel_type":"channel","user":"U0001","ts":"1700000302.000100","text":"hidden"}`)
	b.wait(2)
}

func TestF18_F19_ThreadIsTheSession(t *testing.T) {
	b := start(t)
	root := b.Say("C0001", "U0001", "for later")
	b.Reply("C0001", root.TS, "U0002", m+" look at this")
	b.Reply("C0001", root.TS, "U0001", "yes please")
	other := b.Say("C0001", "U0001", m+" another")
	b.Reply("C0001", other.TS, "U0002", "mine", slacktest.Broadcast())
	got := b.wait(4)
	for i, want := range []string{root.TS, root.TS, other.TS, other.TS} {
		if got[i].Origin.Thread != want {
			t.Errorf("%q is in thread %s, want %s", got[i].Text, got[i].Origin.Thread, want)
		}
	}
	stranger := b.Say("C0001", "U0003", "a thread of our own")
	b.Reply("C0001", stranger.TS, "U0003", "nobody asked the bot")
	b.wait(4)
}

func TestF21_OrderOfAThreadIsKept(t *testing.T) {
	b := start(t, withAll)
	root := b.Say("C0001", "U0001", "0")
	b.in.onReceive = func(_ context.Context, m agent.Inbound) error {
		if len(m.Text)%2 == 0 {
			time.Sleep(3 * time.Millisecond)
		}
		return nil
	}
	for i := range 30 {
		b.Reply("C0001", root.TS, "U0001", strings.Repeat("x", i+1))
	}
	b.wait(31)
	for i, in := range b.in.received()[1:] {
		if len(in.Text) != i+1 {
			t.Fatalf("message %d is %q", i, in.Text)
		}
	}
}

func TestF22_ThreadsDoNotWaitForEachOther(t *testing.T) { TestF7_AcknowledgedBeforeWork(t) }

func TestF23_DirectMessage(t *testing.T) {
	b := start(t)
	dm := b.DM("U0001")
	first := b.Say(dm, "U0001", "hi")
	b.Say(dm, "U0001", "and "+m+" again")
	b.Reply(dm, first.TS, "U0001", "aside")
	got := b.wait(3)
	if got[0].Origin.Thread != "" || got[1].Origin.Thread != "" || got[2].Origin.Thread != first.TS {
		t.Errorf("threads %q %q %q", got[0].Origin.Thread, got[1].Origin.Thread, got[2].Origin.Thread)
	}
	if got[0].Origin.Conversation != dm || got[0].JoinedOnly || got[1].Text != "and @clawbot again" {
		t.Errorf("got %+v", got)
	}
}

func TestTriggerAll(t *testing.T) {
	b := start(t, withAll)
	root := b.Say("C0001", "U0001", "no mention")
	b.Reply("C0001", root.TS, "U0002", "reply")
	got := b.wait(2)
	if got[0].JoinedOnly || got[1].JoinedOnly || got[1].Origin.Thread != root.TS {
		t.Errorf("got %+v", got)
	}
}

func TestNotStoredIsNotAcknowledged(t *testing.T) {
	bothWays(t, func(t *testing.T, how func(*settings)) {
		b := start(t, how, quick)
		b.in.onReceive = func(context.Context, agent.Inbound) error {
			if b.in.attempts() < 3 {
				return errors.New("database is away")
			}
			return nil
		}
		b.Say("C0001", "U0001", m+" hi", slacktest.OnlyMention())
		b.wait(1)
		if !strings.Contains(b.log.String(), "database is away") {
			t.Error("the failure is not in the log")
		}
	})
}

func TestStoreHangs(t *testing.T) {
	b := start(t)
	b.in.onReceive = func(ctx context.Context, _ agent.Inbound) error {
		if b.in.attempts() == 1 {
			<-ctx.Done() // must end before Slack gives up
			return ctx.Err()
		}
		return nil
	}
	b.Say("C0001", "U0001", m+" hi", slacktest.OnlyMention())
	b.wait(1)
}

func TestPanicInTheEngineIsNoCrash(t *testing.T) {
	b := start(t, quick)
	b.in.onReceive = func(context.Context, agent.Inbound) error {
		if b.in.attempts() == 1 {
			panic("boom")
		}
		return nil
	}
	b.Say("C0001", "U0001", m+" hi", slacktest.OnlyMention())
	b.wait(1)
	if !strings.Contains(b.log.String(), "boom") {
		t.Error("the panic is not in the log")
	}
	b.log.mu.Lock()
	b.log.buf.Reset() // expected here
	b.log.mu.Unlock()
}

func TestInFlightMessagesAreStoredAtTheEnd(t *testing.T) {
	b := start(t)
	entered := make(chan struct{})
	leave := make(chan struct{})
	b.in.onReceive = func(context.Context, agent.Inbound) error {
		close(entered)
		<-leave
		return nil
	}
	b.Say("C0001", "U0001", m+" hi", slacktest.OnlyMention())
	<-entered
	ended := make(chan error, 1)
	go func() { ended <- b.stop() }()
	time.Sleep(20 * time.Millisecond)
	close(leave)
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	if acks := b.Acks(); len(acks) != 1 || acks[0].Late {
		t.Errorf("acknowledgements: %+v", acks)
	}
	b.wait(1)
}

// F26, F112: nothing to answer is no turn, and the person is told.
func TestF26_F112_NoText(t *testing.T) {
	b := start(t)
	said := b.Say("C0001", "U0001", m+" \u200b ")
	b.WaitMessage(t, "C0001", said.TS, func(m slacktest.Message) bool {
		return m.EphemeralTo == "U0001" && strings.Contains(m.Shown, "no text")
	})
	b.Upload("C0001", "", "U0001", m, slacktest.File{Name: "a.png"})
	got := b.wait(1)[0]
	if got.Text != "(1 file attached: a.png; files are not read yet)" {
		t.Errorf("text %q", got.Text)
	}
	if n := len(b.Ephemerals("U0001")); n != 1 {
		t.Errorf("told %d times", n)
	}
}

func TestFilesWithText(t *testing.T) {
	b := start(t)
	dm := b.DM("U0001")
	b.Upload(dm, "", "U0001", "look", slacktest.File{Name: "x\u202egnp.exe"})
	if got, want := b.wait(1)[0].Text, "look\n\n(1 file attached: x\\u{202E}gnp.exe; files are not read yet)"; got != want {
		t.Errorf("text %q, want %q", got, want)
	}
}
