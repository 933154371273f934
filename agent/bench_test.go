package agent_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/clawbot/clawbot/agent"
	"github.com/clawbot/clawbot/approval"
	"github.com/clawbot/clawbot/audit"
	"github.com/clawbot/clawbot/migrations"
	"github.com/clawbot/clawbot/store"
	"github.com/clawbot/clawbot/store/pgtest"
)

// thread is where stories happen.
var thread = agent.Place{Channel: "slack", Workspace: "T1", Conversation: "C1", Thread: "1.0"}

// testLease is the lease of sessions on the bench.
const testLease = time.Second

// bench is a clawbot in one process without a platform.
type bench struct {
	t        *testing.T
	url      string
	db       *store.DB
	policy   *approval.Policy
	newRules string
	model    *scriptedModel
	room     *room
	ledger   *ledger
	config   agent.Config
	denial   agent.AfterDenial
	before   []agent.BeforeHook
	receipts agent.Receipts
	observer agent.Observer
	after    []agent.AfterHook
	brain    agent.Model   // what to use instead of the scripted model
	lease    time.Duration // of sessions
	faults   func(*mortalStore)
	alter    func(*agent.Bundle) // changes what the next engine works with

	log    warnings
	store  *mortalStore // of the running engine
	engine *agent.Engine
	desk   *approval.Desk
	cancel context.CancelFunc
	done   chan struct{}
	sent   int
	runs   int
}

func newBench(t *testing.T) *bench {
	t.Helper()
	b := &bench{t: t, url: database(t), model: &scriptedModel{}, room: newRoom(), ledger: newLedger(), config: agent.DefaultConfig(), lease: testLease}
	b.config.ParallelTools = false // the timelines of stories have one order
	b.db = openStore(t, b.url)
	t.Cleanup(b.stop)
	return b
}

// leaseFor makes what a dead process held free sooner, or later.
func (b *bench) leaseFor(d time.Duration) {
	b.lease, b.db = d, openStoreFor(b.t, b.url, d)
}

func database(t testing.TB) string {
	t.Helper()
	return pgtest.Database(t, "clawbot-"+pgtest.Hash(migrations.FS), func(ctx context.Context, url string) error {
		return store.Migrate(ctx, url, url)
	})
}

func openStore(t testing.TB, url string) *store.DB {
	t.Helper()
	return openStoreFor(t, url, testLease)
}

func openStoreFor(t testing.TB, url string, lease time.Duration) *store.DB {
	t.Helper()
	db, err := store.Open(context.Background(), store.Config{URL: url, MaxConns: 4, LeaseFor: lease})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(db.Close)
	return db
}

// configure reads the section settings.
func (b *bench) configure(text string) {
	for _, line := range lines(text) {
		key, value, _ := strings.Cut(line, " ")
		var err error
		switch key {
		case "max_tool_iterations":
			b.config.MaxToolIterations, err = strconv.Atoi(value)
		case "max_tool_result_chars":
			b.config.MaxToolResultChars, err = strconv.Atoi(value)
		case "turn_timeout":
			b.config.TurnTimeout, err = time.ParseDuration(value)
		case "parallel":
			b.config.ParallelTools = true
		case "after_denial":
			b.denial = agent.AfterDenial(value)
		case "progress_after":
			b.config.ProgressAfter, err = time.ParseDuration(value)
		case "receipts":
			b.receipts = storyReceipts{}
		case "ignore_loops_of":
			b.config.LoopGuard.Ignore = append(b.config.LoopGuard.Ignore, value)
		case "exclude":
			b.config.ExcludedTools = append(b.config.ExcludedTools, value)
		default:
			b.t.Fatalf("setting is not understood: %q", line)
		}
		if err != nil {
			b.t.Fatal(err)
		}
	}
}

