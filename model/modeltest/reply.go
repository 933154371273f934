package modeltest

import (
	"encoding/json"
	"fmt"
	"strconv"
	"time"
)

// Reply is one scripted answer. Make it with one of the functions below and
// change it with its methods, which all return a changed copy.
type Reply struct {
	text  string
	calls []ToolCall
	stop  string // "", "length" or "filter"

	status      int // not 200: answered with body instead of a stream
	header      map[string]string
	body        string
	contentType string

	cut        CutPoint
	clean      bool // the cut stream ends as if it were whole
	errorEvent string
	pace       time.Duration
	hold       <-chan struct{}
	holdInside bool
}

// CutPoint is where a stream ends too early.
type CutPoint int

// The places to cut a stream at.
const (
	NoCut      CutPoint = iota
	CutHeaders          // the connection closes before anything is answered
	CutText             // in the middle of the text
	CutCall             // before the first call
	CutInCall           // in the middle of the last call's arguments
	CutEnd              // after everything but the closing event
)

// Text answers with text.
func Text(text string) Reply { return Reply{text: text} }

// Call answers with one tool call; args is JSON text and may be broken.
func Call(name, args string) Reply { return Reply{}.AndCall(name, args) }

// AndCall adds a tool call, after a text or other calls.
func (r Reply) AndCall(name, args string) Reply { return r.AndCallID("", name, args) }

// AndCallID adds a tool call with an id of its own: "" has the server make one,
// NoID sends an empty one.
func (r Reply) AndCallID(id, name, args string) Reply {
	r.calls = append(r.calls[:len(r.calls):len(r.calls)], ToolCall{id, name, args})
	return r
}

// NoID as the id of a call sends it with an empty id.
const NoID = "\x00none"

// AtLimit ends the answer as if the model had reached its token limit; give the
// last call broken arguments to have it cut there.
func (r Reply) AtLimit() Reply { r.stop = "length"; return r }

// Filtered ends the answer as the provider's content filter does.
func (r Reply) Filtered() Reply { r.stop = "filter"; return r }

// Status answers with an HTTP status and the API's own error body.
func Status(code int) Reply { return Reply{status: code} }

// RateLimited answers 429 with a Retry-After in seconds.
func RateLimited(retryAfter int) Reply {
	return Status(429).Header("Retry-After", strconv.Itoa(retryAfter))
}

// HTML answers with a page, as proxies and login screens do.
func HTML(code int) Reply {
	return Reply{status: code, contentType: "text/html; charset=utf-8", body: "<!doctype html><title>Bad gateway</title><h1>502</h1>"}
}

// JSON answers with a JSON body in place of a stream.
func JSON(code int, body string) Reply {
	return Reply{status: code, contentType: "application/json", body: body}
}

// Message sets the text of the error body of Status.
func (r Reply) Message(text string) Reply {
	r.text = text
	return r
}

// Header adds a response header.
func (r Reply) Header(name, value string) Reply {
	header := map[string]string{name: value}
	for k, v := range r.header {
		header[k] = v
	}
	r.header = header
	return r
}

// ContentType sets the stream's content type.
func (r Reply) ContentType(value string) Reply { r.contentType = value; return r }

// Cut closes the connection in the middle of the stream.
func (r Reply) Cut(at CutPoint) Reply { r.cut = at; return r }

// End ends the stream there in good order, as proxies do that lost their
// upstream: no transport error tells that something is missing.
func (r Reply) End(at CutPoint) Reply { r.cut, r.clean = at, true; return r }

// ErrorEvent ends the stream with an error event of that type, after the text.
func (r Reply) ErrorEvent(kind string) Reply { r.errorEvent = kind; return r }

// Slow waits that long before each piece of the stream.
func (r Reply) Slow(pace time.Duration) Reply { r.pace = pace; return r }

// Hold waits for release to be closed before anything is answered. The wait ends
// too when the client goes away or the server is closed.
func (r Reply) Hold(release <-chan struct{}) Reply { r.hold, r.holdInside = release, false; return r }

// HoldInside is like Hold, but in the middle of the stream.
func (r Reply) HoldInside(release <-chan struct{}) Reply {
	r.hold, r.holdInside = release, true
	return r
}

// Echo is a handler for Default: it answers with the last text of a person, or
// with the tool results at the end of the request.
func Echo(r Request) Reply {
	if results := r.Results(); len(results) > 0 {
		text := ""
		for _, result := range results {
			text += result.Text + "\n"
		}
		return Text(text)
	}
	return Text(r.LastUser())
}

// errorBody is what both APIs send with an error status; they differ in the
// outer type alone.
func errorBody(api string, code int, message string) string {
	kind := map[int]string{
		400: "invalid_request_error", 401: "authentication_error", 403: "permission_error", 404: "not_found_error",
		413: "request_too_large", 422: "invalid_request_error", 429: "rate_limit_error", 500: "api_error",
		503: "api_error", 504: "timeout_error", 529: "overloaded_error",
	}[code]
	if kind == "" {
		kind = "api_error"
	}
	if message == "" {
		message = fmt.Sprintf("scripted status %d", code)
	}
	return errorJSON(api, kind, message)
}

func errorJSON(api, kind, message string) string {
	inner := map[string]any{"type": kind, "message": message}
	outer := map[string]any{"error": inner}
	if api == "anthropic" {
		outer["type"] = "error"
		outer["request_id"] = "req_test"
	} else {
		inner["param"], inner["code"] = nil, nil
	}
	out, _ := json.Marshal(outer)
	return string(out)
}
