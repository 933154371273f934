package slack

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	slackgo "github.com/slack-go/slack"

	"github.com/clawbot/clawbot/agent"
	"github.com/clawbot/clawbot/channels/text"
)

// Slack advises 4,000 characters of text and refuses more on updates. Blocks
// fail somewhere beyond 13,000 characters of JSON, which is documented nowhere.
const (
	maxText   = 4000
	maxBlocks = 12000
)

// eventType marks our messages, so that one whose delivery is not certain can
// be found again.
const eventType = "clawbot_delivery"

// Split cuts a text of the model into parts of at most 4,000 characters, counted
// as they are sent.
func (a *Adapter) Split(md string) []string { return text.Split(md, maxText, size) }

// size measures a part by whatever limit it comes nearest to, scaled to maxText.
func size(md string) int {
	n := units(fallback(md))
	if n > maxText {
		return n // rendering much more than fits would take long
	}
	blocks, err := json.Marshal(markdownBlocks(md, ""))
	if err != nil {
		return maxText + 1
	}
	return max(n, (units(string(blocks))*maxText+maxBlocks-1)/maxBlocks)
}

// units counts UTF-16 code units, the largest of the counts Slack may use.
func units(s string) int {
	n := 0
	for _, r := range s {
		n++
		if r > 0xFFFF {
			n++
		}
	}
	return n
}

// Post sends a message. Where an earlier attempt with the same key and content
// ended without an answer, it looks first whether the message is there already.
// A card that went out already under its key is drawn again instead.
func (a *Adapter) Post(ctx context.Context, to agent.Place, p agent.Post) (ref string, err error) {
	body, blocks, err := a.content(p)
	if err != nil {
		return "", err
	}
	mark := marking{ID: string(p.Key), Part: agent.SHA256(partOf(p))[:12]}
	if ref, ok := a.sent.get(mark.key()); ok && p.Key != "" {
		// It went out, and whoever sent it could not record that.
		if p.Card != nil || p.Status != nil {
			return ref, a.Edit(ctx, to, ref, p)
		}
		return ref, nil
	}
	if p.Unsure || a.unsure.has(mark.key()) {
		ref, err := a.find(ctx, to, mark)
		if e := sendError(err); err != nil && !e.Permanent { // where looking is not allowed, twice is better than never
			e.Unsure = true
			return "", e
		}
		if ref != "" {
			a.settle(mark, ref)
			return ref, nil
		}
	}
	opts := append(quiet(), slackgo.MsgOptionText(body, false), slackgo.MsgOptionBlocks(blocks...))
	if to.Thread != "" {
		opts = append(opts, slackgo.MsgOptionTS(to.Thread))
	}
	if p.Key != "" {
		opts = append(opts, slackgo.MsgOptionMetadata(slackgo.SlackMetadata{
			EventType: eventType, EventPayload: map[string]any{"id": mark.ID, "part": mark.Part},
		}))
	}
	key := "chat.postMessage " + to.Conversation
	if err := a.pace.wait(ctx, key, posts); err != nil {
		return "", err
	}
	_, ts, err := a.api.PostMessageContext(ctx, to.Conversation, opts...)
	if err == nil && ts == "" {
		err = errors.New("the answer names no message") // slack-go takes {} for success
	}
	if err != nil {
		e := a.failed(key, err)
		if p.Key != "" && errorCode(err) == "" && !isRateLimit(err) {
			a.unsure.add(mark.key())
			e.Unsure = true
		}
		return "", e
	}
	if p.Key != "" {
		a.settle(mark, ts)
	}
	return ts, nil
}

// settle notes that a message is out.
func (a *Adapter) settle(m marking, ref string) {
	a.unsure.remove(m.key())
	a.sent.put(m.key(), ref)
}

// Edit replaces a message of ours.
func (a *Adapter) Edit(ctx context.Context, to agent.Place, ref string, p agent.Post) error {
	body, blocks, err := a.content(p)
	if err != nil {
		return err
	}
	const key = "chat.update"
	if err := a.pace.wait(ctx, key, updates); err != nil {
		return err
	}
	opts := append(quiet(), slackgo.MsgOptionText(body, false), slackgo.MsgOptionBlocks(blocks...))
	_, ts, _, err := a.api.UpdateMessageContext(ctx, to.Conversation, ref, opts...)
	if err == nil && ts == "" {
		err = errors.New("the answer names no message")
	}
	if err != nil {
		return a.failed(key, err)
	}
	return nil
}