// rules reads the section of that name.
func (b *bench) rules(text string) *approval.Policy {
	c := approval.DefaultConfig()
	c.Approvers = approval.Approvers{Users: []string{"slack:T1/boss"}}
	for i, line := range lines(text) {
		f := strings.Fields(line)
		r := approval.Rule{Name: fmt.Sprintf("rule-%d", i+1), Action: agent.Action(f[0]), Tools: []string{f[1]}}
		for i := 2; i+1 < len(f); i += 2 {
			switch f[i] {
			case "by":
				r.Approvers = &approval.Approvers{}
				for _, u := range strings.Split(f[i+1], ",") {
					if u == "requester" {
						r.Approvers.Requester = true
						continue
					}
					r.Approvers.Users = append(r.Approvers.Users, "slack:T1/"+u)
				}
			case "quorum":
				n := int(f[i+1][0] - '0')
				r.Quorum = &n
			case "for":
				d, err := time.ParseDuration(f[i+1])
				if err != nil {
					b.t.Fatal(err)
				}
				r.Timeout = &d
			case "because":
				r.Reason = f[i+1]
			case "into":
				r.TargetArg = f[i+1]
			case "secret":
				r.Secret = f[i+1] == "yes"
			case "when":
				r.When = approval.Condition(f[i+1])
			}
		}
		c.Rules = append(c.Rules, r)
	}
	p, errs := approval.NewPolicy(c)
	if errs != nil {
		b.t.Fatal(errors.Join(errs...))
	}
	return p
}

func (b *bench) start() {
	b.runs++
	bell := agent.NewBell()
	mask := agent.NewMasker("hunter2-canary")
	log := slog.New(slog.NewMultiHandler(slog.NewTextHandler(b.t.Output(), nil), &b.log))
	b.store = &mortalStore{DB: b.db}
	if b.faults != nil {
		b.faults(b.store)
	}
	b.desk = approval.NewDesk(b.store, map[agent.ChannelName]approval.Directory{"slack": b.room}, b.ledger, mask, bell, log)
	b.engine = agent.NewEngine(agent.Parts{
		Bundle: b.bundle(),
		Store:  b.store, Desk: b.desk, Channels: []agent.Channel{b.room}, Mask: mask, Bell: bell, Log: log,
		Owner: fmt.Sprintf("run-%d", b.runs), Lease: b.lease, Grace: 200 * time.Millisecond,
	})
	ctx, cancel := context.WithCancel(context.Background())
	b.cancel, b.done = cancel, make(chan struct{})
	engine, desk, done := b.engine, b.desk, b.done
	go func() {
		defer close(done)
		var wg sync.WaitGroup
		wg.Go(func() { engine.Run(ctx) })
		wg.Go(func() { desk.Run(ctx) })
		wg.Wait()
	}()
}

// bundle is what the next engine works with.
func (b *bench) bundle() agent.Bundle {
	out := agent.Bundle{Config: b.config, Model: b.model, Gate: b.policy, Toolbox: b.ledger, AfterDenial: b.denial, Before: b.before, After: b.after, Receipts: b.receipts, Observer: b.observer}
	if b.brain != nil {
		out.Model = b.brain
	}
	if b.alter != nil {
		b.alter(&out)
	}
	return out
}

// warnings keeps what is logged as a warning or worse.
type warnings struct {
	mu    sync.Mutex
	lines []string
}

func (*warnings) Enabled(_ context.Context, l slog.Level) bool { return l >= slog.LevelWarn }
func (w *warnings) WithAttrs([]slog.Attr) slog.Handler         { return w }
func (w *warnings) WithGroup(string) slog.Handler              { return w }
func (w *warnings) Handle(_ context.Context, r slog.Record) error {
	line := r.Message
	r.Attrs(func(a slog.Attr) bool { line += " " + a.String(); return true })
	w.mu.Lock()
	defer w.mu.Unlock()
	w.lines = append(w.lines, line)
	return nil
}

func (w *warnings) text() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return strings.Join(w.lines, "\n")
}

func (b *bench) stop() {
	if b.cancel != nil {
		b.cancel()
		<-b.done
		b.cancel = nil
	}
}

// crash is the death of the process as the database sees it: from now on nothing
// of the running engine is written, and its leases run out by themselves.
func (b *bench) crash() {
	b.store.dead.Store(true)
	b.stop()
}

// storyReceipts makes receipts that a story can show.
type storyReceipts struct{}

func (storyReceipts) Sign(e agent.Evidence) string {
	return fmt.Sprintf("of %s %s %s", e.Call, e.Tool, strings.ReplaceAll(e.Output, "\n", " "))
}

