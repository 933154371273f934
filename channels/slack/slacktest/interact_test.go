package slacktest_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/slack-go/slack"
	"github.com/slack-go/slack/socketmode"

	"github.com/clawbot/clawbot/channels/slack/slacktest"
)

func quietText(s string) slack.MsgOption {
	return quiet(slack.MsgOptionText(s, true), slack.MsgOptionParse(false))
}

func card(t *testing.T, p *program, s *slacktest.Server, thread string) slacktest.Message {
	t.Helper()
	ts := post(t, p.api, "C0001", slack.MsgOptionTS(thread), slack.MsgOptionText("card", false), slack.MsgOptionBlocks(
		slack.NewSectionBlock(text("May I?"), nil, nil),
		slack.NewActionBlock("one", slack.NewButtonBlockElement("approve", "id-1", plain("Approve")), button("deny", "Deny")),
		slack.NewActionBlock("two", button("deny", "Deny")),
	))
	m, _ := s.Message("C0001", ts)
	return m
}

func TestClick(t *testing.T) {
	s := slacktest.Start(t)
	p := startProgram(t, s, nil)
	s.WaitConnected(t, 1)
	root := s.Say("C0001", "U0001", "root")
	m := card(t, p, s, root.TS)
	if err := s.Click("U0002", m, "Approve"); err != nil {
		t.Fatal(err)
	}
	click := p.snapshot().clicks[0]
	a := click.ActionCallback.BlockActions[0]
	if a.ActionID != "approve" || a.Value != "id-1" || a.BlockID != "one" || a.ActionTs == "" {
		t.Errorf("action %+v", a)
	}
	if click.User.ID != "U0002" || click.Team.ID != slacktest.TeamID || click.Channel.ID != "C0001" ||
		click.Container.MessageTs != m.TS || click.Container.ThreadTs != root.TS || click.Message.Timestamp != m.TS {
		t.Errorf("click %+v", click)
	}
	for button, want := range map[string]string{"Explode": "no such button", "Deny": "2 such buttons"} {
		if err := s.Click("U0002", m, button); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("click %s: %v", button, err)
		}
	}
	if err := s.Click("U0002", m, "Deny", slacktest.InBlock("two")); err != nil {
		t.Error(err)
	}

	// An answer by response_url is seen by the clicker alone, and works five times.
	for i := range 6 {
		_, _, err := p.api.PostMessage("C0001", slack.MsgOptionResponseURL(click.ResponseURL, "ephemeral"), slack.MsgOptionText("no", false))
		if (err == nil) != (i < 5) {
			t.Errorf("use %d: %v", i+1, err)
		}
	}
	if got := s.Ephemerals("U0002"); len(got) != 5 || got[0].ThreadTS != root.TS {
		t.Errorf("ephemerals %+v", got)
	}

	// After an edit the old buttons are gone, except for a client that lags.
	if _, _, _, err := p.api.UpdateMessage("C0001", m.TS, quietText("done")); err != nil {
		t.Fatal(err)
	}
	if err := s.Click("U0002", m, "Approve"); err == nil {
		t.Error("clicked a button that is gone")
	}
	if err := s.Click("U0002", m, "Approve", slacktest.Stale()); err != nil {
		t.Error(err)
	}
	s.WaitIdle(t)
	s.NoViolations(t)
}

func TestClickIsLostWithoutAck(t *testing.T) {
	s := slacktest.Start(t, slacktest.WithAckTimeout(30*time.Millisecond))
	p := startProgram(t, s, func(*socketmode.Client, socketmode.Event) {})
	s.WaitConnected(t, 1)
	m := card(t, p, s, "")
	if err := s.Click("U0002", m, "Approve"); !errors.Is(err, slacktest.ErrNotAcked) {
		t.Errorf("click: %v", err)
	}
}

func modal(n int) slack.ModalViewRequest {
	input := slack.NewPlainTextInputBlockElement(nil, "reason")
	input.MaxLength = 10
	return slack.ModalViewRequest{
		Type: slack.VTModal, Title: plain(strings.Repeat("t", n)), Submit: plain("Send"), CallbackID: "cb", PrivateMetadata: "meta",
		Blocks: slack.Blocks{BlockSet: []slack.Block{slack.NewInputBlock("why", plain("Reason"), nil, input)}},
	}
}

