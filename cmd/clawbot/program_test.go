package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/clawbot/clawbot/channels/slack/slacktest"
	"github.com/clawbot/clawbot/model/modeltest"
	"github.com/clawbot/clawbot/store/pgtest"
)

// buildFlags are those of the tests, so that the program is checked for races too.
var buildFlags []string

// patience is how long anything may take before a test gives up. It is long,
// since tests share the machine with builds; no test waits for it to pass.
const patience = time.Minute

// TestMain runs more tests at once than there are processors: most of their time
// is waiting for other processes.
func TestMain(m *testing.M) {
	flag.Set("test.parallel", "6")
	status := m.Run()
	if path, err := binary(); err == nil {
		os.RemoveAll(filepath.Dir(path))
	}
	os.Exit(status)
}

// binary builds the program once for all tests.
var binary = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "clawbot-test-")
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, "clawbot")
	args := append([]string{"build", "-o", path}, buildFlags...)
	out, err := exec.Command("go", append(args, ".")...).CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("build the program: %w\n%s", err, out)
	}
	return path, nil
})

// world is everything around the program: a Slack, a model server, a database.
type world struct {
	t     *testing.T
	slack *slacktest.Server
	model *modeltest.Server
	db    string
	dir   string
	yaml  string
	env   []string
}

// newWorld makes a world; yaml is the settings file, or empty.
func newWorld(t *testing.T, yaml string, opts ...slacktest.Option) *world {
	t.Helper()
	opts = append([]slacktest.Option{slacktest.Strict(), slacktest.WithWaitTimeout(patience)}, opts...)
	w := &world{t: t, slack: slacktest.Start(t, opts...), model: modeltest.Start(t), db: pgtest.Empty(t), dir: t.TempDir(), yaml: yaml}
	config := filepath.Join(w.dir, "clawbot.yaml")
	if err := os.WriteFile(config, []byte(yaml), 0o600); err != nil {
		t.Fatal(err)
	}
	w.env = []string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + w.dir, "CLAWBOT_CONFIG=" + config, "CLAWBOT_DATA_DIR=" + filepath.Join(w.dir, "data"),
		"CLAWBOT_HTTP_ADDR=127.0.0.1:0", "DATABASE_URL=" + w.db, "CLAWBOT_LOG_LEVEL=debug",
		"CLAWBOT_MODEL=openai:test", "OPENAI_API_KEY=" + modeltest.Key, "OPENAI_BASE_URL=" + w.model.OpenAIBaseURL(),
		"SLACK_API_URL=" + w.slack.APIURL(), "SLACK_BOT_TOKEN=" + w.slack.BotToken, "SLACK_APP_TOKEN=" + w.slack.AppToken,
	}
	return w
}

// program is a running clawbot.
type program struct {
	t    *testing.T
	cmd  *exec.Cmd
	out  *lockedBuffer
	done chan struct{}
	err  error
	w    *world
}

// lockedBuffer collects output while others read it.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

func (w *world) command(args ...string) *exec.Cmd {
	w.t.Helper()
	path, err := binary()
	if err != nil {
		w.t.Fatal(err)
	}
	cmd := exec.Command(path, args...)
	cmd.Dir, cmd.Env = w.dir, w.env
	return cmd
}

// start runs the program until the test ends or stop or kill.
func (w *world) start(args ...string) *program {
	w.t.Helper()
	p := &program{t: w.t, cmd: w.command(args...), out: &lockedBuffer{}, done: make(chan struct{}), w: w}
	p.cmd.Stdout, p.cmd.Stderr = p.out, p.out
	if err := p.cmd.Start(); err != nil {
		w.t.Fatal(err)
	}
	go func() {
		p.err = p.cmd.Wait()
		close(p.done)
	}()
	w.t.Cleanup(func() {
		select {
		case <-p.done:
		default:
			p.stop()
		}
		if w.t.Failed() {
			w.t.Logf("output of the program:\n%s\n%s", p.out, w.slack.Render("C0001", ""))
		}
		for _, secret := range []string{modeltest.Key, w.slack.BotToken, w.slack.AppToken} {
			if strings.Contains(p.out.String(), secret) {
				w.t.Errorf("the output contains a secret")
			}
		}
	})
	return p
}

