package store

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/clawbot/clawbot/agent"
	"github.com/clawbot/clawbot/approval"
)

// counter counts what goes over the pool's connections.
type counter struct {
	mu sync.Mutex
	cost
	open map[*pgx.Conn]*transaction
	said []string
}

// cost is what a turn takes of the database: statements, without those that only
// frame a transaction, and commits that wait for the disk.
type cost struct{ statements, commits int }

type transaction struct{ explicit, wrote, async bool }

func (c *counter) statement(conn *pgx.Conn, sql string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	tx := c.open[conn]
	if tx == nil {
		tx = &transaction{}
		c.open[conn] = tx
	}
	sql = strings.Join(strings.Fields(sql), " ")
	switch verb, _, _ := strings.Cut(strings.ToLower(sql), " "); {
	case verb == "begin":
		tx.explicit = true
	case verb == "commit" || verb == "rollback":
		c.end(conn, verb == "commit")
	case strings.Contains(sql, "synchronous_commit"):
		tx.async = true
	default:
		c.statements++
		c.said = append(c.said, sql)
		tx.wrote = tx.wrote || verb != "select"
	}
}

func (c *counter) end(conn *pgx.Conn, commit bool) {
	if tx := c.open[conn]; tx != nil && commit && tx.wrote && !tx.async {
		c.commits++
	}
	delete(c.open, conn)
}

// implicit ends a transaction that nobody began.
func (c *counter) implicit(conn *pgx.Conn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if tx := c.open[conn]; tx != nil && !tx.explicit {
		c.end(conn, true)
	}
}

func (c *counter) TraceQueryStart(ctx context.Context, conn *pgx.Conn, d pgx.TraceQueryStartData) context.Context {
	c.statement(conn, d.SQL)
	return ctx
}
func (c *counter) TraceQueryEnd(_ context.Context, conn *pgx.Conn, _ pgx.TraceQueryEndData) {
	c.implicit(conn)
}
func (c *counter) TraceBatchStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceBatchStartData) context.Context {
	return ctx
}
func (c *counter) TraceBatchQuery(_ context.Context, conn *pgx.Conn, d pgx.TraceBatchQueryData) {
	c.statement(conn, d.SQL)
}
func (c *counter) TraceBatchEnd(_ context.Context, conn *pgx.Conn, _ pgx.TraceBatchEndData) {
	c.implicit(conn)
}

// during returns what f took.
func (c *counter) during(f func()) cost {
	c.mu.Lock()
	before := c.cost
	c.said = nil
	c.mu.Unlock()
	f()
	c.mu.Lock()
	defer c.mu.Unlock()
	return cost{c.statements - before.statements, c.commits - before.commits}
}

