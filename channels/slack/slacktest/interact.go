package slacktest

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"time"
)

// Errors that a person's action can meet. Slack does not send an interaction
// again: the person sees a warning sign.
var (
	ErrNotConnected = errors.New("the program has no live connection")
	ErrNotAcked     = errors.New("the program did not acknowledge in time")
)

// Click has a user click a button, named by its label or action_id, on a
// message as it stands now, and waits for the acknowledgement. It is an error if
// there is no such button, if there are several ([InBlock] tells them apart), if
// the user cannot see the message, or if the program does not acknowledge.
func (s *Server) Click(user string, on Message, button string, opts ...How) error {
	h := collect(opts)
	s.mu.Lock()
	payload, err := s.clickPayload(user, on, button, h)
	s.mu.Unlock()
	if err != nil {
		return fmt.Errorf("click %q: %w", button, err)
	}
	return s.clicked(payload, h)
}

// ClickRaw delivers an interaction document as it is.
func (s *Server) ClickRaw(document map[string]any) error { return s.clicked(document, how{}) }

// clicked delivers an interaction that nobody answers with content. It takes
// s.mu itself.
func (s *Server) clicked(payload object, h how) error {
	body := encode(payload)
	if h.alter != nil {
		body = alterJSON(body, h.alter)
	}
	_, err := s.interact(&delivery{kind: kindInteractive, body: body})
	return err
}

// clickPayload builds the block_actions document of a click on a message.
func (s *Server) clickPayload(user string, on Message, button string, h how) (object, error) {
	u := s.mustUser(user)
	c := s.mustChannel(on.Channel)
	m := s.find(on.Channel, on.TS)
	if m == nil {
		return nil, errors.New("the message is gone")
	}
	if !c.has(u.ID) {
		return nil, fmt.Errorf("%s is not in %s", u.ID, c.ID)
	}
	if m.EphemeralTo != "" && m.EphemeralTo != u.ID {
		return nil, fmt.Errorf("only %s sees the message", m.EphemeralTo)
	}
	blocks := m.allBlocks()
	if h.stale {
		blocks = (&Message{Blocks: on.Blocks, Attachments: on.Attachments}).allBlocks()
	}
	element, err := findButton(blocks, button, h.inBlock)
	if err != nil {
		return nil, err
	}
	container := object{
		"type": "message", "message_ts": m.TS, "channel_id": c.ID, "is_ephemeral": m.EphemeralTo != "",
	}
	if m.ThreadTS != "" {
		container["thread_ts"] = m.ThreadTS
	}
	p := s.interaction("block_actions", u, "")
	p["container"] = container
	p["channel"] = object{"id": c.ID, "name": channelName(c)}
	p["message"] = s.messageJSON(m, true)
	p["state"] = object{"values": object{}}
	p["response_url"] = s.newResponseURL(responseURL{channel: c.ID, thread: m.ThreadTS, user: u.ID, original: m})
	p["actions"] = []object{s.actionJSON(element)}
	return p, nil
}

// findButton finds the one button that a person means.
func findButton(blocks []object, name, inBlock string) (object, error) {
	var found []object
	var labels []string
	for _, b := range blocks {
		candidates := b.list("elements")
		if a := b.obj("accessory"); a != nil {
			candidates = append(candidates, a)
		}
		for _, e := range candidates {
			if e.str("type") != "button" || (inBlock != "" && b.str("block_id") != inBlock) {
				continue
			}
			label := decode(e.obj("text").str("text"))
			labels = append(labels, label)
			if label == name || e.str("action_id") == name {
				e["block_id"] = b.str("block_id")
				found = append(found, e)
			}
		}
	}
	switch len(found) {
	case 0:
		return nil, fmt.Errorf("no such button; there are %q", labels)
	case 1:
		return found[0], nil
	}
	return nil, fmt.Errorf("%d such buttons: say which with InBlock", len(found))
}

// actionJSON is a clicked button as an interaction shows it.
func (s *Server) actionJSON(e object) object {
	action := object{"type": "button", "action_ts": s.ts()}
	for _, key := range []string{"action_id", "block_id", "text", "value", "style", "url"} {
		if e.has(key) {
			action[key] = e[key]
		}
	}
	return action
}

