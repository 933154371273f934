package providertest

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/clawbot/clawbot/agent"
	"github.com/clawbot/clawbot/model/modeltest"
)

func retries(t *testing.T, p Provider) {
	for about, bad := range map[string]modeltest.Reply{
		"429":                   modeltest.RateLimited(1),
		"408":                   modeltest.Status(408),
		"500":                   modeltest.Status(500),
		"503":                   modeltest.Status(503),
		"529":                   modeltest.Status(529),
		"HTML 502":              modeltest.HTML(502),
		"HTML 200":              modeltest.HTML(200),
		"JSON 200":              modeltest.JSON(200, `{"choices":[]}`),
		"cut before headers":    modeltest.Text("half").Cut(modeltest.CutHeaders),
		"cut in text":           modeltest.Text("half of a longer text").Cut(modeltest.CutText),
		"cut in call":           modeltest.Text("half").AndCall("write_file", `{"path":"half","content":"xxxxx"}`).Cut(modeltest.CutInCall),
		"cut before end":        modeltest.Text("half").AndCall("write_file", `{"path":"half"}`).Cut(modeltest.CutEnd),
		"ends in text":          modeltest.Text("half of a longer text").End(modeltest.CutText),
		"ends before end":       modeltest.Text("half").AndCall("write_file", `{"path":"half"}`).End(modeltest.CutEnd),
		"overloaded mid-stream": modeltest.Text("half").ErrorEvent("overloaded_error"),
		"told to":               modeltest.Status(418).Header("X-Should-Retry", "true"),
	} {
		t.Run(about, func(t *testing.T) {
			t.Parallel()
			srv := modeltest.Start(t)
			srv.Reply(bad, modeltest.Text("whole"))
			reply := complete(t, p.model(t, srv, Options{}), ask("x"))
			if reply.Text != "whole" || len(reply.Calls) != 0 {
				t.Errorf("got %+v", reply)
			}
			if n := len(srv.Requests()); n != 2 {
				t.Errorf("%d requests, want 2", n)
			}
		})
	}
	t.Run("give up", func(t *testing.T) {
		t.Parallel()
		srv := modeltest.Start(t)
		srv.Default(func(modeltest.Request) modeltest.Reply { return modeltest.Status(503) })
		_, err := p.model(t, srv, Options{MaxRetries: 1}).Complete(t.Context(), ask("x"))
		if !errors.Is(err, agent.ErrModelUnavailable) || !strings.Contains(err.Error(), "attempt 2") {
			t.Error(err)
		}
		if n := len(srv.Requests()); n != 2 {
			t.Errorf("%d requests, want 2", n)
		}
	})
}

func noRetries(t *testing.T, p Provider) {
	for about, c := range map[string]struct {
		reply modeltest.Reply
		kind  error
	}{
		"400":             {modeltest.Status(400), agent.ErrModelRefused},
		"404":             {modeltest.Status(404).Message("the model test does not exist"), agent.ErrModelRefused},
		"413":             {modeltest.Status(413), agent.ErrModelRefused},
		"422":             {modeltest.Status(422), agent.ErrModelRefused},
		"401":             {modeltest.Status(401), agent.ErrModelAuth},
		"403":             {modeltest.Status(403), agent.ErrModelAuth},
		"402":             {modeltest.Status(402), agent.ErrModelUnavailable},
		"told not to":     {modeltest.Status(500).Header("X-Should-Retry", "false"), agent.ErrModelUnavailable},
		"no money":        {modeltest.JSON(429, `{"error":{"type":"insufficient_quota","message":"pay"}}`), agent.ErrModelUnavailable},
		"invalid in 200":  {modeltest.Text("half").ErrorEvent("invalid_request_error"), agent.ErrModelRefused},
		"bad key in 200":  {modeltest.Text("half").ErrorEvent("authentication_error"), agent.ErrModelAuth},
		"redirect":        {modeltest.JSON(302, "").Header("Location", "http://127.0.0.1:1/"), agent.ErrModelUnavailable},
		"HTML login page": {modeltest.HTML(403), agent.ErrModelAuth},
	} {
		t.Run(about, func(t *testing.T) {
			srv := modeltest.Start(t)
			srv.Reply(c.reply)
			reply, err := p.model(t, srv, Options{}).Complete(t.Context(), ask("x"))
			if !errors.Is(err, c.kind) {
				t.Errorf("got %v, want %v", err, c.kind)
			}
			if reply.Text != "" || len(reply.Calls) > 0 {
				t.Errorf("an error with %+v", reply)
			}
			if n := len(srv.Requests()); n != 1 {
				t.Errorf("%d requests, want 1", n)
			}
		})
	}
}

