package slacktest

import (
	"net"
	"net/http"
	"strconv"
	"time"
)

// Fault is a way for a Web API call to go wrong. Make one with [RateLimited],
// [ErrorCode], [Status] and their kin.
type Fault struct {
	name string
	// before runs instead of the method; it answers and returns true, or
	// returns false to let the call go on.
	before func(s *Server, w http.ResponseWriter, r *http.Request) bool
	// after runs once the method has had its effect, in the same way.
	after func(s *Server, w http.ResponseWriter, r *http.Request) bool
}

// RateLimited answers 429 with Retry-After.
func RateLimited(after time.Duration) Fault {
	return Fault{name: "429", before: func(s *Server, w http.ResponseWriter, _ *http.Request) bool {
		w.Header().Set("Retry-After", strconv.Itoa(int((after+time.Second-1)/time.Second)))
		w.WriteHeader(http.StatusTooManyRequests)
		s.answer(w, object{"ok": false, "error": "ratelimited"})
		return true
	}}
}

// RateLimited200 answers that there were too many calls inside an HTTP 200,
// without Retry-After.
func RateLimited200() Fault { return ErrorCode("ratelimited") }

// ErrorCode answers ok:false with a code, inside an HTTP 200.
func ErrorCode(code string) Fault {
	return Fault{name: code, before: func(s *Server, w http.ResponseWriter, _ *http.Request) bool {
		s.answer(w, object{"ok": false, "error": code})
		return true
	}}
}

// Status answers an HTTP status with an HTML body, as Slack does in trouble.
func Status(code int) Fault {
	return Fault{name: strconv.Itoa(code), before: func(_ *Server, w http.ResponseWriter, _ *http.Request) bool {
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		w.WriteHeader(code)
		_, _ = w.Write([]byte("<!DOCTYPE html><html><body>Server Error</body></html>"))
		return true
	}}
}

// HTML answers 200 with a page instead of JSON.
func HTML() Fault {
	f := Status(http.StatusOK)
	f.name = "html"
	return f
}

// Hangup cuts the connection before the call has any effect.
func Hangup() Fault { return Fault{name: "hangup", before: hangup} }

// HangupAfter lets the call have its effect and cuts the connection before the
// answer: a message is posted and the caller does not know.
func HangupAfter() Fault { return Fault{name: "hangup after effect", after: hangup} }

// Delay holds the call for d before it has its effect.
func Delay(d time.Duration) Fault {
	return Fault{name: "delay", before: func(s *Server, _ http.ResponseWriter, r *http.Request) bool {
		return !s.pause(r, d)
	}}
}

// DelayAnswer lets the call have its effect and holds the answer for d.
func DelayAnswer(d time.Duration) Fault {
	return Fault{name: "delayed answer", after: func(s *Server, _ http.ResponseWriter, r *http.Request) bool {
		return !s.pause(r, d)
	}}
}

// pause waits for d; false means that the caller went away or the server
// closes. It needs no lock.
func (s *Server) pause(r *http.Request, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-r.Context().Done():
	case <-s.ctx.Done():
	}
	return false
}

// hangup closes the TCP connection under a request.
func hangup(_ *Server, w http.ResponseWriter, _ *http.Request) bool {
	if conn, _, err := http.NewResponseController(w).Hijack(); err == nil {
		reset(conn)
	}
	return true
}

// reset closes a connection without a farewell.
func reset(conn net.Conn) {
	if tcp, ok := conn.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
	_ = conn.Close()
}

// plannedFault is a fault that waits for its calls.
type plannedFault struct {
	Fault
	method string
	left   int
	match  func(Call) bool
}

// Fail makes the next n calls of a method meet a fault; every method for "*",
// for ever if n is negative. With match only calls that it accepts count: match
// runs with the server locked and must not call it. Faults planned for the same
// method happen one after the other.
func (s *Server) Fail(method string, n int, f Fault, match ...func(Call) bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := &plannedFault{Fault: f, method: method, left: n, match: func(c Call) bool {
		for _, ok := range match {
			if !ok(c) {
				return false
			}
		}
		return true
	}}
	s.faults = append(s.faults, p)
}

// Heal forgets every planned fault.
func (s *Server) Heal() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.faults = nil
}

// takeFault is the fault that this call meets, or nil.
func (s *Server) takeFault(c Call) *Fault {
	for _, p := range s.faults {
		if p.left != 0 && (p.method == "*" || p.method == c.Method) && p.match(c) {
			p.left--
			return &p.Fault
		}
	}
	return nil
}
