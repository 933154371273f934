package hooks

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/clawbot/clawbot/agent"
)

// maxAnswer bounds what a hook may say, in bytes: arguments may have 1 MiB.
const maxAnswer = 2 << 20

// New returns the hooks of a valid configuration.
func New(c Config) (before []agent.BeforeHook, after []agent.AfterHook) {
	for _, h := range c {
		r := runner{name: h.Name, timeout: DefaultTimeout}
		if h.Timeout != nil {
			r.timeout = *h.Timeout
		}
		for _, glob := range h.Tools {
			r.globs = append(r.globs, strings.ToLower(glob))
		}
		r.ask = command(h.Command)
		if h.URL != "" {
			r.ask = endpoint(h.URL)
		}
		if h.When == After {
			after = append(after, r)
		} else {
			before = append(before, r)
		}
	}
	return before, after
}

// runner is one hook.
type runner struct {
	name    string
	globs   []string // lower case; none is all
	timeout time.Duration
	// ask hands over a document and returns the answer. The error holds nothing of
	// either: both can hold secrets.
	ask func(ctx context.Context, doc []byte) ([]byte, error)
}

// question is what a hook is given.
type question struct {
	Hook    string            `json:"hook"`
	When    string            `json:"when"`
	Session agent.SessionID   `json:"session_id"`
	Turn    agent.TurnID      `json:"turn_id"`
	Call    agent.CallID      `json:"tool_call_id"`
	Tool    string            `json:"tool"`
	Args    json.RawMessage   `json:"args"`
	Origin  origin            `json:"origin"`
	Outcome *agent.CallStatus `json:"outcome,omitempty"` // after
	Output  *string           `json:"output,omitempty"`
	Error   *string           `json:"error,omitempty"`
}

type origin struct {
	Channel      agent.ChannelName `json:"channel"`
	Workspace    string            `json:"workspace"`
	Conversation string            `json:"conversation"`
	Thread       string            `json:"thread"`
	Author       string            `json:"author"`
}

// answer is what a hook before a call says.
type answer struct {
	Decision string          `json:"decision"` // continue, cancel or rewrite
	Reason   string          `json:"reason"`   // with cancel
	Tool     string          `json:"tool"`     // with rewrite
	Args     json.RawMessage `json:"args"`     // with rewrite
}

// Name implements agent.BeforeHook and agent.AfterHook.
func (r runner) Name() string { return r.name }

func (r runner) wants(tool string) bool {
	tool = strings.ToLower(tool)
	return len(r.globs) == 0 || slices.ContainsFunc(r.globs, func(g string) bool { return agent.MatchGlob(g, tool) })
}

func (r runner) question(when string, c agent.HookCall) question {
	return question{
		Hook: r.name, When: when, Session: c.Session, Turn: c.Turn, Call: c.Call, Tool: c.Tool, Args: json.RawMessage(c.Args),
		Origin: origin{c.Origin.Channel, c.Origin.Workspace, c.Origin.Conversation, c.Origin.Thread, c.Origin.Author.String()},
	}
}

// Before implements agent.BeforeHook.
func (r runner) Before(ctx context.Context, c agent.HookCall) (agent.HookReply, error) {
	if !r.wants(c.Tool) {
		return agent.HookReply{}, nil
	}
	text, err := r.put(ctx, r.question(Before, c))
	if err != nil {
		return agent.HookReply{}, err
	}
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.DisallowUnknownFields()
	var a answer
	if err := dec.Decode(&a); err != nil {
		return agent.HookReply{}, errors.New(`its answer is not understood; it must be JSON such as {"decision": "continue"}`)
	}
	if _, err := dec.Token(); err != io.EOF {
		return agent.HookReply{}, errors.New("its answer goes on behind the JSON")
	}
	switch a.Decision {
	case "continue":
		if a.Tool != "" || a.Args != nil {
			return agent.HookReply{}, errors.New(`it says continue and names a tool or arguments; it must say "rewrite" to change them`)
		}
		return agent.HookReply{}, nil
	case "cancel":
		return agent.HookReply{Cancel: true, Reason: a.Reason}, nil
	case "rewrite":
		if a.Tool == "" && a.Args == nil {
			return agent.HookReply{}, errors.New("it says rewrite and names neither a tool nor arguments")
		}
		return agent.HookReply{Tool: a.Tool, Args: string(a.Args)}, nil
	}
	return agent.HookReply{}, errors.New(`it says neither "continue" nor "cancel" nor "rewrite"`)
}

// After implements agent.AfterHook.
func (r runner) After(ctx context.Context, c agent.HookCall, result agent.HookResult) error {
	if !r.wants(c.Tool) {
		return nil
	}
	q := r.question(After, c)
	q.Outcome, q.Output, q.Error = &result.Status, &result.Output, &result.Error
	_, err := r.put(ctx, q)
	return err
}

// put asks within the hook's time.
func (r runner) put(ctx context.Context, q question) ([]byte, error) {
	doc, err := json.Marshal(q)
	if err != nil {
		return nil, errors.New("the call cannot be written as JSON")
	}
	ctx, cancel := context.WithTimeout(ctx, r.timeout)
	defer cancel()
	text, err := r.ask(ctx, doc)
	switch {
	case ctx.Err() == context.DeadlineExceeded:
		return nil, fmt.Errorf("it did not answer within %s", r.timeout)
	case ctx.Err() != nil:
		return nil, errors.New("the turn ended before it answered")
	case err != nil:
		return nil, err
	case len(text) > maxAnswer:
		return nil, fmt.Errorf("its answer is longer than %d bytes", maxAnswer)
	}
	return text, nil
}

// endpoint posts to an address. Redirects are not followed: the operator named this
// address and no other.
func endpoint(address string) func(context.Context, []byte) ([]byte, error) {
	client := &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	return func(ctx context.Context, doc []byte) ([]byte, error) {
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, address, bytes.NewReader(doc))
		if err != nil {
			return nil, errors.New("its address cannot be used")
		}
		req.Header.Set("Content-Type", "application/json")
		res, err := client.Do(req)
		if err != nil {
			return nil, errors.New("its address cannot be reached")
		}
		defer res.Body.Close()
		if res.StatusCode != http.StatusOK {
			return nil, fmt.Errorf("it answered with status %d, want 200", res.StatusCode)
		}
		text, err := io.ReadAll(io.LimitReader(res.Body, maxAnswer+1))
		if err != nil {
			return nil, errors.New("its answer was cut off")
		}
		return text, nil
	}
}
