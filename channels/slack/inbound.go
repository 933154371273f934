package slack

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/clawbot/clawbot/agent"
	"github.com/clawbot/clawbot/channels/text"
)

// How long a message may take before its acknowledgement. Slack waits 3 s.
const (
	lookupTime  = 1200 * time.Millisecond
	receiveTime = 2500 * time.Millisecond
)

// callback is the outer document of an event, as far as we read it. Everything
// in it was authenticated, by the socket or by the signature.
type callback struct {
	Type           string          `json:"type"`
	TeamID         string          `json:"team_id"`
	APIAppID       string          `json:"api_app_id"`
	Challenge      string          `json:"challenge"`
	IsExtShared    bool            `json:"is_ext_shared_channel"`
	Event          json.RawMessage `json:"event"`
	Authorizations []struct {
		TeamID       string `json:"team_id"`
		EnterpriseID string `json:"enterprise_id"`
	} `json:"authorizations"`
}

// message is a message or app_mention event, as far as we read it.
type message struct {
	Type        string          `json:"type"`
	Subtype     string          `json:"subtype"`
	Channel     string          `json:"channel"`
	ChannelType string          `json:"channel_type"`
	User        string          `json:"user"`
	Text        string          `json:"text"`
	TS          string          `json:"ts"`
	ThreadTS    string          `json:"thread_ts"`
	BotID       string          `json:"bot_id"`
	AppID       string          `json:"app_id"`
	Team        string          `json:"team"`
	UserTeam    string          `json:"user_team"`
	SourceTeam  string          `json:"source_team"`
	Hidden      bool            `json:"hidden"`
	Edited      json.RawMessage `json:"edited"`
	Files       []struct {
		Name  string `json:"name"`
		Title string `json:"title"`
	} `json:"files"`
}

// heard is a message that concerns us, before it is known who wrote it.
type heard struct {
	in        agent.Inbound
	addressed bool   // names the bot, or is a direct message: its author is told of a refusal
	blank     bool   // nothing to answer
	refusal   string // known from the event alone
}

// event takes an event document. done is called once, with nil if Slack may
// forget the event and an error if it should send it again. event returns at
// once.
func (a *Adapter) event(r *run, doc []byte, done func(error)) {
	var cb callback
	if err := json.Unmarshal(doc, &cb); err != nil {
		// Another delivery would be no more readable.
		a.log.Warn("event dropped: not readable", "err", err)
		done(nil)
		return
	}
	switch cb.Type {
	case "event_callback":
	case "app_rate_limited":
		a.log.Warn("Slack withholds events: more than 30,000 in an hour")
		done(nil)
		return
	default:
		a.log.Debug("event ignored", "type", cb.Type)
		done(nil)
		return
	}
	h, why := a.read(cb)
	if why != "" {
		a.log.Debug("event ignored", "why", why)
		done(nil)
		return
	}
	place := h.in.Origin.Place
	ok := r.lanes.do(place.Conversation+"/"+place.Thread, func() {
		err := errors.New("panic")
		defer func() { done(err) }()
		defer a.guard("message")
		err = a.receive(r, h)
		if err != nil {
			a.log.Error("message not stored, Slack will send it again", "key", h.in.Key, "err", err)
		}
	})
	if !ok {
		a.log.Error("message not taken: too much is waiting", "key", h.in.Key)
		done(errors.New("busy"))
	}
}

// read decides whether an event is a message for us, from the event alone. why
// says why not.
func (a *Adapter) read(cb callback) (h heard, why string) {
	var m message
	var kind struct {
		Type string `json:"type"`
	}
	if json.Unmarshal(cb.Event, &kind) != nil {
		return h, "no event"
	}
	if kind.Type != "message" && kind.Type != "app_mention" {
		return h, "type " + kind.Type
	}
	if err := json.Unmarshal(cb.Event, &m); err != nil {
		return h, "not readable: " + err.Error()
	}
	me := a.me()
	switch {
	case !me.concerns(cb):
		return h, "for another workspace"
	case me.appID != "" && cb.APIAppID != "" && cb.APIAppID != me.appID:
		return h, "for another app"
	case m.Channel == "" || m.TS == "" || m.User == "":
		return h, "no channel, ts or user"
	case m.Subtype != "" && m.Subtype != "file_share" && m.Subtype != "thread_broadcast":
		return h, "subtype " + m.Subtype // edits, deletions, joins, bot messages, and what may come
	case m.Hidden:
		return h, "hidden"
	case len(m.Edited) > 0 && string(m.Edited) != "null":
		return h, "an edit"
	case m.User == me.userID, m.BotID != "", m.AppID != "" && m.AppID == cb.APIAppID:
		// Ours by any of our names, or of another app: bots never trigger.
		return h, "from a bot"
	}

	// app_mention names no channel_type, and does not come from direct messages.
	direct := m.ChannelType == "im" || m.ChannelType == "" && strings.HasPrefix(m.Channel, "D")
	mention := m.Type == "app_mention" || mentions(m.Text, me.userID)
	thread := m.ThreadTS
	joinedOnly := false
	switch {
	case direct:
		// One conversation: what is not in a thread has none.
	case mention || a.cfg.Trigger == TriggerAll:
		if thread == "" {
			thread = m.TS
		}
	case thread != "" && thread != m.TS:
		joinedOnly = true
	default:
		return h, "does not name the bot"
	}

	h.addressed = mention || direct
	body := readText(m.Text, me)
	h.blank = text.Blank(body) && len(m.Files) == 0
	h.in = agent.Inbound{
		// Neither team nor event id: the same message comes with several of each.
		Key: m.Channel + ":" + m.TS,
		Origin: agent.Origin{
			Place:  agent.Place{Channel: Name, Workspace: me.workspace, Conversation: m.Channel, Thread: thread},
			Author: agent.Actor{Channel: Name, Workspace: me.home(m.UserTeam, m.SourceTeam, m.Team), User: m.User},
			Ref:    m.TS,
		},
		Text:       withFiles(body, m),
		JoinedOnly: joinedOnly,
	}
	if !direct && !a.cfg.Allow.admitsChannel(m.Channel) {
		h.refusal = "I cannot answer you: this channel is not one I may answer in."
	}
	return h, ""
}

