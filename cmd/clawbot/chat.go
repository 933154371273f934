package main

import (
	"context"
	"fmt"
	"os"
	"os/user"
	"time"

	"golang.org/x/term"

	"github.com/clawbot/clawbot/agent"
	"github.com/clawbot/clawbot/channels/terminal"
)

// chat is the terminal on an engine of its own, until the input ends.
func (a *app) chat(ctx context.Context, session string) error {
	db, err := a.openDatabase(ctx, serving)
	if err != nil {
		return err
	}
	defer func() {
		if err := db.Close(); err != nil {
			a.log.Error("closing the database failed", "err", err)
		}
	}()
	free, err := db.HoldTerminal(ctx)
	if err != nil {
		return err
	}
	defer free()
	prompt := ""
	if f, ok := a.stdin.(*os.File); ok && term.IsTerminal(int(f.Fd())) {
		prompt = "> "
		fmt.Fprintf(a.stdout, "clawbot %s, model %s. Write a message, or exit to leave. What ran is in `clawbot audit list`.\n", version, a.Model)
	}
	var e *engine
	channel := terminal.New(terminal.Config{
		In: a.stdin, Out: a.stdout, Session: session, User: userName(), Prompt: prompt,
		Run: agent.NewID[string]("chat", time.Now()),
		State: func(ctx context.Context, p agent.Place) (terminal.State, error) {
			busy, open, err := db.Going(ctx, p)
			return terminal.State{Busy: busy, Open: open}, err
		},
		Close: func(ctx context.Context, id agent.ApprovalID, s agent.ApprovalStatus, reason string) error {
			return e.desk.Close(ctx, id, s, reason)
		},
	})
	seen, err := a.telemetry(ctx)
	if err != nil {
		return err
	}
	defer a.closeTelemetry(seen)
	if e, err = a.newEngine(db.DB, seen, []agent.Channel{channel}, nil); err != nil {
		return err
	}
	if prompt != "" {
		for _, n := range a.Notices() {
			fmt.Fprintln(a.stdout, "note:", n)
		}
	}
	ctx, done := context.WithCancel(ctx)
	defer done()
	return all(ctx, e.run, db.watch, func(ctx context.Context) error {
		defer done()
		return channel.Run(ctx, e)
	})
}

// userName is who sits at the terminal, for the audit.
func userName() string {
	if u, err := user.Current(); err == nil && u.Username != "" {
		return u.Username
	}
	return "unknown"
}
