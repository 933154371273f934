// Package telemetry measures turns and tool calls with OpenTelemetry: metrics that
// /metrics shows and OTLP sends, and traces by OTLP. It is an agent.Observer and sees
// what the engine shows to people: masked and bounded texts, nothing else.
//
// Metric names and labels are in docs/lifecycle.md. No label holds an id, a person or a
// text; names of tools and models are bounded in number.
package telemetry

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/prometheus/otlptranslator"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/exporters/otlp/otlpmetric/otlpmetrichttp"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	promexporter "go.opentelemetry.io/otel/exporters/prometheus"
	"go.opentelemetry.io/otel/metric"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/clawbot/clawbot/agent"
)

// Config says where to send. What else the exporters need they read from the OTEL_
// variables, as every program with OpenTelemetry does.
type Config struct {
	Traces  bool // send traces by OTLP over HTTP
	Metrics bool // send metrics by OTLP over HTTP; /metrics shows them in any case
	Version string
	Log     *slog.Logger

	// For tests; nil is none.
	Spans  sdktrace.SpanProcessor
	Reader sdkmetric.Reader
}

// Telemetry implements agent.Observer.
type Telemetry struct {
	meters  *sdkmetric.MeterProvider
	traces  *sdktrace.TracerProvider // nil: nobody takes traces
	tracer  trace.Tracer
	scrape  http.Handler
	calls   metric.Float64Histogram
	batches metric.Float64Histogram
	waits   metric.Float64Histogram
	turns   metric.Float64Histogram
	models  metric.Float64Histogram
	tokens  metric.Int64Counter
	tools   bounded
}

var _ agent.Observer = (*Telemetry)(nil)

// buckets are bounds in milliseconds, from a call that does nothing to one that takes
// as long as a turn may; waits go on to a day.
var (
	buckets     = []float64{1, 2, 5, 10, 25, 50, 100, 250, 500, 1000, 2500, 5000, 10_000, 30_000, 60_000, 300_000, 1_200_000}
	waitBuckets = []float64{1000, 2000, 5000, 10_000, 30_000, 60_000, 120_000, 300_000, 900_000, 3_600_000, 14_400_000, 86_400_000}
)

// New begins to measure. Nothing is sent before the first export, and an endpoint that
// does not answer is told in the log and costs no turn anything.
func New(ctx context.Context, c Config) (*Telemetry, error) {
	res, err := resource.New(ctx, resource.WithAttributes(attribute.String("service.name", "clawbot"), attribute.String("service.version", c.Version)), resource.WithFromEnv())
	if err != nil && !errors.Is(err, resource.ErrPartialResource) {
		return nil, fmt.Errorf("read OTEL_RESOURCE_ATTRIBUTES: %w", err)
	}
	t := &Telemetry{tools: bounded{most: 100, seen: map[string]bool{}}}

	registry := prometheus.NewRegistry()
	reader, err := promexporter.New(promexporter.WithRegisterer(registry), promexporter.WithoutScopeInfo(), promexporter.WithoutTargetInfo(),
		promexporter.WithTranslationStrategy(otlptranslator.UnderscoreEscapingWithoutSuffixes))
	if err != nil {
		return nil, fmt.Errorf("set up /metrics: %w", err)
	}
	t.scrape = promhttp.HandlerFor(registry, promhttp.HandlerOpts{})
	meterOptions := []sdkmetric.Option{sdkmetric.WithResource(res), sdkmetric.WithReader(reader)}
	if c.Reader != nil {
		meterOptions = append(meterOptions, sdkmetric.WithReader(c.Reader))
	}
	if c.Metrics {
		exporter, err := otlpmetrichttp.New(ctx)
		if err != nil {
			return nil, fmt.Errorf("set up metrics by OTLP: %w", err)
		}
		meterOptions = append(meterOptions, sdkmetric.WithReader(sdkmetric.NewPeriodicReader(exporter)))
	}
	t.meters = sdkmetric.NewMeterProvider(meterOptions...)

	traceOptions := []sdktrace.TracerProviderOption{sdktrace.WithResource(res), sdktrace.WithIDGenerator(ids{})}
	if c.Spans != nil {
		traceOptions = append(traceOptions, sdktrace.WithSpanProcessor(c.Spans))
	}
	if c.Traces {
		exporter, err := otlptracehttp.New(ctx)
		if err != nil {
			return nil, fmt.Errorf("set up traces by OTLP: %w", err)
		}
		traceOptions = append(traceOptions, sdktrace.WithBatcher(exporter))
	}
	if c.Traces || c.Metrics {
		// The library has one handler of errors for the process, and writes to standard
		// error without it, past our log and its masks.
		otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) {
			c.Log.Warn("sending telemetry failed", "err", err)
		}))
	}
	if c.Spans != nil || c.Traces {
		t.traces = sdktrace.NewTracerProvider(traceOptions...)
		t.tracer = t.traces.Tracer("clawbot")
	}
	return t, t.instruments()
}

