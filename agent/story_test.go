package agent_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/tools/txtar"

	"github.com/clawbot/clawbot/agent"
	"github.com/clawbot/clawbot/approval"
	"github.com/clawbot/clawbot/migrations"
	"github.com/clawbot/clawbot/store"
	"github.com/clawbot/clawbot/store/pgtest"
)

// TestStories plays every file of testdata/stories: real Postgres, the real
// engine, gate and desk; a model that says what the story says it says, a tool
// that writes a ledger, and a channel that shows what a person sees.
//
// Sections of a story:
//
//	rules    the policy's rules, one a line: ACTION TOOL [by USER…] [quorum N] [for DURATION]
//	model    one answer a line: say TEXT | call TOOL ARGS [; TOOL ARGS…] | fail auth|unavailable|refused
//	script   what happens, one step a line: USER: TEXT | USER clicks VERB [N] | restart | crash | wait STATUS | refuse cards
//	thread   what people see
//	ledger   what ran
//	history  what the model saw in its last request
//	audit    kind decision source actor
//	events   type outcome
//
// Run with -update to write the sections from what happened.
func TestStories(t *testing.T) {
	files, err := filepath.Glob("testdata/stories/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatalf("no stories: %v", err)
	}
	for _, f := range files {
		t.Run(strings.TrimSuffix(filepath.Base(f), ".txtar"), func(t *testing.T) {
			t.Parallel()
			playStory(t, f)
		})
	}
}

