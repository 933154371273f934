package hooks

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"
)

// inherited are the variables that a command gets. All others stay here: secrets are
// among them.
var inherited = []string{"PATH", "HOME", "LANG", "LC_ALL", "TMPDIR", "TZ", "USER"}

// command runs a program without a shell, the document on its standard input. At the
// end of its time it is killed with whatever it has started.
func command(argv []string) func(context.Context, []byte) ([]byte, error) {
	return func(ctx context.Context, doc []byte) ([]byte, error) {
		cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
		cmd.Stdin = bytes.NewReader(doc)
		var out bytes.Buffer
		cmd.Stdout = &limited{w: &out, left: maxAnswer + 1}
		for _, name := range inherited {
			if v, ok := os.LookupEnv(name); ok {
				cmd.Env = append(cmd.Env, name+"="+v)
			}
		}
		cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
		cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
		cmd.WaitDelay = time.Second // what it has started may hold its output open
		err := cmd.Run()
		var exit *exec.ExitError
		switch {
		case errors.As(err, &exit):
			return nil, fmt.Errorf("it ended with %s", strings.TrimSpace(exit.ProcessState.String()))
		case errors.Is(err, exec.ErrWaitDelay):
			_ = cmd.Cancel()
			return nil, errors.New("it ended, but something that it started holds its output open")
		case err != nil:
			return nil, fmt.Errorf("%s cannot be run", argv[0])
		}
		return out.Bytes(), nil
	}
}

// limited takes so many bytes and drops the rest, so that a program which says too
// much ends by itself.
type limited struct {
	w    io.Writer
	left int
}

func (l *limited) Write(p []byte) (int, error) {
	n := min(len(p), l.left)
	l.left -= n
	if n > 0 {
		if _, err := l.w.Write(p[:n]); err != nil {
			return 0, err
		}
	}
	return len(p), nil
}