func (t *Telemetry) instruments() (err error) {
	m := t.meters.Meter("clawbot")
	histogram := func(into *metric.Float64Histogram, name, what string, bounds []float64) {
		if err == nil {
			*into, err = m.Float64Histogram(name, metric.WithDescription(what), metric.WithExplicitBucketBoundaries(bounds...))
		}
	}
	histogram(&t.calls, "agent.tool_call.latency_ms", "Running time of tool calls, from invocation to return.", buckets)
	histogram(&t.batches, "agent.tool_batch.latency_ms", "Wall clock from an answer with calls to the last result, without waiting for people.", buckets)
	histogram(&t.waits, "agent.approval.wait_ms", "Time from a question to people to its end.", waitBuckets)
	histogram(&t.turns, "agent.turn.active_ms", "Working time of turns that have ended, without waiting for people.", buckets)
	histogram(&t.models, "agent.model.latency_ms", "Time of model requests, with their retries.", buckets)
	if err == nil {
		t.tokens, err = m.Int64Counter("agent.model.tokens", metric.WithDescription("Tokens as the provider counts them."))
	}
	return err
}

// Handler answers /metrics.
func (t *Telemetry) Handler() http.Handler { return t.scrape }

// Close sends what is left, for two seconds at most.
func (t *Telemetry) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	var traces error
	var wg sync.WaitGroup
	if t.traces != nil {
		wg.Go(func() { traces = t.traces.Shutdown(ctx) })
	}
	meters := t.meters.Shutdown(ctx)
	wg.Wait()
	return errors.Join(meters, traces)
}

// Turn implements agent.Observer. A turn can be parked and go on in another process;
// each stretch is a span of its own, and all have the trace of the turn.
func (t *Telemetry) Turn(ctx context.Context, turn agent.Turn) (context.Context, func(agent.Turn)) {
	ctx, span := t.start(context.WithValue(ctx, turnKey{}, turn.ID), "turn",
		attribute.String("turn_id", string(turn.ID)), attribute.String("session_id", string(turn.Session)), attribute.String("channel", string(turn.Origin.Channel)))
	return ctx, func(turn agent.Turn) {
		span.SetAttributes(attribute.String("status", string(turn.Status)), attribute.Int("iterations", turn.Iterations))
		if turn.Status == agent.TurnFailed {
			span.SetStatus(codes.Error, "failed")
		}
		span.End()
		if turn.Status.Ended() {
			t.turns.Record(ctx, ms(turn.Active), with("status", string(turn.Status)))
		}
	}
}

// Request implements agent.Observer.
func (t *Telemetry) Request(ctx context.Context, model string) func(agent.ModelReply, error) {
	began := time.Now()
	ctx, span := t.start(ctx, "model_request", attribute.String("model", model))
	return func(reply agent.ModelReply, err error) {
		result := "success"
		switch {
		case err == nil:
		case errors.Is(err, agent.ErrModelAuth):
			result = "auth"
		case errors.Is(err, agent.ErrModelRefused):
			result = "refused"
		case errors.Is(err, agent.ErrModelUnavailable):
			result = "unavailable"
		default:
			result = "error"
		}
		if err != nil {
			span.SetStatus(codes.Error, result)
		}
		span.SetAttributes(attribute.Int("tool_call_count", len(reply.Calls)), attribute.Int("input_tokens", reply.InputTokens), attribute.Int("output_tokens", reply.OutputTokens))
		span.End()
		t.models.Record(ctx, ms(time.Since(began)), with("model", model, "result", result))
		t.tokens.Add(ctx, int64(reply.InputTokens), with("model", model, "direction", "input"))
		t.tokens.Add(ctx, int64(reply.OutputTokens), with("model", model, "direction", "output"))
	}
}

