package modeltest

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"
)

// Key is the API key that the server accepts, for both APIs.
const Key = "test-key-7c1f0d"

// Server is the fake. Its methods may be called at any time, also while requests
// are being answered.
type Server struct {
	url    string
	http   *http.Server
	served chan struct{} // closed when the listener is done
	closed chan struct{} // closed by Close, ends every wait
	open   sync.WaitGroup

	mu       sync.Mutex
	requests []Request
	arrived  chan struct{} // closed and replaced at each request
	rules    []*rule
	each     []script
	queue    []Reply
	fallback func(Request) Reply
	lenient  bool
	ids      int
}

type rule struct {
	match   func(Request) bool
	replies []Reply
}

type script struct {
	match   func(Request) bool
	replies []Reply
}

// New starts a server. Close it.
func New() (*Server, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("start model server: %w", err)
	}
	s := &Server{
		url:     "http://" + listener.Addr().String(),
		served:  make(chan struct{}),
		closed:  make(chan struct{}),
		arrived: make(chan struct{}),
	}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v1/chat/completions", func(w http.ResponseWriter, r *http.Request) { s.serve(w, r, openaiAPI{}) })
	mux.HandleFunc("POST /v1/messages", func(w http.ResponseWriter, r *http.Request) { s.serve(w, r, anthropicAPI{}) })
	s.http = &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second}
	go func() {
		defer close(s.served)
		s.http.Serve(listener) // always ends with ErrServerClosed
	}()
	return s, nil
}

// Start starts a server for a test and closes it with the test. The test fails
// for each request that broke a rule of the APIs; see ExpectInvalid.
func Start(t testing.TB) *Server {
	t.Helper()
	s, err := New()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		s.Close()
		s.mu.Lock()
		defer s.mu.Unlock()
		for _, r := range s.requests {
			if r.Invalid != "" && !s.lenient {
				t.Errorf("the model server got an invalid request: %s\n%s", r.Invalid, r)
			}
		}
	})
	return s
}

// Close ends the server and every request that is still open.
func (s *Server) Close() {
	s.mu.Lock()
	select {
	case <-s.closed:
	default:
		close(s.closed)
	}
	s.mu.Unlock()
	s.http.Close()
	<-s.served
	s.open.Wait()
}

// URL returns the server's address without a path.
func (s *Server) URL() string { return s.url }

// OpenAIBaseURL is what OPENAI_BASE_URL should be.
func (s *Server) OpenAIBaseURL() string { return s.url + "/v1/" }

// AnthropicBaseURL is what ANTHROPIC_BASE_URL should be.
func (s *Server) AnthropicBaseURL() string { return s.url + "/" }

// Reply adds answers to the common queue: each answers one request.
func (s *Server) Reply(replies ...Reply) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.queue = append(s.queue, replies...)
}

// On gives answers for requests whose last text of a person contains part. Each
// answers one request, in order; then the rule is used up.
func (s *Server) On(part string, replies ...Reply) {
	s.OnFunc(contains(part), replies...)
}

// OnFunc is like On, for requests that match says yes to. match must not call
// the server.
func (s *Server) OnFunc(match func(Request) bool, replies ...Reply) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.rules = append(s.rules, &rule{match, replies})
}

// Each gives a script for every turn whose text contains part, however many run
// at once: the first answer is for the request without an answer of the model
// after that text, the second for the one with one, and so on; the last one
// stays. It is never used up, and a repeated request gets the same answer.
func (s *Server) Each(part string, replies ...Reply) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.each = append(s.each, script{contains(part), replies})
}

// Default answers what nothing else answers, e.g. with Echo.
func (s *Server) Default(handler func(Request) Reply) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fallback = handler
}

// ExpectInvalid keeps invalid requests from failing the test.
func (s *Server) ExpectInvalid() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lenient = true
}

// Requests returns all requests so far in the order they came, refused ones too.
func (s *Server) Requests() []Request {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]Request(nil), s.requests...)
}

