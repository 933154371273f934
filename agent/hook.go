package agent

import (
	"cmp"
	"context"
	"fmt"
	"strings"
)

// BeforeHook is code of the operator that is asked before each tool call. It can cancel
// a call or rewrite it before anything else is decided, never allow one: policy and
// consent follow, on what the hook made of it. Package hooks implements it, and
// AfterHook, for commands and HTTP endpoints.
type BeforeHook interface {
	// Name is that of the settings; it is told where the hook cancels or fails.
	Name() string
	// Before is asked about each call, in the order of the settings, with what the
	// hooks before it made of the call. An error cancels the call: a hook that
	// cannot answer has not said yes. ctx ends with the turn.
	Before(ctx context.Context, c HookCall) (HookReply, error)
}

// AfterHook is code of the operator that is told of tool calls.
type AfterHook interface {
	Name() string
	// After is told of each call that ran, once its result is stored. It changes
	// nothing; an error becomes a warning.
	After(ctx context.Context, c HookCall, r HookResult) error
}

// HookCall is a call as hooks see it. Arguments are the real ones: a hook runs on
// the operator's side.
type HookCall struct {
	Session SessionID
	Turn    TurnID
	Call    CallID
	Tool    string
	Args    string // canonical JSON object
	Origin  Origin
}

// HookReply is what a hook wants. The zero HookReply leaves the call as it is.
type HookReply struct {
	Cancel bool
	Reason string // told to the model where Cancel is set
	Tool   string // another name; empty keeps it
	Args   string // other arguments, a JSON object; empty keeps them
}

// HookResult is how a call ended that ran.
type HookResult struct {
	Status CallStatus
	Output string
	Error  string
}

// hooksBefore asks the hooks about a call. It returns the arguments that they leave,
// sets the name that they leave, and says in words for the audit what they changed.
func (r *run) hooksBefore(ctx context.Context, c *ToolCall, args string) (string, []string, *refusal) {
	var notes []string
	for _, h := range r.Before {
		reply, err := hookBefore(ctx, h, r.hookCall(c, args))
		if err != nil {
			r.warn(ctx, c, fmt.Sprintf("hook %s failed: %v", h.Name(), err))
			return args, notes, &refusal{CallCancelled, "Not executed: hook " + h.Name() + " could not be asked, and without its word nothing runs"}
		}
		if reply.Cancel {
			return args, notes, &refusal{CallCancelled, strings.TrimSuffix("Not executed: cancelled by hook "+h.Name()+": "+r.shown(reply.Reason, 1000), ": ")}
		}
		changed := args
		if reply.Args != "" {
			if changed, err = Canonical(reply.Args); err != nil {
				r.warn(ctx, c, fmt.Sprintf("hook %s rewrote the arguments to what is no arguments: %v", h.Name(), err))
				return args, notes, &refusal{CallCancelled, "Not executed: hook " + h.Name() + " could not be understood, and without its word nothing runs"}
			}
		}
		tool := cmp.Or(reply.Tool, c.Tool)
		if tool == c.Tool && changed == args {
			continue
		}
		shown, _ := r.Mask.Object(args)
		notes = append(notes, fmt.Sprintf("hook %s rewrote %s %s", h.Name(), c.Tool, Bound(shown, 500)))
		if tool != c.Tool && c.AskedTool == "" {
			c.AskedTool = c.Tool
		}
		c.Tool, args = Bound(Clean(tool), 200), changed
	}
	return args, notes, nil
}

// hooksAfter tells the hooks how a call ended that ran. The result is stored by now
// and nothing can change it.
func (r *run) hooksAfter(ctx context.Context, c *ToolCall) {
	for _, h := range r.After {
		if err := hookAfter(ctx, h, r.hookCall(c, c.Args), HookResult{Status: c.Status, Output: c.Output, Error: c.Error}); err != nil {
			r.warn(ctx, c, fmt.Sprintf("hook %s failed: %v", h.Name(), err))
		}
	}
}

func (r *run) hookCall(c *ToolCall, args string) HookCall {
	return HookCall{Session: r.work.Turn.Session, Turn: c.Turn, Call: c.ID, Tool: c.Tool, Args: args, Origin: r.work.Turn.Origin}
}

// hookBefore is Hook.Before with a panic as its error; hookAfter alike.
func hookBefore(ctx context.Context, h BeforeHook, c HookCall) (reply HookReply, err error) {
	defer panicked(&err)
	return h.Before(ctx, c)
}

func hookAfter(ctx context.Context, h AfterHook, c HookCall, result HookResult) (err error) {
	defer panicked(&err)
	return h.After(ctx, c, result)
}

func panicked(err *error) {
	if p := recover(); p != nil {
		*err = fmt.Errorf("panic: %v", p)
	}
}

// warn tells of something that does not stop the turn.
func (r *run) warn(ctx context.Context, c *ToolCall, message string) {
	r.event(EventWarning, c.ID, map[string]string{"tool_name": c.Tool, "tool_call_id": string(c.ID), "message": message})
	r.Log.WarnContext(ctx, "warning", "turn", c.Turn, "call", c.ID, "tool", c.Tool, "message", message)
}
