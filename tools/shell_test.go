package tools

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	SandboxMain()
	if dir := os.Getenv("TOOLS_TEST_CRASH"); dir != "" {
		crashing(dir)
	}
	goleak.VerifyTestMain(m)
}

const secretEnv = "CANARY-in-the-environment"

// lacking skips a test that this machine cannot run. In CI that is a failure: a
// test that did not run must not look like one that passed.
func lacking(t *testing.T, why string) {
	t.Helper()
	if os.Getenv("CI") != "" {
		t.Fatal(why)
	}
	t.Skip(why)
}

// shellBench is a workspace with the shell enabled, beside a secret.
func shellBench(t *testing.T, sandbox string) *bench {
	t.Helper()
	if sandbox != SandboxNone && SandboxStatus().Sandbox == SandboxNone {
		lacking(t, SandboxStatus().Reason)
	}
	t.Setenv("OPENAI_API_KEY", secretEnv)
	b := newBench(t)
	c := DefaultConfig()
	c.Workspace = b.dir
	c.Shell = Shell{Enabled: true, Sandbox: sandbox, Timeout: 20 * time.Second}
	c.Protected = []string{filepath.Dir(b.secret)}
	list, err := Builtin(c, Deps{})
	if err != nil {
		t.Fatal(err)
	}
	b.tools = byName(list)
	return b
}

func (b *bench) sh(command string) string {
	b.t.Helper()
	res := b.run("shell", map[string]any{"command": command})
	return res.Output + res.Error
}

// expect runs a command and wants a text in its result.
func (b *bench) expect(command, want string) {
	b.t.Helper()
	if got := b.sh(command); !strings.Contains(got, want) {
		b.t.Errorf("%s: %q, want %q", command, short(got, 600), want)
	}
}

func eachSandbox(t *testing.T, f func(t *testing.T, b *bench)) {
	for _, sandbox := range []string{SandboxNone, SandboxAuto} {
		t.Run(sandbox, func(t *testing.T) { f(t, shellBench(t, sandbox)) })
	}
}

func TestShell(t *testing.T) {
	eachSandbox(t, func(t *testing.T, b *bench) {
		b.put("sub/x", "in sub")
		b.run("write_file", map[string]any{"path": "d/both", "content": "1"})
		for command, want := range map[string]string{
			"echo hello; echo oops >&2":              "exit code 0\nhello\noops\n",
			"exit 3":                                 "exit code 3\n",
			"kill -9 $$":                             "ended by signal: killed",
			"cat sub/x; pwd":                         "in sub" + b.dir,
			"cat":                                    "exit code 0\n", // no input
			"no-such-program":                        "exit code 127\n",
			`printf 'a\000b\377c'`:                   "a\uFFFDb\uFFFDc",
			"echo one >f && mv f sub/g && cat sub/g": "one",
			"mktemp >/dev/null && echo tmp":          "tmp",
			"chmod +x d/both && ls -l d/both":        "-rwx",
			"cat < /dev/null && echo null":           "null",
			"seq 3 | sort -r | tee out | head -n1":   "3",
			"mkfifo p; (echo through > p) & cat p":   "through",
			"echo 'echo nested' > s.sh; sh s.sh":     "nested",
		} {
			b.expect(command, want)
		}
		res := b.run("shell", map[string]any{"command": "cat x", "workdir": "sub"})
		if !res.Success || !strings.HasSuffix(res.Output, "in sub") {
			t.Errorf("workdir: %+v", res)
		}
		for _, dir := range []string{"..", "/", "missing", "sub/x", "sub/../.."} {
			if res := b.run("shell", map[string]any{"command": "pwd", "workdir": dir}); res.Success {
				t.Errorf("workdir %s: %+v", dir, res)
			}
		}
		os.Symlink("/", filepath.Join(b.dir, "root"))
		if res := b.run("shell", map[string]any{"command": "pwd", "workdir": "root"}); res.Success {
			t.Errorf("workdir by a link: %+v", res)
		}
		if res := b.run("shell", map[string]any{"command": strings.Repeat("x", maxCommand+1)}); res.Success {
			t.Error("too long")
		}
		// What a file tool wrote a command can change, and the other way round.
		b.expect("echo 2 >> d/both && cat d/both", "12")
		if res := b.run("write_file", map[string]any{"path": "sub/g", "content": "mine"}); !res.Success {
			t.Errorf("%+v", res)
		}
	})
}

