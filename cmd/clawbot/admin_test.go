package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"

	"github.com/clawbot/clawbot/channels/slack"
	"github.com/clawbot/clawbot/channels/slack/slacktest"
	"github.com/clawbot/clawbot/model/modeltest"
)

const localYAML = `
approval:
  approvers: { users: ["slack:T0001/U0002"], local: true }
`

// The command line is a front door beside a running clawbot: it lists, shows and
// decides; the result is in the thread, the card is closed, and the audit says
// where the decision was made.
//
// Rows: L66, L72.
func TestApprovalsOnTheCommandLine(t *testing.T) {
	t.Parallel()
	w := newWorld(t, localYAML)
	for _, name := range []string{"one", "two"} {
		w.model.Each("write "+name, modeltest.Call("write_file", fmt.Sprintf(`{"path":"%s.txt","content":"x"}`, name)), modeltest.Text("The end of "+name+"."))
	}
	w.serve()
	for _, c := range []struct{ name, command, status string }{{"one", "approve", "approved"}, {"two", "deny", "denied"}} {
		ask := w.ask("write " + c.name)
		card := w.card(ask)
		approve, _ := card.Button("Approve")
		id := approve.Value
		if out := w.must("approvals", "list"); !strings.Contains(out, id) || !strings.Contains(out, c.name+".txt") {
			t.Errorf("approvals list:\n%s", out)
		}
		if out := w.must("approvals", "show", id); !strings.Contains(out, c.name+".txt") || !strings.Contains(out, "slack:T0001/U0001") {
			t.Errorf("approvals show:\n%s", out)
		}
		args := []string{"approvals", c.command, id}
		if c.command == "deny" {
			args = append(args, "--reason", "not on a Friday")
		}
		w.must(args...)
		w.slack.WaitText(t, "C0001", ask.TS, "The end of "+c.name+".")
		w.closed(card, c.status+" by")
		_, errs, status := w.run(args...)
		if status != 1 || !strings.Contains(errs, "decided already") {
			t.Errorf("a second time: status %d, %s", status, errs)
		}
		w.want("cli person\n", `SELECT backchannel, source FROM approvals WHERE id = $1 AND decided_by LIKE 'cli:%'`, id)
	}
	w.settled()
	if one, two := w.wroteFile("one.txt"), w.wroteFile("two.txt"); one != "x" || two != "" {
		t.Errorf("one.txt holds %q, two.txt %q", one, two)
	}
	if results := w.model.Requests()[3].Results(); !strings.Contains(results[0].Text, "not on a Friday") {
		t.Errorf("the model is told %s", results[0].Text)
	}
	for _, args := range [][]string{{"approvals", "show", "ap_none"}, {"approvals", "approve", "ap_none"}, {"sessions", "show", "ses_none"}, {"audit", "show", "none"}} {
		out, errs, status := w.run(args...)
		if status != 1 || out != "" || !strings.HasPrefix(errs, "clawbot: ") || strings.Count(errs, "\n") != 1 {
			t.Errorf("%s: status %d, %q %q", args, status, out, errs)
		}
	}
	if out := w.must("approvals", "list", "--json"); strings.TrimSpace(out) != "[]" {
		t.Errorf("approvals list --json: %s", out)
	}
}

