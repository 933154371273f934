package main

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/clawbot/clawbot/channels/slack/slacktest"
	"github.com/clawbot/clawbot/model/modeltest"
)

func isCard(c slacktest.Call) bool { return strings.Contains(c.Args["text"], "Approval needed") }

// A card that Slack refuses is not executed, at once, and the thread is told;
// nobody is said to have denied it.
//
// Rows: F27, F61, F69, F103, L64.
func TestCardThatCannotBeShown(t *testing.T) {
	t.Parallel()
	for _, code := range []string{"invalid_blocks", "msg_blocks_too_long", "restricted_action"} {
		t.Run(code, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, approverYAML)
			w.model.Reply(modeltest.Call("write_file", `{"path":"a.txt","content":"x"}`), modeltest.Text("So I did not write it."))
			w.slack.Fail("chat.postMessage", -1, slacktest.ErrorCode(code), isCard)
			w.serve()
			ask := w.ask("write it")
			w.slack.WaitText(t, "C0001", ask.TS, "could not be shown here")
			w.slack.WaitText(t, "C0001", ask.TS, "So I did not write it.")
			w.settled()
			w.want("undeliverable system -\n", `SELECT decision, source, actor FROM audit_log WHERE kind = 'approval_decided'`)
			w.want("undeliverable\n", `SELECT outcome FROM tool_calls`)
			if got := w.wroteFile("a.txt"); got != "" {
				t.Errorf("it ran: %q", got)
			}
			result := w.model.Requests()[1].Results()[0].Text
			if !strings.Contains(result, "could not be shown to anybody") || strings.Contains(result, "Denied") {
				t.Errorf("the model is told %s", result)
			}
		})
	}
}

// Where the bot cannot write at all there is nobody to tell: the log and the audit
// have it, and the program works on.
func TestNowhereToAnswer(t *testing.T) {
	t.Parallel()
	for _, code := range []string{"is_archived", "not_in_channel", "channel_not_found"} {
		t.Run(code, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, approverYAML)
			w.model.On("write", modeltest.Call("write_file", `{"path":"a.txt","content":"x"}`), modeltest.Text("Not written."))
			w.model.Default(modeltest.Echo)
			other := w.slack.AddChannel(slacktest.Channel{ID: "C5555", Members: []string{slacktest.BotUserID, "U0001"}})
			w.slack.Fail("chat.postMessage", -1, slacktest.ErrorCode(code), func(c slacktest.Call) bool { return c.Args["channel"] == other })
			p := w.serve()
			w.slack.Say(other, "U0001", slacktest.Mention+" write it")
			w.eventually("undeliverable\n", `SELECT outcome FROM tool_calls`)
			w.settled()
			if !strings.Contains(p.out.String(), code) || !strings.Contains(p.out.String(), "delivery failed for good") {
				t.Error("the log does not say so")
			}
			ask := w.ask("still there?")
			w.slack.WaitText(t, "C0001", ask.TS, "still there?")
		})
	}
}

// Whatever goes wrong on the way to Slack, the card and the answer appear, once.
//
// Rows: F24.
func TestPostsSurviveTrouble(t *testing.T) {
	t.Parallel()
	for name, f := range map[string]slacktest.Fault{
		"429":                    slacktest.RateLimited(time.Second),
		"ratelimited in a 200":   slacktest.RateLimited200(),
		"500":                    slacktest.Status(500),
		"503":                    slacktest.Status(503),
		"internal_error":         slacktest.ErrorCode("internal_error"),
		"a page instead of JSON": slacktest.HTML(),
		"cut before":             slacktest.Hangup(),
		"cut after":              slacktest.HangupAfter(),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, approverYAML)
			w.model.Reply(modeltest.Call("write_file", `{"path":"a.txt","content":"x"}`), modeltest.Text("Written."))
			w.slack.Fail("chat.postMessage", 1, f, isCard)
			w.slack.Fail("chat.postMessage", 1, f, func(c slacktest.Call) bool { return strings.Contains(c.Args["text"], "Written.") })
			w.slack.Fail("chat.update", 1, f)
			w.serve()
			ask := w.ask("write it")
			card := w.card(ask)
			w.click("U0002", card, "Approve")
			w.slack.WaitText(t, "C0001", ask.TS, "Written.")
			w.closed(card, "ran and succeeded")
			w.settled()
			cards := 0
			for _, m := range w.slack.Thread("C0001", ask.TS) {
				if strings.Contains(m.Shown, "SHA-256: ") {
					cards++
				}
			}
			if said := w.said(ask); cards != 1 || len(said) != 1 {
				t.Errorf("%d cards, answers %q", cards, said)
			}
			w.want("1\n", `SELECT count(*) FROM audit_log WHERE kind = 'tool_started'`)
		})
	}
}

// Slack's rate limits: bursts are slowed down, nothing is lost or doubled.
//
// Rows: F33.
func TestRateLimitsOfSlack(t *testing.T) {
	t.Parallel()
	w := newWorld(t, approverYAML)
	w.model.Default(modeltest.Echo)
	w.slack.EnforceRates()
	w.serve()
	var asks []slacktest.Message
	for i := range 12 {
		asks = append(asks, w.ask(fmt.Sprintf("question %d", i)))
	}
	for i, m := range asks {
		w.slack.WaitText(t, "C0001", m.TS, fmt.Sprintf("question %d", i))
	}
	w.settled()
	for i, m := range asks {
		if said := w.said(m); len(said) != 1 {
			t.Errorf("question %d: %q", i, said)
		}
	}
}

