package slacktest_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/slack-go/slack"

	"github.com/clawbot/clawbot/channels/slack/slacktest"
)

func TestFaults(t *testing.T) {
	s := slacktest.Start(t)
	api := client(t, s)
	send := func() error {
		_, _, err := api.PostMessage("C0001", quietText("x"))
		return err
	}
	for _, tc := range []struct {
		name   string
		fault  slacktest.Fault
		posted int
		want   func(error) bool
	}{
		{"429", slacktest.RateLimited(1500 * time.Millisecond), 0, func(err error) bool {
			limited, ok := errors.AsType[*slack.RateLimitedError](err)
			return ok && limited.RetryAfter == 2*time.Second
		}},
		{"429 in 200", slacktest.RateLimited200(), 0, func(err error) bool { return err.Error() == "ratelimited" }},
		{"code", slacktest.ErrorCode("fatal_error"), 0, func(err error) bool { return err.Error() == "fatal_error" }},
		{"500", slacktest.Status(500), 0, func(err error) bool {
			status, ok := errors.AsType[slack.StatusCodeError](err)
			return ok && status.Code == 500
		}},
		{"html", slacktest.HTML(), 0, func(err error) bool { return strings.Contains(err.Error(), "invalid character") }},
		{"hangup", slacktest.Hangup(), 0, func(err error) bool { return true }},
		{"hangup after", slacktest.HangupAfter(), 1, func(err error) bool { return true }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			before := len(s.Thread("C0001", ""))
			s.Fail("chat.postMessage", 1, tc.fault)
			if err := send(); err == nil || !tc.want(err) {
				t.Errorf("got %v", err)
			}
			if n := len(s.Thread("C0001", "")) - before; n != tc.posted {
				t.Errorf("%d messages posted, want %d", n, tc.posted)
			}
			if err := send(); err != nil {
				t.Errorf("the next call: %v", err)
			}
		})
	}
	t.Run("delay", func(t *testing.T) {
		s.Fail("chat.postMessage", 1, slacktest.Delay(time.Hour))
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		defer cancel()
		if _, _, err := api.PostMessageContext(ctx, "C0001", quietText("x")); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v", err)
		}
	})
	t.Run("match", func(t *testing.T) {
		s.Fail("*", -1, slacktest.ErrorCode("fatal_error"), func(c slacktest.Call) bool { return c.Args["text"] == "bad" })
		if err := send(); err != nil {
			t.Error(err)
		}
		for range 2 {
			_, _, err := api.PostMessage("C0001", quietText("bad"))
			wantError(t, err, "fatal_error")
		}
		s.Heal()
		if _, _, err := api.PostMessage("C0001", quietText("bad")); err != nil {
			t.Error(err)
		}
	})
	if calls := s.Calls("chat.postMessage"); calls[0].Fault != "429" || calls[1].Error != "" {
		t.Errorf("calls %+v", calls[:2])
	}
}

func TestRates(t *testing.T) {
	s := slacktest.Start(t)
	s.EnforceRates()
	api := client(t, s)
	s.AddChannel(slacktest.Channel{ID: "C0TWO", Members: []string{slacktest.BotUserID}})
	for range 5 {
		post(t, api, "C0001", slack.MsgOptionText("x", false))
	}
	_, _, err := api.PostMessage("C0001", quietText("x"))
	if limited, ok := errors.AsType[*slack.RateLimitedError](err); !ok || limited.RetryAfter != time.Second {
		t.Errorf("the sixth at once: %v", err)
	}
	post(t, api, "C0TWO", slack.MsgOptionText("another channel", false))
}

func TestScopes(t *testing.T) {
	s := slacktest.Start(t)
	p := startProgram(t, s, nil)
	s.WaitConnected(t, 1)
	group := s.AddChannel(slacktest.Channel{Kind: slacktest.MPIM, Members: []string{slacktest.BotUserID, "U0001", "U0002"}})
	s.SetScopes("channels:history", "app_mentions:read", "channels:read")
	_, _, err := p.api.PostMessage("C0001", quietText("x"))
	wantError(t, err, "missing_scope")
	if failed, ok := errors.AsType[slack.SlackErrorResponse](err); !ok || failed.Needed != "chat:write" || failed.Provided == "" {
		t.Errorf("missing scope: %+v", failed)
	}
	_, err = p.api.GetConversationInfo(&slack.GetConversationInfoInput{ChannelID: group})
	wantError(t, err, "missing_scope")
	if _, err = p.api.GetConversationInfo(&slack.GetConversationInfoInput{ChannelID: "C0001"}); err != nil {
		t.Error(err)
	}
	s.Say(group, "U0001", "hi")
	s.Say("C0001", "U0001", "hi")
	s.WaitIdle(t)
	if got := p.snapshot().messages; len(got) != 1 || got[0].Channel != "C0001" {
		t.Errorf("messages %+v", got)
	}
	who, err := p.api.AuthTest()
	if err != nil || who.Header.Get("X-OAuth-Scopes") != "app_mentions:read,channels:history,channels:read" {
		t.Errorf("%v %v", who, err)
	}
}

func TestStatus(t *testing.T) {
	s := slacktest.Start(t)
	api := client(t, s)
	root := s.Say("C0001", "U0001", "root")
	err := api.SetAssistantThreadsStatus(slack.AssistantThreadsSetStatusParameters{
		ChannelID: "C0001", ThreadTS: root.TS, Status: "is thinking", LoadingMessages: []string{"a", "b"},
	})
	if err != nil || s.Status("C0001", root.TS) != "is thinking" {
		t.Errorf("status %q %v", s.Status("C0001", root.TS), err)
	}
	post(t, api, "C0001", slack.MsgOptionTS(root.TS), slack.MsgOptionText("done", false))
	if got := s.Status("C0001", root.TS); got != "" {
		t.Errorf("status %q after a post", got)
	}
}

// A server on a fixed address can be closed and started again.
func TestFixedAddress(t *testing.T) {
	s := slacktest.Start(t)
	addr := s.Addr()
	s.Close()
	again := slacktest.Start(t, slacktest.WithAddr(addr))
	if _, err := client(t, again).AuthTest(); err != nil {
		t.Error(err)
	}
	s.Close()
}
