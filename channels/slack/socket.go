package slack

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"time"

	slackgo "github.com/slack-go/slack"
	"github.com/slack-go/slack/socketmode"
)

// readLimit bounds one frame. slack-go has no limit by itself.
const readLimit = 16 << 20

// envelope is one Socket Mode frame that wants an acknowledgement.
type envelope struct {
	ID      string          `json:"envelope_id"`
	Type    string          `json:"type"`
	Payload json.RawMessage `json:"payload"`
	Accepts bool            `json:"accepts_response_payload"`
}

// runSocket keeps one Socket Mode connection until ctx ends. It returns an error
// only for what waiting cannot mend.
func (a *Adapter) runSocket(ctx context.Context, r *run, n int) error {
	defer a.setUp(n, false)
	for attempt := 0; ; attempt++ {
		started := time.Now()
		err := a.oneClient(ctx, r, n)
		a.setUp(n, false)
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			if why, ok := hopeless(err); ok {
				return errors.New("Socket Mode: " + why)
			}
		}
		if time.Since(started) > time.Minute {
			attempt = 0
		}
		a.log.Warn("Socket Mode client ended, starting another", "err", err)
		if sleep(ctx, backoff(attempt)) != nil {
			return nil
		}
	}
}

// socketAPI is a client for apps.connections.open alone. socketmode.New copies
// it, so it is complete from the start.
func (a *Adapter) socketAPI() *slackgo.Client {
	return slackgo.New(a.cfg.Secrets.BotToken,
		slackgo.OptionAppLevelToken(a.cfg.Secrets.AppToken),
		slackgo.OptionAPIURL(a.cfg.APIURL),
		slackgo.OptionHTTPClient(&opener{http: a.cfg.HTTP, early: func(times int) {
			a.setProblem("socket", "Slack closes each connection at once: more than 10 for this app?")
			a.log.Warn("the connection was closed at once; backing off", "times", times)
		}}))
}

// oneClient runs a slack-go client, which reconnects by itself, until it gives
// up, meets an error that it would retry for ever, or ctx ends.
func (a *Adapter) oneClient(ctx context.Context, r *run, n int) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	client := socketmode.New(a.socketAPI(), socketmode.OptionReadLimit(readLimit))
	ended := make(chan error, 1)
	go func() { ended <- client.RunContext(ctx) }() // waited for below
	for {
		select {
		case evt := <-client.Events:
			if err := a.socketEvent(ctx, r, n, client, evt); err != nil {
				cancel(err)
			}
		case err := <-ended:
			if cause := context.Cause(ctx); cause != nil && !errors.Is(cause, context.Canceled) {
				return cause
			}
			return err
		}
	}
}

// socketEvent takes an event of slack-go. It never blocks: a slow reader of the
// events keeps slack-go from answering pings. An error ends the client.
func (a *Adapter) socketEvent(ctx context.Context, r *run, n int, client *socketmode.Client, evt socketmode.Event) error {
	defer a.guard("socket event")
	switch evt.Type {
	case socketmode.EventTypeHello:
		a.hello(n, evt.Request)
	case socketmode.EventTypeConnecting, socketmode.EventTypeDisconnect:
		a.setUp(n, false)
	case socketmode.EventTypeConnectionError:
		e, ok := evt.Data.(*slackgo.ConnectionErrorEvent)
		if !ok {
			return nil
		}
		// slack-go retries for ever even where a scope is missing or the token is
		// of the wrong kind.
		if _, ok := hopeless(e.ErrorObj); ok {
			return e.ErrorObj
		}
		a.log.Warn("cannot connect, trying again", "err", e.ErrorObj, "attempt", e.Attempt, "in", e.Backoff)
	case socketmode.EventTypeEventsAPI, socketmode.EventTypeInteractive, socketmode.EventTypeSlashCommand:
		if q := evt.Request; q != nil {
			a.take(ctx, r, client, envelope{ID: q.EnvelopeID, Type: q.Type, Payload: q.Payload, Accepts: q.AcceptsResponsePayload})
		}
	case socketmode.EventTypeErrorBadMessage:
		// slack-go could not read an envelope, say for an element it does not
		// know, and does not acknowledge it: Slack would send it for ever. We read
		// less and may well understand it.
		bad, ok := evt.Data.(*socketmode.ErrorBadMessage)
		if !ok {
			return nil
		}
		var env envelope
		if err := json.Unmarshal(bad.Message, &env); err != nil || env.ID == "" {
			a.log.Debug("frame ignored", "err", bad.Cause)
			return nil
		}
		a.take(ctx, r, client, env)
	case socketmode.EventTypeErrorWriteFailed:
		a.log.Warn("an acknowledgement could not be sent; Slack will repeat the event")
	case socketmode.EventTypeIncomingError:
		a.log.Debug("connection ended or sent an unreadable frame")
	}
	return nil
}

// take hands an envelope to the code that HTTP mode shares, and acknowledges it
// once.
func (a *Adapter) take(ctx context.Context, r *run, client *socketmode.Client, env envelope) {
	if env.ID == "" {
		return // hello, disconnect: nothing to acknowledge
	}
	ack := func(payload any) {
		// nil from AckCtx means queued, not written; see EventTypeErrorWriteFailed.
		ctx, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		if err := client.AckCtx(ctx, env.ID, payload); err != nil {
			a.log.Warn("cannot acknowledge", "err", err)
		}
	}
	if a.running() != r {
		return // ending: another connection gets it
	}
	switch env.Type {
	case "events_api":
		a.event(r, env.Payload, func(err error) {
			if err == nil {
				ack(nil)
			}
		})
	case "interactive":
		ack(nil)
		a.interaction(r, env.Payload)
	case "slash_commands":
		if env.Accepts {
			ack(commandHelp())
		} else {
			ack(nil)
		}
	default:
		a.log.Debug("envelope ignored", "type", env.Type)
		ack(nil)
	}
}

// hello notes that a connection is live and whether somebody else listens.
func (a *Adapter) hello(n int, q *socketmode.Request) {
	a.setUp(n, true)
	a.setProblem("socket", "")
	if q == nil {
		return
	}
	a.mu.Lock()
	a.self.appID = q.ConnectionInfo.AppID
	a.mu.Unlock()
	if q.NumConnections > a.cfg.Connections {
		a.setProblem("listeners", "others listen with the same app token")
		a.log.Warn("other programs listen with this app token and take a share of messages and clicks; fine only if they are replicas of this service",
			"connections", q.NumConnections, "ours", a.cfg.Connections)
		return
	}
	a.setProblem("listeners", "")
}

// opener makes the calls to apps.connections.open and paces them. slack-go
// reopens a connection at once whenever Slack closes it, also when Slack does
// so because there are too many (disconnect reason too_many_websockets, which
// slack-go does not hand out): without a pause that becomes a hot loop.
type opener struct {
	http   *http.Client
	early  func(times int) // called when connections end as soon as they begin
	opened time.Time       // one call at a time, so no lock
	times  int
}

// A connection that lives shorter is followed by a pause; from the third on we
// say so.
const (
	shortLife = 10 * time.Second
	tellAfter = 3
)

// Do sends a request, later if the connection before it was short.
func (o *opener) Do(req *http.Request) (*http.Response, error) {
	if !o.opened.IsZero() && time.Since(o.opened) < shortLife {
		o.times++
		if o.times >= tellAfter {
			o.early(o.times)
		}
		if err := sleep(req.Context(), backoff(o.times-1)/2); err != nil {
			return nil, err
		}
	} else {
		o.times = 0
	}
	o.opened = time.Now()
	return o.http.Do(req)
}
