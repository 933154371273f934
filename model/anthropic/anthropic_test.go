package anthropic_test

import (
	"bytes"
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/clawbot/clawbot/agent"
	"github.com/clawbot/clawbot/model/anthropic"
	"github.com/clawbot/clawbot/model/internal/providertest"
	"github.com/clawbot/clawbot/model/modeltest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestProvider(t *testing.T) {
	providertest.Run(t, providertest.Provider{
		Name: "anthropic",
		New: func(t *testing.T, o providertest.Options) agent.Model {
			m, err := anthropic.New(anthropic.Config{
				Model: "test", APIKey: o.Key, BaseURL: o.URL, MaxRetries: o.MaxRetries,
				IdleTimeout: o.IdleTimeout, Timeout: o.Timeout, HTTPClient: o.HTTPClient,
			})
			if err != nil {
				t.Fatal(err)
			}
			return m
		},
	})
}

func TestNewRefusesWhatCannotWork(t *testing.T) {
	for about, cfg := range map[string]anthropic.Config{
		"no model":      {APIKey: "k"},
		"tokens":        {Model: "m", MaxTokens: -1},
		"no scheme":     {Model: "m", BaseURL: "localhost:8080"},
		"other scheme":  {Model: "m", BaseURL: "ftp://x/"},
		"broken":        {Model: "m", BaseURL: "http://u:verysecret@x\x7f/"},
		"control chars": {Model: "m", BaseURL: "http://verysecret\n/"},
	} {
		_, err := anthropic.New(cfg)
		if err == nil {
			t.Errorf("%s: no error", about)
		} else if strings.Contains(err.Error(), "verysecret") {
			t.Errorf("%s: the error shows the address: %v", about, err)
		}
	}
}

// The SDK would read all of these, and a profile from a file.
func TestEnvironmentIsNotRead(t *testing.T) {
	for _, name := range []string{"ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "ANTHROPIC_WEBHOOK_SIGNING_KEY", "ANTHROPIC_IDENTITY_TOKEN"} {
		t.Setenv(name, "from-environment")
	}
	t.Setenv("ANTHROPIC_CUSTOM_HEADERS", "X-Extra: from-environment")
	t.Setenv("ANTHROPIC_BASE_URL", "http://127.0.0.1:1/from-environment/")
	dir := t.TempDir()
	t.Setenv("ANTHROPIC_CONFIG_DIR", dir)
	if err := os.WriteFile(filepath.Join(dir, "active_config"), []byte("from-environment"), 0o600); err != nil {
		t.Fatal(err)
	}
	srv := modeltest.Start(t)
	srv.Reply(modeltest.Text("hi"))
	transport := &http.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	cfg := anthropic.Config{Model: "test", APIKey: modeltest.Key, BaseURL: srv.AnthropicBaseURL(), HTTPClient: &http.Client{Transport: transport}}
	m, err := anthropic.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := m.Complete(t.Context(), agent.ModelRequest{}); err != nil {
		t.Fatal(err)
	}
	cfg.APIKey = ""
	keyless, err := anthropic.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := keyless.Complete(t.Context(), agent.ModelRequest{}); !errors.Is(err, agent.ErrModelAuth) {
		t.Errorf("without a key: %v", err)
	}
	for _, r := range srv.Requests() {
		for name, values := range r.Header {
			if strings.Contains(strings.Join(values, " "), "from-environment") {
				t.Errorf("header %s holds a value of the environment", name)
			}
		}
	}
	if got := srv.Requests()[1].Header.Get("X-Api-Key"); got != "" {
		t.Errorf("without a key, X-Api-Key is %q", got)
	}
}

func TestMaxTokens(t *testing.T) {
	srv := modeltest.Start(t)
	srv.Default(modeltest.Echo)
	transport := &http.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	for tokens, want := range map[int]string{0: `"max_tokens":8192`, 77: `"max_tokens":77`} {
		m, err := anthropic.New(anthropic.Config{Model: "test", APIKey: modeltest.Key, BaseURL: srv.AnthropicBaseURL(), MaxTokens: tokens, HTTPClient: &http.Client{Transport: transport}})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := m.Complete(t.Context(), agent.ModelRequest{}); err != nil {
			t.Fatal(err)
		}
		requests := srv.Requests()
		if body := requests[len(requests)-1].Body; !bytes.Contains(body, []byte(want)) {
			t.Errorf("%d: %s", tokens, body)
		}
	}
}

// What the API may send beside plain text and calls.
func TestOtherBlocks(t *testing.T) {
	event := func(name, data string) string { return "event: " + name + "\ndata: " + data + "\n\n" }
	stream := event("message_start", `{"type":"message_start","message":{"id":"m","type":"message","role":"assistant","content":[],"usage":{"input_tokens":3,"cache_read_input_tokens":4,"cache_creation_input_tokens":5,"output_tokens":1}}}`) +
		event("content_block_start", `{"type":"content_block_start","index":0,"content_block":{"type":"thinking","thinking":"hm","signature":""}}`) +
		event("content_block_delta", `{"type":"content_block_delta","index":0,"delta":{"type":"thinking_delta","thinking":"secret thought"}}`) +
		event("content_block_delta", `{"type":"content_block_delta","index":0,"delta":{"type":"signature_delta","signature":"abc"}}`) +
		event("content_block_stop", `{"type":"content_block_stop","index":0}`) +
		event("content_block_start", `{"type":"content_block_start","index":1,"content_block":{"type":"text","text":"So: "}}`) +
		event("content_block_delta", `{"type":"content_block_delta","index":1,"delta":{"type":"text_delta","text":"yes."}}`) +
		event("content_block_start", `{"type":"content_block_start","index":2,"content_block":{"type":"server_tool_use","id":"s","name":"web_search","input":{}}}`) +
		event("content_block_delta", `{"type":"content_block_delta","index":2,"delta":{"type":"input_json_delta","partial_json":"{\"q\":1}"}}`) +
		event("content_block_start", `{"type":"content_block_start","index":3,"content_block":{"type":"tool_use","id":"a","name":"none","input":{}}}`) +
		event("content_block_start", `{"type":"content_block_start","index":4,"content_block":{"type":"tool_use","id":"b","name":"whole","input":{"x":1}}}`) +
		event("brand_new", `{"type":"brand_new","index":9}`) +
		event("ping", ``) +
		event("message_delta", `{"type":"message_delta","delta":{"stop_reason":"tool_use"},"usage":{"output_tokens":9}}`) +
		event("message_stop", `{"type":"message_stop"}`)
	reply := providertest.Raw(t, stream, func(url string, client *http.Client) (agent.Model, error) {
		return anthropic.New(anthropic.Config{Model: "test", BaseURL: url, HTTPClient: client, MaxRetries: -1})
	})
	want := []agent.ProposedCall{{ID: "a", Tool: "none", Arguments: "{}"}, {ID: "b", Tool: "whole", Arguments: `{"x":1}`}}
	if reply.Text != "So: yes." || len(reply.Calls) != 2 || reply.Calls[0] != want[0] || reply.Calls[1] != want[1] {
		t.Errorf("got %+v", reply)
	}
	if reply.InputTokens != 12 || reply.OutputTokens != 9 {
		t.Errorf("usage %d, %d", reply.InputTokens, reply.OutputTokens)
	}
}
