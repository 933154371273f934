package main

import (
	"bytes"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/clawbot/clawbot/channels/slack/slacktest"
	"github.com/clawbot/clawbot/model/modeltest"
)

// httpMode makes the next programs of the world use HTTP instead of Socket Mode.
func (w *world) httpMode() {
	env := w.env[:0:0]
	for _, v := range w.env {
		if !strings.HasPrefix(v, "SLACK_APP_TOKEN=") {
			env = append(env, v)
		}
	}
	w.env = append(env, "SLACK_SIGNING_SECRET="+w.slack.SigningSecret)
}

// serveHTTP starts a program in HTTP mode and has Slack deliver to it.
func (w *world) serveHTTP() *program {
	w.t.Helper()
	w.httpMode()
	p := w.start("serve")
	w.waitFor("the program is ready", func() bool { status, _ := w.get(p, "/readyz"); return status == http.StatusOK })
	w.slack.UseHTTP("http://" + p.addr(w))
	return p
}

// The story in HTTP mode: a message and a card, a restart, a click, one run.
func TestStoryOverHTTP(t *testing.T) {
	t.Parallel()
	w := newWorld(t, approverYAML)
	w.model.Reply(modeltest.Call("write_file", `{"path":"a.txt","content":"x"}`), modeltest.Text("Written."))
	p := w.serveHTTP()
	if err := w.slack.VerifyURL(); err != nil {
		t.Error(err)
	}
	ask := w.slack.Say("C0001", "U0001", slacktest.Mention+" write it", slacktest.Times(3))
	card := w.card(ask)
	w.eventually("parked\n", `SELECT status FROM turns`)
	p.kill()
	w.serveHTTP()
	w.click("U0001", card, "Approve")
	w.whispered("U0001", "another person has to decide")
	w.click("U0002", card, "Details")
	w.slack.WaitView(t, func(v slacktest.View) bool { return strings.Contains(viewText(v), "a.txt") })
	w.click("U0002", card, "Approve")
	w.slack.WaitText(t, "C0001", ask.TS, "Written.")
	w.closed(card, "ran and succeeded")
	if err := w.slack.Command("U0002", "C0001", "/clawbot", "help"); err != nil {
		t.Error(err)
	}
	w.settled()
	w.want("1 1\n", `SELECT (SELECT count(*) FROM turns), (SELECT count(*) FROM audit_log WHERE kind = 'tool_started')`)
}

