package tools

import (
	"context"
	"encoding/base32"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/robfig/cron/v3"

	"github.com/clawbot/clawbot/agent"
)

// MaxJobs is how many jobs one conversation may have.
const MaxJobs = 100

// Job is a prompt that runs later, once or again and again.
type Job struct {
	ID       agent.JobID
	Prompt   string
	Schedule string    // cron expression for NextRun; empty: once
	At       time.Time // when, for a job that runs once; else zero
	Delivery Delivery
	Origin   agent.Origin // of the call that made it; its author is the creator
	Next     time.Time    // the next run, UTC
}

// Delivery says where the answer of a job goes.
type Delivery struct {
	Mode  string // ModePost or ModeNone
	Place agent.Place
}

// Scope is what a person sees of the jobs: those made in one conversation.
type Scope struct {
	Channel      agent.ChannelName
	Workspace    string
	Conversation string
}

// Jobs keeps jobs.
type Jobs interface {
	// AddJob stores a job. An id that is there already changes nothing.
	AddJob(ctx context.Context, job Job) error
	// Jobs returns the jobs whose origin lies in the scope, by Next.
	Jobs(ctx context.Context, scope Scope) ([]Job, error)
	// RemoveJob removes a job of the scope; agent.ErrNotFound if there is none.
	RemoveJob(ctx context.Context, scope Scope, id agent.JobID) error
}

// NextRun returns the first time after the given one at which a cron
// expression of five fields (or @daily, @every 2h and the like) is due, in UTC.
// The expression counts in UTC unless it begins with CRON_TZ=Area/City.
// Schedules that come more often than once a minute, or never, are refused.
func NextRun(schedule string, after time.Time) (time.Time, error) {
	spec := strings.TrimSpace(schedule)
	if zone := strings.HasPrefix(spec, "TZ=") || strings.HasPrefix(spec, "CRON_TZ="); !zone {
		spec = "CRON_TZ=UTC " + spec
	} else if !strings.Contains(spec, " ") { // the parser would panic
		return time.Time{}, fmt.Errorf("schedule %s has a time zone and nothing else: write for instance CRON_TZ=Europe/Berlin 0 9 * * 1-5", name(schedule))
	}
	parsed, err := cron.ParseStandard(spec)
	if err != nil {
		return time.Time{}, fmt.Errorf("schedule %s cannot be read: write five fields (minute hour day month weekday), for instance 0 9 * * 1-5", name(short(schedule, 100)))
	}
	if every, ok := parsed.(cron.ConstantDelaySchedule); ok && every.Delay < time.Minute {
		return time.Time{}, fmt.Errorf("schedule %s is too often: once a minute is the most", name(schedule))
	}
	next := parsed.Next(after)
	if next.IsZero() {
		return time.Time{}, fmt.Errorf("schedule %s never comes", name(schedule))
	}
	return next.UTC(), nil
}

type jobArgs struct {
	Prompt   string
	Schedule string
	At       string
	Delivery *struct{ Mode, Channel, To, Thread string }
}

// when checks the times of a job as far as that needs no clock.
func (a jobArgs) when() (at time.Time, err error) {
	schedule, once := strings.TrimSpace(a.Schedule) != "", strings.TrimSpace(a.At) != ""
	switch {
	case schedule == once:
		return at, errors.New("write exactly one of schedule (again and again) and at (once)")
	case schedule:
		_, err = NextRun(a.Schedule, time.Unix(0, 0))
		return at, err
	}
	if at, err = time.Parse(time.RFC3339, strings.TrimSpace(a.At)); err != nil {
		return at, fmt.Errorf("at is %s: write a time with its zone, for instance 2030-01-31T09:00:00+01:00", name(short(a.At, 100)))
	}
	return at.UTC(), nil
}

func cronAdd(jobs Jobs, now func() time.Time) agent.Tool {
	return agent.Tool{
		Name: "cron_add",
		Description: "Schedule a prompt: again and again by schedule, or once by at. Each run is a turn of its own, " +
			"and its answer is posted where delivery says, by default in the conversation and thread that asked.",
		Schema: json.RawMessage(`{"type":"object","properties":{` +
			`"prompt":{"type":"string","description":"what to do then","minLength":1,"maxLength":20000},` +
			`"schedule":{"type":"string","description":"cron expression of five fields in UTC, or after CRON_TZ=Area/City","maxLength":200},` +
			`"at":{"type":"string","description":"RFC 3339 time with zone","maxLength":64},` +
			`"delivery":{"type":["object","null"],"properties":{` +
			`"mode":{"type":"string","enum":["post","none"],"description":"none: nothing is posted"},` +
			`"channel":{"type":"string","description":"the platform; leave out","maxLength":64},` +
			`"to":{"type":"string","description":"id of the conversation; leave out for the one that asked","maxLength":200},` +
			`"thread":{"type":"string","description":"id of the thread","maxLength":200}},"additionalProperties":false}` +
			`},"required":["prompt"],"additionalProperties":false}`),
		Owner:      Owner,
		Idempotent: true, // the id comes from the call
		Delivery:   true,
		Default:    always(agent.Ask),
		Run: func(ctx context.Context, inv agent.Invocation) agent.Result {
			var args jobArgs
			if err := json.Unmarshal(inv.Args, &args); err != nil {
				return agent.Failed("the arguments are no JSON object with a prompt and a schedule")
			}
			job, err := newJob(inv, args, now())
			if err != nil {
				return agent.Failed(clean(err.Error()))
			}
			there, err := jobs.Jobs(ctx, scopeOf(inv.Origin))
			if err != nil {
				return agent.Failed("the jobs could not be read")
			}
			for _, other := range there {
				if other.ID == job.ID { // this very call ran before a crash
					return agent.Succeeded("added " + jobText(other))
				}
			}
			if len(there) >= MaxJobs {
				return agent.Failed(fmt.Sprintf("this conversation has %d jobs, and no more are allowed: remove one first", len(there)))
			}
			if err := jobs.AddJob(ctx, job); err != nil {
				return agent.Failed("the job could not be stored")
			}
			return agent.Succeeded("added " + jobText(job))
		},
	}
}

