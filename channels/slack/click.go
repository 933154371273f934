package slack

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"time"

	slackgo "github.com/slack-go/slack"

	"github.com/clawbot/clawbot/agent"
)

// How long the parts of a click may take. A trigger_id lives three seconds.
const (
	cardTime   = 2 * time.Second
	decideTime = 20 * time.Second
	uploadTime = 60 * time.Second
)

// actionPrefix begins the action_id of our buttons; the verb follows.
const actionPrefix = "clawbot_"

// interaction is a click or a modal, as far as we read it. It was
// authenticated; channel and thread still serve for answers to the clicker only.
type interaction struct {
	Type        string `json:"type"`
	TriggerID   string `json:"trigger_id"`
	ResponseURL string `json:"response_url"`
	APIAppID    string `json:"api_app_id"`
	User        struct {
		ID       string `json:"id"`
		TeamID   string `json:"team_id"`
		Name     string `json:"name"`
		Username string `json:"username"`
	} `json:"user"`
	Enterprise *struct {
		ID string `json:"id"`
	} `json:"enterprise"`
	Container struct {
		ChannelID string `json:"channel_id"`
		MessageTS string `json:"message_ts"`
		ThreadTS  string `json:"thread_ts"`
	} `json:"container"`
	Channel struct {
		ID string `json:"id"`
	} `json:"channel"`
	Message struct {
		ThreadTS string `json:"thread_ts"`
	} `json:"message"`
	Actions []struct {
		ActionID string `json:"action_id"`
		Value    string `json:"value"`
	} `json:"actions"`
	View submission `json:"view"` // of a dialog
}

// interaction takes an interaction that is acknowledged already, and returns at
// once.
func (a *Adapter) interaction(r *run, doc []byte) {
	var i interaction
	if err := json.Unmarshal(doc, &i); err != nil {
		a.log.Warn("click dropped: not readable", "err", err)
		return
	}
	me := a.me()
	switch {
	case i.Type != "block_actions" && i.Type != "view_submission":
		a.log.Debug("interaction ignored", "type", i.Type)
		return
	case me.appID != "" && i.APIAppID != "" && i.APIAppID != me.appID:
		a.log.Warn("click dropped: for another app")
		return
	case i.User.ID == "":
		a.log.Warn("click dropped: it names nobody")
		return
	}
	if i.Type == "view_submission" {
		ok := r.clicks.do("", func() {
			defer a.guard("dialog")
			a.submitted(r, i)
		})
		if !ok {
			a.log.Error("dialog not taken: too much is waiting", "user", i.User.ID)
		}
		return
	}
	for _, act := range i.Actions {
		ok := r.clicks.do("", func() {
			defer a.guard("click")
			a.click(r, i, act.ActionID, agent.ApprovalID(act.Value))
		})
		if !ok {
			a.log.Error("click not taken: too much is waiting", "approval", act.Value, "user", i.User.ID)
		}
	}
}

// click does what a button says.
func (a *Adapter) click(r *run, i interaction, action string, id agent.ApprovalID) {
	verb := agent.Verb(strings.TrimPrefix(action, actionPrefix))
	switch {
	case !strings.HasPrefix(action, actionPrefix) || id == "":
		a.log.Warn("click on an unknown button", "action", action)
		a.answer(r, i, "I do not know this button.")
	case verb == verbStop:
		a.stop(r, i, agent.TurnID(id))
	case verb == agent.VerbDetails:
		a.details(r, i, id)
	case verb == agent.VerbApprove || verb == agent.VerbDeny || verb == agent.VerbInput || verb == agent.VerbAlways:
		c := agent.Click{Approval: id, Verb: verb, Actor: a.clicker(i), ActorName: i.name(), Backchannel: Name}
		switch {
		case verb == agent.VerbApprove:
			a.decide(r, i, c)
		case a.dialog(r, i, c):
		case verb == agent.VerbDeny: // a no must not be lost with its form
			a.decide(r, i, c)
		default:
			a.answer(r, i, "The form could not be opened in time and nothing was decided. Please click again.")
		}
	default:
		a.log.Warn("click on an unknown button", "action", action)
		a.answer(r, i, "I do not know this button.")
	}
}

