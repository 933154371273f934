package store

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/clawbot/clawbot/agent"
	"github.com/clawbot/clawbot/approval"
	"github.com/clawbot/clawbot/migrations"
	"github.com/clawbot/clawbot/store/pgtest"
)

// testDB is a store on a database of the test's own.
type testDB struct {
	*DB
	t   *testing.T
	url string
}

func newDB(t *testing.T) testDB { return newDBWith(t, Config{}) }

func newDBWith(t *testing.T, cfg Config) testDB {
	t.Helper()
	cfg.URL = migrated(t)
	return testDB{openDB(t, cfg), t, cfg.URL}
}

func migrated(t *testing.T) string {
	t.Helper()
	return pgtest.Database(t, "clawbot-"+pgtest.Hash(migrations.FS), func(ctx context.Context, url string) error {
		return Migrate(ctx, url, url)
	})
}

func openDB(t *testing.T, cfg Config) *DB {
	t.Helper()
	db, err := Open(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(db.Close)
	return db
}

// exec runs SQL as an outsider would; sql is for its error alone.
func (db testDB) exec(sql string, args ...any) {
	db.t.Helper()
	if err := db.try(sql, args...); err != nil {
		db.t.Fatalf("%s: %v", sql, err)
	}
}

func (db testDB) try(sql string, args ...any) error {
	conn, err := pgx.Connect(context.Background(), db.url)
	if err != nil {
		return err
	}
	defer conn.Close(context.Background())
	_, err = conn.Exec(context.Background(), sql, args...)
	return err
}

func get[T any](db testDB, sql string, args ...any) T {
	db.t.Helper()
	conn, err := pgx.Connect(context.Background(), db.url)
	if err != nil {
		db.t.Fatal(err)
	}
	defer conn.Close(context.Background())
	var v T
	if err := conn.QueryRow(context.Background(), sql, args...).Scan(&v); err != nil {
		db.t.Fatalf("%s: %v", sql, err)
	}
	return v
}

var slack = []agent.ChannelName{"slack"}

func inThread(thread string) agent.Place {
	return agent.Place{Channel: "slack", Workspace: "T1", Conversation: "C1", Thread: thread}
}

func person(user string) agent.Actor {
	return agent.Actor{Channel: "slack", Workspace: "T1", User: user}
}

func message(thread, key, text string) agent.Inbound {
	return agent.Inbound{Key: key, Text: text, Origin: agent.Origin{Place: inThread(thread), Author: person("ann"), AuthorName: "Ann", Ref: key}}
}

func (db testDB) receive(m agent.Inbound) agent.Receipt {
	db.t.Helper()
	r, err := db.Receive(context.Background(), m)
	if err != nil {
		db.t.Fatal(err)
	}
	return r
}

// claim takes the next session, which must be there.
func (db testDB) claim(owner string) *agent.Work {
	db.t.Helper()
	w, err := db.Claim(context.Background(), owner, slack)
	if err != nil {
		db.t.Fatal(err)
	}
	if w == nil {
		db.t.Fatal("there is nothing to claim")
	}
	return w
}

func (db testDB) save(w *agent.Work, s agent.Step) agent.Saved {
	db.t.Helper()
	saved, err := db.Save(context.Background(), w.Lease, s)
	if err != nil {
		db.t.Fatal(err)
	}
	return saved
}

// ended is the step that ends a turn.
func ended(w *agent.Work) agent.Step {
	t := *w.Turn
	t.Status = agent.TurnDone
	return agent.Step{Turn: t, Release: true}
}

// parked is the step in which a turn asks for consent to n calls and parks.
func parked(w *agent.Work, n int, timeout time.Duration) agent.Step {
	t := *w.Turn
	t.Status = agent.TurnParked
	s := agent.Step{Turn: t, Release: true}
	m := agent.Message{Role: agent.RoleAssistant, Turn: t.ID}
	for i := range n {
		args := fmt.Sprintf(`{"x":%d}`, i)
		c := agent.ToolCall{ID: agent.CallID(fmt.Sprintf("c%d", i)), Turn: t.ID, Batch: 1, Position: i, Tool: "note", Raw: args, Args: args,
			ArgsSHA256: agent.SHA256(args), Definition: "d", Status: agent.CallPrepared,
			Approval: agent.NewID[agent.ApprovalID]("ap", time.Now())}
		a := agent.Approval{ID: c.Approval, Session: t.Session, Turn: t.ID, Call: c.ID, Place: t.Origin.Place, Status: agent.ApprovalPending,
			Tool: c.Tool, Args: args, ArgsSHA256: c.ArgsSHA256, RequestSHA256: agent.RequestSHA256(t.Session, t.Origin.Place, c),
			Requester: t.Origin.Author, RequesterName: "Ann", Approvers: agent.Approvers{Users: []string{"slack:T1/boss"}}, Quorum: 1, Timeout: timeout}
		m.Calls = append(m.Calls, agent.ProposedCall{ID: c.ID, Tool: c.Tool, Arguments: args})
		s.Calls = append(s.Calls, c)
		s.Approvals = append(s.Approvals, a)
		s.Deliveries = append(s.Deliveries, agent.Delivery{ID: agent.NewID[agent.DeliveryID]("dlv", time.Now()), Session: t.Session, Turn: t.ID,
			Kind: agent.DeliverCard, Place: t.Origin.Place, Approval: &agent.Approval{ID: a.ID}})
		s.Events = append(s.Events, agent.Event{Type: agent.EventRunPaused, Turn: t.ID, Call: c.ID, Fields: map[string]string{"tool_name": "note"}})
		s.Audit = append(s.Audit, agent.AuditRecord{Kind: agent.AuditApprovalRequested, Turn: t.ID, Call: c.ID, Approval: a.ID, Tool: "note",
			Args: args, ArgsSHA256: c.ArgsSHA256, Decision: "ask", Source: agent.SourcePolicy, Channel: "slack", Latency: -1})
	}
	s.Messages = []agent.Message{m}
	return s
}

// asked has one session with n open questions.
func (db testDB) asked(thread string, n int, timeout time.Duration) []agent.ApprovalID {
	db.t.Helper()
	r := db.receive(message(thread, "m-"+thread, "do it"))
	w := db.claim("asker")
	for w.Session != r.Session { // another was woken before
		db.save(w, ended(w))
		w = db.claim("asker")
	}
	s := parked(w, n, timeout)
	db.save(w, s)
	var ids []agent.ApprovalID
	for _, a := range s.Approvals {
		ids = append(ids, a.ID)
	}
	return ids
}

// ruling decides as a person, or the clock, would.
func ruling(a agent.Approval, status agent.ApprovalStatus, who string) approval.Ruling {
	if a.Status != agent.ApprovalPending {
		return approval.Ruling{Status: agent.ApprovalPending, Verdict: agent.Verdict{Status: a.Status, Text: a.DecidedBy.String()},
			Audit: []agent.AuditRecord{{Kind: agent.AuditClickRefused, Approval: a.ID, Source: agent.SourcePerson, Actor: person(who), Latency: -1}}}
	}
	r := approval.Ruling{Status: status, Source: agent.SourceTimeout, Redraw: true, Verdict: agent.Verdict{Accepted: true, Status: status}}
	if who != "" {
		r.Source, r.Actor, r.ActorName, r.Backchannel, r.Vote = agent.SourcePerson, person(who), who, "slack", agent.VerbApprove
		if status == agent.ApprovalDenied {
			r.Vote = agent.VerbDeny
		}
	}
	r.Audit = []agent.AuditRecord{{Kind: agent.AuditApprovalDecided, Turn: a.Turn, Call: a.Call, Approval: a.ID, Decision: string(status),
		Source: r.Source, Actor: r.Actor, Latency: 0}}
	r.Events = []agent.Event{{Type: agent.EventRunResumed, Turn: a.Turn, Call: a.Call, Fields: map[string]string{"decision": string(status)}}}
	return r
}

func (db testDB) decide(id agent.ApprovalID, status agent.ApprovalStatus, who string) (approval.Ruling, error) {
	return db.Decide(context.Background(), id, func(a agent.Approval, _ time.Time) approval.Ruling { return ruling(a, status, who) })
}

func (db testDB) verify() {
	db.t.Helper()
	v, err := db.VerifyAudit(context.Background())
	if err != nil {
		db.t.Fatal(err)
	}
	if v.Bad != nil {
		db.t.Error(v.Bad)
	}
}

// together runs f n times at the same moment.
func together(n int, f func(i int)) {
	var wg sync.WaitGroup
	start := make(chan struct{})
	for i := range n {
		wg.Go(func() { <-start; f(i) })
	}
	close(start)
	wg.Wait()
}
