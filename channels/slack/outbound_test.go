package slack

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/clawbot/clawbot/agent"
	"github.com/clawbot/clawbot/channels/slack/slacktest"
)

// place is the thread of a message.
func place(msg slacktest.Message) agent.Place {
	return agent.Place{Channel: Name, Workspace: "T0001", Conversation: msg.Channel, Thread: msg.Root()}
}

// send posts all parts of a text and returns the messages.
func (b *bench) send(to agent.Place, md string) []slacktest.Message {
	b.t.Helper()
	var out []slacktest.Message
	for i, part := range b.a.Split(md) {
		ref, err := b.a.Post(b.t.Context(), to, agent.Post{Key: agent.DeliveryID(fmt.Sprintf("dlv_%d_%d", time.Now().UnixNano(), i)), Text: part})
		if err != nil {
			b.t.Fatal(err)
		}
		msg, ok := b.Message(to.Conversation, ref)
		if !ok {
			b.t.Fatalf("no message %s", ref)
		}
		out = append(out, msg)
	}
	return out
}

func sendErr(t *testing.T, err error) *agent.SendError {
	t.Helper()
	var e *agent.SendError
	if !errors.As(err, &e) {
		t.Fatalf("%v is no SendError", err)
	}
	return e
}

func TestF18_ReplyGoesToTheThread(t *testing.T) {
	b := start(t)
	said := b.Say("C0001", "U0001", m+" hi")
	in := b.wait(1)[0]
	got := b.send(in.Origin.Place, "hello")[0]
	if got.ThreadTS != said.TS {
		t.Errorf("in thread %q, want %q", got.ThreadTS, said.TS)
	}
	dm := b.DM("U0002")
	b.Say(dm, "U0002", "hi")
	in = b.wait(2)[1]
	if got := b.send(in.Origin.Place, "hello")[0]; got.ThreadTS != "" {
		t.Errorf("the answer to a direct message is in thread %q", got.ThreadTS)
	}
	if meta := string(got.Metadata); !strings.Contains(meta, `"clawbot_delivery"`) || !strings.Contains(meta, "dlv_") {
		t.Errorf("metadata %s", meta)
	}
}

func TestF24_F25_LongReplyIsSplit(t *testing.T) {
	b := start(t)
	delivery := 0
	for _, md := range []string{strings.Repeat("x", 8001), strings.Repeat("word ", 1000), strings.Repeat("<&>", 1500), "```go\n" + strings.Repeat("a := \"<b>\"\n", 500) + "```"} {
		shown := ""
		delivery++
		to := agent.Place{Conversation: b.AddChannel(slacktest.Channel{Members: []string{slacktest.BotUserID}})}
		for _, part := range b.a.Split(md) { // one delivery: one key for all parts, and some read the same
			ref, err := b.a.Post(t.Context(), to, agent.Post{Key: agent.DeliveryID(fmt.Sprintf("dlv_%d", delivery)), Text: part})
			if err != nil {
				t.Fatal(err)
			}
			msg, _ := b.Message(to.Conversation, ref)
			if n := units(msg.Text); n > 4000 {
				t.Errorf("%d characters", n)
			}
			shown += msg.Shown
		}
		if got, want := strings.Count(shown, "x"), strings.Count(md, "x"); got != want {
			t.Errorf("%d of %d characters arrived", got, want)
		}
	}
}

func TestF26_BlankIsNeverSent(t *testing.T) {
	b := start(t)
	for _, s := range []string{"", " \n", "\u200b"} {
		if parts := b.a.Split(s); len(parts) != 0 {
			t.Errorf("%q has parts %q", s, parts)
		}
		_, err := b.a.Post(t.Context(), agent.Place{Conversation: "C0001"}, agent.Post{Text: s})
		if e := sendErr(t, err); !e.Permanent || e.Reason != "no_text" {
			t.Errorf("%q: %+v", s, e)
		}
	}
	if n := len(b.Calls("chat.postMessage")); n != 0 {
		t.Errorf("%d calls", n)
	}
}

