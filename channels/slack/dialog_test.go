package slack

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/clawbot/clawbot/agent"
	"github.com/clawbot/clawbot/channels/slack/slacktest"
)

// form clicks a button and waits for the form that it opens.
func (b *bench) form(user string, on slacktest.Message, button, title string) slacktest.View {
	b.t.Helper()
	b.click(user, on, button)
	return b.WaitView(b.t, func(v slacktest.View) bool { return v.Open && v.User == user && v.Title == title })
}

// decided waits for n clicks that were more than a try, and returns the last.
func (b *bench) decided(n int) agent.Click {
	b.t.Helper()
	var got []agent.Click
	b.eventually("the decision", func() bool {
		got = got[:0]
		for _, c := range b.in.clicked() {
			if !c.Try {
				got = append(got, c)
			}
		}
		return len(got) == n
	})
	return got[n-1]
}

func wantsCode(c *agent.Card) {
	c.Input = &agent.CardInput{Arg: "code", Prompt: "Enter the *code* <!channel>", Secret: true}
	c.Buttons[0].Verb = agent.VerbInput
}

// A no comes with a reason, with an answer to give instead, or bare; whatever a form
// says of places and approvals, the person is who submitted it.
//
// Rows: L55, L65, L70.
func TestDenyForm(t *testing.T) {
	bothWays(t, func(t *testing.T, how func(*settings)) {
		b := start(t, how)
		card := b.ask()
		by := agent.Click{Approval: "ap_1", Verb: agent.VerbDeny, ActorName: "Ben", Backchannel: "slack",
			Actor: agent.Actor{Channel: "slack", Workspace: "T0001", User: "U0002"}}
		reason, instead := by, by
		reason.Reason = "not on a Friday"
		instead.Verb, instead.Value, instead.Reason = agent.VerbReplace, "use\nthe other one", "because"
		for n, c := range []struct {
			values map[string]string
			want   agent.Click
		}{
			{nil, by},
			{map[string]string{"Reason": " not on a Friday "}, reason},
			{map[string]string{"Answer instead": "use\nthe other one", "Reason": "because"}, instead},
		} {
			v := b.form("U0002", card, "Deny", "Deny")
			if _, err := b.Submit("U0002", v, c.values); err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(c.want, b.decided(n+1)); d != "" {
				t.Errorf("(-want +got)\n%s", d)
			}
		}
	})
}

// The value that a rule wants is typed into a form; its prompt is literal text.
//
// Rows: L47.
func TestInputForm(t *testing.T) {
	bothWays(t, func(t *testing.T, how func(*settings)) {
		b := start(t, how)
		v := b.form("U0002", b.ask(wantsCode), "Approve", "Approve with a value")
		if len(v.Inputs) != 1 || v.Inputs[0].Label != "code" || v.Inputs[0].Optional || !strings.Contains(string(v.Document), "Enter the *code* \\u003c!channel\\u003e") &&
			!strings.Contains(string(v.Document), "Enter the *code* <!channel>") {
			t.Errorf("the form %+v\n%s", v.Inputs, v.Document)
		}
		if _, err := b.Submit("U0002", v, nil); err == nil {
			t.Error("submitted without a value")
		}
		if _, err := b.Submit("U0002", v, map[string]string{"code": "geheim-123"}); err != nil {
			t.Fatal(err)
		}
		if c := b.decided(1); c.Verb != agent.VerbInput || c.Value != "geheim-123" || c.Actor.User != "U0002" {
			t.Errorf("%+v", c)
		}
		if strings.Contains(b.log.String(), "geheim") {
			t.Error("the value is in the log")
		}
	})
}

// Who may not decide gets no form, and is told why.
//
// Rows: L74, F36.
func TestNoFormForTheWrongPerson(t *testing.T) {
	b := start(t)
	b.in.onDecide = func(_ context.Context, c agent.Click) (agent.Verdict, error) {
		return agent.Verdict{Text: "You may not decide this."}, nil
	}
	card := b.ask(wantsCode)
	for n, button := range []string{"Deny", "Approve"} {
		b.click("U0003", card, button)
		b.eventually("it is told", func() bool { return len(b.Ephemerals("U0003")) == n+1 })
	}
	if n := len(b.Views()); n != 0 {
		t.Errorf("%d forms were opened", n)
	}
}

// A form that Slack does not open, or not in time, costs no denial; a value is asked
// for again.
func TestFormThatCannotBeOpened(t *testing.T) {
	b := start(t)
	b.Fail("views.open", 2, slacktest.ErrorCode("expired_trigger_id"))
	b.click("U0002", b.ask(), "Deny")
	if c := b.decided(1); c.Verb != agent.VerbDeny || c.Reason != "" {
		t.Errorf("%+v", c)
	}
	card := b.ask(wantsCode)
	b.click("U0002", card, "Approve")
	b.whispered("U0002", card, "Please click again")
	b.decided(1)
}

// The acknowledgement of a form does not wait for the decision, and what goes wrong
// with it is told to the person alone.
//
// Rows: F34, F35.
func TestFormIsAcknowledgedFirst(t *testing.T) {
	bothWays(t, func(t *testing.T, how func(*settings)) {
		b := start(t, how, withSlack(slacktest.WithAckTimeout(500*time.Millisecond)))
		hold := make(chan struct{})
		b.in.onDecide = func(_ context.Context, c agent.Click) (agent.Verdict, error) {
			if c.Try {
				return agent.Verdict{Accepted: true}, nil
			}
			<-hold
			return agent.Verdict{}, errors.New("postgres://user:secret@db is away")
		}
		card := b.ask()
		v := b.form("U0002", card, "Deny", "Deny")
		if _, err := b.Submit("U0002", v, nil); err != nil {
			t.Fatal(err)
		}
		close(hold)
		b.whispered("U0002", card, "could not be recorded")
	})
}

// What is no form of ours, or says nothing that is understood, is dropped.
func TestForeignForms(t *testing.T) {
	b := start(t)
	card := b.ask()
	for name, alter := range map[string]func(doc map[string]any){
		"another app":        func(doc map[string]any) { doc["api_app_id"] = "A0OTHER" },
		"unknown callback":   func(doc map[string]any) { doc["view"].(map[string]any)["callback_id"] = "clawbot_grant" },
		"no metadata":        func(doc map[string]any) { doc["view"].(map[string]any)["private_metadata"] = "" },
		"metadata of a kind": func(doc map[string]any) { doc["view"].(map[string]any)["private_metadata"] = `[1]` },
		"nobody":             func(doc map[string]any) { doc["user"] = map[string]any{} },
	} {
		v := b.form("U0002", card, "Deny", "Deny")
		if _, err := b.Submit("U0002", v, map[string]string{"Reason": "x"}, slacktest.Alter(alter)); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	b.click("U0002", card, "Approve")
	if c := b.decided(1); c.Verb != agent.VerbApprove {
		t.Errorf("%+v", c)
	}
}

// However long and strange a question is, its forms are within Slack's limits.
func TestFormsOfHugeCards(t *testing.T) {
	b := start(t)
	huge := func(c *agent.Card) {
		wantsCode(c)
		c.Title, c.Full = strings.Repeat("<@U1> *t*", 500), strings.Repeat("\u202Eé😀\n", 50_000)
		c.Input.Arg, c.Input.Prompt = strings.Repeat("arg\n", 2000), strings.Repeat("<!here> ", 2000)
	}
	card := b.ask(huge)
	b.form("U0002", card, "Approve", "Approve with a value")
	b.form("U0002", card, "Deny", "Deny")
}
