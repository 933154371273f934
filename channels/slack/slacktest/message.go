package slacktest

import (
	"encoding/json"
	"slices"
	"strings"
)

// Message is a copy of a message as it stands at the time of reading.
type Message struct {
	Channel     string
	TS          string
	ThreadTS    string // ts of the thread's root; "" on a root
	User        string // author; a bot's user for a bot's post
	BotID       string
	AppID       string
	Subtype     string
	ClientMsgID string
	Broadcast   bool            // a reply shown in the channel as well
	Text        string          // as it was sent, escaped
	Blocks      json.RawMessage // nil without blocks
	Attachments json.RawMessage
	Metadata    json.RawMessage
	Files       []File
	Edited      bool
	Deleted     bool
	EphemeralTo string     // who alone sees it; "" for an ordinary message
	Revisions   []Revision // what it was before each edit, oldest first
	Reactions   []Reaction

	// Computed from text and blocks.

	Shown   string   // what a person reads
	Buttons []Button // in order
	Pings   []string // whom it notifies: user ids, group ids, channel, here, everyone
	Links   []Link   // what a person can follow
}

// Revision is the content of a message before an edit.
type Revision struct {
	Text   string
	Blocks json.RawMessage
}

// Reaction is an emoji and who put it there.
type Reaction struct {
	Name  string
	Users []string
}

// Button is a button on a message or view.
type Button struct {
	Label    string
	ActionID string
	BlockID  string
	Value    string
	URL      string
	Style    string // "", "primary" or "danger"
	Confirm  bool   // asks the person once more
}

// Link is an address that a message makes clickable.
type Link struct {
	URL   string
	Label string // "" when the address itself is shown
}

// Root is the ts of the thread the message is in, or its own ts.
func (m Message) Root() string {
	if m.ThreadTS != "" {
		return m.ThreadTS
	}
	return m.TS
}

// Button finds a button by its label or action_id.
func (m Message) Button(labelOrActionID string) (Button, bool) {
	for _, b := range m.Buttons {
		if b.Label == labelOrActionID || b.ActionID == labelOrActionID {
			return b, true
		}
	}
	return Button{}, false
}

// HasButton says whether there is a button with this label or action_id.
func (m Message) HasButton(labelOrActionID string) bool {
	_, ok := m.Button(labelOrActionID)
	return ok
}

// FromBot says whether the app under test posted the message.
func (m Message) FromBot() bool { return m.AppID == AppID }

// add stores a new message at the end of its channel.
func (s *Server) add(m *Message) {
	if m.TS == "" {
		m.TS = s.ts()
	}
	s.workspace.messages[m.Channel] = append(s.workspace.messages[m.Channel], m)
	if m.FromBot() && m.ThreadTS != "" {
		delete(s.statuses, m.Channel+"/"+m.ThreadTS) // a post clears the status
	}
	s.notify()
}

// find returns the message that people see under ts, or nil.
func (s *Server) find(channel, ts string) *Message {
	for _, m := range s.workspace.messages[channel] {
		if m.TS == ts && !m.Deleted {
			return m
		}
	}
	return nil
}

// inThread lists the ordinary messages of a thread, root first.
func (s *Server) inThread(channel, root string) []*Message {
	var out []*Message
	for _, m := range s.workspace.messages[channel] {
		if m.Root() == root && m.EphemeralTo == "" && !m.Deleted {
			out = append(out, m)
		}
	}
	return out
}

// edit replaces the content of a message and keeps what it was.
func (m *Message) edit(text string, blocks json.RawMessage) {
	m.Revisions = append(m.Revisions, Revision{Text: m.Text, Blocks: m.Blocks})
	m.Text, m.Blocks, m.Edited = text, blocks, true
}

// snapshot copies a message and computes what people see of it.
func (s *Server) snapshot(m *Message) Message {
	c := *m
	c.Revisions = slices.Clone(m.Revisions)
	c.Files = slices.Clone(m.Files)
	c.Reactions = slices.Clone(m.Reactions)
	c.Shown = s.shown(m)
	blocks := m.allBlocks()
	c.Buttons = buttons(blocks)
	c.Pings, c.Links = signals(m.Text, blocks)
	return c
}

