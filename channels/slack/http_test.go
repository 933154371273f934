package slack

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/clawbot/clawbot/channels/slack/slacktest"
)

// T6, F46: the signature, on all three routes.
func TestT6_F46_Signatures(t *testing.T) {
	b := start(t, withHTTP)
	event := b.EventBody("C0001", "U0001", m+" hi")
	form := []byte("payload=" + url.QueryEscape(`{"type":"block_actions","user":{"id":"U0001"},"actions":[{"action_id":"clawbot_approve","value":"ap_1"}]}`))
	routes := []struct {
		path, kind string
		body       []byte
	}{{PathEvents, "application/json", event}, {PathInteractions, "application/x-www-form-urlencoded", form}, {PathCommands, "application/x-www-form-urlencoded", []byte("command=%2Fclawbot")}}
	header := func(f func(http.Header)) slacktest.Tamper { return func(r *http.Request) { f(r.Header) } }
	for _, c := range []struct {
		name   string
		age    time.Duration
		tamper []slacktest.Tamper
		flip   bool
		ok     bool
	}{
		{name: "old", age: 301 * time.Second},
		{name: "ahead", age: -302 * time.Second},
		{name: "flipped byte", flip: true},
		{name: "wrong signature", tamper: []slacktest.Tamper{slacktest.WrongSignature()}},
		{name: "no signature", tamper: []slacktest.Tamper{slacktest.NoSignature()}},
		{name: "no timestamp", tamper: []slacktest.Tamper{slacktest.NoTimestamp()}},
		{name: "signature twice", tamper: []slacktest.Tamper{header(func(h http.Header) { h.Add("X-Slack-Signature", h.Get("X-Slack-Signature")) })}},
		{name: "timestamp twice", tamper: []slacktest.Tamper{header(func(h http.Header) { h.Add("X-Slack-Request-Timestamp", h.Get("X-Slack-Request-Timestamp")) })}},
		{name: "other timestamp", tamper: []slacktest.Tamper{header(func(h http.Header) {
			h.Set("X-Slack-Request-Timestamp", strconv.FormatInt(time.Now().Unix()-7, 10))
		})}},
		{name: "no version", tamper: []slacktest.Tamper{header(func(h http.Header) {
			h.Set("X-Slack-Signature", strings.TrimPrefix(h.Get("X-Slack-Signature"), "v0="))
		})}},
		{name: "empty signature", tamper: []slacktest.Tamper{header(func(h http.Header) { h.Set("X-Slack-Signature", "v0=") })}},
		{name: "text timestamp", tamper: []slacktest.Tamper{header(func(h http.Header) { h.Set("X-Slack-Request-Timestamp", "now") })}},
		{name: "almost old", age: 295 * time.Second, ok: true},
		{name: "valid", ok: true},
	} {
		for _, r := range routes {
			before, clicks := b.in.attempts(), len(b.in.clicked())
			tamper := c.tamper
			if c.flip {
				flipped := append([]byte(nil), r.body...)
				flipped[len(flipped)/2] ^= 1
				tamper = append(tamper, func(req *http.Request) { *req = *withBody(req, flipped) })
			}
			a, err := b.PostRaw(r.path, r.kind, r.body, c.age, tamper...)
			if err != nil {
				t.Fatal(err)
			}
			if (a.Status == http.StatusOK) != c.ok {
				t.Errorf("%s %s: answered %d", c.name, r.path, a.Status)
			}
			if !c.ok && (b.in.attempts() != before || len(b.in.clicked()) != clicks) {
				t.Errorf("%s %s: had an effect", c.name, r.path)
			}
		}
	}
	b.eventually("the valid clicks", func() bool { return len(b.in.clicked()) == 2 })
}

func withBody(r *http.Request, body []byte) *http.Request {
	c, err := http.NewRequestWithContext(r.Context(), r.Method, r.URL.String(), strings.NewReader(string(body)))
	if err != nil {
		panic(err)
	}
	c.Header = r.Header
	return c
}

// A body that was decoded and encoded again has the same meaning and another
// signature.
func TestT6_ReencodedForm(t *testing.T) {
	b := start(t, withHTTP)
	body := []byte("payload=%7B%22type%22%3A%22x%22%7D&a=1+2")
	other := []byte("a=1%202&payload=%7b%22type%22%3a%22x%22%7d")
	a, err := b.PostRaw(PathInteractions, "application/x-www-form-urlencoded", body, 0, func(r *http.Request) { *r = *withBody(r, other) })
	if err != nil || a.Status != http.StatusUnauthorized {
		t.Errorf("%d %v", a.Status, err)
	}
}

// A signature proves origin, not uniqueness: a hundred repeats are one message.
func TestT6_ReplayIsOneMessage(t *testing.T) {
	b := start(t, withHTTP)
	body := b.EventBody("C0001", "U0001", m+" hi")
	for range 100 {
		if a, err := b.PostRaw(PathEvents, "application/json", body, 0); err != nil || a.Status != http.StatusOK {
			t.Fatal(a.Status, err)
		}
	}
	b.wait(1)
	if n := b.in.attempts(); n < 1 || n > 100 { // what is stored needs no second look
		t.Errorf("%d attempts to store it", n)
	}
}

func TestT6_NoSecretNoRoutes(t *testing.T) {
	b := start(t)
	front := httptest.NewServer(b.a.Handler())
	defer front.Close()
	b.UseHTTP(front.URL)
	for _, path := range []string{PathEvents, PathInteractions, PathCommands, "/", "/slack"} {
		a, err := b.PostRaw(path, "application/json", []byte("{}"), 0)
		if err != nil || a.Status != http.StatusNotFound {
			t.Errorf("%s: %d %v", path, a.Status, err)
		}
	}
	b.UseHTTP("")
	if err := verify("", http.Header{}, nil, time.Now()); err == nil {
		t.Error("a blank secret verifies")
	}
}

func TestURLVerificationAndReadiness(t *testing.T) {
	b := start(t, withHTTP, func(s *settings) { s.idle = true })
	if err := b.VerifyURL(); err != nil { // an admin sets the address before anything else
		t.Error(err)
	}
	for _, path := range []string{PathEvents, PathInteractions} {
		if a, err := b.PostRaw(path, "application/json", []byte(`{"type":"event_callback"}`), 0); err != nil || a.Status != http.StatusServiceUnavailable {
			t.Errorf("%s before Run: %d %v", path, a.Status, err)
		}
	}
	if ok, detail := b.a.Health(); ok {
		t.Errorf("ready before Run: %s", detail)
	}
	b.run()
	b.Say("C0001", "U0001", m+" hi")
	b.wait(1)
}

func TestOtherMethodsAndBigBodies(t *testing.T) {
	b := start(t, withHTTP)
	res, err := b.a.cfg.HTTP.Get(b.front.URL + PathEvents)
	if err != nil {
		t.Fatal(err)
	}
	_ = res.Body.Close()
	if res.StatusCode != http.StatusMethodNotAllowed {
		t.Errorf("GET: %d", res.StatusCode)
	}
	a, err := b.PostRaw(PathEvents, "application/json", make([]byte, maxBody+1), 0)
	if err == nil && a.Status != http.StatusRequestEntityTooLarge {
		t.Errorf("T16: big body: %d", a.Status)
	}
}