func (i interaction) name() string {
	if i.User.Name != "" {
		return i.User.Name
	}
	return i.User.Username
}

// clicker is the person who clicked, from the authenticated payload. A person
// of another workspace is that workspace's, so no list of ours names them.
func (a *Adapter) clicker(i interaction) agent.Actor {
	me := a.me()
	team := i.User.TeamID
	switch {
	case me.enterprise && i.Enterprise != nil && i.Enterprise.ID == me.workspace, team == "":
		team = me.workspace
	}
	return agent.Actor{Channel: Name, Workspace: team, User: i.User.ID}
}

func (a *Adapter) decide(r *run, i interaction, c agent.Click) {
	ctx, cancel := context.WithTimeout(r.ctx, decideTime)
	defer cancel()
	v, err := r.in.Decide(ctx, c)
	switch {
	case err != nil:
		a.log.Error("click not decided", "approval", string(c.Approval), "actor", c.Actor.String(), "err", err)
		a.answer(r, i, "Your click could not be recorded. Nothing was decided; please try again.")
	case !v.Accepted:
		a.answer(r, i, v.Text)
	}
	// An accepted decision shows on the card, which is drawn again from what was
	// stored.
}

// details opens a modal with the whole of the arguments.
func (a *Adapter) details(r *run, i interaction, id agent.ApprovalID) {
	ctx, cancel := context.WithTimeout(r.ctx, cardTime)
	defer cancel()
	card, err := r.in.Card(ctx, id)
	switch {
	case errors.Is(err, agent.ErrNotFound):
		a.answer(r, i, "I do not know this request.")
		return
	case err != nil:
		a.log.Error("cannot read card", "approval", string(id), "err", err)
		a.answer(r, i, "The details could not be read. Please try again.")
		return
	}
	view, whole := a.modal(card)
	if _, err := a.api.OpenViewContext(ctx, i.TriggerID, view); err != nil {
		a.log.Warn("cannot open details", "approval", string(id), "err", err)
		a.answer(r, i, "The details could not be opened in time. Please click Details again.")
		if whole {
			return
		}
	}
	if !whole {
		a.uploadArgs(r, i, card)
	}
}

// uploadArgs puts the whole of the arguments into the thread as a file, once.
func (a *Adapter) uploadArgs(r *run, i interaction, card agent.Card) {
	if !a.files.add(string(card.Approval)) {
		return
	}
	ctx, cancel := context.WithTimeout(r.ctx, uploadTime)
	defer cancel()
	_, err := a.api.UploadFileContext(ctx, slackgo.UploadFileParameters{
		Content:         card.Full,
		FileSize:        len(card.Full),
		Filename:        fileName(card),
		Title:           fileName(card),
		Channel:         i.channel(),
		ThreadTimestamp: i.thread(),
	})
	if err != nil {
		a.files.remove(string(card.Approval))
		a.log.Error("cannot upload arguments", "approval", string(card.Approval), "err", err)
		a.answer(r, i, "The whole of the arguments could not be uploaded. Please click Details again.")
	}
}

func (i interaction) channel() string {
	if i.Channel.ID != "" {
		return i.Channel.ID
	}
	return i.Container.ChannelID
}

func (i interaction) thread() string {
	if i.Container.ThreadTS != "" {
		return i.Container.ThreadTS
	}
	return i.Message.ThreadTS
}

// answer says something to the clicker alone.
func (a *Adapter) answer(r *run, i interaction, text string) {
	a.whisper(r.ctx, whisper{channel: i.channel(), thread: i.thread(), user: i.User.ID, text: text, responseURL: i.ResponseURL})
}
