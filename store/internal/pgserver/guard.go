package pgserver

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
)

// guard is a shell that ends a program when this process has ended.
//
// It reads from a pipe whose other end only this process has. The first line
// says which process or, negative, which group; no other line ever comes. The
// second read ends when we do, also by kill -9, and then the shell sends its
// signal. That works alike on Linux and macOS. Linux' own parent-death signal
// comes when the thread that started the child ends, which in a Go program may
// be any time.
type guard struct {
	sh    *exec.Cmd
	alive *os.File // our end of the pipe
}

const guardScript = `read -r target && { read -r line; kill -s "$1" -- "$target"; }`

// startGuarded starts cmd, which the account made. A signal of KILL is for its
// whole group, any other for the process alone. The guard is there before the
// program is, so there is no moment at which nobody would end it.
func startGuarded(a Account, cmd *exec.Cmd, signal string) (*guard, error) {
	r, w, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("guard %s: %w", filepath.Base(cmd.Path), err)
	}
	g := &guard{
		sh:    a.Command(context.Background(), "/bin/sh", "-c", guardScript, "clawbot-postgres-guard", signal),
		alive: w,
	}
	g.sh.Stdin = r
	err = g.sh.Start()
	r.Close()
	if err != nil {
		w.Close()
		return nil, fmt.Errorf("guard %s as %s: %w", filepath.Base(cmd.Path), a.Name, err)
	}
	if err := cmd.Start(); err != nil {
		g.dismiss()
		return nil, fmt.Errorf("start %s as %s: %w", filepath.Base(cmd.Path), a.Name, err)
	}
	target := cmd.Process.Pid
	if signal == "KILL" {
		target = -target
	}
	if _, err := fmt.Fprintln(w, target); err != nil {
		err = errors.Join(fmt.Errorf("guard %s: %w", filepath.Base(cmd.Path), err), cmd.Cancel(), cmd.Wait())
		g.dismiss()
		return nil, err
	}
	return g, nil
}

// dismiss ends the shell before it can signal a number that is somebody
// else's.
func (g *guard) dismiss() {
	_ = g.sh.Process.Kill()
	_ = g.sh.Wait()
	g.alive.Close()
}

// run runs a program that ends by itself, guarded with all that it starts, and
// returns what it printed. All of them hold the lock.
func run(ctx context.Context, a Account, lock *os.File, stdin io.Reader, name string, args ...string) ([]byte, error) {
	var out bytes.Buffer
	cmd := a.Command(ctx, name, args...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = stdin, &out, &out
	cmd.ExtraFiles = []*os.File{lock}
	g, err := startGuarded(a, cmd, "KILL")
	if err != nil {
		return nil, err
	}
	defer g.dismiss()
	err = cmd.Wait()
	return out.Bytes(), err
}