// Call implements agent.Observer.
func (t *Telemetry) Call(ctx context.Context, c agent.CallNote) (context.Context, func(agent.CallNote)) {
	ctx, span := t.start(ctx, "tool_call "+c.Tool,
		attribute.String("tool_name", c.Tool), attribute.String("tool_call_id", string(c.Call)), attribute.String("args", c.Args),
		attribute.String("channel", string(c.Channel)), attribute.String("agent", "clawbot"), attribute.String("turn_id", string(c.Turn)))
	return ctx, func(c agent.CallNote) {
		span.SetAttributes(attribute.Bool("success", c.Status == agent.CallSucceeded), attribute.String("outcome", string(c.Status)),
			attribute.Float64("latency_ms", ms(c.Latency)), attribute.String("result", c.Result))
		if c.Status != agent.CallSucceeded {
			span.SetStatus(codes.Error, string(c.Status))
		}
		span.End()
		t.executed(ctx, c, "execute")
	}
}

// Replay implements agent.Observer.
func (t *Telemetry) Replay(ctx context.Context, c agent.CallNote) { t.executed(ctx, c, "replay") }

func (t *Telemetry) executed(ctx context.Context, c agent.CallNote, source string) {
	result := "error"
	if c.Status == agent.CallSucceeded {
		result = "success"
	}
	t.calls.Record(ctx, ms(c.Latency), with("tool_name", t.tools.name(c.Tool), "result", result, "source", source))
}

// Batch implements agent.Observer.
func (t *Telemetry) Batch(ctx context.Context, calls, failures int, took time.Duration) {
	t.batches.Record(ctx, ms(took), with("call_count", few(calls), "failure_count", few(failures)))
}

// Waited implements agent.Observer.
func (t *Telemetry) Waited(ctx context.Context, tool string, decision agent.ApprovalStatus, waited time.Duration) {
	t.waits.Record(ctx, ms(waited), with("tool_name", t.tools.name(tool), "decision", string(decision)))
}

// start begins a span; where nobody takes traces it is one that does nothing.
func (t *Telemetry) start(ctx context.Context, name string, attrs ...attribute.KeyValue) (context.Context, trace.Span) {
	if t.tracer == nil {
		return ctx, trace.SpanFromContext(context.Background())
	}
	return t.tracer.Start(ctx, name, trace.WithAttributes(attrs...))
}

// with makes labels of names and values.
func with(pairs ...string) metric.MeasurementOption {
	attrs := make([]attribute.KeyValue, 0, len(pairs)/2)
	for i := 0; i+1 < len(pairs); i += 2 {
		attrs = append(attrs, attribute.String(pairs[i], pairs[i+1]))
	}
	return metric.WithAttributes(attrs...)
}

func ms(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// few is a number as a label: 0 to 8, then "more".
func few(n int) string {
	if n > 8 {
		return "more"
	}
	return strconv.Itoa(n)
}

// bounded lets so many different names through; all later ones are "other".
type bounded struct {
	most int
	mu   sync.Mutex
	seen map[string]bool
}

func (b *bounded) name(name string) string {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.seen[name] {
		if len(b.seen) >= b.most {
			return "other"
		}
		b.seen[name] = true
	}
	return name
}

// turnKey is where a context has the id of its turn.
type turnKey struct{}

// ids gives all spans of a turn the same trace, whichever process works on it.
type ids struct{}

// NewIDs implements sdktrace.IDGenerator.
func (ids) NewIDs(ctx context.Context) (trace.TraceID, trace.SpanID) {
	var id trace.TraceID
	if turn, ok := ctx.Value(turnKey{}).(agent.TurnID); ok {
		sum := agent.HashParts("clawbot trace 1", string(turn))
		copy(id[:], sum[:])
	} else {
		_, _ = rand.Read(id[:]) // it never fails
	}
	return id, ids{}.NewSpanID(ctx, id)
}

// NewSpanID implements sdktrace.IDGenerator.
func (ids) NewSpanID(context.Context, trace.TraceID) trace.SpanID {
	var id trace.SpanID
	_, _ = rand.Read(id[:])
	return id
}
