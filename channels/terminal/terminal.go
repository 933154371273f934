// Package terminal is the channel of `clawbot chat`: a person at a terminal, or
// lines from a pipe, on the same engine as every other channel.
//
// In come lines; out go answers and cards as text. While a question is open the
// next line answers it. At end of input an open question counts as not approved,
// and Run returns once everything is said. It owns no table; whether there is
// more to come it asks the database, through Config.State.
package terminal

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/clawbot/clawbot/agent"
)

// Name of the channel.
const Name agent.ChannelName = "terminal"

// maxLine bounds one line of input, in bytes.
const maxLine = 4 << 20

// Config says who talks and where. All fields but Prompt are required.
type Config struct {
	In      io.Reader
	Out     io.Writer
	Session string // name of the conversation; a later chat with it goes on there
	User    string // who sits here; the actor is cli:USER
	Prompt  string // written when input is awaited; empty for a pipe
	Run     string // makes the keys of this run's lines differ from those of all others
	// State tells what is going on in a conversation.
	State func(ctx context.Context, p agent.Place) (State, error)
	// Close ends an approval that nobody will answer.
	Close func(ctx context.Context, id agent.ApprovalID, status agent.ApprovalStatus, reason string) error
}

// State is what is going on in a conversation.
type State struct {
	Busy bool               // something will be said without anybody's doing
	Open []agent.ApprovalID // questions that wait for an answer, oldest first
}

// Channel implements agent.Channel.
type Channel struct {
	cfg Config

	mu    sync.Mutex // guards Out and what follows
	shown int
	cards map[agent.ApprovalID]bool // those that this run has written
}

var _ agent.Channel = (*Channel)(nil)

// New returns a channel.
func New(cfg Config) *Channel { return &Channel{cfg: cfg, cards: map[agent.ApprovalID]bool{}} }

// Name implements agent.Channel.
func (c *Channel) Name() agent.ChannelName { return Name }

func (c *Channel) place() agent.Place {
	return agent.Place{Channel: Name, Workspace: "local", Conversation: c.cfg.Session}
}

// Split implements agent.Channel: a terminal has no limit.
func (c *Channel) Split(text string) []string {
	if strings.TrimSpace(text) == "" {
		return nil
	}
	return []string{text}
}

