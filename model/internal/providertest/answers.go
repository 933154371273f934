package providertest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/clawbot/clawbot/agent"
	"github.com/clawbot/clawbot/model/modeltest"
)

func answers(t *testing.T, p Provider) {
	srv := modeltest.Start(t)
	m := p.model(t, srv, Options{})
	if want := p.Name + ":test"; m.Name() != want {
		t.Errorf("name %q, want %q", m.Name(), want)
	}
	long := `{"path":"dir/ü.txt","n":12345678901234567890,"content":"` + strings.Repeat("größe <&> \\\"x\\\" 😀\\n", 50) + `"}`
	for about, c := range map[string]struct {
		reply modeltest.Reply
		want  agent.ModelReply
	}{
		"text":     {modeltest.Text("Hello <b> & 😀 wörld, in some pieces."), agent.ModelReply{Text: "Hello <b> & 😀 wörld, in some pieces.", Stop: agent.StopEnd}},
		"nothing":  {modeltest.Text(""), agent.ModelReply{Stop: agent.StopEnd}},
		"call":     {modeltest.Call("write_file", long), agent.ModelReply{Calls: []agent.ProposedCall{{Tool: "write_file", Arguments: long}}, Stop: agent.StopTools}},
		"parallel": {modeltest.Call("read_file", `{"path":"a"}`).AndCall("read_file", `{"path":"b"}`).AndCall("write_file", `{"path":"c"}`), agent.ModelReply{Calls: []agent.ProposedCall{{Tool: "read_file", Arguments: `{"path":"a"}`}, {Tool: "read_file", Arguments: `{"path":"b"}`}, {Tool: "write_file", Arguments: `{"path":"c"}`}}, Stop: agent.StopTools}},
		"both":     {modeltest.Text("I will look.").AndCall("read_file", `{"path":"a"}`), agent.ModelReply{Text: "I will look.", Calls: []agent.ProposedCall{{Tool: "read_file", Arguments: `{"path":"a"}`}}, Stop: agent.StopTools}},
		"given ids": {modeltest.Reply{}.AndCallID("same", "read_file", `{"path":"a"}`).AndCallID("same", "read_file", `{"path":"b"}`).AndCallID(modeltest.NoID, "read_file", `{}`),
			agent.ModelReply{Calls: []agent.ProposedCall{{ID: "same", Tool: "read_file", Arguments: `{"path":"a"}`}, {ID: "same", Tool: "read_file", Arguments: `{"path":"b"}`}, {ID: "", Tool: "read_file", Arguments: `{}`}}, Stop: agent.StopTools}},
		"broken arguments":  {modeltest.Call("read_file", `["pa`), agent.ModelReply{Calls: []agent.ProposedCall{{Tool: "read_file", Arguments: `["pa`}}, Stop: agent.StopTools}},
		"at the limit":      {modeltest.Text("And then").AtLimit(), agent.ModelReply{Text: "And then", Stop: agent.StopLength}},
		"call at the limit": {modeltest.Text("I will").AndCall("read_file", `{"path":"a"}`).AndCall("write_file", `{"path":"b","cont`).AtLimit(), agent.ModelReply{Text: "I will", Stop: agent.StopLength}},
		"filtered":          {modeltest.Text("I").AndCall("read_file", `{}`).Filtered(), agent.ModelReply{Text: "I", Stop: agent.StopFilter}},
		"odd content type":  {modeltest.Text("hi").ContentType("TEXT/Event-Stream"), agent.ModelReply{Text: "hi", Stop: agent.StopEnd}},
		"slow":              {modeltest.Text("slow but sure").Slow(time.Millisecond), agent.ModelReply{Text: "slow but sure", Stop: agent.StopEnd}},
	} {
		srv.On("case "+about+";", c.reply)
		got, err := m.Complete(t.Context(), ask("case "+about+";"))
		if err != nil {
			t.Errorf("%s: %v", about, err)
			continue
		}
		ids := map[agent.CallID]bool{}
		for i, call := range got.Calls {
			if about != "given ids" {
				if call.ID == "" || ids[call.ID] {
					t.Errorf("%s: id %q", about, call.ID)
				}
				ids[call.ID] = true
				got.Calls[i].ID = ""
			}
		}
		if got.InputTokens == 0 || got.OutputTokens == 0 {
			t.Errorf("%s: usage %d, %d", about, got.InputTokens, got.OutputTokens)
		}
		got.InputTokens, got.OutputTokens = 0, 0
		if fmt.Sprintf("%#v", got) != fmt.Sprintf("%#v", c.want) {
			t.Errorf("%s:\ngot  %#v\nwant %#v", about, got, c.want)
		}
	}
}

// The connection of a whole answer is used again.
func connections(t *testing.T, p Provider) {
	srv := modeltest.Start(t)
	srv.Default(modeltest.Echo)
	dials := 0
	transport := &http.Transport{DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
		dials++
		return new(net.Dialer).DialContext(ctx, network, address)
	}}
	t.Cleanup(transport.CloseIdleConnections)
	m := p.New(t, Options{URL: srv.URL(), Key: modeltest.Key, HTTPClient: &http.Client{Transport: transport}})
	for range 5 {
		complete(t, m, ask("x"))
	}
	if dials > 2 { // a slow machine may miss the moment once
		t.Errorf("%d connections for 5 requests", dials)
	}
}

func bigAnswers(t *testing.T, p Provider) {
	srv := modeltest.Start(t)
	m := p.model(t, srv, Options{})
	text := strings.Repeat("Grüße 😀 ", 150_000)
	args := `{"content":"` + strings.Repeat("x", 1_000_000) + `"}`
	srv.Reply(modeltest.Text(text).AndCall("write_file", args))
	reply := complete(t, m, ask("x"))
	if reply.Text != text || len(reply.Calls) != 1 || reply.Calls[0].Arguments != args {
		t.Errorf("got %d bytes of text, %d calls", len(reply.Text), len(reply.Calls))
	}
	for _, big := range []modeltest.Reply{
		modeltest.Text(strings.Repeat("x", 5<<20)),
		modeltest.Call("write_file", `{"content":"`+strings.Repeat("x", 5<<20)+`"}`),
	} {
		srv.Reply(big)
		if _, err := m.Complete(t.Context(), ask("x")); !errors.Is(err, agent.ErrModelUnavailable) || !strings.Contains(err.Error(), "4 MiB") {
			t.Error(err)
		}
	}
	if n := len(srv.Requests()); n != 3 {
		t.Errorf("%d requests, want 3", n)
	}
}
