package slacktest_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/gorilla/websocket"
	"github.com/slack-go/slack/socketmode"

	"github.com/clawbot/clawbot/channels/slack/slacktest"
)

func TestMentionArrivesTwice(t *testing.T) {
	s := slacktest.Start(t)
	p := startProgram(t, s, nil)
	s.WaitConnected(t, 1)
	m := s.Say("C0001", "U0001", slacktest.Mention+" hello")
	s.WaitIdle(t)
	got := p.snapshot()
	if len(got.messages) != 1 || len(got.mentions) != 1 {
		t.Fatalf("%d messages and %d mentions", len(got.messages), len(got.mentions))
	}
	if got.messages[0].TimeStamp != m.TS || got.mentions[0].TimeStamp != m.TS || got.messages[0].ChannelType != "channel" {
		t.Errorf("message %+v, mention %+v", got.messages[0], got.mentions[0])
	}
	acks := s.Acks()
	if len(acks) != 2 || acks[0].EventID == acks[1].EventID || acks[0].Latency > time.Second {
		t.Errorf("acks %+v", acks)
	}
	if got.hello[0] != 1 {
		t.Errorf("hello counts %v connections", got.hello)
	}
	s.NoViolations(t)
}

func TestWhatIsDelivered(t *testing.T) {
	s := slacktest.Start(t)
	p := startProgram(t, s, nil)
	s.WaitConnected(t, 1)
	group := s.AddChannel(slacktest.Channel{Kind: slacktest.MPIM, Members: []string{slacktest.BotUserID, "U0001", "U0002"}})
	out := s.AddChannel(slacktest.Channel{Members: []string{"U0001"}})
	for _, tc := range []struct {
		name               string
		act                func()
		messages, mentions int
		subtype            string
	}{
		{"plain", func() { s.Say("C0001", "U0001", "hi") }, 1, 0, ""},
		{"dm", func() { s.Say(s.DM("U0001"), "U0001", slacktest.Mention+" hi") }, 1, 0, ""},
		{"group dm", func() { s.Say(group, "U0001", slacktest.Mention+" hi") }, 1, 0, ""},
		{"not a member", func() { s.Say(out, "U0001", slacktest.Mention+" hi") }, 0, 0, ""},
		{"only mention", func() { s.Say("C0001", "U0001", slacktest.Mention+" hi", slacktest.OnlyMention()) }, 0, 1, ""},
		{"only message", func() { s.Say("C0001", "U0001", slacktest.Mention+" hi", slacktest.OnlyMessage()) }, 1, 0, ""},
		{"three times", func() { s.Say("C0001", "U0001", "hi", slacktest.Times(3)) }, 3, 0, ""},
		{"lost", func() { s.Say("C0001", "U0001", "hi", slacktest.Undelivered()) }, 0, 0, ""},
		{"edit", func() {
			s.Edit(s.Say("C0001", "U0001", "hi", slacktest.Undelivered()), "ho")
		}, 1, 0, "message_changed"},
		{"delete", func() { s.Delete(s.Say("C0001", "U0001", "hi", slacktest.Undelivered())) }, 1, 0, "message_deleted"},
		{"preview", func() {
			s.Preview(s.Say("C0001", "U0001", "https://a.example", slacktest.Undelivered()), "https://a.example")
		}, 1, 0, "message_changed"},
		{"old bot", func() { s.AppSays(slacktest.App{BotID: "B0OLD", Name: "old"}, "C0001", "", "hi") }, 1, 0, "bot_message"},
		{"new bot", func() {
			s.AppSays(slacktest.App{BotID: "B0NEW", AppID: "A0NEW", UserID: "U0NEW", Name: "new"}, "C0001", "", slacktest.Mention+" hi")
		}, 1, 1, ""},
		{"join", func() { s.Join("C0001", s.AddUser(slacktest.User{Name: "Dan"})) }, 1, 0, "channel_join"},
		{"file", func() {
			s.Upload("C0001", "", "U0001", "see", slacktest.File{Name: "a.txt", Content: []byte("abc")})
		}, 1, 0, "file_share"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			before := p.snapshot()
			tc.act()
			s.WaitIdle(t)
			got := p.snapshot()
			messages := got.messages[len(before.messages):]
			if len(messages) != tc.messages || len(got.mentions)-len(before.mentions) != tc.mentions {
				t.Fatalf("%d messages, %d mentions", len(messages), len(got.mentions)-len(before.mentions))
			}
			if len(messages) > 0 && messages[0].SubType != tc.subtype {
				t.Errorf("subtype %q, want %q", messages[0].SubType, tc.subtype)
			}
		})
	}
}

