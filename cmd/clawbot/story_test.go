package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/clawbot/clawbot/channels/slack/slacktest"
	"github.com/clawbot/clawbot/model/modeltest"
)

// approverYAML lets Ben decide, and nobody else.
const approverYAML = `
approval:
  approvers: { users: ["slack:T0001/U0002"], local: false }
`

// The whole story: asked in Slack, killed while the card is open, started again,
// clicked by the wrong and the right person, run once, answered in the thread,
// and all of it found in Postgres.
//
// Rows: F87, F104, L65, L78, L79.
func TestFromMessageToAuditedRunAcrossSIGKILL(t *testing.T) {
	t.Parallel()
	w := newWorld(t, approverYAML)
	w.model.Reply(
		modeltest.Call("write_file", `{"path":"plan.txt","content":"ship it"}`),
		modeltest.Text("The plan is written."),
	)
	p := w.serve()
	ask := w.slack.Say("C0001", "U0001", slacktest.Mention+" please write the plan")
	card := w.slack.WaitMessage(t, "C0001", ask.TS, func(m slacktest.Message) bool { return m.HasButton("Approve") })
	if !card.HasButton("Deny") || !card.HasButton("Details") {
		t.Errorf("the card lacks buttons:\n%s", w.slack.Render("C0001", ask.TS))
	}
	w.waitFor("the turn is parked", func() bool { return w.query(`SELECT status FROM turns`) == "parked\n" })

	p.kill()
	p = w.serve()

	if err := w.slack.Click("U0001", card, "Approve"); err != nil {
		t.Fatal(err)
	}
	w.waitFor("the requester is told that another person decides", func() bool { return len(w.slack.Ephemerals("U0001")) == 1 })
	if _, err := os.Stat(filepath.Join(w.dir, "workspace", "plan.txt")); err == nil {
		t.Fatal("it ran without consent")
	}
	if err := w.slack.Click("U0002", card, "Approve"); err != nil {
		t.Fatal(err)
	}
	w.slack.WaitText(t, "C0001", ask.TS, "The plan is written.")
	final := w.slack.WaitMessage(t, "C0001", ask.TS, func(m slacktest.Message) bool {
		return m.TS == card.TS && strings.Contains(m.Shown, "ran and succeeded")
	})
	if len(final.Buttons) != 0 {
		t.Errorf("the decided card still has buttons: %s", final.Shown)
	}
	w.slack.WaitIdle(t)

	got, err := os.ReadFile(filepath.Join(w.dir, "workspace", "plan.txt"))
	if err != nil || string(got) != "ship it" {
		t.Errorf("plan.txt holds %q (%v)", got, err)
	}
	if n := len(w.model.Requests()); n != 2 {
		t.Errorf("the model was asked %d times, want 2: approval must not ask it again", n)
	}
	want := func(what, sql, rows string) {
		t.Helper()
		if got := w.query(sql); got != rows {
			t.Errorf("%s:\n%swant\n%s", what, got, rows)
		}
	}
	want("turns", `SELECT status, channel, workspace, conversation, author FROM turns`, "done slack T0001 C0001 slack:T0001/U0001\n")
	want("tool calls", `SELECT tool, outcome, args, args_sha256 = encode(sha256(convert_to(args, 'UTF8')), 'hex') FROM tool_calls`,
		`write_file succeeded {"content":"ship it","path":"plan.txt"} true`+"\n")
	want("approvals", `SELECT status, decided_by, source, backchannel FROM approvals`, "approved slack:T0001/U0002 person slack\n")
	want("messages", `SELECT role, text FROM messages ORDER BY seq`,
		"user please write the plan\nassistant \ntool <tool_output>\nwrote a new file plan.txt (7 bytes)\n</tool_output>\nassistant The plan is written.\n")
	want("audit", `SELECT kind, decision, source, actor, channel FROM audit_log ORDER BY seq`, strings.Join([]string{
		"policy_decision ask policy - slack",
		"approval_requested ask policy - slack",
		"click_refused approve person slack:T0001/U0001 slack",
		"approval_vote approved person slack:T0001/U0002 slack",
		"approval_decided approved person slack:T0001/U0002 slack",
		"tool_started - system - slack",
		"tool_finished succeeded system - slack",
	}, "\n")+"\n")
	want("deliveries left", `SELECT count(*) FROM deliveries WHERE state <> 'sent'`, "0\n")
	if out := w.must("audit", "verify"); !strings.Contains(out, "7 rows in 1 sessions") {
		t.Errorf("audit verify: %s", out)
	}
	t.Log(w.slack.Render("C0001", ask.TS))
	p.stop()
}
