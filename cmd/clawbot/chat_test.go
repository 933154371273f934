package main

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/clawbot/clawbot/model/modeltest"
)

// alone takes Slack and the database away: what somebody has who has just
// downloaded the program. model may be "demo".
func (w *world) alone(model string) {
	// As root, Postgres runs as another user, who must be able to get there.
	for _, dir := range []string{w.dir, filepath.Dir(w.dir)} {
		if err := os.Chmod(dir, 0o755); err != nil {
			w.t.Fatal(err)
		}
	}
	w.env = []string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + w.dir, "CLAWBOT_DATA_DIR=" + filepath.Join(w.dir, "data"), "CLAWBOT_HTTP_ADDR=127.0.0.1:0",
		"CLAWBOT_MODEL=" + model, "OPENAI_API_KEY=" + modeltest.Key, "OPENAI_BASE_URL=" + w.model.OpenAIBaseURL(),
	}
}

// withDatabase gives a world that is alone the test's database, which is there
// faster than an embedded one.
func (w *world) withDatabase() { w.env = append(w.env, "DATABASE_URL="+w.db) }

// chat is a running `clawbot chat` that a test types into.
type chat struct {
	*program
	in io.WriteCloser
}

func (w *world) chat(args ...string) *chat {
	w.t.Helper()
	p := &program{t: w.t, cmd: w.command(append([]string{"chat"}, args...)...), out: &lockedBuffer{}, done: make(chan struct{}), w: w}
	in, err := p.cmd.StdinPipe()
	if err != nil {
		w.t.Fatal(err)
	}
	p.cmd.Stdout, p.cmd.Stderr = p.out, p.out
	if err := p.cmd.Start(); err != nil {
		w.t.Fatal(err)
	}
	go func() {
		p.err = p.cmd.Wait()
		close(p.done)
	}()
	w.t.Cleanup(func() {
		p.cmd.Process.Kill()
		<-p.done
		if w.t.Failed() {
			w.t.Logf("the chat:\n%s", p.out)
		}
	})
	return &chat{program: p, in: in}
}

func (c *chat) say(line string) {
	c.t.Helper()
	if _, err := io.WriteString(c.in, line+"\n"); err != nil {
		c.t.Fatal(err)
	}
}

// reads waits until the chat has written a text n times.
func (c *chat) reads(text string, n int) {
	c.t.Helper()
	c.w.waitFor(fmt.Sprintf("the chat writes %q %d times", text, n), func() bool { return strings.Count(c.out.String(), text) >= n })
}

// end closes the input and waits for the end.
func (c *chat) end() int {
	c.t.Helper()
	c.in.Close()
	select {
	case <-c.done:
	case <-time.After(patience):
		c.t.Fatal("the chat does not end")
	}
	return c.cmd.ProcessState.ExitCode()
}

// The story of the README, with nothing but the program: ask, consent, look at
// the audit.
func TestReadmeStory(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "")
	w.alone("demo")
	out, errs, status := w.runWith(strings.NewReader("write hello to notes.txt\ny\n"), "chat")
	if status != 0 {
		t.Fatalf("status %d\n%s%s", status, out, errs)
	}
	for _, part := range []string{"Approval needed: write_file", "notes.txt", "? [y]es, [n]o, [a]lways, [i]nstead, [d]etails", "approved by", "ran and succeeded"} {
		if !strings.Contains(out, part) {
			t.Errorf("the chat lacks %q:\n%s", part, out)
		}
	}
	if got := w.wroteFile("notes.txt"); got != "hello" {
		t.Errorf("notes.txt holds %q", got)
	}
	list := w.must("audit", "list")
	for _, kind := range []string{"policy_decision", "approval_requested", "approval_vote", "approval_decided", "tool_started", "tool_finished"} {
		if !strings.Contains(list, kind) {
			t.Errorf("audit list lacks %s:\n%s", kind, list)
		}
	}
	w.must("audit", "verify")
	// Killed with a question open, and asked again: what is in the database stays,
	// the private Postgres comes back.
	c := w.chat()
	c.say("write bye to bye.txt")
	c.reads("? [y]es", 1)
	c.cmd.Process.Kill()
	<-c.done
	c = w.chat()
	c.reads("? [y]es", 1)
	c.say("y")
	c.reads("ran and succeeded", 1)
	if status := c.end(); status != 0 {
		t.Errorf("status %d", status)
	}
	if got := w.wroteFile("bye.txt"); got != "bye" {
		t.Errorf("bye.txt holds %q", got)
	}
}

