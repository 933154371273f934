package slack

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/clawbot/clawbot/agent"
	"github.com/clawbot/clawbot/channels/slack/slacktest"
)

// ask posts a card in a thread that Ana began.
func (b *bench) ask(change ...func(*agent.Card)) slacktest.Message {
	b.t.Helper()
	said := b.Say("C0001", "U0001", m+" clean up")
	card := sampleCard()
	for _, f := range change {
		f(&card)
	}
	b.in.mu.Lock()
	b.in.cards[card.Approval] = card
	b.in.mu.Unlock()
	ref, err := b.a.Post(b.t.Context(), place(said), agent.Post{Key: "dlv_card", Card: &card})
	if err != nil {
		b.t.Fatal(err)
	}
	msg, _ := b.Message("C0001", ref)
	return msg
}

func (b *bench) click(user string, on slacktest.Message, button string, how ...slacktest.How) {
	b.t.Helper()
	if err := b.Click(user, on, button, how...); err != nil {
		b.t.Fatal(err)
	}
}

// whispered waits for what only user sees.
func (b *bench) whispered(user string, on slacktest.Message, text string) {
	b.t.Helper()
	b.WaitMessage(b.t, on.Channel, on.Root(), func(m slacktest.Message) bool {
		return m.EphemeralTo == user && strings.Contains(m.Shown, text)
	})
}

func TestClickIsDecided(t *testing.T) {
	bothWays(t, func(t *testing.T, how func(*settings)) {
		b := start(t, how)
		card := b.ask()
		b.click("U0002", card, "Approve")
		b.eventually("the click", func() bool { return len(b.in.clicked()) == 1 })
		want := []agent.Click{{
			Approval: "ap_1", Verb: agent.VerbApprove, ActorName: "Ben", Backchannel: "slack",
			Actor: agent.Actor{Channel: "slack", Workspace: "T0001", User: "U0002"},
		}}
		if d := cmp.Diff(want, b.in.clicked()); d != "" {
			t.Errorf("(-want +got)\n%s", d)
		}
		if btn, _ := card.Button("Approve"); btn.Value != "ap_1" || btn.Style != "primary" || btn.URL != "" {
			t.Errorf("F38: %+v", btn)
		}
	})
}

// F34, F35: the acknowledgement does not wait for the decision.
func TestF34_F35_ClickIsAcknowledgedFirst(t *testing.T) {
	bothWays(t, func(t *testing.T, how func(*settings)) {
		b := start(t, how, withSlack(slacktest.WithAckTimeout(500*time.Millisecond)))
		hold := make(chan struct{})
		b.in.onDecide = func(context.Context, agent.Click) (agent.Verdict, error) {
			<-hold
			return agent.Verdict{Accepted: true}, nil
		}
		b.click("U0002", b.ask(), "Approve")
		close(hold)
	})
}

// F36, F56: a refusal is for the clicker alone, in the thread.
func TestF36_RefusedClick(t *testing.T) {
	b := start(t)
	b.in.onDecide = func(context.Context, agent.Click) (agent.Verdict, error) {
		return agent.Verdict{Status: agent.ApprovalPending, Text: "You may not approve <!channel> this."}, nil
	}
	card := b.ask()
	b.click("U0003", card, "Approve")
	b.whispered("U0003", card, "You may not approve <!channel> this.")
	if now, _ := b.Message("C0001", card.TS); now.Edited {
		t.Error("the card changed (F39)")
	}
}

func TestF39_FailedDecisionIsToldAndChangesNothing(t *testing.T) {
	b := start(t)
	b.in.onDecide = func(context.Context, agent.Click) (agent.Verdict, error) {
		return agent.Verdict{}, errors.New("postgres://user:secret@db is away")
	}
	card := b.ask()
	b.click("U0002", card, "Approve")
	b.whispered("U0002", card, "could not be recorded")
	for _, e := range b.Ephemerals("U0002") {
		if strings.Contains(e.Shown, "secret") {
			t.Errorf("told: %s", e.Shown)
		}
	}
}

