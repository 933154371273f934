package slack

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"strings"
	"time"

	slackgo "github.com/slack-go/slack"
)

const whisperTime = 10 * time.Second

// whisper is a message for one person.
type whisper struct {
	channel, thread, user string
	text                  string // plain
	responseURL           string // second way, where there is one
}

func (a *Adapter) whisper(ctx context.Context, w whisper) {
	ctx, cancel := context.WithTimeout(ctx, whisperTime)
	defer cancel()
	body := escape(shorten(plain(w.text), 2000))
	if strings.TrimSpace(body) == "" {
		body = "This was not done."
	}
	opts := append(quiet(), slackgo.MsgOptionText(body, false))
	if w.thread != "" {
		opts = append(opts, slackgo.MsgOptionTS(w.thread))
	}
	err := errors.New("no channel")
	if w.channel != "" {
		_, err = a.api.PostEphemeralContext(ctx, w.channel, w.user, opts...)
	}
	if err == nil {
		return
	}
	if w.responseURL != "" {
		if err2 := a.respond(ctx, w.responseURL, body); err2 == nil {
			return
		}
	}
	a.log.Warn("cannot tell a person", "user", w.user, "err", err)
}

// respond posts to a response_url, which must be Slack's: it came in a document.
func (a *Adapter) respond(ctx context.Context, address, body string) error {
	if !a.isSlack(address) {
		return errors.New("response_url is no address of Slack")
	}
	doc, err := json.Marshal(map[string]any{
		"response_type": "ephemeral", "replace_original": false, "text": body,
		"parse": "none", "link_names": false, "unfurl_links": false, "unfurl_media": false,
	})
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, address, bytes.NewReader(doc))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json; charset=utf-8")
	res, err := a.cfg.HTTP.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = res.Body.Close() }()
	if res.StatusCode != http.StatusOK {
		return errors.New("response_url answered " + res.Status)
	}
	return nil
}

// isSlack reports whether an address is one of Slack's, or of the API that the
// settings name.
func (a *Adapter) isSlack(address string) bool {
	u, err := url.Parse(address)
	if err != nil {
		return false
	}
	if api, err := url.Parse(a.cfg.APIURL); err == nil && u.Scheme == api.Scheme && strings.EqualFold(u.Host, api.Host) {
		return true
	}
	host := strings.ToLower(u.Hostname())
	return u.Scheme == "https" && (strings.HasSuffix(host, ".slack.com") || strings.HasSuffix(host, ".slack-gov.com"))
}