// concerns reports whether an event was sent to our installation: with one
// signing secret an app may get the events of other workspaces too.
func (id identity) concerns(cb callback) bool {
	if len(cb.Authorizations) == 0 {
		return cb.TeamID == "" || cb.TeamID == id.workspace || cb.IsExtShared || id.enterprise
	}
	for _, au := range cb.Authorizations {
		if au.TeamID == id.workspace || id.enterprise && au.EnterpriseID == id.workspace {
			return true
		}
	}
	return false
}

// home is the workspace of an author: ours, unless one of the teams that the
// event names for the author is another one. Within an organisation the
// directory decides.
func (id identity) home(teams ...string) string {
	if id.enterprise {
		return id.workspace
	}
	for _, team := range teams {
		if team != "" && team != id.workspace {
			return team
		}
	}
	return id.workspace
}

// receive checks who wrote the message and hands it in. A message that names the
// bot comes twice, as message and as app_mention; the second is known to be stored,
// and the inlet would only find the same.
func (a *Adapter) receive(r *run, h heard) error {
	if a.stored.has(h.in.Key) {
		return nil
	}
	ctx, cancel := context.WithTimeout(r.ctx, receiveTime)
	defer cancel()
	refusal := h.refusal
	if refusal == "" {
		p, err := a.author(ctx, h.in.Origin.Author)
		if err != nil {
			if why, ok := hopeless(err); ok {
				a.setProblem("people", "cannot look people up, nobody is answered: "+why)
				a.log.Error("message refused: "+why, "key", h.in.Key)
				refusal = "I cannot answer you: I am not able to check who you are. Please tell whoever runs me."
			} else {
				return err
			}
		} else {
			a.setProblem("people", "")
			refusal = a.cfg.Allow.refusal(p)
			if p.Bot {
				return nil
			}
			h.in.Origin.AuthorName = p.Name
		}
	}
	if refusal == "" && h.blank {
		refusal = "Your message has no text I can read. Please write what you want me to do."
	}
	if refusal != "" {
		a.refuse(r, h, refusal)
		return nil
	}
	receipt, err := r.in.Receive(ctx, h.in)
	if err == nil && receipt.Session != "" {
		a.stored.add(h.in.Key)
	}
	return err
}

func (a *Adapter) author(ctx context.Context, who agent.Actor) (agent.Person, error) {
	ctx, cancel := context.WithTimeout(ctx, lookupTime)
	defer cancel()
	return a.Person(ctx, who, nil)
}

// refuse tells the author of a message that is not answered, once and only if
// the message was meant for us.
func (a *Adapter) refuse(r *run, h heard, reason string) {
	o := h.in.Origin
	a.log.Info("message refused", "author", o.Author.String(), "reason", reason)
	if !h.addressed || !a.told.add(h.in.Key) {
		return
	}
	r.clicks.do("", func() {
		defer a.guard("refusal")
		a.whisper(r.ctx, whisper{channel: o.Conversation, thread: o.Thread, user: o.Author.User, text: reason})
	})
}

// withFiles adds a line about files, which are not read.
func withFiles(body string, m message) string {
	if len(m.Files) == 0 {
		return body
	}
	const most = 10
	var names []string
	for i, f := range m.Files {
		if i == most {
			names = append(names, "…")
			break
		}
		name := f.Name
		if name == "" {
			name = f.Title
		}
		if name == "" {
			name = "without name"
		}
		if r := []rune(name); len(r) > 100 {
			name = string(r[:100]) + "…"
		}
		names = append(names, agent.VisibleLine(name))
	}
	note := fmt.Sprintf("(%d files attached: %s; files are not read yet)", len(m.Files), strings.Join(names, ", "))
	if len(m.Files) == 1 {
		note = fmt.Sprintf("(1 file attached: %s; files are not read yet)", names[0])
	}
	if text.Blank(body) {
		return note
	}
	return body + "\n\n" + note
}
