package telemetry

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"go.opentelemetry.io/otel/codes"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	"google.golang.org/protobuf/proto"

	"github.com/clawbot/clawbot/agent"
)

func start(t *testing.T, c Config) (*Telemetry, *tracetest.SpanRecorder) {
	t.Helper()
	spans := tracetest.NewSpanRecorder()
	c.Spans, c.Log = spans, slog.New(slog.NewTextHandler(t.Output(), nil))
	tel, err := New(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { tel.Close() })
	return tel, spans
}

// scraped is what /metrics shows, one line for each series: name{labels} count sum or
// value.
func scraped(t *testing.T, tel *Telemetry) []string {
	t.Helper()
	rec := httptest.NewRecorder()
	tel.Handler().ServeHTTP(rec, httptest.NewRequest("GET", "/metrics", nil))
	parser := expfmt.NewTextParser(model.LegacyValidation)
	families, err := parser.TextToMetricFamilies(rec.Body)
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for name, f := range families {
		for _, m := range f.Metric {
			var labels []string
			for _, l := range m.Label {
				labels = append(labels, l.GetName()+"="+l.GetValue())
			}
			value := fmt.Sprintf("%v", m.GetCounter().GetValue())
			if h := m.GetHistogram(); h != nil {
				value = fmt.Sprintf("%d %v", h.GetSampleCount(), h.GetSampleSum())
			}
			out = append(out, fmt.Sprintf("%s{%s} %s", name, strings.Join(labels, " "), value))
		}
	}
	slices.Sort(out)
	return out
}

