package embedded

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/clawbot/clawbot/store/internal/pgserver"
)

const (
	lockName   = "clawbot.lock"
	guestsName = "clawbot.guests"
)

// holder is what the process that holds the lock is.
type holder string

const (
	service holder = "service"
	guest   holder = "command" // gone in a moment
)

// tryLock takes the data directory, and writes into the lock who has it.
func tryLock(dir string, as holder) (*os.File, error) {
	f, err := pgserver.Lock(filepath.Join(dir, lockName), unix.LOCK_EX)
	if err != nil {
		return nil, err
	}
	line := fmt.Appendf(nil, "%s %d\n", as, os.Getpid())
	_, err = f.WriteAt(line, 0)
	if err = errors.Join(err, f.Truncate(int64(len(line)))); err != nil {
		return nil, errors.Join(fmt.Errorf("lock %s: %w", dir, err), f.Close())
	}
	return f, nil
}

// takeLock is tryLock for a service. It gives up soon if another service is
// running, and is patient with a command, which is about to finish, and with a
// process that is gone: a child that it was just starting may hold the lock
// for another moment.
func takeLock(ctx context.Context, dir string) (*os.File, error) {
	for began := time.Now(); ; {
		f, err := tryLock(dir, service)
		if !errors.Is(err, pgserver.ErrLocked) {
			return f, err
		}
		as, pid := readHolder(dir)
		patience := 10 * time.Second
		if as == service && !errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) {
			patience = 300 * time.Millisecond
		}
		if time.Since(began) > patience {
			return nil, fmt.Errorf("take %s: another clawbot is using it (pid %d): stop that one first, or set CLAWBOT_DATA_DIR to another directory", dir, pid)
		}
		if err := pause(ctx); err != nil {
			return nil, err
		}
	}
}

// readHolder says who has the lock; zero while the lock is changing hands.
func readHolder(dir string) (as holder, pid int) {
	f, err := os.Open(filepath.Join(dir, lockName))
	if err != nil {
		return "", 0
	}
	defer f.Close()
	if _, err := fmt.Fscanf(io.LimitReader(f, 64), "%s %d\n", &as, &pid); err != nil {
		return "", 0
	}
	return as, pid
}

// awaitGuests waits until no guest is left, and keeps new ones out until the
// file is closed. It returns nil if ctx ends before that.
func awaitGuests(ctx context.Context, dir string) *os.File {
	for {
		f, err := pgserver.Lock(filepath.Join(dir, guestsName), unix.LOCK_EX)
		if err == nil {
			return f
		}
		if !errors.Is(err, pgserver.ErrLocked) || pause(ctx) != nil {
			return nil
		}
	}
}

func pause(ctx context.Context) error {
	t := time.NewTimer(10 * time.Millisecond)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-t.C:
		return nil
	}
}