// Whatever way a stream ends too early, nothing of it comes out.
func halfCalls(t *testing.T, p Provider) {
	whole := modeltest.Text("I will write it now.").AndCall("read_file", `{"path":"a"}`).AndCall("write_file", `{"path":"b","content":"some longer content"}`)
	for _, cut := range []modeltest.CutPoint{modeltest.CutHeaders, modeltest.CutText, modeltest.CutCall, modeltest.CutInCall, modeltest.CutEnd} {
		for about, reply := range map[string]modeltest.Reply{"cut": whole.Cut(cut), "ended": whole.End(cut)} {
			srv := modeltest.Start(t)
			srv.Reply(reply)
			got, err := p.model(t, srv, Options{MaxRetries: -1}).Complete(t.Context(), ask("x"))
			if !errors.Is(err, agent.ErrModelUnavailable) || got.Text != "" || len(got.Calls) > 0 {
				t.Errorf("%s at %d: %+v, %v", about, cut, got, err)
			}
		}
	}
}

func cancel(t *testing.T, p Provider) {
	never := make(chan struct{})
	for about, reply := range map[string]modeltest.Reply{
		"before the answer": modeltest.Text("x").Hold(never),
		"in the stream":     modeltest.Text("a text in several pieces").AndCall("read_file", `{}`).HoldInside(never),
		"while waiting":     modeltest.RateLimited(3600),
	} {
		t.Run(about, func(t *testing.T) {
			srv := modeltest.Start(t)
			srv.Reply(reply)
			m := p.model(t, srv, Options{})
			ctx, stop := context.WithCancel(t.Context())
			go func() {
				srv.WaitRequests(t, 1)
				stop()
			}()
			begin := time.Now()
			_, err := m.Complete(ctx, ask("x"))
			if !errors.Is(err, context.Canceled) || !errors.Is(err, agent.ErrModelUnavailable) {
				t.Error(err)
			}
			if d := time.Since(begin); d > 5*time.Second {
				t.Errorf("took %v", d)
			}
		})
	}
	srv := modeltest.Start(t)
	ctx, stop := context.WithCancel(t.Context())
	stop()
	if _, err := p.model(t, srv, Options{}).Complete(ctx, ask("x")); !errors.Is(err, context.Canceled) || len(srv.Requests()) != 0 {
		t.Errorf("ended before it began: %v, %d requests", err, len(srv.Requests()))
	}
}

func timeouts(t *testing.T, p Provider) {
	never := make(chan struct{})
	srv := modeltest.Start(t)
	idle := p.model(t, srv, Options{MaxRetries: -1, IdleTimeout: 200 * time.Millisecond})
	srv.Reply(modeltest.Text("x").Hold(never))
	srv.Reply(modeltest.Text("a text in several pieces").HoldInside(never))
	for range 2 {
		if _, err := idle.Complete(t.Context(), ask("x")); !errors.Is(err, agent.ErrModelUnavailable) || !strings.Contains(err.Error(), "nothing arrived for 200ms") {
			t.Error(err)
		}
	}
	// Slow is not silent.
	patient := p.model(t, srv, Options{MaxRetries: -1, IdleTimeout: time.Second})
	srv.Reply(modeltest.Text(strings.Repeat("slow and steady ", 5)).Slow(100 * time.Millisecond))
	if _, err := patient.Complete(t.Context(), ask("x")); err != nil {
		t.Error(err)
	}
	whole := p.model(t, srv, Options{MaxRetries: -1, Timeout: 200 * time.Millisecond})
	srv.Reply(modeltest.Text(strings.Repeat("slow and steady ", 50)).Slow(25 * time.Millisecond))
	if _, err := whole.Complete(t.Context(), ask("x")); !errors.Is(err, agent.ErrModelUnavailable) || !strings.Contains(err.Error(), "too long") {
		t.Error(err)
	}
	// After a silent attempt comes another one.
	again := p.model(t, srv, Options{IdleTimeout: 200 * time.Millisecond})
	srv.Reply(modeltest.Text("x").Hold(never), modeltest.Text("whole"))
	if reply := complete(t, again, ask("x")); reply.Text != "whole" {
		t.Errorf("got %+v", reply)
	}
}
