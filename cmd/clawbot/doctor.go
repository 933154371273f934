package main

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"time"

	"github.com/clawbot/clawbot/agent"
	"github.com/clawbot/clawbot/store"
	"github.com/clawbot/clawbot/store/embedded"
	"github.com/clawbot/clawbot/tools"
)

// report prints the lines of doctor and remembers whether one failed.
type report struct {
	app    *app
	failed bool
}

func (r *report) line(level, what, format string, args ...any) {
	// Our own words are not masked: "token: signed in" looks like a secret.
	for i, arg := range args {
		switch arg.(type) {
		case string, error, fmt.Stringer:
			args[i], _ = r.app.mask.Text(fmt.Sprint(arg))
		}
	}
	fmt.Fprintf(r.app.stdout, "%-4s  %-10s  %s\n", level, what, agent.VisibleLine(fmt.Sprintf(format, args...)))
	r.failed = r.failed || level == "fail"
}

// check prints ok with the given text, or fail with the error.
func (r *report) check(what string, err error, format string, args ...any) bool {
	if err != nil {
		r.line("fail", what, "%v", err)
		return false
	}
	r.line("ok", what, format, args...)
	return true
}

// doctor checks everything that can be checked without changing anything but the
// private Postgres's running state.
func (a *app) doctor(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	r := &report{app: a}
	r.line("ok", "settings", "%s", settingsSource(a))
	for _, n := range a.Notices() {
		r.line("warn", "settings", "%s", n)
	}
	a.checkDatabase(ctx, r)
	if policy, err := a.policy(); r.check("policy", err, "%d rules compile", len(a.Approval.Rules)) && policy != nil {
		r.line("ok", "policy", "version %s", policy.Hash()[:12])
	}
	_, err := a.model()
	if r.check("model", err, "%s", a.Model) && a.Model.Provider == "demo" {
		r.line("warn", "model", "the demo model is scripted; set OPENAI_API_KEY or ANTHROPIC_API_KEY for a real one")
	}
	_, err = a.toolbox(nil)
	r.check("tools", err, "workspace %s", a.Tools.Workspace)
	a.checkSandbox(r)
	a.checkHooks(r)
	a.checkSlack(ctx, r)
	if r.failed {
		return errors.New("doctor found a failure; see the lines that begin with fail")
	}
	return nil
}

func settingsSource(a *app) string {
	if a.Env.Config == "" {
		return "from the environment; CLAWBOT_CONFIG names no file, so all else has its default"
	}
	return "from the environment and " + a.Env.Config
}

func (a *app) checkDatabase(ctx context.Context, r *report) {
	if !a.Env.DatabaseURL.Set() {
		p, err := embedded.Find()
		if !r.check("postgres", err, "programs of version %d found", p.Major) {
			return
		}
	}
	err := a.withDatabase(ctx, asking, func(db *database) error {
		list, err := store.Migrations(ctx, db.owner)
		if err != nil {
			return err
		}
		open := 0
		for _, m := range list {
			if !m.Applied {
				open++
			}
		}
		if open > 0 {
			r.line("warn", "schema", "%d migrations are not applied; `clawbot serve` or `clawbot migrate up` applies them", open)
		} else {
			r.line("ok", "schema", "up to date, %d migrations", len(list))
		}
		return nil
	})
	if errors.Is(err, embedded.ErrNoDatabase) {
		r.line("warn", "database", "there is none yet in %s; `clawbot serve` makes it", a.DataDir)
		return
	}
	r.check("database", err, "answers")
}

func (a *app) checkSandbox(r *report) {
	status := tools.SandboxStatus()
	switch {
	case !a.Tools.Shell.Enabled:
		r.line("ok", "sandbox", "the shell is off")
	case a.Tools.Shell.Sandbox == tools.SandboxNone:
		r.line("warn", "sandbox", "the shell is on without a sandbox (tools.shell.sandbox: none)")
	case status.Sandbox == tools.SandboxNone:
		r.line("fail", "sandbox", "%s", status.Reason)
	default:
		r.line("ok", "sandbox", "%s", status.Sandbox)
	}
	for _, limit := range status.Limits {
		if a.Tools.Shell.Enabled {
			r.line("warn", "sandbox", "it does not keep a command from this: %s", limit)
		}
	}
}

// checkHooks looks whether the programs are there. It runs none and calls nobody.
func (a *app) checkHooks(r *report) {
	for _, h := range a.Hooks {
		if h.URL != "" {
			r.line("ok", "hooks", "%s: %s", h.Name, h.URL)
			continue
		}
		path, err := exec.LookPath(h.Command[0])
		if err != nil {
			err = fmt.Errorf("%s: %s cannot be run, and every call that it is asked about is cancelled: %w", h.Name, h.Command[0], err)
		}
		r.check("hooks", err, "%s: %s", h.Name, path)
	}
}

func (a *app) checkSlack(ctx context.Context, r *report) {
	if !a.SlackOn() {
		r.line("ok", "slack", "off: SLACK_BOT_TOKEN is not set")
		return
	}
	s, err := a.slack()
	if !r.check("slack", err, "on") {
		return
	}
	for _, f := range s.Check(ctx) {
		level := "ok"
		if !f.OK {
			level = "fail"
		}
		r.line(level, "slack", "%s: %s", f.Name, f.Text)
	}
}
