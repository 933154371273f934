// Package providertest is what every provider of a model must do, as one suite
// that runs each provider against the fake server of package modeltest through
// the provider's real SDK.
package providertest

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	"pgregory.net/rapid"

	"github.com/clawbot/clawbot/agent"
	"github.com/clawbot/clawbot/model/modeltest"
)

// Provider is the provider under test.
type Provider struct {
	Name string // of the API, as modeltest calls it
	New  func(t *testing.T, o Options) agent.Model
}

// Options are the settings that the suite varies.
type Options struct {
	URL         string // of the server, without a path
	Key         string
	MaxRetries  int
	IdleTimeout time.Duration
	Timeout     time.Duration
	HTTPClient  *http.Client
}

var (
	alice = agent.Actor{Channel: "slack", Workspace: "T0001", User: "U0001"}

	writeFile = agent.Tool{
		Name: "write_file", Description: "Writes a file.",
		Schema: json.RawMessage(`{"type":"object","properties":{"path":{"type":"string"},"n":{"type":"integer","maximum":12345678901234567890}},"required":["path"]}`),
	}
	readFile = agent.Tool{Name: "read_file", Description: "Reads a file.", Schema: json.RawMessage(`{"type":"object"}`)}
	bare     = agent.Tool{Name: "bare"}
	union    = agent.Tool{Name: "union", Schema: json.RawMessage(`{"type":"object","properties":{"a":{}},"anyOf":[{"required":["a"]},{}]}`)}
	tools    = []agent.Tool{writeFile, readFile, union, bare}
)

func user(text string) agent.Message {
	return agent.Message{Role: agent.RoleUser, Author: alice, AuthorName: "Alice", Text: text}
}

func ask(text string) agent.ModelRequest {
	return agent.ModelRequest{System: "You are clawbot.", Messages: []agent.Message{user(text)}, Tools: tools}
}

func assistant(text string, calls ...agent.ProposedCall) agent.Message {
	return agent.Message{Role: agent.RoleAssistant, Text: text, Calls: calls}
}

func call(id agent.CallID, tool, args string) agent.ProposedCall {
	return agent.ProposedCall{ID: id, Tool: tool, Arguments: args}
}

func result(id agent.CallID, text string) agent.Message {
	return agent.Message{Role: agent.RoleTool, CallID: id, Text: text}
}

// client keeps no connections, so that goleak sees only what a provider leaves.
func client(t *testing.T) *http.Client {
	transport := &http.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}

func (p Provider) model(t *testing.T, srv *modeltest.Server, o Options) agent.Model {
	o.URL, o.Key, o.HTTPClient = srv.URL(), modeltest.Key, client(t)
	return p.New(t, o)
}

// Run runs the suite.
func Run(t *testing.T, p Provider) {
	for name, test := range map[string]func(*testing.T, Provider){
		"answers":          answers,
		"request":          request,
		"no tools":         noTools,
		"troubled history": troubledHistory,
		"any history":      anyHistory,
		"provider switch":  providerSwitch,
		"connections":      connections,
		"bad tools":        badTools,
		"retries":          retries,
		"no retries":       noRetries,
		"half calls":       halfCalls,
		"errors":           errorKinds,
		"leaks":            leaks,
		"cancel":           cancel,
		"timeouts":         timeouts,
		"big answers":      bigAnswers,
		"redirect":         redirect,
		"down":             down,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, p)
		})
	}
}

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