func TestF29_F30_NothingPings(t *testing.T) {
	b := start(t)
	said := b.Say("C0001", "U0001", m+" hi")
	msg := b.send(place(said), "<!channel> <@U0001> @here if a<b && c>d [good](https://evil.example) `<!here>`")[0]
	if len(msg.Pings) != 0 {
		t.Errorf("pings %v", msg.Pings)
	}
	if want := "<!channel> <@U0001> @here if a<b && c>d good ({link https://evil.example}) "; !strings.HasPrefix(msg.Shown, want) {
		t.Errorf("shown %q", msg.Shown)
	}
	if err := b.a.Edit(t.Context(), place(said), msg.TS, agent.Post{Text: "@channel <!channel> https://a.example"}); err != nil {
		t.Fatal(err)
	}
	for _, call := range append(b.Calls("chat.postMessage"), b.Calls("chat.update")...) {
		if call.Args["unfurl_links"] != "false" || call.Args["unfurl_media"] != "false" || call.Args["parse"] != "none" || call.Args["link_names"] != "false" {
			t.Errorf("%s was sent with %v", call.Method, call.Args)
		}
	}
}

func TestErrorsSayWhetherToTryAgain(t *testing.T) {
	b := start(t)
	post := func() *agent.SendError {
		to := agent.Place{Conversation: b.AddChannel(slacktest.Channel{Members: []string{slacktest.BotUserID}})}
		_, err := b.a.Post(t.Context(), to, agent.Post{Text: "hello"})
		return sendErr(t, err)
	}
	for _, code := range []string{
		"channel_not_found", "not_in_channel", "is_archived", "msg_too_long", "msg_blocks_too_long", "invalid_blocks", "invalid_auth",
		"account_inactive", "missing_scope", "restricted_action", "token_revoked", "no_such_code",
	} {
		b.Fail("chat.postMessage", 1, slacktest.ErrorCode(code))
		if e := post(); !e.Permanent || e.Reason != code {
			t.Errorf("%s: %+v", code, e)
		}
	}
	for _, f := range []slacktest.Fault{slacktest.ErrorCode("internal_error"), slacktest.Status(500), slacktest.Status(503), slacktest.HTML(), slacktest.Hangup()} {
		b.Fail("chat.postMessage", 1, f)
		if e := post(); e.Permanent {
			t.Errorf("%+v", e)
		}
	}
}

// F33: a refusal inside a 200 is a refusal, and Retry-After holds for everybody.
func TestF33_RateLimits(t *testing.T) {
	b := start(t)
	said := b.Say("C0001", "U0001", m+" hi")
	msg := b.send(place(said), "one")[0]
	b.Fail("chat.update", 1, slacktest.RateLimited200())
	err := b.a.Edit(t.Context(), place(said), msg.TS, agent.Post{Text: "two"})
	if e := sendErr(t, err); e.Permanent || e.RetryAfter <= 0 {
		t.Errorf("%+v", e)
	}
	b.Fail("chat.postMessage", 1, slacktest.RateLimited(30*time.Second))
	_, err = b.a.Post(t.Context(), place(said), agent.Post{Text: "three"})
	if e := sendErr(t, err); e.RetryAfter != 30*time.Second {
		t.Errorf("%+v", e)
	}
	calls := len(b.Calls("chat.postMessage"))
	_, err = b.a.Post(t.Context(), place(said), agent.Post{Text: "four"})
	if e := sendErr(t, err); e.RetryAfter < 20*time.Second {
		t.Errorf("%+v", e)
	}
	if n := len(b.Calls("chat.postMessage")); n != calls {
		t.Error("another caller did not respect Retry-After")
	}
	other := b.AddChannel(slacktest.Channel{Members: []string{slacktest.BotUserID}})
	if _, err := b.a.Post(t.Context(), agent.Place{Conversation: other}, agent.Post{Text: "elsewhere"}); err != nil {
		t.Errorf("another channel is held up: %v", err)
	}
}

func TestPacingStaysBelowSlacksRate(t *testing.T) {
	b := start(t)
	b.EnforceRates()
	said := b.Say("C0001", "U0001", m+" hi")
	for i := range 7 {
		if _, err := b.a.Post(t.Context(), place(said), agent.Post{Text: fmt.Sprint(i)}); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range b.Calls("chat.postMessage") {
		if c.Error != "" {
			t.Errorf("refused: %s", c.Error)
		}
	}
}

func TestPacer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPacer(time.Now)
		begin := time.Now()
		for range 6 {
			if err := p.wait(t.Context(), "k", budget{4, 1}); err != nil {
				t.Fatal(err)
			}
		}
		if d := time.Since(begin); d != 2*time.Second {
			t.Errorf("6 calls took %v, want 2s after a burst of 4", d)
		}
		p.hold("k", 3*time.Second)
		begin = time.Now()
		if err := p.wait(t.Context(), "k", budget{4, 1}); err != nil || time.Since(begin) != 3*time.Second {
			t.Errorf("%v after %v", err, time.Since(begin))
		}
		p.hold("k", time.Hour)
		if e := sendErr(t, p.wait(t.Context(), "k", budget{4, 1})); e.RetryAfter != time.Hour {
			t.Errorf("%+v", e)
		}
		if err := p.wait(t.Context(), "other", budget{4, 1}); err != nil {
			t.Error(err)
		}
	})
}

