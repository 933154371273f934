package main

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/clawbot/clawbot/channels/slack/slacktest"
	"github.com/clawbot/clawbot/model/modeltest"
)

// anthropic makes the next programs of the world ask Anthropic's API.
func (w *world) anthropic() {
	w.env = append(w.env, "CLAWBOT_MODEL=anthropic:test", "ANTHROPIC_API_KEY="+modeltest.Key, "ANTHROPIC_BASE_URL="+w.model.AnthropicBaseURL())
}

// providers runs a test with both providers.
func providers(t *testing.T, f func(t *testing.T, w *world)) {
	for _, name := range []string{"openai", "anthropic"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, approverYAML)
			if name == "anthropic" {
				w.anthropic()
			}
			f(t, w)
		})
	}
}

// The story with both providers: text beside two calls, one allowed and one
// approved, a restart in between. Each request has the same definitions of tools,
// byte for byte, before and after the restart.
//
// Rows: L5, L16.
func TestStoryWithEachProvider(t *testing.T) {
	t.Parallel()
	providers(t, func(t *testing.T, w *world) {
		w.model.Reply(
			modeltest.Text("I look, then I write.").AndCall("list_dir", `{"path":"."}`).AndCall("write_file", `{"path":"a.txt","content":"x"}`),
			modeltest.Text("Both are done."), modeltest.Text("It is a.txt."))
		p := w.serve()
		ask := w.ask("look and write")
		card := w.card(ask)
		w.eventually("parked\n", `SELECT status FROM turns`)
		p.kill()
		w.serve()
		w.click("U0002", card, "Approve")
		w.slack.WaitText(t, "C0001", ask.TS, "Both are done.")
		w.slack.Reply("C0001", ask.TS, "U0003", "which file?")
		w.slack.WaitText(t, "C0001", ask.TS, "It is a.txt.")
		w.settled()
		if got := w.wroteFile("a.txt"); got != "x" {
			t.Errorf("a.txt holds %q", got)
		}
		last := w.model.Requests()[2]
		if n := len(last.Messages); n != 6 {
			t.Errorf("the last request has %d messages:\n%s", n, last)
		}
		var first string
		for i, r := range w.model.Requests() {
			var body struct{ Tools json.RawMessage }
			if err := json.Unmarshal(r.Body, &body); err != nil {
				t.Fatal(err)
			}
			if i == 0 {
				first = string(body.Tools)
			}
			if len(r.Tools) < 5 || string(body.Tools) != first {
				t.Errorf("request %d has the tools\n%s\nand the first had\n%s", i+1, body.Tools, first)
			}
		}
	})
}

