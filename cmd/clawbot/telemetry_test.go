package main

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	"google.golang.org/protobuf/proto"

	"github.com/clawbot/clawbot/model/modeltest"
)

// series reads /metrics: how often each histogram was fed, by its labels.
func (w *world) series(p *program) map[string]uint64 {
	w.t.Helper()
	status, text := w.get(p, "/metrics")
	if status != 200 {
		w.t.Fatalf("/metrics: status %d", status)
	}
	parser := expfmt.NewTextParser(model.LegacyValidation)
	families, err := parser.TextToMetricFamilies(strings.NewReader(text))
	if err != nil {
		w.t.Fatal(err)
	}
	out := map[string]uint64{}
	for name, f := range families {
		for _, m := range f.Metric {
			var labels []string
			for _, l := range m.Label {
				labels = append(labels, l.GetName()+"="+l.GetValue())
			}
			out[name+"{"+strings.Join(labels, " ")+"}"] = m.GetHistogram().GetSampleCount()
		}
	}
	return out
}

// What ran has a latency; what was denied has none, and its waiting is counted apart.
// No secret gets there.
//
// Rows: L62, L120, L121, L122, L123, L125.
func TestMetrics(t *testing.T) {
	t.Parallel()
	w := newWorld(t, approverYAML)
	w.model.Each("yes", modeltest.Call("write_file", `{"path":"a.txt","content":"token=hunter2-canary-value"}`), modeltest.Text("Written."))
	w.model.Each("no", modeltest.Call("write_file", `{"path":"b.txt","content":"x"}`).AndCall("nosuchtool", `{}`), modeltest.Text("Not written."))
	p := w.serve()
	ask := w.ask("yes")
	w.click("U0002", w.card(ask), "Approve")
	w.slack.WaitText(t, "C0001", ask.TS, "Written.")
	ask = w.ask("no")
	w.deny("U0002", w.card(ask), nil)
	w.slack.WaitText(t, "C0001", ask.TS, "Not written.")
	w.settled()
	got := w.series(p)
	for series, n := range map[string]uint64{
		"agent_tool_call_latency_ms{result=success source=execute tool_name=write_file}": 1,
		"agent_tool_batch_latency_ms{call_count=1 failure_count=0}":                      1,
		"agent_tool_batch_latency_ms{call_count=2 failure_count=2}":                      1,
		"agent_approval_wait_ms{decision=approved tool_name=write_file}":                 1,
		"agent_approval_wait_ms{decision=denied tool_name=write_file}":                   1,
		"agent_turn_active_ms{status=done}":                                              2,
		"agent_model_latency_ms{model=openai:test result=success}":                       4,
	} {
		if got[series] != n {
			t.Errorf("%s: %d, want %d", series, got[series], n)
		}
	}
	for series := range got {
		if strings.HasPrefix(series, "agent_tool_call_latency_ms") && !strings.Contains(series, "source=execute tool_name=write_file") || strings.Contains(series, "canary") || strings.Contains(series, "U000") {
			t.Errorf("there is %s", series)
		}
	}
	w.want("1\n", `SELECT count(*) FROM tool_calls WHERE latency_ms IS NOT NULL`)
}

// The trace of a turn goes on in the process that takes it up after a SIGKILL, and holds
// masked arguments only.
//
// Rows: L115, L116, L125.
func TestTracesAcrossSIGKILL(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	traces := map[string][]string{}
	var all strings.Builder
	s := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		var req collector.ExportTraceServiceRequest
		if r.URL.Path != "/v1/traces" || err != nil {
			return
		}
		if err := proto.Unmarshal(body, &req); err != nil {
			t.Error(err)
		}
		mu.Lock()
		defer mu.Unlock()
		fmt.Fprintln(&all, &req)
		for _, rs := range req.ResourceSpans {
			for _, ss := range rs.ScopeSpans {
				for _, span := range ss.Spans {
					id := fmt.Sprintf("%x", span.TraceId)
					traces[id] = append(traces[id], span.Name)
				}
			}
		}
	}))
	t.Cleanup(s.Close)
	w := newWorld(t, approverYAML)
	w.env = append(w.env, "OTEL_EXPORTER_OTLP_ENDPOINT="+s.URL, "OTEL_BSP_SCHEDULE_DELAY=50", "OTEL_EXPORTER_OTLP_HEADERS=authorization=geheim-header")
	w.model.Reply(modeltest.Call("write_file", `{"path":"a.txt","content":"password=hunter2-canary"}`), modeltest.Text("Written."))
	p := w.serve()
	ask := w.ask("write it")
	card := w.card(ask)
	spans := func(n int) []string {
		mu.Lock()
		defer mu.Unlock()
		for _, names := range traces {
			if len(traces) == 1 && len(names) >= n {
				return slices.Sorted(slices.Values(names))
			}
		}
		return nil
	}
	w.waitFor("the first stretch", func() bool { return spans(2) != nil })
	p.kill()
	p = w.serve()
	w.click("U0002", card, "Approve")
	w.slack.WaitText(t, "C0001", ask.TS, "Written.")
	w.waitFor("the second stretch", func() bool { return spans(5) != nil })
	if got := strings.Join(spans(5), ", "); got != "model_request, model_request, tool_call write_file, turn, turn" {
		t.Errorf("spans %s", got)
	}
	p.stop()
	mu.Lock()
	defer mu.Unlock()
	if text := all.String(); strings.Contains(text, "canary") || !strings.Contains(text, "[masked]") {
		t.Errorf("the collector got %s", text)
	}
	if strings.Contains(p.out.String(), "geheim") {
		t.Error("a header's value is in the log")
	}
}