// The command line gives the value that a rule wants, also from standard input, and
// an answer instead of the call. A secret value is shown nowhere.
//
// Rows: L47, L66, L70.
func TestValuesOnTheCommandLine(t *testing.T) {
	t.Parallel()
	w := newWorld(t, `
channels: { slack: { allow: { users: ["*"], channels: ["*"] } } }
approval:
  approvers: { local: true, users: ["slack:T0001/U0002"] }
  rules:
    - { name: words, tools: [write_file], action: ask_input, target_arg: content, prompt: "What shall it say?", secret: true }
`)
	for _, name := range []string{"one", "two"} {
		w.model.Each("write "+name, modeltest.Call("write_file", fmt.Sprintf(`{"path":"%s.txt"}`, name)), modeltest.Text("The end of "+name+"."))
	}
	w.serve()
	for _, c := range []struct {
		name string
		args []string
	}{{"one", []string{"approve", "--value", "-"}}, {"two", []string{"deny", "--instead", "there is such a file"}}} {
		ask := w.ask("write " + c.name)
		card := w.card(ask)
		approve, _ := card.Button("Approve")
		if _, errs, status := w.run("approvals", "approve", approve.Value); status != 1 || !strings.Contains(errs, "wants a value for content") {
			t.Errorf("without a value: status %d, %s", status, errs)
		}
		args := append([]string{"approvals", c.args[0], approve.Value}, c.args[1:]...)
		if out, errs, status := w.runWith(strings.NewReader("geheimes-wort\n"), args...); status != 0 {
			t.Errorf("%s: status %d\n%s%s", args, status, out, errs)
		}
		w.slack.WaitText(t, "C0001", ask.TS, "The end of "+c.name+".")
		if out := w.must("approvals", "show", approve.Value); strings.Contains(out, "geheim") {
			t.Errorf("the value is shown:\n%s", out)
		}
	}
	w.settled()
	if one, two := w.wroteFile("one.txt"), w.wroteFile("two.txt"); one != "geheimes-wort" || two != "" {
		t.Errorf("one.txt holds %q, two.txt %q", one, two)
	}
	if results := w.model.Requests()[3].Results(); !strings.Contains(results[0].Text, "there is such a file") {
		t.Errorf("the model is told %s", results[0].Text)
	}
	w.want("0\n", `SELECT count(*) FROM audit_log WHERE audit_log::text LIKE '%geheim%'`)
	w.want("0\n", `SELECT count(*) FROM events WHERE events::text LIKE '%geheim%'`)
	w.want("0\n", `SELECT count(*) FROM messages WHERE messages::text LIKE '%geheim%'`)
}

// Where the settings do not let the console decide, it does not.
//
// Rows: T3, T4, L74.
func TestCommandLineNeedsTheRight(t *testing.T) {
	t.Parallel()
	w := newWorld(t, approverYAML)
	w.model.Reply(modeltest.Call("write_file", `{"path":"a.txt","content":"x"}`))
	w.serve()
	approve, _ := w.card(w.ask("write it")).Button("Approve")
	_, errs, status := w.run("approvals", "approve", approve.Value)
	if status != 1 || !strings.Contains(errs, "approvers.local") {
		t.Errorf("status %d, %s", status, errs)
	}
	w.want("pending\n", `SELECT status FROM approvals`)
	w.want("click_refused cli\n", `SELECT kind, backchannel FROM audit_log WHERE kind = 'click_refused'`)
}

// audited is one row of `audit list --json`.
type audited struct {
	SessionID string `json:"session_id"`
	Seq       int64
	Kind      string
	Tool      string
	Decision  string
	Actor     string
	Channel   string
	CallID    string `json:"call_id"`
	TurnID    string `json:"turn_id"`
}

