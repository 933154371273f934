package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/clawbot/clawbot/channels/slack/slacktest"
	"github.com/clawbot/clawbot/model/modeltest"
	"github.com/clawbot/clawbot/store/pgtest"
)

// world is what stands around the program: a Slack, a model, a Postgres, a page
// that the program fetches, and the raw commit to compare with.
type world struct {
	program string
	dir     string
	config  string
	slack   *slacktest.Server
	model   *modeltest.Server
	pg      *pgtest.DurableServer
	log     *statementLog
	page    *page
	db      *pgx.Conn // raw commits

	channels atomic.Int64
}

// What people say, and what the model makes of it.
const (
	sayPlain = "How are you?"
	sayFetch = "Please fetch the page."
	sayWrite = "Please write the plan."
	answer   = "All is well."
	finished = "That is done."
)

// newWorld starts everything but the program.
func newWorld(ctx context.Context, program string) (w *world, err error) {
	w = &world{log: newStatementLog()}
	defer func() {
		if err != nil {
			err = errors.Join(err, w.close())
		}
	}()
	if w.program, err = filepath.Abs(program); err != nil {
		return w, err
	}
	if w.dir, err = os.MkdirTemp("", "clawbot-bench-"); err != nil {
		return w, err
	}
	if err = os.Chmod(w.dir, 0o711); err != nil { // for the account that runs an embedded Postgres
		return w, err
	}
	if w.page, err = newPage(); err != nil {
		return w, err
	}
	if w.slack, err = slacktest.New(); err != nil {
		return w, err
	}
	if w.model, err = modeltest.New(); err != nil {
		return w, err
	}
	w.model.Each(sayPlain, modeltest.Text(answer))
	w.model.Each(sayFetch, modeltest.Call("http_fetch", fmt.Sprintf(`{"url":"http://%s/"}`, w.page.addr)), modeltest.Text(finished))
	w.model.Each(sayWrite, modeltest.Call("write_file", `{"path":"plan.txt","content":"ship it"}`), modeltest.Text(finished))
	if w.pg, err = pgtest.New(ctx, w.log); err != nil {
		return w, err
	}
	raw, err := w.pg.Create(ctx, "raw")
	if err != nil {
		return w, err
	}
	if w.db, err = pgx.Connect(ctx, raw); err != nil {
		return w, err
	}
	if _, err = w.db.Exec(ctx, `CREATE TABLE raw (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, at timestamptz NOT NULL DEFAULT now(), text text NOT NULL)`); err != nil {
		return w, err
	}
	w.config = filepath.Join(w.dir, "clawbot.yaml")
	return w, os.WriteFile(w.config, fmt.Appendf(nil, `
approval:
  timeout: 24h
  approvers: { users: ["slack:T0001/U0002"], local: false }
  rules:
    - { name: ask, tools: ["http_fetch", "write_file"], action: ask }
tools:
  workspace: %s
  http_fetch: { allow_hosts: [%q] }
`, filepath.Join(w.dir, "workspace"), w.page.addr), 0o600)
}

// close ends everything and removes what it has left.
func (w *world) close() error {
	var errs []error
	if w.db != nil {
		errs = append(errs, w.db.Close(context.Background()))
	}
	if w.pg != nil {
		errs = append(errs, w.pg.Close())
	}
	if w.model != nil {
		w.model.Close()
	}
	if w.slack != nil {
		w.slack.Close()
	}
	if w.page != nil {
		errs = append(errs, w.page.close())
	}
	return errors.Join(append(errs, os.RemoveAll(w.dir))...)
}

// raw makes n raw commits.
func (w *world) raw(ctx context.Context, n int) (times, error) {
	out := make(times, 0, n)
	for range n {
		began := time.Now()
		if _, err := w.db.Exec(ctx, `INSERT INTO raw (text) VALUES ($1)`, sayPlain); err != nil {
			return nil, fmt.Errorf("raw commit: %w", err)
		}
		out = append(out, time.Since(began))
	}
	return out, nil
}

// roundTrips asks Postgres n times for nothing.
func (w *world) roundTrips(ctx context.Context, n int) (times, error) {
	out := make(times, 0, n)
	for range n {
		began := time.Now()
		if _, err := w.db.Exec(ctx, `SELECT $1::text`, sayPlain); err != nil {
			return nil, fmt.Errorf("round trip: %w", err)
		}
		out = append(out, time.Since(began))
	}
	return out, nil
}

// channel makes a channel that nobody has posted to: Slack and the program allow
// one post a second in each, and that is not what is measured.
func (w *world) channel() string {
	return w.slack.AddChannel(slacktest.Channel{
		ID:      fmt.Sprintf("C9%06d", w.channels.Add(1)),
		Members: []string{slacktest.BotUserID, "U0001", "U0002"},
	})
}

// wait returns the first message of the thread that ok accepts.
func (w *world) wait(ctx context.Context, in slacktest.Message, ok func(slacktest.Message) bool) (found slacktest.Message, err error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	err = w.slack.WaitFor(ctx, func() bool {
		for _, m := range w.slack.Thread(in.Channel, in.TS) {
			if ok(m) {
				found = m
				return true
			}
		}
		return false
	})
	if err != nil {
		return found, fmt.Errorf("waiting in this thread: %w\n%s", err, w.slack.Render(in.Channel, in.TS))
	}
	return found, nil
}

// page is a web page that notes when it was asked for.
type page struct {
	addr string
	http *http.Server
	done chan struct{}
	hits chan time.Time
}

func newPage() (*page, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	p := &page{addr: l.Addr().String(), done: make(chan struct{}), hits: make(chan time.Time, 1000)}
	p.http = &http.Server{Handler: http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) {
		p.hits <- time.Now()
		fmt.Fprintln(rw, "ok")
	})}
	go func() {
		defer close(p.done)
		p.http.Serve(l) // ends with ErrServerClosed
	}()
	return p, nil
}

func (p *page) close() error {
	err := p.http.Close()
	<-p.done
	return err
}
