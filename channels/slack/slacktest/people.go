package slacktest

import (
	"fmt"
	"slices"
)

// How changes the way an action of a person is carried out or delivered.
type How func(*how)

type how struct {
	only         string // deliver this type of event alone
	mentionFirst bool
	times        int
	freshIDs     bool
	retryNum     int
	atOnce       bool
	keep         bool // deliver nothing
	broadcast    bool
	clientMsgID  *string
	alter        func(map[string]any)
	stale        bool
	inBlock      string
}

func collect(opts []How) how {
	var h how
	for _, opt := range opts {
		opt(&h)
	}
	return h
}

// OnlyMessage delivers the message event of a mention and not app_mention.
func OnlyMessage() How { return func(h *how) { h.only = "message" } }

// OnlyMention delivers the app_mention event and not the message event.
func OnlyMention() How { return func(h *how) { h.only = "app_mention" } }

// MentionFirst delivers app_mention before message; the other order is usual.
func MentionFirst() How { return func(h *how) { h.mentionFirst = true } }

// Times delivers each event n times, with the same event_id.
func Times(n int) How { return func(h *how) { h.times = n } }

// FreshIDs gives each of the [Times] an event_id of its own.
func FreshIDs() How { return func(h *how) { h.freshIDs = true } }

// AsRetry marks the delivery as retry number n, though the program never saw
// the first one.
func AsRetry(n int) How { return func(h *how) { h.retryNum = n } }

// AtOnce delivers the events in parallel. In HTTP mode each one otherwise
// waits a moment for the answer to the one before.
func AtOnce() How { return func(h *how) { h.atOnce = true } }

// Undelivered does what a person does without any event, as if Slack had lost
// it: the history knows, the program does not.
func Undelivered() How { return func(h *how) { h.keep = true } }

// Broadcast shows a reply in the channel too.
func Broadcast() How { return func(h *how) { h.broadcast = true } }

// ClientMsgID sets the client_msg_id of a message; "" leaves it out.
func ClientMsgID(id string) How { return func(h *how) { h.clientMsgID = &id } }

// Alter changes the document that is delivered: an event_callback, an
// interaction or a slash command.
func Alter(f func(document map[string]any)) How { return func(h *how) { h.alter = f } }

// Stale clicks what the message showed when it was read, even if it has been
// edited since.
func Stale() How { return func(h *how) { h.stale = true } }

// InBlock clicks the button in this block, where several have the same label.
func InBlock(blockID string) How { return func(h *how) { h.inBlock = blockID } }

// Say has a user write to a channel and delivers the events. The text is in
// Slack's form: mentions are tokens such as [Mention], and [Escape] encodes the
// rest. Panics unless the user is in the channel.
func (s *Server) Say(channel, user, text string, opts ...How) Message {
	return s.speak(channel, "", user, text, nil, opts)
}

// Reply has a user write in a thread.
func (s *Server) Reply(channel, threadTS, user, text string, opts ...How) Message {
	return s.speak(channel, threadTS, user, text, nil, opts)
}

// Upload has a user share a file, in a thread unless threadTS is "". The
// message has the subtype file_share.
func (s *Server) Upload(channel, threadTS, user, text string, f File, opts ...How) Message {
	return s.speak(channel, threadTS, user, text, &f, opts)
}

func (s *Server) speak(channel, thread, user, text string, f *File, opts []How) Message {
	h := collect(opts)
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.mustChannel(channel)
	if u := s.mustUser(user); !c.has(u.ID) {
		panic(fmt.Sprintf("slacktest: %s is not in %s: see SetMember", user, channel))
	}
	m := &Message{Channel: c.ID, ThreadTS: thread, User: user, Text: text, TS: s.ts(), Broadcast: h.broadcast}
	if thread != "" && s.find(c.ID, thread) == nil {
		panic(fmt.Sprintf("slacktest: there is no message %s in %s", thread, channel))
	}
	m.ClientMsgID = s.id("client-")
	if h.clientMsgID != nil {
		m.ClientMsgID = *h.clientMsgID
	}
	if f != nil {
		f.User, f.Channel, f.TS = user, c.ID, m.TS
		m.Subtype = "file_share"
		m.Files = []File{*s.newFile(*f)}
	}
	m.Blocks = s.fillIDs([]object{richText(text)})
	s.add(m)
	s.send(s.messageEvents(m), h)
	return s.snapshot(m)
}

// App is another app in the workspace.
type App struct {
	BotID  string
	AppID  string
	UserID string // its bot user; "" for an old kind of bot without one
	Name   string
}

// AppSays has another app post, in a thread unless threadTS is "". An app
// without a bot user posts with the subtype bot_message.
func (s *Server) AppSays(app App, channel, threadTS, text string, opts ...How) Message {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.mustChannel(channel)
	s.workspace.apps[app.BotID] = app
	m := &Message{
		Channel: c.ID, ThreadTS: threadTS, User: app.UserID, BotID: app.BotID, AppID: app.AppID, Text: text,
	}
	if app.UserID == "" {
		m.Subtype = "bot_message"
	} else if s.workspace.users[app.UserID] == nil {
		s.workspace.users[app.UserID] = &User{ID: app.UserID, Name: app.Name, TeamID: TeamID, IsBot: true}
	}
	s.add(m)
	s.send(s.messageEvents(m), collect(opts))
	return s.snapshot(m)
}

