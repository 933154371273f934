package tools

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/clawbot/clawbot/agent"
)

// jobList keeps jobs as Jobs asks for.
type jobList struct{ all []Job }

func (l *jobList) AddJob(_ context.Context, job Job) error {
	if !slices.ContainsFunc(l.all, func(j Job) bool { return j.ID == job.ID }) {
		l.all = append(l.all, job)
	}
	return nil
}

func (l *jobList) Jobs(_ context.Context, s Scope) ([]Job, error) {
	var out []Job
	for _, j := range l.all {
		if scopeOf(j.Origin) == s {
			out = append(out, j)
		}
	}
	return out, nil
}

func (l *jobList) RemoveJob(_ context.Context, s Scope, id agent.JobID) error {
	for i, j := range l.all {
		if j.ID == id && scopeOf(j.Origin) == s {
			l.all = slices.Delete(l.all, i, i+1)
			return nil
		}
	}
	return agent.ErrNotFound
}

var noon = time.Date(2026, 3, 2, 12, 0, 30, 0, time.UTC) // a Monday

func TestNextRun(t *testing.T) {
	for schedule, want := range map[string]string{
		"0 9 * * 1-5":                        "2026-03-03T09:00:00Z",
		"* * * * *":                          "2026-03-02T12:01:00Z",
		"  30 12 2 3 * ":                     "2026-03-02T12:30:00Z",
		"CRON_TZ=Europe/Berlin 0 9 * * *":    "2026-03-03T08:00:00Z",
		"TZ=America/New_York 0 9 * * *":      "2026-03-02T14:00:00Z",
		"@hourly":                            "2026-03-02T13:00:00Z",
		"@every 90m":                         "2026-03-02T13:30:30Z",
		"0 0 29 2 *":                         "2028-02-29T00:00:00Z",
		"":                                   "cannot be read",
		"0 9 * *":                            "cannot be read",
		"* * * * * *":                        "cannot be read", // no seconds
		"61 * * * *":                         "cannot be read",
		"*/0 * * * *":                        "cannot be read",
		"CRON_TZ=Mars/Olympus 0 9 * * *":     "cannot be read",
		"CRON_TZ=../../etc/passwd * * * * *": "cannot be read",
		"CRON_TZ=UTC":                        "time zone and nothing else",
		"TZ=":                                "time zone and nothing else",
		"@every 59s":                         "too often",
		"@every 1ns":                         "too often",
		"@every -1h":                         "too often",
		"@reboot":                            "cannot be read",
		"0 0 31 2 *":                         "never comes",
		"0 0 30 2 * \x00":                    "cannot be read",
	} {
		next, err := NextRun(schedule, noon)
		got := next.Format(time.RFC3339)
		if err != nil {
			got = err.Error()
		}
		if !strings.Contains(got, want) {
			t.Errorf("%q: %s, want %s", schedule, got, want)
		}
	}
}

// add runs cron_add as the engine would: filled, checked, then executed.
func add(t *testing.T, jobs Jobs, call, args string, origin agent.Origin) (agent.Result, error) {
	t.Helper()
	tool := cronAdd(jobs, func() time.Time { return noon })
	box, err := NewToolbox([]agent.Tool{tool})
	if err != nil {
		t.Fatal(err)
	}
	filled, _, err := new(Toolbox).Fill(tool, []byte(args), origin)
	if err != nil {
		t.Fatal(err)
	}
	if err := box.Check("cron_add", filled, ""); err != nil {
		return agent.Result{}, err
	}
	res := tool.Run(t.Context(), agent.Invocation{Session: "ses_1", Turn: "turn_1", Call: agent.CallID(call), Args: filled, Origin: origin})
	checkText(t, res)
	return res, nil
}

