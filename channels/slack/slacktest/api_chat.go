package slacktest

import (
	"encoding/json"
	"regexp"
	"strings"
	"unicode/utf16"
)

var tsPattern = regexp.MustCompile(`^\d{10}\.\d{6}$`)

// chatPostMessage answers chat.postMessage.
func (s *Server) chatPostMessage(a args) (object, error) {
	id := a.str("channel")
	if u := s.workspace.users[id]; u != nil && !u.Deleted {
		id = s.openDM([]string{id}).ID // a user id stands for the direct conversation
	}
	c, err := s.writable(id)
	if err != nil {
		return nil, err
	}
	m := &Message{Channel: c.ID, User: BotUserID, BotID: BotID, AppID: AppID}
	if err := s.compose(m, a); err != nil {
		return nil, err
	}
	if err := s.setThread(m, "chat.postMessage", a.str("thread_ts")); err != nil {
		return nil, err
	}
	m.Broadcast = m.ThreadTS != "" && a.isTrue("reply_broadcast")
	s.add(m)
	where := m.Channel + "/" + m.TS
	if length(a.str("text")) > maxText {
		s.violate("chat.postMessage", where, "text of %d characters: Slack advises at most %d", length(a.str("text")), maxText)
	}
	for _, flag := range []string{"unfurl_links", "unfurl_media"} {
		if !a.isFalse(flag) {
			s.violate("chat.postMessage", where, "%s is not false", flag)
		}
	}
	s.checkMetadataTwin(m)
	s.inspect("chat.postMessage", m, a)
	s.deliverOwnPost(m)
	return object{"channel": c.ID, "ts": m.TS, "message": s.messageJSON(m, false)}, nil
}

// writable is a channel that the bot may post to.
func (s *Server) writable(id string) (*Channel, error) {
	c, err := s.reachable(id)
	if err != nil {
		return nil, err
	}
	if c.Archived {
		return nil, refuse("is_archived")
	}
	return c, nil
}

// compose fills in the content of a message from the arguments of a call.
func (s *Server) compose(m *Message, a args) error {
	blocks, err := parseBlocks(a.raw("blocks"))
	if err != nil {
		return err
	}
	attachments, err := decodeObjects(a.raw("attachments"))
	if err != nil || len(attachments) > maxAttachments {
		return refuse("invalid_attachments")
	}
	for _, at := range attachments {
		if err := checkBlocks(at.list("blocks"), inMessage); err != nil {
			return err
		}
	}
	text, md := a.str("text"), a.str("markdown_text")
	switch {
	case md != "" && (text != "" || len(blocks) > 0):
		return refuse("markdown_text_conflict")
	case length(md) > maxMarkdown:
		return refuse("msg_too_long")
	case clean(md) != "":
		blocks = []object{{"type": "markdown", "text": md}}
	case clean(text) == "" && len(blocks) == 0 && len(attachments) == 0:
		return refuse("no_text")
	}
	meta, err := readMetadata(a.raw("metadata"))
	if err != nil {
		return err
	}
	m.Text = cut(text, maxTextCut)
	m.Blocks = s.fillIDs(blocks)
	m.Metadata = meta
	m.Attachments = nil
	if len(attachments) > 0 {
		m.Attachments = encode(attachments)
	}
	return nil
}

// cut shortens a text to n UTF-16 code units.
func cut(text string, n int) string {
	if length(text) <= n {
		return text
	}
	return string(utf16.Decode(utf16.Encode([]rune(text))[:n]))
}

// readMetadata checks the metadata of a message and brings it into one form.
func readMetadata(raw json.RawMessage) (json.RawMessage, error) {
	if raw == nil {
		return nil, nil
	}
	var meta struct {
		EventType    string         `json:"event_type"`
		EventPayload map[string]any `json:"event_payload"`
	}
	if json.Unmarshal(raw, &meta) != nil {
		return nil, refuse("invalid_metadata_format")
	}
	if meta.EventType == "" || meta.EventPayload == nil {
		return nil, refuse("invalid_metadata_schema")
	}
	return encode(meta), nil
}

// setThread puts a message into a thread. A ts that is no root is accepted, as
// Slack does, and is a defect: people do not see the reply where it belongs.
func (s *Server) setThread(m *Message, method, ts string) error {
	if ts == "" {
		return nil
	}
	root := s.find(m.Channel, ts)
	if !tsPattern.MatchString(ts) || root == nil || root.EphemeralTo != "" {
		return refuse("thread_not_found")
	}
	if root.ThreadTS != "" {
		s.violate(method, m.Channel+"/"+ts, "thread_ts names a reply, not the root %s", root.ThreadTS)
	}
	m.ThreadTS = ts
	return nil
}