func TestRefusalBySecondWay(t *testing.T) {
	b := start(t)
	b.in.onDecide = func(context.Context, agent.Click) (agent.Verdict, error) {
		return agent.Verdict{Text: "No & no."}, nil
	}
	card := b.ask()
	b.Fail("chat.postEphemeral", 1, slacktest.ErrorCode("user_not_in_channel"))
	b.click("U0002", card, "Approve")
	b.whispered("U0002", card, "No & no.")
}

// T17: an answer goes to no other host.
func TestResponseURLMustBeSlacks(t *testing.T) {
	a := &Adapter{cfg: Config{APIURL: "https://slack.com/api/"}}
	for address, want := range map[string]bool{
		"https://hooks.slack.com/actions/T/1/x": true, "https://hooks.slack-gov.com/x": true, "https://slack.com/x": true,
		"http://hooks.slack.com/x": false, "https://evil.example/": false, "https://slack.com.evil.example/": false,
		"http://127.0.0.1/": false, "http://169.254.169.254/": false, "https://evilslack.com/": false, "": false, "::": false,
	} {
		if got := a.isSlack(address); got != want {
			t.Errorf("%q: %v", address, got)
		}
	}
}

// F37: a click in a thread is answered there; what else the payload claims
// about places decides nothing.
func TestF37_ThreadOfAClick(t *testing.T) {
	b := start(t)
	b.in.onDecide = func(context.Context, agent.Click) (agent.Verdict, error) { return agent.Verdict{Text: "No."}, nil }
	card := b.ask()
	b.click("U0002", card, "Approve", slacktest.Alter(func(doc map[string]any) {
		delete(doc["container"].(map[string]any), "thread_ts")
		doc["team"] = map[string]any{"id": "T9999"}
	}))
	b.whispered("U0002", card, "No.")
	if c := b.in.clicked()[0]; c.Actor.Workspace != "T0001" || c.Approval != "ap_1" {
		t.Errorf("%+v", c)
	}
}

// T3, F41: somebody of another workspace is never one of ours.
func TestF41_ForeignClicker(t *testing.T) {
	b := start(t)
	card := b.ask()
	b.AddUser(slacktest.User{ID: "U0002", Name: "Eve", TeamID: "T0666"})
	b.click("U0002", card, "Approve")
	b.eventually("the click", func() bool { return len(b.in.clicked()) == 1 })
	if got := b.in.clicked()[0].Actor.String(); got != "slack:T0666/U0002" {
		t.Errorf("actor %s", got)
	}
	p, err := b.a.Person(t.Context(), b.in.clicked()[0].Actor, []string{"S0001"})
	if err != nil || !p.External || len(p.Groups) != 0 {
		t.Errorf("%+v, %v", p, err)
	}
}

func TestUnknownInteractions(t *testing.T) {
	b := start(t)
	card := b.ask()
	b.click("U0002", card, "Approve", slacktest.Alter(func(doc map[string]any) {
		doc["actions"].([]any)[0].(map[string]any)["action_id"] = "another"
	}))
	b.whispered("U0002", card, "do not know this button")
	b.click("U0002", card, "Approve", slacktest.Alter(func(doc map[string]any) {
		doc["actions"].([]any)[0].(map[string]any)["action_id"] = "clawbot_detonate"
	}))
	for _, doc := range []map[string]any{
		{}, {"type": "block_actions"}, {"type": "view_submission", "user": map[string]any{"id": "U0001"}}, {"type": "shortcut"},
		{"type": "block_actions", "user": map[string]any{"id": "U0001"}, "actions": []any{map[string]any{"action_id": "clawbot_approve", "value": "ap_1"}}, "api_app_id": "A0OTHER"},
		{"type": "block_actions", "user": 5, "actions": "x"},
		{"type": "block_actions", "user": map[string]any{"id": "U0001"}, "actions": []any{map[string]any{"action_id": "clawbot_approve"}}},
	} {
		if err := b.ClickRaw(doc); err != nil {
			t.Errorf("%v: %v", doc, err)
		}
	}
	if err := b.stop(); err != nil { // waits for all clicks
		t.Fatal(err)
	}
	if got := b.in.clicked(); len(got) != 0 {
		t.Errorf("decided: %+v", got)
	}
}