// T14: a command sees nothing of clawbot's environment, and no open file.
func TestT14NothingIsInherited(t *testing.T) {
	secret, err := os.Open(newBench(t).secret)
	if err != nil {
		t.Fatal(err)
	}
	defer secret.Close()
	eachSandbox(t, func(t *testing.T, b *bench) {
		got := b.sh("env; cat /proc/self/environ /proc/$PPID/environ 2>&1; set; for f in 3 4 5 6 7 8 9; do (eval \"cat <&$f\") 2>/dev/null; done")
		if strings.Contains(got, secretEnv) || strings.Contains(got, canary) {
			t.Errorf("leaked: %s", got)
		}
		names := b.sh("env | cut -d= -f1 | sort | tr '\\n' ' '")
		for _, n := range strings.Fields(strings.TrimPrefix(names, "exit code 0\n")) {
			switch n {
			case "HOME", "LANG", "PATH", "PWD", "TMPDIR", "OLDPWD", "SHLVL", "_":
			default:
				t.Errorf("environment has %s", n)
			}
		}
	})
}

// What the sandbox keeps a command from: T9 (nothing outside the root), T17
// (no requests of its own), and the class "configuration is code".
func TestT9SandboxHolds(t *testing.T) {
	b := shellBench(t, SandboxAuto)
	outside := filepath.Dir(b.secret)
	os.Chmod(filepath.Dir(filepath.Dir(outside)), 0o777)
	os.Chmod(filepath.Dir(outside), 0o777) // so that it is the sandbox that refuses
	os.Chmod(outside, 0o777)
	os.Chmod(b.secret, 0o666)
	os.Symlink(b.secret, filepath.Join(b.dir, "link"))
	os.Symlink(outside, filepath.Join(b.dir, "dir"))
	tcp, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer tcp.Close()
	unixSocket := filepath.Join(b.dir, "sock")
	un, err := net.Listen("unix", unixSocket)
	if err != nil {
		t.Fatal(err)
	}
	defer un.Close()
	os.Chmod(unixSocket, 0o777)
	_, port, _ := net.SplitHostPort(tcp.Addr().String())

	for _, command := range []string{
		"cat " + b.secret, "cat link", "cat dir/secret", "cat ../outside/secret", "ls " + outside, "ls dir",
		"echo x > " + b.secret, "echo x > link", "echo x >> dir/secret", "echo x > dir/new", "touch ../new", "mkdir ../new",
		"rm " + b.secret, "mv " + b.secret + " mine", "ln " + b.secret + " hard && cat hard", "truncate -s0 " + b.secret, "mv link ../outside/l2",
		"echo x > /tmp/clawbot-sandbox-test", "ls /root", "ls /home", "ls /var", "ls /", "ls /proc", "cat /etc/shadow", "cat /proc/1/environ",
		"echo x > /usr/clawbot-sandbox-test", "cat /proc/$PPID/maps", "cat /proc/kcore", "mknod dev c 1 5", "cat < dir/secret",
		"exec 9<" + b.secret + "; cat <&9", "kill -9 " + strconv.Itoa(os.Getpid()), "cp /bin/true ../t", "chroot . /bin/true", "mount -t tmpfs x .tmp",
		"unshare -r true", "cat /dev/sda", "echo x > /dev/kmsg", "cd / && cat ." + b.secret,
	} {
		res := b.run("shell", map[string]any{"command": command})
		if res.Success || strings.Contains(res.Output+res.Error, canary) {
			t.Errorf("%s: %+v", command, res)
		}
	}
	if canMount(b.dir) {
		for _, command := range []string{"chmod 000 " + b.secret, "chown 1 " + b.secret, "touch " + b.secret, "chmod 700 ../outside", "cd " + outside + " && chmod 1 secret",
			"cd dir && touch secret", "chmod 700 ..", "chmod 1 /proc/self/cwd/../outside", "chmod 000 $PWD/../outside/secret"} {
			if res := b.run("shell", map[string]any{"command": command}); res.Success {
				t.Errorf("%s: %+v", command, res)
			}
		}
	}
	if os.Geteuid() == 0 {
		b.expect("id -u", strconv.Itoa(nobody))
	}
	b.expect("cat /etc/passwd | head -n1", "root:")
	b.expect("grep NoNewPrivs /proc/version; ls /usr >/dev/null && echo usr", "usr")

	// Sockets of every kind, in the languages at hand.
	python, _ := os.Stat("/usr/bin/python3")
	if python != nil {
		b.expect("/usr/bin/python3 -c 'print(6*7)'", "42")
		for _, code := range []string{
			"s=socket.socket();s.connect(('127.0.0.1'," + port + "))",
			"socket.socket(socket.AF_INET,socket.SOCK_DGRAM).sendto(b'x',('127.0.0.1',53))",
			"socket.socket(socket.AF_INET6,socket.SOCK_DGRAM).sendto(b'x',('::1',53))",
			"socket.socket(socket.AF_INET,socket.SOCK_STREAM,262).connect(('127.0.0.1'," + port + "))", // MPTCP
			"socket.socket(socket.AF_UNIX).connect('sock')",
			"socket.socket(socket.AF_UNIX).connect('\\0abstract')",
			"socket.socket(socket.AF_NETLINK,socket.SOCK_RAW)",
			"socket.socket(socket.AF_VSOCK)",
		} {
			got := b.sh("/usr/bin/python3 -c \"import socket\ntry:\n " + code + "\n print('CONNECTED')\nexcept PermissionError: print('refused')\"")
			if !strings.Contains(got, "refused") {
				t.Errorf("%s: %s", code, got)
			}
		}
		b.expect("/usr/bin/python3 -c \"import socket; a,b=socket.socketpair(); a.send(b'pair'); print(b.recv(9))\"", "pair")
	}
	b.expect("(echo >/dev/tcp/127.0.0.1/"+port+") 2>&1 || echo refused; bash -c 'echo > /dev/tcp/127.0.0.1/"+port+"' && echo CONNECTED", "refused")
	if strings.Contains(b.sh("bash -c 'echo > /dev/tcp/127.0.0.1/"+port+"' && echo CONNECTED"), "CONNECTED\n") {
		t.Error("connected")
	}
	if got, _ := os.ReadFile(b.secret); string(got) != canary {
		t.Errorf("the file outside holds %q", got)
	}
	if info, _ := os.Stat(b.secret); info.Mode().Perm() != 0o666 {
		t.Errorf("mode outside is %v", info.Mode())
	}
	if entries, _ := os.ReadDir(outside); len(entries) != 1 {
		t.Errorf("outside: %v", entries)
	}
}