// exec changes the database behind the program's back.
func (b *bench) exec(sql string, args ...any) {
	b.t.Helper()
	conn, err := pgx.Connect(context.Background(), b.url)
	if err != nil {
		b.t.Fatal(err)
	}
	defer conn.Close(context.Background())
	if tag, err := conn.Exec(context.Background(), sql, args...); err != nil || tag.RowsAffected() == 0 {
		b.t.Fatalf("%s: %v, %d rows", sql, err, tag.RowsAffected())
	}
}

func (b *bench) step(line string) {
	t := b.t
	who, text, isMessage := strings.Cut(line, ": ")
	f := strings.Fields(line)
	number := func(at, fallback int) int {
		if at >= len(f) {
			return fallback
		}
		n, err := strconv.Atoi(f[at])
		if err != nil {
			return fallback
		}
		return n
	}
	switch {
	case line == "restart":
		b.stop()
		b.start()
	case line == "restart with new rules":
		b.stop()
		b.policy = b.rules(b.newRules)
		b.start()
	case line == "stop":
		b.stop()
	case line == "start":
		b.start()
	case line == "crash":
		b.crash()
	case line == "refuse cards":
		b.room.refuseCards()
	case line == "wait for a status line":
		b.until("there is a status line", func() bool { return strings.Contains(b.room.shown(), "status: ") })
	case strings.HasPrefix(line, "wait until people see "):
		text := strings.TrimPrefix(line, "wait until people see ")
		b.until("people see "+text, func() bool { return strings.Contains(b.room.shown(), text) })
	case len(f) == 3 && f[1] == "presses" && f[2] == "Stop":
		b.pressStop(f[0], thread)
	case strings.HasPrefix(line, "let hold go on"):
		b.ledger.letGo()
	case strings.HasPrefix(line, "wait for "):
		b.until(f[2]+" runs", func() bool { return b.ledger.count(f[2]) >= number(3, 1) })
	case strings.HasPrefix(line, "wait "):
		b.until("a turn is "+f[1], func() bool { return b.lastTurn() == f[1] })
	case line == "settle":
		b.settle()
	case strings.HasPrefix(line, "forge result of "):
		b.exec(`UPDATE tool_calls SET output = 'forged' WHERE tool = $1`, f[3])
	case len(f) >= 4 && (f[1] == "gives" || f[1] == "answers"):
		b.settle()
		verb := agent.VerbInput
		if f[1] == "answers" {
			verb = agent.VerbReplace
		}
		b.act(f[0], agent.Click{Approval: b.room.cardID(t, number(2, 1)), Verb: verb, Value: strings.Join(f[3:], " ")})
	case len(f) >= 3 && f[1] == "clicks":
		b.settle()
		id := b.room.cardID(t, number(3, 1))
		if f[len(f)-1] == "twice" {
			b.twice(func() { b.click(f[0], agent.Verb(f[2]), id) })
		} else {
			b.click(f[0], agent.Verb(f[2]), id)
		}
	case isMessage:
		b.sent++
		b.room.add(who + ": " + text)
		b.receive(thread, who, fmt.Sprint("m", b.sent), text)
	default:
		t.Fatalf("step is not understood: %q", line)
	}
}

func (b *bench) receive(place agent.Place, who, key, text string) {
	b.t.Helper()
	_, err := b.engine.Receive(context.Background(), inbound(place, who, key, text))
	if err != nil {
		b.t.Fatal(err)
	}
}

func inbound(place agent.Place, who, key, text string) agent.Inbound {
	return agent.Inbound{Key: key, Text: text, Origin: agent.Origin{
		Place: place, Author: agent.Actor{Channel: "slack", Workspace: "T1", User: who}, AuthorName: who, Ref: key}}
}

func (b *bench) click(who string, verb agent.Verb, id agent.ApprovalID) {
	b.act(who, agent.Click{Approval: id, Verb: verb})
}

// pressStop presses the button of the latest turn's status line, at a place.
func (b *bench) pressStop(who string, at agent.Place) {
	turns := b.turns()
	m := inbound(at, who, "stop "+who, "stop")
	m.Turn = turns[len(turns)-1].ID
	r, err := b.engine.Receive(context.Background(), m)
	if err != nil {
		b.t.Fatal(err)
	}
	if !r.Stopped {
		b.room.whisper(who, "there is nothing to stop")
	}
}