// checkMetadataTwin notes when two messages carry the same metadata, which is
// how a message sent twice shows.
func (s *Server) checkMetadataTwin(m *Message) {
	if m.Metadata == nil {
		return
	}
	key := string(m.Metadata)
	if first, ok := s.seenMeta[key]; ok {
		s.violate("chat.postMessage", m.Channel+"/"+m.TS, "same metadata as message %s: %s", first, key)
		return
	}
	s.seenMeta[key] = m.TS
}

// own is a message that the app may change.
func (s *Server) own(channel, ts, refusal string) (*Message, error) {
	c := s.workspace.channels[channel]
	if c == nil || (c.Kind != Public && !c.has(BotUserID)) {
		return nil, refuse("channel_not_found")
	}
	m := s.find(channel, ts)
	if m == nil || m.EphemeralTo != "" {
		return nil, refuse("message_not_found")
	}
	if !m.FromBot() {
		return nil, refuse(refusal)
	}
	return m, nil
}

// chatUpdate answers chat.update. Text without blocks removes the blocks. As
// documented, rich text cannot give way to blocks without any (block_mismatch).
func (s *Server) chatUpdate(a args) (object, error) {
	m, err := s.own(a.str("channel"), a.str("ts"), "cant_update_message")
	if err != nil {
		return nil, err
	}
	if s.workspace.channels[m.Channel].Archived {
		return nil, refuse("is_archived")
	}
	if length(a.str("text")) > maxText {
		return nil, refuse("msg_too_long")
	}
	next := *m
	if err := s.compose(&next, a); err != nil {
		return nil, err
	}
	if hasRichText(m.Blocks) && next.Blocks != nil && !hasRichText(next.Blocks) {
		return nil, refuse("block_mismatch")
	}
	before := s.messageJSON(m, true)
	m.edit(next.Text, next.Blocks)
	m.Attachments = next.Attachments
	if next.Metadata != nil {
		m.Metadata = next.Metadata
	}
	if a.str("parse") != "none" {
		s.violate("chat.update", m.Channel+"/"+m.TS, "parse is %q, not none: names and addresses in the text become links", a.str("parse"))
	}
	s.inspect("chat.update", m, a)
	s.deliverChanged(m, before)
	return object{"channel": m.Channel, "ts": m.TS, "text": m.Text, "message": s.messageJSON(m, false)}, nil
}

func hasRichText(blocks json.RawMessage) bool {
	list, _ := decodeObjects(blocks)
	for _, b := range list {
		if b.str("type") == "rich_text" {
			return true
		}
	}
	return false
}

// chatPostEphemeral answers chat.postEphemeral.
func (s *Server) chatPostEphemeral(a args) (object, error) {
	c, err := s.writable(a.str("channel"))
	if err != nil {
		return nil, err
	}
	user := s.workspace.users[a.str("user")]
	if user == nil || user.Deleted || !c.has(user.ID) {
		return nil, refuse("user_not_in_channel")
	}
	m := &Message{Channel: c.ID, User: BotUserID, BotID: BotID, AppID: AppID, EphemeralTo: user.ID}
	if err := s.compose(m, a); err != nil {
		return nil, err
	}
	if err := s.setThread(m, "chat.postEphemeral", a.str("thread_ts")); err != nil {
		return nil, err
	}
	s.add(m)
	if length(a.str("text")) > maxText {
		s.violate("chat.postEphemeral", m.Channel+"/"+m.TS, "text of %d characters: Slack advises at most %d", length(a.str("text")), maxText)
	}
	s.inspect("chat.postEphemeral", m, a)
	return object{"message_ts": m.TS}, nil
}

// chatDelete answers chat.delete.
func (s *Server) chatDelete(a args) (object, error) {
	m, err := s.own(a.str("channel"), a.str("ts"), "cant_delete_message")
	if err != nil {
		return nil, err
	}
	s.remove(m)
	return object{"channel": m.Channel, "ts": m.TS}, nil
}

// chatGetPermalink answers chat.getPermalink.
func (s *Server) chatGetPermalink(a args) (object, error) {
	c, err := s.visible(a.str("channel"))
	if err != nil {
		return nil, err
	}
	m := s.find(c.ID, a.str("message_ts"))
	if m == nil || m.EphemeralTo != "" {
		return nil, refuse("message_not_found")
	}
	return object{"channel": c.ID, "permalink": permalink(m)}, nil
}

func permalink(m *Message) string {
	link := "https://example.slack.com/archives/" + m.Channel + "/p" + strings.Replace(m.TS, ".", "", 1)
	if m.ThreadTS != "" {
		link += "?thread_ts=" + m.ThreadTS + "&cid=" + m.Channel
	}
	return link
}
