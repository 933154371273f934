package slacktest_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/slack-go/slack"

	"github.com/clawbot/clawbot/channels/slack/slacktest"
)

// endpoint is an app in HTTP mode that checks signatures with the real
// client's verifier.
type endpoint struct {
	*httptest.Server

	mu     sync.Mutex
	status []int // answers to give before 200
	got    []*http.Request
	bodies []string
}

func startEndpoint(t *testing.T, s *slacktest.Server, status ...int) *endpoint {
	t.Helper()
	e := &endpoint{status: status}
	e.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		v, err := slack.NewSecretsVerifier(r.Header, s.SigningSecret)
		if err == nil {
			_, _ = v.Write(body)
			err = v.Ensure()
		}
		if err != nil {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		e.mu.Lock()
		defer e.mu.Unlock()
		e.got, e.bodies = append(e.got, r), append(e.bodies, string(body))
		if strings.Contains(string(body), "url_verification") {
			_, _ = io.WriteString(w, "slacktest-challenge")
			return
		}
		if len(e.status) > 0 {
			code := e.status[0]
			e.status = e.status[1:]
			if code == http.StatusForbidden {
				w.Header().Set("X-Slack-No-Retry", "1")
			}
			w.WriteHeader(code)
			return
		}
		if r.URL.Path == slacktest.CommandsPath {
			_, _ = io.WriteString(w, "on it")
		}
	}))
	t.Cleanup(e.Close)
	s.UseHTTP(e.URL)
	return e
}

// seen is what has arrived: requests and their bodies.
func (e *endpoint) seen() ([]*http.Request, []string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Clone(e.got), slices.Clone(e.bodies)
}

// next sets the statuses of the next answers.
func (e *endpoint) next(status ...int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.status = status
}

func TestHTTPEvents(t *testing.T) {
	s := slacktest.Start(t)
	e := startEndpoint(t, s)
	if err := s.VerifyURL(); err != nil {
		t.Error(err)
	}
	s.Say("C0001", "U0001", slacktest.Mention+" hi", slacktest.MentionFirst())
	s.WaitIdle(t)
	got, bodies := e.seen()
	if len(bodies) != 3 || !strings.Contains(bodies[1], `"app_mention"`) || !strings.Contains(bodies[2], `"channel_type":"channel"`) {
		t.Errorf("bodies %q", bodies)
	}
	if n := got[1].Header.Get("X-Slack-Retry-Num"); n != "" || got[1].URL.Path != slacktest.EventsPath {
		t.Errorf("retry num %q on a first delivery to %s", n, got[1].URL)
	}
}

func TestHTTPRetries(t *testing.T) {
	s := slacktest.Start(t, slacktest.WithRetryDelays(0, 0, 0))
	e := startEndpoint(t, s, 500, 500)
	s.Say("C0001", "U0001", "hi")
	s.WaitIdle(t)
	got, bodies := e.seen()
	if len(got) != 3 || got[2].Header.Get("X-Slack-Retry-Num") != "2" || got[2].Header.Get("X-Slack-Retry-Reason") != "http_error" {
		t.Errorf("%d deliveries", len(got))
	}
	if bodies[0] != bodies[2] {
		t.Error("a retry differs from the first delivery")
	}

	e.next(403) // with x-slack-no-retry
	s.Say("C0001", "U0001", "hi")
	s.WaitIdle(t)
	got, _ = e.seen()
	if len(got) != 4 || len(s.Lost()) != 1 {
		t.Errorf("%d deliveries, lost %v", len(got), s.Lost())
	}

	s.Say("C0001", "U0001", "hi", slacktest.AsRetry(1))
	s.WaitIdle(t)
	got, _ = e.seen()
	if got[4].Header.Get("X-Slack-Retry-Num") != "1" {
		t.Error("the first delivery should look like a retry")
	}

	s.UseHTTP("http://127.0.0.1:1")
	s.Say("C0001", "U0001", "hi")
	s.WaitIdle(t)
	if lost := s.Lost(); lost[1].Reason != "connection_failed" {
		t.Errorf("lost %+v", lost)
	}
}

func TestHTTPTimeout(t *testing.T) {
	s := slacktest.Start(t, slacktest.WithAckTimeout(30*time.Millisecond), slacktest.WithRetryDelays())
	release := make(chan struct{})
	slow := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-release }))
	defer slow.Close()
	defer close(release)
	s.UseHTTP(slow.URL)
	s.Say("C0001", "U0001", "hi")
	s.WaitIdle(t)
	if lost := s.Lost(); len(lost) != 1 || lost[0].Reason != "http_timeout" {
		t.Errorf("lost %+v", lost)
	}
}

func TestHTTPInteractions(t *testing.T) {
	s := slacktest.Start(t)
	e := startEndpoint(t, s)
	api := client(t, s)
	ts := post(t, api, "C0001", slack.MsgOptionBlocks(slack.NewActionBlock("", button("approve", "Approve"))))
	s.WaitIdle(t)
	m, _ := s.Message("C0001", ts)
	if err := s.Click("U0001", m, "Approve"); err != nil {
		t.Fatal(err)
	}
	got, bodies := e.seen()
	last := len(got) - 1
	if got[last].URL.Path != slacktest.InteractionsPath || !strings.HasPrefix(bodies[last], "payload=%7B") {
		t.Errorf("%s %q", got[last].URL, bodies[last])
	}
	if err := s.Command("U0001", "C0001", "/clawbot", "help"); err != nil {
		t.Fatal(err)
	}
	if got := s.Ephemerals("U0001"); len(got) != 1 || got[0].Shown != "on it" {
		t.Errorf("shown %+v", got)
	}
	e.next(500)
	if err := s.Click("U0001", m, "Approve"); err == nil {
		t.Error("a click answered 500 counts as delivered")
	}
}

func TestForgery(t *testing.T) {
	s := slacktest.Start(t)
	startEndpoint(t, s)
	body := s.EventBody("C0001", "U0001", "hi")
	for i, tc := range []struct {
		age    time.Duration
		tamper []slacktest.Tamper
		want   int
	}{
		{0, nil, 200},
		{4 * time.Minute, nil, 200},
		{10 * time.Minute, nil, 401},
		{-10 * time.Minute, nil, 401},
		{0, []slacktest.Tamper{slacktest.WrongSignature()}, 401},
		{0, []slacktest.Tamper{slacktest.NoSignature()}, 401},
		{0, []slacktest.Tamper{slacktest.NoTimestamp()}, 401},
	} {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			a, err := s.PostRaw(slacktest.EventsPath, "application/json", body, tc.age, tc.tamper...)
			if err != nil || a.Status != tc.want {
				t.Errorf("status %d, want %d; %v", a.Status, tc.want, err)
			}
		})
	}
}
