package modeltest_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"github.com/clawbot/clawbot/model/modeltest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// post sends a body as it is.
func post(t testing.TB, srv *modeltest.Server, api, key, body string) (status int, answer string) {
	t.Helper()
	path := "/v1/messages"
	if api == "openai" {
		path = "/v1/chat/completions"
	}
	req, err := http.NewRequest("POST", srv.URL()+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	if api == "openai" {
		req.Header.Set("Authorization", "Bearer "+key)
	} else {
		req.Header.Set("X-Api-Key", key)
		req.Header.Set("Anthropic-Version", "2023-06-01")
	}
	req.Close = true
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, err.Error()
	}
	defer res.Body.Close()
	content, err := io.ReadAll(res.Body)
	if err != nil {
		return res.StatusCode, string(content) + err.Error()
	}
	return res.StatusCode, string(content)
}

const (
	openaiTool    = `{"type":"function","function":{"name":"a","parameters":{"type":"object","properties":{}}}}`
	anthropicTool = `{"name":"a","input_schema":{"type":"object"}}`
)

func openaiBody(messages string, more ...string) string {
	return `{"model":"m","stream":true,"messages":[` + messages + `]` + strings.Join(append([]string{""}, more...), ",") + `}`
}

func anthropicBody(messages string, more ...string) string {
	return `{"model":"m","max_tokens":9,"stream":true,"messages":[` + messages + `]` + strings.Join(append([]string{""}, more...), ",") + `}`
}