// content is what a post looks like: text for notifications, and blocks.
func (a *Adapter) content(p agent.Post) (body string, blocks []slackgo.Block, err error) {
	switch {
	case p.Card != nil:
		body, blocks = cardText(*p.Card), a.cardBlocks(*p.Card)
	case p.Status != nil:
		body, blocks = statusText(*p.Status), a.statusBlocks(*p.Status)
	default:
		if text.Blank(p.Text) {
			return "", nil, &agent.SendError{Permanent: true, Reason: "no_text"}
		}
		body, blocks = fallback(p.Text), markdownBlocks(p.Text, a.blockID("text"))
	}
	if units(body) > maxText {
		return "", nil, &agent.SendError{Permanent: true, Reason: "msg_too_long"}
	}
	return body, blocks, nil
}

// partOf is what tells the parts of one delivery from each other.
func partOf(p agent.Post) string {
	if p.Card != nil {
		return "card " + string(p.Card.Approval)
	}
	if p.Status != nil {
		return "status " + string(p.Status.Turn)
	}
	return p.Text
}

// blockID makes a block id that was not used before, as an update needs.
func (a *Adapter) blockID(name string) string {
	return name + "-" + strconv.FormatInt(a.blocks.Add(1), 36)
}

// quiet is what every message is sent with: no previews, which would fetch
// addresses that a model wrote, and no names or addresses found in text.
// chat.update parses unless told not to.
func quiet() []slackgo.MsgOption {
	return []slackgo.MsgOption{
		slackgo.MsgOptionDisableLinkUnfurl(),
		slackgo.MsgOptionDisableMediaUnfurl(),
		slackgo.MsgOptionParse(false),
		slackgo.MsgOptionLinkNames(false),
	}
}

// failed turns an error of a call into a *agent.SendError and, where Slack asked
// for a pause, holds back all other calls with the same key.
func (a *Adapter) failed(key string, err error) *agent.SendError {
	e := sendError(err)
	if e.RetryAfter > 0 {
		a.pace.hold(key, e.RetryAfter)
	}
	return e
}

// marking is the metadata of a message of ours.
type marking struct {
	ID   string `json:"id"`
	Part string `json:"part"`
}

func (m marking) key() string { return m.ID + "/" + m.Part }

// find looks for a message of ours by its marking; "" if it is not there.
func (a *Adapter) find(ctx context.Context, in agent.Place, want marking) (ts string, err error) {
	const pages, perPage = 5, 200
	form := url.Values{"channel": {in.Conversation}, "limit": {strconv.Itoa(perPage)}, "include_all_metadata": {"true"}}
	method := "conversations.history" // newest first
	if in.Thread != "" {
		method = "conversations.replies"
		form.Set("ts", in.Thread)
	}
	for range pages {
		var page struct {
			Messages []struct {
				TS       string `json:"ts"`
				Metadata struct {
					EventType string  `json:"event_type"`
					Payload   marking `json:"event_payload"`
				} `json:"metadata"`
			} `json:"messages"`
			Next struct {
				Cursor string `json:"next_cursor"`
			} `json:"response_metadata"`
		}
		if err := a.call(ctx, method, form, &page); err != nil {
			return "", fmt.Errorf("%s: %w", method, err)
		}
		for _, m := range page.Messages {
			if m.Metadata.EventType == eventType && m.Metadata.Payload == want {
				return m.TS, nil
			}
		}
		if page.Next.Cursor == "" {
			break
		}
		form.Set("cursor", page.Next.Cursor)
	}
	return "", nil
}

// call makes a Web API call whose answer slack-go could not read: one message
// with an element unknown to it makes it refuse the whole history.
func (a *Adapter) call(ctx context.Context, method string, form url.Values, out any) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, a.cfg.APIURL+method, strings.NewReader(form.Encode()))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	req.Header.Set("Authorization", "Bearer "+a.cfg.Secrets.BotToken)
	res, err := a.cfg.HTTP.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = res.Body.Close() }()
	if res.StatusCode == http.StatusTooManyRequests {
		seconds, _ := strconv.Atoi(res.Header.Get("Retry-After"))
		return &slackgo.RateLimitedError{RetryAfter: time.Duration(seconds) * time.Second}
	}
	if res.StatusCode != http.StatusOK {
		return slackgo.StatusCodeError{Code: res.StatusCode, Status: res.Status}
	}
	var raw json.RawMessage
	if err := json.NewDecoder(http.MaxBytesReader(nil, res.Body, readLimit)).Decode(&raw); err != nil {
		return err
	}
	var status struct {
		OK    bool   `json:"ok"`
		Error string `json:"error"`
	}
	if err := json.Unmarshal(raw, &status); err != nil {
		return err
	}
	if !status.OK {
		if status.Error == "" {
			return errors.New("refused without a reason")
		}
		return slackgo.SlackErrorResponse{Err: status.Error}
	}
	return json.Unmarshal(raw, out)
}
