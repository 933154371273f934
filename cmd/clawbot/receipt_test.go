package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/clawbot/clawbot/model/modeltest"
)

// Receipts are checked after a restart, and a result that was changed in the database
// is named. The key is in a file that no tool reads, and nowhere else.
//
// Rows: L97, L98, L100.
func TestReceipts(t *testing.T) {
	t.Parallel()
	w := newWorld(t, approverYAML+"\nagent: { tool_receipts: { enabled: true } }\n")
	w.model.Each("look", modeltest.Call("list_dir", `{"path":"."}`).AndCall("read_file", `{"path":"none.txt"}`), modeltest.Text("Looked."))
	p := w.serve()
	ask := w.ask("look")
	w.slack.WaitText(t, "C0001", ask.TS, "Looked.")
	w.settled()
	p.kill()
	results := w.model.Requests()[1].Results()
	if !strings.Contains(results[0].Text, "[receipt: v1.") || strings.Contains(results[1].Text, "receipt") {
		t.Errorf("the model reads %q and %q", results[0].Text, results[1].Text)
	}
	call := strings.TrimSpace(w.query(`SELECT call_id FROM tool_calls WHERE tool = 'list_dir'`))
	if out := w.must("audit", "verify"); !strings.Contains(out, "; 1 receipts match their calls") {
		t.Errorf("audit verify: %s", out)
	}
	if out := w.must("audit", "show", call); !strings.Contains(out, "receipt of call "+call+": v1.") || !strings.Contains(out, "(matches the call)") {
		t.Errorf("audit show:\n%s", out)
	}
	key := filepath.Join(w.dir, "data", "keys", "receipt.key")
	secret, err := os.ReadFile(key)
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(p.out.String(), strings.TrimSpace(string(secret))) {
		t.Error("the key is in the log")
	}
	for _, sql := range []string{
		`UPDATE tool_calls SET output = output || ' ' WHERE tool = 'list_dir'`, `UPDATE tool_calls SET args = '{"path":"/"}' WHERE tool = 'list_dir'`,
		`UPDATE tool_calls SET tool = 'shell' WHERE tool = 'list_dir'`, `UPDATE tool_calls SET receipt = 'v1.x' WHERE tool = 'list_dir'`,
		`UPDATE tool_calls SET receipt = (SELECT receipt FROM tool_calls WHERE receipt <> '') WHERE tool = 'read_file'`,
	} {
		w.exec(`CREATE TABLE kept AS SELECT * FROM tool_calls`)
		w.exec(sql)
		_, errs, status := w.run("audit", "verify")
		if status != 1 || !strings.Contains(errs, "a receipt does not verify: session ses_") || !strings.Contains(errs, ", call ") {
			t.Errorf("%s: status %d, %s", sql, status, errs)
		}
		w.exec(`UPDATE tool_calls t SET tool = k.tool, args = k.args, output = k.output, receipt = k.receipt FROM kept k WHERE k.turn_id = t.turn_id AND k.call_id = t.call_id`)
		w.exec(`DROP TABLE kept`)
	}
	w.must("audit", "verify")
	if err := os.Remove(key); err != nil {
		t.Fatal(err)
	}
	if out := w.must("audit", "verify"); !strings.Contains(out, "1 receipts were made with another key") {
		t.Errorf("without the key: %s", out)
	}
	if err := os.WriteFile(key, []byte("no key"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, errs, status := w.run("serve"); status != 1 || !strings.Contains(errs, "64 hexadecimal digits") {
		t.Errorf("serve with a broken key: status %d, %s", status, errs)
	}
}
