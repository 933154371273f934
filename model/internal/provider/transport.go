package provider

import (
	"context"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"time"

	"github.com/clawbot/clawbot/agent"
)

// Defaults and bounds of one attempt.
const (
	DefaultIdle    = 120 * time.Second
	DefaultTimeout = 10 * time.Minute
	maxStream      = 64 << 20 // bytes of a stream, with all its wrapping
	maxErrorBody   = 64 << 10 // bytes of an error's body that are read
	drainTime      = 50 * time.Millisecond
)

var (
	errIdle    = errors.New("idle")
	errTimeout = errors.New("timeout")
)

// CheckBaseURL refuses what is no address of a server, without showing it, and
// returns the password in it, which is a secret.
func CheckBaseURL(text string) (password string, err error) {
	base, err := url.Parse(text)
	if err != nil || base.Host == "" || base.Scheme != "http" && base.Scheme != "https" {
		return "", errors.New("the base URL is no http or https address")
	}
	password, _ = base.User.Password()
	return password, nil
}

// Transport is the HTTP client given to an SDK. It makes one attempt: it turns
// an answer that is no event stream into an Error, ends a stream in which
// nothing arrives or which is too long, and follows no redirect, because the
// key would go along.
type Transport struct {
	client   http.Client
	idle     time.Duration
	timeout  time.Duration
	scrubber Scrubber
}

// NewTransport wraps client; nil means Go's default transport. idle and timeout
// of 0 mean the defaults.
func NewTransport(client *http.Client, idle, timeout time.Duration, s Scrubber) *Transport {
	t := &Transport{idle: idle, timeout: timeout, scrubber: s}
	if client != nil {
		t.client = *client
	}
	t.client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	if t.idle == 0 {
		t.idle = DefaultIdle
	}
	if t.timeout == 0 {
		t.timeout = DefaultTimeout
	}
	return t
}

// Do sends the request. The response is an event stream with status 200; its
// body must be closed. All errors but a context's are *Error.
func (t *Transport) Do(req *http.Request) (*http.Response, error) {
	ctx, cancel := context.WithCancelCause(req.Context())
	b := &body{ctx: ctx, cancel: cancel, idle: t.idle, scrubber: t.scrubber}
	b.silence = time.AfterFunc(t.idle, func() { cancel(errIdle) })
	b.whole = time.AfterFunc(t.timeout, func() { cancel(errTimeout) })
	res, err := t.client.Do(req.WithContext(ctx))
	if err != nil {
		err = b.explain(err)
		b.stop()
		return nil, err
	}
	b.from = res.Body
	res.Body = b
	if err := t.check(res); err != nil {
		b.Close()
		return nil, err
	}
	return res, nil
}

func (t *Transport) check(res *http.Response) error {
	media, _, _ := mime.ParseMediaType(res.Header.Get("Content-Type"))
	isStream := media != "text/html" && media != "application/json"
	if res.StatusCode == http.StatusOK && isStream {
		return nil
	}
	content, err := io.ReadAll(io.LimitReader(res.Body, maxErrorBody))
	if err != nil && len(content) == 0 && res.StatusCode == http.StatusOK {
		return err
	}
	detail := ReadDetail(content)
	if res.StatusCode != http.StatusOK {
		return t.scrubber.FromStatus(res.StatusCode, res.Header, detail)
	}
	if detail.Type != "" {
		return t.scrubber.FromEvent(detail)
	}
	return Broken(fmt.Sprintf("the answer is %s and no event stream", media))
}

// body watches over one response until it is closed.
type body struct {
	from     io.ReadCloser
	ctx      context.Context
	cancel   context.CancelCauseFunc
	idle     time.Duration
	silence  *time.Timer
	whole    *time.Timer
	scrubber Scrubber
	read     int
	ended    bool
}

func (b *body) Read(p []byte) (int, error) {
	n, err := b.from.Read(p)
	if n > 0 {
		b.silence.Reset(b.idle)
	}
	if b.read += n; b.read > maxStream {
		return n, &Error{Kind: agent.ErrModelUnavailable, Text: "the stream is longer than 64 MiB"}
	}
	if err != nil && err != io.EOF {
		err = b.explain(err)
	}
	b.ended = b.ended || err != nil
	return n, err
}

// Close ends the attempt. After a stream's last event it gives the server a
// moment to end the response, so that the connection can be used again.
func (b *body) Close() error {
	if !b.ended {
		soon := time.AfterFunc(drainTime, func() { b.cancel(nil) })
		io.CopyN(io.Discard, b.from, 4<<10)
		soon.Stop()
	}
	err := b.from.Close()
	b.stop()
	return err
}

func (b *body) stop() {
	b.silence.Stop()
	b.whole.Stop()
	b.cancel(nil)
}

// explain says what the attempt's own end was, if it is what caused err.
func (b *body) explain(err error) error {
	switch context.Cause(b.ctx) {
	case errIdle:
		return Broken(fmt.Sprintf("nothing arrived for %v", b.idle))
	case errTimeout:
		return Broken("the answer took too long")
	}
	return b.scrubber.FromCause(err)
}