// What a provider cannot mend is told in one sentence with an id that the log
// bears too; what passes is waited for and not told.
func TestModelFailures(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		replies []modeltest.Reply
		want    string
	}{
		"401":                 {[]modeltest.Reply{modeltest.Status(401)}, "refuses the key"},
		"403":                 {[]modeltest.Reply{modeltest.Status(403)}, "refuses the key"},
		"400":                 {[]modeltest.Reply{modeltest.Status(400).Message("no such model")}, "refuses the request"},
		"429, then good":      {[]modeltest.Reply{modeltest.RateLimited(1), modeltest.Text("Here.")}, "Here."},
		"500, then good":      {[]modeltest.Reply{modeltest.Status(500), modeltest.Status(503), modeltest.Text("Here.")}, "Here."},
		"a page, then good":   {[]modeltest.Reply{modeltest.HTML(502), modeltest.Text("Here.")}, "Here."},
		"cut, then good":      {[]modeltest.Reply{modeltest.Text("Half of it").Cut(modeltest.CutText), modeltest.Text("Here.")}, "Here."},
		"ended, then good":    {[]modeltest.Reply{modeltest.Text("Half of it").End(modeltest.CutEnd), modeltest.Text("Here.")}, "Here."},
		"cut in a call":       {[]modeltest.Reply{modeltest.Call("write_file", `{"path":"a.txt","content":"x"}`).Cut(modeltest.CutInCall), modeltest.Text("Here.")}, "Here."},
		"closed at once":      {[]modeltest.Reply{modeltest.Text("").Cut(modeltest.CutHeaders), modeltest.Text("Here.")}, "Here."},
		"error in mid-stream": {[]modeltest.Reply{modeltest.Text("Half of it").ErrorEvent("overloaded_error"), modeltest.Text("Here.")}, "Here."},
		"empty answer":        {[]modeltest.Reply{modeltest.Text("")}, "empty answer"},
		"blank answer":        {[]modeltest.Reply{modeltest.Text(" \n\t ")}, "empty answer"},
		"withheld":            {[]modeltest.Reply{modeltest.Text("").Filtered()}, "withheld"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			providers(t, func(t *testing.T, w *world) {
				w.model.Reply(c.replies...)
				p := w.serve()
				ask := w.ask("say something")
				m := w.slack.WaitText(t, "C0001", ask.TS, c.want)
				w.settled()
				if said := w.said(ask); len(said) != 1 || strings.Contains(said[0], "Half of it") {
					t.Errorf("the thread holds %q", said)
				}
				if strings.Contains(m.Shown, "127.0.0.1") || strings.Contains(m.Shown, "scripted") || strings.Contains(m.Shown, "http") {
					t.Errorf("people read %q", m.Shown)
				}
				if strings.Contains(c.want, "refuses") {
					id := strings.TrimSpace(w.query(`SELECT id FROM turns WHERE status = 'failed'`))
					if id == "" || !strings.Contains(m.Shown, id) || !strings.Contains(p.out.String(), id) {
						t.Errorf("the id %q is not in the notice and the log: %s", id, m.Shown)
					}
				}
				w.model.Default(modeltest.Echo)
				w.slack.Reply("C0001", ask.TS, "U0001", "and now?")
				w.slack.WaitText(t, "C0001", ask.TS, "and now?")
			})
		})
	}
}

// A model that fails for long after an approved call: the result is kept, the
// failure is told, and the next message goes on from there; the call does not
// run again.
//
// Rows: F89.
func TestModelFailsAfterAnApprovedCall(t *testing.T) {
	t.Parallel()
	w := newWorld(t, approverYAML)
	w.model.Reply(modeltest.Call("write_file", `{"path":"a.txt","content":"x"}`))
	w.model.Default(func(modeltest.Request) modeltest.Reply { return modeltest.Status(500).Header("Retry-After", "0") })
	w.serve()
	ask := w.ask("write it")
	card := w.card(ask)
	w.click("U0002", card, "Approve")
	w.slack.WaitText(t, "C0001", ask.TS, "cannot be reached right now")
	w.closed(card, "ran and succeeded")
	w.model.Default(func(r modeltest.Request) modeltest.Reply {
		return modeltest.Text(fmt.Sprint("I remember: ", strings.Contains(r.String(), "wrote a new file")))
	})
	w.slack.Reply("C0001", ask.TS, "U0001", "did you?")
	w.slack.WaitText(t, "C0001", ask.TS, "I remember: true")
	w.settled()
	w.want("1\n", `SELECT count(*) FROM audit_log WHERE kind = 'tool_started'`)
}

