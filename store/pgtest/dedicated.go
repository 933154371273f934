package pgtest

import (
	"context"
	"errors"
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
	return dedicated(t, inMemory, throwaway)
}

// Durable starts a server for this test alone, on a disk, and syncs to it as
// in production: benchmarks whose numbers shall mean something need it.
func Durable(t testing.TB) *DedicatedServer {
	t.Helper()
	settings := maps.Clone(throwaway)
	maps.Copy(settings, map[string]string{"fsync": "on", "full_page_writes": "on", "autovacuum": "on"})
	return dedicated(t, os.TempDir, settings)
}

func dedicated(t testing.TB, place func() string, settings map[string]string) *DedicatedServer {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	i, err := findInstallation(place)
	if err != nil {
		t.Fatalf("pgtest: %v", err)
	}
	dir, lock, err := i.claimDir(ctx)
	if err != nil {
		t.Fatalf("pgtest: %v", err)
	}
	t.Cleanup(func() {
		if err := errors.Join(remove(context.Background(), dir), lock.Close()); err != nil {
			t.Errorf("pgtest: %v", err)
		}
	})
	s := &DedicatedServer{Server: serverIn(dir), t: t}
	s.disposable = true
	err = i.runIn(ctx, dir, settings, func(cfg pgserver.Config) (err error) {
		s.cfg = cfg
		s.proc, err = pgserver.Start(ctx, cfg)
		return err
	})
	if err != nil {
		t.Fatalf("pgtest: %v", err)
	}
	t.Cleanup(s.Kill)
	return s
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
