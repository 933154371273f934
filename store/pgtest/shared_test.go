package pgtest_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/clawbot/clawbot/store/pgtest"
)

// TestChild is what the tests below run in processes of their own: a test
// binary that uses the shared server until its input ends.
func TestChild(t *testing.T) {
	if os.Getenv("PGTEST_CHILD") == "" {
		t.Skip("for other tests")
	}
	dsn := pgtest.Database(t, "child", func(ctx context.Context, dsn string) error {
		fmt.Println("migrating")
		conn, err := pgx.Connect(ctx, dsn)
		if err != nil {
			return err
		}
		defer conn.Close(ctx)
		_, err = conn.Exec(ctx, `CREATE TABLE t (n int)`)
		return err
	})
	run(t, connect(t, dsn), `INSERT INTO t VALUES (1)`)
	fmt.Println("ready", pgtest.Shared(t).URL("postgres"))
	_, _ = io.Copy(io.Discard, os.Stdin)
	run(t, connect(t, dsn), `SELECT * FROM t`)
}

// binary is a test binary that runs TestChild.
type binary struct {
	*exec.Cmd
	stdin io.Closer
	out   *bufio.Scanner
}

// newTemp is a temporary directory for servers that are not those of this
// run. t.TempDir is closed to the account that runs Postgres.
func newTemp(t *testing.T) string {
	t.Helper()
	place := "/dev/shm" // it's faster
	if _, err := os.Stat(place); err != nil {
		place = ""
	}
	dir, err := os.MkdirTemp(place, "pgtest-")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(dir, 0o711); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		// Guards may be removing things in it at the same time.
		eventually(t, "temporary directory removed", func() bool { return os.RemoveAll(dir) == nil })
	})
	return dir
}

func spawn(t *testing.T, tmp string, env ...string) binary {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	b := binary{Cmd: exec.Command(exe, "-test.run=^TestChild$", "-test.v")}
	b.Env = append(os.Environ(), "PGTEST_CHILD=1", "TMPDIR="+tmp, "CLAWBOT_TEST_POSTGRES=", "GORACE=atexit_sleep_ms=0")
	b.Env = append(b.Env, env...)
	b.Stderr = os.Stderr
	stdin, err := b.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := b.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	b.stdin, b.out = stdin, bufio.NewScanner(stdout)
	if err := b.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.Process.Kill(); _ = b.Wait() })
	return b
}

// ready waits until the binary uses its database. It returns the server's URL
// and what the binary said before.
func (b binary) ready(t *testing.T) (url string, said []string) {
	t.Helper()
	for b.out.Scan() {
		if url, ok := strings.CutPrefix(b.out.Text(), "ready "); ok {
			return url, said
		}
		said = append(said, b.out.Text())
	}
	t.Fatalf("not ready, but said %q", said)
	return "", nil
}

// finish lets the binary end, and fails if its test did.
func (b binary) finish(t *testing.T) {
	t.Helper()
	b.stdin.Close()
	for b.out.Scan() {
	}
	if err := b.Wait(); err != nil {
		t.Errorf("test binary: %v", err)
	}
}

func (b binary) kill(t *testing.T) {
	t.Helper()
	if err := b.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = b.Wait()
}

func eventually(t *testing.T, what string, cond func() bool) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); !cond(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("never: %s", what)
		}
	}
}

// postmaster is the process of the server that a URL leads to.
func postmaster(t *testing.T, url string) int {
	t.Helper()
	cfg, err := pgx.ParseConfig(url)
	if err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(filepath.Join(cfg.Host, "postmaster.pid"))
	if err != nil {
		t.Fatal(err)
	}
	line, _, _ := strings.Cut(string(b), "\n")
	pid, err := strconv.Atoi(line)
	if err != nil {
		t.Fatal(err)
	}
	return pid
}

// running reports whether a process is there and not just waiting for its
// parent to take notice of its end.
func running(pid int) bool {
	if errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) {
		return false
	}
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err != nil || !strings.Contains(string(stat), ") Z ")
}

