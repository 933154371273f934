package slack

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// Where the HTTP endpoints are mounted.
const (
	PathEvents       = "/slack/events"
	PathInteractions = "/slack/interactions"
	PathCommands     = "/slack/commands"
)

const (
	maxBody      = 8 << 20
	maxSkew      = 5 * time.Minute
	answerWithin = 2800 * time.Millisecond // Slack gives up after 3 s
)

// Handler serves the three HTTP endpoints. Without a signing secret it serves
// none of them: every request is answered 404. It may be mounted before Run; until
// Run has signed in, requests are answered 503, so that Slack sends them again.
func (a *Adapter) Handler() http.Handler {
	mux := http.NewServeMux()
	if strings.TrimSpace(a.cfg.Secrets.SigningSecret) == "" {
		return mux
	}
	mux.HandleFunc("POST "+PathEvents, a.signed(a.serveEvent))
	mux.HandleFunc("POST "+PathInteractions, a.signed(a.serveInteraction))
	mux.HandleFunc("POST "+PathCommands, a.signed(a.serveCommand))
	return mux
}

// signed passes on requests whose raw body Slack has signed, before anything in
// them is read.
func (a *Adapter) signed(next func(w http.ResponseWriter, r *http.Request, body []byte)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		defer a.guard(r.URL.Path)
		body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
		if err != nil {
			http.Error(w, "the body cannot be read", http.StatusRequestEntityTooLarge)
			return
		}
		if err := verify(a.cfg.Secrets.SigningSecret, r.Header, body, a.cfg.Now()); err != nil {
			a.log.Warn("request refused", "path", r.URL.Path, "why", err)
			http.Error(w, "not signed by Slack", http.StatusUnauthorized)
			return
		}
		next(w, r, body)
	}
}

// verify checks Slack's signature over the raw body. A signature proves where a
// request comes from, not that it comes for the first time.
func verify(secret string, h http.Header, body []byte, now time.Time) error {
	if strings.TrimSpace(secret) == "" {
		return errors.New("no signing secret")
	}
	stamps, signatures := h.Values("X-Slack-Request-Timestamp"), h.Values("X-Slack-Signature")
	if len(stamps) != 1 || len(signatures) != 1 {
		return errors.New("timestamp or signature is missing or there twice")
	}
	seconds, err := strconv.ParseInt(stamps[0], 10, 64)
	if err != nil {
		return errors.New("timestamp is no number")
	}
	if skew := now.Sub(time.Unix(seconds, 0)); skew > maxSkew || skew < -maxSkew {
		return errors.New("timestamp is more than five minutes off")
	}
	sent, ok := strings.CutPrefix(signatures[0], "v0=")
	given, err := hex.DecodeString(sent)
	if !ok || err != nil {
		return errors.New("signature has another form")
	}
	mac := hmac.New(sha256.New, []byte(secret))
	_, _ = mac.Write([]byte("v0:" + stamps[0] + ":"))
	_, _ = mac.Write(body)
	if !hmac.Equal(given, mac.Sum(nil)) {
		return errors.New("signature does not match")
	}
	return nil
}

// serveEvent answers 200 once the event is stored, or is none of our concern,
// whatever the retry headers say; anything else makes Slack send it again.
func (a *Adapter) serveEvent(w http.ResponseWriter, r *http.Request, body []byte) {
	var cb callback
	if json.Unmarshal(body, &cb) == nil && cb.Type == "url_verification" {
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		_, _ = io.WriteString(w, cb.Challenge)
		return
	}
	now := a.running()
	if now == nil {
		http.Error(w, "not ready", http.StatusServiceUnavailable)
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), answerWithin)
	defer cancel()
	done := make(chan error, 1)
	a.event(now, body, func(err error) { done <- err })
	select {
	case err := <-done:
		if err != nil {
			http.Error(w, "not stored", http.StatusServiceUnavailable)
		}
	case <-ctx.Done():
		http.Error(w, "not stored in time", http.StatusServiceUnavailable)
	}
}

// serveInteraction answers at once: Slack shows the person a warning sign
// otherwise, and does not send a click again.
func (a *Adapter) serveInteraction(w http.ResponseWriter, _ *http.Request, body []byte) {
	now := a.running()
	if now == nil {
		http.Error(w, "not ready", http.StatusServiceUnavailable)
		return
	}
	form, err := url.ParseQuery(string(body))
	if err != nil {
		http.Error(w, "no form", http.StatusBadRequest)
		return
	}
	// With its length the answer is whole as soon as it is out, also for a proxy
	// that drops a connection on which an answer overtakes the request's end.
	w.Header().Set("Content-Length", "0")
	w.WriteHeader(http.StatusOK)
	if f, ok := w.(http.Flusher); ok {
		f.Flush()
	}
	a.interaction(now, []byte(form.Get("payload")))
}

func (a *Adapter) serveCommand(w http.ResponseWriter, _ *http.Request, _ []byte) {
	w.Header().Set("Content-Type", "application/json; charset=utf-8")
	_ = json.NewEncoder(w).Encode(commandHelp())
}

// commandAnswer is the answer to a slash command, for its author alone.
type commandAnswer struct {
	ResponseType string `json:"response_type"`
	Text         string `json:"text"`
}

func commandHelp() commandAnswer {
	return commandAnswer{ResponseType: "ephemeral", Text: escape("I answer when you mention me in a channel or write to me directly. " +
		"In a thread where I have been mentioned I listen to every message. " +
		"When something needs consent I post a card with the buttons Approve, Deny and Details in the thread. " +
		"Whoever runs me can also decide with: clawbot approvals list | approve ID | deny ID")}
}