// alive reports whether a process with that command line is there.
func alive(t *testing.T, word string) bool {
	t.Helper()
	if runtime.GOOS != "linux" {
		lacking(t, "needs /proc")
	}
	list, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, p := range list {
		data, _ := os.ReadFile(p)
		if line := strings.ReplaceAll(string(data), "\x00", " "); strings.HasPrefix(line, "sleep") && strings.Contains(line, word) {
			return true
		}
	}
	return false
}

// T16: nothing that a command started outlives it, in whatever way it ended.
// Landlock does not keep a process from setting the limits of another one of its
// user, such as clawbot: no more processor time means its end.
func TestT16LimitsOfOthers(t *testing.T) {
	b := shellBench(t, SandboxAuto)
	if _, err := exec.LookPath("prlimit"); err != nil {
		lacking(t, "there is no prlimit here")
	}
	b.expect("sleep 5 & prlimit --pid $! --cpu=1:1; kill $!", "Operation not permitted")
	b.expect("ulimit -n 100 && ulimit -n", "exit code 0\n100")
}

func TestT16NothingStaysBehind(t *testing.T) {
	eachSandbox(t, func(t *testing.T, b *bench) {
		word := func(i int) string { return fmt.Sprintf("%d%d%d", 1000000+os.Getpid(), i, len(t.Name())) }
		leave := func(w string) string {
			return "sleep " + w + " & nohup sleep " + w + " >/dev/null 2>&1 & setsid sleep " + w + " & (setsid sh -c 'sleep " + w + " & sleep " + w + "' &) "
		}
		w := word(1)
		res := b.run("shell", map[string]any{"command": leave(w) + "; sleep 0.2; echo done"})
		if !res.Success || !strings.Contains(res.Output, "done") || !strings.Contains(res.Output, "left in the background were ended") {
			t.Errorf("%+v", res)
		}
		if alive(t, w) {
			t.Error("alive after the command ended")
		}

		w = word(2)
		began := time.Now()
		res = b.run("shell", map[string]any{"command": "trap '' TERM INT HUP; " + leave(w) + "; echo begun; sleep " + w, "timeout_s": 1})
		if res.Success || !strings.Contains(res.Error, "stopped after 1s, the time limit") || !strings.Contains(res.Error, "begun") {
			t.Errorf("%+v", res)
		}
		if d := time.Since(began); d > 10*time.Second {
			t.Errorf("took %v", d)
		}
		if alive(t, w) {
			t.Error("alive after the time limit")
		}

		w = word(3)
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(500*time.Millisecond, cancel)
		res = b.tools["shell"].Run(ctx, invocation(`{"command":"`+leave(w)+`; sleep `+w+`"}`))
		if res.Success || !strings.Contains(res.Error, "cancelled") {
			t.Errorf("%+v", res)
		}
		if alive(t, w) {
			t.Error("alive after the call was cancelled")
		}
	})
}