func (b *bench) act(who string, c agent.Click) {
	c.Backchannel, c.Actor, c.ActorName = "slack", agent.Actor{Channel: "slack", Workspace: "T1", User: who}, who
	v, err := b.engine.Decide(context.Background(), c)
	if err != nil {
		b.t.Error(err)
	}
	if !v.Accepted {
		b.room.whisper(who, v.Text)
	}
}

func (b *bench) twice(f func()) {
	var wg sync.WaitGroup
	wg.Go(f)
	wg.Go(f)
	wg.Wait()
}

// settle waits until nothing more happens by itself.
func (b *bench) settle() {
	b.t.Helper()
	b.until("nothing is going on", func() bool {
		if b.cancel == nil {
			return true
		}
		busy, _, err := b.db.Going(context.Background(), thread)
		if err != nil {
			b.t.Fatal(err)
		}
		return !busy
	})
}

// lastTurn is the status of the turn begun latest.
func (b *bench) lastTurn() string {
	sessions, err := b.db.Sessions(context.Background(), 1)
	if err != nil {
		b.t.Fatal(err)
	}
	if len(sessions) == 0 {
		return ""
	}
	return sessions[0].Last
}

// until polls the database, which is the authority, until it says so.
func (b *bench) until(what string, ok func() bool) {
	b.t.Helper()
	deadline := time.Now().Add(30 * time.Second)
	for !ok() {
		if time.Now().After(deadline) {
			b.t.Fatalf("waited in vain until %s; people see\n%s", what, b.room.shown())
		}
		time.Sleep(5 * time.Millisecond)
	}
}

func (b *bench) auditText() string {
	var out strings.Builder
	for _, r := range b.auditRows() {
		fmt.Fprintf(&out, "%s %s %s %s\n", r.Kind, orDash(r.Decision), orDash(r.Source), orDash(r.Actor))
	}
	return out.String()
}

func (b *bench) auditArgs() string {
	var out strings.Builder
	for _, r := range b.auditRows() {
		fmt.Fprintf(&out, "%s %s\n", r.Kind, orDash(r.Args))
	}
	return out.String()
}

func (b *bench) auditReasons() string {
	var out strings.Builder
	for _, r := range b.auditRows() {
		fmt.Fprintf(&out, "%s %s\n", r.Kind, stableText(orDash(r.Reason)))
	}
	return out.String()
}

func orDash(s *string) string {
	if s == nil {
		return "-"
	}
	return *s
}

func (b *bench) eventText() string {
	var out strings.Builder
	for _, turn := range b.turns() {
		fmt.Fprintf(&out, "turn %s\n", turn.Status)
		for _, e := range turn.Events {
			fmt.Fprintf(&out, "  %s", e.Type)
			for _, k := range []string{"tool_call_count", "tool_name", "action", "approved", "decision", "success", "outcome"} {
				if v, ok := e.Fields[k]; ok {
					fmt.Fprintf(&out, " %s=%s", k, v)
				}
			}
			out.WriteByte('\n')
		}
	}
	return out.String()
}

// timelineText prints every field of every event. Ids are replaced by words that
// say which is which, measured times by N.
func (b *bench) timelineText() string {
	var out strings.Builder
	ids := map[string]string{}
	for _, turn := range b.turns() {
		fmt.Fprintf(&out, "turn %s\n", turn.Status)
		for _, e := range turn.Events {
			fmt.Fprintf(&out, "  %s\n", e.Type)
			for _, k := range slices.Sorted(maps.Keys(e.Fields)) {
				v := strings.ReplaceAll(e.Fields[k], "\n", "⏎")
				switch k {
				case "approval_id":
					if ids[v] == "" {
						ids[v] = fmt.Sprint("approval ", len(ids)+1)
					}
					v = ids[v]
				case "latency_ms", "waited_ms":
					if _, err := strconv.ParseUint(v, 10, 64); err != nil {
						b.t.Errorf("%s of %s is %q", k, e.Type, v)
					}
					v = "N"
				default:
					v = stableText(v)
				}
				fmt.Fprintf(&out, "    %s\n", strings.TrimSuffix(k+" "+v, " "))
			}
		}
	}
	return out.String()
}

