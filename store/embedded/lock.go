package embedded

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
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

// errLocked says that another process has the lock.
var errLocked = errors.New("locked")

const (
	shared    = unix.LOCK_SH
	exclusive = unix.LOCK_EX
)

// lockFile locks path until it is closed or this process ends, or returns
// errLocked at once.
func lockFile(path string, how int) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	err = unix.Flock(int(f.Fd()), how|unix.LOCK_NB)
	if err == nil {
		return f, nil
	}
	f.Close()
	if errors.Is(err, unix.EWOULDBLOCK) {
		return nil, errLocked
	}
	return nil, fmt.Errorf("lock %s: %w", path, err)
}

// tryLock takes the data directory, and writes into the lock who has it.
func tryLock(dir string, as holder) (*os.File, error) {
	f, err := lockFile(filepath.Join(dir, lockName), exclusive)
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

// takeLock is tryLock for a service. It lets a command finish, and gives up at
// once if another service is running.
func takeLock(ctx context.Context, dir string) (*os.File, error) {
	for deadline := time.Now().Add(10 * time.Second); ; {
		f, err := tryLock(dir, service)
		if !errors.Is(err, errLocked) {
			return f, err
		}
		as, pid := readHolder(dir)
		if as == service || time.Now().After(deadline) {
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
		f, err := lockFile(filepath.Join(dir, guestsName), exclusive)
		if err == nil {
			return f
		}
		if !errors.Is(err, errLocked) || pause(ctx) != nil {
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
