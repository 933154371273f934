package slack

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/clawbot/clawbot/agent"
	"github.com/clawbot/clawbot/channels/slack/slacktest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// inlet records what the adapter hands in, and behaves like the engine as far
// as a channel can see: repeats are no news, a thread that was not joined takes
// no JoinedOnly.
type inlet struct {
	mu       sync.Mutex
	calls    []agent.Inbound // every Receive
	news     []agent.Inbound // those that were new
	keys     map[string]bool
	sessions map[agent.Place]bool
	clicks   []agent.Click
	cards    map[agent.ApprovalID]agent.Card

	onReceive func(ctx context.Context, m agent.Inbound) error
	onDecide  func(ctx context.Context, c agent.Click) (agent.Verdict, error)
}

func (in *inlet) Receive(ctx context.Context, m agent.Inbound) (agent.Receipt, error) {
	in.mu.Lock()
	in.calls = append(in.calls, m)
	hook := in.onReceive
	in.mu.Unlock()
	if hook != nil {
		if err := hook(ctx, m); err != nil {
			return agent.Receipt{}, err
		}
	}
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.keys[m.Key] || m.JoinedOnly && !in.sessions[m.Origin.Place] {
		return agent.Receipt{}, nil
	}
	in.keys[m.Key] = true
	in.sessions[m.Origin.Place] = true
	in.news = append(in.news, m)
	return agent.Receipt{Session: agent.SessionID("ses " + m.Origin.Thread), New: true, Stopped: m.Turn != ""}, nil
}

func (in *inlet) Decide(ctx context.Context, c agent.Click) (agent.Verdict, error) {
	in.mu.Lock()
	in.clicks = append(in.clicks, c)
	hook := in.onDecide
	in.mu.Unlock()
	if hook != nil {
		return hook(ctx, c)
	}
	return agent.Verdict{Accepted: true}, nil
}

func (in *inlet) Card(_ context.Context, id agent.ApprovalID) (agent.Card, error) {
	in.mu.Lock()
	defer in.mu.Unlock()
	c, ok := in.cards[id]
	if !ok {
		return agent.Card{}, agent.ErrNotFound
	}
	return c, nil
}

func (in *inlet) received() []agent.Inbound {
	in.mu.Lock()
	defer in.mu.Unlock()
	return append([]agent.Inbound(nil), in.news...)
}

func (in *inlet) attempts() int {
	in.mu.Lock()
	defer in.mu.Unlock()
	return len(in.calls)
}

func (in *inlet) clicked() []agent.Click {
	in.mu.Lock()
	defer in.mu.Unlock()
	return append([]agent.Click(nil), in.clicks...)
}

// bench is an adapter that runs against a fake Slack.
type bench struct {
	*slacktest.Server
	t     *testing.T
	a     *Adapter
	in    *inlet
	log   *logbook
	stop  func() error // ends Run and waits for it
	front *httptest.Server
}

// logbook keeps what was logged.
type logbook struct {
	mu  sync.Mutex
	buf strings.Builder
}

func (l *logbook) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

func (l *logbook) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}

// settings are what a bench changes.
type settings struct {
	cfg   Config
	slack []slacktest.Option
	http  bool // HTTP mode instead of Socket Mode
	idle  bool // do not run the adapter
}

func start(t *testing.T, change ...func(*settings)) *bench {
	t.Helper()
	st := settings{cfg: DefaultConfig()}
	for _, f := range change {
		f(&st)
	}
	s := slacktest.Start(t, append([]slacktest.Option{slacktest.WithWaitTimeout(20 * time.Second), slacktest.Strict()}, st.slack...)...)
	b := &bench{Server: s, t: t, log: &logbook{}, in: &inlet{
		keys: map[string]bool{}, sessions: map[agent.Place]bool{}, cards: map[agent.ApprovalID]agent.Card{},
	}}
	transport := &http.Transport{}
	cfg := st.cfg
	cfg.APIURL = s.APIURL()
	cfg.HTTP = &http.Client{Timeout: 5 * time.Second, Transport: transport}
	cfg.Log = slog.New(slog.NewTextHandler(b.log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	cfg.Secrets.BotToken = s.BotToken
	if st.http {
		cfg.Secrets.SigningSecret = s.SigningSecret
	} else {
		cfg.Secrets.AppToken = s.AppToken
	}
	a, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	b.a = a
	if st.http {
		b.front = httptest.NewServer(a.Handler())
		s.UseHTTP(b.front.URL)
	}
	b.stop = func() error { return nil }
	if !st.idle {
		b.run()
	}
	t.Cleanup(func() {
		if err := b.stop(); err != nil {
			t.Errorf("Run: %v", err)
		}
		if b.front != nil {
			b.front.Close()
		}
		transport.CloseIdleConnections()
		for _, call := range b.Calls("") {
			if _, known := scopesByMethod[call.Method]; !known && call.Method != "response_url" {
				t.Errorf("%s is called and the manifest does not know it", call.Method)
			}
		}
		if strings.Contains(b.log.String(), "panic") {
			t.Errorf("a handler panicked:\n%s", b.log)
		}
		if t.Failed() {
			log := b.log.String()
			t.Logf("log:\n%s", log[max(0, len(log)-2000):])
		}
	})
	return b
}

// run starts the adapter and waits until it is ready.
func (b *bench) run() {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- b.a.Run(ctx, b.in) }()
	b.stop = sync.OnceValue(func() error {
		cancel()
		select {
		case err := <-done:
			return err
		case <-time.After(20 * time.Second):
			return errors.New("Run did not end")
		}
	})
	b.eventually("ready", func() bool { ok, _ := b.a.Health(); return ok })
}

// eventually waits for something that shows neither in the fake nor in a
// channel.
func (b *bench) eventually(what string, ok func() bool) {
	b.t.Helper()
	deadline := time.Now().Add(20 * time.Second)
	for !ok() {
		if time.Now().After(deadline) {
			_, detail := b.a.Health()
			b.t.Fatalf("waited in vain: %s; health: %s\nlog:\n%s", what, detail, b.log)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// wait waits until all events are acknowledged and n messages have come in, and
// returns them in the order in which they were written.
func (b *bench) wait(n int) []agent.Inbound {
	b.t.Helper()
	b.WaitIdle(b.t)
	got := b.in.received()
	slices.SortFunc(got, func(x, y agent.Inbound) int { return strings.Compare(x.Origin.Ref, y.Origin.Ref) })
	if len(got) != n {
		b.t.Fatalf("%d messages came in, want %d: %.3000q", len(got), n, fmt.Sprintf("%+v", got))
	}
	if lost := b.Lost(); len(lost) > 0 {
		b.t.Fatalf("Slack gave up on %+v", lost)
	}
	return got
}

func withHTTP(s *settings) { s.http = true }

// quick makes Slack impatient, for tests in which nothing is acknowledged.
func quick(s *settings) { s.slack = append(s.slack, slacktest.WithAckTimeout(500*time.Millisecond)) }

func withAll(s *settings) { s.cfg.Trigger = TriggerAll }

func withSlack(o ...slacktest.Option) func(*settings) {
	return func(s *settings) { s.slack = append(s.slack, o...) }
}

func withAllow(f func(*Allow)) func(*settings) { return func(s *settings) { f(&s.cfg.Allow) } }

// bothWays runs a test over Socket Mode and over HTTP.
func bothWays(t *testing.T, f func(t *testing.T, how func(*settings))) {
	t.Run("socket", func(t *testing.T) { f(t, func(*settings) {}) })
	t.Run("http", func(t *testing.T) { f(t, withHTTP) })
}

const m = slacktest.Mention
