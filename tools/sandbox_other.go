//go:build !linux

package tools

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"syscall"
)

// SandboxStatus reports what confines commands here: nothing.
func SandboxStatus() Status {
	return Status{Sandbox: SandboxNone, Reason: "clawbot confines commands on Linux only, not on " + runtime.GOOS}
}

func selfExe() (string, error) { return os.Executable() }

func systemDirs() []string { return nil }

func sandboxUser(string) (uid, gid int, override bool) { return 0, 0, false }

// adoptOrphans cannot be done here: a process that leaves the command's group
// by setsid outlives it.
func adoptOrphans() error { return nil }

func commandAttr(bool) *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

func stopTree() {}

func canMount(string) bool { return false }

func mountReadOnly(string) error { return errors.ErrUnsupported }

func endTree(group int) int {
	syscall.Kill(-group, syscall.SIGKILL)
	return 0
}

func become(s spec, dir int, command string) error {
	if s.Sandbox != SandboxNone {
		return fmt.Errorf("there is no sandbox %s on %s", s.Sandbox, runtime.GOOS)
	}
	if err := syscall.Fchdir(dir); err != nil {
		return fmt.Errorf("enter the directory: %w", err)
	}
	if err := syscall.Setrlimit(syscall.RLIMIT_CPU, &syscall.Rlimit{Cur: uint64(s.CPUSeconds), Max: uint64(s.CPUSeconds)}); err != nil {
		return fmt.Errorf("limit CPU time: %w", err)
	}
	err := syscall.Exec("/bin/sh", []string{"sh", "-c", command}, s.Env)
	return fmt.Errorf("start /bin/sh: %w", err)
}
