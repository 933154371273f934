package pgserver

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// pidFile is what Postgres writes to postmaster.pid in its cluster.
type pidFile struct {
	pid       int
	socketDir string
	segment   int  // of System V shared memory; -1: none
	ready     bool // accepts connections
}

// readPidFile reads postmaster.pid of the cluster in dir: line 1 is the
// process, line 5 the socket's directory, line 7 key and number of a shared
// memory segment, line 8 the status, with blanks behind it. The file is
// written piecemeal: what is not there yet is zero.
// Without the file it returns an error that wraps fs.ErrNotExist.
func readPidFile(dir string) (pidFile, error) {
	b, err := os.ReadFile(filepath.Join(dir, "postmaster.pid"))
	if err != nil {
		return pidFile{}, err
	}
	lines := strings.Split(string(b), "\n")
	f := pidFile{segment: -1}
	if f.pid, err = strconv.Atoi(strings.TrimSpace(lines[0])); err != nil {
		return pidFile{}, nil
	}
	if len(lines) > 4 {
		f.socketDir = strings.TrimSpace(lines[4])
	}
	if len(lines) > 6 {
		if _, number, ok := strings.Cut(strings.TrimSpace(lines[6]), " "); ok {
			if n, err := strconv.Atoi(strings.TrimSpace(number)); err == nil {
				f.segment = n
			}
		}
	}
	if len(lines) > 7 {
		f.ready = strings.TrimSpace(lines[7]) == "ready"
	}
	return f, nil
}

// Running reports whether a server runs on the cluster in dir and accepts
// connections, and in which directory its socket is.
func Running(dir string) (socketDir string, ready bool, err error) {
	f, err := readPidFile(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return "", false, nil
	}
	if err != nil {
		return "", false, err
	}
	alive, err := serves(f.pid, dir)
	return f.socketDir, alive && f.ready, err
}

// Discard removes a cluster that nothing runs on. If its last server was
// killed, a segment of System V shared memory outlived it, which only the next
// server on the cluster would remove.
func Discard(dir string) error {
	f, err := readPidFile(dir)
	if err == nil && f.segment >= 0 {
		var desc unix.SysvShmDesc
		_, err := unix.SysvShmCtl(f.segment, unix.IPC_STAT, &desc)
		if err == nil && desc.Segsz < 4096 && desc.Nattch == 0 { // small and nobody's: it is what we think it is
			_, _ = unix.SysvShmCtl(f.segment, unix.IPC_RMID, nil)
		}
	}
	return os.RemoveAll(dir)
}

// serves reports whether process pid is a server on the cluster in dir. A pid
// file outlives a power failure, and its number may be anyone's after that.
func serves(pid int, dir string) (bool, error) {
	if pid <= 1 || errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) {
		return false, nil
	}
	args, err := commandLine(pid)
	if err != nil {
		return false, err
	}
	// A zombie has no command line, so it serves nothing.
	return strings.Contains(args, "postgres") && strings.Contains(args+" ", " -D "+dir+" "), nil
}

// commandLine is how process pid was started: from /proc on Linux, and from
// ps elsewhere. It is empty if the process is gone.
func commandLine(pid int) (string, error) {
	if _, err := os.Stat("/proc/self/cmdline"); err == nil {
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ESRCH) {
			return "", nil
		}
		if err != nil {
			return "", fmt.Errorf("look at process %d: %w", pid, err)
		}
		return string(bytes.ReplaceAll(b, []byte{0}, []byte{' '})), nil
	}
	out, err := exec.Command("ps", "-ww", "-o", "command=", "-p", strconv.Itoa(pid)).Output()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("look at process %d: %w", pid, err)
	}
	return string(out), nil
}

func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-t.C:
		return nil
	}
}