// A post whose answer was lost is found again instead of sent twice.
func TestLostAnswerPostsOnce(t *testing.T) {
	b := start(t)
	said := b.Say("C0001", "U0001", m+" hi")
	dm := b.Say(b.DM("U0001"), "U0001", "hi")
	for i, to := range []agent.Place{place(said), {Channel: Name, Workspace: "T0001", Conversation: dm.Channel}} {
		p := agent.Post{Key: agent.DeliveryID(fmt.Sprintf("dlv_%d", i)), Text: "hello"}
		b.Fail("chat.postMessage", 1, slacktest.HangupAfter())
		if _, err := b.a.Post(t.Context(), to, p); sendErr(t, err).Permanent {
			t.Fatal("permanent")
		}
		ref, err := b.a.Post(t.Context(), to, p)
		if err != nil {
			t.Fatal(err)
		}
		if msg, _ := b.Message(to.Conversation, ref); msg.Shown != "hello" {
			t.Errorf("found %+v", msg)
		}
		b.Fail("chat.postMessage", 1, slacktest.Hangup()) // this one did not arrive
		p.Key += "x"
		if _, err := b.a.Post(t.Context(), to, p); err == nil {
			t.Fatal("no error")
		}
		if _, err := b.a.Post(t.Context(), to, p); err != nil {
			t.Fatal(err)
		}
	}
	n := 0
	for _, msg := range append(b.Thread("C0001", ""), b.Thread(dm.Channel, "")...) {
		if msg.FromBot() {
			n++
		}
	}
	if n != 4 {
		t.Errorf("%d messages, want 4", n)
	}
}

func sampleCard() agent.Card {
	return agent.Card{
		Approval: "ap_1", Status: agent.ApprovalPending, Title: "Approval needed: shell", Tool: "shell",
		Fields: []agent.CardField{{Name: "command", Value: "rm -rf   /var/log/old\n    echo <!channel> *x* [a](https://evil.example)", Code: true}, {Name: "timeout_s", Value: "60"}},
		Facts:  []agent.CardField{{Name: "Asked by", Value: "Ana (slack:T0001/U0001)"}, {Name: "Rule", Value: "shell-asks"}, {Name: "SHA-256", Value: agent.SHA256("x")[:16]}},
		Full:   `{"command":"…"}`, Masked: 2,
		Buttons: []agent.Button{{Verb: agent.VerbApprove, Label: "Approve"}, {Verb: agent.VerbDeny, Label: "Deny"}, {Verb: agent.VerbDetails, Label: "Details"}},
	}
}

// A card is posted once under its key, also if the caller forgot that it was.
func TestCardIsPostedOnce(t *testing.T) {
	b := start(t)
	card := sampleCard()
	to := agent.Place{Conversation: "C0001"}
	first, err := b.a.Post(t.Context(), to, agent.Post{Key: "dlv_1", Card: &card})
	if err != nil {
		t.Fatal(err)
	}
	card.Outcome, card.Buttons = "Expired.", nil
	again, err := b.a.Post(t.Context(), to, agent.Post{Key: "dlv_1", Card: &card})
	if err != nil || again != first {
		t.Errorf("%s and %s, %v", first, again, err)
	}
	if msg, _ := b.Message("C0001", first); !strings.Contains(msg.Shown, "Expired.") || len(b.Thread("C0001", "")) != 1 {
		t.Errorf("%s", b.Render("C0001", ""))
	}
}

// Golden: an answer with everything models write.
func TestAnswerGolden(t *testing.T) {
	b := start(t)
	said := b.Say("C0001", "U0001", m+" how?")
	b.send(place(said), "# Steps\n\nDo **this**, see [the docs](https://docs.example/a?b=1&c=2):\n\n1. first\n2. second\n   - detail\n\n```sh\n  ls -l | grep '<x>' && echo \"**\"\n```\n\n> quoted\n> <!here>\n\n| a | b |\n|---|---|\n| 1 | 22 |\n\nDone.")
	want := "#general\nAna: @clawbot how?\n  clawbot: Steps\n\n      Do this, see the docs ({link https://docs.example/a?b=1&c=2}):\n" +
		"      1. first\n      2. second\n        - detail\n" +
		"      ```\n        ls -l | grep '<x>' && echo \"**\"\n      ```\n" +
		"      > quoted\n      > <!here>\n" +
		"      ```\n      a | b\n      --+---\n      1 | 22\n      ```\n      Done.\n"
	if got := b.Render("C0001", said.TS); got != want {
		t.Errorf("got:\n%s\nwant:\n%s", got, want)
	}
}

