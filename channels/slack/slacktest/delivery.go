package slacktest

import (
	"encoding/json"
	"net/url"
	"slices"
	"time"
)

// kind is what a delivery carries, in the words of Socket Mode.
const (
	kindEvent       = "events_api"
	kindInteractive = "interactive"
	kindCommand     = "slash_commands"
)

// delivery is something on its way to the program.
type delivery struct {
	kind       string
	eventID    string
	body       json.RawMessage
	form       url.Values // a slash command as HTTP carries it
	atOnce     bool
	attempt    int    // deliveries before this one
	shownRetry int    // retry number to show instead of attempt
	reason     string // why it is sent again
	answer     json.RawMessage
}

// retry is the retry number that the program is shown.
func (d *delivery) retry() int { return max(d.attempt, d.shownRetry) }

// Ack is one delivery that the program acknowledged.
type Ack struct {
	Kind      string // events_api, interactive or slash_commands
	EventID   string // "" for what is no event
	Retry     int    // retry number that was shown
	Latency   time.Duration
	Late      bool            // after Slack had given up waiting
	Elsewhere bool            // over another connection than the one it was sent on
	Payload   json.RawMessage // what came with it, nil if nothing
	Status    int             // in HTTP mode
}

// Lost is an event that Slack gave up on.
type Lost struct {
	EventID string
	Reason  string
	Body    json.RawMessage
}

// Acks lists what the program has acknowledged, in order.
func (s *Server) Acks() []Ack {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.acks)
}

// Lost lists the events that were not acknowledged after all retries.
func (s *Server) Lost() []Lost {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.lost)
}

// enqueue puts an event in line.
func (s *Server) enqueue(d *delivery) {
	s.queue = append(s.queue, d)
	s.working++
	s.notify()
}

// dispatchEvents sends queued events in order, as soon as there is a way to
// send them. It takes s.mu itself and runs until the server closes.
func (s *Server) dispatchEvents() {
	for {
		s.mu.Lock()
		wake := s.changed
		var d *delivery
		if len(s.queue) > 0 && (s.httpBase != "" || s.pick(false) != nil) {
			d, s.queue = s.queue[0], s.queue[1:]
		}
		base := s.httpBase
		s.mu.Unlock()
		switch {
		case d == nil:
			select {
			case <-wake:
			case <-s.ctx.Done():
				return
			}
		case base != "":
			s.dispatchHTTP(base, d)
		default:
			s.dispatchSocket(d)
		}
	}
}

// settle ends the work on an event: acknowledged, or to be sent again, or lost.
func (s *Server) settle(d *delivery, ok bool, reason string, mayRetry bool) {
	if ok {
		s.working--
		s.notify()
		return
	}
	if !mayRetry || d.attempt >= len(s.opt.retryDelays) {
		s.lost = append(s.lost, Lost{EventID: d.eventID, Reason: reason, Body: d.body})
		s.working--
		s.notify()
		return
	}
	delay := s.opt.retryDelays[d.attempt]
	d.attempt++
	d.reason = reason
	s.goLocked(func() {
		timer := time.NewTimer(delay)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-s.ctx.Done():
			return
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		s.queue = append(s.queue, d)
		s.notify()
	})
}
