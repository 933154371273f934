package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/clawbot/clawbot/model/modeltest"
)

// program is a running clawbot.
type program struct {
	cmd   *exec.Cmd
	done  chan struct{}
	err   error
	addr  string        // of its HTTP server
	ready time.Duration // from the start of the process to a good answer of /readyz
	said  *tail
}

// tail keeps the end of what a program prints, for errors.
type tail struct {
	mu  sync.Mutex
	buf []byte
}

func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.buf = append(t.buf, p...)
	if most := 8 << 10; len(t.buf) > most {
		t.buf = bytes.Clone(t.buf[len(t.buf)-most/2:])
	}
	return len(p), nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return string(t.buf)
}

var listening = regexp.MustCompile(`http listening.*addr=(\S+)`)

// start runs clawbot on a database, or on an embedded one for "", until it is
// ready: database, Slack, and all.
func (w *world) start(ctx context.Context, url string) (*program, error) {
	p := &program{done: make(chan struct{}), said: &tail{}}
	p.cmd = exec.Command(w.program, "serve")
	p.cmd.Dir = w.dir
	p.cmd.Env = []string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + w.dir, "CLAWBOT_CONFIG=" + w.config, "CLAWBOT_DATA_DIR=" + filepath.Join(w.dir, "data"),
		"CLAWBOT_HTTP_ADDR=127.0.0.1:0",
		"CLAWBOT_MODEL=openai:test", "OPENAI_API_KEY=" + modeltest.Key, "OPENAI_BASE_URL=" + w.model.OpenAIBaseURL(),
		"SLACK_API_URL=" + w.slack.APIURL(), "SLACK_BOT_TOKEN=" + w.slack.BotToken,
		"SLACK_APP_TOKEN=" + w.slack.AppToken, "SLACK_SIGNING_SECRET=" + w.slack.SigningSecret,
	}
	if url != "" {
		p.cmd.Env = append(p.cmd.Env, "DATABASE_URL="+url)
	}
	out, err := p.cmd.StderrPipe()
	if err != nil {
		return nil, err
	}
	began := time.Now()
	if err := p.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", w.program, err)
	}
	addr := make(chan string, 1)
	go func() {
		defer close(p.done)
		p.read(out, addr)
		p.err = p.cmd.Wait()
	}()
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	err = p.await(ctx, addr)
	p.ready = time.Since(began)
	if err != nil {
		p.cmd.Process.Kill()
		<-p.done
		return nil, fmt.Errorf("start clawbot: %w\n%s", err, p.said)
	}
	return p, nil
}

// read collects what the program prints, and finds the address it listens on.
func (p *program) read(out io.Reader, addr chan<- string) {
	lines := bufio.NewScanner(io.TeeReader(out, p.said))
	for lines.Scan() {
		if m := listening.FindStringSubmatch(lines.Text()); m != nil {
			select {
			case addr <- m[1]:
			default:
			}
		}
	}
	io.Copy(io.Discard, out) // a line too long for the scanner must not block the program
}

// await returns when /readyz is content.
func (p *program) await(ctx context.Context, addr <-chan string) error {
	select {
	case p.addr = <-addr:
	case <-p.done:
		return errors.New("it ended")
	case <-ctx.Done():
		return ctx.Err()
	}
	for {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+p.addr+"/readyz", nil)
		if err != nil {
			return err
		}
		res, err := http.DefaultClient.Do(req)
		if err == nil {
			res.Body.Close()
			if res.StatusCode == http.StatusOK {
				return nil
			}
		}
		select {
		case <-time.After(2 * time.Millisecond):
		case <-p.done:
			return errors.New("it ended")
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// stop ends the program as an operator does.
func (p *program) stop() error {
	p.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-p.done:
	case <-time.After(30 * time.Second):
		p.cmd.Process.Kill()
		<-p.done
	}
	if p.err != nil {
		return fmt.Errorf("stop clawbot: %w\n%s", p.err, p.said)
	}
	return nil
}

// resident is the memory of a process, in bytes.
type resident struct {
	all  int64 // VmRSS
	anon int64 // RssAnon: its own
	file int64 // RssFile: pages of the binary, which the system can drop and read again
}

// memory reads how much memory the program has. Only Linux tells.
func (p *program) memory() (resident, error) {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.cmd.Process.Pid))
	if err != nil {
		return resident{}, err
	}
	var r resident
	for line := range strings.Lines(string(data)) {
		name, rest, _ := strings.Cut(line, ":")
		into := map[string]*int64{"VmRSS": &r.all, "RssAnon": &r.anon, "RssFile": &r.file}[name]
		if into == nil {
			continue
		}
		kb, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(rest), " kB"), 10, 64)
		if err != nil {
			return r, fmt.Errorf("read %s: %w", name, err)
		}
		*into = kb << 10
	}
	return r, nil
}

// processor returns the processor time that the program has used. Only Linux
// tells.
func (p *program) processor() (time.Duration, error) {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.cmd.Process.Pid))
	if err != nil {
		return 0, err
	}
	// The second field is the name, in parentheses, and may hold anything.
	_, rest, _ := strings.Cut(string(data), ") ")
	fields := strings.Fields(rest)
	if len(fields) < 13 {
		return 0, errors.New("read /proc: too few fields")
	}
	var ticks int64
	for _, f := range fields[11:13] {
		n, err := strconv.ParseInt(f, 10, 64)
		if err != nil {
			return 0, err
		}
		ticks += n
	}
	return time.Duration(ticks) * (time.Second / 100), nil // USER_HZ is 100 everywhere
}
