package provider

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"github.com/clawbot/clawbot/agent"
)

// MaxAnswer bounds text, ids, names and arguments of one answer, in bytes.
const MaxAnswer = 4 << 20

// Answer joins the pieces of a streamed answer. Calls are joined by the index
// that the provider gives them, which is also their order.
type Answer struct {
	text  strings.Builder
	calls map[int64]*partialCall
	size  int

	InputTokens  int
	OutputTokens int
}

type partialCall struct {
	id, tool  string
	arguments strings.Builder
}

// AddText appends to the text.
func (a *Answer) AddText(piece string) error {
	a.text.WriteString(piece)
	return a.grow(len(piece))
}

// AddCall adds what a piece says about the call with that index. Id and name
// stay as they first came; arguments are appended.
func (a *Answer) AddCall(index int64, id, tool, arguments string) error {
	call := a.calls[index]
	grown := len(arguments)
	if call == nil {
		if a.calls == nil {
			a.calls = map[int64]*partialCall{}
		}
		call = &partialCall{}
		a.calls[index] = call
		grown += 100 // what an empty call costs us
	}
	if call.id == "" {
		call.id = id
		grown += len(id)
	}
	if call.tool == "" {
		call.tool = tool
		grown += len(tool)
	}
	call.arguments.WriteString(arguments)
	return a.grow(grown)
}

func (a *Answer) grow(n int) error {
	if a.size += n; a.size > MaxAnswer {
		return &Error{Kind: agent.ErrModelUnavailable, Text: "the answer is larger than 4 MiB"}
	}
	return nil
}

// Reply returns the whole answer. Where the model did not come to its own end,
// no call is returned: the last one may be half, and those before it may have
// been meant together with it.
func (a *Answer) Reply(stop agent.StopReason) agent.ModelReply {
	reply := agent.ModelReply{Text: a.text.String(), Stop: stop, InputTokens: a.InputTokens, OutputTokens: a.OutputTokens}
	if stop == agent.StopLength || stop == agent.StopFilter {
		return reply
	}
	reply.Stop = agent.StopEnd
	for _, index := range slices.SortedFunc(maps.Keys(a.calls), cmp.Compare[int64]) {
		call := a.calls[index]
		reply.Calls = append(reply.Calls, agent.ProposedCall{ID: agent.CallID(call.id), Tool: call.tool, Arguments: call.arguments.String()})
		reply.Stop = agent.StopTools
	}
	return reply
}
