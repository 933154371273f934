package providertest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/clawbot/clawbot/agent"
	"github.com/clawbot/clawbot/model/modeltest"
)

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
