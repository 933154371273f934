package embedded_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"go.uber.org/goleak"

	"github.com/clawbot/clawbot/store/embedded"
)

func TestMain(m *testing.M) {
	if dir := os.Getenv("CLAWBOT_TEST_CHILD"); dir != "" {
		child(dir)
		return
	}
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		if dir := prepared.dir; dir != "" {
			_ = os.RemoveAll(filepath.Dir(dir))
		}
		os.Exit(code)
	}))
}

// prepared is a data directory with a finished database, made once: copying
// it is much faster than making another.
var prepared struct {
	sync.Once
	dir string
}

// withDatabase is a data directory with a finished database.
func withDatabase(t testing.TB) string {
	t.Helper()
	prepared.Do(func() {
		base, err := os.MkdirTemp("", "clawbot-embedded-")
		if err != nil {
			t.Fatal(err)
		}
		prepared.dir = filepath.Join(base, "data")
		if err := os.Chmod(base, 0o711); err != nil {
			t.Fatal(err)
		}
		s, err := embedded.Start(context.Background(), embedded.Config{DataDir: prepared.dir})
		if err != nil {
			t.Fatal(err)
		}
		stop(t, s)
	})
	dir := newDir(t)
	if out, err := exec.Command("cp", "-Rp", prepared.dir, dir).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return dir
}

// newDir is a data directory that does not exist yet, in a place that the
// account that runs Postgres can reach: t.TempDir is closed to others.
func newDir(t testing.TB) string {
	t.Helper()
	base, err := os.MkdirTemp("", "clawbot-embedded-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(base); err != nil {
			t.Error(err)
		}
	})
	if err := os.Chmod(base, 0o711); err != nil {
		t.Fatal(err)
	}
	return filepath.Join(base, "data")
}

func start(t testing.TB, dir string) *embedded.Server {
	t.Helper()
	s, err := embedded.Start(context.Background(), embedded.Config{DataDir: dir})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { stop(t, s) })
	return s
}

func attach(t testing.TB, dir string) *embedded.Server {
	t.Helper()
	s, err := embedded.Attach(context.Background(), embedded.Config{DataDir: dir})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { stop(t, s) })
	return s
}

func stop(t testing.TB, s *embedded.Server) {
	t.Helper()
	if err := s.Stop(context.Background()); err != nil {
		t.Error(err)
	}
}

// run runs statements in a role, each on its own.
func run(t testing.TB, s *embedded.Server, role embedded.Role, statements ...string) {
	t.Helper()
	for _, sql := range statements {
		if err := try(s, role, sql); err != nil {
			t.Fatalf("%s: %v", sql, err)
		}
	}
}

func try(s *embedded.Server, role embedded.Role, sql string) error {
	conn, err := pgx.Connect(context.Background(), s.URL(role).Reveal())
	if err != nil {
		return err
	}
	defer conn.Close(context.Background())
	_, err = conn.Exec(context.Background(), sql)
	return err
}

func query(t testing.TB, s *embedded.Server, sql string) string {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), s.URL(embedded.Owner).Reveal())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.Background())
	var v string
	if err := conn.QueryRow(t.Context(), sql).Scan(&v); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	return v
}

