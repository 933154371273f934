package embedded_test

import (
	"bufio"
	"context"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/clawbot/clawbot/store/embedded"
)

// child is a clawbot in a process of its own: it starts the database, says
// so, and works until it is told to stop or is killed.
func child(dir string) {
	interrupted := make(chan os.Signal, 1)
	signal.Notify(interrupted, os.Interrupt)
	s, err := embedded.Start(context.Background(), embedded.Config{DataDir: dir})
	if err != nil {
		fmt.Println("error:", err)
		os.Exit(1)
	}
	fmt.Println("ready")
	<-interrupted
	// What a terminal's Ctrl-C gave us it has given Postgres by now, if it
	// was going to.
	time.Sleep(200 * time.Millisecond)
	fmt.Println("query:", try(s, embedded.Service, `SELECT 1`))
	fmt.Println("stop:", s.Stop(context.Background()))
}

// clawbot is a running child.
type clawbot struct {
	*exec.Cmd
	out *bufio.Scanner
}

func spawn(t *testing.T, dir string) clawbot {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	c := clawbot{Cmd: exec.Command(exe)}
	c.Env = append(os.Environ(), "CLAWBOT_TEST_CHILD="+dir, "GORACE=atexit_sleep_ms=0")
	c.Stderr = os.Stderr
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // what a shell gives its jobs
	out, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	c.out = bufio.NewScanner(out)
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Process.Kill(); _ = c.Wait() })
	return c
}

func (c clawbot) expect(t *testing.T, line string) {
	t.Helper()
	if !c.out.Scan() || c.out.Text() != line {
		t.Fatalf("clawbot said %q, want %q", c.out.Text(), line)
	}
}

func (c clawbot) kill(t *testing.T) {
	t.Helper()
	if err := c.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = c.Wait()
}

// process is what the tests want to know of one.
type process struct {
	pid, parent int
	command     string
}

// processes lists what runs on this machine, zombies left out.
func processes(t *testing.T) []process {
	t.Helper()
	var all []process
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		t.Fatal(err)
	}
	if len(stats) == 0 { // not Linux
		out, err := exec.Command("ps", "-axww", "-o", "pid=,ppid=,command=").Output()
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(out)) {
			fields := strings.Fields(line)
			pid, _ := strconv.Atoi(fields[0])
			parent, _ := strconv.Atoi(fields[1])
			all = append(all, process{pid, parent, strings.Join(fields[2:], " ")})
		}
		return all
	}
	for _, path := range stats {
		stat, err := os.ReadFile(path)
		if err != nil {
			continue // gone
		}
		// pid (name) state ppid; the name may have anything in it
		fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
		args, err := os.ReadFile(filepath.Join(filepath.Dir(path), "cmdline"))
		if err != nil || fields[0] == "Z" {
			continue
		}
		pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(path)))
		parent, _ := strconv.Atoi(fields[1])
		all = append(all, process{pid, parent, strings.ReplaceAll(string(args), "\x00", " ")})
	}
	return all
}

func commandLines(t *testing.T) string {
	var text strings.Builder
	for _, p := range processes(t) {
		fmt.Fprintln(&text, p.command)
	}
	return text.String()
}

// servers lists the processes of Postgres, and of initdb, on a data directory.
// A child that has not got a name of its own yet is none.
func servers(t *testing.T, dir string) (pids []int) {
	t.Helper()
	found := map[int]process{}
	for _, p := range processes(t) {
		if strings.Contains(p.command, "-D "+dir+"/postgres") {
			found[p.pid] = p
		}
	}
	for pid, p := range found {
		if _, child := found[p.parent]; !child {
			pids = append(pids, pid)
		}
	}
	return pids
}

func eventually(t *testing.T, what string, cond func() bool) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); !cond(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("never: %s", what)
		}
	}
}

func socketDir(t *testing.T, s *embedded.Server) string {
	t.Helper()
	u, err := url.Parse(s.URL(embedded.Service).Reveal())
	if err != nil {
		t.Fatal(err)
	}
	return u.Query().Get("host")
}

// kill -9 of clawbot: Postgres ends by itself soon after.
func TestKilledOwnerLeavesNoPostgres(t *testing.T) {
	dir := withDatabase(t)
	c := spawn(t, dir)
	c.expect(t, "ready")
	if len(servers(t, dir)) == 0 {
		t.Fatal("no server found")
	}
	c.kill(t)
	eventually(t, "Postgres ended", func() bool { return len(servers(t, dir)) == 0 })
}

// kill -9 of clawbot, and another starts in the same moment.
func TestStartAfterKilledOwner(t *testing.T) {
	dir := withDatabase(t)
	for range 3 {
		c := spawn(t, dir)
		c.expect(t, "ready")
		c.kill(t)
		s := start(t, dir)
		run(t, s, embedded.Service, `SELECT 1`)
		if got := len(servers(t, dir)); got != 1 {
			t.Errorf("%d servers run", got)
		}
		stop(t, s)
	}
}

// kill -9 of clawbot and of the guard that would have stopped Postgres: the
// next start stops it.
func TestStartOverLeftover(t *testing.T) {
	dir := withDatabase(t)
	c := spawn(t, dir)
	c.expect(t, "ready")
	killGuard(t, c.Process.Pid)
	c.kill(t)
	old := servers(t, dir)
	if len(old) != 1 {
		t.Fatalf("servers left running: %v, want one", old)
	}
	s := start(t, dir)
	run(t, s, embedded.Service, `SELECT 1`)
	if now := servers(t, dir); len(now) != 1 || now[0] == old[0] {
		t.Errorf("servers %v, were %v", now, old)
	}
}