func TestExternalAuthor(t *testing.T) {
	s := slacktest.Start(t)
	p := startProgram(t, s, nil)
	s.AddUser(slacktest.User{ID: "U0EXT", Name: "Eve", TeamID: "T0002"})
	s.AddChannel(slacktest.Channel{ID: "C0EXT", ExtShared: true, Members: []string{slacktest.BotUserID, "U0EXT"}})
	s.Say("C0EXT", "U0EXT", "hi")
	s.WaitIdle(t)
	if m := p.snapshot().messages[0]; m.UserTeam != "T0002" || m.SourceTeam != "T0002" {
		t.Errorf("message %+v", m)
	}
}

// What the app posts comes back to it.
func TestEcho(t *testing.T) {
	s := slacktest.Start(t)
	p := startProgram(t, s, nil)
	ts := post(t, p.api, "C0001", quietText("hello there"))
	if _, _, _, err := p.api.UpdateMessage("C0001", ts, quietText("bye")); err != nil {
		t.Fatal(err)
	}
	s.WaitIdle(t)
	got := p.snapshot().messages
	if len(got) != 2 || got[0].BotID != slacktest.BotID || got[1].SubType != "message_changed" || got[1].Message.Text != "bye" {
		t.Errorf("echoes %+v", got)
	}
}

// An event that is not acknowledged comes again, with a retry number.
func TestRedelivery(t *testing.T) {
	s := slacktest.Start(t, slacktest.WithAckTimeout(100*time.Millisecond), slacktest.WithRetryDelays(0, 0))
	p := startProgram(t, s, func(smc *socketmode.Client, e socketmode.Event) {
		if e.Request != nil && e.Request.RetryAttempt == 2 {
			_ = smc.Ack(*e.Request)
		}
	})
	s.WaitConnected(t, 1)
	s.Say("C0001", "U0001", "hi")
	s.WaitIdle(t)
	if got := p.snapshot(); len(got.retries) != 3 || got.retries[0] != 0 || got.retries[2] != 2 {
		t.Errorf("retries %v", got.retries)
	}
	if len(s.Lost()) != 0 {
		t.Errorf("lost %v", s.Lost())
	}
}

func TestLostAfterRetries(t *testing.T) {
	s := slacktest.Start(t, slacktest.WithAckTimeout(10*time.Millisecond), slacktest.WithRetryDelays(0))
	startProgram(t, s, func(*socketmode.Client, socketmode.Event) {})
	s.WaitConnected(t, 1)
	s.Say("C0001", "U0001", "hi")
	s.WaitIdle(t)
	if len(s.Lost()) != 1 {
		t.Errorf("lost %v", s.Lost())
	}
}

// Events wait for a connection; interactions do not.
func TestNoConnection(t *testing.T) {
	s := slacktest.Start(t)
	s.Say("C0001", "U0001", "hi")
	if err := s.Command("U0001", "C0001", "/clawbot", "help"); !errors.Is(err, slacktest.ErrNotConnected) {
		t.Errorf("command: %v", err)
	}
	p := startProgram(t, s, nil)
	s.WaitIdle(t)
	if got := p.snapshot(); len(got.messages) != 1 || len(got.commands) != 0 {
		t.Errorf("%d messages, %d commands", len(got.messages), len(got.commands))
	}
}

func TestDisconnectAndDrop(t *testing.T) {
	s := slacktest.Start(t)
	p := startProgram(t, s, nil)
	s.WaitConnected(t, 1)
	s.Disconnect("warning")
	s.Say("C0001", "U0001", "one")
	s.WaitIdle(t)
	s.DropConnections()
	s.Say("C0001", "U0001", "two")
	s.WaitIdle(t)
	if got := p.snapshot(); len(got.messages) != 2 || len(got.hello) != 3 {
		t.Errorf("%d messages, %d connections", len(got.messages), len(got.hello))
	}
}