// allBlocks are the blocks of a message and of its attachments.
func (m *Message) allBlocks() []object {
	blocks, _ := decodeObjects(m.Blocks)
	attachments, _ := decodeObjects(m.Attachments)
	for _, a := range attachments {
		blocks = append(blocks, a.list("blocks")...)
	}
	return blocks
}

// buttons lists the buttons in blocks, wherever they are.
func buttons(blocks []object) []Button {
	var out []Button
	for _, b := range blocks {
		candidates := b.list("elements")
		if a := b.obj("accessory"); a != nil {
			candidates = append(candidates, a)
		}
		for _, e := range candidates {
			if e.str("type") != "button" {
				continue
			}
			out = append(out, Button{
				Label:    decode(e.obj("text").str("text")),
				ActionID: e.str("action_id"),
				BlockID:  b.str("block_id"),
				Value:    e.str("value"),
				URL:      e.str("url"),
				Style:    e.str("style"),
				Confirm:  e.has("confirm"),
			})
		}
	}
	return out
}

// fillIDs gives every block a block_id and every interactive element an
// action_id, as Slack does where the app set none.
func (s *Server) fillIDs(blocks []object) json.RawMessage {
	if len(blocks) == 0 {
		return nil
	}
	for _, b := range blocks {
		if b.str("block_id") == "" {
			b["block_id"] = s.id("blk")
		}
		interactive := b.list("elements")
		for _, key := range []string{"accessory", "element"} {
			if e := b.obj(key); e != nil {
				interactive = append(interactive, e)
			}
		}
		for _, e := range interactive {
			if interactiveElement(e.str("type")) && e.str("action_id") == "" {
				e["action_id"] = s.id("act")
			}
		}
	}
	return encode(blocks)
}

// messageJSON is a message as the Web API and events show it.
func (s *Server) messageJSON(m *Message, withMetadata bool) object {
	o := object{"type": "message", "ts": m.TS, "text": m.Text, "team": TeamID}
	set := func(key, value string) {
		if value != "" {
			o[key] = value
		}
	}
	set("user", m.User)
	set("subtype", m.Subtype)
	set("client_msg_id", m.ClientMsgID)
	set("bot_id", m.BotID)
	set("app_id", m.AppID)
	set("thread_ts", m.ThreadTS)
	if m.BotID != "" {
		if m.Subtype == "bot_message" {
			o["username"] = s.name(m.BotID)
			delete(o, "user")
		} else {
			o["bot_profile"] = object{"id": m.BotID, "app_id": m.AppID, "name": s.name(m.User), "team_id": TeamID}
		}
	}
	if m.Blocks != nil {
		o["blocks"] = m.Blocks
	}
	if m.Attachments != nil {
		o["attachments"] = m.Attachments
	}
	if m.Edited {
		o["edited"] = object{"user": m.User, "ts": m.TS}
	}
	if m.Metadata != nil && withMetadata {
		o["metadata"] = m.Metadata
	}
	if len(m.Files) > 0 {
		files := make([]object, len(m.Files))
		for i := range m.Files {
			files[i] = s.fileJSON(&m.Files[i])
		}
		o["files"], o["upload"] = files, false
	}
	if len(m.Reactions) > 0 {
		var rs []object
		for _, r := range m.Reactions {
			rs = append(rs, object{"name": r.Name, "users": r.Users, "count": len(r.Users)})
		}
		o["reactions"] = rs
	}
	if u := s.workspace.users[m.User]; u != nil && u.TeamID != TeamID {
		o["team"], o["user_team"], o["source_team"] = u.TeamID, u.TeamID, u.TeamID
	}
	s.addThreadCounters(o, m)
	return o
}

// addThreadCounters adds to a root what Slack counts about its replies.
func (s *Server) addThreadCounters(o object, m *Message) {
	if m.ThreadTS != "" || m.EphemeralTo != "" {
		return
	}
	thread := s.inThread(m.Channel, m.TS)
	if len(thread) < 2 {
		return
	}
	var users []string
	for _, r := range thread[1:] {
		if !slices.Contains(users, r.User) {
			users = append(users, r.User)
		}
	}
	o["thread_ts"] = m.TS
	o["reply_count"] = len(thread) - 1
	o["reply_users"] = users
	o["reply_users_count"] = len(users)
	o["latest_reply"] = thread[len(thread)-1].TS
}

// clean trims a text as Slack does before it asks whether there is any.
func clean(text string) string { return strings.TrimSpace(text) }