func newJob(inv agent.Invocation, args jobArgs, now time.Time) (Job, error) {
	at, err := args.when()
	if err != nil {
		return Job{}, err
	}
	job := Job{ID: jobID(inv), Prompt: clean(args.Prompt), At: at, Origin: inv.Origin, Next: at, Delivery: Delivery{Mode: ModeNone}}
	if strings.TrimSpace(job.Prompt) == "" {
		return Job{}, errors.New("the prompt is blank")
	}
	if at.IsZero() {
		job.Schedule = strings.TrimSpace(args.Schedule)
		if job.Next, err = NextRun(job.Schedule, now); err != nil {
			return Job{}, err
		}
	} else if !at.After(now) {
		return Job{}, fmt.Errorf("at is %s, which is not in the future: it is %s now", at.Format(time.RFC3339), now.UTC().Format(time.RFC3339))
	}
	if d := args.Delivery; d != nil && d.Mode != ModeNone {
		job.Delivery.Mode = ModePost
		if job.Delivery.Place, err = destination(inv.Origin, d.Channel, d.To, d.Thread); err != nil {
			return Job{}, err
		}
	}
	return job, nil
}

// jobID derives the id from the call, so that the same call is the same job.
func jobID(inv agent.Invocation) agent.JobID {
	sum := agent.HashParts(string(inv.Session), string(inv.Turn), string(inv.Call))
	text := base32.HexEncoding.WithPadding(base32.NoPadding).EncodeToString(sum[:16])
	return agent.JobID("job_" + strings.ToLower(text))
}

func cronList(jobs Jobs) agent.Tool {
	return agent.Tool{
		Name:        "cron_list",
		Description: "List the scheduled prompts of this conversation.",
		Schema:      json.RawMessage(`{"type":"object","properties":{},"additionalProperties":false}`),
		Owner:       Owner,
		Idempotent:  true,
		Default:     always(agent.Allow),
		Run: func(ctx context.Context, inv agent.Invocation) agent.Result {
			list, err := jobs.Jobs(ctx, scopeOf(inv.Origin))
			if err != nil {
				return agent.Failed("the jobs could not be read")
			}
			if len(list) == 0 {
				return agent.Succeeded("there are no jobs in this conversation")
			}
			var out strings.Builder
			for i, job := range list {
				if i == MaxJobs {
					fmt.Fprintf(&out, "[and %d more]\n", len(list)-i)
					break
				}
				out.WriteString(jobText(job) + "\n")
			}
			return agent.Succeeded(clean(out.String()))
		},
	}
}

func cronRemove(jobs Jobs) agent.Tool {
	return agent.Tool{
		Name:        "cron_remove",
		Description: "Remove a scheduled prompt of this conversation.",
		Schema: json.RawMessage(`{"type":"object","properties":{` +
			`"id":{"type":"string","description":"the job's id as cron_list shows it","minLength":1,"maxLength":64}` +
			`},"required":["id"],"additionalProperties":false}`),
		Owner:   Owner,
		Default: always(agent.Ask),
		Run: func(ctx context.Context, inv agent.Invocation) agent.Result {
			var args struct{ ID agent.JobID }
			if err := json.Unmarshal(inv.Args, &args); err != nil {
				return agent.Failed("the arguments are no JSON object with an id")
			}
			err := jobs.RemoveJob(ctx, scopeOf(inv.Origin), args.ID)
			switch {
			case errors.Is(err, agent.ErrNotFound):
				return agent.Failed(clean("there is no job " + name(string(args.ID)) + " in this conversation: cron_list shows those there are"))
			case err != nil:
				return agent.Failed("the job could not be removed")
			}
			return agent.Succeeded(clean("removed " + name(string(args.ID))))
		},
	}
}

func scopeOf(origin agent.Origin) Scope {
	return Scope{Channel: origin.Channel, Workspace: origin.Workspace, Conversation: origin.Conversation}
}

// jobText describes a job in one line.
func jobText(j Job) string {
	when := "once"
	if j.Schedule != "" {
		when = "schedule " + name(j.Schedule)
	}
	where := "nothing is posted"
	if j.Delivery.Mode == ModePost {
		where = "posts to " + placeText(j.Delivery.Place)
	}
	return clean(fmt.Sprintf("%s: %s, next %s, %s, by %s: %s", j.ID, when, j.Next.UTC().Format(time.RFC3339), where,
		name(j.Origin.Author.String()), name(short(j.Prompt, 300))))
}
