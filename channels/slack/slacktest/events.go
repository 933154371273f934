package slacktest

import (
	"encoding/json"
	"strconv"
	"strings"
)

// callback wraps an inner event as Slack sends it.
func (s *Server) callback(c *Channel, event object) object {
	seconds, _, _ := strings.Cut(event.str("event_ts"), ".")
	at, _ := strconv.ParseInt(seconds, 10, 64)
	return object{
		"type": "event_callback", "token": "slacktest-verification", "team_id": TeamID, "context_team_id": TeamID,
		"context_enterprise_id": nil, "api_app_id": AppID, "event": event, "event_id": s.id("Ev"), "event_time": at,
		"event_context": "4-" + c.ID, "is_ext_shared_channel": c.ExtShared,
		"authorizations": []object{{
			"enterprise_id": nil, "team_id": TeamID, "user_id": BotUserID, "is_bot": true, "is_enterprise_install": false,
		}},
	}
}

// subscribed says whether the app gets message events of a channel.
func (s *Server) subscribed(c *Channel) bool {
	return c.has(BotUserID) && s.scopes[scopePrefix(c.Kind)+":history"]
}

// messageEvents are the events that a new message raises: message, and
// app_mention where a channel message names the bot.
func (s *Server) messageEvents(m *Message) []object {
	c := s.workspace.channels[m.Channel]
	var out []object
	if s.subscribed(c) {
		e := s.messageJSON(m, false)
		e["channel"], e["channel_type"], e["event_ts"] = c.ID, string(c.Kind), m.TS
		if m.Broadcast {
			e["subtype"] = "thread_broadcast"
			if root := s.find(m.Channel, m.ThreadTS); root != nil {
				e["root"] = s.messageJSON(root, false)
			}
		}
		out = append(out, s.callback(c, e))
	}
	mentioned := strings.Contains(m.Text, Mention) || strings.Contains(m.Text, "<@"+BotUserID+"|")
	if mentioned && !m.FromBot() && c.has(BotUserID) && (c.Kind == Public || c.Kind == Private) && s.scopes["app_mentions:read"] {
		e := s.messageJSON(m, false)
		delete(e, "client_msg_id")
		delete(e, "subtype")
		e["type"], e["channel"], e["event_ts"] = "app_mention", c.ID, m.TS
		out = append(out, s.callback(c, e))
	}
	return out
}

// channelMessage raises a message event with a subtype of its own.
func (s *Server) channelMessage(channel, subtype string, fields object, h how) {
	c := s.workspace.channels[channel]
	if !s.subscribed(c) {
		return
	}
	e := object{
		"type": "message", "subtype": subtype, "channel": c.ID, "channel_type": string(c.Kind),
		"hidden": true,
	}
	for k, v := range fields {
		e[k] = v
	}
	if !e.has("event_ts") {
		e["event_ts"] = s.ts()
	}
	if !e.has("ts") {
		e["ts"] = e["event_ts"]
	}
	s.send([]object{s.callback(c, e)}, h)
}

// deliverOwnPost echoes a post of the app back to it, as Slack does.
func (s *Server) deliverOwnPost(m *Message) { s.send(s.messageEvents(m), how{}) }

// deliverChanged raises message_changed for a message that was before.
func (s *Server) deliverChanged(m *Message, before object, opts ...How) {
	s.notify()
	s.channelMessage(m.Channel, "message_changed", object{
		"message": s.messageJSON(m, true), "previous_message": before,
	}, collect(opts))
}

// remove deletes a message and says so.
func (s *Server) remove(m *Message, opts ...How) {
	before := s.messageJSON(m, true)
	m.Deleted = true
	s.notify()
	if m.EphemeralTo != "" {
		return
	}
	s.channelMessage(m.Channel, "message_deleted", object{
		"deleted_ts": m.TS, "previous_message": before,
	}, collect(opts))
}

// send queues events in the way that h asks for.
func (s *Server) send(events []object, h how) {
	if h.keep {
		return
	}
	if h.mentionFirst && len(events) == 2 {
		events = []object{events[1], events[0]}
	}
	for _, e := range events {
		if inner, _ := e["event"].(object); h.only != "" && inner.str("type") != h.only {
			continue
		}
		for i := range max(1, h.times) {
			if i > 0 && h.freshIDs {
				e["event_id"] = s.id("Ev")
			}
			body := encode(e)
			if h.alter != nil {
				body = alterJSON(body, h.alter)
			}
			d := &delivery{kind: kindEvent, eventID: e.str("event_id"), body: body, atOnce: h.atOnce}
			if i > 0 && !h.freshIDs || h.retryNum > 0 {
				d.shownRetry, d.reason = max(i, h.retryNum), "http_timeout"
			}
			s.enqueue(d)
		}
	}
}

// alterJSON lets a test change a document before it is sent.
func alterJSON(body json.RawMessage, f func(map[string]any)) json.RawMessage {
	var doc map[string]any
	if err := json.Unmarshal(body, &doc); err != nil {
		panic("slacktest: " + err.Error())
	}
	f(doc)
	return encode(doc)
}

// DeliverRaw delivers an event_callback document as it is: unknown types,
// unknown blocks, hostile bytes. Over Socket Mode it must be valid JSON, which
// is put into an envelope; see [Server.SendFrame] for what is no JSON at all.
func (s *Server) DeliverRaw(body string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.enqueue(&delivery{kind: kindEvent, body: json.RawMessage(body)})
}

// DeliverEvent wraps an inner event (a JSON object with a type) and delivers it
// for a channel.
func (s *Server) DeliverEvent(channel, inner string) {
	var event object
	if err := json.Unmarshal([]byte(inner), &event); err != nil {
		panic("slacktest: " + err.Error())
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.mustChannel(channel)
	if !event.has("event_ts") {
		event["event_ts"] = s.ts()
	}
	s.send([]object{s.callback(c, event)}, how{})
}

// EventBody is the document that Slack would deliver for a message with this
// text, with ids of its own and without a message behind it: raw material for
// [Server.PostRaw].
func (s *Server) EventBody(channel, user, text string) []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.mustChannel(channel)
	s.mustUser(user)
	m := &Message{Channel: c.ID, TS: s.ts(), User: user, Text: text}
	e := s.messageJSON(m, false)
	e["channel"], e["channel_type"], e["event_ts"] = c.ID, string(c.Kind), m.TS
	return encode(s.callback(c, e))
}
