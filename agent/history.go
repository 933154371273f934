package agent

import "strings"

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

// Trim drops whole exchanges from the beginning until the history has at most
// limit characters (bytes, to be exact). An exchange begins with a person's message, so no
// call is parted from its result; the last exchange always stays.
func Trim(in []Message, limit int) []Message {
	size := 0
	keep := len(in)
	for i := len(in) - 1; i >= 0; i-- {
		size += len(in[i].Text)
		for _, c := range in[i].Calls {
			size += len(c.Arguments)
		}
		if in[i].Role != RoleUser {
			continue
		}
		if size > limit && keep < len(in) {
			break
		}
		keep = i
	}
	return in[keep:]
}