func TestModal(t *testing.T) {
	s := slacktest.Start(t)
	refuse := true
	p := startProgram(t, s, func(smc *socketmode.Client, e socketmode.Event) {
		if e.Request == nil || e.Request.EnvelopeID == "" {
			return
		}
		if click, ok := e.Data.(slack.InteractionCallback); ok && click.Type == slack.InteractionTypeViewSubmission && refuse {
			refuse = false
			_ = smc.Ack(*e.Request, slack.NewErrorsViewSubmissionResponse(map[string]string{"why": "say more"}))
			return
		}
		_ = smc.Ack(*e.Request)
	})
	s.WaitConnected(t, 1)
	m := card(t, p, s, "")
	if err := s.Click("U0002", m, "Approve"); err != nil {
		t.Fatal(err)
	}
	trigger := p.snapshot().clicks[0].TriggerID
	_, err := p.api.OpenView(trigger, modal(25))
	if err == nil || !strings.HasPrefix(err.Error(), "invalid_arguments") {
		t.Errorf("a title of 25 characters: %v", err)
	}
	if _, err := p.api.OpenView(trigger, modal(24)); err != nil {
		t.Fatal(err)
	}
	_, err = p.api.OpenView(trigger, modal(1))
	wantError(t, err, "exchanged_trigger_id")

	v := s.WaitView(t, func(v slacktest.View) bool { return v.User == "U0002" })
	for values, want := range map[string]string{"": "is required", "much too long": "at most 10"} {
		if _, err := s.Submit("U0002", v, map[string]string{"Reason": values}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("submit %q: %v", values, err)
		}
	}
	answer, err := s.Submit("U0002", v, map[string]string{"Reason": "why"})
	if err != nil || answer.Errors["why"] != "say more" {
		t.Errorf("first answer %+v %v", answer, err)
	}
	if answer, err = s.Submit("U0002", v, map[string]string{"why": "because"}); err != nil || answer.Action != "" {
		t.Errorf("second answer %+v %v", answer, err)
	}
	clicks := p.snapshot().clicks
	sent := clicks[len(clicks)-1]
	if sent.View.State.Values["why"]["reason"].Value != "because" || sent.View.PrivateMetadata != "meta" || sent.View.CallbackID != "cb" {
		t.Errorf("submission %+v", sent.View)
	}
	if s.Views()[0].Open {
		t.Error("the modal is still open")
	}
}

func TestTriggerExpires(t *testing.T) {
	s := slacktest.Start(t, slacktest.WithTriggerLife(time.Nanosecond))
	p := startProgram(t, s, nil)
	s.WaitConnected(t, 1)
	if err := s.Click("U0002", card(t, p, s, ""), "Approve"); err != nil {
		t.Fatal(err)
	}
	_, err := p.api.OpenView(p.snapshot().clicks[0].TriggerID, modal(1))
	wantError(t, err, "expired_trigger_id")
}

func TestHomeView(t *testing.T) {
	s := slacktest.Start(t)
	api := client(t, s)
	home := slack.HomeTabViewRequest{Type: slack.VTHomeTab, Blocks: slack.Blocks{BlockSet: []slack.Block{slack.NewDividerBlock()}}}
	v, err := api.PublishView("U0001", home, "")
	if err != nil {
		t.Fatal(err)
	}
	_, err = api.PublishView("U0001", home, v.Hash+"x")
	wantError(t, err, "hash_conflict")
}

func TestCommand(t *testing.T) {
	s := slacktest.Start(t)
	p := startProgram(t, s, func(smc *socketmode.Client, e socketmode.Event) {
		if _, ok := e.Data.(slack.SlashCommand); ok {
			_ = smc.Ack(*e.Request, map[string]any{"text": "on it"})
		}
	})
	s.WaitConnected(t, 1)
	if err := s.Command("U0001", "C0001", "/clawbot", "approve 7"); err != nil {
		t.Fatal(err)
	}
	if c := p.snapshot().commands[0]; c.Text != "approve 7" || c.UserID != "U0001" || c.TriggerID == "" {
		t.Errorf("command %+v", c)
	}
	if got := s.Ephemerals("U0001"); len(got) != 1 || got[0].Shown != "on it" {
		t.Errorf("shown %+v", got)
	}
}

func TestFiles(t *testing.T) {
	s := slacktest.Start(t)
	api := client(t, s)
	root := s.Say("C0001", "U0001", "root")
	f, err := api.UploadFile(slack.UploadFileParameters{
		Filename: "args.json", Title: "Arguments", Content: `{"a":1}`, FileSize: 7, Channel: "C0001", ThreadTimestamp: root.TS,
	})
	if err != nil {
		t.Fatal(err)
	}
	m := s.WaitMessage(t, "C0001", root.TS, func(m slacktest.Message) bool { return len(m.Files) == 1 })
	if m.Shown != "[file Arguments, 7 bytes]" || string(m.Files[0].Content) != `{"a":1}` {
		t.Errorf("message %+v", m)
	}
	info, _, _, err := api.GetFileInfo(f.ID, 0, 0)
	if err != nil {
		t.Fatal(err)
	}
	var got strings.Builder
	if err := api.GetFile(info.URLPrivateDownload, &got); err != nil || got.String() != `{"a":1}` {
		t.Errorf("downloaded %q %v", got.String(), err)
	}
	s.RevokeScopes("files:read")
	got.Reset()
	if err := api.GetFile(info.URLPrivateDownload, &got); err != nil || !strings.Contains(got.String(), "<html>") {
		t.Errorf("without the scope: %q %v", got.String(), err)
	}
	_, err = api.UploadFile(slack.UploadFileParameters{Filename: "a", Content: "abc", FileSize: 4, Channel: "C0001"})
	if err == nil || len(s.TakeViolations()) != 1 {
		t.Errorf("a wrong length: %v", err)
	}
}
