package agent

import (
	"slices"
	"strings"
	"unicode/utf8"
)

// noText stands where a message has no text, because providers refuse empty ones.
const noText = "(no text)"

// Repair returns a history that every provider accepts: it begins with a
// person, every call of an assistant message has exactly one result right behind
// it and in call order, no text is empty. A call without a result gets a failed
// one; a result without its call, and an assistant message with nothing in it,
// are dropped. A valid history comes back as it is.
func Repair(in []Message) []Message {
	out := make([]Message, 0, len(in))
	for i := 0; i < len(in); i++ {
		m := in[i]
		switch m.Role {
		case RoleUser:
			if strings.TrimSpace(m.Text) == "" {
				m.Text = noText
			}
			out = append(out, m)
		case RoleAssistant:
			if len(out) == 0 || len(m.Calls) == 0 && strings.TrimSpace(m.Text) == "" {
				continue
			}
			out = append(out, m)
			results := map[CallID]Message{}
			for j := i + 1; j < len(in) && in[j].Role == RoleTool; j++ {
				if _, twice := results[in[j].CallID]; !twice {
					results[in[j].CallID] = in[j]
				}
			}
			for _, c := range m.Calls {
				r, ok := results[c.ID]
				if !ok {
					r = Message{Role: RoleTool, Turn: m.Turn, CallID: c.ID, Failed: true, Text: failureText(c.ID, CallInterrupted, "the call was interrupted and has no result")}
				}
				if strings.TrimSpace(r.Text) == "" {
					r.Text = noOutput
				}
				out = append(out, r)
			}
		}
	}
	return out
}

// Trim makes a history fit into limit bytes of text. It drops whole exchanges from
// the beginning; an exchange begins with a person's message, so no call is parted
// from its result, and the last one always stays. Where that one alone is too long,
// its results are shortened: the older ones to a few words, then those of the
// latest answer to an equal share. The whole is in the database.
func Trim(in []Message, limit int) []Message {
	size := 0
	keep := len(in)
	for i := len(in) - 1; i >= 0; i-- {
		size += weight(in[i])
		if in[i].Role != RoleUser {
			continue
		}
		if size > limit && keep < len(in) {
			break
		}
		keep = i
	}
	return shorten(in[keep:], limit)
}

// oldResult is how many characters are left of an older result that has to give way.
const oldResult = 500

func shorten(in []Message, limit int) []Message {
	size, latest := 0, 0
	for i, m := range in {
		size += weight(m)
		if m.Role == RoleAssistant {
			latest = i
		}
	}
	if size <= limit {
		return in
	}
	out := slices.Clone(in)
	bound := func(m *Message, chars int) {
		before := len(m.Text)
		if short := Bound(m.Text, chars); len(short) < before {
			m.Text = short
		}
		size -= before - len(m.Text)
	}
	for i := 0; i < latest && size > limit; i++ {
		if out[i].Role == RoleTool {
			bound(&out[i], oldResult)
		}
	}
	if results := len(out) - latest - 1; size > limit && results > 0 {
		for i := latest + 1; i < len(out); i++ {
			if out[i].Role == RoleTool {
				bound(&out[i], max(oldResult, limit/2/results/utf8.UTFMax))
			}
		}
	}
	return out
}

// weight is what a message takes of a request, in bytes of text.
func weight(m Message) int {
	n := len(m.Text)
	for _, c := range m.Calls {
		n += len(c.Arguments)
	}
	return n
}