// Lists can be narrowed, printed as JSON, and shown one by one; verify proves the
// whole.
func TestAuditQuestions(t *testing.T) {
	t.Parallel()
	w := newWorld(t, localYAML)
	w.model.Each("write", modeltest.Call("write_file", `{"path":"a.txt","content":"x"}`).AndCall("list_dir", `{"path":"."}`), modeltest.Text("The end."))
	w.serve()
	var sessions []string
	for i, button := range []string{"Approve", "Deny"} {
		ask := w.ask(fmt.Sprintf("write %d", i))
		card := w.card(ask)
		w.click("U0003", card, button)
		if button == "Deny" {
			w.deny("U0002", card, nil)
		} else {
			w.click("U0002", card, button)
		}
		w.slack.WaitText(t, "C0001", ask.TS, "The end.")
	}
	w.settled()
	list := func(args ...string) []audited {
		t.Helper()
		var rows []audited
		out := w.must(append([]string{"audit", "list", "--json"}, args...)...)
		if err := json.Unmarshal([]byte(out), &rows); err != nil {
			t.Fatalf("%s: %v", args, err)
		}
		return rows
	}
	all := list("--limit", "1000")
	for _, r := range all {
		if !slices.Contains(sessions, r.SessionID) {
			sessions = append(sessions, r.SessionID)
		}
	}
	if len(sessions) != 2 {
		t.Fatalf("%d sessions", len(sessions))
	}
	count := func(ok func(audited) bool) (n int) {
		for _, r := range all {
			if ok(r) {
				n++
			}
		}
		return n
	}
	for _, c := range []struct {
		args []string
		ok   func(audited) bool
	}{
		{[]string{"--tool", "write_file"}, func(r audited) bool { return r.Tool == "write_file" }},
		{[]string{"--actor", "slack:T0001/U0003"}, func(r audited) bool { return r.Actor == "slack:T0001/U0003" }},
		{[]string{"--decision", "denied"}, func(r audited) bool { return r.Decision == "denied" }},
		{[]string{"--channel", "slack"}, func(r audited) bool { return r.Channel == "slack" }},
		{[]string{"--channel", "terminal"}, func(r audited) bool { return false }},
		{[]string{"--session", sessions[1]}, func(r audited) bool { return r.SessionID == sessions[1] }},
		{[]string{"--since", "1h"}, func(r audited) bool { return true }},
		{[]string{"--until", "1h"}, func(r audited) bool { return false }},
		{[]string{"--tool", "write_file", "--decision", "succeeded"}, func(r audited) bool { return r.Tool == "write_file" && r.Decision == "succeeded" }},
	} {
		got, want := list(c.args...), count(c.ok)
		if len(got) != want || !slices.ContainsFunc(append(got, audited{}), func(r audited) bool { return r == audited{} || c.ok(r) }) {
			t.Errorf("%s: %d rows, want %d", c.args, len(got), want)
		}
	}
	if got := list("--limit", "3"); len(got) != 3 || got[2] != all[len(all)-1] {
		t.Errorf("--limit 3 gives %+v", got)
	}
	for _, id := range []string{all[0].TurnID, all[0].CallID} {
		if out := w.must("audit", "show", id); !strings.Contains(out, "policy_decision") || !strings.Contains(out, "args_sha256") {
			t.Errorf("audit show %s:\n%s", id, out)
		}
	}
	var shown struct {
		Turns []struct {
			Status string
			Events []struct{ Type string }
		}
		Messages []struct{ Role, Text string }
	}
	if err := json.Unmarshal([]byte(w.must("sessions", "show", "--json", sessions[0])), &shown); err != nil || len(shown.Turns) != 1 || len(shown.Messages) != 5 {
		t.Errorf("sessions show --json: %v, %+v", err, shown)
	}
	var types []string
	for _, e := range shown.Turns[0].Events {
		types = append(types, e.Type)
	}
	if want := "tool_batch_started policy_decision policy_decision run_paused run_resumed tool_call tool_result tool_completed tool_call tool_result tool_completed"; strings.Join(types, " ") != want {
		t.Errorf("the timeline is %s", types)
	}
	for _, args := range [][]string{{"sessions", "list"}, {"approvals", "list"}, {"migrate", "status"}, {"audit", "verify"}} {
		if out := w.must(append(args, "--json")...); !json.Valid([]byte(out)) {
			t.Errorf("%s --json is no JSON: %s", args, out)
		}
	}
}

