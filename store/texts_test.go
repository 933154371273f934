package store

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/clawbot/clawbot/agent"
	"github.com/clawbot/clawbot/approval"
	"github.com/clawbot/clawbot/tools"
)

// Texts that Postgres refuses, or that are long, get through every method, and the
// audit verifies with them.
//
// Rows: F118, F119.
func TestTexts(t *testing.T) {
	t.Parallel()
	for name, bad := range map[string]string{
		"NUL":           "a\x00b",
		"invalid UTF-8": "a\xff\xc3b\xed\xa0\x80",
		"megabyte":      strings.Repeat("é\x00", 350_000),
		"quotes":        `a'; DROP TABLE sessions; --"\u0000\`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := newDB(t)
			ctx := context.Background()
			good := agent.Clean(bad)
			short := bad[:min(len(bad), 40)] // for what is part of an index

			m := agent.Inbound{Key: short, Text: bad, Origin: agent.Origin{
				Place:  agent.Place{Channel: "slack", Workspace: short, Conversation: short, Thread: short},
				Author: person("ann"), AuthorName: bad, Ref: bad}}
			if r := db.receive(m); !r.New {
				t.Error("the message is not new")
			}
			if r := db.receive(m); r.New {
				t.Error("its repeat is new")
			}
			w := db.claim("w")
			if w.Turn.Origin.AuthorName != good || w.Turn.Origin.Thread != agent.Clean(short) {
				t.Error("the origin is another")
			}
			args, err := agent.Canonical(`{"x":` + quoted(good) + `,"n":"\u0000"}`)
			if err != nil && name != "megabyte" {
				t.Fatal(err)
			}
			if err != nil {
				args = `{"n":"\u0000"}`
			}
			s := parked(w, 1, time.Minute)
			s.Turn.Error, s.Turn.Model = bad, bad
			s.Messages[0].Text = bad
			s.Messages[0].Calls[0].Arguments, s.Messages[0].Calls[0].Tool = bad, bad
			c, a := &s.Calls[0], &s.Approvals[0]
			c.Tool, c.Raw, c.Args, c.ArgsSHA256, c.Rule, c.Output, c.Error = bad, bad, args, agent.SHA256(args), bad, bad, bad
			a.Tool, a.Args, a.ArgsSHA256, a.RequesterName, a.Rule, a.Why, a.Filled = bad, args, agent.SHA256(args), bad, bad, bad, []string{"x"}
			s.Events[0].Fields["tool_name"] = bad
			r := &s.Audit[0]
			r.Tool, r.Args, r.Rule, r.Reason = short, args, bad, bad
			s.Deliveries = append(s.Deliveries, agent.Delivery{ID: "dlv_text", Session: w.Session, Turn: w.Turn.ID, Kind: agent.DeliverText, Place: w.Turn.Origin.Place, Text: bad})
			db.save(w, s)

			h, err := db.History(ctx, w.Session, 10)
			if err != nil || len(h) != 2 || h[0].Text != good || h[1].Text != good || h[1].Calls[0].Arguments != good {
				t.Errorf("history: %d messages, %v", len(h), err)
			}
			got, err := db.Approval(ctx, a.ID)
			if err != nil || got.Tool != good || got.Args != args || got.Why != good {
				t.Errorf("approval: %v", err)
			}
			_, err = db.Decide(ctx, a.ID, func(a agent.Approval, _ time.Time) approval.Ruling {
				r := ruling(a, agent.ApprovalDenied, "boss")
				r.ActorName, r.Reason, r.Audit[0].Reason = bad, bad, bad
				r.Events[0].Fields["reason"] = bad
				return r
			})
			if err != nil {
				t.Errorf("decide: %v", err)
			}
			for _, d := range s.Deliveries {
				db.delivered(d, agent.Attempt{Reason: bad, Ref: "r", Done: true})
			}
			if err := db.DeliveredPart(ctx, "dlv_text", 1, "r"); err != nil {
				t.Errorf("delivered part: %v", err)
			}
			if err := db.Send(ctx, agent.Invocation{Session: w.Session, Turn: w.Turn.ID, Call: agent.CallID(short)}, w.Turn.Origin.Place, bad); err != nil {
				t.Errorf("send: %v", err)
			}
			job := tools.Job{ID: agent.NewID[agent.JobID]("job", time.Now()), Origin: w.Turn.Origin, Prompt: bad, Schedule: short, Next: time.Now()}
			job.Delivery.Mode, job.Delivery.Place = "post", w.Turn.Origin.Place
			if err := db.AddJob(ctx, job); err != nil {
				t.Errorf("add job: %v", err)
			}
			if jobs, err := db.DueJobs(ctx, 10); err != nil || len(jobs) != 1 || jobs[0].Prompt != good {
				t.Errorf("due jobs: %d, %v", len(jobs), err)
			}
			again := db.claim("w2")
			if again.Calls[0].Output != good || again.Calls[0].Args != args || again.Approvals[a.ID].Reason != good {
				t.Error("the work read back is another")
			}
			// Questions with such texts find nothing, or what is there, and are no errors.
			for what, err := range map[string]error{
				"audit rows": func() error {
					_, err := db.AuditRows(ctx, AuditQuery{Tool: bad, Actor: bad, Channel: bad, Decision: bad, Kind: bad, Session: agent.SessionID(bad), Limit: 1})
					return err
				}(),
				"audit call":               func() error { _, err := db.AuditCall(ctx, bad); return err }(),
				"going":                    func() error { _, _, err := db.Going(ctx, w.Turn.Origin.Place); return err }(),
				"going with unclean texts": func() error { _, _, err := db.Going(ctx, m.Origin.Place); return err }(),
				"jobs": func() error {
					_, err := db.Jobs(ctx, tools.Scope{Channel: "slack", Workspace: short, Conversation: short})
					return err
				}(),
			} {
				if err != nil {
					t.Errorf("%s: %v", what, err)
				}
			}
			turns, err := db.Turns(ctx, w.Session)
			if err != nil || len(turns) != 1 || turns[0].Events[0].Fields["tool_name"] != good {
				t.Errorf("turns: %v", err)
			}
			db.verify()
		})
	}
}

func quoted(s string) string {
	js, err := json.Marshal(s)
	if err != nil {
		panic(err)
	}
	return string(js)
}
