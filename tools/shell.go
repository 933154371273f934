package tools

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/clawbot/clawbot/agent"
)

// Limits of one command.
const (
	maxCommand  = 120_000   // bytes; the kernel takes 128 KiB per argument
	keptOutput  = 256 << 10 // bytes of output that are kept, half head and half tail
	maxOutput   = 64 << 20  // bytes of output after which a command is stopped
	shellTmpDir = ".tmp"    // TMPDIR, within the workspace
)

func shell(cfg Config, dir string, ws workspace) (agent.Tool, error) {
	r, err := newRunner(cfg, dir, ws)
	if err != nil {
		return agent.Tool{}, err
	}
	confined := "It can write in the workspace only and has no network. "
	if r.spec.Sandbox == SandboxNone {
		confined = ""
	}
	return agent.Tool{
		Name: "shell",
		Description: "Run a command by /bin/sh -c in the workspace, without input. " + confined +
			"What it leaves in the background is ended with it. Long output is cut in the middle.",
		Schema: json.RawMessage(`{"type":"object","properties":{` +
			`"command":{"type":"string","minLength":1,"maxLength":120000},` +
			`"workdir":{"type":"string","description":"directory relative to the workspace, where it starts","maxLength":4096},` +
			`"timeout_s":{"type":"integer","description":"seconds until it is stopped; an admin's limit may be lower","minimum":1,"maximum":3600}` +
			`},"required":["command"],"additionalProperties":false}`),
		Owner:   Owner,
		Default: always(agent.Ask),
		Run: func(ctx context.Context, inv agent.Invocation) agent.Result {
			var args struct {
				Command  string
				Workdir  string
				TimeoutS int `json:"timeout_s"`
			}
			if err := json.Unmarshal(inv.Args, &args); err != nil {
				return agent.Failed("the arguments are no JSON object with a command")
			}
			timeout := cfg.Shell.Timeout
			if args.TimeoutS > 0 {
				timeout = min(timeout, time.Duration(args.TimeoutS)*time.Second)
			}
			return r.run(ctx, args.Command, args.Workdir, timeout)
		},
	}, nil
}

// runner runs commands in processes of their own: clawbot starts a supervisor,
// which is this program again (see SandboxMain), and the supervisor starts the
// command and ends whatever it leaves behind.
type runner struct {
	ws   workspace
	spec spec
	exe  string
}

