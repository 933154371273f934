package slacktest_test

import (
	"context"
	"io"
	"log"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/slack-go/slack"
	"github.com/slack-go/slack/slackevents"
	"github.com/slack-go/slack/socketmode"
	"go.uber.org/goleak"

	"github.com/clawbot/clawbot/channels/slack/slacktest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// client is the real Slack client, pointed at the fake.
func client(t *testing.T, s *slacktest.Server, opts ...slack.Option) *slack.Client {
	t.Helper()
	transport := &http.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	opts = append([]slack.Option{
		slack.OptionAPIURL(s.APIURL()), slack.OptionAppLevelToken(s.AppToken),
		slack.OptionHTTPClient(&http.Client{Transport: transport, Timeout: 10 * time.Second}),
	}, opts...)
	return slack.New(s.BotToken, opts...)
}

// program is a small app over Socket Mode: it acknowledges and remembers.
type program struct {
	api *slack.Client

	// onEvent, if set, answers instead of a plain acknowledgement.
	onEvent func(*socketmode.Client, socketmode.Event)

	mu       sync.Mutex
	messages []*slackevents.MessageEvent
	mentions []*slackevents.AppMentionEvent
	clicks   []slack.InteractionCallback
	commands []slack.SlashCommand
	retries  []int
	hello    []int // num_connections of each hello
	bad      int
}

func startProgram(t *testing.T, s *slacktest.Server, onEvent func(*socketmode.Client, socketmode.Event)) *program {
	t.Helper()
	p := &program{api: client(t, s), onEvent: onEvent}
	smc := socketmode.New(p.api, socketmode.OptionLog(log.New(io.Discard, "", 0)))
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() { _ = smc.RunContext(ctx) })
	wg.Go(func() {
		for {
			select {
			case e := <-smc.Events:
				p.take(smc, e)
			case <-ctx.Done():
				return
			}
		}
	})
	t.Cleanup(func() { cancel(); wg.Wait() })
	return p
}

func (p *program) take(smc *socketmode.Client, e socketmode.Event) {
	p.mu.Lock()
	switch data := e.Data.(type) {
	case slackevents.EventsAPIEvent:
		p.retries = append(p.retries, e.Request.RetryAttempt)
		switch inner := data.InnerEvent.Data.(type) {
		case *slackevents.MessageEvent:
			p.messages = append(p.messages, inner)
		case *slackevents.AppMentionEvent:
			p.mentions = append(p.mentions, inner)
		}
	case slack.InteractionCallback:
		p.clicks = append(p.clicks, data)
	case slack.SlashCommand:
		p.commands = append(p.commands, data)
	case *socketmode.ErrorBadMessage:
		p.bad++
	default:
		if e.Type == socketmode.EventTypeHello {
			p.hello = append(p.hello, e.Request.NumConnections)
		}
	}
	p.mu.Unlock()
	switch {
	case p.onEvent != nil:
		p.onEvent(smc, e)
	case e.Request != nil && e.Request.EnvelopeID != "":
		_ = smc.Ack(*e.Request)
	}
}

func (p *program) snapshot() program {
	p.mu.Lock()
	defer p.mu.Unlock()
	return program{
		messages: slices.Clone(p.messages), mentions: slices.Clone(p.mentions), clicks: slices.Clone(p.clicks),
		commands: slices.Clone(p.commands), retries: slices.Clone(p.retries), hello: slices.Clone(p.hello), bad: p.bad,
	}
}

// quiet are the options every post of ours carries.
func quiet(opts ...slack.MsgOption) slack.MsgOption {
	return slack.MsgOptionCompose(append(opts, slack.MsgOptionDisableLinkUnfurl(), slack.MsgOptionDisableMediaUnfurl())...)
}

// post sends a message that must be accepted and returns its ts.
func post(t *testing.T, api *slack.Client, channel string, opts ...slack.MsgOption) string {
	t.Helper()
	_, ts, err := api.PostMessage(channel, quiet(opts...))
	if err != nil {
		t.Fatalf("post: %v", err)
	}
	return ts
}

// wantError fails unless err is Slack's error code.
func wantError(t *testing.T, err error, code string) {
	t.Helper()
	if err == nil || err.Error() != code {
		t.Errorf("got error %v, want %s", err, code)
	}
}

func text(s string) *slack.TextBlockObject {
	return slack.NewTextBlockObject("mrkdwn", s, false, false)
}

func plain(s string) *slack.TextBlockObject {
	return slack.NewTextBlockObject("plain_text", s, false, false)
}

func button(id, label string) *slack.ButtonBlockElement {
	return slack.NewButtonBlockElement(id, "v", plain(label))
}