func playStory(t *testing.T, file string) {
	ar, err := txtar.ParseFile(file)
	if err != nil {
		t.Fatal(err)
	}
	sections := map[string]string{}
	for _, f := range ar.Files {
		sections[f.Name] = string(f.Data)
	}
	b := newBench(t)
	b.policy = b.rules(sections["rules"])
	b.model.script(t, sections["model"])
	b.start()
	b.play(sections["script"])
	b.stop()
	for i, f := range ar.Files {
		var got string
		switch f.Name {
		case "thread":
			got = b.room.shown()
		case "ledger":
			got = b.ledger.text()
		case "history":
			got = b.model.lastRequest()
		case "audit":
			got = b.auditText()
		case "events":
			got = b.eventText()
		default:
			continue
		}
		if os.Getenv("UPDATE_STORIES") != "" {
			ar.Files[i].Data = []byte(got)
			continue
		}
		if diff := cmp.Diff(string(f.Data), got); diff != "" {
			t.Errorf("%s: -want +got\n%s", f.Name, diff)
		}
	}
	if os.Getenv("UPDATE_STORIES") != "" {
		if err := os.WriteFile(file, txtar.Format(ar), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if v, err := b.db.VerifyAudit(context.Background()); err != nil || v.Bad != nil {
		t.Errorf("audit does not verify: %v %v", v.Bad, err)
	}
}

// bench is a clawbot in one process without a platform.
type bench struct {
	t      *testing.T
	url    string
	db     *store.DB
	policy *approval.Policy
	model  *scriptedModel
	room   *room
	ledger *ledger
	config agent.Config

	engine *agent.Engine
	cancel context.CancelFunc
	done   chan struct{}
	sent   int
	runs   int
}

func newBench(t *testing.T) *bench {
	t.Helper()
	url := pgtest.Database(t, "clawbot-"+pgtest.Hash(migrations.FS), func(ctx context.Context, url string) error {
		return store.Migrate(ctx, url, url)
	})
	b := &bench{t: t, url: url, model: &scriptedModel{}, room: newRoom(), ledger: &ledger{}, config: agent.DefaultConfig()}
	b.open()
	t.Cleanup(func() { b.stop(); b.db.Close() })
	return b
}

func (b *bench) open() {
	db, err := store.Open(context.Background(), store.Config{URL: b.url, MaxConns: 4, LeaseFor: time.Second})
	if err != nil {
		b.t.Fatal(err)
	}
	b.db = db
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
	log := slog.New(slog.NewTextHandler(b.t.Output(), nil))
	desk := approval.NewDesk(b.db, map[agent.ChannelName]approval.Directory{"slack": b.room}, mask, bell, log)
	b.engine = agent.NewEngine(agent.Parts{
		Config: b.config, Store: b.db, Model: b.model, Gate: b.policy, Desk: desk, Toolbox: b.ledger,
		Channels: []agent.Channel{b.room}, Mask: mask, Bell: bell, Log: log,
		Owner: fmt.Sprintf("run-%d", b.runs), Lease: time.Second, Grace: 2 * time.Second,
	})
	ctx, cancel := context.WithCancel(context.Background())
	b.cancel, b.done = cancel, make(chan struct{})
	go func() {
		defer close(b.done)
		var wg sync.WaitGroup
		wg.Go(func() { b.engine.Run(ctx) })
		wg.Go(func() { desk.Run(ctx) })
		wg.Wait()
	}()
}

func (b *bench) stop() {
	if b.cancel != nil {
		b.cancel()
		<-b.done
		b.cancel = nil
	}
}

func (b *bench) play(script string) {
	for _, line := range lines(script) {
		b.step(line)
	}
	b.settle()
}

func (b *bench) step(line string) {
	t := b.t
	who, text, isMessage := strings.Cut(line, ": ")
	f := strings.Fields(line)
	switch {
	case line == "restart":
		b.stop()
		b.start()
	case line == "stop":
		b.stop()
	case line == "start":
		b.start()
	case line == "refuse cards":
		b.room.refuseCards()
	case strings.HasPrefix(line, "wait "):
		b.waitTurn(f[1])
	case f[0] == "settle":
		b.settle()
	case len(f) >= 3 && f[1] == "clicks":
		b.settle()
		n := 1
		if len(f) > 3 {
			n = int(f[3][0] - '0')
		}
		id := b.room.cardID(t, n)
		v, err := b.engine.Decide(t.Context(), agent.Click{
			Approval: id, Verb: agent.Verb(f[2]), Backchannel: "slack",
			Actor: agent.Actor{Channel: "slack", Workspace: "T1", User: f[0]}, ActorName: f[0]})
		if err != nil {
			t.Fatal(err)
		}
		if !v.Accepted {
			b.room.whisper(f[0], v.Text)
		}
	case isMessage:
		b.sent++
		b.room.add(who + ": " + text)
		_, err := b.engine.Receive(t.Context(), agent.Inbound{Key: fmt.Sprint("m", b.sent), Text: text, Origin: agent.Origin{
			Place:  agent.Place{Channel: "slack", Workspace: "T1", Conversation: "C1", Thread: "1.0"},
			Author: agent.Actor{Channel: "slack", Workspace: "T1", User: who}, AuthorName: who, Ref: fmt.Sprint(b.sent)}})
		if err != nil {
			t.Fatal(err)
		}
	default:
		t.Fatalf("step is not understood: %q", line)
	}
}

// settle waits until nothing more happens by itself.
func (b *bench) settle() {
	b.t.Helper()
	b.until("nothing is going on", func() bool {
		if b.cancel == nil {
			return true
		}
		busy, _, err := b.db.Going(context.Background(), agent.Place{Channel: "slack", Workspace: "T1", Conversation: "C1", Thread: "1.0"})
		if err != nil {
			b.t.Fatal(err)
		}
		return !busy
	})
}

func (b *bench) waitTurn(status string) {
	b.t.Helper()
	b.until("a turn is "+status, func() bool {
		sessions, err := b.db.Sessions(context.Background(), 1)
		if err != nil {
			b.t.Fatal(err)
		}
		return len(sessions) == 1 && sessions[0].Last == status
	})
}

// until polls the database, which is the authority, until it says so.
func (b *bench) until(what string, ok func() bool) {
	b.t.Helper()
	deadline := time.Now().Add(20 * time.Second)
	for !ok() {
		if time.Now().After(deadline) {
			b.t.Fatalf("waited in vain until %s; people see\n%s", what, b.room.shown())
		}
		time.Sleep(5 * time.Millisecond)
	}
}

func (b *bench) auditText() string {
	rows, err := b.db.AuditRows(context.Background(), store.AuditQuery{Limit: 1000})
	if err != nil {
		b.t.Fatal(err)
	}
	var out strings.Builder
	for _, r := range rows {
		fmt.Fprintf(&out, "%s %s %s %s\n", r.Kind, text(r.Decision), text(r.Source), text(r.Actor))
	}
	return out.String()
}

func (b *bench) eventText() string {
	sessions, err := b.db.Sessions(context.Background(), 10)
	if err != nil {
		b.t.Fatal(err)
	}
	var out strings.Builder
	for _, s := range sessions {
		turns, err := b.db.Turns(context.Background(), s.ID)
		if err != nil {
			b.t.Fatal(err)
		}
		for _, turn := range turns {
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
	}
	return out.String()
}

func text(s *string) string {
	if s == nil {
		return "-"
	}
	return *s
}

func lines(text string) []string {
	var out []string
	for _, l := range strings.Split(text, "\n") {
		if l = strings.TrimSpace(l); l != "" && !strings.HasPrefix(l, "#") {
			out = append(out, l)
		}
	}
	return out
}

// scriptedModel answers as a story says.
type scriptedModel struct {
	mu       sync.Mutex
	answers  []func() (agent.ModelReply, error)
	requests []agent.ModelRequest
	ids      int
}

func (m *scriptedModel) Name() string { return "scripted" }

func (m *scriptedModel) script(t *testing.T, text string) {
	for _, line := range lines(text) {
		verb, rest, _ := strings.Cut(line, " ")
		switch verb {
		case "say":
			m.answers = append(m.answers, func() (agent.ModelReply, error) { return agent.ModelReply{Text: rest, Stop: agent.StopEnd}, nil })
		case "blank":
			m.answers = append(m.answers, func() (agent.ModelReply, error) { return agent.ModelReply{Text: " ", Stop: agent.StopEnd}, nil })
		case "fail":
			err := map[string]error{"auth": agent.ErrModelAuth, "unavailable": agent.ErrModelUnavailable, "refused": agent.ErrModelRefused}[rest]
			m.answers = append(m.answers, func() (agent.ModelReply, error) { return agent.ModelReply{}, err })
		case "call":
			m.answers = append(m.answers, func() (agent.ModelReply, error) {
				var r agent.ModelReply
				for _, c := range strings.Split(rest, " ; ") {
					tool, args, _ := strings.Cut(c, " ")
					m.ids++
					r.Calls = append(r.Calls, agent.ProposedCall{ID: agent.CallID(fmt.Sprint("c", m.ids)), Tool: tool, Arguments: args})
				}
				return r, nil
			})
		default:
			t.Fatalf("answer is not understood: %q", line)
		}
	}
}

func (m *scriptedModel) Complete(_ context.Context, req agent.ModelRequest) (agent.ModelReply, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	req.Messages = slices.Clone(req.Messages)
	m.requests = append(m.requests, req)
	if len(m.answers) == 0 {
		return agent.ModelReply{Text: "(the story has no more answers)", Stop: agent.StopEnd}, nil
	}
	next := m.answers[0]
	m.answers = m.answers[1:]
	return next()
}

func (m *scriptedModel) lastRequest() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.requests) == 0 {
		return ""
	}
	var out strings.Builder
	for _, msg := range m.requests[len(m.requests)-1].Messages {
		switch {
		case msg.Role == agent.RoleTool:
			fmt.Fprintf(&out, "tool %s: %s\n", msg.CallID, msg.Text)
		case len(msg.Calls) > 0:
			for _, c := range msg.Calls {
				fmt.Fprintf(&out, "assistant calls %s %s %s\n", c.ID, c.Tool, c.Arguments)
			}
		default:
			fmt.Fprintf(&out, "%s %s: %s\n", msg.Role, msg.AuthorName, msg.Text)
		}
	}
	return out.String()
}

// ledger is the toolbox of stories: its tools write down each execution.
type ledger struct {
	mu   sync.Mutex
	runs []string
	hold chan struct{} // a tool named hold waits for it
}

func (l *ledger) text() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	var out strings.Builder
	for _, r := range l.runs {
		out.WriteString(r + "\n")
	}
	return out.String()
}