// A row that a superuser has changed, removed, added or moved is found and named,
// with status 1; as the service's role the triggers refuse it already.
//
// Rows: T19.
func TestTamperingIsNamed(t *testing.T) {
	t.Parallel()
	w := newWorld(t, localYAML)
	w.model.Each("write", modeltest.Call("write_file", `{"path":"a.txt","content":"x"}`), modeltest.Text("The end."))
	p := w.serve()
	ask := w.ask("write it")
	w.click("U0002", w.card(ask), "Approve")
	w.slack.WaitText(t, "C0001", ask.TS, "The end.")
	w.settled()
	p.stop()
	session := strings.TrimSpace(w.query(`SELECT id FROM sessions`))
	for _, sql := range []string{`UPDATE audit_log SET actor = actor`, `DELETE FROM audit_log`, `TRUNCATE audit_log`} {
		if err := w.try(sql); err == nil || !strings.Contains(err.Error(), "append-only") {
			t.Errorf("%s: %v", sql, err)
		}
	}
	w.exec(`ALTER TABLE audit_log DISABLE TRIGGER USER`)
	w.exec(`CREATE TABLE kept AS SELECT * FROM audit_log`)
	w.must("audit", "verify")
	for sql, seq := range map[string]int{
		`UPDATE audit_log SET actor = 'slack:T0001/U0003' WHERE seq = 3`:                                3,
		`UPDATE audit_log SET decision = 'denied' WHERE seq = 4`:                                        4,
		`UPDATE audit_log SET args = '{"path":"b.txt"}' WHERE seq = 1`:                                  1,
		`UPDATE audit_log SET at = at + interval '1 microsecond' WHERE seq = 2`:                         2,
		`UPDATE audit_log SET reason = 'no harm' WHERE seq = 5`:                                         5,
		`UPDATE audit_log SET latency_ms = 1000000 WHERE seq = 4`:                                       4,
		`UPDATE audit_log SET rule = NULL, backchannel = NULL, channel = 'web' WHERE seq = 4`:           4,
		`DELETE FROM audit_log WHERE seq = 1`:                                                           1,
		`DELETE FROM audit_log WHERE seq = 3`:                                                           3,
		`DELETE FROM audit_log WHERE seq = 6`:                                                           6,
		`DELETE FROM audit_log`:                                                                         1,
		`UPDATE audit_log SET seq = CASE seq WHEN 2 THEN 1003 WHEN 3 THEN 1002 END WHERE seq IN (2, 3)`: 2,
		`INSERT INTO audit_log (session_id, seq, at, kind, prev_hash, hash) SELECT session_id, 7, now(), 'tool_started', hash, hash FROM audit_log WHERE seq = 6`: 7,
	} {
		w.exec(sql)
		_, errs, status := w.run("audit", "verify")
		if status != 1 || !strings.Contains(errs, fmt.Sprintf("session %s, seq %d:", session, seq)) {
			t.Errorf("%s: status %d, %s", sql, status, errs)
		}
		var v struct {
			Bad *struct {
				SessionID string `json:"session_id"`
				Seq       int
			}
		}
		out, _, status := w.run("audit", "verify", "--json")
		if err := json.Unmarshal([]byte(out), &v); err != nil || v.Bad == nil || v.Bad.Seq != seq || status != 1 {
			t.Errorf("%s: verify --json: status %d, %v, %s", sql, status, err, out)
		}
		w.exec(`DELETE FROM audit_log`)
		w.exec(`INSERT INTO audit_log SELECT * FROM kept`)
	}
	w.must("audit", "verify")
}

// Migrations can be listed, taken back and applied again; several starts at once
// apply them once.
func TestMigrateCommands(t *testing.T) {
	t.Parallel()
	w := newWorld(t, localYAML)
	applied := func(want bool) {
		t.Helper()
		out := w.must("migrate", "status")
		if lines := strings.Split(strings.TrimSpace(out), "\n"); len(lines) < 2 || !strings.Contains(lines[1], fmt.Sprint(want)) {
			t.Errorf("migrate status:\n%s", out)
		}
	}
	applied(false)
	_, errs, status := w.run("audit", "list")
	if status != 1 || !strings.Contains(errs, "migrate up") || strings.Count(errs, "\n") != 1 {
		t.Errorf("audit list without a schema: status %d, %s", status, errs)
	}
	out, _, status := w.run("doctor")
	if status != 0 || !strings.Contains(out, "warn  schema") {
		t.Errorf("doctor: status %d\n%s", status, out)
	}
	done := make(chan int)
	for range 4 {
		go func() {
			_, _, status := w.run("migrate", "up")
			done <- status
		}()
	}
	for range 4 {
		if status := <-done; status != 0 {
			t.Errorf("migrate up: status %d", status)
		}
	}
	applied(true)
	n := len(strings.Split(strings.TrimSpace(w.must("migrate", "status")), "\n")) - 1
	for range n {
		w.must("migrate", "down")
	}
	applied(false)
	if _, errs, status := w.run("migrate", "down"); status != 1 || !strings.Contains(errs, "no migration is applied") {
		t.Errorf("one more down: status %d, %s", status, errs)
	}
	w.must("migrate", "up")
	applied(true)
}