// Golden: what a person reads while the question is open, and afterwards.
func TestCardGolden(t *testing.T) {
	b := start(t)
	said := b.Say("C0001", "U0001", m+" clean up")
	card := sampleCard()
	ref, err := b.a.Post(t.Context(), place(said), agent.Post{Key: "dlv_c", Card: &card})
	if err != nil {
		t.Fatal(err)
	}
	want := `#general
Ana: @clawbot clean up
  clawbot: Approval needed: shell
      command
      ` + "```" + `
      rm -rf   /var/log/old
          echo <!channel> *x* [a](https://evil.example)
      ` + "```" + `
      timeout_s: 60
      Asked by: Ana (slack:T0001/U0001)
      Rule: shell-asks
      SHA-256: ` + agent.SHA256("x")[:16] + `
      2 values are masked.
      [Approve] [Deny] [Details]
`
	if got := b.Render("C0001", said.TS); got != want {
		t.Errorf("pending:\n%s\nwant:\n%s", got, want)
	}
	card.Status, card.Buttons, card.Outcome = agent.ApprovalApproved, nil, "Approved by Ben. Ran in 2 s."
	for range 2 { // editing to the same content is harmless
		if err := b.a.Edit(t.Context(), place(said), ref, agent.Post{Card: &card}); err != nil {
			t.Fatal(err)
		}
	}
	got := b.Render("C0001", said.TS)
	if strings.Contains(got, "[Approve]") || !strings.Contains(got, "Approved by Ben. Ran in 2 s.") {
		t.Errorf("decided:\n%s", got)
	}
	b.WaitIdle(t) // its own edits come back and start nothing
	b.wait(1)
}

// F27, F28: cards of any size are shown within the limits.
func TestF27_F28_BigCards(t *testing.T) {
	b := start(t)
	said := b.Say("C0001", "U0001", m+" hi")
	for i, n := range []int{2999, 3001, 4097, 13200, 100_000} {
		for j, unit := range []string{"x", "<", "\u6f22", "😀", "\\\"", "\n"} {
			card := sampleCard()
			card.Approval = agent.ApprovalID(fmt.Sprintf("ap_%d_%d", i, j))
			card.Buttons = card.Buttons[:2] // no Details, though it is needed
			value := "HEAD " + strings.Repeat(unit, n/len([]rune(unit))) + " TAIL"
			card.Fields = []agent.CardField{{Name: "content", Value: value, Code: true}}
			card.Facts = append(card.Facts, agent.CardField{Name: "Reason", Value: strings.Repeat(unit, 1000)})
			to := agent.Place{Conversation: b.AddChannel(slacktest.Channel{Members: []string{slacktest.BotUserID}})}
			ref, err := b.a.Post(t.Context(), to, agent.Post{Key: agent.DeliveryID("dlv_" + string(card.Approval)), Card: &card})
			if err != nil {
				t.Fatalf("%d × %q: %v", n, unit, err)
			}
			msg, _ := b.Message(to.Conversation, ref)
			if !strings.Contains(msg.Shown, "HEAD") || !strings.Contains(msg.Shown, "TAIL") {
				t.Errorf("%d × %q: head or tail is missing", n, unit)
			}
			if whole := strings.Contains(msg.Shown, value); !whole && !(msg.HasButton("Details") && strings.Contains(msg.Shown, "Shortened")) {
				t.Errorf("%d × %q: cut without a way to the whole:\n%.400s", n, unit, msg.Shown)
			}
		}
	}
	card := sampleCard()
	card.Fields = nil
	for i := range 500 {
		card.Fields = append(card.Fields, agent.CardField{Name: fmt.Sprintf("argument_%d", i), Value: strings.Repeat("v", 50), Code: true})
	}
	ref, err := b.a.Post(t.Context(), place(said), agent.Post{Key: "dlv_many", Card: &card})
	if err != nil {
		t.Fatal(err)
	}
	if msg, _ := b.Message("C0001", ref); !strings.Contains(msg.Shown, "more arguments are not shown here") {
		t.Errorf("%.300s", msg.Shown)
	}
}

