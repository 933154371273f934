package openai_test

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/clawbot/clawbot/agent"
	"github.com/clawbot/clawbot/model/internal/providertest"
	"github.com/clawbot/clawbot/model/modeltest"
	"github.com/clawbot/clawbot/model/openai"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestProvider(t *testing.T) {
	providertest.Run(t, providertest.Provider{
		Name: "openai",
		New: func(t *testing.T, o providertest.Options) agent.Model {
			m, err := openai.New(openai.Config{
				Model: "test", APIKey: o.Key, BaseURL: o.URL + "/v1/", MaxRetries: o.MaxRetries,
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
	for about, cfg := range map[string]openai.Config{
		"no model":      {APIKey: "k"},
		"no scheme":     {Model: "m", BaseURL: "localhost:8080"},
		"other scheme":  {Model: "m", BaseURL: "ftp://x/"},
		"broken":        {Model: "m", BaseURL: "http://u:verysecret@x\x7f/"},
		"control chars": {Model: "m", BaseURL: "http://verysecret\n/"},
	} {
		_, err := openai.New(cfg)
		if err == nil {
			t.Errorf("%s: no error", about)
		} else if strings.Contains(err.Error(), "verysecret") {
			t.Errorf("%s: the error shows the address: %v", about, err)
		}
	}
}

// The SDK would read all of these.
func TestEnvironmentIsNotRead(t *testing.T) {
	for _, name := range []string{"OPENAI_API_KEY", "OPENAI_ADMIN_KEY", "OPENAI_ORG_ID", "OPENAI_PROJECT_ID", "OPENAI_WEBHOOK_SECRET"} {
		t.Setenv(name, "from-environment")
	}
	t.Setenv("OPENAI_CUSTOM_HEADERS", "X-Extra: from-environment")
	t.Setenv("OPENAI_BASE_URL", "http://127.0.0.1:1/from-environment/")
	srv := modeltest.Start(t)
	srv.Reply(modeltest.Text("hi"))
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	m, err := openai.New(openai.Config{Model: "test", APIKey: modeltest.Key, BaseURL: srv.OpenAIBaseURL(), HTTPClient: client})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := m.Complete(t.Context(), agent.ModelRequest{Messages: []agent.Message{{Role: agent.RoleUser, Text: "x"}}}); err != nil {
		t.Fatal(err)
	}
	for name, values := range srv.Requests()[0].Header {
		if strings.Contains(strings.Join(values, " "), "from-environment") {
			t.Errorf("header %s holds a value of the environment", name)
		}
	}
	keyless, err := openai.New(openai.Config{Model: "test", BaseURL: srv.OpenAIBaseURL(), HTTPClient: client})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := keyless.Complete(context.Background(), agent.ModelRequest{}); !errors.Is(err, agent.ErrModelAuth) {
		t.Errorf("without a key: %v", err)
	}
	if got := srv.Requests()[1].Header.Get("Authorization"); got != "" {
		t.Errorf("without a key, Authorization is %q", got)
	}
}

// A refusal is text of its own kind and outlasts the reason to finish.
func TestRefusal(t *testing.T) {
	stream := "data: {\"choices\":[{\"index\":0,\"delta\":{\"refusal\":\"I can't \"}}]}\n\n" +
		"data: {\"choices\":[{\"index\":0,\"delta\":{\"refusal\":\"do that.\"}}]}\n\n" +
		"data: {\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}]}\n\n" +
		"data: [DONE]\n\n"
	reply := providertest.Raw(t, stream, func(url string, client *http.Client) (agent.Model, error) {
		return openai.New(openai.Config{Model: "test", BaseURL: url + "/v1/", HTTPClient: client, IdleTimeout: 5 * time.Second})
	})
	if reply.Text != "I can't do that." || reply.Stop != agent.StopFilter {
		t.Errorf("got %+v", reply)
	}
}

// Pieces of parallel calls may come mixed; the index alone says what belongs together.
func TestMixedPieces(t *testing.T) {
	piece := func(calls string) string {
		return "data: {\"choices\":[{\"index\":0,\"delta\":{\"tool_calls\":[" + calls + "]}}]}\n\n"
	}
	stream := piece(`{"index":1,"id":"b","type":"function","function":{"name":"two","arguments":"{\"n\""}}`) +
		": a comment\n\n" +
		piece(`{"index":0,"id":"a","type":"function","function":{"name":"one","arguments":""}},{"index":1,"function":{"arguments":":2"}}`) +
		piece(`{"index":0,"id":"","function":{"name":"","arguments":"{}"}}`) +
		piece(`{"index":1,"function":{"arguments":"}"}}`) +
		"data: {\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}]}\n\n" +
		"data: {\"choices\":[],\"usage\":{\"prompt_tokens\":7,\"completion_tokens\":3,\"total_tokens\":10}}\n\n" +
		"data: [DONE]\n\n"
	reply := providertest.Raw(t, stream, func(url string, client *http.Client) (agent.Model, error) {
		return openai.New(openai.Config{Model: "test", BaseURL: url + "/v1", HTTPClient: client})
	})
	want := []agent.ProposedCall{{ID: "a", Tool: "one", Arguments: "{}"}, {ID: "b", Tool: "two", Arguments: `{"n":2}`}}
	if len(reply.Calls) != 2 || reply.Calls[0] != want[0] || reply.Calls[1] != want[1] || reply.Stop != agent.StopTools {
		t.Errorf("got %+v", reply)
	}
	if reply.InputTokens != 7 || reply.OutputTokens != 3 {
		t.Errorf("usage %d, %d", reply.InputTokens, reply.OutputTokens)
	}
}