// crashing is a clawbot that runs a command and is killed meanwhile.
func crashing(dir string) {
	c := DefaultConfig()
	c.Workspace = dir
	c.Shell = Shell{Enabled: true, Sandbox: os.Getenv("TOOLS_TEST_SANDBOX"), Timeout: time.Minute}
	list, err := Builtin(c, Deps{})
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	byName(list)["shell"].Run(context.Background(), invocation(`{"command":"touch begun; setsid sleep `+os.Getenv("TOOLS_TEST_WORD")+`"}`))
	os.Exit(0)
}

// T16: a command does not outlive a clawbot that was killed.
func TestT16CrashEndsCommands(t *testing.T) {
	eachSandbox(t, func(t *testing.T, b *bench) {
		w := fmt.Sprintf("3%d%d", os.Getpid(), len(t.Name()))
		cmd := exec.Command("/proc/self/exe")
		cmd.Env = append(os.Environ(), "TOOLS_TEST_CRASH="+b.dir, "TOOLS_TEST_WORD="+w, "TOOLS_TEST_SANDBOX="+filepath.Base(t.Name()))
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		wait := func(what string, ok func() bool) {
			t.Helper()
			for range 500 {
				if ok() {
					return
				}
				time.Sleep(20 * time.Millisecond)
			}
			t.Errorf("never: %s", what)
		}
		wait("the command begins", func() bool { _, err := os.Stat(filepath.Join(b.dir, "begun")); return err == nil && alive(t, w) })
		cmd.Process.Kill()
		cmd.Wait()
		wait("the command is gone", func() bool { return !alive(t, w) })
	})
}

// Without SandboxMain in main, clawbot would start itself for each command.
func TestSandboxMainIsMissed(t *testing.T) {
	t.Setenv(sandboxMark, "1")
	c := DefaultConfig()
	c.Workspace = t.TempDir()
	c.Shell.Enabled = true
	if _, err := Builtin(c, Deps{}); err == nil || !strings.Contains(err.Error(), "SandboxMain") {
		t.Errorf("%v", err)
	}
}

// Keys below a system directory are as unreadable as elsewhere.
func TestProtectedPathsAreNotReadable(t *testing.T) {
	if runtime.GOOS != "linux" {
		lacking(t, "no system directories")
	}
	list, err := readable([]string{"/opt/clawbot/data", "/etc/ssl/certs/clawbot.key", ""})
	if err != nil || slices.Contains(list, "/opt") || slices.Contains(list, "/etc/ssl/certs") || !slices.Contains(list, "/usr") {
		t.Errorf("%v, %v", list, err)
	}
	if _, err := readable([]string{"/usr/local/share/clawbot"}); err == nil || !strings.Contains(err.Error(), "move it elsewhere") {
		t.Errorf("%v", err)
	}
	for _, p := range list {
		for _, secret := range []string{"/etc", "/etc/ssl", "/etc/pki", "/root", "/home", "/var", "/proc", "/sys", "/run", "/dev", "/tmp", "/"} {
			if p == secret {
				t.Errorf("%s is readable as a whole", p)
			}
		}
	}
}

