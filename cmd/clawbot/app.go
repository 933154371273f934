package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"syscall"
	"time"

	"github.com/sethvargo/go-envconfig"

	"github.com/clawbot/clawbot/agent"
	"github.com/clawbot/clawbot/approval"
	"github.com/clawbot/clawbot/cmd/clawbot/settings"
	"github.com/clawbot/clawbot/model/anthropic"
	"github.com/clawbot/clawbot/model/demo"
	"github.com/clawbot/clawbot/model/openai"
	"github.com/clawbot/clawbot/model/textproto"
	"github.com/clawbot/clawbot/store"
	"github.com/clawbot/clawbot/store/embedded"
	"github.com/clawbot/clawbot/tools"
)

// lease is how long a session stays with a worker that does not answer; grace is
// how long running turns may go on after the end was asked for.
const (
	lease = 30 * time.Second
	grace = 8 * time.Second
)

// app is what every command has: settings, a log that prints no secret, and
// where it reads and writes.
type app struct {
	settings.Settings
	log    *slog.Logger
	mask   *agent.Masker
	stdin  io.Reader
	stdout io.Writer
}

// newApp reads the settings. quiet logs warnings only, unless the level was set.
func newApp(quiet bool, stdin io.Reader, stdout, stderr io.Writer) (*app, error) {
	s, err := settings.Load(envconfig.OsLookuper())
	if err != nil {
		return nil, err
	}
	mask := agent.NewMasker(s.Env.Secrets()...)
	level := s.LogLevel
	if quiet && os.Getenv("CLAWBOT_LOG_LEVEL") == "" {
		level = slog.LevelWarn
	}
	return &app{Settings: s, log: newLog(stderr, s.Env.LogFormat, level, mask), mask: mask, stdin: stdin, stdout: stdout}, nil
}

// newLog returns a log in which every text has passed the masker.
func newLog(w io.Writer, format string, level slog.Level, mask *agent.Masker) *slog.Logger {
	options := &slog.HandlerOptions{Level: level, ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		switch v := a.Value.Any().(type) {
		case string:
			text, _ := mask.Text(v)
			a.Value = slog.StringValue(text)
		case error:
			text, _ := mask.Text(v.Error())
			a.Value = slog.StringValue(text)
		}
		return a
	}}
	if format == "json" {
		return slog.New(slog.NewJSONHandler(w, options))
	}
	return slog.New(slog.NewTextHandler(w, options))
}

// database is an open store, and the Postgres behind it if it is ours.
type database struct {
	*store.DB
	private *embedded.Server // nil: DATABASE_URL
	owner   string           // address of the role that migrates
	service string
}

// use says what a command does with the database.
type use int

const (
	serving use = iota // run Postgres, migrate, be the only one on an embedded database
	asking             // read and decide beside a running clawbot
	owning             // migrations
)

// openDatabase connects. The embedded database is started if it is not running.
func (a *app) openDatabase(ctx context.Context, how use) (*database, error) {
	d := &database{}
	if a.Env.DatabaseURL.Set() {
		d.service, d.owner = a.Env.DatabaseURL.Reveal(), a.Env.DatabaseURL.Reveal()
		if a.Env.DatabaseMigrateURL.Set() {
			d.owner = a.Env.DatabaseMigrateURL.Reveal()
		}
	} else {
		start := embedded.Start
		if how == asking {
			start = embedded.Attach
		}
		s, err := start(ctx, embedded.Config{DataDir: a.DataDir, Log: a.log})
		if errors.Is(err, fs.ErrPermission) || errors.Is(err, syscall.ENOTDIR) {
			return nil, fmt.Errorf("use the data directory: %w; set CLAWBOT_DATA_DIR to a directory that %s may write", err, userName())
		}
		if err != nil {
			return nil, err
		}
		d.private, d.service, d.owner = s, s.URL(embedded.Service).Reveal(), s.URL(embedded.Owner).Reveal()
	}
	if how == serving {
		if err := store.Migrate(ctx, d.owner, d.service); err != nil {
			return nil, errors.Join(err, d.Close())
		}
	}
	if how == owning {
		return d, nil
	}
	db, err := store.Open(ctx, store.Config{URL: d.service, LeaseFor: lease})
	if err != nil {
		return nil, errors.Join(err, d.Close())
	}
	d.DB = db
	if how == serving && d.private != nil {
		// Nobody else works on this database, so earlier owners of leases are dead.
		if err := db.ReleaseAll(ctx); err != nil {
			return nil, errors.Join(err, d.Close())
		}
	}
	return d, nil
}

// Close ends the connections, then the private Postgres.
func (d *database) Close() error {
	if d.DB != nil {
		d.DB.Close()
	}
	if d.private == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	return d.private.Stop(ctx)
}

// model returns the model that the settings name, with the text protocol around it
// if they say so.
func (a *app) model() (agent.Model, error) {
	m, err := a.nativeModel()
	if err == nil && a.Agent.TextProtocol() {
		m = textproto.Wrap(m)
	}
	return m, err
}

func (a *app) nativeModel() (agent.Model, error) {
	switch a.Model.Provider {
	case "openai":
		return openai.New(openai.Config{Model: a.Model.Name, APIKey: a.Env.OpenAIKey.Reveal(), BaseURL: a.Env.OpenAIBaseURL})
	case "anthropic":
		return anthropic.New(anthropic.Config{Model: a.Model.Name, APIKey: a.Env.AnthropicKey.Reveal(), BaseURL: a.Env.AnthropicBaseURL})
	default:
		return demo.New(time.Now), nil
	}
}

// policy compiles the rules.
func (a *app) policy() (*approval.Policy, error) {
	c := a.Approval
	c.Warn = func(rule, problem string) {
		a.log.Warn("a rule could not judge a call, so the call was refused", "rule", rule, "problem", problem)
	}
	p, errs := approval.NewPolicy(c)
	return p, errors.Join(errs...)
}

// toolbox is what exists: every tool that clawbot has is listed here.
func (a *app) toolbox(db *store.DB) (*tools.Toolbox, error) {
	cfg := a.Tools
	cfg.Protected = append([]string{a.DataDir, a.Env.Config, a.Agent.ToolReceipts.KeyFile}, a.SecretFiles...) // a blank one is skipped
	deps := tools.Deps{}
	if db != nil {
		deps = tools.Deps{Outbox: db, Jobs: db}
	}
	list, err := tools.Builtin(cfg, deps)
	if err != nil {
		return nil, fmt.Errorf("set up tools: %w%s", err, workspaceHint(err))
	}
	box, err := tools.NewToolbox(list)
	if err != nil {
		return nil, fmt.Errorf("set up tools: %w", err)
	}
	return box, nil
}

// workspaceHint says what to do about a workspace that cannot be used.
func workspaceHint(err error) string {
	if errors.Is(err, fs.ErrPermission) || errors.Is(err, syscall.ENOTDIR) || errors.Is(err, fs.ErrExist) {
		return "; set tools.workspace to a directory that " + userName() + " may write, or start clawbot in one"
	}
	return ""
}
