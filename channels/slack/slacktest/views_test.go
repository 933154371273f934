package slacktest_test

import (
	"testing"

	"github.com/slack-go/slack"
	"github.com/slack-go/slack/socketmode"

	"github.com/clawbot/clawbot/channels/slack/slacktest"
)

// openModal clicks a card and opens a modal with the click's trigger.
func openModal(t *testing.T, s *slacktest.Server, p *program, v slack.ModalViewRequest) slacktest.View {
	t.Helper()
	s.WaitConnected(t, 1)
	if err := s.Click("U0001", card(t, p, s, ""), "Approve"); err != nil {
		t.Fatal(err)
	}
	clicks := p.snapshot().clicks
	opened, err := p.api.OpenView(clicks[len(clicks)-1].TriggerID, v)
	if err != nil {
		t.Fatal(err)
	}
	return s.WaitView(t, func(v slacktest.View) bool { return v.ID == opened.ID })
}

func TestFormFields(t *testing.T) {
	s := slacktest.Start(t)
	p := startProgram(t, s, nil)
	option := func(v string) *slack.OptionBlockObject { return slack.NewOptionBlockObject(v, plain("The "+v), nil) }
	form := modal(1)
	form.Blocks.BlockSet = []slack.Block{
		slack.NewInputBlock("pick", plain("Pick"), nil, slack.NewOptionsSelectBlockElement("static_select", nil, "s", option("a"), option("b"))),
		slack.NewInputBlock("many", plain("Many"), nil, slack.NewCheckboxGroupsBlockElement("c", option("x"), option("y"))),
		slack.NewInputBlock("free", plain("Free"), nil, slack.NewPlainTextInputBlockElement(nil, "f")).WithOptional(true),
		slack.NewInputBlock("set", plain("Set"), nil, slack.NewPlainTextInputBlockElement(nil, "i").WithInitialValue("kept")),
	}
	v := openModal(t, s, p, form)
	if len(v.Inputs) != 4 || v.Inputs[3].Initial != "kept" || !v.Inputs[2].Optional {
		t.Errorf("inputs %+v", v.Inputs)
	}
	for _, bad := range []map[string]string{
		{"Pick": "c", "Many": "x"}, {"Many": "x"}, {"Pick": "a", "Many": "x", "Nowhere": "1"},
	} {
		if _, err := s.Submit("U0001", v, bad); err == nil {
			t.Errorf("submitted %v", bad)
		}
	}
	if _, err := s.Submit("U0002", v, nil); err == nil {
		t.Error("somebody submitted another person's modal")
	}
	if _, err := s.Submit("U0001", v, map[string]string{"Pick": "The b", "Many": "x,y"}); err != nil {
		t.Fatal(err)
	}
	clicks := p.snapshot().clicks
	values := clicks[len(clicks)-1].View.State.Values
	if values["pick"]["s"].SelectedOption.Value != "b" || len(values["many"]["c"].SelectedOptions) != 2 ||
		values["set"]["i"].Value != "kept" || values["free"]["f"].Value != "" {
		t.Errorf("values %+v", values)
	}
}

func TestViewStack(t *testing.T) {
	s := slacktest.Start(t)
	p := startProgram(t, s, nil)
	form := modal(1)
	form.NotifyOnClose = true
	form.Blocks.BlockSet = append(form.Blocks.BlockSet, slack.NewActionBlock("", button("more", "More")))
	v := openModal(t, s, p, form)
	if err := s.ClickInView("U0001", v, "More"); err != nil {
		t.Fatal(err)
	}
	clicks := p.snapshot().clicks
	click := clicks[len(clicks)-1]
	if click.Container.ViewID != v.ID || click.View.CallbackID != "cb" {
		t.Errorf("click %+v", click)
	}
	pushed, err := p.api.PushView(click.TriggerID, modal(2))
	if err != nil || pushed.PreviousViewID != v.ID || pushed.RootViewID != v.ID {
		t.Errorf("pushed %+v %v", pushed, err)
	}
	_, err = p.api.UpdateView(modal(3), "", "stale", v.ID)
	wantError(t, err, "hash_conflict")
	if _, err := p.api.UpdateView(form, "", v.Hash, v.ID); err != nil {
		t.Error(err)
	}
	if err := s.CloseView("U0001", v); err != nil {
		t.Fatal(err)
	}
	clicks = p.snapshot().clicks
	if last := clicks[len(clicks)-1]; last.Type != slack.InteractionTypeViewClosed {
		t.Errorf("last interaction %+v", last)
	}
	_, err = p.api.UpdateView(form, "", "", v.ID)
	wantError(t, err, "not_found")
}

// What a submission is answered changes the stack.
func TestSubmissionAnswers(t *testing.T) {
	next := modal(5)
	for _, tc := range []struct {
		name   string
		answer any
		open   int
		ok     bool
	}{
		{"close", nil, 0, true},
		{"update", slack.NewUpdateViewSubmissionResponse(&next), 1, true},
		{"push", slack.NewPushViewSubmissionResponse(&next), 2, true},
		{"clear", slack.NewClearViewSubmissionResponse(), 0, true},
		{"error elsewhere", slack.NewErrorsViewSubmissionResponse(map[string]string{"nowhere": "x"}), 1, false},
		{"unknown", map[string]string{"response_action": "explode"}, 1, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := slacktest.Start(t)
			p := startProgram(t, s, func(smc *socketmode.Client, e socketmode.Event) {
				if e.Request == nil || e.Request.EnvelopeID == "" {
					return
				}
				if c, ok := e.Data.(slack.InteractionCallback); ok && c.Type == slack.InteractionTypeViewSubmission {
					_ = smc.Ack(*e.Request, tc.answer)
					return
				}
				_ = smc.Ack(*e.Request)
			})
			v := openModal(t, s, p, modal(1))
			if _, err := s.Submit("U0001", v, map[string]string{"Reason": "r"}); (err == nil) != tc.ok {
				t.Errorf("submit: %v", err)
			}
			open := 0
			for _, v := range s.Views() {
				if v.Open {
					open++
				}
			}
			if open != tc.open {
				t.Errorf("%d views are open, want %d", open, tc.open)
			}
		})
	}
}

func TestResponseURL(t *testing.T) {
	s := slacktest.Start(t)
	p := startProgram(t, s, nil)
	s.WaitConnected(t, 1)
	m := card(t, p, s, "")
	if err := s.Click("U0001", m, "Approve"); err != nil {
		t.Fatal(err)
	}
	at := p.snapshot().clicks[0].ResponseURL
	send := func(opts ...slack.MsgOption) {
		t.Helper()
		if _, _, err := p.api.PostMessage("C0001", opts...); err != nil {
			t.Fatal(err)
		}
	}
	send(slack.MsgOptionResponseURL(at, "in_channel"), slack.MsgOptionText("for all", false))
	send(slack.MsgOptionReplaceOriginal(at), slack.MsgOptionText("replaced", false))
	if got, _ := s.Message("C0001", m.TS); got.Shown != "replaced" {
		t.Errorf("original shows %q", got.Shown)
	}
	send(slack.MsgOptionDeleteOriginal(at))
	if _, ok := s.Message("C0001", m.TS); ok {
		t.Error("the original is still there")
	}
	if all := s.Thread("C0001", ""); len(all) != 1 || all[0].EphemeralTo != "" {
		t.Errorf("messages %+v", all)
	}
}