// The turn's time and steps are limited; both ends are told, and the history
// stays usable.
//
// Rows: F116, L131, L132.
func TestTurnLimits(t *testing.T) {
	t.Parallel()
	w := newWorld(t, approverYAML+`
agent: { max_tool_iterations: 3, turn_timeout: 4s }
`)
	never := make(chan struct{})
	defer close(never)
	for i := range 3 {
		w.model.On("loop", modeltest.Call("list_dir", fmt.Sprintf(`{"path":"./%s"}`, strings.Repeat("./", i))))
	}
	w.model.On("loop", modeltest.Text("I stop here."))
	w.model.On("hang", modeltest.Text("never").Hold(never))
	w.model.Default(modeltest.Echo)
	w.serve()
	loop := w.ask("loop")
	w.slack.WaitText(t, "C0001", loop.TS, "I stop here.")
	if last := w.model.Requests()[3]; last.ToolChoice != "none" && len(last.Tools) > 0 {
		t.Errorf("the last request still offers tools (%s)", last.ToolChoice)
	}
	hang := w.ask("hang")
	w.slack.WaitText(t, "C0001", hang.TS, "ran out of time")
	w.slack.Reply("C0001", hang.TS, "U0001", "go on")
	w.slack.WaitText(t, "C0001", hang.TS, "go on")
}

// A scheduled job asks in the thread where it was made, its card is there, and so
// is its answer; the person who made it may not approve it.
//
// Rows: F75, F104, L36, L67.
func TestJobAsksInItsThread(t *testing.T) {
	t.Parallel()
	w := newWorld(t, approverYAML)
	w.model.On("report now", modeltest.Call("write_file", `{"path":"report.txt","content":"all is well"}`), modeltest.Text("The report is there."))
	w.serve()
	at := time.Now().Add(4 * time.Second).UTC().Format(time.RFC3339)
	w.model.On("remind", modeltest.Call("cron_add", fmt.Sprintf(`{"prompt":"write the report now","at":%q}`, at)), modeltest.Text("It is planned."))
	ask := w.ask("remind me")
	plan := w.card(ask)
	if !strings.Contains(plan.Shown, "filled in") {
		t.Errorf("the card does not show what was filled in: %s", plan.Shown)
	}
	w.click("U0002", plan, "Approve")
	w.slack.WaitText(t, "C0001", ask.TS, "It is planned.")
	w.closed(plan, "ran and succeeded")
	card := w.card(ask)
	w.click("U0001", card, "Approve")
	w.whispered("U0001", "another person has to decide")
	w.click("U0002", card, "Approve")
	w.slack.WaitText(t, "C0001", ask.TS, "The report is there.")
	w.settled()
	if got := w.wroteFile("report.txt"); got != "all is well" {
		t.Errorf("report.txt holds %q", got)
	}
	for _, m := range w.slack.Thread("C0001", "") {
		if m.FromBot() && m.Root() != ask.TS {
			t.Errorf("this is outside of the thread: %s", m.Shown)
		}
	}
}

// send_message is free in the conversation that asked and asks elsewhere; it
// reaches the thread or channel that it names.
//
// Rows: L33.
func TestSendMessageAsksElsewhere(t *testing.T) {
	t.Parallel()
	w := newWorld(t, approverYAML)
	w.slack.AddChannel(slacktest.Channel{ID: "C2222", Name: "ops", Members: []string{slacktest.BotUserID, "U0002"}})
	w.model.On("here", modeltest.Call("send_message", `{"text":"working on it"}`), modeltest.Text("Said here."))
	w.model.On("there", modeltest.Call("send_message", `{"text":"heads up <!channel> <@U0002>","conversation":"C2222"}`), modeltest.Text("Said there."))
	w.serve()
	here := w.ask("say it here")
	w.slack.WaitText(t, "C0001", here.TS, "working on it")
	w.slack.WaitText(t, "C0001", here.TS, "Said here.")
	there := w.ask("say it there")
	card := w.card(there)
	if n := len(w.slack.Thread("C2222", "")); n != 0 {
		t.Errorf("%d messages there before anybody consented", n)
	}
	w.click("U0002", card, "Approve")
	w.slack.WaitText(t, "C2222", "", "heads up")
	w.slack.WaitText(t, "C0001", there.TS, "Said there.")
	w.settled()
	if n := len(w.slack.Thread("C2222", "")); n != 1 {
		t.Errorf("%d messages there", n)
	}
}
