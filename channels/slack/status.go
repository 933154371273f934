package slack

import (
	"context"
	"errors"
	"strings"

	slackgo "github.com/slack-go/slack"

	"github.com/clawbot/clawbot/agent"
)

// verbStop is the button of a status line; its value is the turn's id.
const verbStop = "stop"

// statusBlocks draws a status line, all of it literal text.
func (a *Adapter) statusBlocks(s agent.Status) []slackgo.Block {
	elements := []slackgo.RichTextElement{section(bold(shorten(shown(s.Title), 200)))}
	for _, line := range s.Lines {
		elements = append(elements, section(plainText(shorten(shown(line), 300))))
	}
	blocks := []slackgo.Block{richText(a.blockID("status"), elements...)}
	if s.Open {
		stop := slackgo.NewButtonBlockElement(actionPrefix+verbStop, string(s.Turn), label("Stop"))
		blocks = append(blocks, slackgo.NewActionBlock(a.blockID("stop"), stop))
	}
	return blocks
}

// statusText is the status line for notifications and screen readers.
func statusText(s agent.Status) string {
	return escape(shorten(shown(strings.Join(append([]string{s.Title}, s.Lines...), "\n")), 2000))
}

// stop ends a turn for a person who may speak where its status line is. The place is
// that of the click, so a turn of another conversation is not found there.
func (a *Adapter) stop(r *run, i interaction, turn agent.TurnID) {
	ctx, cancel := context.WithTimeout(r.ctx, decideTime)
	defer cancel()
	who := a.clicker(i)
	p, err := a.author(ctx, who)
	switch why, hopelessly := hopeless(err); {
	case hopelessly:
		a.answer(r, i, "I am not able to check who you are, so nothing was stopped: "+why)
		return
	case err != nil:
		a.log.Warn("cannot look up who wants to stop a turn", "user", i.User.ID, "err", err)
		a.answer(r, i, "It could not be checked who you are, so nothing was stopped. Please try again.")
		return
	}
	refusal := a.cfg.Allow.refusal(p)
	if refusal == "" && !strings.HasPrefix(i.channel(), "D") && !a.cfg.Allow.admitsChannel(i.channel()) {
		refusal = "This channel is not one I may answer in."
	}
	if refusal != "" || p.Bot {
		a.answer(r, i, or(refusal, "Only people can stop this."))
		return
	}
	receipt, err := r.in.Receive(ctx, agent.Inbound{
		Key: "stop:" + string(turn) + ":" + who.String(), Text: "stop", Turn: turn,
		Origin: agent.Origin{
			Place:  agent.Place{Channel: Name, Workspace: a.me().workspace, Conversation: i.channel(), Thread: i.thread()},
			Author: who, AuthorName: p.Name, Ref: i.Container.MessageTS,
		},
	})
	switch {
	case errors.Is(err, context.Canceled):
	case err != nil:
		a.log.Error("a turn could not be stopped", "turn", string(turn), "err", err)
		a.answer(r, i, "This could not be stored, and nothing was stopped. Please try again, or write stop.")
	case !receipt.Stopped:
		a.answer(r, i, "There is nothing to stop: this is over, or somebody has stopped it already.")
	}
}