// The end of the input is no consent, and neither is anything but a yes.
//
// Rows: L63.
func TestChatAnswers(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		input   []string
		outcome string
		shows   string
	}{
		"yes":                {[]string{"y"}, "succeeded", "approved by"},
		"YES":                {[]string{"YES"}, "succeeded", "approved by"},
		"no":                 {[]string{"n"}, "denied", "denied by"},
		"no with a reason":   {[]string{"no not on a Friday"}, "denied", "not on a Friday"},
		"end of input":       {nil, "cancelled", "not approved"},
		"exit":               {[]string{"exit"}, "cancelled", "not approved"},
		"details, then yes":  {[]string{"d", "y"}, "succeeded", `"content": "x"`},
		"not an answer":      {[]string{"sure, go ahead"}, "cancelled", "nothing was decided"},
		"always":             {[]string{"a"}, "succeeded", "approved by"},
		"edit is not built":  {[]string{"e", "n"}, "denied", "not available"},
		"answer instead":     {[]string{"i use b.txt"}, "replaced", "use b.txt"},
		"instead of nothing": {[]string{"i", "n"}, "denied", "it is empty"},
		"blank":              {[]string{"", "  ", "n"}, "denied", "denied by"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, "")
			w.alone("openai:test")
			w.withDatabase()
			w.model.Reply(modeltest.Call("write_file", `{"path":"a.txt","content":"x"}`), modeltest.Text("That is that."))
			input := strings.Join(append([]string{"write it"}, c.input...), "\n")
			out, errs, status := w.runWith(strings.NewReader(input), "chat")
			if status != 0 || !strings.Contains(out, c.shows) || !strings.Contains(out, "That is that.") {
				t.Errorf("status %d, want %q shown:\n%s%s", status, c.shows, out, errs)
			}
			w.want(c.outcome+"\n", `SELECT outcome FROM tool_calls`)
			if got := w.wroteFile("a.txt"); (got == "x") != (c.outcome == "succeeded") {
				t.Errorf("a.txt holds %q", got)
			}
		})
	}
}

// A rule wants a value: what is typed goes into the call, and a word that is an
// answer stays one unless it is marked as the value.
//
// Rows: L47, L48, L63.
func TestChatAsksForAValue(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		input          []string
		outcome, wrote string
		shows          string
	}{
		"value":               {[]string{"the second word"}, "succeeded", "the second word", "What shall it say?"},
		"no":                  {[]string{"n"}, "denied", "", "denied by"},
		"n as the value":      {[]string{"= n"}, "succeeded", "n", "approved by"},
		"details, then value": {[]string{"d", "x"}, "succeeded", "x", `"path": "a.txt"`},
		"yes is a value":      {[]string{"yes"}, "succeeded", "yes", "approved by"},
		"end of input":        {nil, "cancelled", "", "not approved"},
		"answer instead":      {[]string{"i never mind"}, "replaced", "", "never mind"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, `
approval:
  approvers: { local: true }
  rules:
    - { name: words, tools: [write_file], action: ask_input, target_arg: content, prompt: "What shall it say?" }
`)
			settings := w.env
			w.alone("openai:test")
			w.withDatabase()
			for _, v := range settings {
				if strings.HasPrefix(v, "CLAWBOT_CONFIG=") {
					w.env = append(w.env, v)
				}
			}
			w.model.Reply(modeltest.Call("write_file", `{"path":"a.txt"}`), modeltest.Text("That is that."))
			out, errs, status := w.runWith(strings.NewReader(strings.Join(append([]string{"write it"}, c.input...), "\n")), "chat")
			if status != 0 || !strings.Contains(out, c.shows) || !strings.Contains(out, "That is that.") {
				t.Errorf("status %d, want %q shown:\n%s%s", status, c.shows, out, errs)
			}
			w.want(c.outcome+"\n", `SELECT outcome FROM tool_calls`)
			if got := w.wroteFile("a.txt"); got != c.wrote {
				t.Errorf("a.txt holds %q, want %q", got, c.wrote)
			}
		})
	}
}

// Several messages from a pipe are several turns, in order; what is not stored by
// then is not lost; odd bytes do no harm.
func TestChatTakesManyLines(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "")
	w.alone("openai:test")
	w.withDatabase()
	w.model.Default(modeltest.Echo)
	lines := []string{"one", "two", "y", "", "three \x00 \xff\xfe \x1b[2J", strings.Repeat("long ", 5_000), "five <!channel> \u202e", "\r", "six\r"}
	out, errs, status := w.runWith(strings.NewReader(strings.Join(lines, "\n")+"\n"), "chat", "--session", "pipe")
	if status != 0 {
		t.Fatalf("status %d\n%.2000s%s", status, out, errs)
	}
	last := -1
	for _, text := range []string{"one", "two", "No question is open", "three", "long long", "five", "six"} {
		at := strings.Index(out, text)
		if at <= last {
			t.Errorf("%q is missing or out of place", text)
		}
		last = at
	}
	if strings.ContainsAny(out, "\x00\x1b\u202e") {
		t.Error("control characters reach the terminal")
	}
	w.want("6\n", `SELECT count(*) FROM turns WHERE status = 'done'`)
	// A later chat of that name goes on there; another name does not.
	w.runWith(strings.NewReader("seven\n"), "chat", "--session", "pipe")
	w.runWith(strings.NewReader("eight\n"), "chat", "--session", "other")
	requests := w.model.Requests()
	if n := strings.Count(requests[len(requests)-2].String(), "user:"); n != 7 {
		t.Errorf("the seventh message comes after %d", n-1)
	}
	if n := strings.Count(requests[len(requests)-1].String(), "user:"); n != 1 {
		t.Error("another session sees the first one's messages")
	}
}

