package pgserver

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// ErrLocked says that a lock is held.
var ErrLocked = errors.New("locked")

// Lock takes the lock of a file, which it makes if it is not there, or returns
// [ErrLocked] at once. how is unix.LOCK_EX or unix.LOCK_SH. The lock is held
// until the file is closed by everyone who has it: this process and the
// children that it was passed to.
func Lock(path string, how int) (*os.File, error) {
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
		return nil, ErrLocked
	}
	return nil, fmt.Errorf("lock %s: %w", path, err)
}

// Claim sees to it that nothing runs on the cluster in dir, and returns the
// lock that every process of the next server has to hold; see [Config]. A
// server that a killed process left is stopped: fast, after ten seconds at
// once, and after ten more by force. The caller keeps others from doing the
// same.
//
// The pid file alone would not do. It is not there yet while a server starts,
// it is still there when its number has become another program's, and it says
// nothing about children that outlive their killed parent. The lock goes when
// the last of them goes.
func Claim(ctx context.Context, dir, lockPath string) (lock *os.File, stopped bool, err error) {
	var told struct {
		pid int
		sig syscall.Signal
	}
	for began := time.Now(); ; {
		lock, err := Lock(lockPath, unix.LOCK_EX)
		if err == nil {
			if err := removeStale(dir); err != nil {
				return nil, stopped, errors.Join(err, lock.Close())
			}
			return lock, stopped, nil
		}
		if !errors.Is(err, ErrLocked) {
			return nil, stopped, err
		}

		var sig syscall.Signal
		switch waited := time.Since(began); {
		case waited < 10*time.Second:
			sig = syscall.SIGINT
		case waited < 20*time.Second:
			sig = syscall.SIGQUIT
		case waited < 30*time.Second:
			sig = syscall.SIGKILL
		default:
			return nil, stopped, fmt.Errorf("stop Postgres that an earlier process left running on %s: it does not end: end it by hand", dir)
		}
		f, err := readPidFile(dir)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, stopped, err
		}
		alive, err := serves(f.pid, dir)
		if err != nil {
			return nil, stopped, err
		}
		if alive && (told.pid != f.pid || told.sig != sig) {
			if err := syscall.Kill(f.pid, sig); err != nil && !errors.Is(err, syscall.ESRCH) {
				return nil, stopped, fmt.Errorf("stop Postgres that an earlier process left running on %s (pid %d): %w", dir, f.pid, err)
			}
			told.pid, told.sig, stopped = f.pid, sig, true
		}
		if err := sleep(ctx, 2*time.Millisecond); err != nil {
			return nil, stopped, err
		}
	}
}

// removeStale removes the pid file, whose number may be a zombie's or a
// stranger's by now: Postgres would take either for a server.
func removeStale(dir string) error {
	err := os.Remove(filepath.Join(dir, "postmaster.pid"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}
