package pgtest

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/clawbot/clawbot/store/internal/pgserver"
)

// Files in the directory of one server.
const (
	dataDir   = "data"
	alivePipe = "alive"   // its writers are the test binaries that use the server
	guardLock = "lock"    // held by whoever will remove the directory
	runLock   = "running" // held by every process of the server
	serverLog = "postgres.log"
)

// joined is the server that this test binary uses. It is the one variable of
// the package: the server is shared by the whole process, and the open pipe
// keeps it alive until the process ends.
var joined struct {
	sync.Mutex
	server *Server
	alive  *os.File
}

// Shared is the server that all test binaries of this checkout use.
func Shared(t testing.TB) *Server {
	t.Helper()
	joined.Lock()
	defer joined.Unlock()
	if joined.server != nil {
		return joined.server
	}
	if raw := os.Getenv("CLAWBOT_TEST_POSTGRES"); raw != "" {
		u, err := url.Parse(raw)
		if err != nil || u.Scheme != "postgres" && u.Scheme != "postgresql" {
			t.Fatal("pgtest: CLAWBOT_TEST_POSTGRES is not a postgres:// URL")
		}
		joined.server = &Server{base: *u}
		return joined.server
	}
	server, alive, err := join(t.Context())
	if err != nil {
		t.Fatalf("pgtest: %v", err)
	}
	joined.server, joined.alive = server, alive
	return server
}

// join finds the checkout's server or starts one. The file keeps it alive for
// as long as it is open.
func join(ctx context.Context) (*Server, *os.File, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	i, err := findInstallation(inMemory)
	if err != nil {
		return nil, nil, err
	}
	home, err := i.home()
	if err != nil {
		return nil, nil, err
	}
	// One at a time, so that the second joins what the first has started.
	lock, err := awaitLock(ctx, filepath.Join(home, guardLock))
	if err != nil {
		return nil, nil, err
	}
	defer lock.Close()

	current := filepath.Join(home, "current")
	if name, err := os.ReadFile(current); err == nil {
		dir := filepath.Join(home, filepath.Base(string(name)))
		if alive, err := openAlive(dir); err == nil {
			server := serverIn(dir)
			if server.exec(ctx, "SELECT 1") == nil {
				return server, alive, nil
			}
			alive.Close()
		}
	}
	if err := sweep(ctx, home); err != nil {
		return nil, nil, err
	}
	dir, err := i.newDir(home)
	if err != nil {
		return nil, nil, err
	}
	alive, err := i.startShared(ctx, dir)
	if err != nil {
		return nil, nil, errors.Join(err, os.RemoveAll(dir))
	}
	if err := os.WriteFile(current, []byte(filepath.Base(dir)), 0o600); err != nil {
		alive.Close()
		return nil, nil, err
	}
	return serverIn(dir), alive, nil
}

// openAlive joins the users of the server in dir. It fails if its guard has
// seen the last one go.
func openAlive(dir string) (*os.File, error) {
	fd, err := unix.Open(filepath.Join(dir, alivePipe), unix.O_WRONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), alivePipe), nil
}

// guardScript reads process ids, of which the last counts, until the end of
// file. Then it closes the door, and waits again for those who came in before
// that. It stops Postgres if the pid file still names it, and removes the
// directory, which ends a server that was only just starting.
const guardScript = `
await() { while read -r pid; do server=$pid; done; }
server=none
await
rm -f "$1/alive"
await
if [ "$(head -n 1 "$1/data/postmaster.pid" 2>/dev/null)" = "$server" ]; then kill -QUIT "$server"; fi
n=0
while [ -e "$1/data/postmaster.pid" ] && [ $n -lt 500 ]; do sleep 0.02; n=$((n + 1)); done
rm -rf "$1"
`