func killGuard(t *testing.T, parent int) {
	t.Helper()
	for _, p := range processes(t) {
		if p.parent == parent && strings.Contains(p.command, "clawbot-postgres-guard") {
			if err := syscall.Kill(p.pid, syscall.SIGKILL); err != nil {
				t.Fatal(err)
			}
			return
		}
	}
	t.Fatal("no guard found")
}

// kill -9 of everything, as when the machine runs out of memory.
func TestStartAfterKilledPostgres(t *testing.T) {
	dir := withDatabase(t)
	c := spawn(t, dir)
	c.expect(t, "ready")
	pids := servers(t, dir)
	c.kill(t)
	for _, pid := range pids {
		_ = syscall.Kill(pid, syscall.SIGKILL)
	}
	run(t, start(t, dir), embedded.Service, `SELECT 1`)
}

// kill -9 during initdb: the next start makes the database anew, and nothing
// of the first attempt is left, on disk or running.
func TestStartAfterKilledInit(t *testing.T) {
	for _, seen := range []string{"PG_VERSION", "global/pg_control", "base/5", "pg_hba.conf.new"} {
		t.Run(filepath.Base(seen), func(t *testing.T) {
			dir := newDir(t)
			c := spawn(t, dir)
			eventually(t, "initdb made "+seen, func() bool {
				found, _ := filepath.Glob(filepath.Join(dir, "postgres.init-*", seen))
				done, _ := filepath.Glob(filepath.Join(dir, "postgres", "PG_VERSION"))
				return len(found)+len(done) > 0
			})
			c.kill(t)
			run(t, start(t, dir), embedded.Service, `SELECT 1`)
			if found, _ := filepath.Glob(filepath.Join(dir, "postgres.init-*")); len(found) > 0 {
				t.Errorf("left behind: %v", found)
			}
			eventually(t, "initdb ended", func() bool { return len(servers(t, dir)) == 1 })
		})
	}
}

// After a power failure the pid file may name anybody's process.
func TestStalePidFile(t *testing.T) {
	dir := withDatabase(t)
	cluster := filepath.Join(dir, "postgres")
	info, err := os.Stat(cluster)
	if err != nil {
		t.Fatal(err)
	}
	owner := info.Sys().(*syscall.Stat_t)
	other := exec.Command("sleep", "1000")
	if os.Geteuid() == 0 { // a process that Postgres would believe to be another Postgres
		other.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: owner.Uid, Gid: owner.Gid}}
	}
	if err := other.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = other.Process.Kill(); _ = other.Wait() }()
	for _, name := range []string{"postmaster.pid", ".s.PGSQL.5432.lock"} {
		path := filepath.Join(cluster, name)
		write(t, path, fmt.Sprintf("%d\n%s\n1700000000\n5432\n%s\n\n\nready   \n", other.Process.Pid, cluster, cluster))
		if err := os.Chown(path, int(owner.Uid), int(owner.Gid)); err != nil {
			t.Fatal(err)
		}
	}

	// A guest must not believe it either.
	run(t, attach(t, dir), embedded.Service, `SELECT 1`)
	if err := syscall.Kill(other.Process.Pid, 0); err != nil {
		t.Errorf("the other process: %v", err)
	}
}

// Ctrl-C in a terminal goes to the whole foreground group. Postgres must not
// hear of it: clawbot has things to write before it stops the database.
func TestInterruptReachesClawbotFirst(t *testing.T) {
	dir := withDatabase(t)
	c := spawn(t, dir)
	c.expect(t, "ready")
	if err := syscall.Kill(-c.Process.Pid, syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	c.expect(t, "query: <nil>")
	c.expect(t, "stop: <nil>")
}

// The refusal names the process that has the directory.
func TestRefusalNamesOtherProcess(t *testing.T) {
	dir := withDatabase(t)
	c := spawn(t, dir)
	c.expect(t, "ready")
	_, err := embedded.Start(t.Context(), embedded.Config{DataDir: dir})
	wantOneLine(t, err, fmt.Sprintf("pid %d", c.Process.Pid))
	run(t, attach(t, dir), embedded.Service, `SELECT 1`)
}

// Many start at once on an empty directory: one wins, the others are told.
func TestManyStartAtOnce(t *testing.T) {
	dir := newDir(t)
	var started, refused int
	var all []clawbot
	for range 4 {
		all = append(all, spawn(t, dir))
	}
	for _, c := range all {
		if !c.out.Scan() {
			t.Fatal("clawbot said nothing")
		}
		switch line := c.out.Text(); {
		case line == "ready":
			started++
		case strings.Contains(line, "another clawbot"):
			refused++
		default:
			t.Error(line)
		}
	}
	if started != 1 || refused != 3 {
		t.Errorf("%d started, %d refused", started, refused)
	}
}

// Postgres' own crash is noticed, and the next start repairs what it left.
func TestDone(t *testing.T) {
	dir := withDatabase(t)
	s := start(t, dir)
	for _, pid := range servers(t, dir) {
		_ = syscall.Kill(pid, syscall.SIGKILL)
	}
	select {
	case <-s.Done():
	case <-time.After(20 * time.Second):
		t.Fatal("not noticed")
	}
	stop(t, s)
	run(t, start(t, dir), embedded.Service, `SELECT 1`)
}
