package slacktest

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"sync"
	"testing"
	"time"
)

// Identities of the workspace and of the app under test.
const (
	TeamID    = "T0001"
	AppID     = "A0APP"
	BotID     = "B0BOT"
	BotUserID = "U0BOT"
	BotName   = "clawbot"

	// Mention is what a message contains when it names the bot.
	Mention = "<@" + BotUserID + ">"
)

// Server is the fake Slack. All exported methods may be called from any
// goroutine. The zero Server is not usable: call [Start] or [New].
type Server struct {
	BotToken      string // xoxb-…, for every Web API method but one
	AppToken      string // xapp-…, for apps.connections.open alone
	SigningSecret string // signs what HTTP mode delivers

	opt     options
	ln      net.Listener
	web     *http.Server
	mux     *http.ServeMux
	client  *http.Client // delivers in HTTP mode
	methods map[string]method
	ctx     context.Context // done when the server closes
	cancel  context.CancelFunc
	wg      sync.WaitGroup // every goroutine of the server

	// mu guards everything below. Unexported methods of Server run with mu
	// held unless their comment says otherwise.
	mu         sync.Mutex
	closed     bool
	changed    chan struct{} // closed and replaced on every change
	counters   map[string]int
	lastTS     int64
	workspace  workspace
	calls      []Call
	violations []Violation
	allowPings map[string]bool
	scopes     map[string]bool
	faults     []*plannedFault
	buckets    map[string]*bucket // nil: rates are not enforced
	uploads    map[string]*File   // by upload path
	triggers   map[string]*trigger
	answers    map[string]*responseURL
	views      []*View
	statuses   map[string]string // "channel/thread" to status
	seenMeta   map[string]string // metadata to the ts that carries it

	httpBase string // "" is Socket Mode
	tickets  map[string]bool
	conns    []*socket
	turn     int // round robin over conns
	queue    []*delivery
	inflight map[string]*attempt // by envelope id
	working  int                 // deliveries sent and not yet settled
	acks     []Ack
	lost     []Lost
}

type options struct {
	addr         string
	epoch        int64
	ackTimeout   time.Duration
	retryDelays  []time.Duration
	triggerLife  time.Duration
	pingInterval time.Duration
	closeGrace   time.Duration
	waitTimeout  time.Duration
	maxSockets   int
	strict       bool
}

// Option changes how a Server behaves.
type Option func(*options)

// WithAddr listens on a fixed address such as 127.0.0.1:8899, so that a
// program started later, or again, finds the same Slack. Default: a free port
// on loopback.
func WithAddr(addr string) Option { return func(o *options) { o.addr = addr } }

// WithEpoch makes the first message's ts follow t. Default: 1700000000, so that
// golden files stay as they are.
func WithEpoch(t time.Time) Option { return func(o *options) { o.epoch = t.Unix() } }

// WithAckTimeout sets how long Slack waits for an acknowledgement. Default 3 s.
func WithAckTimeout(d time.Duration) Option { return func(o *options) { o.ackTimeout = d } }

// WithRetryDelays sets the pause before each new delivery of an event that was
// not acknowledged; their number is the number of retries. Slack waits 0, 1 and
// 5 minutes. Default: 0, 200 ms, 500 ms.
func WithRetryDelays(d ...time.Duration) Option { return func(o *options) { o.retryDelays = d } }

// WithTriggerLife sets how long a trigger_id can open a view. Default 3 s.
func WithTriggerLife(d time.Duration) Option { return func(o *options) { o.triggerLife = d } }

// WithPingInterval sets the pause between WebSocket pings; the first one is
// sent at once. Default 5 s.
func WithPingInterval(d time.Duration) Option { return func(o *options) { o.pingInterval = d } }

// WithCloseGrace sets how long a connection stays open after a disconnect
// frame. Default 10 s, as Slack announces it.
func WithCloseGrace(d time.Duration) Option { return func(o *options) { o.closeGrace = d } }

// WithWaitTimeout sets when the Wait… helpers give up. Default 30 s.
func WithWaitTimeout(d time.Duration) Option { return func(o *options) { o.waitTimeout = d } }

// Strict makes [Start] fail the test at its end if violations were recorded
// and not taken with [Server.TakeViolations].
func Strict() Option { return func(o *options) { o.strict = true } }

// Start runs a fake Slack for one test and closes it when the test ends.
func Start(t testing.TB, opts ...Option) *Server {
	t.Helper()
	s, err := New(opts...)
	if err != nil {
		t.Fatalf("slacktest: %v", err)
	}
	t.Cleanup(func() {
		s.Close()
		if s.opt.strict {
			s.NoViolations(t)
		}
	})
	return s
}

