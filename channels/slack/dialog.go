package slack

import (
	"context"
	"encoding/json"
	"strconv"
	"strings"
	"time"

	slackgo "github.com/slack-go/slack"

	"github.com/clawbot/clawbot/agent"
)

// Limits of what a person types, below those of Slack (3000 characters).
const (
	maxReason = 1000
	maxAnswer = 3000
)

// The fields of dialogs; block and action share the name.
const (
	fieldValue   = "clawbot_value"
	fieldReason  = "clawbot_reason"
	fieldInstead = "clawbot_instead"
	fieldLong    = "clawbot_long"
	fieldUses    = "clawbot_uses"
)

// choice is what a person can pick; the value is what is sent.
type choice struct{ value, text string }

// What a standing consent may be, from the least.
var (
	howLong = []choice{{"1h", "1 hour"}, {"8h", "8 hours"}, {"24h", "1 day"}, {"168h", "7 days"}}
	howMany = []choice{{"1", "once more"}, {"5", "5 times"}, {"20", "20 times"}, {"100", "100 times"}}
)

// submission is what a person typed into a dialog.
type submission struct {
	CallbackID string `json:"callback_id"`
	Metadata   string `json:"private_metadata"`
	State      struct {
		Values map[string]map[string]struct {
			Value    string `json:"value"`
			Selected struct {
				Value string `json:"value"`
			} `json:"selected_option"`
		} `json:"values"`
	} `json:"state"`
}

func (s submission) field(name string) string {
	return strings.TrimSpace(s.State.Values[name][name].Value)
}

func (s submission) picked(name string) string { return s.State.Values[name][name].Selected.Value }

// dialogAbout is what a dialog carries. Only the approval counts, and what may be
// done with it the desk decides; channel and thread serve for answers to the clicker.
type dialogAbout struct {
	Approval agent.ApprovalID `json:"approval"`
	Channel  string           `json:"channel"`
	Thread   string           `json:"thread"`
}

// dialog opens a form for what a person wants to do, if that person may. It returns
// false where the form cannot be opened.
func (a *Adapter) dialog(r *run, i interaction, c agent.Click) (done bool) {
	ctx, cancel := context.WithTimeout(r.ctx, cardTime)
	defer cancel()
	c.Try = true
	v, err := r.in.Decide(ctx, c)
	if err != nil {
		return false
	}
	if !v.Accepted {
		a.answer(r, i, v.Text)
		return true
	}
	id, verb := c.Approval, c.Verb
	card, err := r.in.Card(ctx, id)
	if err != nil {
		return false
	}
	about, err := json.Marshal(dialogAbout{Approval: id, Channel: i.channel(), Thread: i.thread()})
	if err != nil {
		return false
	}
	view := slackgo.ModalViewRequest{
		Type:            slackgo.VTModal,
		CallbackID:      actionPrefix + string(verb),
		PrivateMetadata: string(about),
		Close:           label("Cancel"),
	}
	switch verb {
	case agent.VerbInput:
		a.inputForm(&view, card)
	case agent.VerbAlways:
		a.alwaysForm(&view, card)
	default:
		a.denyForm(&view, card)
	}
	if _, err := a.api.OpenViewContext(ctx, i.TriggerID, view); err != nil {
		a.log.Warn("cannot open a dialog", "approval", string(id), "err", err)
		return false
	}
	return true
}

// inputForm asks for the value that a rule wants.
func (a *Adapter) inputForm(view *slackgo.ModalViewRequest, c agent.Card) {
	view.Title, view.Submit = label("Approve with a value"), label("Approve")
	head := []slackgo.RichTextElement{section(bold(shorten(shown(or(c.Title, "Approval")), 300)))}
	name := "value"
	if in := c.Input; in != nil {
		name = or(shorten(shown(in.Arg), 100), name)
		if in.Prompt != "" {
			head = append(head, section(plainText(shorten(shown(in.Prompt), 1000))))
		}
		if in.Secret {
			head = append(head, section(italic("The value is used for this call and shown to nobody.")))
		}
	}
	view.Blocks.BlockSet = []slackgo.Block{richText(a.blockID("head"), head...)}
	if full := shown(c.Full); full != "" {
		view.Blocks.BlockSet = append(view.Blocks.BlockSet, richText(a.blockID("args"), preformatted(shorten(full, modalBlock))))
	}
	view.Blocks.BlockSet = append(view.Blocks.BlockSet, field(fieldValue, name, maxAnswer, false, false))
}

