package agent_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/clawbot/clawbot/agent"
	"github.com/clawbot/clawbot/tools"
)

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
		var answer func() (agent.ModelReply, error)
		switch verb {
		case "say":
			answer = func() (agent.ModelReply, error) { return agent.ModelReply{Text: rest, Stop: agent.StopEnd}, nil }
		case "blank":
			answer = func() (agent.ModelReply, error) { return agent.ModelReply{Text: " \n", Stop: agent.StopEnd}, nil }
		case "withheld":
			answer = func() (agent.ModelReply, error) { return agent.ModelReply{Stop: agent.StopFilter}, nil }
		case "fail":
			err := map[string]error{"auth": agent.ErrModelAuth, "unavailable": agent.ErrModelUnavailable, "refused": agent.ErrModelRefused, "strangely": errors.New("no known kind of error")}[rest]
			answer = func() (agent.ModelReply, error) { return agent.ModelReply{}, err }
		case "call":
			answer = func() (agent.ModelReply, error) {
				return agent.ModelReply{Calls: m.calls(rest), Stop: agent.StopTools}, nil
			}
		default:
			t.Fatalf("answer is not understood: %q", line)
		}
		m.answers = append(m.answers, answer)
	}
}

// calls reads TOOL[#ID] ARGS [; TOOL[#ID] ARGS…].
func (m *scriptedModel) calls(text string) []agent.ProposedCall {
	var out []agent.ProposedCall
	for _, c := range strings.Split(text, " ; ") {
		tool, args, _ := strings.Cut(c, " ")
		tool, id, given := strings.Cut(tool, "#")
		if !given {
			m.ids++
			id = fmt.Sprint("c", m.ids)
		}
		if args == "@deep" {
			args = `{"x":` + strings.Repeat("[", 100_000) + strings.Repeat("]", 100_000) + `}`
		}
		out = append(out, agent.ProposedCall{ID: agent.CallID(id), Tool: tool, Arguments: args})
	}
	return out
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
			fmt.Fprintf(&out, "tool %s: %s\n", stableText(string(msg.CallID)), abridged(stableText(msg.Text)))
		case len(msg.Calls) > 0:
			for _, c := range msg.Calls {
				fmt.Fprintf(&out, "assistant calls %s %s %s\n", stableText(string(c.ID)), c.Tool, c.Arguments)
			}
		case msg.Role == agent.RoleAssistant:
			fmt.Fprintf(&out, "assistant: %s\n", msg.Text)
		default:
			fmt.Fprintf(&out, "%s %s: %s\n", msg.Role, msg.AuthorName, msg.Text)
		}
	}
	return out.String()
}

// abridged shortens a text that repeats itself for a thousand characters.
func abridged(s string) string {
	r := []rune(s)
	if len(r) <= 600 {
		return s
	}
	return fmt.Sprintf("%s ⟨…%d characters⟩ %s", string(r[:12]), len(r), string(r[len(r)-12:]))
}

func (m *scriptedModel) requestSizes() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	var out strings.Builder
	for _, r := range m.requests {
		fmt.Fprintf(&out, "%d messages, %d tools", len(r.Messages), len(r.Tools))
		if r.NoTools {
			out.WriteString(", barred")
		}
		out.WriteByte('\n')
	}
	return out.String()
}

// ledger is the toolbox of stories: its tools write down each execution.
type ledger struct {
	mu   sync.Mutex
	runs []run
	hold chan struct{} // the tools hold and again wait for it
	once sync.Once
	file string // where executions are written too

	watch    func(agent.Invocation) // is called while a tool runs
	revision string                 // of the tools' definitions
}

// run is one execution of a tool.
type run struct {
	tool, args string
	key        string // what must be the same when it runs again
	approved   bool
}

func newLedger() *ledger { return &ledger{hold: make(chan struct{})} }

func (l *ledger) letGo() { l.once.Do(func() { close(l.hold) }) }

func (l *ledger) text() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	var out strings.Builder
	for _, r := range l.runs {
		fmt.Fprintf(&out, "%s %s\n", r.tool, r.args)
	}
	return out.String()
}

// note writes down what was no execution.
func (l *ledger) note(tool, text string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.runs = append(l.runs, run{tool: tool, args: text})
}

func (l *ledger) count(tool string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := 0
	for _, r := range l.runs {
		if r.tool == tool {
			n++
		}
	}
	return n
}

func (l *ledger) Tools() []agent.Tool {
	tool := func(name string, f func(ctx context.Context, args map[string]any) agent.Result) agent.Tool {
		return agent.Tool{
			Name: name, Description: "for tests", Owner: "test",
			Schema: json.RawMessage(`{"type":"object","properties":{"x":{}}}`),
			Run: func(ctx context.Context, inv agent.Invocation) agent.Result {
				l.mu.Lock()
				r := run{name, string(inv.Args), fmt.Sprint(inv.Session, inv.Turn, inv.Call), inv.Approved}
				l.runs = append(l.runs, r)
				l.mu.Unlock()
				if l.watch != nil {
					l.watch(inv)
				}
				if l.file != "" {
					if err := os.WriteFile(l.file, []byte(r.key+"\n"), 0o600); err != nil {
						return agent.Failed(err.Error())
					}
				}
				var args map[string]any
				if err := json.Unmarshal(inv.Args, &args); err != nil {
					return agent.Failed(err.Error())
				}
				return f(ctx, args)
			},
		}
	}
	wait := func(ctx context.Context, _ map[string]any) agent.Result {
		select {
		case <-ctx.Done():
			return agent.Failed("stopped")
		case <-l.hold:
			return agent.Succeeded("went on")
		}
	}
	again := tool("again", wait)
	again.Idempotent = true
	return []agent.Tool{
		tool("note", func(_ context.Context, a map[string]any) agent.Result {
			return agent.Succeeded(fmt.Sprint("noted ", a["x"]))
		}),
		transfer(tool("transfer", func(_ context.Context, a map[string]any) agent.Result {
			return agent.Succeeded(fmt.Sprint("sent ", a["amount"], " with code ", a["code"]))
		})),
		tool("gated", func(context.Context, map[string]any) agent.Result { return agent.Succeeded("done") }),
		tool("forbidden", func(context.Context, map[string]any) agent.Result { return agent.Succeeded("done") }),
		tool("quiet", func(context.Context, map[string]any) agent.Result { return agent.Succeeded(" \n") }),
		tool("broken", func(context.Context, map[string]any) agent.Result { return agent.Failed("it did not work") }),
		tool("panics", func(context.Context, map[string]any) agent.Result { panic("oh") }),
		tool("big", func(context.Context, map[string]any) agent.Result {
			return agent.Succeeded(strings.Repeat("é\x00\xff", 400_000))
		}),
		tool("hold", wait), // waits, and must not run twice
		again,              // waits, and may run twice
		tool("deaf", func(context.Context, map[string]any) agent.Result { // hears nobody
			<-l.hold
			return agent.Succeeded("went on")
		}),
	}
}

