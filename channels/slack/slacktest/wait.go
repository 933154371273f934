package slacktest

import (
	"context"
	"fmt"
	"strings"
	"testing"
)

// WaitFor returns when ok does, looking again after every change, or with the
// context's error. ok may call any method of the server that does not wait.
func (s *Server) WaitFor(ctx context.Context, ok func() bool) error {
	for {
		s.mu.Lock()
		wake := s.changed
		s.mu.Unlock()
		if ok() {
			return nil
		}
		select {
		case <-wake:
		case <-ctx.Done():
			return ctx.Err()
		case <-s.ctx.Done():
			return fmt.Errorf("the fake Slack was closed: %w", context.Cause(s.ctx))
		}
	}
}

// wait is WaitFor with the server's timeout and a failure that tells what was
// seen instead.
func (s *Server) wait(t testing.TB, what string, ok func() bool, seen func() string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), s.opt.waitTimeout)
	defer cancel()
	if err := s.WaitFor(ctx, ok); err != nil {
		t.Fatalf("slacktest: waited %v for %s: %v\n%s", s.opt.waitTimeout, what, err, seen())
	}
}

// WaitMessage returns the first message in a thread that ok accepts, as soon as
// there is one; threadTS "" means anywhere in the channel. It looks at ephemeral
// messages too. After 30 s the test fails with the thread as it looks and the
// last calls.
func (s *Server) WaitMessage(t testing.TB, channel, threadTS string, ok func(Message) bool) Message {
	t.Helper()
	var found Message
	s.wait(t, "a message in "+channel+" "+threadTS, func() bool {
		for _, m := range s.Thread(channel, threadTS) {
			if ok(m) {
				found = m
				return true
			}
		}
		return false
	}, func() string { return s.Render(channel, threadTS) + s.recentCalls() })
	return found
}

// WaitText is WaitMessage for a message of the app that shows a text.
func (s *Server) WaitText(t testing.TB, channel, threadTS, text string) Message {
	t.Helper()
	return s.WaitMessage(t, channel, threadTS, func(m Message) bool {
		return m.FromBot() && strings.Contains(m.Shown, text)
	})
}

// WaitView returns the first open view that ok accepts, as soon as there is one.
func (s *Server) WaitView(t testing.TB, ok func(View) bool) View {
	t.Helper()
	var found View
	s.wait(t, "a view", func() bool {
		for _, v := range s.Views() {
			if v.Open && ok(v) {
				found = v
				return true
			}
		}
		return false
	}, s.recentCalls)
	return found
}

// WaitCalls returns the calls of a method as soon as there are n of them.
func (s *Server) WaitCalls(t testing.TB, method string, n int) []Call {
	t.Helper()
	s.wait(t, fmt.Sprintf("%d calls of %s", n, method), func() bool { return len(s.Calls(method)) >= n }, s.recentCalls)
	return s.Calls(method)
}

// WaitConnected returns when n Socket Mode connections are live.
func (s *Server) WaitConnected(t testing.TB, n int) {
	t.Helper()
	s.wait(t, fmt.Sprintf("%d connections", n), func() bool { return s.Connections() == n }, s.recentCalls)
}

// WaitIdle returns when no event is queued or unacknowledged.
func (s *Server) WaitIdle(t testing.TB) {
	t.Helper()
	s.wait(t, "events to be acknowledged", func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.working == 0
	}, s.recentCalls)
}

// recentCalls is the last calls as text for a failed test. It takes s.mu itself.
func (s *Server) recentCalls() string {
	calls := s.Calls("")
	s.mu.Lock()
	defer s.mu.Unlock()
	var out strings.Builder
	fmt.Fprintf(&out, "connections %d, events under way %d, lost %d\nlast calls:\n", len(s.conns), s.working, len(s.lost))
	for _, c := range calls[max(0, len(calls)-15):] {
		answer := "ok"
		if c.Error != "" {
			answer = c.Error
		}
		if c.Fault != "" {
			answer = "fault " + c.Fault
		}
		fmt.Fprintf(&out, "  %s %s: %.200q\n", c.Method, answer, c.Args["text"])
	}
	for _, v := range s.violations {
		fmt.Fprintf(&out, "  violation: %v\n", v)
	}
	return out.String()
}