// Post implements agent.Channel.
func (c *Channel) Post(_ context.Context, to agent.Place, p agent.Post) (string, error) {
	if to != c.place() {
		return "", &agent.SendError{Permanent: true, Reason: "that conversation is not open in this terminal"}
	}
	if p.Status != nil {
		return "", &agent.SendError{Permanent: true, Reason: "a terminal cannot edit what it has written"}
	}
	if p.Card == nil {
		c.print("%s", agent.Visible(p.Text))
	} else {
		c.print("%s", cardText(*p.Card))
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if p.Card != nil {
		c.cards[p.Card.Approval] = true
	}
	c.shown++
	return fmt.Sprintf("%s.%d", c.cfg.Run, c.shown), nil
}

// Edit implements agent.Channel. What is written stays; what has changed about a
// card is a line of its own.
func (c *Channel) Edit(_ context.Context, to agent.Place, _ string, p agent.Post) error {
	if p.Card != nil && to == c.place() && p.Card.Outcome != "" {
		c.print("[%s] %s", p.Card.Title, p.Card.Outcome)
	}
	return nil
}

// Run implements agent.Channel: it ends at end of input, when ctx ends, or when
// the line "exit" comes.
//
// The goroutine that reads input can outlive Run, blocked in a read that nothing
// can interrupt; it ends with the process.
func (c *Channel) Run(ctx context.Context, in agent.Inlet) error {
	lines := make(chan string)
	var readErr error
	go func() {
		defer close(lines)
		scan := bufio.NewScanner(c.cfg.In)
		scan.Buffer(make([]byte, 0, 64*1024), maxLine)
		for scan.Scan() {
			select {
			case lines <- scan.Text():
			case <-ctx.Done():
				return
			}
		}
		readErr = scan.Err()
	}()
	for n := 1; ; n++ {
		state, err := c.settled(ctx)
		if err != nil {
			return ended(ctx, err)
		}
		asked, err := c.ask(ctx, in, state)
		if err != nil {
			return ended(ctx, err)
		}
		select {
		case <-ctx.Done():
			return nil
		case line, more := <-lines:
			if !more || strings.TrimSpace(line) == "exit" {
				err := c.finish(ctx)
				if errors.Is(readErr, bufio.ErrTooLong) {
					err = errors.Join(fmt.Errorf("a line is longer than %d bytes; it and what follows was not read", maxLine), err)
				}
				return ended(ctx, err)
			}
			if err := c.take(ctx, in, n, asked, agent.Clean(line)); err != nil {
				return ended(ctx, err)
			}
		}
	}
}

// ended hides the error that is only the end of ctx.
func ended(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// take handles one line. It is an answer to the question that the prompt named
// and to no other, whatever has been opened or closed since.
func (c *Channel) take(ctx context.Context, in agent.Inlet, n int, asked question, line string) error {
	text := strings.TrimSpace(line)
	state, err := c.cfg.State(ctx, c.place())
	if err != nil {
		return err
	}
	word, reason, _ := strings.Cut(text, " ")
	switch {
	case text == "":
		return nil
	case agent.IsStop(text):
	case asked.id != "" && slices.Contains(state.Open, asked.id):
		return c.answer(ctx, in, asked, strings.ToLower(word), strings.TrimSpace(reason), text)
	case len(state.Open) > 0:
		c.print("Another question is open by now and nothing was decided; please read it first.")
		return nil
	case asked.id != "" && isAnswer(strings.ToLower(word)):
		c.print("The question is closed by now and nothing was decided.")
		return nil
	case isAnswer(strings.ToLower(text)):
		c.print("No question is open.")
		return nil
	}
	_, err = in.Receive(ctx, agent.Inbound{
		Key:  fmt.Sprintf("%s.%d", c.cfg.Run, n),
		Text: line,
		Origin: agent.Origin{
			Place: c.place(), Author: agent.Actor{Channel: "cli", User: c.cfg.User}, AuthorName: c.cfg.User,
			Ref: fmt.Sprintf("%s.%d", c.cfg.Run, n)},
	})
	return err
}

func isAnswer(word string) bool {
	switch word {
	case "y", "yes", "n", "no", "d", "details", "a", "always", "e", "edit", "i", "instead":
		return true
	}
	return false
}

// question is what the next line answers; the zero question is none.
type question struct {
	id    agent.ApprovalID
	input *agent.CardInput // what is wanted besides a yes; nil: a yes will do
}

// answer applies a line to an open question: a word, or all of it where a value is
// wanted.
func (c *Channel) answer(ctx context.Context, in agent.Inlet, asked question, word, reason, line string) error {
	id := asked.id
	click := agent.Click{Approval: id, Actor: agent.Actor{Channel: "cli", User: c.cfg.User}, ActorName: c.cfg.User, Reason: reason, Backchannel: Name}
	switch word {
	case "n", "no":
		click.Verb = agent.VerbDeny
	case "i", "instead":
		click.Verb, click.Value, click.Reason = agent.VerbReplace, reason, ""
	case "d", "details":
		card, err := in.Card(ctx, id)
		if err != nil {
			return err
		}
		c.print("%s\n%s", card.Title, card.Full)
		return nil
	default:
		if asked.input != nil {
			click.Verb, click.Value, click.Reason = agent.VerbInput, strings.TrimPrefix(line, "= "), ""
			break
		}
		switch word {
		case "y", "yes":
			click.Verb = agent.VerbApprove
		case "a", "always":
			click.Verb = agent.VerbAlways
		case "e", "edit":
			c.print("%q is not available in this version. Nothing was decided; please answer y, n, a, i or d.", word)
			return nil
		default:
			c.print("A question is open and nothing was decided; please answer y (yes), n (no, a reason may follow), a (yes, and the same call in this conversation is not asked about again for a day), i (what the model gets instead follows) or d (details).")
			return nil
		}
	}
	v, err := in.Decide(ctx, click)
	if err != nil {
		c.print("Your answer could not be recorded, please try again.")
		return nil
	}
	if v.Text != "" {
		c.print("%s", v.Text)
	}
	return nil
}

// finish ends what is open and waits for what is still to be said.
func (c *Channel) finish(ctx context.Context) error {
	for {
		state, err := c.settled(ctx)
		if err != nil || len(state.Open) == 0 {
			return err
		}
		for _, id := range state.Open {
			c.print("The input ended with an open question; it counts as not approved.")
			if err := c.cfg.Close(ctx, id, agent.ApprovalCancelled, "the input ended"); err != nil {
				return err
			}
		}
	}
}

// settled waits until nothing more is said without anybody's doing.
func (c *Channel) settled(ctx context.Context) (State, error) {
	const poll = 20 * time.Millisecond
	for {
		s, err := c.cfg.State(ctx, c.place())
		if err != nil || !s.Busy {
			return s, err
		}
		select {
		case <-ctx.Done():
			return s, ctx.Err()
		case <-time.After(poll):
		}
	}
}

// ask writes the prompt and returns the question that the next line answers, after
// its card if an earlier run has asked it: nobody shall answer what they do not see.
// The prompt names the question: there may be several, and text above may look like
// a card.
func (c *Channel) ask(ctx context.Context, in agent.Inlet, s State) (asked question, err error) {
	what := ""
	if len(s.Open) > 0 {
		asked.id = s.Open[0]
		card, err := in.Card(ctx, asked.id)
		if err != nil {
			return question{}, err
		}
		asked.input = card.Input
		what = fmt.Sprintf("%s (%s)", card.Tool, asked.id)
		c.mu.Lock()
		seen := c.cards[asked.id]
		c.cards[asked.id] = true
		c.mu.Unlock()
		if !seen {
			c.print("%s", cardText(card))
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case asked.id != "":
		if in := asked.input; in != nil {
			fmt.Fprintf(c.cfg.Out, "%s: type the value of %s (= first, if it looks like an answer), or [n]o, [i]nstead, [d]etails: ", what, in.Arg)
		} else {
			fmt.Fprintf(c.cfg.Out, "Approve %s? [y]es, [n]o, [a]lways, [i]nstead, [d]etails: ", what)
		}
		if c.cfg.Prompt == "" {
			fmt.Fprintln(c.cfg.Out)
		}
	case c.cfg.Prompt != "":
		fmt.Fprint(c.cfg.Out, c.cfg.Prompt)
	}
	return asked, nil
}

func (c *Channel) print(format string, args ...any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	fmt.Fprintf(c.cfg.Out, format+"\n", args...)
}

// cardText draws a card for a terminal.
func cardText(card agent.Card) string {
	var b strings.Builder
	fmt.Fprintf(&b, "--- %s ---\n", card.Title)
	for _, f := range append(card.Fields, card.Facts...) {
		value := f.Value
		if strings.Contains(value, "\n") {
			value = "\n    " + strings.ReplaceAll(value, "\n", "\n    ")
		}
		fmt.Fprintf(&b, "  %s: %s\n", f.Name, value)
	}
	if card.Outcome != "" {
		fmt.Fprintf(&b, "  %s\n", card.Outcome)
	}
	return strings.TrimSuffix(b.String(), "\n")
}