// Each of these breaks one rule; the answer must name it.
func TestRules(t *testing.T) {
	srv := modeltest.Start(t)
	srv.ExpectInvalid()
	srv.Default(modeltest.Echo)
	const (
		u        = `{"role":"user","content":"x"}`
		oCall    = `{"role":"assistant","content":null,"tool_calls":[{"id":"c1","type":"function","function":{"name":"a","arguments":"{}"}}]}`
		oResult  = `{"role":"tool","tool_call_id":"c1","content":"r"}`
		aCall    = `{"role":"assistant","content":[{"type":"tool_use","id":"c1","name":"a","input":{}}]}`
		aResult  = `{"type":"tool_result","tool_use_id":"c1","content":[{"type":"text","text":"r"}]}`
		oTools   = `"tools":[` + openaiTool + `]`
		aTools   = `"tools":[` + anthropicTool + `]`
		aResults = `{"role":"user","content":[` + aResult + `]}`
	)
	oArgs := func(args string) string { return strings.Replace(oCall, `"{}"`, fmt.Sprintf("%q", args), 1) }
	for _, c := range []struct{ api, body, want string }{
		{"openai", openaiBody(u), ""},
		{"openai", openaiBody(u+","+oCall+","+oResult+","+u, oTools, `"tool_choice":"none"`), ""},
		{"openai", openaiBody(u + "," + oCall + "," + oResult), ""},
		{"openai", openaiBody(``), "at least one message"},
		{"openai", openaiBody(oCall + "," + oResult), "first message must be of role user"},
		{"openai", openaiBody(u + "," + oCall), "right after them: c1"},
		{"openai", openaiBody(u + "," + oCall + "," + u + "," + oResult), "right after them: c1"},
		{"openai", openaiBody(u + "," + oResult), `"c1" answers no call`},
		{"openai", openaiBody(u + "," + oCall + "," + oResult + "," + oResult), `"c1" answers no call`},
		{"openai", openaiBody(u + "," + oArgs("")), "arguments of the call c1"},
		{"openai", openaiBody(u + "," + oArgs("[1]")), "arguments of the call c1"},
		{"openai", openaiBody(u + "," + oArgs("null")), "arguments of the call c1"},
		{"openai", openaiBody(u + "," + strings.Replace(oCall, `"a"`, `"a.b"`, 1)), `"a.b"`},
		{"openai", openaiBody(u + "," + strings.ReplaceAll(oCall, "c1", strings.Repeat("i", 41)) + "," + strings.ReplaceAll(oResult, "c1", strings.Repeat("i", 41))), "longer than 40"},
		{"openai", openaiBody(`{"role":"user","content":" "}`), "blank"},
		{"openai", openaiBody(u + `,{"role":"assistant","content":""}`), "needs content"},
		{"openai", openaiBody(`{"role":"robot","content":"x"}`), `"robot"`},
		{"openai", openaiBody(u + `,{"role":"system","content":"x"}`), "system message"},
		{"openai", openaiBody(u, `"tool_choice":"none"`), "tool_choice"},
		{"openai", openaiBody(u, `"tools":[]`), "too short"},
		{"openai", openaiBody(u, `"tools":[`+openaiTool+`,`+openaiTool+`]`), "unique"},
		{"openai", openaiBody(u, `"tools":[`+strings.Replace(openaiTool, `"a"`, `"a b"`, 1)+`]`), `"a b"`},
		{"openai", openaiBody(u, `"tools":[`+strings.Replace(openaiTool, `{"type":"object","properties":{}}`, `[]`, 1)+`]`), "no JSON object"},
		{"openai", openaiBody(u, `"tools":[`+strings.Replace(openaiTool, `{"type":"object"`, `{"anyOf":[],"type":"object"`, 1)+`]`), "anyOf"},
		{"openai", openaiBody(u, `"colour":"red"`), "colour"},
		{"openai", strings.Replace(openaiBody(u), `"stream":true,`, ``, 1), "stream"},
		{"openai", `[`, "no JSON object"},

		{"anthropic", anthropicBody(u), ""},
		{"anthropic", anthropicBody(u+","+aCall+","+`{"role":"user","content":[`+aResult+`,{"type":"text","text":"y"}]}`, aTools, `"tool_choice":{"type":"none"}`), ""},
		{"anthropic", anthropicBody(``), "at least one message"},
		{"anthropic", anthropicBody(aCall+","+aResults, aTools), "first message must be of role user"},
		{"anthropic", anthropicBody(u+","+aCall, aTools), "right after them: c1"},
		{"anthropic", anthropicBody(u+","+aCall+","+u, aTools), "right after them: c1"},
		{"anthropic", anthropicBody(u+","+aCall+`,{"role":"user","content":[{"type":"text","text":"y"},`+aResult+`]}`, aTools), "comes after a text block"},
		{"anthropic", anthropicBody(u+`,{"role":"assistant","content":"x"},`+aResults, aTools), `"c1" answers no call`},
		{"anthropic", anthropicBody(u+","+strings.Replace(aCall, "{}", "[]", 1)+","+aResults, aTools), "arguments of the call c1"},
		{"anthropic", anthropicBody(u+","+strings.ReplaceAll(aCall, "c1", "c.1")+","+strings.ReplaceAll(aResults, "c1", "c.1"), aTools), `"c.1"`},
		{"anthropic", anthropicBody(u+","+aCall+","+aResults+","+aCall+","+aResults, aTools), "unique"},
		{"anthropic", anthropicBody(u + "," + aCall + "," + aResults), "must define tools"},
		{"anthropic", anthropicBody(u + "," + u), "alternate"},
		{"anthropic", anthropicBody(u + `,{"role":"assistant","content":"x"}`), "last message"},
		{"anthropic", anthropicBody(`{"role":"user","content":[{"type":"text","text":"\n"}]}`), "non-empty"},
		{"anthropic", anthropicBody(`{"role":"user","content":[]}`), "empty"},
		{"anthropic", anthropicBody(`{"role":"system","content":"x"}`), `"system"`},
		{"anthropic", anthropicBody(u, `"system":" "`), "system"},
		{"anthropic", anthropicBody(u, `"tool_choice":{"type":"none"}`), "tool_choice"},
		{"anthropic", anthropicBody(u, `"tools":[`+anthropicTool+`,`+anthropicTool+`]`), "unique"},
		{"anthropic", anthropicBody(u, `"tools":[`+strings.Replace(anthropicTool, "object", "array", 1)+`]`), "type object"},
		{"anthropic", strings.Replace(anthropicBody(u), `"max_tokens":9,`, ``, 1), "max_tokens"},
	} {
		status, answer := post(t, srv, c.api, modeltest.Key, c.body)
		if c.want == "" && status == 200 {
			continue
		}
		var e struct {
			Error struct{ Type, Message string }
		}
		json.Unmarshal([]byte(answer), &e)
		if c.want == "" || status != 400 || e.Error.Type != "invalid_request_error" || !strings.Contains(e.Error.Message, c.want) {
			t.Errorf("%s %s:\ngot %d %s\nwant %q", c.api, c.body, status, answer, c.want)
		}
	}
	requests := srv.Requests()
	if got := requests[len(requests)-1].Invalid; !strings.Contains(got, "max_tokens") {
		t.Errorf("recorded: %q", got)
	}
}

func TestKey(t *testing.T) {
	srv := modeltest.Start(t)
	for _, api := range []string{"openai", "anthropic"} {
		if status, answer := post(t, srv, api, "wrong", `{}`); status != 401 || !strings.Contains(answer, "authentication_error") {
			t.Errorf("%s: %d %s", api, status, answer)
		}
	}
}

// turn is a request with that text and some steps behind it.
func turn(text string, steps int) string {
	messages := fmt.Sprintf(`{"role":"user","content":%q}`, text)
	for i := range steps {
		messages += fmt.Sprintf(`,{"role":"assistant","tool_calls":[{"id":"c%d","type":"function","function":{"name":"a","arguments":"{}"}}]},{"role":"tool","tool_call_id":"c%d","content":"r"}`, i, i)
	}
	return openaiBody(messages)
}