func counted(t *testing.T) (testDB, *counter) {
	t.Helper()
	db := newDB(t)
	c := &counter{open: map[*pgx.Conn]*transaction{}}
	cfg := db.pool.Config()
	cfg.ConnConfig.Tracer = c
	pool, err := pgxpool.NewWithConfig(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	db.pool.Close()
	db.pool = pool
	return db, c
}

// oneTool is a toolbox with one tool that does nothing.
type oneTool struct{}

func (oneTool) Tools() []agent.Tool {
	return []agent.Tool{{Name: "note", Schema: json.RawMessage(`{}`), Run: func(context.Context, agent.Invocation) agent.Result { return agent.Succeeded("noted") }}}
}
func (oneTool) Check(string, []byte, string) error { return nil }
func (oneTool) Fill(_ agent.Tool, args []byte, _ agent.Origin) ([]byte, []string, error) {
	return args, nil, nil
}
func (oneTool) Definition(agent.Tool) string { return "d" }

// askFor calls the tool if the person says so.
type askFor struct{}

func (askFor) Name() string { return "test" }
func (askFor) Complete(_ context.Context, r agent.ModelRequest) (agent.ModelReply, error) {
	if last := r.Messages[len(r.Messages)-1]; last.Role == agent.RoleUser && last.Text == "note" {
		return agent.ModelReply{Calls: []agent.ProposedCall{{ID: "c1", Tool: "note", Arguments: `{}`}}}, nil
	}
	return agent.ModelReply{Text: "done"}, nil
}

// silent is a channel where everything arrives.
type silent struct{}

func (silent) Name() agent.ChannelName                                       { return "slack" }
func (silent) Run(ctx context.Context, _ agent.Inlet) error                  { <-ctx.Done(); return nil }
func (silent) Split(text string) []string                                    { return []string{text} }
func (silent) Post(context.Context, agent.Place, agent.Post) (string, error) { return "ref", nil }
func (silent) Edit(context.Context, agent.Place, string, agent.Post) error   { return nil }
func (silent) Person(_ context.Context, a agent.Actor, _ []string) (agent.Person, error) {
	return agent.Person{Actor: a}, nil
}

// TestCost holds how much of the database a turn takes. A number here goes up
// only with a reason.
func TestCost(t *testing.T) {
	t.Parallel()
	db, c := counted(t)
	policy, errs := approval.NewPolicy(approval.Config{Timeout: time.Minute, Quorum: 1, DenialPolicy: agent.DenialContinue,
		Approvers: approval.Approvers{Users: []string{"slack:T1/boss"}}})
	if errs != nil {
		t.Fatal(errs)
	}
	bell := agent.NewBell()
	desk := approval.NewDesk(db, map[agent.ChannelName]approval.Directory{"slack": silent{}}, oneTool{}, agent.NewMasker(), bell, nil)
	engine := agent.NewEngine(agent.Parts{Bundle: agent.Bundle{Config: agent.DefaultConfig(), Model: askFor{}, Gate: policy, Toolbox: oneTool{}}, Store: db, Desk: desk,
		Channels: []agent.Channel{silent{}}, Mask: agent.NewMasker(), Bell: bell, Owner: "w", Lease: 30 * time.Second, Grace: time.Second})
	ctx, stop := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() { engine.Run(ctx) })
	defer func() { stop(); wg.Wait() }()

	outside := testDB{t: t, url: db.url}
	wait := func(sql string) {
		t.Helper()
		deadline := time.Now().Add(20 * time.Second)
		for !get[bool](outside, sql) {
			if time.Now().After(deadline) {
				t.Fatalf("in vain: %s", sql)
			}
			time.Sleep(5 * time.Millisecond)
		}
	}
	const over = `SELECT NOT EXISTS (SELECT 1 FROM turns WHERE ended_at IS NULL) AND NOT EXISTS (SELECT 1 FROM inbox WHERE turn_id IS NULL)
		AND NOT EXISTS (SELECT 1 FROM deliveries WHERE state = 'due')`
	say := func(text string) {
		if _, err := engine.Receive(ctx, message("1", fmt.Sprint(time.Now().UnixNano()), text)); err != nil {
			t.Fatal(err)
		}
	}
	// within measures f a few times: a look at its beginning or end may be counted in
	// part. The looks for work themselves are not counted.
	within := func(what string, most cost, f func()) {
		t.Helper()
		var best cost
		var said []string
		for range 4 {
			got := c.during(f)
			c.mu.Lock()
			lines := slices.Clone(c.said)
			c.mu.Unlock()
			for _, s := range lines {
				if strings.HasPrefix(s, "UPDATE sessions SET revision") || strings.HasPrefix(s, "WITH due AS") {
					got.statements--
				}
			}
			if said == nil || got.commits < best.commits || got.commits == best.commits && got.statements < best.statements {
				best, said = got, lines
			}
		}
		t.Logf("%s: %+v", what, best)
		if best.statements > most.statements || best.commits > most.commits {
			t.Errorf("%s takes %+v, at most %+v:\n%s", what, best, most, strings.Join(said, "\n"))
		}
	}
	say("warm up")
	wait(over)

	within("a plain turn", cost{statements: 13, commits: 3}, func() { say("hello"); wait(over) })
	within("an approved turn", cost{statements: 70, commits: 10}, func() {
		say("note")
		wait(`SELECT EXISTS (SELECT 1 FROM approvals WHERE status = 'pending' AND card_ref <> '')`)
		id := get[string](outside, `SELECT id FROM approvals WHERE status = 'pending'`)
		if v, err := engine.Decide(ctx, agent.Click{Approval: agent.ApprovalID(id), Verb: agent.VerbApprove, Actor: person("boss"), Backchannel: "slack"}); err != nil || !v.Accepted {
			t.Fatal(v, err)
		}
		wait(over)
	})
}