// startShared starts Postgres and its guard in dir. The file is the first
// user's hold on it.
func (i installation) startShared(ctx context.Context, dir string) (alive *os.File, err error) {
	if alive, err = startGuard(dir); err != nil {
		return nil, err
	}
	log, err := os.Create(filepath.Join(dir, serverLog))
	if err == nil {
		defer log.Close()
		err = i.runIn(ctx, dir, throwaway, func(cfg pgserver.Config) error {
			return pgserver.Detach(ctx, cfg, log, func(pid int) error {
				_, err := fmt.Fprintln(alive, pid)
				return err
			})
		})
	}
	if err != nil {
		return nil, errors.Join(err, alive.Close())
	}
	return alive, nil
}

// startGuard starts the guard of dir. It is there before the server is, so
// that there is no moment at which nobody would stop it.
func startGuard(dir string) (alive *os.File, err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("start a guard for %s: %w", dir, err)
		}
	}()
	pipe := filepath.Join(dir, alivePipe)
	if err := unix.Mkfifo(pipe, 0o600); err != nil {
		return nil, err
	}
	fd, err := unix.Open(pipe, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	err = unix.SetNonblock(fd, false) // the guard wants to wait
	reader := os.NewFile(uintptr(fd), pipe)
	defer reader.Close() // the guard has its own
	if err != nil {
		return nil, err
	}
	if alive, err = openAlive(dir); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			alive.Close()
		}
	}()
	lock, err := pgserver.Lock(filepath.Join(dir, guardLock), unix.LOCK_EX)
	if err != nil {
		return nil, err
	}
	defer lock.Close() // the guard has its own

	guard := exec.Command("/bin/sh", "-c", guardScript, "pgtest-guard", dir)
	guard.Dir = "/"
	guard.Stdin = reader
	guard.ExtraFiles = []*os.File{lock}
	guard.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := guard.Start(); err != nil {
		return nil, err
	}
	return alive, guard.Process.Release()
}

// sweep removes what killed guards and killed tests left in home, and stops
// the servers in it.
func sweep(ctx context.Context, home string) error {
	dirs, err := filepath.Glob(filepath.Join(home, "server-*"))
	if err != nil {
		return err
	}
	for _, dir := range dirs {
		lock, err := pgserver.Lock(filepath.Join(dir, guardLock), unix.LOCK_EX)
		if errors.Is(err, pgserver.ErrLocked) || errors.Is(err, fs.ErrNotExist) {
			continue // it has a guard, or went a moment ago
		}
		if err != nil {
			return err
		}
		err = remove(ctx, dir)
		if err := errors.Join(err, lock.Close()); err != nil {
			return err
		}
	}
	return nil
}

// remove stops what runs in dir and removes it.
func remove(ctx context.Context, dir string) error {
	data := filepath.Join(dir, dataDir)
	running, _, err := pgserver.Claim(ctx, data, filepath.Join(dir, runLock))
	if err != nil {
		return err
	}
	return errors.Join(pgserver.Discard(data), os.RemoveAll(dir), running.Close())
}

// awaitLock takes the lock of a file as soon as it is free.
func awaitLock(ctx context.Context, path string) (*os.File, error) {
	for {
		f, err := pgserver.Lock(path, unix.LOCK_EX)
		if !errors.Is(err, pgserver.ErrLocked) {
			return f, err
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("lock %s: %w", path, context.Cause(ctx))
		case <-time.After(5 * time.Millisecond):
		}
	}
}

func serverIn(dir string) *Server {
	return &Server{base: url.URL{
		Scheme:   "postgres",
		User:     url.User(pgserver.Superuser),
		Path:     "/postgres",
		RawQuery: pgserver.SocketQuery(filepath.Join(dir, dataDir)),
	}}
}

// checkout identifies the module that the running test belongs to, so that
// two checkouts with different schemas and roles don't share a server.
func checkout() string {
	dir, err := os.Getwd()
	if err != nil {
		dir = "/"
	}
	for d := dir; ; d = filepath.Dir(d) {
		if _, err := os.Stat(filepath.Join(d, "go.mod")); err == nil {
			dir = d
			break
		}
		if d == filepath.Dir(d) {
			break
		}
	}
	sum := sha256.Sum256([]byte(dir))
	return hex.EncodeToString(sum[:4])
}