// Requests that Slack has not signed just now have no effect, on any route; a
// signed one has one effect however often it comes.
//
// Rows: F46, T6.
func TestOnlySignedRequestsCount(t *testing.T) {
	t.Parallel()
	w := newWorld(t, approverYAML)
	w.model.Default(modeltest.Echo)
	p := w.serveHTTP()
	s := w.slack
	event := s.EventBody("C0001", "U0001", slacktest.Mention+" hello")
	click := []byte(url.Values{"payload": {`{"type":"block_actions","user":{"id":"U0002","team_id":"T0001"},"actions":[{"action_id":"clawbot_approve","value":"ap_x"}]}`}}.Encode())
	command := []byte(url.Values{"command": {"/clawbot"}, "text": {"help"}, "user_id": {"U0001"}, "channel_id": {"C0001"}}.Encode())
	challenge := []byte(`{"type":"url_verification","challenge":"c"}`)
	set := func(name string, values ...string) slacktest.Tamper {
		return func(r *http.Request) { r.Header[http.CanonicalHeaderKey(name)] = values }
	}
	routes := []struct {
		path, kind string
		body       []byte
	}{
		{slacktest.EventsPath, "application/json", event},
		{slacktest.EventsPath, "application/json", challenge},
		{slacktest.InteractionsPath, "application/x-www-form-urlencoded", click},
		{slacktest.CommandsPath, "application/x-www-form-urlencoded", command},
	}
	for _, route := range routes {
		old := s.Sign(time.Now().Add(-time.Hour), route.body)
		for name, c := range map[string]struct {
			age    time.Duration
			tamper slacktest.Tamper
		}{
			"wrong signature":           {0, slacktest.WrongSignature()},
			"no signature":              {0, slacktest.NoSignature()},
			"no timestamp":              {0, slacktest.NoTimestamp()},
			"301 s old":                 {301 * time.Second, func(*http.Request) {}},
			"305 s ahead":               {-305 * time.Second, func(*http.Request) {}},
			"signature of another time": {0, set("X-Slack-Signature", old)},
			"empty signature":           {0, set("X-Slack-Signature", "")},
			"two signatures":            {0, set("X-Slack-Signature", old, old)},
			"v1":                        {0, set("X-Slack-Signature", "v1="+strings.Repeat("0", 64))},
			"timestamp in words":        {0, set("X-Slack-Request-Timestamp", "now")},
			"timestamp too large":       {0, set("X-Slack-Request-Timestamp", strings.Repeat("9", 40))},
			"one byte flipped": {0, func(r *http.Request) {
				b := bytes.Clone(route.body)
				b[len(b)/2] ^= 1
				r.Body = readCloser{bytes.NewReader(b)}
			}},
		} {
			a, err := s.PostRaw(route.path, route.kind, route.body, c.age, c.tamper)
			if err != nil || a.Status != http.StatusUnauthorized {
				t.Errorf("%s, %s: %d %v %.100s", route.path, name, a.Status, err, a.Body)
			}
		}
		for _, method := range []string{http.MethodGet, http.MethodPut} {
			req, _ := http.NewRequest(method, "http://"+p.addr(w)+route.path, nil)
			res, err := http.DefaultClient.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			res.Body.Close()
			if res.StatusCode != http.StatusMethodNotAllowed {
				t.Errorf("%s %s: %d", method, route.path, res.StatusCode)
			}
		}
	}
	w.want("0\n", `SELECT count(*) FROM turns`)
	for i := range 20 {
		a, err := s.PostRaw(slacktest.EventsPath, "application/json", event, 0, set("X-Slack-Retry-Num", "1"), set("X-Slack-Retry-Reason", "http_timeout"))
		if err != nil || a.Status != http.StatusOK {
			t.Errorf("delivery %d: %d %v", i, a.Status, err)
		}
	}
	p.stop()
	p = w.start("serve")
	w.waitFor("the program is ready", func() bool { status, _ := w.get(p, "/readyz"); return status == http.StatusOK })
	s.UseHTTP("http://" + p.addr(w))
	if a, err := s.PostRaw(slacktest.EventsPath, "application/json", event, 0); err != nil || a.Status != http.StatusOK {
		t.Errorf("after a restart: %d %v", a.Status, err)
	}
	w.want("1\n", `SELECT count(*) FROM inbox`)
	// Signed, but no document of ours.
	for _, body := range []string{"", "null", "[]", "{", `{"type":7}`, `{"type":"event_callback"}`, `{"type":"event_callback","event":null}`,
		`{"type":"event_callback","event":{"type":"message"}}`, strings.Repeat("[", 100_000), "\x00\xff", "payload=%zz"} {
		for _, path := range []string{slacktest.EventsPath, slacktest.InteractionsPath, slacktest.CommandsPath} {
			if a, err := s.PostRaw(path, "application/json", []byte(body), 0); err != nil || a.Status >= 500 {
				t.Errorf("%s %.20q: %d %v", path, body, a.Status, err)
			}
		}
	}
	if a, err := s.PostRaw(slacktest.EventsPath, "application/json", bytes.Repeat([]byte("x"), 10<<20), 0); err == nil && a.Status < 400 {
		t.Errorf("10 MB: %d", a.Status)
	}
	p.stop()
}

type readCloser struct{ *bytes.Reader }

func (readCloser) Close() error { return nil }

// Without a signing secret the routes are not there.
//
// Rows: F46, T6.
func TestNoRoutesWithoutASecret(t *testing.T) {
	t.Parallel()
	w := newWorld(t, approverYAML)
	p := w.serve()
	w.slack.UseHTTP("http://" + p.addr(w))
	for _, path := range []string{slacktest.EventsPath, slacktest.InteractionsPath, slacktest.CommandsPath, "/", "/audit"} {
		a, err := w.slack.PostRaw(path, "application/json", []byte(`{"type":"url_verification","challenge":"c"}`), 0)
		if err != nil || a.Status != http.StatusNotFound {
			t.Errorf("%s: %d %v", path, a.Status, err)
		}
	}
	w.slack.UseHTTP("")
}
