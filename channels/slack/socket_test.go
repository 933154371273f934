package slack

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/clawbot/clawbot/agent"
	"github.com/clawbot/clawbot/channels/slack/slacktest"
)

// F9: connections that end in any way are replaced, and nothing is lost.
func TestF9_Reconnects(t *testing.T) {
	b := start(t, withSlack(slacktest.WithCloseGrace(50*time.Millisecond)))
	n := 0
	for _, breakIt := range []func(){
		b.DropConnections,
		func() { b.Disconnect("warning") },
		func() { b.Disconnect("refresh_requested") },
		b.DropConnections,
	} {
		breakIt()
		b.Say("C0001", "U0001", m+" hi")
		n++
		b.wait(n)
	}
	b.eventually("healthy", func() bool { ok, _ := b.a.Health(); return ok })
}

// F10: where there are too many connections we come back slower and slower, and
// say so.
func TestF10_TooManyConnections(t *testing.T) {
	b := start(t, func(s *settings) { s.idle = true })
	for range 10 {
		b.AddGhost()
	}
	ctx, cancel := context.WithTimeout(context.Background(), 4*time.Second)
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- b.a.Run(ctx, b.in) }()
	b.eventually("degraded", func() bool {
		ok, detail := b.a.Health()
		return !ok && strings.Contains(detail, "closes each connection at once")
	})
	if err := <-done; err != nil {
		t.Error(err)
	}
	if n := len(b.Calls("apps.connections.open")); n > 8 {
		t.Errorf("%d attempts in 4 s", n)
	}
}

// F11: somebody else listens with our token.
func TestF11_GhostConnection(t *testing.T) {
	b := start(t, func(s *settings) { s.idle = true })
	b.AddGhost()
	b.run()
	ok, detail := b.a.Health()
	if !ok || !strings.Contains(detail, "others listen") || !strings.Contains(b.log.String(), "level=WARN") {
		t.Errorf("%v %s\n%s", ok, detail, b.log)
	}
}

func TestTwoConnections(t *testing.T) {
	b := start(t, func(s *settings) { s.cfg.Connections = 2 })
	b.WaitConnected(t, 2)
	b.eventually("both up", func() bool { _, d := b.a.Health(); return strings.Contains(d, "2 of 2") })
	for range 6 {
		b.Say("C0001", "U0001", m+" hi")
	}
	b.wait(6)
	if _, detail := b.a.Health(); strings.Contains(detail, "others listen") {
		t.Errorf("our own second connection counts as another's: %s", detail)
	}
}

// What trying again cannot mend ends Run with an error that names it.
func TestHopelessErrorsEndRun(t *testing.T) {
	for _, c := range []struct{ method, code, want string }{
		{"auth.test", "invalid_auth", "SLACK_BOT_TOKEN"},
		{"auth.test", "account_inactive", "install the app again"},
		{"auth.test", "token_revoked", "install the app again"},
		{"apps.connections.open", "invalid_auth", "SLACK_APP_TOKEN"},
		{"apps.connections.open", "missing_scope", "connections:write"},
		{"apps.connections.open", "not_allowed_token_type", "xapp-"},
		{"apps.connections.open", "token_expired", "not valid any more"},
	} {
		t.Run(c.method+" "+c.code, func(t *testing.T) {
			b := start(t, func(s *settings) { s.idle = true })
			b.Fail(c.method, -1, slacktest.ErrorCode(c.code))
			ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
			defer cancel()
			err := b.a.Run(ctx, b.in)
			if err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), c.code) {
				t.Errorf("%v", err)
			}
			if err != nil && (strings.Contains(err.Error(), b.BotToken) || strings.Contains(err.Error(), b.AppToken)) {
				t.Errorf("a token is in the error: %v", err)
			}
			if ok, detail := b.a.Health(); ok || !strings.Contains(detail, c.code) {
				t.Errorf("health: %v %s", ok, detail)
			}
		})
	}
}

func TestNetworkTroubleIsWaitedOut(t *testing.T) {
	b := start(t, func(s *settings) { s.idle = true })
	b.Fail("auth.test", 1, slacktest.Status(503))
	b.Fail("auth.test", 1, slacktest.HTML())
	b.Fail("apps.connections.open", 1, slacktest.Status(500))
	b.run()
	b.Say("C0001", "U0001", m+" hi")
	b.wait(1)
}

func TestRunEndsWhileSlackIsAway(t *testing.T) {
	b := start(t, func(s *settings) { s.idle = true })
	b.Fail("*", -1, slacktest.Status(503))
	ctx, cancel := context.WithTimeout(context.Background(), 200*time.Millisecond)
	defer cancel()
	if err := b.a.Run(ctx, b.in); err != nil {
		t.Error(err)
	}
}

// F45: a scope that is missing is reported.
func TestF45_MissingScopeIsReported(t *testing.T) {
	b := start(t, func(s *settings) { s.idle = true })
	b.RevokeScopes("mpim:history")
	b.run()
	if _, detail := b.a.Health(); !strings.Contains(detail, "mpim:history") {
		t.Errorf("health: %s", detail)
	}
	var all []string
	for _, f := range b.a.Check(t.Context()) {
		if !f.OK {
			all = append(all, f.Name+": "+f.Text)
		}
	}
	if len(all) != 1 || !strings.Contains(all[0], "mpim:history") {
		t.Errorf("check: %q", all)
	}
}

func TestCheck(t *testing.T) {
	b := start(t, func(s *settings) { s.idle = true })
	for _, f := range b.a.Check(t.Context()) {
		if !f.OK {
			t.Errorf("%+v", f)
		}
	}
	b.Fail("*", -1, slacktest.ErrorCode("invalid_auth"))
	for _, f := range b.a.Check(t.Context()) {
		if f.OK {
			t.Errorf("%+v", f)
		}
	}
}

// Many slow threads do not keep the reader from answering Slack's pings.
func TestBusyLanesKeepTheConnection(t *testing.T) {
	b := start(t, withSlack(slacktest.WithPingInterval(20*time.Millisecond)))
	b.in.onReceive = func(context.Context, agent.Inbound) error { time.Sleep(20 * time.Millisecond); return nil }
	for range 200 {
		b.Say("C0001", "U0001", m+" hi", slacktest.OnlyMention())
	}
	b.wait(200)
	if n := len(b.Calls("apps.connections.open")); n != 1 {
		t.Errorf("%d connections", n)
	}
}