// The manifest asks for exactly what is used, and is there before any setting is.
func TestSlackManifestCommand(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "")
	w.env = []string{"PATH=" + os.Getenv("PATH"), "CLAWBOT_CONFIG=/does/not/exist"}
	var m struct {
		OAuth struct {
			Scopes struct{ Bot, User []string }
		} `yaml:"oauth_config"`
		Settings struct {
			Events struct {
				Bot []string `yaml:"bot_events"`
			} `yaml:"event_subscriptions"`
			Interactivity struct {
				On bool `yaml:"is_enabled"`
			}
			SocketMode bool `yaml:"socket_mode_enabled"`
		}
	}
	if err := yaml.Unmarshal([]byte(w.must("slack", "manifest")), &m); err != nil {
		t.Fatal(err)
	}
	bot := slices.Clone(m.OAuth.Scopes.Bot)
	slices.Sort(bot)
	if !slices.Equal(bot, slack.RequiredScopes()) || len(m.OAuth.Scopes.User) != 0 {
		t.Errorf("the scopes are %v", m.OAuth.Scopes)
	}
	events := slices.Sorted(slices.Values(m.Settings.Events.Bot))
	if want := []string{"app_mention", "message.channels", "message.groups", "message.im", "message.mpim"}; !slices.Equal(events, want) {
		t.Errorf("the events are %v", events)
	}
	if !m.Settings.SocketMode || !m.Settings.Interactivity.On {
		t.Errorf("%+v", m.Settings)
	}
	if out := w.must("version"); !regexp.MustCompile(`^clawbot \S+, commit \S+, go1\.\d+\S*\n$`).MatchString(out) {
		t.Errorf("version: %q", out)
	}
}

// doctor says in one line each what is well and what is not, and its status says
// whether anything failed.
func TestDoctor(t *testing.T) {
	t.Parallel()
	w := newWorld(t, localYAML)
	w.must("migrate", "up")
	good := w.must("doctor")
	for _, part := range []string{"settings", "database", "schema", "policy", "model", "tools", "sandbox", "slack"} {
		if !regexp.MustCompile(`(?m)^ok +` + part).MatchString(good) {
			t.Errorf("no ok for %s:\n%s", part, good)
		}
	}
	if !strings.Contains(good, "Socket Mode is available") {
		t.Errorf("the app token was not tried:\n%s", good)
	}
	w.want("0\n", `SELECT count(*) FROM sessions`)
	for _, c := range w.slack.Calls("") {
		if strings.HasPrefix(c.Method, "chat.") {
			t.Errorf("doctor calls %s", c.Method)
		}
	}
	env := w.env
	for name, c := range map[string]struct {
		env  []string
		want string
	}{
		"bot token": {[]string{"SLACK_BOT_TOKEN=xoxb-wrong-canary"}, "fail  slack"},
		"app token": {[]string{"SLACK_APP_TOKEN=xapp-wrong-canary"}, "fail  slack"},
		"no slack":  {[]string{"SLACK_API_URL=http://127.0.0.1:1/api/"}, "Slack cannot be reached"},
	} {
		w.env = append(slices.Clone(env), c.env...)
		out, errs, status := w.run("doctor")
		if status != 1 || !strings.Contains(out, c.want) || strings.Contains(out+errs, "canary") {
			t.Errorf("%s: status %d\n%s%s", name, status, out, errs)
		}
	}
}