func request(t *testing.T, p Provider) {
	srv := modeltest.Start(t)
	srv.Default(modeltest.Echo)
	m := p.model(t, srv, Options{})
	req := ask("hi")
	req.Messages = append(req.Messages, user("there"),
		assistant("Looking.", call("c1", "read_file", `{"path": "a"}`), call("c2", "write_file", `{"n":12345678901234567890}`)),
		result("c1", "content"), agent.Message{Role: agent.RoleTool, CallID: "c2", Text: "denied by Bob", Failed: true},
		user("and?"))
	complete(t, m, req)
	backwards := req
	backwards.Tools = []agent.Tool{bare, union, readFile, writeFile}
	complete(t, m, backwards)
	requests := srv.Requests()
	got := requests[0]
	want := "system: You are clawbot.\n" +
		"user: [Alice, slack:T0001/U0001] hi\n" +
		"user: [Alice, slack:T0001/U0001] there\n" +
		"assistant: Looking.\n" +
		"  call c1 read_file {\"path\": \"a\"}\n" +
		"  call c2 write_file {\"n\":12345678901234567890}\n" +
		"tool c1: content\n" +
		"tool c2: denied by Bob\n" +
		"user: [Alice, slack:T0001/U0001] and?\n"
	// Anthropic has a mark for failed results and its encoder compacts arguments.
	drawn := strings.NewReplacer("tool c2 failed:", "tool c2:", `{"path":"a"}`, `{"path": "a"}`).Replace(got.String())
	if got.API != p.Name || drawn != want {
		t.Errorf("%s got\n%s", got.API, drawn)
	}
	if p.Name == "anthropic" && !got.Messages[4].Failed {
		t.Error("the failed result has no mark")
	}
	var names []string
	for _, tool := range got.Tools {
		names = append(names, tool.Name)
	}
	if strings.Join(names, " ") != "bare read_file union write_file" {
		t.Errorf("tools %v", names)
	}
	if schema := string(got.Tools[3].Schema); !strings.Contains(schema, "12345678901234567890") || !strings.Contains(schema, `"required":["path"]`) {
		t.Errorf("schema %s", schema)
	}
	if got.ToolChoice != "" && got.ToolChoice != "auto" {
		t.Errorf("tool choice %q", got.ToolChoice)
	}
	if !bytes.Equal(requests[0].Body, requests[1].Body) {
		t.Errorf("the order of tools changes the request:\n%s\n%s", requests[0].Body, requests[1].Body)
	}
}