// New runs a fake Slack until Close is called.
func New(opts ...Option) (*Server, error) {
	o := options{
		addr:         "127.0.0.1:0",
		epoch:        1700000000,
		ackTimeout:   3 * time.Second,
		retryDelays:  []time.Duration{0, 200 * time.Millisecond, 500 * time.Millisecond},
		triggerLife:  3 * time.Second,
		pingInterval: 5 * time.Second,
		closeGrace:   10 * time.Second,
		waitTimeout:  30 * time.Second,
		maxSockets:   10,
	}
	for _, opt := range opts {
		opt(&o)
	}
	ln, err := net.Listen("tcp", o.addr)
	if err != nil {
		return nil, fmt.Errorf("listen: %w", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	s := &Server{
		BotToken:      "xoxb-slacktest-bot",
		AppToken:      "xapp-slacktest-app",
		SigningSecret: "slacktest-signing-secret",
		opt:           o,
		ln:            ln,
		client:        newDeliveryClient(o.ackTimeout),
		methods:       webMethods(),
		ctx:           ctx,
		cancel:        cancel,
		changed:       make(chan struct{}),
		counters:      map[string]int{},
		lastTS:        o.epoch - 1,
		workspace:     newWorkspace(),
		allowPings:    map[string]bool{},
		scopes:        allScopes(),
		uploads:       map[string]*File{},
		triggers:      map[string]*trigger{},
		answers:       map[string]*responseURL{},
		statuses:      map[string]string{},
		seenMeta:      map[string]string{},
		tickets:       map[string]bool{},
		inflight:      map[string]*attempt{},
	}
	s.mux = http.NewServeMux()
	s.mux.HandleFunc("/api/", s.serveAPI)
	s.mux.HandleFunc("GET /link/", s.serveSocket)
	s.mux.HandleFunc("POST /upload/v1/", s.serveUpload)
	s.mux.HandleFunc("GET /files-pri/", s.serveDownload)
	s.mux.HandleFunc("POST /actions/", s.serveResponseURL)
	s.web = &http.Server{Handler: s, ReadHeaderTimeout: 10 * time.Second}
	s.wg.Go(func() { _ = s.web.Serve(ln) })
	s.wg.Go(s.dispatchEvents)
	return s, nil
}

// Close stops the server and waits for everything it started. Closing again
// does nothing.
func (s *Server) Close() {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return
	}
	s.closed = true
	for _, c := range s.conns {
		c.drop()
	}
	s.notify()
	s.mu.Unlock()
	s.cancel()
	_ = s.web.Close()
	s.wg.Wait()
	s.client.CloseIdleConnections()
}

// Addr is the host and port the server listens on.
func (s *Server) Addr() string { return s.ln.Addr().String() }

// APIURL is the base of the Web API, for SLACK_API_URL. It ends in "/api/".
func (s *Server) APIURL() string { return s.url("/api/") }

// url needs no lock.
func (s *Server) url(path string) string { return "http://" + s.Addr() + path }

// Handler is the whole fake as an [http.Handler], for a listener of one's own.
// Addresses that the fake hands out keep pointing at [Server.Addr].
func (s *Server) Handler() http.Handler { return s }

// ServeHTTP answers every request that reaches the fake: Web API, sockets,
// uploads, downloads and response addresses.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		http.Error(w, "closed", http.StatusServiceUnavailable)
		return
	}
	s.wg.Add(1)
	s.mu.Unlock()
	defer s.wg.Done()
	s.mux.ServeHTTP(w, r)
}

// notify wakes everybody who waits for a change.
func (s *Server) notify() {
	close(s.changed)
	s.changed = make(chan struct{})
}

// goLocked starts a goroutine that Close waits for. After Close it does nothing.
func (s *Server) goLocked(f func()) {
	if !s.closed {
		s.wg.Go(f)
	}
}

// id makes the next id of a kind: id("Ev") is Ev0001, then Ev0002.
func (s *Server) id(prefix string) string {
	s.counters[prefix]++
	return fmt.Sprintf("%s%04d", prefix, s.counters[prefix])
}

// ts makes the next timestamp, one second after the one before.
func (s *Server) ts() string {
	s.lastTS++
	return fmt.Sprintf("%d.000100", s.lastTS)
}

// encode turns a document of ours into JSON without escaping < > &.
func encode(v any) json.RawMessage {
	b, err := marshalPlain(v)
	if err != nil {
		panic(fmt.Sprintf("slacktest: encode %T: %v", v, err))
	}
	return b
}