// A line that is too long ends the reading with a word about it, not in silence.
func TestChatRefusesAnEndlessLine(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "")
	w.alone("openai:test")
	w.withDatabase()
	w.model.Default(modeltest.Echo)
	out, errs, status := w.runWith(io.MultiReader(strings.NewReader("hello\n"), strings.NewReader(strings.Repeat("x", 5<<20))), "chat")
	if status != 1 || !strings.Contains(out, "hello") || !strings.Contains(errs, "a line is longer than") {
		t.Errorf("status %d\n%.500s%.500s", status, out, errs)
	}
}

// Two programs do not share a data directory: the second says so in one line.
func TestOneProgramPerDataDirectory(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "")
	w.alone("openai:test")
	w.model.Default(modeltest.Echo)
	first := w.chat()
	first.say("hello")
	first.reads("hello", 1)
	for _, command := range []string{"chat", "serve"} {
		out, errs, status := w.run(command)
		if status != 1 || strings.Count(strings.TrimSpace(out+errs), "\n") != 0 || !strings.HasPrefix(errs, "clawbot: ") {
			t.Errorf("%s: status %d\n%s%s", command, status, out, errs)
		}
	}
	w.must("audit", "list") // asking is possible meanwhile
	if status := first.end(); status != 0 {
		t.Errorf("status %d", status)
	}
	w.must("sessions", "list") // and afterwards
	// The same with a database for all.
	w.withDatabase()
	first = w.chat()
	first.say("hello")
	first.reads("hello", 1)
	out, errs, status := w.run("chat")
	if status != 1 || !strings.Contains(errs, "another `clawbot chat`") {
		t.Errorf("status %d\n%s%s", status, out, errs)
	}
	first.end()
}

// SIGINT and SIGTERM end a chat well; a question that was open stays open and is
// asked again.
func TestChatIsInterrupted(t *testing.T) {
	t.Parallel()
	for _, sig := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM} {
		t.Run(sig.String(), func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, "")
			w.alone("openai:test")
			w.withDatabase()
			w.model.Reply(modeltest.Call("write_file", `{"path":"a.txt","content":"x"}`), modeltest.Text("Written."))
			c := w.chat()
			c.say("write it")
			c.reads("? [y]es", 1)
			c.cmd.Process.Signal(sig)
			select {
			case <-c.done:
			case <-time.After(12 * time.Second):
				t.Fatal("the chat does not end")
			}
			if c.err != nil {
				t.Errorf("it ended with %v", c.err)
			}
			c = w.chat()
			c.reads("? [y]es", 1)
			if !strings.Contains(c.out.String(), "Approval needed: write_file") {
				t.Errorf("the question is asked without its card:\n%s", c.out)
			}
			c.say("y")
			c.reads("Written.", 1)
			c.end()
		})
	}
}

// At a terminal there is a greeting and a prompt, Ctrl-D leaves.
func TestChatAtATerminal(t *testing.T) {
	t.Parallel()
	script, err := exec.LookPath("script")
	if err != nil {
		t.Fatal("script(1) is needed; install util-linux")
	}
	w := newWorld(t, "")
	w.alone("demo")
	w.withDatabase()
	path, err := binary()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(script, "-qec", path+" chat", "/dev/null")
	cmd.Dir, cmd.Env = w.dir, append(w.env, "TERM=xterm")
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	timer := time.AfterFunc(patience, func() { cmd.Process.Kill() })
	defer timer.Stop()
	r, seen := bufio.NewReader(stdout), ""
	until := func(text string) {
		t.Helper()
		for !strings.Contains(seen, text) {
			b, err := r.ReadByte()
			if err != nil {
				t.Fatalf("waited for %q: %v\n%s", text, err, seen)
			}
			seen += string(b)
		}
		_, seen, _ = strings.Cut(seen, text)
	}
	until("model demo")
	until("\n> ")
	io.WriteString(in, "write hello to notes.txt\r")
	until("? [y]es, [n]o, [a]lways, [i]nstead, [d]etails: ")
	io.WriteString(in, "y\r")
	until("ran and succeeded")
	until("\n> ")
	io.WriteString(in, "\x04")
	io.Copy(io.Discard, r)
	if err := cmd.Wait(); err != nil {
		t.Errorf("it ended with %v", err)
	}
	if got := w.wroteFile("notes.txt"); got != "hello" {
		t.Errorf("notes.txt holds %q", got)
	}
}
