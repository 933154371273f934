package slacktest

import (
	"fmt"
	"strings"
)

// Thread lists the messages of a thread, root first, ephemeral ones included;
// with threadTS "" all messages of the channel. Deleted messages are left out.
func (s *Server) Thread(channel, threadTS string) []Message {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []Message
	for _, m := range s.workspace.messages[channel] {
		if !m.Deleted && (threadTS == "" || m.Root() == threadTS) {
			out = append(out, s.snapshot(m))
		}
	}
	return out
}

// Message is one message as it stands, false if there is none.
func (s *Server) Message(channel, ts string) (Message, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	m := s.find(channel, ts)
	if m == nil {
		return Message{}, false
	}
	return s.snapshot(m), true
}

// Ephemerals lists what only this user can see, oldest first.
func (s *Server) Ephemerals(user string) []Message {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []Message
	for _, messages := range s.workspace.messages {
		for _, m := range messages {
			if m.EphemeralTo == user && !m.Deleted {
				out = append(out, s.snapshot(m))
			}
		}
	}
	return out
}

// Render is a thread as a person sees it, for golden files; with threadTS ""
// the whole channel. Replies are indented. In what the app wrote, {ping @Ana}
// marks a mention that notifies and {link label -> address} what can be followed.
//
//	#general
//	Ana: @clawbot delete the old logs
//	  clawbot (edited): Approval needed
//	      command: rm -r /var/log/old
//	      [Approve] [Deny]
//	  clawbot (only Ben sees this): You may not approve this.
func (s *Server) Render(channel, threadTS string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.workspace.channels[channel]
	if c == nil {
		return "no channel " + channel + "\n"
	}
	var out strings.Builder
	out.WriteString(s.heading(c) + "\n")
	if threadTS != "" {
		for _, m := range s.workspace.messages[channel] {
			if !m.Deleted && m.Root() == threadTS {
				s.renderMessage(&out, m)
			}
		}
		return out.String()
	}
	for _, root := range s.workspace.messages[channel] {
		if root.ThreadTS != "" {
			continue
		}
		for _, m := range s.workspace.messages[channel] {
			if !m.Deleted && m.Root() == root.TS {
				s.renderMessage(&out, m)
			}
		}
	}
	return out.String()
}

func (s *Server) heading(c *Channel) string {
	if c.Kind != IM && c.Kind != MPIM {
		return c.title()
	}
	var names []string
	for _, id := range c.Members {
		if id != BotUserID {
			names = append(names, s.name(id))
		}
	}
	return "direct message with " + strings.Join(names, ", ")
}

// renderMessage writes a message: its author, how it stands, what it shows.
func (s *Server) renderMessage(out *strings.Builder, m *Message) {
	indent := ""
	if m.ThreadTS != "" {
		indent = "  "
	}
	author := s.name(m.User)
	if m.User == "" {
		author = s.name(m.BotID)
	}
	if m.Edited {
		author += " (edited)"
	}
	if m.EphemeralTo != "" {
		author += " (only " + s.name(m.EphemeralTo) + " sees this)"
	}
	lines := strings.Split(s.shown(m), "\n")
	out.WriteString(indent + author + ":")
	for i, line := range lines {
		switch {
		case i == 0:
			out.WriteString(strings.TrimRight(" "+line, " ") + "\n")
		case line == "":
			out.WriteString("\n")
		default:
			out.WriteString(indent + "    " + line + "\n")
		}
	}
	for _, r := range m.Reactions {
		fmt.Fprintf(out, "%s    :%s: %d\n", indent, r.Name, len(r.Users))
	}
}

// shown is what a person reads of a message, without its author. Where there
// are blocks the text is not shown, as in Slack.
func (s *Server) shown(m *Message) string {
	marks := m.BotID != ""
	blocks, _ := decodeObjects(m.Blocks)
	var lines []string
	if len(blocks) == 0 {
		if m.Text != "" {
			// Posted with parse=none, it gets no automatic links.
			lines = append(lines, s.read(piece{mrkdwn, m.Text, true}, marks))
		}
	} else {
		lines = append(lines, s.blockLines(blocks, marks)...)
	}
	attachments, _ := decodeObjects(m.Attachments)
	for _, a := range attachments {
		lines = append(lines, s.attachmentLines(a, marks)...)
	}
	for _, f := range m.Files {
		lines = append(lines, fmt.Sprintf("[file %s, %d bytes]", f.Title, len(f.Content)))
	}
	return strings.Join(lines, "\n")
}

func (s *Server) attachmentLines(a object, marks bool) []string {
	if blocks := a.list("blocks"); len(blocks) > 0 {
		return s.blockLines(blocks, marks)
	}
	var lines []string
	for _, key := range []string{"pretext", "title", "text"} {
		if t := a.str(key); t != "" {
			lines = append(lines, s.read(piece{kind: mrkdwn, text: t}, marks))
		}
	}
	return lines
}
