package embedded

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/clawbot/clawbot/store/internal/pgserver"
)

// Programs is an installed PostgreSQL; see [Find].
type Programs = pgserver.Programs

// Config says where the database lives.
type Config struct {
	// DataDir holds the database, its keys and its log. Start makes it if it
	// is not there. Needed.
	DataDir string

	// Programs are the PostgreSQL to run. Zero: what [Find] finds, in the
	// version of the cluster if there is one.
	Programs Programs

	// Log receives a few lines about starts and stops, never a password.
	// Nil: nothing is logged.
	Log *slog.Logger
}

// ErrNoDatabase says that there is no database in the data directory yet.
var ErrNoDatabase = errors.New("no database")

// attachPatience is longer than Postgres takes to start after a crash.
const attachPatience = 30 * time.Second

// Find returns the PostgreSQL programs on PATH, or else the newest in the
// usual places of Debian, Homebrew and Postgres.app. The error is one line
// with the command that installs them.
func Find() (Programs, error) { return pgserver.Find(0) }

// settings are for one small service on a machine that does other things too.
// Nothing here trades safety for speed. They are arguments, not files: each
// start has those of the program that starts.
var settings = map[string]string{
	"fsync":                               "on",
	"full_page_writes":                    "on",
	"synchronous_commit":                  "on",
	"max_connections":                     "50",
	"shared_buffers":                      "32MB",
	"wal_level":                           "minimal", // nobody replicates it
	"max_wal_senders":                     "0",
	"max_logical_replication_workers":     "0",
	"max_parallel_workers_per_gather":     "0", // shared memory is small in containers
	"max_wal_size":                        "256MB",
	"min_wal_size":                        "32MB",
	"jit":                                 "off",
	"timezone":                            "UTC",
	"log_timezone":                        "UTC",
	"password_encryption":                 "scram-sha-256",
	"idle_in_transaction_session_timeout": "60s",

	// Statements and details of errors may quote what people wrote.
	"log_line_prefix":         "%m [%p] %q%u ",
	"log_min_messages":        "warning",
	"log_min_error_statement": "panic",
	"log_error_verbosity":     "terse",
	"log_checkpoints":         "off",
}

// Server is a running Postgres with clawbot's database in it.
type Server struct {
	log       *slog.Logger
	keys      *keys
	socketDir string

	// What we hold, and give back in Stop.
	proc       *pgserver.Process // nil if another process runs it
	output     *logFile
	runtimeDir string   // of the socket, if not the cluster's
	lock       *os.File // nil if another process runs it
	guests     *os.File // shared while we are a guest
	holder     holder

	stop    sync.Once
	stopErr error
}

// Start takes the data directory, makes a database in it if there is none, and
// runs Postgres. A server that a killed clawbot left running is stopped first.
// It fails if another clawbot has the directory; for a short command that just
// uses it, it waits some seconds.
func Start(ctx context.Context, cfg Config) (*Server, error) {
	dir, err := makeDataDir(cfg.DataDir)
	if err != nil {
		return nil, err
	}
	lock, err := takeLock(ctx, dir)
	if err != nil {
		return nil, err
	}
	return run(ctx, cfg, dir, lock, service)
}

// Attach uses the database of a clawbot that runs, without disturbing it, or
// else runs Postgres until Stop. It makes no database: [ErrNoDatabase]. It
// waits, for half a minute at most, while the other one starts or stops.
func Attach(ctx context.Context, cfg Config) (*Server, error) {
	dir, err := filepath.EvalSymlinks(cfg.DataDir)
	if err == nil {
		dir, err = filepath.Abs(dir)
	}
	if errors.Is(err, fs.ErrNotExist) {
		return nil, noDatabase(cfg.DataDir)
	}
	if err != nil {
		return nil, err
	}
	for deadline := time.Now().Add(attachPatience); ; {
		made := func() bool { return exists(filepath.Join(dir, clusterName, markName)) }
		if !made() && !exists(filepath.Join(dir, lockName)) {
			return nil, noDatabase(cfg.DataDir) // and no lock left in what may be anyone's directory
		}
		lock, err := tryLock(dir, guest)
		switch {
		case err == nil && made():
			return run(ctx, cfg, dir, lock, guest)
		case err == nil:
			return nil, errors.Join(noDatabase(cfg.DataDir), lock.Close())
		}
		if !errors.Is(err, pgserver.ErrLocked) {
			return nil, err
		}
		if s, err := join(cfg, dir); s != nil || err != nil {
			return s, err
		}
		if time.Now().After(deadline) {
			_, pid := readHolder(dir)
			return nil, fmt.Errorf("open the database in %s: the clawbot that runs it (pid %d) has none that answers: restart that one", dir, pid)
		}
		if err := pause(ctx); err != nil {
			return nil, fmt.Errorf("wait for the database in %s: %w", dir, err)
		}
	}
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return !errors.Is(err, fs.ErrNotExist)
}

