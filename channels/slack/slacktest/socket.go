package slacktest

import (
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/gorilla/websocket"
)

// socket is one Socket Mode connection.
type socket struct {
	conn    *websocket.Conn // nil for a ghost
	writing sync.Mutex
	gone    chan struct{} // closed when nothing more can be read
	ready   bool          // takes envelopes: after hello, until it leaves; guarded by Server.mu
	leaving bool          // was told to go, or cut; guarded by Server.mu
}

// attempt is one envelope that was sent.
type attempt struct {
	d       *delivery
	c       *socket
	at      time.Time
	expired bool
	acked   chan struct{} // closed by the first good acknowledgement
}

// connectionsOpen answers apps.connections.open with an address that works once.
func (s *Server) connectionsOpen(args) (object, error) {
	ticket := s.id("ticket-")
	s.tickets[ticket] = true
	return object{"url": "ws://" + s.Addr() + "/link/?ticket=" + ticket + "&app_id=" + AppID}, nil
}

// serveSocket runs one connection until it ends. It takes s.mu itself.
func (s *Server) serveSocket(w http.ResponseWriter, r *http.Request) {
	ticket := r.URL.Query().Get("ticket")
	s.mu.Lock()
	valid := s.tickets[ticket]
	delete(s.tickets, ticket)
	s.mu.Unlock()
	if !valid {
		http.Error(w, "the address was used already", http.StatusForbidden)
		return
	}
	upgrader := websocket.Upgrader{CheckOrigin: func(*http.Request) bool { return true }}
	conn, err := upgrader.Upgrade(w, r, nil)
	if err != nil {
		return
	}
	c := &socket{conn: conn, gone: make(chan struct{})}
	defer func() { _ = conn.Close() }()
	defer close(c.gone)

	s.mu.Lock()
	full := len(s.conns) >= s.opt.maxSockets
	if !full && !s.closed {
		s.conns = append(s.conns, c)
	}
	n := 0
	for _, x := range s.conns {
		if !x.leaving {
			n++
		}
	}
	closed := s.closed
	s.mu.Unlock()
	if closed {
		return
	}
	if full {
		_ = c.write(disconnectFrame("too_many_websockets"))
		return
	}
	defer s.forget(c)
	hello := object{
		"type": "hello", "num_connections": n, "connection_info": object{"app_id": AppID},
		"debug_info": object{"host": "applink-slacktest", "build_number": 1, "approximate_connection_time": 18060},
	}
	if c.write(encode(hello)) != nil {
		return
	}
	s.mu.Lock()
	c.ready = !c.leaving
	s.goLocked(func() { s.pingEvery(c) })
	s.notify()
	s.mu.Unlock()
	for {
		_, frame, err := conn.ReadMessage()
		if err != nil {
			return
		}
		s.readAck(c, frame)
	}
}

// forget takes a connection off the list. It takes s.mu itself.
func (s *Server) forget(c *socket) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.conns = slices.DeleteFunc(s.conns, func(x *socket) bool { return x == c })
	s.notify()
}

// pingEvery keeps a connection alive. It needs no lock.
func (s *Server) pingEvery(c *socket) {
	ticker := time.NewTicker(s.opt.pingInterval)
	defer ticker.Stop()
	for {
		if c.conn.WriteControl(websocket.PingMessage, []byte("ping"), time.Now().Add(time.Second)) != nil {
			return
		}
		select {
		case <-ticker.C:
		case <-c.gone:
			return
		case <-s.ctx.Done():
			return
		}
	}
}

// write sends one text frame.
func (c *socket) write(frame []byte) error {
	if c.conn == nil {
		return nil // a ghost takes everything and does nothing
	}
	c.writing.Lock()
	defer c.writing.Unlock()
	if err := c.conn.SetWriteDeadline(time.Now().Add(5 * time.Second)); err != nil {
		return err
	}
	return c.conn.WriteMessage(websocket.TextMessage, frame)
}

// drop ends a connection without a farewell.
func (c *socket) drop() {
	if c.conn != nil {
		reset(c.conn.NetConn())
	}
}

// pick chooses the connection for the next envelope, in turn; advance moves
// the turn on.
func (s *Server) pick(advance bool) *socket {
	for i := range s.conns {
		c := s.conns[(s.turn+i)%len(s.conns)]
		if c.ready {
			if advance {
				s.turn += i + 1
			}
			return c
		}
	}
	return nil
}