func wantGone(t *testing.T, tmp string, pid int) {
	t.Helper()
	eventually(t, "Postgres ended", func() bool { return !running(pid) })
	eventually(t, "its directory was removed", func() bool { return len(serverDirs(t, tmp)) == 0 })
}

func serverDirs(t *testing.T, tmp string) []string {
	t.Helper()
	dirs, err := filepath.Glob(filepath.Join(tmp, "clawbot-pgtest-*", "*", "server-*"))
	if err != nil {
		t.Fatal(err)
	}
	return dirs
}

// Binaries that start at the same time share one server, in which the
// template was made once, and it ends with the last of them.
func TestBinariesShareAServer(t *testing.T) {
	tmp := newTemp(t)
	var all []binary
	for range 4 {
		all = append(all, spawn(t, tmp))
	}
	var urls []string
	migrations := 0
	for _, b := range all {
		url, said := b.ready(t)
		urls = append(urls, url)
		if slices.Contains(said, "migrating") {
			migrations++
		}
	}
	if n := len(slices.Compact(urls)); n != 1 {
		t.Errorf("they use %d servers", n)
	}
	if migrations != 1 {
		t.Errorf("the template was made %d times", migrations)
	}
	pid := postmaster(t, urls[0])
	for _, b := range all[1:] {
		b.finish(t)
	}
	time.Sleep(100 * time.Millisecond) // long enough for a wrong end
	all[0].finish(t)
	wantGone(t, tmp, pid)
}

// The server ends with its users also when all of them are killed.
func TestKilledBinaries(t *testing.T) {
	tmp := newTemp(t)
	a, b := spawn(t, tmp), spawn(t, tmp)
	url, _ := a.ready(t)
	b.ready(t)
	pid := postmaster(t, url)
	a.kill(t)
	time.Sleep(100 * time.Millisecond) // b still needs it
	if !running(pid) {
		t.Fatal("the server went with the first binary")
	}
	b.kill(t)
	wantGone(t, tmp, pid)
}

// One binary after the other, each while the server of the one before may
// just be ending: whoever comes gets a server that stays.
func TestJoinWhileServerEnds(t *testing.T) {
	tmp := newTemp(t)
	for range 8 {
		b := spawn(t, tmp)
		b.ready(t)
		b.finish(t)
	}
	eventually(t, "all servers ended", func() bool { return len(serverDirs(t, tmp)) == 0 })
}

// A server whose guard was killed, too, is stopped by the next run.
func TestKilledGuard(t *testing.T) {
	tmp := newTemp(t)
	a := spawn(t, tmp)
	url, _ := a.ready(t)
	pid := postmaster(t, url)
	guard := findGuard(t, serverDirs(t, tmp)[0])
	if err := syscall.Kill(guard, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the guard is dead", func() bool { return !running(guard) })
	a.kill(t)
	if !running(pid) {
		t.Fatal("the server is gone already")
	}

	b := spawn(t, tmp)
	old := url
	if url, _ = b.ready(t); url == old {
		t.Fatal("the next run joined the server that nobody guards")
	}
	eventually(t, "the old server ended", func() bool { return !running(pid) })
	if n := len(serverDirs(t, tmp)); n != 1 {
		t.Errorf("%d servers are there", n)
	}
	pid = postmaster(t, url)
	b.finish(t)
	wantGone(t, tmp, pid)
}

func findGuard(t *testing.T, dir string) int {
	t.Helper()
	out, err := exec.Command("sh", "-c", `
		if [ -r /proc/self/cmdline ]; then
			for p in /proc/[0-9]*; do echo "${p#/proc/} $(tr '\0' '\n' <$p/cmdline 2>/dev/null | tail -n 3 | tr '\n' ' ')"; done
		else
			ps -axww -o pid=,command=
		fi`).Output()
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(out)) {
		if strings.Contains(line, "pgtest-guard "+dir+" ") {
			pid, err := strconv.Atoi(strings.Fields(line)[0])
			if err != nil {
				t.Fatal(err)
			}
			return pid
		}
	}
	t.Fatal("no guard found")
	return 0
}