// Connections that break, are refreshed or multiply cost no message.
//
// Rows: F9, F10.
func TestSocketTrouble(t *testing.T) {
	t.Parallel()
	w := newWorld(t, approverYAML, slacktest.WithCloseGrace(time.Second))
	w.model.Default(modeltest.Echo)
	p := w.serve()
	asks := map[string]slacktest.Message{}
	ask := func(text string) { asks[text] = w.ask(text) }
	for _, reason := range []string{"warning", "refresh_requested", "link_disabled"} {
		ask("before " + reason)
		w.slack.Disconnect(reason)
		ask("after " + reason)
		w.slack.WaitConnected(t, 1)
	}
	ask("before the cut")
	w.slack.DropConnections()
	ask("after the cut")
	w.slack.WaitConnected(t, 1)
	// Frames that are no envelope, or none that can be read.
	for _, frame := range []string{`{"type":"hello"}`, `{"type":"of_next_year","envelope_id":"env-x1"}`, `{`, `[]`, `null`, `"x"`, `{"envelope_id":7}`, `{}`} {
		if err := w.slack.SendFrame(frame); err != nil {
			t.Errorf("%s: %v", frame, err)
		}
	}
	w.slack.WaitConnected(t, 1)
	ask("after odd frames")
	for text, m := range asks {
		w.slack.WaitText(t, "C0001", m.TS, text)
		if said := w.said(m); len(said) != 1 {
			t.Errorf("%s: %q", text, said)
		}
	}
	w.slack.AddGhost()
	w.slack.DropConnections()
	w.waitFor("/readyz tells of the other listener", func() bool {
		return strings.Contains(w.ready(p).Channels["slack"].Detail, "others listen")
	})
	w.slack.TakeViolations() // env-x1 was acknowledged, and Slack does not know it
	if lost := w.slack.Lost(); len(lost) > 0 {
		t.Errorf("lost: %s", lost[0].Body)
	}
}

// A token that Slack refuses ends the program with one line that says which.
func TestRefusedTokens(t *testing.T) {
	t.Parallel()
	w := newWorld(t, approverYAML)
	w.must("migrate", "up")
	for method, codes := range map[string]map[string]string{
		"auth.test": {
			"invalid_auth":           "check SLACK_BOT_TOKEN",
			"token_revoked":          "not valid any more",
			"account_inactive":       "install the app again",
			"not_allowed_token_type": "xoxb-",
		},
		"apps.connections.open": {
			"invalid_auth":  "check SLACK_BOT_TOKEN and SLACK_APP_TOKEN",
			"missing_scope": "connections:write",
		},
	} {
		for code, say := range codes {
			t.Run(method+" "+code, func(t *testing.T) {
				w.slack.Heal()
				w.slack.Fail(method, -1, slacktest.ErrorCode(code))
				p := w.start("serve")
				select {
				case <-p.done:
				case <-time.After(patience):
					t.Fatal("the program runs on")
				}
				if status := p.cmd.ProcessState.ExitCode(); status != 1 {
					t.Errorf("status %d", status)
				}
				if last := lastLine(p.out.String()); !strings.HasPrefix(last, "clawbot: slack: ") || !strings.Contains(last, say) {
					t.Errorf("the last line is %q", last)
				}
				out, _, status := w.run("doctor")
				if status != 1 || !strings.Contains(out, "fail  slack") || !strings.Contains(out, say) {
					t.Errorf("doctor: status %d\n%s", status, out)
				}
			})
		}
	}
}

// Slack that cannot be reached at the start is waited for.
func TestSlackIsAwayAtStart(t *testing.T) {
	t.Parallel()
	w := newWorld(t, approverYAML)
	w.model.Default(modeltest.Echo)
	w.slack.Fail("auth.test", 2, slacktest.Status(503))
	w.slack.Fail("apps.connections.open", 1, slacktest.Hangup())
	p := w.start("serve")
	w.waitFor("/readyz says so", func() bool { return !w.ready(p).Channels["slack"].OK })
	w.slack.WaitConnected(t, 1)
	ask := w.ask("hello")
	w.slack.WaitText(t, "C0001", ask.TS, "hello")
	w.waitFor("/readyz is good", func() bool { return w.ready(p).OK })
}

// A scope that is missing is named at start, on /readyz and by doctor; what does
// not need it goes on.
//
// Rows: F45.
func TestMissingScopeIsNamed(t *testing.T) {
	t.Parallel()
	for _, scope := range []string{"mpim:history", "files:write"} {
		t.Run(scope, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, approverYAML)
			w.model.Default(modeltest.Echo)
			w.slack.RevokeScopes(scope)
			out, _, status := w.run("doctor")
			if status != 1 || !strings.Contains(out, "missing "+scope) {
				t.Errorf("doctor: status %d\n%s", status, out)
			}
			p := w.serve()
			if !strings.Contains(p.out.String(), "the bot token lacks "+scope) {
				t.Error("the log does not name the scope")
			}
			if r := w.ready(p); !strings.Contains(r.Channels["slack"].Detail, scope) {
				t.Errorf("/readyz: %+v", r)
			}
			ask := w.ask("hello")
			w.slack.WaitText(t, "C0001", ask.TS, "hello")
		})
	}
}

// Without users:read nobody can be checked: nobody is answered, and they are told.
//
// Rows: F42, F43.
func TestPeopleWhoCannotBeCheckedAreRefused(t *testing.T) {
	t.Parallel()
	w := newWorld(t, approverYAML)
	w.slack.RevokeScopes("users:read")
	p := w.serve()
	w.ask("hello")
	w.whispered("U0001", "not able to check who you are")
	w.settled()
	w.want("0\n", `SELECT count(*) FROM turns`)
	if d := w.ready(p).Channels["slack"].Detail; !strings.Contains(d, "nobody is answered") {
		t.Errorf("/readyz: %s", d)
	}
}
