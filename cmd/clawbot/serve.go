package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/clawbot/clawbot/agent"
	"github.com/clawbot/clawbot/approval"
	"github.com/clawbot/clawbot/channels/slack"
	"github.com/clawbot/clawbot/hooks"
	"github.com/clawbot/clawbot/receipt"
	"github.com/clawbot/clawbot/store"
	"github.com/clawbot/clawbot/telemetry"
)

// engine is the working heart of a process: turns, approvals, timers.
type engine struct {
	*agent.Engine
	desk *approval.Desk
	db   *store.DB
	app  *app
}

// newEngine puts engine, gate and desk together for the given channels.
func (a *app) newEngine(db *store.DB, observer agent.Observer, channels []agent.Channel, directories map[agent.ChannelName]approval.Directory) (*engine, error) {
	model, err := a.model()
	if err != nil {
		return nil, err
	}
	policy, err := a.policy()
	if err != nil {
		return nil, err
	}
	box, err := a.toolbox(db)
	if err != nil {
		return nil, err
	}
	for _, name := range a.UnknownExclusions(names(box.Tools())) {
		a.log.Warn("agent.excluded_tools names a tool that does not exist", "tool", name)
	}
	var receipts agent.Receipts
	if a.Agent.ToolReceipts.Enabled {
		if receipts, err = receipt.Open(a.ReceiptKey()); err != nil {
			return nil, err
		}
	}
	before, after := hooks.New(a.Hooks)
	bell := agent.NewBell()
	desk := approval.NewDesk(db, directories, box, a.mask, bell, a.log)
	return &engine{
		Engine: agent.NewEngine(agent.Parts{
			Bundle: agent.Bundle{Config: a.Agent, Model: model, Gate: policy, Toolbox: box, AfterDenial: a.Approval.DenialPolicy, Before: before, After: after, Receipts: receipts, Observer: observer},
			Store:  db, Desk: desk, Channels: channels, Mask: a.mask, Bell: bell, Log: a.log,
			Owner: agent.NewID[string]("run", time.Now()), Lease: lease, Grace: grace,
		}),
		desk: desk, db: db, app: a,
	}, nil
}

func names(list []agent.Tool) []string {
	out := make([]string, len(list))
	for i, t := range list {
		out[i] = t.Name
	}
	return out
}

// run works until ctx ends and everything has been waited for.
func (e *engine) run(ctx context.Context) error {
	return all(ctx, e.Engine.Run, e.desk.Run, e.runJobs)
}

// all runs each function until the first fails or ctx ends, then ends the others
// and waits for them. It returns the first error.
func all(ctx context.Context, runs ...func(context.Context) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var wg sync.WaitGroup
	var once sync.Once
	var first error
	for _, run := range runs {
		wg.Go(func() {
			if err := run(ctx); err != nil && !errors.Is(err, context.Canceled) {
				once.Do(func() { first = err })
				cancel()
			}
		})
	}
	wg.Wait()
	return first
}

// serve runs every channel that is configured.
func (a *app) serve(ctx context.Context) error {
	began := time.Now()
	listener, err := net.Listen("tcp", a.Env.HTTPAddr)
	if err != nil {
		return fmt.Errorf("listen on CLAWBOT_HTTP_ADDR: %w; set it to another address, or to 127.0.0.1:0 for any free port", err)
	}
	defer listener.Close()
	db, err := a.openDatabase(ctx, serving)
	if err != nil {
		return err
	}
	defer func() {
		if err := db.Close(); err != nil {
			a.log.Error("closing the database failed", "err", err)
		}
	}()

	seen, err := a.telemetry(ctx)
	if err != nil {
		return err
	}
	defer a.closeTelemetry(seen)
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", seen.Handler())
	health := &health{db: db.DB, channels: map[string]func() (bool, string){}}
	health.routes(mux)
	var channels []agent.Channel
	directories := map[agent.ChannelName]approval.Directory{}
	if a.SlackOn() {
		s, err := a.slack()
		if err != nil {
			return err
		}
		channels = append(channels, s)
		directories[slack.Name] = s
		health.channels[string(slack.Name)] = s.Health
		mux.Handle("/slack/", s.Handler())
	}
	e, err := a.newEngine(db.DB, seen, channels, directories)
	if err != nil {
		return err
	}
	runs := []func(context.Context) error{e.run, serveHTTP(listener, mux), db.watch, a.unmapStartPages}
	for _, c := range channels {
		runs = append(runs, func(ctx context.Context) error {
			if err := c.Run(ctx, e); err != nil {
				return fmt.Errorf("%s: %w", c.Name(), err)
			}
			return nil
		})
	}
	a.announce(listener.Addr(), db, e.Owner, time.Since(began))
	err = all(ctx, runs...)
	a.log.Info("stopped")
	return err
}

