package main

import (
	"strings"
	"testing"

	"github.com/clawbot/clawbot/channels/slack/slacktest"
	"github.com/clawbot/clawbot/model/modeltest"
)

const slowYAML = approverYAML + `
  rules:
    - { name: shell, tools: [shell], action: allow }
agent: { progress_after: 200ms }
tools: { shell: { enabled: true, sandbox: none } }
`

// statusLine waits for the thread's one status line to show a text.
func (w *world) statusLine(thread slacktest.Message, text string) slacktest.Message {
	w.t.Helper()
	m := w.slack.WaitMessage(w.t, thread.Channel, thread.Root(), func(m slacktest.Message) bool {
		return m.FromBot() && strings.Contains(m.Shown, text) && !strings.Contains(m.Shown, "SHA-256")
	})
	n := 0
	for _, other := range w.slack.Thread(thread.Channel, thread.Root()) {
		if other.FromBot() && (other.HasButton("Stop") || strings.Contains(other.Shown, "calls succeeded")) {
			n++
		}
	}
	if n != 1 {
		w.t.Errorf("there are %d status lines:\n%s", n, w.slack.Render(thread.Channel, thread.Root()))
	}
	return m
}

// A tool that takes its time shows in a status line; its button ends the turn, through
// another replica as well. The tool is interrupted, everything is answered and closed.
//
// Rows: L87, L88, L92, L117.
func TestStopButton(t *testing.T) {
	t.Parallel()
	for name, replicas := range map[string]int{"one process": 1, "two": 2} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, slowYAML)
			w.model.Reply(modeltest.Call("shell", `{"command":"sleep 50"}`).AndCall("write_file", `{"path":"a.txt","content":"x"}`))
			for range replicas {
				w.serve()
			}
			ask := w.ask("take your time")
			status := w.statusLine(ask, "shell is running")
			card := w.card(ask)
			w.click("U0003", status, "Stop")
			w.slack.WaitText(t, "C0001", ask.TS, "Stopped by")
			w.statusLine(ask, "Stopped: 0 of 2 calls succeeded")
			w.closed(card, "cancelled")
			w.settled()
			w.want("interrupted\ncancelled\n", `SELECT outcome FROM tool_calls ORDER BY position`)
			w.want("cancelled slack:T0001/U0003\n", `SELECT status, stopped_by FROM turns`)
			w.click("U0002", status, "Stop", slacktest.Stale())
			w.whispered("U0002", "nothing to stop")
		})
	}
}

// A parked turn is stopped by its button; a button of another thread stops nothing here.
//
// Rows: L92.
func TestStopButtonWhileParked(t *testing.T) {
	t.Parallel()
	w := newWorld(t, slowYAML)
	w.model.Default(func(modeltest.Request) modeltest.Reply {
		return modeltest.Call("write_file", `{"path":"a.txt","content":"x"}`)
	})
	w.serve()
	one, two := w.ask("write it"), w.ask("write that")
	first, second := w.statusLine(one, "Waiting for a decision"), w.statusLine(two, "Waiting for a decision")
	stolen, _ := second.Button("Stop")
	w.click("U0003", first, "Stop", slacktest.Alter(func(doc map[string]any) {
		doc["actions"].([]any)[0].(map[string]any)["value"] = stolen.Value
	}))
	w.whispered("U0003", "nothing to stop")
	w.want("parked\nparked\n", `SELECT status FROM turns`)
	w.click("U0003", first, "Stop")
	w.closed(w.cardOf(one), "cancelled")
	w.statusLine(one, "Stopped: 0 of 1")
	w.want("cancelled\nparked\n", `SELECT status FROM turns ORDER BY thread`)
}

// cardOf is the thread's card, open or not.
func (w *world) cardOf(thread slacktest.Message) slacktest.Message {
	w.t.Helper()
	return w.slack.WaitMessage(w.t, thread.Channel, thread.Root(), func(m slacktest.Message) bool { return strings.Contains(m.Shown, "SHA-256") })
}

// The process dies while a status line is there. The next one goes on with the same
// message, and at the turn's end its button is gone.
//
// Rows: L117, F37.
func TestStatusLineAcrossSIGKILL(t *testing.T) {
	t.Parallel()
	w := newWorld(t, slowYAML)
	w.model.Reply(modeltest.Call("write_file", `{"path":"a.txt","content":"x"}`), modeltest.Text("Written."))
	p := w.serve()
	ask := w.ask("write it")
	status := w.statusLine(ask, "Waiting for a decision")
	w.exec(`UPDATE turns SET status_ref = '', status_tries = 1, status_due_at = now()`) // as if nobody had recorded it
	p.kill()
	w.serve()
	w.click("U0002", w.card(ask), "Approve")
	w.slack.WaitText(t, "C0001", ask.TS, "Written.")
	if done := w.statusLine(ask, "Done: 1 of 1 calls succeeded"); done.TS != status.TS || len(done.Buttons) != 0 {
		t.Errorf("the status line %+v", done)
	}
}