// alwaysForm asks how far a standing consent goes. It says what it covers.
func (a *Adapter) alwaysForm(view *slackgo.ModalViewRequest, c agent.Card) {
	view.Title, view.Submit = label("Always allow"), label("Always allow")
	view.Blocks.BlockSet = []slackgo.Block{
		richText(a.blockID("head"), section(bold(shorten(shown(or(c.Title, "Approval")), 300))),
			section(plainText("This call runs now. The same call, with exactly these arguments, in this conversation and for the same person, is then not asked about again. A change of who may decide or of the tool ends that, and so does: clawbot grants revoke"))),
	}
	if full := shown(c.Full); full != "" {
		view.Blocks.BlockSet = append(view.Blocks.BlockSet, richText(a.blockID("args"), preformatted(shorten(full, modalBlock))))
	}
	view.Blocks.BlockSet = append(view.Blocks.BlockSet, pick(fieldLong, "For", howLong, 0), pick(fieldUses, "At most", howMany, 1))
}

// pick is a list to choose from.
func pick(name, title string, list []choice, initial int) *slackgo.InputBlock {
	var options []*slackgo.OptionBlockObject
	for _, c := range list {
		options = append(options, slackgo.NewOptionBlockObject(c.value, label(c.text), nil))
	}
	e := slackgo.NewOptionsSelectBlockElement(slackgo.OptTypeStatic, nil, name, options...)
	e.InitialOption = options[initial]
	return slackgo.NewInputBlock(name, label(title), nil, e)
}

// denyForm asks for words that go with a no. Both fields may stay empty.
func (a *Adapter) denyForm(view *slackgo.ModalViewRequest, c agent.Card) {
	view.Title, view.Submit = label("Deny"), label("Deny")
	view.Blocks.BlockSet = []slackgo.Block{
		richText(a.blockID("head"), section(bold(shorten(shown(or(c.Title, "Approval")), 300)))),
		field(fieldReason, "Reason", maxReason, false, true),
		field(fieldInstead, "Answer instead", maxAnswer, true, true),
	}
}

func label(text string) *slackgo.TextBlockObject {
	return slackgo.NewTextBlockObject(slackgo.PlainTextType, text, false, false)
}

// field is a text to type.
func field(name, title string, most int, lines, optional bool) *slackgo.InputBlock {
	e := slackgo.NewPlainTextInputBlockElement(nil, name)
	e.MaxLength, e.Multiline = most, lines
	b := slackgo.NewInputBlock(name, label(title), nil, e)
	b.Optional = optional
	return b
}

// submitted applies what a person typed into a dialog. It is acknowledged already.
func (a *Adapter) submitted(r *run, i interaction) {
	var about dialogAbout
	if err := json.Unmarshal([]byte(i.View.Metadata), &about); err != nil || about.Approval == "" {
		a.log.Warn("dialog dropped: it says nothing that is understood", "callback", i.View.CallbackID)
		return
	}
	i.Channel.ID, i.Container.ThreadTS = about.Channel, about.Thread
	c := agent.Click{Approval: about.Approval, Actor: a.clicker(i), ActorName: i.name(), Backchannel: Name}
	switch agent.Verb(strings.TrimPrefix(i.View.CallbackID, actionPrefix)) {
	case agent.VerbInput:
		c.Verb, c.Value = agent.VerbInput, i.View.field(fieldValue)
	case agent.VerbDeny:
		c.Verb, c.Reason = agent.VerbDeny, i.View.field(fieldReason)
		if instead := i.View.field(fieldInstead); instead != "" {
			c.Verb, c.Value = agent.VerbReplace, instead
		}
	case agent.VerbAlways:
		var err1, err2 error
		c.Verb = agent.VerbAlways
		c.AlwaysFor, err1 = time.ParseDuration(i.View.picked(fieldLong))
		c.AlwaysUses, err2 = strconv.Atoi(i.View.picked(fieldUses))
		if err1 != nil || err2 != nil {
			a.log.Warn("dialog dropped: it says nothing that is understood", "callback", i.View.CallbackID)
			return
		}
	default:
		a.log.Debug("dialog ignored", "callback", i.View.CallbackID)
		return
	}
	a.decide(r, i, c)
}