// F96, F97: what was not made visible before is made visible here, in every field.
func TestF96_F97_F98_CardIsLiteral(t *testing.T) {
	const bad = "a\u202eb\u200bc\x00d <@U0001> *x* [l](https://evil.example) :smile: &lt;"
	card := agent.Card{
		Approval: "ap_1", Title: bad, Outcome: bad,
		Fields:  []agent.CardField{{Name: bad, Value: bad, Code: true}, {Name: bad, Value: bad}},
		Facts:   []agent.CardField{{Name: bad, Value: bad}},
		Buttons: []agent.Button{{Verb: agent.VerbApprove, Label: "Approve"}},
	}
	b := start(t)
	ref, err := b.a.Post(t.Context(), agent.Place{Conversation: "C0001"}, agent.Post{Key: "dlv_1", Card: &card})
	if err != nil {
		t.Fatal(err)
	}
	msg, _ := b.Message("C0001", ref)
	if n := strings.Count(msg.Shown, `a\u{202E}b\u{200B}c\u{0}d <@U0001> *x* [l](https://evil.example) :smile: &lt;`); n != 8 {
		t.Errorf("%d of 8 fields are literal:\n%s", n, msg.Shown)
	}
	if len(msg.Pings)+len(msg.Links) != 0 || strings.ContainsAny(msg.Text, "\u202e\u200b\x00") {
		t.Errorf("%+v", msg)
	}
}

// T2, T12: random texts and cards always go out, whole and harmless. The fake is
// strict: any violation fails the test.
func TestAnythingCanBePosted(t *testing.T) {
	b := start(t)
	n := 0
	fresh := func() agent.Place {
		n++
		return agent.Place{Conversation: b.AddChannel(slacktest.Channel{Members: []string{slacktest.BotUserID}})}
	}
	rapid.Check(t, func(rt *rapid.T) {
		md := hostileMarkdown().Draw(rt, "md") + strings.Repeat(hostileMarkdown().Draw(rt, "more"), rapid.IntRange(0, 40).Draw(rt, "times"))
		if len(md) > 100_000 {
			md = md[:100_000]
		}
		for i, part := range b.a.Split(md) {
			ref, err := b.a.Post(t.Context(), fresh(), agent.Post{Key: agent.DeliveryID(fmt.Sprintf("dlv_%d_%d", n, i)), Text: part})
			if err != nil {
				rt.Fatalf("part %d of %d bytes: %v", i, len(part), err)
			}
			_ = ref
		}
	})
	text := rapid.OneOf(rapid.String(), hostileMarkdown(), rapid.Custom(func(t *rapid.T) string {
		return strings.Repeat(rapid.StringN(1, 20, -1).Draw(t, "unit"), rapid.IntRange(1, 4000).Draw(t, "times"))
	}))
	field := rapid.Custom(func(t *rapid.T) agent.CardField {
		return agent.CardField{Name: text.Draw(t, "name"), Value: text.Draw(t, "value"), Code: rapid.Bool().Draw(t, "code")}
	})
	rapid.Check(t, func(rt *rapid.T) {
		n++
		card := agent.Card{
			Approval: agent.ApprovalID(fmt.Sprintf("ap_%d", n)),
			Title:    text.Draw(rt, "title"), Outcome: text.Draw(rt, "outcome"), Full: text.Draw(rt, "full"),
			Fields: rapid.SliceOfN(field, 0, 30).Draw(rt, "fields"), Facts: rapid.SliceOfN(field, 0, 8).Draw(rt, "facts"),
			Buttons: sampleCard().Buttons, Masked: rapid.IntRange(0, 3).Draw(rt, "masked"),
		}
		to := fresh()
		ref, err := b.a.Post(t.Context(), to, agent.Post{Key: agent.DeliveryID(card.Approval), Card: &card})
		if err != nil {
			rt.Fatal(err)
		}
		if msg, _ := b.Message(to.Conversation, ref); len(msg.Pings)+len(msg.Links) > 0 || !msg.HasButton("Details") {
			rt.Fatalf("%+v", msg)
		}
		view, _ := b.a.modal(card)
		doc, err := json.Marshal(view)
		if err != nil || len(doc) > modalJSON || len(view.Blocks.BlockSet) > 100 {
			rt.Fatalf("modal of %d bytes, %d blocks, %v", len(doc), len(view.Blocks.BlockSet), err)
		}
	})
}