// A root's clawbot runs commands as the workspace's owner.
func TestRootGivesUpRoot(t *testing.T) {
	if os.Geteuid() != 0 || SandboxStatus().Sandbox == SandboxNone {
		lacking(t, "needs root and a sandbox")
	}
	for _, tc := range []struct {
		uid      int
		mode     os.FileMode // of the directory above
		override bool
	}{{0, 0o755, true}, {12345, 0o755, false}, {12345, 0o700, true}} {
		b := newBench(t)
		base := filepath.Dir(b.dir)
		os.Chown(b.dir, tc.uid, tc.uid)
		os.Chmod(base, tc.mode)
		os.Chmod(filepath.Dir(base), 0o755)
		want := tc.uid
		if want == 0 {
			want = nobody
		}
		if uid, gid, override := sandboxUser(b.dir); uid != want || gid != want || override != tc.override {
			t.Errorf("%+v: %d, %d, %v", tc, uid, gid, override)
		}
		c := DefaultConfig()
		c.Workspace = b.dir
		c.Shell.Enabled = true
		list, err := Builtin(c, Deps{})
		if err != nil {
			t.Fatal(err)
		}
		b.tools = byName(list)
		b.expect("id -u; id -g; id -G", fmt.Sprintf("%d\n%d\n%d\n", want, want, want))
		b.run("write_file", map[string]any{"path": "new/x", "content": "x"})
		b.expect("echo more >> new/x && chmod 600 new/x && touch new/y && echo fine", "fine")
		if res := b.run("read_file", map[string]any{"path": "new/x"}); res.Output != "xmore\n" {
			t.Errorf("%+v", res)
		}
		if res := b.run("shell", map[string]any{"command": "cat " + b.secret + " /etc/shadow"}); strings.Contains(res.Error, canary) || strings.Contains(res.Error, ":0:99999") {
			t.Errorf("%+v", res)
		}
	}
}

// T16: a fork bomb is bounded in number and ended whole.
func TestT16ForkBomb(t *testing.T) {
	b := shellBench(t, SandboxAuto)
	w := fmt.Sprintf("%d9", 2000000+os.Getpid())
	res := b.run("shell", map[string]any{"command": `i=0; while [ $i -lt 2000 ]; do sleep ` + w + ` & i=$((i+1)); done; echo all`, "timeout_s": 4})
	if res.Success || strings.Contains(res.Output, "all") {
		t.Errorf("2000 processes were started: %s", short(res.Output+res.Error, 300))
	}
	if alive(t, w) {
		t.Error("alive afterwards")
	}
	// One that multiplies while it is being ended.
	res = b.run("shell", map[string]any{"command": `f() { f | f & }; f; sleep 2; sleep 60`, "timeout_s": 2})
	if res.Success {
		t.Errorf("%+v", res)
	}
	time.Sleep(100 * time.Millisecond)
	if n := processesOf(nobody); os.Geteuid() == 0 && n > 0 {
		t.Errorf("%d processes left", n)
	}
}

func processesOf(uid int) (n int) {
	list, _ := filepath.Glob("/proc/[0-9]*")
	for _, p := range list {
		if info, err := os.Stat(p); err == nil {
			if st, ok := info.Sys().(*syscall.Stat_t); ok && int(st.Uid) == uid {
				n++
			}
		}
	}
	return n
}

// T16: large output costs time, not memory, and endless output ends.
func TestT16Output(t *testing.T) {
	eachSandbox(t, func(t *testing.T, b *bench) {
		res := b.run("shell", map[string]any{"command": "echo first; head -c 10000000 /dev/zero | tr '\\0' x; echo; echo last"})
		if !res.Success || !strings.HasPrefix(res.Output, "exit code 0\nfirst\nxxx") || !strings.HasSuffix(res.Output, "x\nlast\n") ||
			!strings.Contains(res.Output, "bytes left out") || len(res.Output) > keptOutput+1000 {
			t.Errorf("%d bytes: %s … %s", len(res.Output), short(res.Output, 50), res.Error)
		}
		res = b.run("shell", map[string]any{"command": "yes é"})
		if res.Success || !strings.Contains(res.Error, "stopped after 64 MiB of output") {
			t.Errorf("endless: %s", short(res.Error, 100))
		}
	})
}

func TestHeadTail(t *testing.T) {
	whole := strings.Repeat("0123456789", 30)
	for _, chunk := range []int{1, 3, 7, 50, 300} {
		for size := range len(whole) {
			h := &headTail{limit: 40}
			for rest := whole[:size]; rest != ""; {
				n := min(chunk, len(rest))
				h.Write([]byte(rest[:n]))
				rest = rest[n:]
			}
			want := whole[:size]
			if size > 40 {
				want = fmt.Sprintf("%s\n[… %d bytes left out …]\n%s", want[:20], size-40, want[size-20:])
			}
			if got := h.String(); got != want {
				t.Fatalf("chunk %d, size %d: %q, want %q", chunk, size, got, want)
			}
		}
	}
}