// Left returns how many scripted answers of Reply and On nobody has asked for.
func (s *Server) Left() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	left := len(s.queue)
	for _, r := range s.rules {
		left += len(r.replies)
	}
	return left
}

// WaitRequests waits until n requests have come and returns them all. It fails
// the test after 30 seconds.
func (s *Server) WaitRequests(t testing.TB, n int) []Request {
	t.Helper()
	timeout := time.After(30 * time.Second)
	for {
		s.mu.Lock()
		requests, arrived := append([]Request(nil), s.requests...), s.arrived
		s.mu.Unlock()
		if len(requests) >= n {
			return requests
		}
		select {
		case <-arrived:
		case <-timeout:
			t.Fatalf("the model server got %d requests, want %d", len(requests), n)
		}
	}
}

func contains(part string) func(Request) bool {
	return func(r Request) bool { return strings.Contains(r.LastUser(), part) }
}

// api is one wire form.
type api interface {
	name() string
	key(http.Header) string
	// parse fills the request. The error is the rule that the body breaks.
	parse(body []byte, header http.Header, r *Request) error
	// events returns the stream of a reply.
	events(r Request, reply Reply, id func(prefix string) string) []event
}

const maxBody = 64 << 20

func (s *Server) serve(w http.ResponseWriter, r *http.Request, a api) {
	s.open.Add(1)
	defer s.open.Done()
	body, err := io.ReadAll(io.LimitReader(r.Body, maxBody))
	if err != nil {
		return // the client went away
	}
	req := Request{API: a.name(), Header: r.Header.Clone(), Body: body, At: time.Now()}
	invalid := a.parse(body, r.Header, &req)
	authorized := a.key(r.Header) == Key
	if authorized && invalid != nil {
		req.Invalid = invalid.Error()
	}
	reply := s.take(req, authorized)
	if !s.wait(r.Context(), reply, false) {
		panic(http.ErrAbortHandler)
	}
	s.answer(w, r, req, reply, a)
}

// take records the request and finds its reply.
func (s *Server) take(req Request, authorized bool) Reply {
	s.mu.Lock()
	s.requests = append(s.requests, req)
	close(s.arrived)
	s.arrived = make(chan struct{})
	handler := s.fallback
	reply, found := Reply{}, true
	switch {
	case !authorized:
		reply = Status(401).Message("invalid x-api-key or bearer token")
	case req.Invalid != "":
		reply = Status(400).Message(req.Invalid)
	default:
		reply, found = s.scripted(req)
	}
	s.mu.Unlock()
	if found {
		return reply
	}
	if handler != nil {
		return handler(req)
	}
	return Status(400).Message(fmt.Sprintf("modeltest: no reply is scripted for %.200q", req.LastUser()))
}

func (s *Server) scripted(req Request) (Reply, bool) {
	for _, r := range s.rules {
		if len(r.replies) > 0 && r.match(req) {
			reply := r.replies[0]
			r.replies = r.replies[1:]
			return reply, true
		}
	}
	for _, script := range s.each {
		if len(script.replies) > 0 && script.match(req) {
			return script.replies[min(req.Steps(), len(script.replies)-1)], true
		}
	}
	if len(s.queue) > 0 {
		reply := s.queue[0]
		s.queue = s.queue[1:]
		return reply, true
	}
	return Reply{}, false
}

// wait holds the reply. It reports whether to go on.
func (s *Server) wait(ctx context.Context, reply Reply, inside bool) bool {
	if reply.hold == nil || reply.holdInside != inside {
		return true
	}
	select {
	case <-reply.hold:
		return true
	case <-ctx.Done():
	case <-s.closed:
	}
	return false
}

// mint returns an id that this server has not used before.
func (s *Server) mint(prefix string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ids++
	return fmt.Sprintf("%s%06d", prefix, s.ids)
}

// Forget drops the requests so far, e.g. between the rounds of a load test.
func (s *Server) Forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.requests = nil
}