// transfer wants a code that no model knows.
func transfer(t agent.Tool) agent.Tool {
	t.Schema = json.RawMessage(`{"type":"object","required":["amount","code"],"additionalProperties":false,
		"properties":{"amount":{"type":"integer"},"code":{"type":"string","pattern":"^[0-9]{6}$"}}}`)
	return t
}

// Check is that of the program: the schemas of stories are real.
func (l *ledger) Check(tool string, args []byte, later string) error {
	box, err := tools.NewToolbox(l.Tools())
	if err != nil {
		return err
	}
	return box.Check(tool, args, later)
}

func (l *ledger) Fill(_ agent.Tool, args []byte, _ agent.Origin) ([]byte, []string, error) {
	return args, nil, nil
}
func (l *ledger) Definition(t agent.Tool) string { return agent.SHA256(t.Name + l.revision) }

// room is a channel that shows what a person sees, and the directory of its people.
type room struct {
	mu      sync.Mutex
	entries []string
	index   map[string]int
	cards   []agent.ApprovalID
	open    map[agent.ApprovalID]bool // cards with buttons
	refuse  bool
	busy    int // so many posts fail for the moment
	places  map[agent.Place]string
}

func newRoom() *room {
	return &room{index: map[string]int{}, open: map[agent.ApprovalID]bool{}, places: map[agent.Place]string{}}
}

func (r *room) Name() agent.ChannelName { return "slack" }

func (r *room) Run(ctx context.Context, _ agent.Inlet) error { <-ctx.Done(); return nil }

func (r *room) Split(text string) []string {
	if strings.TrimSpace(text) == "" {
		return nil
	}
	return []string{text}
}

func (r *room) Post(_ context.Context, to agent.Place, p agent.Post) (string, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if p.Card != nil && r.refuse {
		return "", &agent.SendError{Permanent: true, Reason: "invalid_blocks"}
	}
	if r.busy > 0 {
		r.busy--
		return "", &agent.SendError{Reason: "ratelimited", RetryAfter: 10 * time.Millisecond}
	}
	ref := fmt.Sprint("r", len(r.entries))
	r.index[ref] = len(r.entries)
	if p.Card != nil {
		r.cards = append(r.cards, p.Card.Approval)
		r.noteCard(p.Card)
	}
	r.entries = append(r.entries, draw(p))
	r.places[to] += draw(p) + "\n"
	return ref, nil
}

func (r *room) Edit(_ context.Context, to agent.Place, ref string, p agent.Post) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.places[to] += draw(p) + "\n"
	r.entries[r.index[ref]] = draw(p)
	if p.Card != nil {
		r.noteCard(p.Card)
	}
	return nil
}

func (r *room) noteCard(c *agent.Card) {
	if len(c.Buttons) > 0 {
		r.open[c.Approval] = true
	} else {
		delete(r.open, c.Approval)
	}
}

// draw renders a post without what differs from run to run.
func draw(p agent.Post) string {
	if p.Status != nil {
		text := "status: " + p.Status.Title
		for _, l := range p.Status.Lines {
			text += " | " + stableText(l)
		}
		if p.Status.Open {
			text += " [Stop]"
		}
		return text
	}
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

func (r *room) setBusy(posts int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.busy = posts
}

func (r *room) cardCount() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.cards)
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

// shownAt is all that was ever shown at one place.
func (r *room) shownAt(p agent.Place) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.places[p]
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

// stableText replaces times, durations and ids, which differ from run to run.
func stableText(s string) string {
	all := strings.Split(s, "\n")
	for n, line := range all {
		words := strings.Split(line, " ")
		for i, w := range words {
			bare := strings.Trim(w, "().,:;")
			words[i] = strings.Replace(w, bare, stableWord(bare), 1)
		}
		all[n] = strings.Join(words, " ")
	}
	return strings.Join(all, "\n")
}

var anyID = regexp.MustCompile(`\b(turn|ap|call|grt)_[0-9a-z]{26}\b`)

func stableWord(w string) string {
	for layout, name := range map[string]string{"15:04:05": "TIME", "15:04": "TIME", "2006-01-02": "DATE"} {
		if _, err := time.Parse(layout, w); err == nil {
			return name
		}
	}
	if _, err := time.ParseDuration(w); err == nil && strings.HasSuffix(w, "s") {
		return "DURATION"
	}
	return anyID.ReplaceAllString(w, "ID")
}