func TestWhichReply(t *testing.T) {
	srv := modeltest.Start(t)
	srv.Reply(modeltest.Text("QUEUE"))
	srv.On("deploy", modeltest.Text("RULE"))
	srv.OnFunc(func(r modeltest.Request) bool { return r.Steps() == 3 }, modeltest.Text("FUNC"))
	srv.Each("deploy", modeltest.Text("FIRST"), modeltest.Text("SECOND"))
	for _, c := range []struct {
		body   string
		status int
		want   string
	}{
		{turn("deploy", 0), 200, "RULE"},
		{turn("deploy", 3), 200, "FUNC"},
		{turn("deploy", 0), 200, "FIRST"},
		{turn("deploy", 0), 200, "FIRST"}, // a repeat
		{turn("deploy", 1), 200, "SECOND"},
		{turn("deploy", 5), 200, "SECOND"},
		{turn("other", 0), 200, "QUEUE"},
		{turn("other", 0), 400, "no reply is scripted"},
	} {
		if status, answer := post(t, srv, "openai", modeltest.Key, c.body); status != c.status || !strings.Contains(answer, c.want) {
			t.Errorf("got %d %s, want %s", status, answer, c.want)
		}
	}
	if srv.Left() != 0 {
		t.Errorf("%d left", srv.Left())
	}
	srv.Default(modeltest.Echo)
	if _, answer := post(t, srv, "openai", modeltest.Key, turn("other", 0)); !strings.Contains(answer, `"other"`) {
		t.Error(answer)
	}
}

// The pieces of a stream are small and never cut a character.
func TestPieces(t *testing.T) {
	srv := modeltest.Start(t)
	text := strings.Repeat("ü😀", 20)
	srv.Reply(modeltest.Text(text).AndCall("a", `{"x":"`+text+`"}`))
	_, answer := post(t, srv, "openai", modeltest.Key, turn("x", 0))
	var got, args string
	n := 0
	lines := bufio.NewScanner(strings.NewReader(answer))
	for lines.Scan() {
		var chunk struct {
			Choices []struct {
				Delta struct {
					Content   string
					ToolCalls []struct{ Function struct{ Arguments string } } `json:"tool_calls"`
				}
			}
		}
		data, ok := strings.CutPrefix(lines.Text(), "data: {")
		if !ok {
			continue
		}
		if err := json.Unmarshal([]byte("{"+data), &chunk); err != nil {
			t.Fatal(err)
		}
		for _, c := range chunk.Choices {
			got += c.Delta.Content
			for _, call := range c.Delta.ToolCalls {
				args += call.Function.Arguments
			}
			n++
		}
	}
	if got != text || args != `{"x":"`+text+`"}` || n < 12 {
		t.Errorf("%d pieces: %q %q", n, got, args)
	}
}

// A held answer goes on when it is released, and Close ends those that are not.
func TestHoldAndClose(t *testing.T) {
	srv, err := modeltest.New()
	if err != nil {
		t.Fatal(err)
	}
	release := make(chan struct{})
	never := make(chan struct{})
	srv.On("first", modeltest.Text("GOES ON").Hold(release))
	srv.On("second", modeltest.Text("NEVER").Hold(never))
	srv.On("third", modeltest.Text("NEVER").HoldInside(never))
	var first, others sync.WaitGroup
	var answers [3]string
	first.Go(func() { _, answers[0] = post(t, srv, "openai", modeltest.Key, turn("first", 0)) })
	others.Go(func() { _, answers[1] = post(t, srv, "openai", modeltest.Key, turn("second", 0)) })
	others.Go(func() { _, answers[2] = post(t, srv, "openai", modeltest.Key, turn("third", 0)) })
	srv.WaitRequests(t, 3)
	close(release)
	first.Wait()
	srv.Close()
	others.Wait()
	if !strings.Contains(answers[0], "GOES ON") || !strings.HasSuffix(answers[0], "[DONE]\n\n") {
		t.Errorf("released: %q", answers[0])
	}
	for _, answer := range answers[1:] {
		if strings.Contains(answer, "[DONE]") {
			t.Errorf("not released: %q", answer)
		}
	}
	srv.Close() // twice is harmless
}

func BenchmarkEcho(b *testing.B) {
	srv, err := modeltest.New()
	if err != nil {
		b.Fatal(err)
	}
	defer srv.Close()
	srv.Default(modeltest.Echo)
	body := turn("hello there", 0)
	for b.Loop() {
		post(b, srv, "openai", modeltest.Key, body)
	}
}