// Wrong settings are told all at once, each with its place, and nothing starts.
//
// Rows: L145.
func TestWrongSettingsAreToldAtOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t, `agent:
  max_tool_iterations: 0
  colour: blue
approval:
  timeout: soon
  approvers: { users: ["U0002"], local: false }
  rules:
    - { name: a, tools: ["shell"], action: perhaps }
    - { name: b, tools: ["shell"], when: 'args.command.contains(', action: deny }
`)
	w.env = append(w.env, "SLACK_BOT_TOKEN=xapp-canary-wrong-kind", "CLAWBOT_LOG_LEVEL=loud", "CLAWBOT_MODEL=gpt")
	config := filepath.Join(w.dir, "clawbot.yaml")
	for _, command := range []string{"serve", "chat", "doctor", "audit list"} {
		out, errs, status := w.run(strings.Fields(command)...)
		if status != 1 || strings.Contains(out+errs, "canary") {
			t.Errorf("%s: status %d\n%s%s", command, status, out, errs)
		}
		for _, place := range []string{":2:", ":3:", ":5:", ":8:", ":9:"} {
			if !regexp.MustCompile(regexp.QuoteMeta(config+place) + `\d+: `).MatchString(errs) {
				t.Errorf("%s: nothing about line %s in\n%s", command, place, errs)
			}
		}
		for _, name := range []string{"CLAWBOT_LOG_LEVEL", "CLAWBOT_MODEL"} {
			if !strings.Contains(errs, name) {
				t.Errorf("%s: nothing about %s in\n%s", command, name, errs)
			}
		}
	}
	if n := len(w.slack.Calls("")); n != 0 {
		t.Errorf("%d calls to Slack", n)
	}
}

// Nobody who could decide is a mistake in the settings: the program does not
// start with a gate that cannot open.
//
// Rows: F70, T3, L68.
func TestNoApproverIsRefusedAtStart(t *testing.T) {
	t.Parallel()
	for name, yaml := range map[string]string{
		"no file":          "",
		"empty list":       "approval: { approvers: { users: [] } }\n",
		"only the console": "approval: { approvers: { local: true } }\n",
		"one rule without": approverYAML + `  rules: [ { name: r, tools: ["shell"], action: ask, approvers: { users: [] } } ]` + "\n",
		"nobody may speak": approverYAML + "channels: { slack: { allow: { users: [] } } }\n",
	} {
		w := newWorld(t, yaml)
		out, errs, status := w.run("serve")
		if status != 1 || !strings.HasPrefix(lastLine(errs), "clawbot: ") && !strings.Contains(errs, "clawbot.yaml") {
			t.Errorf("%s: status %d\n%s%s", name, status, out, errs)
		}
	}
}

// Wrong usage is status 2 and one line, on the built program too; help is on
// stdout and status 0.
func TestUsageOfTheProgram(t *testing.T) {
	t.Parallel()
	w := newWorld(t, localYAML)
	for _, line := range []string{"sevre", "serve now", "approvals", "audit list --limit 0", "audit show", "--port 8"} {
		out, errs, status := w.run(strings.Fields(line)...)
		if status != 2 || out != "" || strings.Count(errs, "\n") != 1 || !strings.HasPrefix(errs, "clawbot: ") {
			t.Errorf("%s: status %d, %q %q", line, status, out, errs)
		}
	}
	for _, line := range []string{"--help", "-h", "serve --help", "audit verify --help", "approvals --help"} {
		out, errs, status := w.run(strings.Fields(line)...)
		if status != 0 || errs != "" || !strings.Contains(out, "Example") {
			t.Errorf("%s: status %d, %q %q", line, status, out, errs)
		}
	}
}