func (l *ledger) Tools() []agent.Tool {
	note := func(name string, idempotent bool, f func(ctx context.Context, args map[string]any) agent.Result) agent.Tool {
		return agent.Tool{
			Name: name, Description: "for tests", Owner: "test", Idempotent: idempotent,
			Schema: json.RawMessage(`{"type":"object","properties":{"x":{}}}`),
			Run: func(ctx context.Context, inv agent.Invocation) agent.Result {
				l.mu.Lock()
				l.runs = append(l.runs, name+" "+string(inv.Args))
				l.mu.Unlock()
				var args map[string]any
				if err := json.Unmarshal(inv.Args, &args); err != nil {
					return agent.Failed(err.Error())
				}
				return f(ctx, args)
			},
		}
	}
	return []agent.Tool{
		note("note", false, func(_ context.Context, a map[string]any) agent.Result {
			return agent.Succeeded(fmt.Sprint("noted ", a["x"]))
		}),
		note("quiet", false, func(context.Context, map[string]any) agent.Result { return agent.Succeeded(" \n") }),
		note("broken", false, func(context.Context, map[string]any) agent.Result { return agent.Failed("it did not work") }),
		note("panics", false, func(context.Context, map[string]any) agent.Result { panic("oh") }),
		note("big", false, func(context.Context, map[string]any) agent.Result {
			return agent.Succeeded(strings.Repeat("é\x00\xff", 100_000))
		}),
		note("hold", false, func(ctx context.Context, _ map[string]any) agent.Result {
			select {
			case <-ctx.Done():
				return agent.Failed("stopped")
			case <-l.hold:
				return agent.Succeeded("held")
			}
		}),
		note("again", true, func(ctx context.Context, _ map[string]any) agent.Result {
			select {
			case <-ctx.Done():
				return agent.Failed("stopped")
			case <-l.hold:
				return agent.Succeeded("done again")
			}
		}),
	}
}