func (b *bench) callText() string {
	var out strings.Builder
	for _, turn := range b.turns() {
		fmt.Fprintf(&out, "turn %s\n", turn.Status)
		var calls []string
		for _, e := range turn.Events {
			if e.Type == agent.EventToolCompleted {
				calls = append(calls, fmt.Sprintf("  %s %s %s\n", stableText(e.Fields["tool_call_id"]), e.Fields["tool_name"], e.Fields["outcome"]))
			}
		}
		slices.Sort(calls) // those that ran together end in any order
		out.WriteString(strings.Join(calls, ""))
	}
	return out.String()
}

// lines are the lines of a section, without blank ones and remarks.
func lines(text string) []string {
	var out []string
	for _, l := range strings.Split(text, "\n") {
		if l = strings.TrimSpace(l); l != "" && !strings.HasPrefix(l, "#") {
			out = append(out, l)
		}
	}
	return out
}

// mortalStore is a database connection that can die: afterwards nothing is read
// or written through it any more.
type mortalStore struct {
	*store.DB
	dead atomic.Bool
	// Faults that are not death; nil is none.
	renew func(ids []agent.SessionID) ([]agent.SessionID, error)
	save  func(apply func() (agent.Saved, error)) (agent.Saved, error)
	// refuse says which commits the database does not take.
	refuse func(agent.Step) error
}

var errDead = errors.New("the process is dead")

func (s *mortalStore) Receive(ctx context.Context, m agent.Inbound) (agent.Receipt, error) {
	if s.dead.Load() {
		return agent.Receipt{}, errDead
	}
	return s.DB.Receive(ctx, m)
}

func (s *mortalStore) Claim(ctx context.Context, owner string, channels []agent.ChannelName) (*agent.Work, error) {
	if s.dead.Load() {
		return nil, errDead
	}
	return s.DB.Claim(ctx, owner, channels)
}

func (s *mortalStore) Renew(ctx context.Context, owner string, ids []agent.SessionID) (kept, stopped []agent.SessionID, err error) {
	if s.dead.Load() {
		return nil, nil, errDead
	}
	if s.renew != nil {
		kept, err = s.renew(ids)
		return kept, nil, err
	}
	return s.DB.Renew(ctx, owner, ids)
}

func (s *mortalStore) Save(ctx context.Context, l agent.Lease, step agent.Step) (agent.Saved, error) {
	if s.dead.Load() {
		return agent.Saved{}, errDead
	}
	if s.refuse != nil {
		if err := s.refuse(step); err != nil {
			return agent.Saved{}, err
		}
	}
	if s.save != nil {
		return s.save(func() (agent.Saved, error) { return s.DB.Save(ctx, l, step) })
	}
	return s.DB.Save(ctx, l, step)
}

func (s *mortalStore) DueDeliveries(ctx context.Context, owner string, channels []agent.ChannelName, limit int) ([]agent.Delivery, error) {
	if s.dead.Load() {
		return nil, errDead
	}
	return s.DB.DueDeliveries(ctx, owner, channels, limit)
}

func (s *mortalStore) Delivered(ctx context.Context, d agent.Delivery, a agent.Attempt) error {
	if s.dead.Load() {
		return errDead
	}
	return s.DB.Delivered(ctx, d, a)
}

func (s *mortalStore) Decide(ctx context.Context, id agent.ApprovalID, rule func(agent.Approval, time.Time) approval.Ruling) (approval.Ruling, error) {
	if s.dead.Load() {
		return approval.Ruling{}, errDead
	}
	return s.DB.Decide(ctx, id, rule)
}

func (b *bench) auditRows() []audit.Row {
	rows, err := b.db.AuditRows(context.Background(), store.AuditQuery{Limit: 100_000})
	if err != nil {
		b.t.Fatal(err)
	}
	return rows
}

func (b *bench) turns() []store.TurnInfo {
	sessions, err := b.db.Sessions(context.Background(), 1000)
	if err != nil {
		b.t.Fatal(err)
	}
	var out []store.TurnInfo
	for _, s := range sessions {
		turns, err := b.db.Turns(context.Background(), s.ID)
		if err != nil {
			b.t.Fatal(err)
		}
		out = append(out, turns...)
	}
	return out
}