// Each metric has its name and labels; dots are underscores on /metrics.
//
// Rows: L121, L122.
func TestMetrics(t *testing.T) {
	tel, _ := start(t, Config{})
	ctx := t.Context()
	note := agent.CallNote{Tool: "note", Call: "c1", Turn: "turn_1", Status: agent.CallSucceeded, Latency: 7 * time.Millisecond}
	_, ended := tel.Call(ctx, note)
	ended(note)
	note.Status = agent.CallFailed
	_, ended = tel.Call(ctx, note)
	ended(note)
	tel.Replay(ctx, note)
	tel.Batch(ctx, 3, 12, 20*time.Millisecond)
	tel.Waited(ctx, "note", agent.ApprovalApproved, 2*time.Second)
	_, over := tel.Turn(ctx, agent.Turn{ID: "turn_1", Status: agent.TurnRunning})
	over(agent.Turn{ID: "turn_1", Status: agent.TurnParked})
	over(agent.Turn{ID: "turn_1", Status: agent.TurnDone, Active: time.Second})
	answered := tel.Request(ctx, "openai:test")
	answered(agent.ModelReply{InputTokens: 10, OutputTokens: 3}, nil)
	tel.Request(ctx, "openai:test")(agent.ModelReply{}, fmt.Errorf("no: %w", agent.ErrModelAuth))
	got := scraped(t, tel)
	for i, line := range got { // how long the model took differs
		if strings.HasPrefix(line, "agent_model_latency_ms") {
			got[i] = line[:strings.LastIndex(line, " ")]
		}
	}
	want := []string{
		"agent_approval_wait_ms{decision=approved tool_name=note} 1 2000",
		"agent_model_latency_ms{model=openai:test result=auth} 1",
		"agent_model_latency_ms{model=openai:test result=success} 1",
		"agent_model_tokens{direction=input model=openai:test} 10",
		"agent_model_tokens{direction=output model=openai:test} 3",
		"agent_tool_batch_latency_ms{call_count=3 failure_count=more} 1 20",
		"agent_tool_call_latency_ms{result=error source=execute tool_name=note} 1 7",
		"agent_tool_call_latency_ms{result=error source=replay tool_name=note} 1 7",
		"agent_tool_call_latency_ms{result=success source=execute tool_name=note} 1 7",
		"agent_turn_active_ms{status=done} 1 1000",
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// However many tools there are, the number of series is bounded.
//
// Rows: L121.
func TestNamesAreBounded(t *testing.T) {
	tel, _ := start(t, Config{})
	for i := range 500 {
		tel.Replay(t.Context(), agent.CallNote{Tool: fmt.Sprint("server__tool", i), Status: agent.CallSucceeded})
	}
	lines := scraped(t, tel)
	if len(lines) != 101 || !slices.ContainsFunc(lines, func(l string) bool { return strings.Contains(l, "tool_name=other} 400 ") }) {
		t.Errorf("%d series", len(lines))
	}
}

// A call is a span below its turn's, with what it was and how it ended; all stretches
// of a turn have one trace, whichever process worked on them.
//
// Rows: L115, L116.
func TestSpans(t *testing.T) {
	var traces []string
	for range 2 { // two processes
		tel, spans := start(t, Config{Version: "v1"})
		ctx, over := tel.Turn(t.Context(), agent.Turn{ID: "turn_1", Session: "ses_1", Origin: agent.Origin{Place: agent.Place{Channel: "slack"}}})
		answered := tel.Request(ctx, "openai:test")
		answered(agent.ModelReply{}, errors.New("secret detail"))
		note := agent.CallNote{Tool: "note", Call: "c1", Turn: "turn_1", Channel: "slack", Args: `{"x":1}`}
		_, ended := tel.Call(ctx, note)
		note.Status, note.Latency, note.Result = agent.CallFailed, 7*time.Millisecond, "it did not work"
		ended(note)
		over(agent.Turn{Status: agent.TurnFailed})
		list := spans.Ended()
		if len(list) != 3 {
			t.Fatalf("%d spans", len(list))
		}
		turn, call := list[2], list[1]
		traces = append(traces, turn.SpanContext().TraceID().String())
		if turn.Name() != "turn" || turn.Parent().IsValid() || turn.Status().Code != codes.Error || call.Parent().SpanID() != turn.SpanContext().SpanID() {
			t.Errorf("%+v %+v", turn, call)
		}
		var attrs []string
		for _, a := range call.Attributes() {
			attrs = append(attrs, fmt.Sprintf("%s=%v", a.Key, a.Value.Emit()))
		}
		want := `tool_name=note tool_call_id=c1 args={"x":1} channel=slack agent=clawbot turn_id=turn_1 success=false outcome=failed latency_ms=7 result=it did not work`
		if got := strings.Join(attrs, " "); got != want || call.Name() != "tool_call note" {
			t.Errorf("got  %s\nwant %s", got, want)
		}
		for _, s := range list {
			if strings.Contains(fmt.Sprint(s.Attributes(), s.Events(), s.Status()), "secret") {
				t.Errorf("the model's error is told: %v", s)
			}
		}
	}
	if traces[0] != traces[1] {
		t.Errorf("traces %v", traces)
	}
}

// Traces reach a collector as protobuf over HTTP; one that refuses or hangs costs
// nothing but a line in the log and two seconds at the end.
func TestOTLP(t *testing.T) {
	var mu sync.Mutex
	var names []string
	good := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		var req collector.ExportTraceServiceRequest
		if r.URL.Path != "/v1/traces" {
			return // metrics
		}
		if err := proto.Unmarshal(body, &req); err != nil {
			t.Error(err)
		}
		mu.Lock()
		defer mu.Unlock()
		for _, rs := range req.ResourceSpans {
			for _, a := range rs.Resource.Attributes {
				names = append(names, a.Key+"="+a.Value.GetStringValue())
			}
			for _, ss := range rs.ScopeSpans {
				for _, s := range ss.Spans {
					names = append(names, s.Name)
				}
			}
		}
	}))
	defer good.Close()
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", good.URL)
	tel, _ := start(t, Config{Traces: true, Metrics: true, Version: "v1"})
	_, over := tel.Turn(t.Context(), agent.Turn{ID: "turn_1"})
	over(agent.Turn{Status: agent.TurnDone})
	if err := tel.Close(); err != nil {
		t.Error(err)
	}
	mu.Lock()
	if got := strings.Join(names, " "); got != "service.name=clawbot service.version=v1 turn" {
		t.Errorf("the collector got %s", got)
	}
	mu.Unlock()

	release := make(chan struct{})
	hangs := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-release }))
	defer hangs.Close()
	defer close(release)
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", hangs.URL)
	tel, _ = start(t, Config{Traces: true, Metrics: true})
	began := time.Now()
	_, over = tel.Turn(t.Context(), agent.Turn{ID: "turn_1"})
	over(agent.Turn{Status: agent.TurnDone})
	if took := time.Since(began); took > time.Second {
		t.Errorf("a turn took %s", took)
	}
	began = time.Now()
	if err := tel.Close(); err == nil || time.Since(began) > 4*time.Second {
		t.Errorf("closed after %s: %v", time.Since(began), err)
	}
}