func noDatabase(dir string) error {
	return fmt.Errorf("%w in %s: run \"clawbot serve\" once, or set CLAWBOT_DATA_DIR or DATABASE_URL", ErrNoDatabase, dir)
}

// run runs Postgres for the holder of the lock, and gives the lock back if it
// cannot.
func run(ctx context.Context, cfg Config, dir string, lock *os.File, as holder) (_ *Server, err error) {
	began := time.Now()
	s := &Server{log: cmp.Or(cfg.Log, slog.New(slog.DiscardHandler)), lock: lock, holder: as}
	defer func() {
		if err != nil {
			s.release()
		}
	}()

	c := cluster{dataDir: dir, dir: filepath.Join(dir, clusterName), programs: cfg.Programs, log: s.log}
	defer func() { c.lock.Close() }() // the server has it by then, or nobody needs it
	if err := c.open(ctx); err != nil {
		return nil, err
	}
	s.keys = &c.keys
	if s.socketDir = c.dir; !pgserver.SocketFits(c.dir) {
		if s.runtimeDir, err = makeRuntimeDir(c.account, c.dir); err != nil {
			return nil, err
		}
		s.socketDir = s.runtimeDir
	}
	if s.output, err = openLog(filepath.Join(dir, "postgres.log")); err != nil {
		return nil, err
	}
	s.proc, err = pgserver.Start(ctx, pgserver.Config{
		Programs:  c.programs,
		Account:   c.account,
		Dir:       c.dir,
		SocketDir: s.socketDir,
		Settings:  settings,
		Lock:      c.lock,
		Log:       s.output,
	})
	if err != nil {
		return nil, err
	}
	s.log.Info("postgres started", "version", c.programs.Major, "dir", c.dir, "took", time.Since(began).Round(time.Millisecond))
	return s, nil
}

// join makes us a guest of the server that another process runs, or returns
// nil if it is not there (yet, or any more).
func join(cfg Config, dir string) (*Server, error) {
	guests, err := pgserver.Lock(filepath.Join(dir, guestsName), unix.LOCK_SH)
	if errors.Is(err, pgserver.ErrLocked) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	s := &Server{log: cmp.Or(cfg.Log, slog.New(slog.DiscardHandler)), guests: guests, holder: guest}
	socketDir, ready, err := pgserver.Running(filepath.Join(dir, clusterName))
	if err == nil && ready {
		var k keys
		k, err = readKeys(dir)
		s.keys, s.socketDir = &k, socketDir
	}
	if err != nil || !ready {
		s.release()
		return nil, err
	}
	return s, nil
}

// URL is how to connect in a role.
func (s *Server) URL(role Role) URL { return newURL(role, s.keys.of(role), s.socketDir) }

// Done is closed when Postgres has ended, be it by Stop or because it
// crashed. It is nil if another process runs it.
func (s *Server) Done() <-chan struct{} {
	if s.proc == nil {
		return nil
	}
	return s.proc.Done()
}

// Stop ends the server, if it is this process that runs it, and gives the data
// directory back. Clients are broken off; nothing committed is lost. If ctx
// ends before Postgres has, or after 15 seconds, it is stopped at once, which
// the error says. A short command waits for others that use its server, until
// ctx ends. Later calls return what the first did.
func (s *Server) Stop(ctx context.Context) error {
	s.stop.Do(func() {
		if s.proc != nil && s.holder == guest {
			s.guests = awaitGuests(ctx, filepath.Dir(s.lock.Name()))
		}
		if s.proc != nil {
			s.stopErr = s.proc.Stop(ctx)
			s.log.Info("postgres stopped")
		}
		s.release()
	})
	return s.stopErr
}

// release gives back everything but the process. The order matters: whoever
// gets the lock finds nothing of ours.
func (s *Server) release() {
	if s.output != nil {
		s.output.Close()
	}
	if s.runtimeDir != "" {
		_ = os.Remove(s.runtimeDir) // empty by now; if not, the next start uses it
	}
	if s.lock != nil {
		s.lock.Close()
	}
	if s.guests != nil {
		s.guests.Close()
	}
}