func complete(t *testing.T, m agent.Model, req agent.ModelRequest) agent.ModelReply {
	t.Helper()
	reply, err := m.Complete(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	return reply
}

func noTools(t *testing.T, p Provider) {
	srv := modeltest.Start(t)
	srv.Default(modeltest.Echo)
	m := p.model(t, srv, Options{})
	fresh := ask("hi")
	fresh.NoTools = true
	complete(t, m, fresh)
	used := ask("hi")
	used.Messages = append(used.Messages, assistant("", call("c1", "read_file", `{}`)), result("c1", "x"))
	without := used
	without.Tools = nil
	used.NoTools = true
	complete(t, m, used)
	complete(t, m, without)
	none := ask("hi")
	none.Tools = nil
	complete(t, m, none)
	// A server that knows no tool_choice.
	srv.On("hi", modeltest.Text("So").AndCall("read_file", `{}`))
	if reply := complete(t, m, used); len(reply.Calls) > 0 || reply.Stop != agent.StopEnd || reply.Text != "So" {
		t.Errorf("tools are barred, got %+v", reply)
	}

	requests := srv.Requests()
	for i, c := range []struct {
		about  string
		choice string
		tools  int
	}{
		{"barred, nothing called", "", 0},
		{"barred, called before", "none", 4},
		{"none there, called before", "", 0},
		{"none there", "", 0},
	} {
		got := requests[i]
		if c.about == "none there, called before" && p.Name == "anthropic" {
			c.choice, c.tools = "none", 1 // the API insists on a definition
		}
		if got.ToolChoice != c.choice || len(got.Tools) != c.tools {
			t.Errorf("%s: choice %q, %d tools", c.about, got.ToolChoice, len(got.Tools))
		}
		if c.tools == 0 && bytes.Contains(got.Body, []byte(`"tools"`)) {
			t.Errorf("%s: the request has a field for tools", c.about)
		}
	}
}

func troubledHistory(t *testing.T, p Provider) {
	srv := modeltest.Start(t) // fails the test for each rule that is broken
	srv.Default(modeltest.Echo)
	m := p.model(t, srv, Options{})
	foreign := agent.CallID("call|" + strings.Repeat("x", 60) + ".é")
	for about, messages := range map[string][]agent.Message{
		"no messages":                {},
		"blank text":                 {user(" \n\t"), assistant("  "), user("x")},
		"only blank":                 {user("")},
		"dangling call":              {user("x"), assistant("", call("c1", "read_file", `{}`)), user("y")},
		"dangling call at the end":   {user("x"), assistant("", call("c1", "read_file", `{}`))},
		"half of a batch":            {user("x"), assistant("", call("c1", "read_file", `{}`), call("c2", "read_file", `{}`)), result("c2", "two")},
		"orphan result":              {user("x"), result("c9", "lost"), assistant("a"), result("c9", "lost"), user("y")},
		"context between":            {user("x"), assistant("", call("c1", "read_file", `{}`)), user("by the way"), result("c1", "one"), user("y")},
		"results in other order":     {user("x"), assistant("", call("c1", "a", `{}`), call("c2", "b", `{}`)), result("c2", "two"), result("c1", "one")},
		"result twice":               {user("x"), assistant("", call("c1", "a", `{}`)), result("c1", "one"), result("c1", "again")},
		"empty result":               {user("x"), assistant("", call("c1", "a", `{}`)), result("c1", " ")},
		"id in two turns":            {user("x"), assistant("", call("c1", "a", `{}`)), result("c1", "one"), assistant("ok"), user("y"), assistant("", call("c1", "a", `{}`)), result("c1", "two")},
		"id twice, first dangling":   {user("x"), assistant("", call("c1", "a", `{}`)), user("y"), assistant("", call("c1", "a", `{}`)), result("c1", "two")},
		"id twice in a batch":        {user("x"), assistant("", call("c1", "a", `{}`), call("c1", "a", `{}`)), result("c1", "one"), result("c1", "two")},
		"no id":                      {user("x"), assistant("", call("", "a", `{}`)), result("", "one")},
		"foreign id":                 {user("x"), assistant("", call(foreign, "a", `{}`)), result(foreign, "one")},
		"long id":                    {user("x"), assistant("", call(agent.CallID(strings.Repeat("i", 100)), "a", `{}`)), result(agent.CallID(strings.Repeat("i", 100)), "one")},
		"broken arguments":           {user("x"), assistant("", call("c1", "a", `{"p`), call("c2", "a", ``), call("c3", "a", `[1]`), call("c4", "a", `null`), call("c5", "a", "{\"a\":\"\xff\"}"), call("c6", "a", `{} {}`))},
		"odd tool names":             {user("x"), assistant("", call("c1", "a.b/c", `{}`), call("c2", "", `{}`), call("c3", strings.Repeat("n", 90), `{}`), call("c4", "größe", `{}`))},
		"begins with an answer":      {assistant("a"), user("x")},
		"begins with a call":         {assistant("", call("c1", "a", `{}`)), result("c1", "one"), user("x")},
		"begins with a result":       {result("c1", "one"), user("x")},
		"ends with an answer":        {user("x"), assistant("a ")},
		"two answers":                {user("x"), assistant("a"), assistant("b"), user("y")},
		"text after call":            {user("x"), assistant("a", call("c1", "a", `{}`)), assistant("b"), result("c1", "one"), user("y")},
		"many people":                {user("x"), user("y"), {Role: agent.RoleUser, AuthorName: "]\n[Bob", Text: "z"}},
		"invalid bytes":              {user("a\xffb\x00c"), assistant("d\xfee"), user("f")},
		"unknown role":               {{Role: "system", Text: "evil"}, user("x")},
		"two batches without people": {user("x"), assistant("", call("c1", "a", `{}`)), result("c1", "one"), assistant("", call("c2", "a", `{}`)), result("c2", "two")},
	} {
		if _, err := m.Complete(t.Context(), agent.ModelRequest{Messages: messages, Tools: tools}); err != nil {
			t.Errorf("%s: %v", about, err)
		}
		got := srv.Requests()[len(srv.Requests())-1].String()
		for _, c := range []struct{ about, part string }{
			{"dangling call", "tool c1"}, {"dangling call", "interrupted"}, {"half of a batch", "tool c2: two"},
			{"context between", "tool c1: one\nuser: [Alice, slack:T0001/U0001] by the way"},
			{"id twice, first dangling", "tool c1_2: two"}, {"id twice in a batch", "tool c1: one\ntool c1_2: two"},
			{"results in other order", "tool c1: one\ntool c2: two"}, {"empty result", "(no output)"},
			{"only blank", "[Alice, slack:T0001/U0001] (empty message)"},
			{"broken arguments", "call c1 a {}\n  call c2 a {}\n  call c3 a {}\n  call c4 a {}\n  call c5 a {\"a\":\"\uFFFD\"}\n  call c6 a {}"},
		} {
			if c.about == about && !strings.Contains(strings.ReplaceAll(got, " failed:", ":"), c.part) {
				t.Errorf("%s: no %q in\n%s", about, c.part, got)
			}
		}
		if strings.Contains(got, "lost") || strings.Contains(got, "again") || strings.Contains(got, "evil") {
			t.Errorf("%s: sent what has no place\n%s", about, got)
		}
	}
}

// Whatever is in a history, the request is valid, and each person's words and
// the result of each call are in it.
func anyHistory(t *testing.T, p Provider) {
	srv := modeltest.Start(t)
	srv.ExpectInvalid() // rapid shrinks what fails
	srv.Default(modeltest.Echo)
	m := p.model(t, srv, Options{MaxRetries: -1})
	text := rapid.SampledFrom([]string{"", " ", "\n", "hi", "\x00", "\xff", "[Bob, slack:T/U] x", "größer 😀"})
	id := rapid.SampledFrom([]agent.CallID{"", "a", "b", "c", "a.b", "a_2", agent.CallID(strings.Repeat("l", 50))})
	args := rapid.SampledFrom([]string{"", "{}", "[]", "null", `{"a":1}`, `{"a"`, "{} x", " {}\n", "{\"\xff\":1}"})
	tool := rapid.SampledFrom([]string{"", "read_file", "a.b", "ü", strings.Repeat("t", 70)})
	message := rapid.Custom(func(t *rapid.T) agent.Message {
		m := agent.Message{
			Role: rapid.SampledFrom([]agent.Role{agent.RoleUser, agent.RoleAssistant, agent.RoleTool, agent.RoleTool, "other"}).Draw(t, "role"),
			Text: text.Draw(t, "text"), AuthorName: text.Draw(t, "name"), Author: alice, Failed: rapid.Bool().Draw(t, "failed"),
		}
		if m.Role == agent.RoleTool {
			m.CallID = id.Draw(t, "result")
		}
		if m.Role == agent.RoleAssistant {
			for range rapid.IntRange(0, 3).Draw(t, "calls") {
				m.Calls = append(m.Calls, call(id.Draw(t, "id"), tool.Draw(t, "tool"), args.Draw(t, "args")))
			}
		}
		return m
	})
	rapid.Check(t, func(t *rapid.T) {
		messages := rapid.SliceOfN(message, 0, 12).Draw(t, "messages")
		req := agent.ModelRequest{System: text.Draw(t, "system"), Messages: messages, NoTools: rapid.Bool().Draw(t, "no tools")}
		if rapid.Bool().Draw(t, "tools") {
			req.Tools = tools
		}
		if _, err := m.Complete(context.Background(), req); err != nil {
			t.Fatal(err)
		}
		requests := srv.Requests()
		got := requests[len(requests)-1]
		srv.Forget()
		calls := 0
		for _, m := range messages {
			calls += len(m.Calls)
		}
		for _, m := range got.Messages {
			calls -= len(m.Calls)
		}
		if calls != 0 {
			t.Errorf("%d calls are missing", calls)
		}
	})
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
	if dials != 1 {
		t.Errorf("%d connections for 5 requests", dials)
	}
}

// A session that began with another provider goes on with this one.
func providerSwitch(t *testing.T, p Provider) {
	srv := modeltest.Start(t)
	m := p.model(t, srv, Options{})
	history := []agent.Message{
		user("one"), assistant("", call("call_abc", "read_file", `{"path":"a"}`)), result("call_abc", "A"), assistant("It is A."),
		user("two"), assistant("Let me see.", call("toolu_01XYZ", "read_file", `{"path":"b"}`), call("toolu_02XYZ", "read_file", `{"path":"c"}`)),
		result("toolu_01XYZ", "B"), result("toolu_02XYZ", "C"), assistant("B and C."),
		user("three"), assistant("", call("functions.read_file:0", "read_file", `{"path":"d"}`)), result("functions.read_file:0", "D"),
	}
	srv.Reply(modeltest.Call("read_file", `{"path":"e"}`), modeltest.Text("Done."))
	reply := complete(t, m, agent.ModelRequest{Messages: history, Tools: tools})
	history = append(history, assistant(reply.Text, reply.Calls...), result(reply.Calls[0].ID, "E"))
	complete(t, m, agent.ModelRequest{Messages: history, Tools: tools})
	requests := srv.Requests()
	if !strings.HasPrefix(requests[1].String(), requests[0].String()) {
		t.Errorf("the second request does not begin as the first did:\n%s\n%s", requests[0], requests[1])
	}
	if got := requests[1].Results(); len(got) != 1 || got[0].Text != "E" {
		t.Errorf("results %+v", got)
	}
}

func badTools(t *testing.T, p Provider) {
	srv := modeltest.Start(t)
	m := p.model(t, srv, Options{})
	for about, tools := range map[string][]agent.Tool{
		"dot":    {{Name: "a.b"}},
		"long":   {{Name: strings.Repeat("n", 65)}},
		"empty":  {{}},
		"twice":  {{Name: "a"}, {Name: "b"}, {Name: "a"}},
		"schema": {{Name: "a", Schema: json.RawMessage(`[1]`)}},
		"array":  {{Name: "a", Schema: json.RawMessage(`{"type":"array"}`)}},
	} {
		req := ask("x")
		req.Tools = tools
		if _, err := m.Complete(t.Context(), req); !errors.Is(err, agent.ErrModelRefused) {
			t.Errorf("%s: %v", about, err)
		}
	}
	if n := len(srv.Requests()); n != 0 {
		t.Errorf("%d requests were made", n)
	}
}

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

func errorKinds(t *testing.T, p Provider) {
	srv := modeltest.Start(t)
	m := p.model(t, srv, Options{MaxRetries: -1})
	srv.Reply(modeltest.Status(404).Message("model test:\n\x1b[31mnot\u202efound\x00 " + strings.Repeat("é😀", 500)))
	_, err := m.Complete(t.Context(), ask("x"))
	if !strings.Contains(err.Error(), "status 404 not_found_error: model test: [31mnotfound") {
		t.Errorf("the error does not say why: %v", err)
	}
	checkText(t, err)
	srv.Reply(modeltest.HTML(503))
	if _, err := m.Complete(t.Context(), ask("x")); err == nil || strings.Contains(err.Error(), "<h1>") {
		t.Error(err)
	}
}

func checkText(t *testing.T, err error) {
	t.Helper()
	text := err.Error()
	if n := utf8.RuneCountInString(text); n > 300 || !utf8.ValidString(text) || strings.ContainsFunc(text, unicode.IsControl) {
		t.Errorf("%d characters: %q", n, text)
	}
}

func leaks(t *testing.T, p Provider) {
	for _, key := range []string{"sk-proj-s3cr/t+KEY0123456789abcdef", "s3cr/t+KEY 0123456789abcdef="} {
		leaksOf(t, p, key)
	}
}

func leaksOf(t *testing.T, p Provider, key string) {
	echo := strings.Join([]string{
		"your key", key, "(\"" + key + "\")", "Bearer " + key, url.QueryEscape(key), url.PathEscape(key),
		strings.ReplaceAll(url.QueryEscape(key), "+", "%20"), base64.StdEncoding.EncodeToString([]byte(key)),
		"sk-proj-*****cdef", "https://user:hunter2@example.com/?k=" + key,
	}, " ")
	quoted := fmt.Sprintf("%q", echo)
	late := fmt.Sprintf("%q", strings.Repeat("x", 160)+echo)
	var status int
	var body string
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		io.WriteString(w, body)
	}))
	t.Cleanup(srv.Close)
	m := p.New(t, Options{URL: strings.Replace(srv.URL, "http://", "http://user:hunter2@", 1), Key: key, MaxRetries: -1, HTTPClient: client(t)})
	type answer struct {
		status int
		body   string
	}
	var answers []answer
	for _, code := range []int{200, 302, 400, 401, 403, 404, 418, 429, 500} {
		for _, body := range []string{
			echo, quoted,
			`{"error":` + quoted + `}`,
			`{"error":{"type":` + quoted + `,"code":` + quoted + `}}`,
			`{"error":{"type":"some_error","message":` + quoted + `}}`,
			`{"error":{"type":"some_error","message":` + late + `}}`,
		} {
			answers = append(answers, answer{code, body})
		}
	}
	for _, a := range answers {
		status, body = a.status, a.body
		_, err := m.Complete(t.Context(), ask("x"))
		if err == nil {
			t.Fatal("no error")
		}
		checkText(t, err)
		for _, secret := range []string{"s3cr", "cdef", "hunter2", "KEY", base64.StdEncoding.EncodeToString([]byte(key))[:20]} {
			for _, text := range []string{err.Error(), fmt.Sprintf("%+v", err), fmt.Sprintf("%#v", errors.Unwrap(err))} {
				if strings.Contains(text, secret) {
					t.Errorf("%q is in %s", secret, text)
				}
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
	srv.Reply(modeltest.Text(strings.Repeat("slow and steady ", 5)).Slow(25 * time.Millisecond))
	if _, err := idle.Complete(t.Context(), ask("x")); err != nil {
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

// The key would go along with a redirect.
func redirect(t *testing.T, p Provider) {
	thief := modeltest.Start(t)
	srv := modeltest.Start(t)
	srv.Reply(modeltest.JSON(307, "").Header("Location", thief.URL()+"/v1/messages"))
	if _, err := p.model(t, srv, Options{}).Complete(t.Context(), ask("x")); !errors.Is(err, agent.ErrModelUnavailable) {
		t.Error(err)
	}
	if len(thief.Requests()) != 0 {
		t.Error("the redirect was followed")
	}
}

func down(t *testing.T, p Provider) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := listener.Addr().String()
	listener.Close()
	m := p.New(t, Options{URL: "http://user:hunter2@" + address, Key: "k", MaxRetries: -1, HTTPClient: client(t)})
	_, err = m.Complete(t.Context(), ask("x"))
	if !errors.Is(err, agent.ErrModelUnavailable) || !strings.Contains(err.Error(), "connection refused") || strings.Contains(err.Error(), "hunter2") {
		t.Error(err)
	}
}

// Raw has a provider read stream as it is.
func Raw(t *testing.T, stream string, model func(url string, client *http.Client) (agent.Model, error)) agent.ModelReply {
	t.Helper()
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", "text/event-stream")
		io.WriteString(w, stream)
	}))
	t.Cleanup(srv.Close)
	m, err := model(srv.URL, client(t))
	if err != nil {
		t.Fatal(err)
	}
	return complete(t, m, agent.ModelRequest{Messages: []agent.Message{user("x")}})
}
