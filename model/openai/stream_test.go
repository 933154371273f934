package openai

import (
	"io"
	"net/http"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/openai/openai-go/v3/packages/ssestream"

	"github.com/clawbot/clawbot/agent"
)

const wholeStream = `data: {"choices":[{"index":0,"delta":{"role":"assistant","content":""}}],"obfuscation":"x"}

data: {"choices":[{"index":0,"delta":{"content":"I will ü"}}]}

data: {"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"id":"c1","type":"function","function":{"name":"write_file","arguments":""}}]}}]}

data: {"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"function":{"arguments":"{\"path\":"}}]}}]}

data: {"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"function":{"arguments":"\"a\"}"}}]}}]}

data: {"choices":[{"index":0,"delta":{},"finish_reason":"tool_calls"}]}

data: {"choices":[],"usage":{"prompt_tokens":1,"completion_tokens":2,"total_tokens":3}}

data: [DONE]

`

func read(stream string) (agent.ModelReply, error) {
	var m Model
	return m.read(ssestream.NewDecoder(&http.Response{Header: http.Header{}, Body: io.NopCloser(strings.NewReader(stream))}))
}

// Wherever the stream is cut, nothing of it comes out.
func TestCutAtEachByte(t *testing.T) {
	if reply, err := read(wholeStream); err != nil || len(reply.Calls) != 1 || reply.Calls[0].Arguments != `{"path":"a"}` {
		t.Fatalf("whole: %+v, %v", reply, err)
	}
	for n := range len(wholeStream) - 1 {
		if reply, err := read(wholeStream[:n]); err == nil || reply.Text != "" || len(reply.Calls) > 0 {
			t.Fatalf("cut at byte %d: %+v, %v", n, reply, err)
		}
	}
}

func TestDoneWithoutReasonIsCut(t *testing.T) {
	broken := strings.Replace(wholeStream, `"finish_reason":"tool_calls"`, `"finish_reason":null`, 1)
	if reply, err := read(broken); err == nil {
		t.Errorf("got %+v", reply)
	}
}

// Whatever comes, reading ends with an answer or with a clean error.
func FuzzStream(f *testing.F) {
	f.Add(wholeStream)
	f.Add("event: x\ndata: {\"error\":{\"type\":1}}\n\n")
	f.Add("data: {\"choices\":[{\"delta\":{\"tool_calls\":[{\"index\":-1},{\"index\":99999999}]}}]}\n\ndata: [DONE]\n\n")
	f.Fuzz(func(t *testing.T, stream string) {
		reply, err := read(stream)
		if err != nil && (!utf8.ValidString(err.Error()) || len(reply.Calls) > 0 || reply.Text != "") {
			t.Errorf("%+v, %v", reply, err)
		}
	})
}
