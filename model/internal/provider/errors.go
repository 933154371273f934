package provider

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/clawbot/clawbot/agent"
)

const maxErrorText = 200 // characters of an error's text, without its kind

// Error is a failed attempt.
type Error struct {
	Kind  error         // one of the agent.ErrModel… values
	Text  string        // clean: bounded, printable, no secret
	Retry bool          // another attempt may succeed
	After time.Duration // the provider's wish for the wait before it; 0 = none
}

func (e *Error) Error() string { return fmt.Sprintf("%v: %s", e.Kind, e.Text) }

func (e *Error) Unwrap() error { return e.Kind }

// Detail is what a provider's error body says.
type Detail struct {
	Type    string // e.g. "invalid_request_error"
	Message string
}

// ReadDetail reads the error of a response, an event or a chunk, as all servers
// write it: {"error": {"type": …, "message": …}}. Zero if there is none.
func ReadDetail(body []byte) Detail {
	var envelope struct {
		Error json.RawMessage `json:"error"`
	}
	if !bytes.Contains(body, []byte(`"error"`)) {
		return Detail{} // as nearly all chunks
	}
	if json.Unmarshal(body, &envelope) != nil || len(envelope.Error) == 0 || string(envelope.Error) == "null" {
		return Detail{}
	}
	var e struct {
		Type, Message string
		Code          any // of OpenAI's form; text, a number at some servers, or null
	}
	if json.Unmarshal(envelope.Error, &e) != nil {
		return Detail{Type: "error", Message: string(envelope.Error)}
	}
	d := Detail{Type: e.Type, Message: e.Message}
	if code, ok := e.Code.(string); ok && (code == "insufficient_quota" || d.Type == "") {
		d.Type = code
	}
	if d.Type == "" {
		d.Type = "error"
	}
	return d
}

func refused(format string, args ...any) *Error {
	return &Error{Kind: agent.ErrModelRefused, Text: bound(printable(fmt.Sprintf(format, args...)))}
}

// Broken is an attempt whose stream was not what it should be.
func Broken(text string) *Error {
	return &Error{Kind: agent.ErrModelUnavailable, Text: text, Retry: true}
}

// FromStatus is the error of an HTTP answer.
func (s Scrubber) FromStatus(status int, header http.Header, d Detail) *Error {
	e := &Error{Kind: agent.ErrModelUnavailable, Text: s.describe(fmt.Sprintf("status %d", status), d)}
	switch {
	case status == 401 || status == 403:
		e.Kind = agent.ErrModelAuth
		e.Text = s.describe(fmt.Sprintf("status %d", status), Detail{Type: d.Type}) // the message may quote the key
	case status == 400 || status == 404 || status == 413 || status == 422:
		e.Kind = agent.ErrModelRefused
	case status == 429:
		e.Retry = d.Type != "insufficient_quota" // waiting pays no bill
	default:
		e.Retry = status == 408 || status == 409 || status >= 500
	}
	switch header.Get("X-Should-Retry") {
	case "true":
		e.Retry = true
	case "false":
		e.Retry = false
	}
	e.After = retryAfter(header)
	return e
}

// FromEvent is the error that a provider sent in place of the rest of a stream.
func (s Scrubber) FromEvent(d Detail) *Error {
	e := &Error{Kind: agent.ErrModelUnavailable, Retry: true}
	switch d.Type {
	case "authentication_error", "permission_error":
		e.Kind, e.Retry = agent.ErrModelAuth, false
		d.Message = ""
	case "invalid_request_error", "not_found_error", "request_too_large":
		e.Kind, e.Retry = agent.ErrModelRefused, false
	case "billing_error", "insufficient_quota":
		e.Retry = false
	}
	e.Text = s.describe("error in the stream", d)
	return e
}

// FromCause is the error of an attempt that failed in any other way. Connection
// errors and cut streams are worth another attempt.
func (s Scrubber) FromCause(err error) *Error {
	if e, ok := errors.AsType[*Error](err); ok {
		return e
	}
	if e, ok := errors.AsType[*url.Error](err); ok {
		err = e.Err // without the address
	}
	if errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.EOF) {
		return Broken("the connection was cut")
	}
	return Broken(s.Clean(err.Error()))
}

func (s Scrubber) describe(what string, d Detail) string {
	if kind := s.Clean(d.Type); errorType.MatchString(kind) {
		what += " " + kind
	}
	if message := s.Clean(d.Message); message != "" {
		what += ": " + message
	}
	return bound(what)
}

// retryAfter reads how long the provider wants us to wait; 0 if it does not say.
func retryAfter(h http.Header) time.Duration {
	if ms, err := strconv.ParseFloat(h.Get("Retry-After-Ms"), 64); err == nil && ms > 0 {
		return time.Duration(min(ms, 1e9) * float64(time.Millisecond))
	}
	value := h.Get("Retry-After")
	if s, err := strconv.ParseFloat(value, 64); err == nil && s > 0 {
		return time.Duration(min(s, 1e6) * float64(time.Second))
	}
	if at, err := http.ParseTime(value); err == nil {
		return max(0, time.Until(at))
	}
	return 0
}

// cancelled is the error of a request whose context ended.
func cancelled(ctx context.Context) error {
	return fmt.Errorf("%w: %w", agent.ErrModelUnavailable, ctx.Err())
}

// Scrubber cleans text that comes from a server or a library of what no log
// may hold.
type Scrubber struct{ secrets []string }

// NewScrubber knows the secrets in the forms that they are sent in.
func NewScrubber(secrets ...string) Scrubber {
	var s Scrubber
	for _, secret := range secrets {
		if secret == "" {
			continue
		}
		query := url.QueryEscape(secret)
		s.secrets = append(s.secrets, secret, query, strings.ReplaceAll(query, "+", "%20"), url.PathEscape(secret),
			base64.StdEncoding.EncodeToString([]byte(secret)), base64.URLEncoding.EncodeToString([]byte(secret)))
	}
	return s
}

var (
	address = regexp.MustCompile(`[a-zA-Z][a-zA-Z0-9+.-]*://\S+`)
	// keyLike is what providers' keys look like, also shortened with stars.
	keyLike = regexp.MustCompile(`\bsk-\S{6,}`)
	// errorType is what a provider's error types look like.
	errorType = regexp.MustCompile(`^[a-zA-Z0-9_.-]{1,50}$`)
)

// Clean returns one bounded line of printable, valid UTF-8 without the secrets,
// anything that looks like a key, and addresses.
func (s Scrubber) Clean(text string) string {
	// The longest text that could matter, so that a huge body costs nothing.
	text = printable(strings.ToValidUTF8(text[:min(len(text), 16<<10)], ""))
	for _, secret := range s.secrets {
		text = strings.ReplaceAll(text, printable(secret), "[key]")
	}
	text = address.ReplaceAllString(text, "[address]")
	text = keyLike.ReplaceAllString(text, "[key]")
	return bound(text)
}

// printable drops what does not show and makes all white space one blank.
func printable(text string) string {
	text = strings.Map(func(r rune) rune {
		switch {
		case unicode.IsSpace(r):
			return ' '
		case r == unicode.ReplacementChar, !unicode.IsPrint(r):
			return -1
		}
		return r
	}, text)
	return strings.Join(strings.Fields(text), " ")
}

func bound(text string) string {
	if runes := []rune(text); len(runes) > maxErrorText {
		return string(runes[:maxErrorText-1]) + "…"
	}
	return text
}