func TestUnreadableEvents(t *testing.T) {
	s := slacktest.Start(t)
	acking := func(smc *socketmode.Client, e socketmode.Event) {
		if bad, ok := e.Data.(*socketmode.ErrorBadMessage); ok {
			var envelope struct {
				EnvelopeID string `json:"envelope_id"`
			}
			if json.Unmarshal(bad.Message, &envelope) == nil && envelope.EnvelopeID != "" {
				_ = smc.AckCtx(context.Background(), envelope.EnvelopeID, nil)
			}
		}
	}
	p := startProgram(t, s, acking)
	s.WaitConnected(t, 1)
	s.DeliverEvent("C0001", `{"type":"hologram_projected"}`)
	s.DeliverRaw(`[1,2]`)
	s.WaitIdle(t)
	if got := p.snapshot(); got.bad != 2 || len(s.Lost()) != 0 {
		t.Errorf("%d bad messages, lost %v", got.bad, s.Lost())
	}
	if err := s.SendFrame("{broken"); err != nil {
		t.Error(err)
	}
	s.NoViolations(t)
}

// dial opens a connection by hand.
func dial(t *testing.T, s *slacktest.Server) (*websocket.Conn, string) {
	t.Helper()
	_, address, err := client(t, s).StartSocketModeContext(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	conn, _, err := websocket.DefaultDialer.Dial(address, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn, address
}

func readFrame(t *testing.T, conn *websocket.Conn) map[string]any {
	t.Helper()
	var frame map[string]any
	if err := conn.ReadJSON(&frame); err != nil {
		t.Fatal(err)
	}
	return frame
}

func TestConnectionLimit(t *testing.T) {
	s := slacktest.Start(t)
	for i := range 10 {
		conn, address := dial(t, s)
		if hello := readFrame(t, conn); hello["num_connections"] != float64(i+1) {
			t.Errorf("hello %v", hello)
		}
		if _, _, err := websocket.DefaultDialer.Dial(address, nil); err == nil {
			t.Error("the address works twice")
		}
	}
	s.WaitConnected(t, 10)
	conn, _ := dial(t, s)
	if f := readFrame(t, conn); f["type"] != "disconnect" || f["reason"] != "too_many_websockets" {
		t.Errorf("the eleventh got %v", f)
	}
}

// Each envelope goes to one connection, in turn; a ghost swallows its share.
func TestOneConnectionEach(t *testing.T) {
	s := slacktest.Start(t, slacktest.WithAckTimeout(200*time.Millisecond), slacktest.WithRetryDelays(0, 0))
	p, q := startProgram(t, s, nil), startProgram(t, s, nil)
	s.WaitConnected(t, 2)
	s.Say("C0001", "U0001", "one")
	s.Say("C0001", "U0001", "two")
	s.WaitIdle(t)
	if a, b := len(p.snapshot().messages), len(q.snapshot().messages); a != 1 || b != 1 {
		t.Errorf("messages are split %d:%d", a, b)
	}
	s.AddGhost()
	for range 3 {
		s.Say("C0001", "U0001", "more")
	}
	s.WaitIdle(t)
	if a, b := len(p.snapshot().messages), len(q.snapshot().messages); a+b != 5 {
		t.Errorf("messages are split %d:%d", a, b)
	}
}

func TestBadAcks(t *testing.T) {
	s := slacktest.Start(t)
	conn, _ := dial(t, s)
	readFrame(t, conn)
	s.WaitConnected(t, 1)
	s.Say("C0001", "U0001", "hi")
	id := readFrame(t, conn)["envelope_id"].(string)
	for _, frame := range []map[string]any{
		{"envelope_id": ""},
		{"envelope_id": "nonsense"},
		{"envelope_id": id, "payload": strings.Repeat("x", 20480)},
		{"envelope_id": id, "payload": map[string]any{"text": "x"}},
		{"envelope_id": id},
	} {
		if err := conn.WriteJSON(frame); err != nil {
			t.Fatal(err)
		}
	}
	want := []string{"without an envelope_id", "unknown envelope", "which Slack drops", "none is accepted", "twice"}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if err := s.WaitFor(ctx, func() bool { return len(s.Violations()) == len(want) }); err != nil {
		t.Fatalf("violations %v", s.Violations())
	}
	for i, v := range s.Violations() {
		if !strings.Contains(v.What, want[i]) {
			t.Errorf("violation %v, want %q", v, want[i])
		}
	}
}
