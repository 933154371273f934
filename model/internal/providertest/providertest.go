// Package providertest is what every provider of a model must do, as one suite
// that runs each provider against the fake server of package modeltest through
// the provider's real SDK.
package providertest

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

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

func complete(t *testing.T, m agent.Model, req agent.ModelRequest) agent.ModelReply {
	t.Helper()
	reply, err := m.Complete(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	return reply
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