// snapshot is every file below dir, with its mode and contents.
func snapshot(t *testing.T, dir string) map[string]string {
	t.Helper()
	files := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		var data []byte
		if info.Mode().IsRegular() {
			if data, err = os.ReadFile(path); err != nil {
				return err
			}
		}
		files[path] = fmt.Sprintf("%v %x", info.Mode(), sha256.Sum256(data))
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// wantOneLine checks an error for people: one line with all the words.
func wantOneLine(t *testing.T, err error, words ...string) {
	t.Helper()
	if err == nil {
		t.Fatal("no error")
	}
	if strings.Contains(err.Error(), "\n") {
		t.Errorf("more than one line: %v", err)
	}
	for _, w := range words {
		if !strings.Contains(err.Error(), w) {
			t.Errorf("%q does not say %q", err, w)
		}
	}
}

func write(t *testing.T, path, data string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o711); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(data), 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestFirstAndSecondStart(t *testing.T) {
	dir := newDir(t)
	s := start(t, dir)
	run(t, s, embedded.Owner, `CREATE TABLE t (n int)`, `INSERT INTO t VALUES (42)`)
	first := s.URL(embedded.Service).Reveal()
	stop(t, s)
	select {
	case <-s.Done():
	default:
		t.Error("stopped, but not done")
	}

	s = start(t, dir)
	if got := query(t, s, `SELECT n::text FROM t`); got != "42" {
		t.Errorf("after the second start n = %s", got)
	}
	if got := s.URL(embedded.Service).Reveal(); got != first {
		t.Errorf("the service's URL changed from one start to the next")
	}
}

func TestSettings(t *testing.T) {
	s := start(t, withDatabase(t))
	for sql, want := range map[string]string{
		`SHOW fsync`:                               "on",
		`SHOW full_page_writes`:                    "on",
		`SHOW synchronous_commit`:                  "on",
		`SHOW data_checksums`:                      "on",
		`SHOW listen_addresses`:                    "",
		`SHOW shared_buffers`:                      "32MB",
		`SHOW max_connections`:                     "50",
		`SHOW idle_in_transaction_session_timeout`: "1min",
		`SELECT pg_encoding_to_char(encoding) FROM pg_database WHERE datname = 'clawbot'`:                   "UTF8",
		`SELECT datcollate FROM pg_database WHERE datname = 'clawbot'`:                                      "C",
		`SELECT r.rolname FROM pg_database d JOIN pg_roles r ON r.oid = d.datdba WHERE datname = 'clawbot'`: "clawbot_owner",
	} {
		if got := query(t, s, sql); got != want {
			t.Errorf("%s: %q, want %q", sql, got, want)
		}
	}
}

// The service can neither raise its own rights nor touch what it was not
// given; nobody gets in without a password, and the superuser not at all.
func TestRights(t *testing.T) {
	s := start(t, withDatabase(t))
	run(t, s, embedded.Owner,
		`CREATE TABLE audit (n int)`,
		`GRANT SELECT, INSERT ON audit TO clawbot`)
	run(t, s, embedded.Service, `INSERT INTO audit VALUES (1)`)

	for _, sql := range []string{
		`DELETE FROM audit`,
		`TRUNCATE audit`,
		`DROP TABLE audit`,
		`CREATE TABLE mine (n int)`,
		`CREATE SCHEMA mine`,
		`CREATE TEMP TABLE mine (n int)`,
		`CREATE ROLE evil`,
		`CREATE DATABASE evil`,
		`ALTER ROLE clawbot SUPERUSER`,
		`SET ROLE clawbot_owner`,
		`COPY (SELECT 1) TO PROGRAM 'true'`,
		`SELECT pg_read_file('PG_VERSION')`,
	} {
		var pgErr *pgconn.PgError
		if err := try(s, embedded.Service, sql); !errors.As(err, &pgErr) || pgErr.Code != "42501" {
			t.Errorf("%s as service: %v, want insufficient privilege", sql, err)
		}
	}
	for _, sql := range []string{`CREATE ROLE evil`, `ALTER ROLE clawbot_owner SUPERUSER`, `CREATE DATABASE evil`} {
		if err := try(s, embedded.Owner, sql); err == nil {
			t.Errorf("%s as owner: allowed", sql)
		}
	}
	if got := query(t, s, `SELECT count(*)::text FROM pg_roles WHERE rolsuper AND rolname LIKE 'clawbot%'`); got != "0" {
		t.Errorf("%s of clawbot's roles are superusers", got)
	}

	url := s.URL(embedded.Service).Reveal()
	for name, change := range map[string]func(*pgx.ConnConfig){
		"wrong password": func(c *pgx.ConnConfig) { c.Password = "wrong" },
		"no password":    func(c *pgx.ConnConfig) { c.Password = "" },
		"superuser":      func(c *pgx.ConnConfig) { c.User, c.Password = "postgres", "" },
		"other database": func(c *pgx.ConnConfig) { c.Database = "postgres" },
		"template":       func(c *pgx.ConnConfig) { c.Database = "template1" },
	} {
		cfg, err := pgx.ParseConfig(url)
		if err != nil {
			t.Fatal(err)
		}
		change(cfg)
		if conn, err := pgx.ConnectConfig(t.Context(), cfg); err == nil {
			t.Errorf("%s: let in", name)
			conn.Close(context.Background())
		}
	}
}

// The passwords are in one file for its owner alone, and in nothing that is
// printed, logged or passed on a command line.
func TestPasswordsStaySecret(t *testing.T) {
	dir := newDir(t)
	var logged bytes.Buffer
	log := slog.New(slog.NewTextHandler(&logged, &slog.HandlerOptions{Level: slog.LevelDebug}))
	s, err := embedded.Start(t.Context(), embedded.Config{DataDir: dir, Log: log})
	if err != nil {
		t.Fatal(err)
	}
	defer stop(t, s)

	keysFile := filepath.Join(dir, "postgres.keys")
	info, err := os.Stat(keysFile)
	if err != nil {
		t.Fatal(err)
	}
	if info.Mode() != 0o600 {
		t.Errorf("mode of postgres.keys: %v", info.Mode())
	}
	var passwords map[string]string
	data, err := os.ReadFile(keysFile)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(data, &passwords); err != nil {
		t.Fatal(err)
	}

	url := s.URL(embedded.Service)
	asJSON, err := json.Marshal(url)
	if err != nil {
		t.Fatal(err)
	}
	hidden := struct{ u embedded.URL }{url}
	log.Info("connecting", "url", url, "all", hidden, "server", s)
	serverLog, err := os.ReadFile(filepath.Join(dir, "postgres.log"))
	if err != nil {
		t.Fatal(err)
	}
	bad, err := pgx.ParseConfig(url.Reveal())
	if err != nil {
		t.Fatal(err)
	}
	bad.User = "nobody"
	_, refused := pgx.ConnectConfig(t.Context(), bad)
	for where, text := range map[string]string{
		"slog":         logged.String(),
		"postgres.log": string(serverLog),
		"json":         string(asJSON),
		"fmt":          fmt.Sprintf("%v %+v %#v %s %q %v %+v %#v %+v %#v", url, url, url, url, url, hidden, hidden, hidden, s, s),
		"pgx's error":  fmt.Sprint(refused),
		"processes":    commandLines(t),
	} {
		for role, password := range passwords {
			if len(password) < 20 {
				t.Fatalf("password of %s has %d characters", role, len(password))
			}
			if strings.Contains(text, password) {
				t.Errorf("%s shows the password of %s", where, role)
			}
		}
	}
	if !strings.Contains(url.String(), "postgres://clawbot@/clawbot?host=") {
		t.Errorf("url prints as %s", url)
	}
}

func TestSecondOwnerIsRefused(t *testing.T) {
	dir := withDatabase(t)
	s := start(t, dir)
	began := time.Now()
	_, err := embedded.Start(t.Context(), embedded.Config{DataDir: dir})
	wantOneLine(t, err, dir, "pid "+strconv.Itoa(os.Getpid()), "CLAWBOT_DATA_DIR", "stop")
	if took := time.Since(began); took > time.Second {
		t.Errorf("it took %v to say so", took)
	}
	run(t, s, embedded.Service, `SELECT 1`)
}

// Whatever is in the directory of the database and is not ours stays as it
// is, to the byte.
func TestForeignDirectoryIsRefused(t *testing.T) {
	for name, lay := range map[string]func(t *testing.T, path string){
		"file":          func(t *testing.T, path string) { write(t, path, "mine") },
		"some file":     func(t *testing.T, path string) { write(t, filepath.Join(path, "notes.txt"), "mine") },
		"a cluster":     func(t *testing.T, path string) { write(t, filepath.Join(path, "PG_VERSION"), "15\n") },
		"newer clawbot": func(t *testing.T, path string) { write(t, filepath.Join(path, "clawbot.cluster"), "Format 2.\n") },
		"dangling link": func(t *testing.T, path string) {
			write(t, filepath.Join(filepath.Dir(path), "x"), "")
			if err := os.Symlink("nowhere", path); err != nil {
				t.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := newDir(t)
			path := filepath.Join(dir, "postgres")
			lay(t, path)
			before := snapshot(t, path)
			_, err := embedded.Start(t.Context(), embedded.Config{DataDir: dir})
			wantOneLine(t, err, path)
			if diff := cmp.Diff(before, snapshot(t, path)); diff != "" {
				t.Errorf("something changed:\n%s", diff)
			}
			if found, _ := filepath.Glob(filepath.Join(dir, "postgres.*")); len(found) > 0 { // not even a lock
				t.Errorf("left behind: %v", found)
			}
		})
	}
}

// An empty directory is not foreign: it may be a volume's subdirectory.
func TestEmptyDirectoryIsUsed(t *testing.T) {
	dir := newDir(t)
	if err := os.MkdirAll(filepath.Join(dir, "postgres"), 0o711); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(dir, 0o711); err != nil {
		t.Fatal(err)
	}
	run(t, start(t, dir), embedded.Service, `SELECT 1`)
}

func TestOtherVersionIsRefused(t *testing.T) {
	dir := withDatabase(t)
	path := filepath.Join(dir, "postgres", "PG_VERSION")
	if err := os.WriteFile(path, []byte("9999\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	before := snapshot(t, filepath.Join(dir, "postgres"))
	_, err := embedded.Start(t.Context(), embedded.Config{DataDir: dir})
	wantOneLine(t, err, "PostgreSQL 9999 is needed", "found only")

	programs, err := embedded.Find()
	if err != nil {
		t.Fatal(err)
	}
	_, err = embedded.Start(t.Context(), embedded.Config{DataDir: dir, Programs: programs})
	wantOneLine(t, err, "install PostgreSQL 9999")
	if diff := cmp.Diff(before, snapshot(t, filepath.Join(dir, "postgres"))); diff != "" {
		t.Errorf("something changed:\n%s", diff)
	}
}

func TestLostKeysAreReplaced(t *testing.T) {
	dir := withDatabase(t)
	s := start(t, dir)
	run(t, s, embedded.Owner, `CREATE TABLE kept (n int)`)
	old := s.URL(embedded.Service).Reveal()
	stop(t, s)
	if err := os.Remove(filepath.Join(dir, "postgres.keys")); err != nil {
		t.Fatal(err)
	}
	s = start(t, dir)
	run(t, s, embedded.Owner, `SELECT * FROM kept`)
	run(t, s, embedded.Service, `SELECT 1`)
	if s.URL(embedded.Service).Reveal() == old {
		t.Error("the password is the old one")
	}
}

func TestLongPath(t *testing.T) {
	dir := filepath.Join(newDir(t), strings.Repeat("long/", 12), strings.Repeat("x", 60))
	s := start(t, dir)
	run(t, s, embedded.Owner, `CREATE TABLE t (n int)`)
	run(t, attach(t, dir), embedded.Owner, `SELECT * FROM t`)

	socket := socketDir(t, s)
	info, err := os.Stat(socket)
	if err != nil {
		t.Fatal(err)
	}
	if info.Mode().Perm() != 0o700 || strings.HasPrefix(socket, dir) {
		t.Errorf("socket in %s, mode %v", socket, info.Mode())
	}
	stop(t, s)
	if _, err := os.Stat(socket); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("%s was left behind: %v", socket, err)
	}
}

// Somebody else's directory at the name of ours must not be used.
func TestLongPathWithTakenRuntimeDir(t *testing.T) {
	dir := filepath.Join(newDir(t), strings.Repeat("long/", 12), strings.Repeat("x", 60))
	s := start(t, dir)
	socket := socketDir(t, s)
	stop(t, s)
	if err := os.Mkdir(socket, 0o777); err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(socket)
	if err := os.Chmod(socket, 0o777); err != nil {
		t.Fatal(err)
	}
	s, err := embedded.Start(t.Context(), embedded.Config{DataDir: dir})
	if err != nil { // there was no second place
		wantOneLine(t, err, socket, "remove it")
		return
	}
	defer stop(t, s)
	if got := socketDir(t, s); got == socket {
		t.Errorf("used %s, which everybody can write to", got)
	}
}

func TestOddPath(t *testing.T) {
	dir := filepath.Join(newDir(t), `a, b "c' d%20?&`)
	run(t, start(t, dir), embedded.Service, `SELECT 1`)
	run(t, attach(t, dir), embedded.Service, `SELECT 1`)
}

func TestClosedParent(t *testing.T) {
	if os.Geteuid() != 0 {
		if os.Getenv("CI") != "" {
			t.Fatal("CI runs as root, and this must be tested there")
		}
		t.Skip("only root runs Postgres as somebody else")
	}
	closed := filepath.Join(newDir(t), "closed")
	if err := os.MkdirAll(filepath.Join(closed, "inner"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(filepath.Dir(closed), 0o711); err != nil {
		t.Fatal(err)
	}
	_, err := embedded.Start(t.Context(), embedded.Config{DataDir: filepath.Join(closed, "inner", "data")})
	wantOneLine(t, err, "chmod a+x "+closed, "CLAWBOT_DATA_DIR")
	info, err := os.Stat(closed)
	if err != nil {
		t.Fatal(err)
	}
	if info.Mode().Perm() != 0o700 {
		t.Errorf("mode of somebody's directory is now %v", info.Mode())
	}
}

// The moment is found by trying: one that is too late makes a whole database.
func TestCancelledStart(t *testing.T) {
	for wait := 150 * time.Millisecond; wait >= time.Millisecond; wait /= 2 {
		dir := newDir(t)
		ctx, cancel := context.WithTimeout(t.Context(), wait)
		s, err := embedded.Start(ctx, embedded.Config{DataDir: dir})
		cancel()
		if err == nil {
			stop(t, s)
			continue
		}
		if found, _ := filepath.Glob(filepath.Join(dir, "postgres.init-*")); len(found) > 0 {
			t.Errorf("left behind: %v", found)
		}
		run(t, start(t, dir), embedded.Service, `SELECT 1`)
		return
	}
	t.Error("no start could be cancelled")
}

func TestGuestBesideOwner(t *testing.T) {
	dir := withDatabase(t)
	s := start(t, dir)
	run(t, s, embedded.Owner, `CREATE TABLE t (n int)`)
	g := attach(t, dir)
	run(t, g, embedded.Owner, `INSERT INTO t VALUES (1)`)
	stop(t, g)
	run(t, s, embedded.Owner, `SELECT * FROM t`)
	stop(t, s)
}

func TestGuestAlone(t *testing.T) {
	dir := withDatabase(t)
	g := attach(t, dir)
	run(t, g, embedded.Owner, `CREATE TABLE t (n int)`)
	stop(t, g)
	if err := try(g, embedded.Owner, `SELECT 1`); err == nil {
		t.Error("Postgres still runs after the only guest has gone")
	}
}

// A command that happened to start Postgres waits for those who use it too.
func TestGuestWaitsForGuests(t *testing.T) {
	dir := withDatabase(t)
	first, second := attach(t, dir), attach(t, dir)
	stopped := make(chan error)
	go func() { stopped <- first.Stop(context.Background()) }()
	select {
	case err := <-stopped:
		t.Fatalf("stopped under the second guest: %v", err)
	case <-time.After(100 * time.Millisecond):
	}
	run(t, second, embedded.Service, `SELECT 1`)
	stop(t, second)
	if err := <-stopped; err != nil {
		t.Error(err)
	}
}

// A service that starts while a command uses the database waits for it.
func TestOwnerWaitsForGuest(t *testing.T) {
	dir := withDatabase(t)
	g := attach(t, dir)
	time.AfterFunc(100*time.Millisecond, func() { stop(t, g) })
	run(t, start(t, dir), embedded.Service, `SELECT 1`)
}

// Asking about a database that is not there makes none, and nothing else.
func TestGuestWithoutDatabase(t *testing.T) {
	dir := newDir(t)
	for _, make := range []bool{false, true} {
		if make {
			if err := os.Mkdir(dir, 0o711); err != nil {
				t.Fatal(err)
			}
		}
		_, err := embedded.Attach(t.Context(), embedded.Config{DataDir: dir})
		wantOneLine(t, err, dir, "clawbot serve")
		if !errors.Is(err, embedded.ErrNoDatabase) {
			t.Errorf("%v is not ErrNoDatabase", err)
		}
		if found, _ := filepath.Glob(filepath.Join(dir, "*")); len(found) > 0 {
			t.Errorf("left behind: %v", found)
		}
	}
}

func BenchmarkStart(b *testing.B) {
	dir := newDir(b)
	stop(b, start(b, dir))
	for b.Loop() {
		s := start(b, dir)
		b.StopTimer()
		stop(b, s)
		b.StartTimer()
	}
}

func BenchmarkStartAndConnect(b *testing.B) {
	dir := newDir(b)
	stop(b, start(b, dir))
	for b.Loop() {
		s := start(b, dir)
		run(b, s, embedded.Service, `SELECT 1`)
		b.StopTimer()
		stop(b, s)
		b.StartTimer()
	}
}

func BenchmarkFirstStart(b *testing.B) {
	for b.Loop() {
		b.StopTimer()
		dir := newDir(b)
		b.StartTimer()
		s := start(b, dir)
		b.StopTimer()
		stop(b, s)
		b.StartTimer()
	}
}

func BenchmarkStop(b *testing.B) {
	dir := newDir(b)
	stop(b, start(b, dir))
	for b.Loop() {
		b.StopTimer()
		s := start(b, dir)
		b.StartTimer()
		stop(b, s)
	}
}