// Without anybody who takes them there are no spans, and no cost of them.
func TestNoTraces(t *testing.T) {
	tel, err := New(t.Context(), Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer tel.Close()
	ctx, over := tel.Turn(t.Context(), agent.Turn{ID: "turn_1"})
	_, ended := tel.Call(ctx, agent.CallNote{Tool: "note"})
	ended(agent.CallNote{Tool: "note", Status: agent.CallSucceeded})
	over(agent.Turn{Status: agent.TurnDone})
	if got := scraped(t, tel); len(got) != 2 {
		t.Errorf("%s", got)
	}
	var _ sdktrace.IDGenerator = ids{}
	if a, _ := (ids{}).NewIDs(context.Background()); !a.IsValid() {
		t.Error("no trace id without a turn")
	}
}

// The table of metrics in docs/lifecycle.md has the names and labels of the program.
//
// Rows: L124.
func TestMetricsAreAsDocumented(t *testing.T) {
	tel, _ := start(t, Config{})
	tel.Replay(t.Context(), agent.CallNote{Tool: "note"})
	tel.Batch(t.Context(), 1, 1, time.Second)
	tel.Waited(t.Context(), "note", agent.ApprovalDenied, time.Second)
	_, over := tel.Turn(t.Context(), agent.Turn{ID: "turn_1"})
	over(agent.Turn{Status: agent.TurnDone})
	tel.Request(t.Context(), "demo")(agent.ModelReply{}, nil)
	var got []string
	for _, line := range scraped(t, tel) {
		name, labels, _ := strings.Cut(line, "{")
		labels, _, _ = strings.Cut(labels, "}")
		var names []string
		for _, l := range strings.Fields(labels) {
			label, _, _ := strings.Cut(l, "=")
			names = append(names, label)
		}
		if line := name + " " + strings.Join(names, " "); !slices.Contains(got, line) {
			got = append(got, line)
		}
	}
	page, err := os.ReadFile("../docs/lifecycle.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(page), "\n## Metrics and traces\n")
	table, _, _ = strings.Cut(table, "\n## ")
	var want []string
	for _, line := range strings.Split(table, "\n") {
		cells := strings.Split(line, "|")
		if len(cells) != 5 || !strings.Contains(cells[1], "`agent.") {
			continue
		}
		var labels []string
		// Values stand in parentheses.
		for _, l := range regexp.MustCompile("`([a-z_]+)`").FindAllStringSubmatch(regexp.MustCompile(`\([^)]*\)`).ReplaceAllString(cells[3], ""), -1) {
			labels = append(labels, l[1])
		}
		slices.Sort(labels)
		want = append(want, strings.ReplaceAll(strings.Trim(cells[1], " `"), ".", "_")+" "+strings.Join(labels, " "))
	}
	slices.Sort(want)
	slices.Sort(got)
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("the program has\n%s\nthe page has\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}
