package pgtest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/clawbot/clawbot/store/internal/pgserver"
)

// DedicatedServer is a server that belongs to one test, which may stop and
// kill it. Its URLs stay the same.
type DedicatedServer struct {
	*Server
	t    testing.TB
	cfg  pgserver.Config
	proc *pgserver.Process // nil while it is down
}

// Dedicated starts a server for this test alone. Like the shared one it syncs
// nothing to disk, but what was committed survives [DedicatedServer.Kill]. It
// ends with the test.
func Dedicated(t testing.TB) *DedicatedServer {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	p, err := startPrivate(ctx, inMemory, throwaway, nil)
	if err != nil {
		t.Fatalf("pgtest: %v", err)
	}
	s := &DedicatedServer{Server: p.Server, t: t, cfg: p.cfg, proc: p.proc}
	t.Cleanup(func() {
		s.Kill()
		if err := p.discard(); err != nil {
			t.Errorf("pgtest: %v", err)
		}
	})
	return s
}

// DurableServer is a server on a disk that syncs to it as in production. It
// belongs to a program such as the benchmarks, which closes it.
type DurableServer struct{ private }

// New starts a durable server; log gets what Postgres logs and may be nil.
func New(ctx context.Context, log io.Writer) (*DurableServer, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	settings := maps.Clone(throwaway)
	maps.Copy(settings, map[string]string{"fsync": "on", "full_page_writes": "on", "autovacuum": "on"})
	p, err := startPrivate(ctx, os.TempDir, settings, log)
	if err != nil {
		return nil, err
	}
	return &DurableServer{p}, nil
}

// Create makes an empty database and returns its URL.
func (s *DurableServer) Create(ctx context.Context, name string) (string, error) {
	if err := s.copyDatabase(ctx, name, "template0"); err != nil {
		return "", fmt.Errorf("create database %s: %w", name, err)
	}
	return s.URL(name), nil
}

// Close ends the server and removes all that is in it.
func (s *DurableServer) Close() error {
	s.proc.Kill()
	return s.discard()
}

// private is a server with a directory of its own, which nobody else joins.
type private struct {
	*Server
	dir  string
	lock *os.File // tells sweep that somebody uses dir
	cfg  pgserver.Config
	proc *pgserver.Process
}

func startPrivate(ctx context.Context, place func() string, settings map[string]string, log io.Writer) (private, error) {
	i, err := findInstallation(place)
	if err != nil {
		return private{}, err
	}
	dir, lock, err := i.claimDir(ctx)
	if err != nil {
		return private{}, err
	}
	p := private{Server: serverIn(dir), dir: dir, lock: lock}
	p.disposable = true
	err = i.runIn(ctx, dir, settings, func(cfg pgserver.Config) (err error) {
		cfg.Log = log
		p.cfg = cfg
		p.proc, err = pgserver.Start(ctx, cfg)
		return err
	})
	if err != nil {
		return private{}, errors.Join(err, p.discard())
	}
	return p, nil
}

// discard removes the directory of a server that has ended.
func (p private) discard() error {
	return errors.Join(remove(context.Background(), p.dir), p.lock.Close())
}

// claimDir makes a directory whose lock tells [sweep] that its test still
// runs.
func (i installation) claimDir(ctx context.Context) (string, *os.File, error) {
	home, err := i.home()
	if err != nil {
		return "", nil, err
	}
	door, err := awaitLock(ctx, filepath.Join(home, guardLock))
	if err != nil {
		return "", nil, err
	}
	defer door.Close()
	if err := sweep(ctx, home); err != nil {
		return "", nil, err
	}
	dir, err := i.newDir(home)
	if err != nil {
		return "", nil, err
	}
	lock, err := pgserver.Lock(filepath.Join(dir, guardLock), unix.LOCK_EX)
	return dir, lock, err
}

// Stop shuts the server down as an administrator would: clients are broken
// off, nothing is lost.
func (s *DedicatedServer) Stop() {
	s.t.Helper()
	if s.proc == nil {
		return
	}
	if err := s.proc.Stop(context.Background()); err != nil {
		s.t.Fatalf("pgtest: %v", err)
	}
	s.proc = nil
}

// Kill ends the server as kill -9 would, and waits until it is gone.
func (s *DedicatedServer) Kill() {
	if s.proc != nil {
		s.proc.Kill()
		s.proc = nil
	}
}

// Start starts the server again after Stop or Kill.
func (s *DedicatedServer) Start() {
	s.t.Helper()
	if s.proc != nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	lock, _, err := pgserver.Claim(ctx, s.cfg.Dir, filepath.Join(filepath.Dir(s.cfg.Dir), runLock))
	if err != nil {
		s.t.Fatalf("pgtest: %v", err)
	}
	defer lock.Close() // the server has it by then
	s.cfg.Lock = lock
	if s.proc, err = pgserver.Start(ctx, s.cfg); err != nil {
		s.t.Fatalf("pgtest: %v", err)
	}
}
