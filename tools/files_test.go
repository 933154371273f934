package tools

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/clawbot/clawbot/agent"
)

// bench is a workspace beside a directory with a secret.
type bench struct {
	t      *testing.T
	dir    string // workspace
	secret string // file outside
	tools  map[string]agent.Tool
}

const canary = "CANARY-outside-the-workspace"

func newBench(t *testing.T) *bench {
	t.Helper()
	base, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	b := &bench{t: t, dir: filepath.Join(base, "ws"), secret: filepath.Join(base, "outside", "secret")}
	if err := os.MkdirAll(filepath.Dir(b.secret), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(b.secret, []byte(canary), 0o644); err != nil {
		t.Fatal(err)
	}
	c := DefaultConfig()
	c.Workspace = b.dir
	list, err := Builtin(c, Deps{})
	if err != nil {
		t.Fatal(err)
	}
	b.tools = byName(list)
	return b
}

func byName(list []agent.Tool) map[string]agent.Tool {
	m := map[string]agent.Tool{}
	for _, tool := range list {
		m[tool.Name] = tool
	}
	return m
}

func (b *bench) run(tool string, args map[string]any) agent.Result {
	b.t.Helper()
	return run(b.t, b.tools[tool], args, agent.Origin{})
}

// run executes a call as the engine would: canonical bytes, checked first.
func run(t testing.TB, tool agent.Tool, args map[string]any, origin agent.Origin) agent.Result {
	t.Helper()
	raw, err := json.Marshal(args)
	if err != nil {
		t.Fatal(err)
	}
	canonical, err := agent.Canonical(string(raw))
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithTimeout(context.Background(), 60*time.Second)
	defer stop()
	res := tool.Run(ctx, agent.Invocation{Session: "ses_1", Turn: "turn_1", Call: "call_1", Args: []byte(canonical), Origin: origin})
	checkText(t, res)
	return res
}

func invocation(args string) agent.Invocation {
	canonical, err := agent.Canonical(args)
	if err != nil {
		panic(err)
	}
	return agent.Invocation{Session: "ses_1", Turn: "turn_1", Call: "call_1", Args: []byte(canonical)}
}

// checkText asserts what holds for every result of every tool.
func checkText(t testing.TB, res agent.Result) {
	t.Helper()
	text := res.Output + res.Error
	if !utf8.ValidString(text) || strings.ContainsRune(text, 0) {
		t.Errorf("result is not clean text: %q", short(text, 200))
	}
	if res.Success && res.Error != "" || !res.Success && res.Error == "" {
		t.Errorf("result says both or neither: %+v", res)
	}
	if len(text) > 2*MaxRead+4096 {
		t.Errorf("result has %d bytes", len(text))
	}
}

func (b *bench) put(path, content string) {
	b.t.Helper()
	p := filepath.Join(b.dir, path)
	if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
		b.t.Fatal(err)
	}
	if err := os.WriteFile(p, []byte(content), 0o644); err != nil {
		b.t.Fatal(err)
	}
}