func channelName(c *Channel) string {
	if c.Kind == IM {
		return "directmessage"
	}
	return c.Name
}

// interaction is what all interaction documents have in common.
func (s *Server) interaction(kind string, u *User, view string) object {
	return object{
		"type": kind, "api_app_id": AppID, "token": "slacktest-verification", "trigger_id": s.newTrigger(u.ID, view),
		"user":       object{"id": u.ID, "username": u.Name, "name": u.Name, "team_id": u.TeamID},
		"team":       object{"id": TeamID, "domain": "example"},
		"enterprise": nil, "is_enterprise_install": false,
	}
}

// Command has a user type a slash command into a channel. What comes with the
// acknowledgement is shown to the user. Slack has no commands in threads.
func (s *Server) Command(user, channel, command, text string, opts ...How) error {
	h := collect(opts)
	s.mu.Lock()
	u, c := s.mustUser(user), s.mustChannel(channel)
	if !s.scopes["commands"] {
		s.mu.Unlock()
		return errors.New("slash command: the scope commands was not granted")
	}
	r := responseURL{channel: c.ID, user: u.ID}
	fields := map[string]string{
		"token": "slacktest-verification", "team_id": TeamID, "team_domain": "example", "channel_id": c.ID,
		"channel_name": channelName(c), "user_id": u.ID, "user_name": u.Name, "command": command, "text": text,
		"api_app_id": AppID, "is_enterprise_install": "false", "response_url": s.newResponseURL(r),
		"trigger_id": s.newTrigger(u.ID, ""),
	}
	s.mu.Unlock()
	body, form := encode(fields), url.Values{}
	if h.alter != nil {
		body = alterJSON(body, h.alter)
	}
	var sent map[string]any
	_ = json.Unmarshal(body, &sent)
	for k, v := range sent {
		form.Set(k, fmt.Sprint(v))
	}
	if v, ok := sent["is_enterprise_install"].(string); ok { // a boolean on a socket
		sent["is_enterprise_install"] = v == "true"
		body = encode(sent)
	}
	answer, err := s.interact(&delivery{kind: kindCommand, body: body, form: form})
	if err != nil || answer == nil {
		return err
	}
	return s.showAnswer(r, answer)
}

// showAnswer posts what a slash command was acknowledged with. It takes s.mu
// itself.
func (s *Server) showAnswer(r responseURL, answer json.RawMessage) error {
	var sent struct {
		Text         string          `json:"text"`
		Blocks       json.RawMessage `json:"blocks"`
		ResponseType string          `json:"response_type"`
	}
	if json.Unmarshal(answer, &sent) != nil {
		return fmt.Errorf("slash command: unreadable answer %.100s", answer)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	in := args{"text": sent.Text, "blocks": string(sent.Blocks), "parse": "none"}
	if err := s.answerInteraction(&r, in, "", sent.ResponseType, false, false); err != nil {
		return fmt.Errorf("slash command: answer refused: %w", err)
	}
	return nil
}

// interact delivers an interaction and returns what it was acknowledged with.
// It takes s.mu itself.
func (s *Server) interact(d *delivery) (json.RawMessage, error) {
	s.mu.Lock()
	base := s.httpBase
	s.mu.Unlock()
	if base != "" {
		start := time.Now()
		a, err := s.postInteraction(base, d)
		if err != nil {
			return nil, fmt.Errorf("%w: %w", ErrNotAcked, err)
		}
		if a.Status < 200 || a.Status > 299 {
			return nil, fmt.Errorf("%w: status %d", ErrNotAcked, a.Status)
		}
		d.answer = payload(a.Body)
		s.mu.Lock()
		defer s.mu.Unlock()
		s.acks = append(s.acks, Ack{Kind: d.kind, Latency: time.Since(start), Status: a.Status, Payload: d.answer})
		s.notify()
		return d.answer, nil
	}
	a := s.sendEnvelope(d)
	if a == nil {
		return nil, ErrNotConnected
	}
	if !s.await(a) {
		return nil, ErrNotAcked
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return d.answer, nil
}