func TestDetailsShowTheWhole(t *testing.T) {
	b := start(t)
	full := "{\n  \"command\": \"" + strings.Repeat("echo <!channel> hi; ", 800) + "\"\n}"
	card := b.ask(func(c *agent.Card) { c.Full, c.Cut = full, true })
	b.click("U0003", card, "Details")
	view := b.WaitView(t, func(v slacktest.View) bool { return v.Title == "Details" })
	if view.User != "U0003" {
		t.Errorf("shown to %s", view.User)
	}
	if !strings.Contains(string(view.Document), "SHA-256 of this text: "+agent.SHA256(full)) {
		t.Errorf("no hash in %.400s", view.Document)
	}
	if got := viewText(view); !strings.Contains(got, full) {
		t.Errorf("the whole is not there: %.200s", got)
	}
	if len(b.in.clicked()) != 0 {
		t.Error("Details decided something")
	}
}

// F94, F95: what no modal holds is a file in the thread, once.
func TestF94_F95_HugeDetails(t *testing.T) {
	b := start(t)
	full := "BEGIN" + strings.Repeat("漢<\"\n", 100_000) + "END"
	card := b.ask(func(c *agent.Card) { c.Full, c.Cut = full, true })
	for range 2 {
		b.click("U0002", card, "Details")
	}
	msg := b.WaitMessage(t, "C0001", card.Root(), func(m slacktest.Message) bool { return len(m.Files) > 0 })
	if got := string(msg.Files[0].Content); got != full || msg.Files[0].Name != "arguments-ap_1.txt" {
		t.Errorf("file %s of %d bytes, want %d", msg.Files[0].Name, len(got), len(full))
	}
	view := b.WaitView(t, func(v slacktest.View) bool { return v.Title == "Details" })
	text := viewText(view)
	for _, want := range []string{"BEGIN", "END", "arguments-ap_1.txt in the thread", fmt.Sprint(len([]rune(full))), agent.SHA256(full)} {
		if !strings.Contains(text, want) {
			t.Errorf("the modal lacks %q", want)
		}
	}
	if err := b.stop(); err != nil {
		t.Fatal(err)
	}
	if n := len(b.Calls("files.completeUploadExternal")); n != 1 {
		t.Errorf("uploaded %d times", n)
	}
}

func TestDetailsThatFail(t *testing.T) {
	b := start(t)
	card := b.ask()
	b.Fail("views.open", 1, slacktest.ErrorCode("expired_trigger_id"))
	b.click("U0002", card, "Details")
	b.whispered("U0002", card, "click Details again")
	b.in.mu.Lock()
	clear(b.in.cards)
	b.in.mu.Unlock()
	b.click("U0002", card, "Details")
	b.whispered("U0002", card, "do not know this request")
}

func TestSlashCommand(t *testing.T) {
	bothWays(t, func(t *testing.T, how func(*settings)) {
		b := start(t, how)
		if err := b.Command("U0001", "C0001", "/clawbot", "help"); err != nil {
			t.Fatal(err)
		}
		b.WaitMessage(t, "C0001", "", func(m slacktest.Message) bool {
			return m.EphemeralTo == "U0001" && strings.Contains(m.Shown, "mention me")
		})
	})
}

// viewText is the literal text in a view, in order.
func viewText(v slacktest.View) string {
	var doc struct {
		Blocks []struct {
			Elements []struct {
				Elements []struct{ Text string }
			}
		}
	}
	if err := json.Unmarshal(v.Document, &doc); err != nil {
		return err.Error()
	}
	var out strings.Builder
	for _, b := range doc.Blocks {
		for _, e := range b.Elements {
			for _, t := range e.Elements {
				out.WriteString(t.Text)
			}
		}
	}
	return out.String()
}
