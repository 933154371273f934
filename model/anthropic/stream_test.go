package anthropic

import (
	"io"
	"net/http"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/anthropics/anthropic-sdk-go/packages/ssestream"

	"github.com/clawbot/clawbot/agent"
)

const wholeStream = `event: message_start
data: {"type":"message_start","message":{"id":"m","type":"message","role":"assistant","content":[],"usage":{"input_tokens":1,"output_tokens":1}}}

event: content_block_start
data: {"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}

event: content_block_delta
data: {"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"I will ü"}}

event: content_block_stop
data: {"type":"content_block_stop","index":0}

event: content_block_start
data: {"type":"content_block_start","index":1,"content_block":{"type":"tool_use","id":"c1","name":"write_file","input":{}}}

event: content_block_delta
data: {"type":"content_block_delta","index":1,"delta":{"type":"input_json_delta","partial_json":"{\"path\":"}}

event: content_block_delta
data: {"type":"content_block_delta","index":1,"delta":{"type":"input_json_delta","partial_json":"\"a\"}"}}

event: content_block_stop
data: {"type":"content_block_stop","index":1}

event: message_delta
data: {"type":"message_delta","delta":{"stop_reason":"tool_use"},"usage":{"output_tokens":2}}

event: message_stop
data: {"type":"message_stop"}

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

func TestStopWithoutReasonIsCut(t *testing.T) {
	broken := strings.Replace(wholeStream, `"stop_reason":"tool_use"`, `"stop_reason":null`, 1)
	if reply, err := read(broken); err == nil {
		t.Errorf("got %+v", reply)
	}
}

// Whatever comes, reading ends with an answer or with a clean error.
func FuzzStream(f *testing.F) {
	f.Add(wholeStream)
	f.Add("event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":1}}\n\n")
	f.Add("data: {\"type\":\"content_block_delta\",\"index\":-1,\"delta\":{\"type\":\"input_json_delta\",\"partial_json\":\"x\"}}\n\ndata: {\"type\":\"message_stop\"}\n\n")
	f.Fuzz(func(t *testing.T, stream string) {
		reply, err := read(stream)
		if err != nil && (!utf8.ValidString(err.Error()) || len(reply.Calls) > 0 || reply.Text != "") {
			t.Errorf("%+v, %v", reply, err)
		}
	})
}