// Secrets of the process and secrets in arguments are in no log, card, answer,
// audit row, list or page. What runs, and what
// the model is shown, is kept as it is, in the columns listed here.
//
// Rows: T14, L125.
func TestSecretsStayWhereTheyBelong(t *testing.T) {
	t.Parallel()
	w := newWorld(t, localYAML)
	const password, bearer = "hunter2-canary-password", "canarybearer0123456789"
	w.env = append(w.env, "CLAWBOT_LOG_FORMAT=json")
	args := fmt.Sprintf(`{"path":"conf.txt","content":"password=%s\nAuthorization: Bearer %s\nkey %s"}`, password, bearer, w.slack.BotToken)
	w.model.Reply(modeltest.Call("write_file", args), modeltest.Call("read_file", `{"path":"conf.txt"}`),
		modeltest.Text("The file says password="+password+" and "+w.slack.AppToken))
	p := w.serve()
	ask := w.ask("write the settings")
	card := w.card(ask)
	w.click("U0003", card, "Details")
	view := w.slack.WaitView(t, func(slacktest.View) bool { return true })
	w.click("U0002", card, "Approve")
	w.slack.WaitText(t, "C0001", ask.TS, "The file says")
	w.closed(card, "ran and succeeded")
	w.settled()
	if got := w.wroteFile("conf.txt"); !strings.Contains(got, password) || !strings.Contains(got, w.slack.BotToken) {
		t.Errorf("what ran was masked: %s", got)
	}
	approve, _ := card.Button("Approve")
	session := strings.TrimSpace(w.query(`SELECT id FROM sessions`))
	_, ready := w.get(p, "/readyz")
	own := []string{w.slack.BotToken, w.slack.AppToken, modeltest.Key}
	for name, c := range map[string]struct {
		text    string
		secrets []string
	}{
		"log":            {p.out.String(), append(own, password, bearer)},
		"card":           {card.Shown, append(own, password, bearer)},
		"details":        {viewText(view), append(own, password, bearer)},
		"readyz":         {ready, append(own, password, bearer)},
		"audit list":     {w.must("audit", "list", "--json"), append(own, password, bearer)},
		"audit show":     {w.must("audit", "show", approve.Value), append(own, password, bearer)},
		"approvals show": {w.must("approvals", "show", approve.Value) + w.must("approvals", "show", approve.Value, "--json"), append(own, password, bearer)},
		"sessions show":  {w.must("sessions", "show", session) + w.must("sessions", "show", session, "--json"), append(own, password, bearer)},
		"thread":         {w.slack.Render("C0001", ask.TS), own},
	} {
		for _, secret := range c.secrets {
			if strings.Contains(c.text, secret) {
				t.Errorf("%s holds %s:\n%.3000s", name, secret, c.text)
			}
		}
	}
	for _, r := range w.model.Requests()[2].Results() {
		if strings.Contains(r.Text, w.slack.BotToken) || !strings.Contains(r.Text, password) {
			t.Errorf("the model reads %s", r.Text)
		}
	}
	// Every column of every table, for every secret.
	columns := strings.Split(strings.TrimSpace(w.query(`SELECT table_name || ' ' || column_name FROM information_schema.columns
		WHERE table_schema = 'public' AND data_type IN ('text', 'jsonb', 'ARRAY', 'bytea', 'character varying') ORDER BY 1`)), "\n")
	var found []string
	for _, column := range columns {
		table, name, _ := strings.Cut(column, " ")
		for _, secret := range append(own, password, bearer) {
			if n := strings.TrimSpace(w.query(fmt.Sprintf(`SELECT count(*) FROM %q WHERE position($1 IN %q::text) > 0`, table, name), secret)); n != "0" && !slices.Contains(found, table+"."+name) {
				found = append(found, table+"."+name)
			}
		}
	}
	want := []string{
		"approvals.args",    // the bytes that were approved
		"deliveries.text",   // what the model answered
		"messages.calls",    // the model's history
		"messages.text",     // the model's history
		"tool_calls.args",   // the bytes that run
		"tool_calls.output", // what the model reads
		"tool_calls.raw",    // as the model wrote it
	}
	if !slices.Equal(found, want) {
		t.Errorf("secrets are in %v, want only %v", found, want)
	}
}