// A migration that broke off is begun anew by the next that needs it.
func TestBrokenMigration(t *testing.T) {
	stuck := func(ctx context.Context, dsn string) error {
		conn, err := pgx.Connect(ctx, dsn)
		if err != nil {
			return err
		}
		defer conn.Close(context.Background())
		if _, err := conn.Exec(ctx, `CREATE TABLE half (n int)`); err != nil {
			return err
		}
		return errors.New("killed")
	}
	srv := pgtest.Dedicated(t)
	probe := &fatal{TB: t}
	func() {
		defer func() { _ = recover() }()
		srv.Database(probe, "x", stuck)
	}()
	if !strings.Contains(probe.said, "killed") {
		t.Fatalf("the test was told %q", probe.said)
	}
	dsn := srv.Database(t, "x", func(context.Context, string) error { return nil })
	if got := query[int](t, connect(t, dsn), `SELECT count(*) FROM pg_tables WHERE tablename = 'half'`); got != 0 {
		t.Error("half a migration is in the template")
	}
}

// fatal is a test whose Fatalf can be looked at.
type fatal struct {
	testing.TB
	said string
}

func (f *fatal) Fatalf(format string, args ...any) {
	f.said = fmt.Sprintf(format, args...)
	panic(f.said)
}

// Caches and drafts that a killed run left, or that lost their contents in a
// power failure, are replaced.
func TestDamagedCache(t *testing.T) {
	tmp := newTemp(t)
	a := spawn(t, tmp)
	a.ready(t)
	a.finish(t)
	caches, err := filepath.Glob(filepath.Join(tmp, "clawbot-pgtest-*", "initdb-*"))
	if err != nil || len(caches) != 1 {
		t.Fatalf("caches: %v, %v", caches, err)
	}
	if err := os.Truncate(filepath.Join(caches[0], "global", "pg_control"), 0); err != nil {
		t.Fatal(err)
	}
	draft := filepath.Join(filepath.Dir(caches[0]), "draft-1")
	if err := os.MkdirAll(filepath.Join(draft, "base"), 0o700); err != nil {
		t.Fatal(err)
	}
	b := spawn(t, tmp)
	b.ready(t)
	b.finish(t)
	if _, err := os.Stat(draft); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the draft is still there: %v", err)
	}
}

// With CLAWBOT_TEST_POSTGRES nothing is started, and nothing but templates is
// left on that server.
func TestGivenServer(t *testing.T) {
	tmp := newTemp(t)
	srv := pgtest.Dedicated(t)
	for range 2 {
		b := spawn(t, tmp, "CLAWBOT_TEST_POSTGRES="+srv.URL("postgres"))
		b.ready(t)
		b.finish(t)
	}
	if n := len(serverDirs(t, tmp)); n != 0 {
		t.Errorf("%d servers were started", n)
	}
	left := query[[]string](t, connect(t, srv.URL("postgres")),
		`SELECT array_agg(datname::text) FROM pg_database WHERE NOT datistemplate AND datname NOT IN ('postgres')`)
	if len(left) != 1 || !strings.HasPrefix(left[0], "template_") {
		t.Errorf("databases left: %v", left)
	}
}

// The temporary directory is everybody's: a directory of our name that others
// can write to is not used.
func TestForeignRootIsRefused(t *testing.T) {
	tmp := newTemp(t)
	dir := filepath.Join(tmp, fmt.Sprintf("clawbot-pgtest-%d", os.Geteuid()))
	if err := os.Mkdir(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	b := spawn(t, tmp)
	out := []string{}
	for b.out.Scan() {
		out = append(out, b.out.Text())
	}
	if err := b.Wait(); err == nil || !strings.Contains(strings.Join(out, "\n"), "remove it") {
		t.Errorf("%v: %q", err, out)
	}
}
