package tools

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
	"time"
)

// A command runs below two processes, both this program under another name:
//
//	clawbot ──► supervisor ──► confine ═exec═► /bin/sh -c command
//
// The supervisor holds a pipe whose other end only clawbot has. When that end
// closes, because the time is up, the turn is cancelled or clawbot died, the
// supervisor ends the command with all its descendants; the same it does with
// those that are left when the command ended by itself. The second process
// gives up every right that a command must not have, and becomes the shell.
const (
	sandboxName = "clawbot-sandbox" // os.Args[0] of both
	sandboxMark = "CLAWBOT_SANDBOX" // environment variable of both
	nobody      = 65534             // user and group for commands of a root's clawbot
)

// spec is what both processes are told.
type spec struct {
	Workspace  string   `json:"workspace"`
	Sandbox    string   `json:"sandbox"`
	Read       []string `json:"read,omitempty"` // system paths that may be read and executed
	UID        int      `json:"uid,omitempty"`  // when clawbot is root: the user to become
	GID        int      `json:"gid,omitempty"`
	Override   bool     `json:"override,omitempty"` // that user reaches the workspace by CAP_DAC_OVERRIDE only
	Mounts     bool     `json:"mounts,omitempty"`   // all but the workspace is mounted read-only
	Workdir    string   `json:"workdir,omitempty"`  // relative to the workspace
	CPUSeconds int      `json:"cpu_seconds"`
	Env        []string `json:"env"`
}

// ending says how a command ended.
type ending struct {
	Exit    int    `json:"exit"`
	Signal  string `json:"signal,omitempty"`
	Left    int    `json:"left,omitempty"`  // processes that were ended after it
	Error   string `json:"error,omitempty"` // it was not run
	Stopped string `json:"-"`               // by clawbot, and why
}

// Status says what confines commands on this machine.
type Status struct {
	Sandbox string   // SandboxLandlock, or SandboxNone if there is nothing
	Reason  string   // if there is nothing: why
	Limits  []string // what this machine's sandbox does not keep a command from
}

// SandboxMain turns the process into the shell tool's supervisor or command if
// it was started as one, and then does not return. Call it first thing in main,
// before settings are read or anything is started.
func SandboxMain() {
	if len(os.Args) != 4 || os.Args[0] != sandboxName || os.Getenv(sandboxMark) == "" {
		return
	}
	var s spec
	if err := json.Unmarshal([]byte(os.Args[2]), &s); err != nil {
		os.Exit(126)
	}
	switch os.Args[1] {
	case "supervise":
		supervisor(s, os.Args[2], os.Args[3])
	case "mounts":
		if err := mountReadOnly(s.Workspace); err == nil {
			os.Exit(0)
		}
	case "confine":
		report := os.NewFile(3, "status")
		syscall.CloseOnExec(3)
		syscall.CloseOnExec(4)
		err := become(s, 4, os.Args[3])
		json.NewEncoder(report).Encode(ending{Error: err.Error()})
	}
	os.Exit(126)
}