func TestReadWriteList(t *testing.T) {
	b := newBench(t)
	if res := b.run("list_dir", map[string]any{"path": "."}); res.Output != "(empty directory)" {
		t.Errorf("empty: %+v", res)
	}
	res := b.run("write_file", map[string]any{"path": "a/b/note.txt", "content": "hello\n"})
	if res.Output != "wrote a new file a/b/note.txt (6 bytes)" {
		t.Errorf("write: %+v", res)
	}
	if err := os.Chmod(filepath.Join(b.dir, "a/b/note.txt"), 0o755); err != nil {
		t.Fatal(err)
	}
	res = b.run("write_file", map[string]any{"path": "./a//b/note.txt", "content": "bye"})
	if !strings.HasPrefix(res.Output, "replaced the file ") {
		t.Errorf("replace: %+v", res)
	}
	if info, _ := os.Stat(filepath.Join(b.dir, "a/b/note.txt")); info.Mode().Perm() != 0o755 {
		t.Errorf("mode is now %v", info.Mode())
	}
	if res = b.run("read_file", map[string]any{"path": "a/b/note.txt"}); res.Output != "bye" {
		t.Errorf("read: %+v", res)
	}
	b.put("-rf", "x") // T9: a leading dash is a name like any other here
	b.put("line\nbreak", "x")
	os.Symlink("a/b/note.txt", filepath.Join(b.dir, "link"))
	res = b.run("list_dir", map[string]any{"path": "."})
	want := "-rf (1 bytes)\na/\n\"line\\nbreak\" (1 bytes)\nlink -> a/b/note.txt\n"
	if res.Output != want {
		t.Errorf("list: %q, want %q", res.Output, want)
	}
	if res = b.run("read_file", map[string]any{"path": "-rf"}); res.Output != "x" {
		t.Errorf("dash: %+v", res)
	}
	if res = b.run("read_file", map[string]any{"path": "link"}); res.Output != "bye" {
		t.Errorf("link within: %+v", res)
	}
	left, _ := filepath.Glob(filepath.Join(b.dir, "a/b/.clawbot-*"))
	if len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

// T9: one path root per tool. Nothing here may show the canary, or make or
// change anything outside.
func TestT9NoPathLeadsOut(t *testing.T) {
	b := newBench(t)
	b.put("sub/file", "x")
	links := map[string]string{
		"abs": b.secret, "up": "../outside/secret", "updir": "../outside", "absdir": filepath.Dir(b.secret),
		"root": "/", "proc": "/proc/self/root", "cwd": "/proc/self/cwd", "self": "self", "chain": "up",
		"sub/deep": "../../outside/secret",
	}
	for from, to := range links {
		if err := os.Symlink(to, filepath.Join(b.dir, from)); err != nil {
			t.Fatal(err)
		}
	}
	paths := []string{
		"..", "../", "../outside/secret", "sub/../../outside/secret", "sub/..", "./../outside/secret",
		b.secret, "/etc/passwd", "/", "//etc/passwd", "/proc/self/environ", "/proc/self/cwd/x",
		"abs", "up", "updir/secret", "absdir/secret", "root/etc/passwd", "proc/etc/passwd", "cwd/x", "self", "chain", "sub/deep",
		"updir", "absdir", "root", "sub/../up", "", " ", "\x00", "sub\x00/../../outside/secret", ".../x", "..\x00/x",
		strings.Repeat("../", 500) + "etc/passwd", strings.Repeat("a/", 3000), "sub/file/x", "~/x",
	}
	before, _ := os.ReadDir(filepath.Dir(b.secret))
	for _, p := range paths {
		for _, tool := range []string{"read_file", "list_dir"} {
			res := b.run(tool, map[string]any{"path": p})
			if res.Success || strings.Contains(res.Output+res.Error, canary) {
				t.Errorf("%s %q: %+v", tool, p, res)
			}
			if strings.Contains(res.Error, b.dir) {
				t.Errorf("%s %q: the error shows the host's path: %s", tool, p, res.Error)
			}
		}
		if p == ".../x" || p == "~/x" || strings.HasPrefix(p, "a/") {
			continue // odd names, but names
		}
		if res := b.run("write_file", map[string]any{"path": p, "content": "pwned"}); res.Success {
			t.Errorf("write %q: %+v", p, res)
		}
	}
	if got, _ := os.ReadFile(b.secret); string(got) != canary {
		t.Errorf("the file outside now holds %q", got)
	}
	after, _ := os.ReadDir(filepath.Dir(b.secret))
	if len(after) != len(before) {
		t.Errorf("made outside: %v", after)
	}
}

// T9, class "changed between click and run": a directory is swapped for a link
// to the outside again and again while the tools work below it.
func TestT9SymlinkSwapRace(t *testing.T) {
	b := newBench(t)
	b.put("real/secret", "inside")
	evil := filepath.Join(b.dir, "evil")
	if err := os.Symlink(filepath.Dir(b.secret), evil); err != nil {
		t.Fatal(err)
	}
	d := filepath.Join(b.dir, "d")
	real := filepath.Join(b.dir, "real")
	stop := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
				os.Rename(real, d)
				os.Rename(d, real)
				os.Rename(evil, d)
				os.Rename(d, evil)
			}
		}
	})
	for i := range 500 {
		for _, args := range []map[string]any{{"path": "d/secret"}, {"path": "d"}} {
			for _, tool := range []string{"read_file", "list_dir"} {
				if res := b.run(tool, args); strings.Contains(res.Output, canary) {
					t.Fatalf("%s read outside", tool)
				}
			}
		}
		b.run("write_file", map[string]any{"path": fmt.Sprintf("d/w%d", i%3), "content": "x"})
	}
	close(stop)
	wg.Wait()
	entries, _ := os.ReadDir(filepath.Dir(b.secret))
	if len(entries) != 1 {
		t.Errorf("written outside: %v", entries)
	}
}

func TestSpecialFilesAreNotOpened(t *testing.T) {
	b := newBench(t)
	if err := syscall.Mkfifo(filepath.Join(b.dir, "fifo"), 0o644); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("unix", filepath.Join(b.dir, "sock"))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	done := make(chan struct{})
	go func() {
		defer close(done)
		for _, p := range []string{"fifo", "sock", "."} {
			if res := b.run("read_file", map[string]any{"path": p}); res.Success || !strings.Contains(res.Error, "it is a") {
				t.Errorf("read %s: %+v", p, res)
			}
			if res := b.run("write_file", map[string]any{"path": p, "content": "x"}); res.Success {
				t.Errorf("write %s: %+v", p, res)
			}
		}
	}()
	select {
	case <-done:
	case <-time.After(10 * time.Second):
		t.Fatal("blocked on a special file")
	}
	res := b.run("list_dir", map[string]any{"path": "."})
	if res.Output != "fifo (a named pipe)\nsock (a socket)\n" {
		t.Errorf("list: %q", res.Output)
	}
}