// serve starts the program and waits until Slack has a connection to it.
func (w *world) serve() *program {
	w.t.Helper()
	before := w.slack.Connections()
	p := w.start("serve")
	w.waitFor("the program is connected to Slack", func() bool { return w.slack.Connections() > before })
	return p
}

// stop ends the program as an operator does, and checks that it ends well.
func (p *program) stop() {
	p.t.Helper()
	p.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-p.done:
	case <-time.After(12 * time.Second):
		p.cmd.Process.Signal(syscall.SIGQUIT) // shows what it waits for
		<-p.done
		p.t.Errorf("the program did not end within 12 s of SIGTERM")
		return
	}
	if p.err != nil {
		p.t.Errorf("the program ended with %v", p.err)
	}
}

// kill ends the program as a power cut does.
func (p *program) kill() {
	p.t.Helper()
	before := p.w.slack.Connections()
	p.cmd.Process.Kill()
	<-p.done
	p.w.waitFor("Slack has noticed the end", func() bool { return before == 0 || p.w.slack.Connections() < before })
	// Its leases run out at once, so that no test has to wait for half a minute.
	owner := regexp.MustCompile(`clawbot started.* owner=(\S+)`).FindStringSubmatch(p.out.String())
	if owner == nil {
		return
	}
	for _, table := range []string{"sessions", "deliveries"} {
		p.w.exec(`UPDATE `+table+` SET leased_until = now() WHERE lease_owner = $1`, owner[1])
	}
}

// addr waits for the address that the program listens on.
func (p *program) addr(w *world) string {
	w.t.Helper()
	found := ""
	w.waitFor("the program says where it listens", func() bool {
		if m := regexp.MustCompile(`http listening"?.*"?addr"?[=:]"?([^"\s]+)`).FindStringSubmatch(p.out.String()); m != nil {
			found = m[1]
		}
		return found != ""
	})
	return found
}

// run runs a command to its end.
func (w *world) run(args ...string) (stdout, stderr string, status int) {
	w.t.Helper()
	return w.runWith(nil, args...)
}

func (w *world) runWith(stdin io.Reader, args ...string) (stdout, stderr string, status int) {
	w.t.Helper()
	cmd := w.command(args...)
	var out, errs bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = stdin, &out, &errs
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		w.t.Fatal(err)
	}
	return out.String(), errs.String(), cmd.ProcessState.ExitCode()
}

// must runs a command that has to succeed.
func (w *world) must(args ...string) string {
	w.t.Helper()
	out, errs, status := w.run(args...)
	if status != 0 {
		w.t.Fatalf("clawbot %s: status %d\n%s%s", strings.Join(args, " "), status, out, errs)
	}
	return out
}