// supervise starts the supervisor and waits until it and all below it are gone.
func supervise(ctx context.Context, exe string, s spec, env []string, command string, dir *os.File, out io.Writer, timeout time.Duration) (ending, error) {
	s.Env = env
	told, err := json.Marshal(s)
	if err != nil {
		return ending{}, err
	}
	var pipes [3][2]*os.File // life, status, output
	for i := range pipes {
		r, w, err := os.Pipe()
		if err != nil {
			return ending{}, err
		}
		defer r.Close()
		defer w.Close()
		pipes[i] = [2]*os.File{r, w}
	}
	life, status, output := pipes[0], pipes[1], pipes[2]
	cmd := &exec.Cmd{
		Path:       exe,
		Args:       []string{sandboxName, "supervise", string(told), command},
		Env:        []string{sandboxMark + "=1"},
		Dir:        "/",
		Stdout:     output[1],
		Stderr:     output[1],
		ExtraFiles: []*os.File{life[0], status[1], dir}, // 3, 4, 5
		// A session of its own: no terminal, and signals for clawbot's group pass by.
		SysProcAttr: &syscall.SysProcAttr{Setsid: true},
	}
	if ctx.Err() != nil {
		return ending{Stopped: "stopped before it began"}, nil
	}
	if err := cmd.Start(); err != nil {
		return ending{}, err
	}
	life[0].Close()
	status[1].Close()
	output[1].Close()

	tooMuch := make(chan struct{})
	copied := make(chan struct{})
	go func() {
		defer close(copied)
		buf := make([]byte, 64<<10)
		var total int64
		for {
			n, err := output[0].Read(buf)
			if total <= maxOutput {
				out.Write(buf[:n])
				if total += int64(n); total > maxOutput {
					close(tooMuch)
				}
			}
			if err != nil {
				return
			}
		}
	}()
	exited := make(chan error, 1)
	go func() { exited <- cmd.Wait() }()

	timer := time.NewTimer(timeout)
	defer timer.Stop()
	stopped := ""
	select {
	case <-exited:
	case <-ctx.Done():
		stopped = "stopped: the call was cancelled"
	case <-timer.C:
		stopped = fmt.Sprintf("stopped after %v, the time limit", timeout)
	case <-tooMuch:
		stopped = fmt.Sprintf("stopped after %d MiB of output", maxOutput>>20)
	}
	if stopped != "" {
		life[1].Close()
		select {
		case <-exited:
		case <-time.After(45 * time.Second): // it hangs itself
			syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
			<-exited
		}
	}
	// Nobody should hold the output any more; who does anyway is not waited for.
	output[0].SetReadDeadline(time.Now().Add(2 * time.Second))
	<-copied
	status[0].SetReadDeadline(time.Now().Add(2 * time.Second))
	end := ending{Exit: -1}
	lines := bufio.NewScanner(io.LimitReader(status[0], 64<<10))
	for reports := 0; lines.Scan(); reports++ {
		var e ending
		if json.Unmarshal(lines.Bytes(), &e) == nil && end.Error == "" {
			end = e
		}
	}
	switch {
	case end.Error != "":
		return end, errors.New(end.Error)
	case stopped != "":
		end.Stopped = stopped
	case end.Exit == -1 && end.Signal == "":
		return end, errors.New("its supervisor ended without a report")
	}
	return end, nil
}

// supervisor runs in the first process: fd 3 is the pipe of life, 4 the status,
// 5 the directory.
func supervisor(s spec, told, command string) {
	life, status, dir := os.NewFile(3, "life"), os.NewFile(4, "status"), os.NewFile(5, "dir")
	for fd := 3; fd <= 5; fd++ {
		syscall.CloseOnExec(fd)
	}
	signal.Ignore(syscall.SIGHUP, syscall.SIGINT, syscall.SIGTERM, syscall.SIGPIPE)
	end := func(e ending) {
		json.NewEncoder(status).Encode(e)
		os.Exit(0)
	}
	if err := adoptOrphans(); err != nil {
		end(ending{Error: err.Error()})
	}
	exe, err := selfExe()
	if err != nil {
		end(ending{Error: err.Error()})
	}
	cmd := &exec.Cmd{
		Path:        exe,
		Args:        []string{sandboxName, "confine", told, command},
		Env:         []string{sandboxMark + "=1"},
		Stdout:      os.Stdout,
		Stderr:      os.Stderr,
		ExtraFiles:  []*os.File{status, dir}, // 3, 4
		SysProcAttr: commandAttr(s.Mounts),
	}
	if err := cmd.Start(); err != nil {
		end(ending{Error: err.Error()})
	}
	go func() {
		io.Copy(io.Discard, life)
		stopTree()
		syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
		cmd.Process.Kill()
	}()
	cmd.Wait()
	e := ending{Left: endTree(cmd.Process.Pid)}
	if ws, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
		e.Signal = ws.Signal().String()
	} else {
		e.Exit = cmd.ProcessState.ExitCode()
	}
	end(e)
}