func newRunner(cfg Config, dir string, ws workspace) (*runner, error) {
	if os.Getenv(sandboxMark) != "" {
		return nil, errors.New("the program does not call tools.SandboxMain first thing in main, so the shell cannot be enabled")
	}
	exe, err := selfExe()
	if err != nil {
		return nil, fmt.Errorf("find clawbot's own program for the shell: %w", err)
	}
	kind := cfg.Shell.Sandbox
	if kind != SandboxNone {
		status := SandboxStatus()
		if status.Sandbox == SandboxNone {
			return nil, fmt.Errorf("tools.shell.enabled is true, but there is no sandbox: %s; disable the shell, or set tools.shell.sandbox: none to let commands do whatever clawbot's user can", status.Reason)
		}
		kind = status.Sandbox
	}
	r := &runner{ws: ws, exe: exe, spec: spec{Workspace: dir, Sandbox: kind}}
	if kind != SandboxNone {
		if r.spec.Read, err = readable(cfg.Protected); err != nil {
			return nil, err
		}
		r.spec.UID, r.spec.GID, r.spec.Override = sandboxUser(dir)
		r.spec.Mounts = canMount(dir)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	if res := r.run(ctx, `cd "$HOME" && : >"$TMPDIR/.probe" && rm "$TMPDIR/.probe"`, "", 20*time.Second); !res.Success {
		return nil, fmt.Errorf("tools.shell.enabled is true, but a command cannot be run in %s with sandbox %s: %s", dir, kind, strings.TrimSpace(res.Error))
	}
	return r, nil
}

// readable are the system's directories without those that hold a protected
// path; without some of them no program would start.
func readable(protected []string) ([]string, error) {
	var list []string
	for _, d := range systemDirs() {
		holds := ""
		for _, p := range protected {
			if p == "" {
				continue
			}
			if inside, err := contains(d, p); err == nil && inside {
				holds = p
			}
		}
		switch {
		case holds == "":
			list = append(list, d)
		case slices.Contains([]string{"/usr", "/bin", "/lib", "/lib64"}, d):
			return nil, fmt.Errorf("%s lies below %s, which every command can read: move it elsewhere, or disable tools.shell", holds, d)
		}
	}
	return list, nil
}

func (r *runner) run(ctx context.Context, command, workdir string, timeout time.Duration) agent.Result {
	switch {
	case strings.ContainsRune(command, 0):
		return agent.Failed("the command holds a NUL character")
	case len(command) > maxCommand:
		return agent.Failed(fmt.Sprintf("the command has %d bytes, at most %d are allowed: write it to a file and run that", len(command), maxCommand))
	case strings.TrimSpace(workdir) == "":
		workdir = "."
	}
	dir, err := local(workdir)
	if err != nil {
		return agent.Failed(clean(err.Error()))
	}
	if err := r.ws.makeDirs(shellTmpDir); err != nil {
		return agent.Failed(explain("make", shellTmpDir, err))
	}
	// The open directory is handed down, so that swapping a link between here
	// and the start of the command changes nothing.
	at, err := r.ws.root.OpenFile(dir, os.O_RDONLY|syscall.O_DIRECTORY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return agent.Failed(explain("start in", workdir, err))
	}
	defer at.Close()

	out := &headTail{limit: keptOutput}
	s := r.spec
	s.Workdir = dir
	s.CPUSeconds = int(timeout/time.Second) + 5
	end, err := supervise(ctx, r.exe, s, r.environment(), command, at, out, timeout)
	if err != nil {
		return agent.Failed(clean("the command could not be run: " + err.Error()))
	}
	text := clean(out.String())
	notes := ""
	if end.Left > 0 {
		notes = fmt.Sprintf("\n[%d processes left in the background were ended]", end.Left)
	}
	switch {
	case end.Stopped != "":
		return agent.Failed(end.Stopped + "\n" + text + notes)
	case end.Signal != "":
		return agent.Failed("ended by signal: " + end.Signal + "\n" + text + notes)
	case end.Exit != 0:
		return agent.Failed(fmt.Sprintf("exit code %d\n%s%s", end.Exit, text, notes))
	}
	return agent.Succeeded("exit code 0\n" + text + notes)
}

// environment is all that a command knows of the outside: nothing of clawbot's
// own variables, which hold its secrets.
func (r *runner) environment() []string {
	return []string{
		"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
		"HOME=" + r.spec.Workspace,
		"TMPDIR=" + filepath.Join(r.spec.Workspace, shellTmpDir),
		"LANG=C.UTF-8",
	}
}

// headTail keeps the beginning and the end of what is written to it.
type headTail struct {
	limit int // bytes kept in all, even
	head  []byte
	tail  []byte // ring, once full
	next  int    // where the ring goes on
	total int64
}

func (h *headTail) Write(p []byte) (int, error) {
	n := len(p)
	h.total += int64(n)
	half := h.limit / 2
	if room := half - len(h.head); room > 0 {
		take := min(room, len(p))
		h.head = append(h.head, p[:take]...)
		p = p[take:]
	}
	if len(p) > half {
		p = p[len(p)-half:]
	}
	if room := half - len(h.tail); room > 0 {
		take := min(room, len(p))
		h.tail = append(h.tail, p[:take]...)
		p = p[take:]
	}
	for len(p) > 0 {
		took := copy(h.tail[h.next:], p)
		h.next = (h.next + took) % half
		p = p[took:]
	}
	return n, nil
}

func (h *headTail) String() string {
	missing := h.total - int64(len(h.head)+len(h.tail))
	tail := string(h.tail[h.next:]) + string(h.tail[:h.next])
	if missing == 0 {
		return string(h.head) + tail
	}
	return fmt.Sprintf("%s\n[… %d bytes left out …]\n%s", wholeRunes(h.head), missing, strings.TrimLeftFunc(tail, func(r rune) bool { return r == '\uFFFD' }))
}