// sendEnvelope sends a delivery over one connection; nil if there is none. It
// takes s.mu itself.
func (s *Server) sendEnvelope(d *delivery) *attempt {
	s.mu.Lock()
	c := s.pick(true)
	if c == nil {
		s.mu.Unlock()
		return nil
	}
	id := s.id("envelope-")
	envelope := object{
		"envelope_id": id, "type": d.kind, "payload": d.body, "accepts_response_payload": d.kind != kindEvent,
	}
	if d.kind == kindEvent {
		envelope["retry_attempt"], envelope["retry_reason"] = d.retry(), d.reason
		if d.reason == "" && d.retry() > 0 {
			envelope["retry_reason"] = "timeout"
		}
	}
	a := &attempt{d: d, c: c, at: time.Now(), acked: make(chan struct{})}
	s.inflight[id] = a
	s.mu.Unlock()
	if c.write(encode(envelope)) != nil {
		c.drop()
	}
	return a
}

// await returns whether an attempt was acknowledged in time. It takes s.mu
// itself.
func (s *Server) await(a *attempt) bool {
	timer := time.NewTimer(s.opt.ackTimeout)
	defer timer.Stop()
	select {
	case <-a.acked:
		return true
	case <-timer.C:
	case <-a.c.gone:
	case <-s.ctx.Done():
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	select {
	case <-a.acked:
		return true
	default:
		a.expired = true
		return false
	}
}

// dispatchSocket sends an event over a connection. It takes s.mu itself.
func (s *Server) dispatchSocket(d *delivery) {
	a := s.sendEnvelope(d)
	s.mu.Lock()
	defer s.mu.Unlock()
	if a == nil { // the last connection has just gone: back to the front
		s.queue = append([]*delivery{d}, s.queue...)
		return
	}
	s.goLocked(func() {
		ok := s.await(a)
		s.mu.Lock()
		defer s.mu.Unlock()
		s.settle(d, ok, "timeout", true)
	})
}

// readAck takes a frame from the program. It takes s.mu itself.
func (s *Server) readAck(c *socket, frame []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var ack struct {
		EnvelopeID string          `json:"envelope_id"`
		Payload    json.RawMessage `json:"payload"`
	}
	if json.Unmarshal(frame, &ack) != nil || ack.EnvelopeID == "" {
		s.violate("socket", "", "a frame without an envelope_id: %.100s", frame)
		return
	}
	a := s.inflight[ack.EnvelopeID]
	if a == nil {
		s.violate("socket", ack.EnvelopeID, "acknowledged an unknown envelope")
		return
	}
	if len(frame) >= maxSocketAck {
		s.violate("socket", ack.EnvelopeID, "an acknowledgement of %d bytes, which Slack drops", len(frame))
		return
	}
	select {
	case <-a.acked:
		s.violate("socket", ack.EnvelopeID, "acknowledged twice")
		return
	default:
	}
	if string(ack.Payload) == "null" {
		ack.Payload = nil
	}
	if ack.Payload != nil && a.d.kind == kindEvent {
		s.violate("socket", ack.EnvelopeID, "a payload where none is accepted")
	}
	s.acks = append(s.acks, Ack{
		Kind: a.d.kind, EventID: a.d.eventID, Retry: a.d.retry(), Latency: time.Since(a.at), Late: a.expired,
		Elsewhere: c != a.c, Payload: ack.Payload,
	})
	a.d.answer = ack.Payload
	close(a.acked)
	s.notify()
}

func disconnectFrame(reason string) []byte {
	return encode(object{"type": "disconnect", "reason": reason, "debug_info": object{"host": "applink-slacktest"}})
}

// Disconnect sends every connection a disconnect frame with this reason
// (warning, refresh_requested, link_disabled, …), gives it no further envelopes
// and closes it after a grace ([WithCloseGrace]).
func (s *Server) Disconnect(reason string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.conns {
		if c.conn == nil {
			continue
		}
		c.ready, c.leaving = false, true
		s.goLocked(func() {
			if c.write(disconnectFrame(reason)) != nil {
				c.drop()
			}
			timer := time.NewTimer(s.opt.closeGrace)
			defer timer.Stop()
			select {
			case <-timer.C:
				c.drop()
			case <-c.gone:
			case <-s.ctx.Done():
			}
		})
	}
	s.notify()
}

// DropConnections cuts every connection without a farewell.
func (s *Server) DropConnections() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.conns {
		if c.conn != nil {
			c.ready, c.leaving = false, true
			c.drop()
		}
	}
	s.notify()
}

// AddGhost adds a connection of some other program on the same app token: it
// takes its share of events and clicks and answers none.
func (s *Server) AddGhost() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.conns = append(s.conns, &socket{ready: true, gone: make(chan struct{})})
	s.notify()
}

// Connections counts the live connections, ghosts included.
func (s *Server) Connections() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := 0
	for _, c := range s.conns {
		if c.ready {
			n++
		}
	}
	return n
}

// SendFrame sends a text frame of any content to every connection.
func (s *Server) SendFrame(frame string) error {
	s.mu.Lock()
	conns := slices.Clone(s.conns)
	s.mu.Unlock()
	var errs []error
	for _, c := range conns {
		errs = append(errs, c.write([]byte(frame)))
	}
	return errors.Join(errs...)
}