// telemetry begins to measure.
func (a *app) telemetry(ctx context.Context) (*telemetry.Telemetry, error) {
	return telemetry.New(ctx, telemetry.Config{Traces: a.Env.SendsTraces(), Metrics: a.Env.SendsMetrics(), Version: version, Log: a.log})
}

func (a *app) closeTelemetry(t *telemetry.Telemetry) {
	if err := t.Close(); err != nil {
		a.log.Warn("the last of traces and metrics could not be sent", "err", err)
	}
}

// slack makes the Slack adapter from the settings.
func (a *app) slack() (*slack.Adapter, error) {
	cfg := a.Channels.Slack
	cfg.APIURL = a.Env.SlackAPIURL
	cfg.Secrets = slack.Secrets{
		BotToken: a.Env.SlackBotToken.Reveal(), AppToken: a.Env.SlackAppToken.Reveal(), SigningSecret: a.Env.SlackSigningSecret.Reveal(),
	}
	cfg.Log = a.log
	return slack.New(cfg)
}

// announce says what was started, where, and what is off and why.
func (a *app) announce(addr net.Addr, db *database, owner string, took time.Duration) {
	a.log.Info("http listening", "addr", addr.String())
	where := "DATABASE_URL"
	if db.private != nil {
		where = "embedded, in " + a.DataDir
	}
	a.log.Info("clawbot started", "version", version, "database", where, "model", a.Model.String(), "owner", owner, "took", took.Round(time.Millisecond).String())
	if a.SlackOn() {
		a.log.Info("slack is on", "socket_mode", a.Env.SlackAppToken.Set(), "http_mode", a.Env.SlackSigningSecret.Set())
	} else {
		a.log.Info("slack is off", "why", "SLACK_BOT_TOKEN is not set")
	}
	if !a.Tools.Shell.Enabled {
		a.log.Info("shell is off", "why", "tools.shell.enabled is false")
	}
	for _, n := range a.Notices() {
		a.log.Warn(n)
	}
	if !a.SlackOn() {
		a.log.Warn("no channel is configured: nobody can talk to clawbot here; set SLACK_BOT_TOKEN, or run `clawbot chat` for a terminal")
	}
}

// watch ends the process when its private Postgres has ended.
func (d *database) watch(ctx context.Context) error {
	if d.private == nil {
		<-ctx.Done()
		return nil
	}
	select {
	case <-ctx.Done():
		return nil
	case <-d.private.Done():
		return errors.New("the embedded Postgres has ended; see postgres.log in the data directory")
	}
}

// serveHTTP serves until ctx ends, then lets requests end within two seconds.
func serveHTTP(l net.Listener, h http.Handler) func(context.Context) error {
	return func(ctx context.Context) error {
		srv := &http.Server{Handler: h, ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 10 * time.Second, IdleTimeout: 2 * time.Minute, MaxHeaderBytes: 64 << 10}
		failed := make(chan error, 1)
		var wg sync.WaitGroup
		wg.Go(func() { failed <- srv.Serve(l) })
		defer wg.Wait()
		select {
		case err := <-failed:
			return fmt.Errorf("serve http: %w", err)
		case <-ctx.Done():
		}
		stop, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
		defer cancel()
		if srv.Shutdown(stop) != nil {
			srv.Close()
		}
		return nil
	}
}

// health answers /healthz and /readyz.
type health struct {
	db       *store.DB
	channels map[string]func() (ok bool, detail string)
}

func (h *health) routes(mux *http.ServeMux) {
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	mux.HandleFunc("GET /readyz", h.ready)
}

// part is one line of /readyz.
type part struct {
	OK     bool   `json:"ok"`
	Detail string `json:"detail,omitempty"`
}

func (h *health) ready(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(r.Context(), 2*time.Second)
	defer cancel()
	answer := struct {
		OK       bool            `json:"ok"`
		Database part            `json:"database"`
		Channels map[string]part `json:"channels"`
	}{OK: true, Database: part{OK: true}, Channels: map[string]part{}}
	if err := h.db.Ping(ctx); err != nil {
		answer.OK, answer.Database = false, part{Detail: "the database does not answer"}
	}
	for name, check := range h.channels {
		ok, detail := check()
		answer.Channels[name] = part{OK: ok, Detail: detail}
		answer.OK = answer.OK && ok
	}
	w.Header().Set("Content-Type", "application/json")
	if !answer.OK {
		w.WriteHeader(http.StatusServiceUnavailable)
	}
	json.NewEncoder(w).Encode(answer)
}
