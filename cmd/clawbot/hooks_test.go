package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/clawbot/clawbot/model/modeltest"
)

// A program of the operator cancels one call, rewrites another before anybody is
// asked about it, hangs on a third, and is told of what ran.
//
// Rows: L32, L101.
func TestHooks(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	hook := filepath.Join(dir, "hook")
	told := filepath.Join(dir, "told")
	text := `#!/bin/sh
q=$(cat)
case "$q" in
*'"when":"after"'*) printf '%s\n' "$q" >> "$1" ;;
*no.txt*) echo '{"decision":"cancel","reason":"not on a Friday"}' ;;
*rash.txt*) echo '{"decision":"rewrite","args":{"path":"safe.txt","content":"y"}}' ;;
*hang.txt*) sleep 60 ;;
*) echo '{"decision":"continue"}' ;;
esac
`
	if err := os.WriteFile(hook, []byte(text), 0o755); err != nil {
		t.Fatal(err)
	}
	w := newWorld(t, fmt.Sprintf(`
approval:
  approvers: { users: ["slack:T0001/U0002"] }
hooks:
  - { name: friday, when: before, tools: ["write_*"], command: [%[1]q, %[2]q], timeout: 500ms }
  - { name: log, when: after, command: [%[1]q, %[2]q] }
`, hook, told))
	write := func(name string) string { return fmt.Sprintf(`{"path":"%s.txt","content":"x"}`, name) }
	w.model.Reply(modeltest.Call("write_file", write("no")).AndCall("write_file", write("rash")).AndCall("write_file", write("hang")), modeltest.Text("One of three."))
	w.serve()
	ask := w.ask("write them")
	card := w.card(ask)
	if !strings.Contains(card.Shown, "safe.txt") || strings.Contains(card.Shown, "rash.txt") {
		t.Errorf("the card shows\n%s", card.Shown)
	}
	w.click("U0002", card, "Approve")
	w.slack.WaitText(t, "C0001", ask.TS, "One of three.")
	w.settled()
	w.want("cancelled {}\nsucceeded {\"content\":\"y\",\"path\":\"safe.txt\"}\ncancelled {}\n",
		`SELECT outcome, CASE args WHEN '' THEN '{}' ELSE args END FROM tool_calls ORDER BY position`)
	if safe, rash := w.wroteFile("safe.txt"), w.wroteFile("rash.txt"); safe != "y" || rash != "" {
		t.Errorf("safe.txt holds %q, rash.txt %q", safe, rash)
	}
	results := w.model.Requests()[1].Results()
	for i, part := range []string{"hook friday: not on a Friday", "wrote a new file", "hook friday could not be asked"} {
		if !strings.Contains(results[i].Text, part) {
			t.Errorf("the model reads of call %d: %s", i, results[i].Text)
		}
	}
	after, err := os.ReadFile(told)
	if err != nil || strings.Count(string(after), "\n") != 1 || !strings.Contains(string(after), `"outcome":"succeeded"`) {
		t.Errorf("the hook was told:\n%s%v", after, err)
	}
	session := strings.Fields(w.query(`SELECT id FROM sessions`))[0]
	if out := w.must("sessions", "show", session); !strings.Contains(out, "hook friday failed: it did not answer within 500ms") {
		t.Errorf("the timeline lacks the warning:\n%s", out)
	}
	if out := w.must("doctor"); !strings.Contains(out, "friday: "+hook) {
		t.Errorf("doctor:\n%s", out)
	}
}