// waitFor polls until ok; what happens outside has no other signal.
func (w *world) waitFor(what string, ok func() bool) {
	w.t.Helper()
	deadline := time.Now().Add(patience)
	for !ok() {
		if time.Now().After(deadline) {
			w.t.Fatalf("waited in vain until %s", what)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// query returns the rows of a statement as texts, one row a line.
func (w *world) query(sql string, args ...any) string {
	w.t.Helper()
	ctx := context.Background()
	conn, err := pgx.Connect(ctx, w.db)
	if err != nil {
		w.t.Fatal(err)
	}
	defer conn.Close(ctx)
	rows, err := conn.Query(ctx, sql, args...)
	if err != nil {
		w.t.Fatal(err)
	}
	var out strings.Builder
	for rows.Next() {
		values, err := rows.Values()
		if err != nil {
			w.t.Fatal(err)
		}
		for i, v := range values {
			if i > 0 {
				out.WriteByte(' ')
			}
			if v == nil {
				v = "-"
			}
			fmt.Fprint(&out, v)
		}
		out.WriteByte('\n')
	}
	if err := rows.Err(); err != nil {
		w.t.Fatal(err)
	}
	return out.String()
}

// exec runs a statement that returns nothing.
func (w *world) exec(sql string, args ...any) {
	w.t.Helper()
	if err := w.try(sql, args...); err != nil {
		w.t.Fatal(err)
	}
}

// try runs a statement that may be refused.
func (w *world) try(sql string, args ...any) error {
	w.t.Helper()
	ctx := context.Background()
	conn, err := pgx.Connect(ctx, w.db)
	if err != nil {
		w.t.Fatal(err)
	}
	defer conn.Close(ctx)
	_, err = conn.Exec(ctx, sql, args...)
	return err
}

// want compares the rows of a statement.
func (w *world) want(rows, sql string, args ...any) {
	w.t.Helper()
	if got := w.query(sql, args...); got != rows {
		w.t.Errorf("%s\n%swant\n%s", sql, got, rows)
	}
}

// eventually waits until a statement returns these rows.
func (w *world) eventually(rows, sql string, args ...any) {
	w.t.Helper()
	got := ""
	defer func() {
		if w.t.Failed() && got != rows {
			w.t.Logf("the rows are\n%s", got)
		}
	}()
	w.waitFor("the rows of "+sql+" are "+rows, func() bool { got = w.query(sql, args...); return got == rows })
}

// settled waits until every event is acknowledged, no message waits, no turn runs
// and nothing is left to send. Afterwards a test may look for what must not be.
func (w *world) settled() {
	w.t.Helper()
	w.slack.WaitIdle(w.t)
	w.eventually("0 0 0\n", `SELECT (SELECT count(*) FROM inbox WHERE turn_id IS NULL),
		(SELECT count(*) FROM turns WHERE status = 'running'), (SELECT count(*) FROM deliveries WHERE state = 'due')`)
}

// ask has Ana mention the bot in #general.
func (w *world) ask(text string) slacktest.Message {
	w.t.Helper()
	return w.slack.Say("C0001", "U0001", slacktest.Mention+" "+text)
}

// card waits for an open card in a thread of #general.
func (w *world) card(thread slacktest.Message) slacktest.Message {
	w.t.Helper()
	return w.slack.WaitMessage(w.t, thread.Channel, thread.Root(), func(m slacktest.Message) bool { return m.HasButton("Approve") })
}

// click clicks and fails the test if the click is not taken.
func (w *world) click(user string, card slacktest.Message, button string, how ...slacktest.How) {
	w.t.Helper()
	if err := w.slack.Click(user, card, button, how...); err != nil {
		w.t.Fatal(err)
	}
}

// form clicks a button and waits for the form that it opens.
func (w *world) form(user string, card slacktest.Message, button string) slacktest.View {
	w.t.Helper()
	opened := len(w.slack.Views())
	w.click(user, card, button)
	var form slacktest.View
	w.waitFor("a form for "+user, func() bool {
		for _, v := range w.slack.Views()[opened:] {
			if v.User == user && v.Open {
				form = v
				return true
			}
		}
		return false
	})
	return form
}

// deny clicks Deny and submits the form, with what is typed into its fields.
func (w *world) deny(user string, card slacktest.Message, fields map[string]string) {
	w.t.Helper()
	if _, err := w.slack.Submit(user, w.form(user, card, "Deny"), fields); err != nil {
		w.t.Fatal(err)
	}
}

// closed waits until a card shows text and has no buttons.
func (w *world) closed(card slacktest.Message, text string) slacktest.Message {
	w.t.Helper()
	return w.slack.WaitMessage(w.t, card.Channel, card.Root(), func(m slacktest.Message) bool {
		return m.TS == card.TS && len(m.Buttons) == 0 && strings.Contains(m.Shown, text)
	})
}

// said lists what the bot has said in a thread for all to see, cards left out.
func (w *world) said(thread slacktest.Message) []string {
	var out []string
	for _, m := range w.slack.Thread(thread.Channel, thread.Root()) {
		if m.FromBot() && m.EphemeralTo == "" && !strings.Contains(m.Shown, "SHA-256: ") {
			out = append(out, m.Shown)
		}
	}
	return out
}

// whispered waits until a person has been told something alone.
func (w *world) whispered(user, text string) {
	w.t.Helper()
	w.waitFor(user+" is told "+text, func() bool {
		return slices.ContainsFunc(w.slack.Ephemerals(user), func(m slacktest.Message) bool { return strings.Contains(m.Shown, text) })
	})
}

// get fetches a path of the program.
func (w *world) get(p *program, path string) (int, string) {
	w.t.Helper()
	res, err := http.Get("http://" + p.addr(w) + path)
	if err != nil {
		w.t.Fatal(err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		w.t.Fatal(err)
	}
	return res.StatusCode, string(body)
}