// Edit has the author of a message change its text. Slack delivers it as
// message_changed.
func (s *Server) Edit(m Message, text string, opts ...How) Message {
	s.mu.Lock()
	defer s.mu.Unlock()
	cur := s.mustMessage(m)
	before := s.messageJSON(cur, false)
	cur.edit(text, s.fillIDs([]object{richText(text)}))
	s.deliverChanged(cur, before, opts...)
	return s.snapshot(cur)
}

// Delete has the author of a message delete it.
func (s *Server) Delete(m Message, opts ...How) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.remove(s.mustMessage(m), opts...)
}

// Preview delivers the message_changed that adds a link preview to a message
// whose text stays as it is.
func (s *Server) Preview(m Message, address string, opts ...How) {
	s.mu.Lock()
	defer s.mu.Unlock()
	cur := s.mustMessage(m)
	before := s.messageJSON(cur, false)
	cur.Attachments = encode([]object{{"id": 1, "from_url": address, "title": "A page", "fallback": "A page"}})
	s.deliverChanged(cur, before, opts...)
}

// ReplyNotice delivers the message_changed of a thread's root in which nothing
// but the count of replies differs.
func (s *Server) ReplyNotice(root Message, opts ...How) {
	s.mu.Lock()
	defer s.mu.Unlock()
	cur := s.mustMessage(root)
	before := s.messageJSON(cur, false)
	for _, key := range []string{"reply_count", "reply_users", "reply_users_count", "latest_reply"} {
		delete(before, key)
	}
	s.deliverChanged(cur, before, opts...)
}

// Redeliver delivers the events of a message again: with the event_ids of a new
// message, since Slack sometimes sends one message under two. See [Times] for
// the same event_id twice.
func (s *Server) Redeliver(m Message, opts ...How) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.send(s.messageEvents(s.mustMessage(m)), collect(opts))
}

// Join has a user join a channel, with the message that Slack writes about it.
func (s *Server) Join(channel, user string, opts ...How) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.mustChannel(channel)
	s.mustUser(user)
	if !c.has(user) {
		c.Members = append(slices.Clone(c.Members), user)
	}
	m := &Message{Channel: c.ID, User: user, Subtype: "channel_join", Text: "<@" + user + "> has joined the channel"}
	s.add(m)
	events := s.messageEvents(m)
	if len(events) > 1 {
		events = events[:1] // the bot's own name in it is no mention
	}
	s.send(append(events, s.callback(c, object{
		"type": "member_joined_channel", "user": user, "channel": c.ID, "channel_type": "C", "team": TeamID, "event_ts": m.TS,
	})), collect(opts))
}

// mustMessage is the message as it stands; it panics if it is gone.
func (s *Server) mustMessage(m Message) *Message {
	cur := s.find(m.Channel, m.TS)
	if cur == nil {
		panic(fmt.Sprintf("slacktest: there is no message %s in %s", m.TS, m.Channel))
	}
	return cur
}

// richText is the block that Slack makes of what a person types.
func richText(text string) object {
	var parts []object
	addText := func(t string) {
		if t != "" {
			parts = append(parts, object{"type": "text", "text": decode(t)})
		}
	}
	last := 0
	for _, loc := range tokenPattern.FindAllStringIndex(text, -1) {
		part := richToken(text[loc[0]+1 : loc[1]-1])
		if part == nil {
			continue
		}
		addText(text[last:loc[0]])
		parts = append(parts, part)
		last = loc[1]
	}
	addText(text[last:])
	if len(parts) == 0 {
		parts = []object{{"type": "text", "text": " "}}
	}
	return object{"type": "rich_text", "elements": []any{
		map[string]any{"type": "rich_text_section", "elements": anyList(parts)},
	}}
}

func anyList(objects []object) []any {
	out := make([]any, len(objects))
	for i, o := range objects {
		out[i] = map[string]any(o)
	}
	return out
}

// richToken is the rich text element of a token, nil if it is none.
func richToken(in string) object {
	if m := userToken.FindStringSubmatch(in); m != nil {
		return object{"type": "user", "user_id": m[1]}
	}
	if m := groupToken.FindStringSubmatch(in); m != nil {
		return object{"type": "usergroup", "usergroup_id": m[1]}
	}
	if m := rangeToken.FindStringSubmatch(in); m != nil {
		return object{"type": "broadcast", "range": m[1]}
	}
	if m := channelToken.FindStringSubmatch(in); m != nil {
		return object{"type": "channel", "channel_id": m[1]}
	}
	if m := linkToken.FindStringSubmatch(in); m != nil {
		link := object{"type": "link", "url": decode(m[1])}
		if m[2] != "" {
			link["text"] = decode(m[2])
		}
		return link
	}
	return nil
}
