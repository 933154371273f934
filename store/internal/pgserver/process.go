package pgserver

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Config is what Start needs to know.
type Config struct {
	Programs  Programs
	Account   Account
	Dir       string            // the cluster; absolute, without symbolic links
	SocketDir string            // belongs to the account; see SocketFits
	Settings  map[string]string // of postgresql.conf; they win over the file
	Lock      *os.File          // from Claim; each process of the server holds it
	Log       io.Writer         // what Postgres logs; nil: nowhere
}

// socketName is what Postgres calls its socket. Nothing listens on that port.
const (
	port       = 5432
	socketName = ".s.PGSQL.5432"
)

// SocketFits reports whether a socket in dir has a name that the system and
// clients can bear: 104 bytes with the final zero on macOS, four more on
// Linux, and no comma, which separates hosts in a connection string.
func SocketFits(dir string) bool {
	return len(filepath.Join(dir, socketName)) <= 103 && !strings.Contains(dir, ",")
}

// SocketQuery is the query of a postgres:// URL for a server whose socket is
// in dir.
func SocketQuery(dir string) string {
	return url.Values{"host": {dir}, "port": {strconv.Itoa(port)}}.Encode()
}

func (c Config) command() *exec.Cmd {
	// Left by a kill, and fatal if its number is somebody else's by now.
	_ = os.Remove(filepath.Join(c.SocketDir, socketName+".lock"))
	settings := map[string]string{
		"listen_addresses":        "",
		"port":                    strconv.Itoa(port),
		"unix_socket_directories": `"` + strings.ReplaceAll(c.SocketDir, `"`, `""`) + `"`, // a list of names
		"unix_socket_permissions": "0700",
		"log_destination":         "stderr",
		"logging_collector":       "off",
	}
	maps.Copy(settings, c.Settings)
	args := []string{"-D", c.Dir}
	for _, name := range slices.Sorted(maps.Keys(settings)) {
		args = append(args, "-c", name+"="+settings[name])
	}
	// Not bound to a context: Stop ends it, and ends it gently.
	cmd := c.Account.Command(context.Background(), c.Programs.path("postgres"), args...)
	cmd.ExtraFiles = []*os.File{c.Lock}
	return cmd
}

// Process is a running server.
type Process struct {
	cmd  *exec.Cmd
	dir  string
	done chan struct{}
}

// Start runs Postgres and returns when it accepts connections. If ctx ends
// before that, the server is stopped again.
func Start(ctx context.Context, cfg Config) (*Process, error) {
	out := &head{next: cfg.Log}
	cmd := cfg.command()
	cmd.Stderr = out
	cmd.WaitDelay = 10 * time.Second // children of a killed server may hold its output a little longer
	guard, err := startGuarded(cfg.Account, cmd, "INT")
	if err != nil {
		return nil, err
	}
	p := &Process{cmd: cmd, dir: cfg.Dir, done: make(chan struct{})}
	go func() {
		defer close(p.done)
		_ = cmd.Wait() // how it ended is in its log
		guard.dismiss()
	}()

	for {
		f, err := readPidFile(cfg.Dir)
		if err == nil && f.ready && f.pid == cmd.Process.Pid {
			return p, nil
		}
		select {
		case <-p.done:
			return nil, fmt.Errorf("start Postgres in %s: %s", cfg.Dir, cmp.Or(telling(out.bytes()), cmd.ProcessState.String()))
		case <-ctx.Done():
			p.Kill()
			return nil, fmt.Errorf("start Postgres in %s: %w", cfg.Dir, context.Cause(ctx))
		case <-time.After(2 * time.Millisecond):
		}
	}
}

// Done is closed when the server and all its children have ended.
func (p *Process) Done() <-chan struct{} { return p.done }

// Stop ends the server: it breaks off its clients, writes what it has to
// disk, and goes. If that takes more than 15 seconds, or ctx ends, it is
// stopped at once and recovers at its next start; the error says so.
func (p *Process) Stop(ctx context.Context) error {
	if p.signal(syscall.SIGINT); p.wait(ctx, 15*time.Second) {
		return nil
	}
	// An immediate shutdown kills children that are in its way after 5 seconds.
	if p.signal(syscall.SIGQUIT); !p.wait(context.WithoutCancel(ctx), 8*time.Second) {
		p.Kill()
	}
	return errors.New("stop Postgres: it did not end in time and was stopped at once: it recovers at its next start")
}

// Kill ends the server as a crash would.
func (p *Process) Kill() {
	p.signal(syscall.SIGKILL)
	<-p.done
}

func (p *Process) signal(sig syscall.Signal) {
	// The only way to fail is that it has ended already.
	_ = p.cmd.Process.Signal(sig)
}

func (p *Process) wait(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-p.done:
		return true
	case <-ctx.Done():
	case <-t.C:
	}
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// Detach runs Postgres so that it outlives this process, and returns when it
// accepts connections. As soon as there is a process, started hears of it; if
// that returns an error, the process is killed.
func Detach(ctx context.Context, cfg Config, log *os.File, started func(pid int) error) error {
	cmd := cfg.command()
	cmd.Stderr = log
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start Postgres as %s: %w", cfg.Account.Name, err)
	}
	pid := cmd.Process.Pid
	if err := started(pid); err != nil {
		return errors.Join(err, cmd.Cancel(), cmd.Wait())
	}
	for {
		f, err := readPidFile(cfg.Dir)
		if err == nil && f.ready && f.pid == pid {
			return cmd.Process.Release()
		}
		var status syscall.WaitStatus
		if ended, _ := syscall.Wait4(pid, &status, syscall.WNOHANG, nil); ended == pid {
			said, _ := os.ReadFile(log.Name())
			return fmt.Errorf("start Postgres in %s: %s", cfg.Dir, telling(said))
		}
		if err := sleep(ctx, 2*time.Millisecond); err != nil {
			return errors.Join(fmt.Errorf("start Postgres in %s: %w", cfg.Dir, err), cmd.Cancel(), cmd.Wait())
		}
	}
}

// head passes on what is written to it and keeps the beginning, where a
// server that cannot start says why.
type head struct {
	next io.Writer
	mu   sync.Mutex
	kept []byte
}

func (h *head) Write(p []byte) (int, error) {
	h.mu.Lock()
	if room := 16<<10 - len(h.kept); room > 0 {
		h.kept = append(h.kept, p[:min(room, len(p))]...)
	}
	h.mu.Unlock()
	if h.next != nil {
		// A full disk must not close the pipe: Postgres would block on it.
		_, _ = h.next.Write(p)
	}
	return len(p), nil
}

func (h *head) bytes() []byte {
	h.mu.Lock()
	defer h.mu.Unlock()
	return bytes.Clone(h.kept)
}