func TestLargeAndBinaryFiles(t *testing.T) {
	b := newBench(t)
	huge := filepath.Join(b.dir, "huge")
	f, err := os.Create(huge)
	if err != nil {
		t.Fatal(err)
	}
	f.WriteString(strings.Repeat("é", 5000)) // text at the start, holes after
	f.Truncate(1 << 40)                      // 1 TiB
	f.Close()
	res := b.run("read_file", map[string]any{"path": "huge"})
	if !res.Success || !strings.Contains(res.Output, fmt.Sprint(int64(1)<<40)) {
		t.Errorf("huge: %s", short(res.Output+res.Error, 200))
	}
	b.put("text", "x"+strings.Repeat("é", MaxRead)) // the limit falls inside a character
	res = b.run("read_file", map[string]any{"path": "text"})
	if !strings.HasPrefix(res.Output, fmt.Sprintf("[text: the first %d of %d bytes]\n", MaxRead-1, 2*MaxRead+1)) {
		t.Errorf("text: %s", short(res.Output, 100))
	}
	if strings.Contains(res.Output, "\uFFFD") {
		t.Error("a character was cut in half")
	}
	b.put("image", "\x89PNG\r\n\x1a\n\x00\x00rest")
	if res = b.run("read_file", map[string]any{"path": "image"}); !strings.Contains(res.Output, "binary data, 14 bytes, looks like image/png") {
		t.Errorf("image: %+v", res)
	}
	b.put("latin", "caf\xe9")
	if res = b.run("read_file", map[string]any{"path": "latin"}); !strings.Contains(res.Output, "not valid UTF-8") || !strings.HasSuffix(res.Output, "caf\uFFFD") {
		t.Errorf("latin: %+v", res)
	}
	b.put("latenul", strings.Repeat("x", 10000)+"\x00y")
	if res = b.run("read_file", map[string]any{"path": "latenul"}); !strings.HasSuffix(res.Output, "x\uFFFDy") {
		t.Errorf("late NUL: %s", short(res.Output, 100))
	}
	res = b.run("write_file", map[string]any{"path": "w", "content": strings.Repeat("x", MaxWrite-100)})
	if !res.Success {
		t.Errorf("write just below the limit: %+v", res)
	}
	if res := writeFile(workspace{}).Run(t.Context(), agent.Invocation{Args: fmt.Appendf(nil, `{"path":"w","content":%q}`, strings.Repeat("x", MaxWrite+1))}); res.Success {
		t.Error("written above the limit")
	}
}

func TestManyEntries(t *testing.T) {
	b := newBench(t)
	for i := range MaxEntries + 500 {
		b.put(fmt.Sprintf("many/%05d", i), "")
	}
	res := b.run("list_dir", map[string]any{"path": "many"})
	lines := strings.Split(strings.TrimSuffix(res.Output, "\n"), "\n")
	if len(lines) != MaxEntries+1 || lines[0] != "[many: the first 1000 of 1500 entries]" || lines[1] != "00000 (0 bytes)" || lines[1000] != "00999 (0 bytes)" {
		t.Errorf("%d lines, %q … %q", len(lines), lines[0], lines[len(lines)-1])
	}
}

// A write that fails leaves the old file and nothing else.
func TestFailedWriteLeavesTheOldFile(t *testing.T) {
	b := newBench(t)
	b.put("dir/x", "old")
	for _, p := range []string{"dir", "dir/x/y", "dir/"} {
		if res := b.run("write_file", map[string]any{"path": p, "content": "new"}); res.Success {
			t.Errorf("%s: %+v", p, res)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if res := b.tools["write_file"].Run(ctx, agent.Invocation{Args: []byte(`{"content":"new","path":"dir/x"}`)}); res.Success {
		t.Error("written after the call was cancelled")
	}
	var found []string
	filepath.WalkDir(b.dir, func(p string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			found = append(found, strings.TrimPrefix(p, b.dir))
		}
		return nil
	})
	if fmt.Sprint(found) != "[/dir/x]" {
		t.Errorf("files: %v", found)
	}
	if got, err := os.ReadFile(filepath.Join(b.dir, "dir/x")); string(got) != "old" || errors.Is(err, fs.ErrNotExist) {
		t.Errorf("%q, %v", got, err)
	}
}