// Rows: L35.
func TestCronAdd(t *testing.T) {
	jobs := &jobList{}
	origin := asked
	origin.Author = agent.Actor{Channel: "slack", Workspace: "T1", User: "U1"}
	for range 2 { // again after a crash: the same job
		res, err := add(t, jobs, "c1", `{"prompt":"report","schedule":"0 9 * * 1-5"}`, origin)
		if err != nil || !res.Success || !strings.Contains(res.Output, "next 2026-03-03T09:00:00Z") || !strings.Contains(res.Output, "slack:T1/U1") {
			t.Fatalf("%+v, %v", res, err)
		}
	}
	if len(jobs.all) != 1 {
		t.Fatalf("%d jobs", len(jobs.all))
	}
	j := jobs.all[0]
	if j.Delivery != (Delivery{ModePost, asked.Place}) || j.Origin != origin || !strings.HasPrefix(string(j.ID), "job_") || len(j.ID) != 30 {
		t.Errorf("%+v", j)
	}
	res, err := add(t, jobs, "c2", `{"prompt":"once","at":"2026-03-02T14:00:00+01:00","delivery":{"mode":"none"}}`, origin)
	if err != nil || !res.Success {
		t.Fatalf("%+v, %v", res, err)
	}
	if j := jobs.all[1]; !j.Next.Equal(noon.Add(59*time.Minute+30*time.Second)) || !j.At.Equal(j.Next) || j.Delivery.Mode != ModeNone {
		t.Errorf("%+v", j)
	}
	if _, err := add(t, jobs, "c3", `{"prompt":"elsewhere","schedule":"@daily","delivery":{"to":"C9"}}`, origin); err != nil {
		t.Fatal(err)
	}
	if p := jobs.all[2].Delivery.Place; p != (agent.Place{Channel: "slack", Workspace: "T1", Conversation: "C9"}) {
		t.Errorf("%+v", p)
	}
	if _, err := add(t, jobs, "c4", `{"prompt":"from the command line","schedule":"@daily"}`, agent.Origin{Place: agent.Place{Channel: "cli"}}); err != nil {
		t.Fatal(err)
	}
	if d := jobs.all[3].Delivery; d.Mode != ModeNone {
		t.Errorf("%+v", d)
	}

	for args, want := range map[string]string{
		`{"prompt":"x"}`: "exactly one of",
		`{"prompt":"x","schedule":"@daily","at":"2030-01-01T00:00:00Z"}`:               "exactly one of",
		`{"prompt":"x","at":"tomorrow"}`:                                               "write a time with its zone",
		`{"prompt":"x","at":"2026-03-02T12:00:00Z"}`:                                   "not in the future",
		`{"prompt":"x","schedule":"* * * * * *"}`:                                      "five fields",
		`{"prompt":" ","schedule":"@daily"}`:                                           "blank",
		`{"prompt":"x","schedule":"@daily","delivery":"C2"}`:                           "delivery must be",
		`{"prompt":"x","schedule":"@daily","delivery":{"mode":"everyone"}}`:            "delivery.mode",
		`{"prompt":"x","schedule":"@daily","delivery":{"channel":"discord","to":"5"}}`: "channel is the platform",
		`{"prompt":"x","schedule":"@daily","delivery":{"workspace":"T2"}}`:             `unknown property "delivery.workspace"`,
	} {
		res, err := add(t, jobs, "bad", args, origin)
		if res.Success || !strings.Contains(res.Error+fmt.Sprint(err), want) {
			t.Errorf("%s: %+v, %v, want %q", args, res, err, want)
		}
	}
	if len(jobs.all) != 4 {
		t.Errorf("%d jobs", len(jobs.all))
	}
	for i := range MaxJobs {
		add(t, jobs, fmt.Sprint("many", i), `{"prompt":"x","schedule":"@daily"}`, origin)
	}
	if mine, _ := jobs.Jobs(t.Context(), scopeOf(origin)); len(mine) != MaxJobs {
		t.Errorf("%d jobs in one conversation", len(mine))
	}
}

// T13: what one conversation scheduled is neither seen nor removed by another.
func TestT13JobsStayInTheirConversation(t *testing.T) {
	jobs := &jobList{}
	if _, err := add(t, jobs, "c1", `{"prompt":"`+canary+`","schedule":"@daily"}`, asked); err != nil {
		t.Fatal(err)
	}
	id := jobs.all[0].ID
	for _, change := range []func(*agent.Place){
		func(p *agent.Place) { p.Conversation = "C2" },
		func(p *agent.Place) { p.Workspace = "T2" },
		func(p *agent.Place) { p.Channel = "discord" },
	} {
		other := asked
		change(&other.Place)
		if res := run(t, cronList(jobs), map[string]any{}, other); strings.Contains(res.Output, canary) {
			t.Errorf("%v sees it", other.Place)
		}
		if res := run(t, cronRemove(jobs), map[string]any{"id": id}, other); res.Success || len(jobs.all) != 1 {
			t.Errorf("%v removes it", other.Place)
		}
	}
	elsewhere := asked
	elsewhere.Thread = "another thread of the same conversation"
	if res := run(t, cronList(jobs), map[string]any{}, elsewhere); !strings.Contains(res.Output, canary) {
		t.Errorf("%+v", res)
	}
	if res := run(t, cronRemove(jobs), map[string]any{"id": id}, elsewhere); !res.Success || len(jobs.all) != 0 {
		t.Errorf("%+v", res)
	}
}

func TestCronDefaults(t *testing.T) {
	for tool, want := range map[*agent.Tool]agent.Action{
		new(cronAdd(nil, nil)): agent.Ask, new(cronList(nil)): agent.Allow, new(cronRemove(nil)): agent.Ask,
	} {
		if got := tool.Default(map[string]any{}, asked); got != want {
			t.Errorf("%s: %s, want %s", tool.Name, got, want)
		}
	}
	ids := map[agent.JobID]bool{}
	for _, inv := range []agent.Invocation{{Session: "a", Turn: "b", Call: "c"}, {Session: "ab", Turn: "", Call: "c"}, {Session: "a", Turn: "bc"}, {Session: "a", Turn: "b", Call: "d"}} {
		ids[jobID(inv)] = true
	}
	if len(ids) != 4 {
		t.Errorf("%d ids for 4 calls", len(ids))
	}
	var s map[string]any
	if err := json.Unmarshal(cronAdd(nil, nil).Schema, &s); err != nil {
		t.Error(err)
	}
}
