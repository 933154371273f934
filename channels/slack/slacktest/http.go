package slacktest

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// Paths of the program's endpoints in HTTP mode.
const (
	EventsPath       = "/slack/events"
	InteractionsPath = "/slack/interactions"
	CommandsPath     = "/slack/commands"
)

// UseHTTP delivers from now on as signed requests to the program at base (such
// as http://127.0.0.1:8420) instead of over Socket Mode; "" goes back.
func (s *Server) UseHTTP(base string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.httpBase = strings.TrimSuffix(base, "/")
	s.notify()
}

func newDeliveryClient(timeout time.Duration) *http.Client {
	return &http.Client{
		Timeout:   timeout,
		Transport: &http.Transport{MaxIdleConnsPerHost: 10},
		CheckRedirect: func(_ *http.Request, via []*http.Request) error {
			if len(via) > 2 {
				return errTooManyRedirects
			}
			return nil
		},
	}
}

var errTooManyRedirects = errors.New("too many redirects")

// Tamper changes a signed request before it is sent.
type Tamper func(*http.Request)

// WrongSignature signs with another secret.
func WrongSignature() Tamper {
	return func(r *http.Request) { r.Header.Set("X-Slack-Signature", "v0="+strings.Repeat("0", 64)) }
}

// NoSignature leaves the signature out.
func NoSignature() Tamper {
	return func(r *http.Request) { r.Header.Del("X-Slack-Signature") }
}

// NoTimestamp leaves the timestamp out; the signature stays.
func NoTimestamp() Tamper {
	return func(r *http.Request) { r.Header.Del("X-Slack-Request-Timestamp") }
}

// Answer is what the program answered to a request.
type Answer struct {
	Status int
	Header http.Header
	Body   []byte
}

// PostRaw sends a request to the program as Slack would, signed at a time
// before now by age, and then tampered with. It records nothing and is not sent
// again. Call UseHTTP first.
func (s *Server) PostRaw(path, contentType string, body []byte, age time.Duration, tamper ...Tamper) (Answer, error) {
	s.mu.Lock()
	base := s.httpBase
	s.mu.Unlock()
	return s.post(base, path, contentType, body, time.Now().Add(-age), tamper...)
}

// VerifyURL has Slack check the events endpoint with a challenge.
func (s *Server) VerifyURL() error {
	body := encode(object{"type": "url_verification", "token": "slacktest-verification", "challenge": "slacktest-challenge"})
	a, err := s.PostRaw(EventsPath, "application/json", body, 0)
	if err != nil {
		return err
	}
	var sent struct{ Challenge string }
	if a.Status != http.StatusOK ||
		(string(bytes.TrimSpace(a.Body)) != "slacktest-challenge" && (json.Unmarshal(a.Body, &sent) != nil || sent.Challenge != "slacktest-challenge")) {
		return fmt.Errorf("verify url: answered %d %.100q, not the challenge", a.Status, a.Body)
	}
	return nil
}

// Sign is the X-Slack-Signature of a body sent at a time.
func (s *Server) Sign(at time.Time, body []byte) string {
	mac := hmac.New(sha256.New, []byte(s.SigningSecret))
	_, _ = fmt.Fprintf(mac, "v0:%d:%s", at.Unix(), body)
	return "v0=" + hex.EncodeToString(mac.Sum(nil))
}

// post sends one signed request. It needs no lock.
func (s *Server) post(base, path, contentType string, body []byte, at time.Time, tamper ...Tamper) (Answer, error) {
	req, err := http.NewRequestWithContext(s.ctx, http.MethodPost, base+path, bytes.NewReader(body))
	if err != nil {
		return Answer{}, err
	}
	req.Header.Set("Content-Type", contentType)
	req.Header.Set("User-Agent", "Slackbot 1.0 (+https://api.slack.com/robots)")
	req.Header.Set("X-Slack-Request-Timestamp", strconv.FormatInt(at.Unix(), 10))
	req.Header.Set("X-Slack-Signature", s.Sign(at, body))
	for _, f := range tamper {
		f(req)
	}
	resp, err := s.client.Do(req)
	if err != nil {
		return Answer{}, err
	}
	defer func() { _ = resp.Body.Close() }()
	answer, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	return Answer{Status: resp.StatusCode, Header: resp.Header, Body: answer}, err
}

// dispatchHTTP posts an event. The next one may leave when this one is
// answered, or after a moment. It takes s.mu itself.
func (s *Server) dispatchHTTP(base string, d *delivery) {
	answered := make(chan struct{})
	s.mu.Lock()
	s.goLocked(func() {
		s.postEvent(base, d)
		close(answered)
	})
	s.mu.Unlock()
	if d.atOnce {
		return
	}
	timer := time.NewTimer(250 * time.Millisecond)
	defer timer.Stop()
	select {
	case <-answered:
	case <-timer.C:
	case <-s.ctx.Done():
	}
}

// postEvent makes one attempt at an event. It takes s.mu itself.
func (s *Server) postEvent(base string, d *delivery) {
	start := time.Now()
	a, err := s.post(base, EventsPath, "application/json", d.body, start, func(r *http.Request) {
		if n := d.retry(); n > 0 {
			r.Header.Set("X-Slack-Retry-Num", strconv.Itoa(n))
			r.Header.Set("X-Slack-Retry-Reason", d.reason)
		}
	})
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return
	}
	if err != nil {
		s.settle(d, false, failureReason(err), true)
		return
	}
	ok := a.Status >= 200 && a.Status < 300
	if ok {
		s.acks = append(s.acks, Ack{
			Kind: d.kind, EventID: d.eventID, Retry: d.retry(), Latency: time.Since(start), Status: a.Status, Payload: payload(a.Body),
		})
	}
	s.settle(d, ok, "http_error", a.Header.Get("X-Slack-No-Retry") != "1")
}

// failureReason is how Slack names the failure of a request.
func failureReason(err error) string {
	var netErr net.Error
	switch {
	case errors.Is(err, errTooManyRedirects):
		return "too_many_redirects"
	case errors.Is(err, context.DeadlineExceeded), errors.As(err, &netErr) && netErr.Timeout():
		return "http_timeout"
	}
	return "connection_failed"
}

// payload is an answer's body as JSON, nil if there is none; what is no JSON
// becomes a text.
func payload(body []byte) json.RawMessage {
	body = bytes.TrimSpace(body)
	switch {
	case len(body) == 0:
		return nil
	case json.Valid(body):
		return body
	}
	return encode(object{"text": string(body)})
}

// postInteraction delivers a click, a submission or a command. It needs no lock.
func (s *Server) postInteraction(base string, d *delivery) (Answer, error) {
	path, form := InteractionsPath, url.Values{"payload": {string(d.body)}}
	if d.kind == kindCommand {
		path, form = CommandsPath, d.form
	}
	return s.post(base, path, "application/x-www-form-urlencoded", []byte(form.Encode()), time.Now())
}
