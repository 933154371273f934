package slacktest

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// Violation is something Slack accepts without a word and that is a defect.
type Violation struct {
	Method string // where it came in: a Web API method, "socket" or "http"
	What   string // such as "pings <!channel>"
	Where  string // channel and ts, envelope id, or ""
}

// String is one line for a test log.
func (v Violation) String() string {
	if v.Where == "" {
		return v.Method + ": " + v.What
	}
	return v.Method + " (" + v.Where + "): " + v.What
}

// Violations lists what has been recorded so far.
func (s *Server) Violations() []Violation {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.violations)
}

// TakeViolations returns what has been recorded and forgets it, for a test
// that provokes violations.
func (s *Server) TakeViolations() []Violation {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := s.violations
	s.violations = nil
	return out
}

// NoViolations fails the test for each recorded violation.
func (s *Server) NoViolations(t testing.TB) {
	t.Helper()
	for _, v := range s.Violations() {
		t.Errorf("slacktest: violation: %v", v)
	}
}

// AllowPings says whom the app may notify: user ids, group ids, or channel,
// here, everyone. Nobody is allowed at first.
func (s *Server) AllowPings(ids ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, id := range ids {
		s.allowPings[id] = true
	}
}

func (s *Server) violate(method, where, format string, args ...any) {
	s.violations = append(s.violations, Violation{method, fmt.Sprintf(format, args...), where})
	s.notify()
}

// inspect records what is wrong with a message that Slack accepts.
func (s *Server) inspect(method string, m *Message, a args) {
	where := m.Channel + "/" + m.TS
	blocks := m.allBlocks()
	pings, _ := signals(m.Text, blocks)
	if parse := a.str("parse"); parse == "full" || a.str("link_names") == "1" || a.str("link_names") == "true" ||
		(method == "chat.update" && parse != "none") {
		for _, name := range namePing.FindAllStringSubmatch(m.Text, -1) {
			pings = append(pings, name[1])
		}
	}
	for _, id := range pings {
		if !s.allowPings[id] {
			s.violate(method, where, "pings %s (%s)", id, s.name(id))
		}
	}
	texts := pieces(blocks, func(object) {})
	texts = append(texts, piece{kind: mrkdwn, text: m.Text})
	for _, p := range texts {
		if p.kind != mrkdwn {
			continue
		}
		if bad := badEscaping(p.text); bad != "" {
			s.violate(method, where, "text is not escaped at %q", bad)
		}
	}
	if strings.ContainsRune(m.Text, 0) {
		s.violate(method, where, "text contains a NUL")
	}
}