func (l *ledger) Check(string, []byte) error { return nil }
func (l *ledger) Fill(_ agent.Tool, args []byte, _ agent.Origin) ([]byte, []string, error) {
	return args, nil, nil
}
func (l *ledger) Definition(t agent.Tool) string { return agent.SHA256(t.Name) }

// room is a channel that shows what a person sees, and the directory of its people.
type room struct {
	mu      sync.Mutex
	entries []string
	index   map[string]int
	cards   []agent.ApprovalID
	refuse  bool
}

func newRoom() *room { return &room{index: map[string]int{}} }

func (r *room) Name() agent.ChannelName { return "slack" }

func (r *room) Run(ctx context.Context, _ agent.Inlet) error { <-ctx.Done(); return nil }

func (r *room) Split(text string) []string {
	if strings.TrimSpace(text) == "" {
		return nil
	}
	return []string{text}
}

func (r *room) Post(_ context.Context, _ agent.Place, p agent.Post) (string, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if p.Card != nil && r.refuse {
		return "", &agent.SendError{Permanent: true, Reason: "invalid_blocks"}
	}
	ref := fmt.Sprint("r", len(r.entries))
	r.index[ref] = len(r.entries)
	if p.Card != nil {
		r.cards = append(r.cards, p.Card.Approval)
	}
	r.entries = append(r.entries, draw(p))
	return ref, nil
}

func (r *room) Edit(_ context.Context, _ agent.Place, ref string, p agent.Post) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.entries[r.index[ref]] = draw(p)
	return nil
}

// draw renders a post without what differs from run to run.
func draw(p agent.Post) string {
	if p.Card == nil {
		return "clawbot: " + stableText(p.Text)
	}
	c := p.Card
	var b strings.Builder
	fmt.Fprintf(&b, "card: %s", c.Title)
	for _, f := range c.Fields {
		fmt.Fprintf(&b, " | %s = %s", f.Name, f.Value)
	}
	for _, f := range c.Facts {
		if f.Name == "Approvals" || f.Name == "Masked" {
			fmt.Fprintf(&b, " | %s: %s", f.Name, f.Value)
		}
	}
	if c.Outcome != "" {
		b.WriteString(" | " + stableText(c.Outcome))
	}
	for _, button := range c.Buttons {
		fmt.Fprintf(&b, " [%s]", button.Label)
	}
	return b.String()
}

func (r *room) add(line string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.entries = append(r.entries, line)
}

func (r *room) whisper(to, line string) { r.add("(to " + to + ") " + stableText(line)) }

func (r *room) refuseCards() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.refuse = true
}

func (r *room) cardID(t *testing.T, n int) agent.ApprovalID {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.cards) < n {
		t.Fatalf("there is no card %d", n)
	}
	return r.cards[n-1]
}

func (r *room) shown() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return strings.Join(r.entries, "\n") + "\n"
}

// Person implements approval.Directory: names say what people are.
func (r *room) Person(_ context.Context, a agent.Actor, _ []string) (agent.Person, error) {
	if a.User == "unreachable" {
		return agent.Person{}, errors.New("users.info failed")
	}
	return agent.Person{Actor: a, Name: a.User, Bot: a.User == "robot", Guest: a.User == "guest",
		External: a.User == "stranger", Inactive: a.User == "gone"}, nil
}

// stableText replaces times, durations and ids.
func stableText(s string) string {
	var out []string
	scan := bufio.NewScanner(strings.NewReader(s))
	scan.Buffer(nil, 1<<22)
	for scan.Scan() {
		words := strings.Split(scan.Text(), " ")
		for i, w := range words {
			bare := strings.Trim(w, "().,:")
			if _, err := time.Parse("15:04:05", bare); err == nil {
				words[i] = strings.Replace(w, bare, "TIME", 1)
			} else if _, err := time.Parse("15:04", bare); err == nil {
				words[i] = strings.Replace(w, bare, "TIME", 1)
			} else if _, err := time.Parse("2006-01-02", bare); err == nil {
				words[i] = strings.Replace(w, bare, "DATE", 1)
			} else if _, err := time.ParseDuration(bare); err == nil && bare != "0" && strings.HasSuffix(bare, "s") {
				words[i] = strings.Replace(w, bare, "DURATION", 1)
			} else if strings.HasPrefix(bare, "turn_") || strings.HasPrefix(bare, "ap_") {
				words[i] = strings.Replace(w, bare, "ID", 1)
			}
		}
		out = append(out, strings.Join(words, " "))
	}
	return strings.Join(out, "\n")
}
