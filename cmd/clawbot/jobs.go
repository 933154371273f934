package main

import (
	"context"
	"fmt"
	"time"

	"github.com/clawbot/clawbot/agent"
	"github.com/clawbot/clawbot/tools"
)

// runJobs puts the prompts of due jobs into their sessions' mailboxes until ctx
// ends. Every replica may do so: a run has one key, and one mailbox row.
func (e *engine) runJobs(ctx context.Context) error {
	for {
		if err := e.fireDue(ctx); err != nil && ctx.Err() == nil {
			e.app.log.ErrorContext(ctx, "running scheduled jobs failed, trying again", "err", err)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(time.Second):
		}
	}
}

func (e *engine) fireDue(ctx context.Context) error {
	jobs, err := e.db.DueJobs(ctx, 50)
	if err != nil {
		return err
	}
	for _, j := range jobs {
		if _, err := e.Receive(ctx, jobMessage(j)); err != nil {
			return err
		}
		var next time.Time
		if j.Schedule != "" {
			// Runs that were missed meanwhile are skipped: one run tells as much.
			if next, err = tools.NextRun(j.Schedule, time.Now()); err != nil {
				e.app.log.ErrorContext(ctx, "a job ends, its schedule cannot be read any more", "job", j.ID, "err", err)
			}
		}
		if err := e.db.JobDone(ctx, j.ID, j.Next, next); err != nil {
			return err
		}
	}
	return nil
}

// jobMessage is what a job says, in the name of who made it, at the place where
// its answer goes. A job without delivery has a session of its own, where nobody
// can be asked. One that was made elsewhere has a session of its own too: whoever
// made it shall not read through it what was said there.
func jobMessage(j tools.Job) agent.Inbound {
	o := j.Origin
	o.Ref = string(j.ID)
	if j.Delivery.Mode == tools.ModeNone {
		o.Place = agent.Place{Channel: "cron", Workspace: o.Workspace, Conversation: string(j.ID)}
	} else {
		o.Place = j.Delivery.Place
	}
	return agent.Inbound{
		Key:    fmt.Sprintf("%s@%d", j.ID, j.Next.UnixMicro()),
		Origin: o,
		Text:   j.Prompt,
		Job:    j.ID,
		Apart:  o.Place != j.Origin.Place,
	}
}
