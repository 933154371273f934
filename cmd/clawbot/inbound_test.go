package main

import (
	"fmt"
	"strings"
	"testing"

	"github.com/clawbot/clawbot/channels/slack/slacktest"
	"github.com/clawbot/clawbot/model/modeltest"
)

// However Slack delivers a message, in whatever kind of conversation, it is
// answered once, and in its thread.
//
// Rows: F1, F2, F3, F4, F5, F6, F7.
func TestOneMessageIsAnsweredOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t, approverYAML)
	w.model.Default(modeltest.Echo)
	w.serve()
	private := w.slack.AddChannel(slacktest.Channel{Kind: slacktest.Private, Members: []string{slacktest.BotUserID, "U0001", "U0002"}})
	group := w.slack.AddChannel(slacktest.Channel{ID: "C7777", Kind: slacktest.MPIM, Members: []string{slacktest.BotUserID, "U0001", "U0002"}})
	old := w.slack.AddChannel(slacktest.Channel{ID: "G7777", Kind: slacktest.MPIM, Members: []string{slacktest.BotUserID, "U0001", "U0003"}})

	mention := func(channel string, how ...slacktest.How) func(text string) slacktest.Message {
		return func(text string) slacktest.Message {
			return w.slack.Say(channel, "U0001", slacktest.Mention+" "+text, how...)
		}
	}
	for _, c := range []struct {
		name string
		say  func(text string) slacktest.Message
	}{
		{"message, then app_mention", mention("C0001")},
		{"app_mention first", mention("C0001", slacktest.MentionFirst())},
		{"app_mention alone", mention("C0001", slacktest.OnlyMention())},
		{"message alone", mention("C0001", slacktest.OnlyMessage())},
		{"four times the same event", mention("C0001", slacktest.Times(4))},
		{"four events for one message", mention("C0001", slacktest.Times(4), slacktest.FreshIDs())},
		{"eight at once", mention("C0001", slacktest.Times(8), slacktest.FreshIDs(), slacktest.AtOnce())},
		{"only the retry arrives", mention("C0001", slacktest.AsRetry(1))},
		{"without client_msg_id", mention("C0001", slacktest.ClientMsgID(""))},
		{"mention in the middle", func(text string) slacktest.Message {
			return w.slack.Say("C0001", "U0001", "hey "+slacktest.Mention+", "+text)
		}},
		{"private channel", mention(private)},
		{"group message", mention(group)},
		{"group message of the old kind", mention(old, slacktest.OnlyMessage())},
		{"with a file", func(text string) slacktest.Message {
			return w.slack.Upload("C0001", "", "U0001", slacktest.Mention+" "+text, slacktest.File{Name: "a.txt", Content: []byte("x")})
		}},
		{"in a thread of people", func(text string) slacktest.Message {
			root := w.slack.Say("C0001", "U0003", "we should deploy")
			return w.slack.Reply("C0001", root.TS, "U0001", slacktest.Mention+" "+text)
		}},
		{"in a thread, shown in the channel too", func(text string) slacktest.Message {
			root := w.slack.Say("C0001", "U0003", "we should test")
			return w.slack.Reply("C0001", root.TS, "U0001", slacktest.Mention+" "+text, slacktest.Broadcast())
		}},
		{"direct message", func(text string) slacktest.Message { return w.slack.Say(w.slack.DM("U0001"), "U0001", text) }},
		{"thread of direct messages", func(text string) slacktest.Message {
			root := w.slack.Say(w.slack.DM("U0002"), "U0002", "first in line")
			return w.slack.Reply(root.Channel, root.TS, "U0002", text)
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			text := "tell me about " + c.name
			m := c.say(text)
			w.slack.WaitMessage(t, m.Channel, "", func(got slacktest.Message) bool {
				return got.FromBot() && strings.Contains(got.Shown, text) && (got.Root() == m.Root() || m.ThreadTS == "" && got.ThreadTS == "")
			})
		})
	}
	w.settled()
	for _, channel := range []string{"C0001", private, group, old, w.slack.DM("U0001"), w.slack.DM("U0002")} {
		answers := map[string]int{}
		for _, m := range w.slack.Thread(channel, "") {
			if !m.FromBot() {
				continue
			}
			_, about, _ := strings.Cut(m.Shown, "tell me about ")
			answers[about]++
			if strings.HasPrefix(channel, "C") && m.ThreadTS == "" {
				t.Errorf("this answer is outside of a thread: %s", m.Shown)
			}
		}
		for about, n := range answers {
			if n != 1 {
				t.Errorf("%d answers about %q in %s", n, about, channel)
			}
		}
	}
	w.want("0\n", `SELECT count(*) FROM (SELECT ref FROM turns GROUP BY conversation, ref HAVING count(*) > 1) twice`)
	w.want("true\n", `SELECT count(*) = count(DISTINCT (conversation, ref)) AND count(*) = 19 FROM turns`)
}

// What is not meant for the bot, and what no person has written, starts nothing.
//
// Rows: F12, F13, F14, F15, F16, F17, T18.
func TestWhatStartsNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t, approverYAML+`
channels:
  slack:
    allow: { users: ["*"], channels: ["C0001", "C8888"], guests: false, external: false }
`)
	w.model.Default(modeltest.Echo)
	w.serve()
	s := w.slack

	joined := w.ask("join this thread")
	s.WaitText(t, "C0001", joined.TS, "join this thread")
	direct := s.Say(s.DM("U0001"), "U0001", "hello there")
	s.WaitText(t, direct.Channel, "", "hello there")
	w.settled()
	turns := w.query(`SELECT count(*) FROM turns`)
	requests := len(w.model.Requests())

	guest := s.AddUser(slacktest.User{Name: "Gus", Restricted: true})
	single := s.AddUser(slacktest.User{Name: "Sol", UltraRestricted: true})
	outsider := s.AddUser(slacktest.User{Name: "Eve", TeamID: "T0666"})
	stranger := s.AddUser(slacktest.User{Name: "Stan", Stranger: true})
	gone := s.AddUser(slacktest.User{Name: "Dee", Deleted: true})
	robot := s.AddUser(slacktest.User{Name: "Rob", IsBot: true})
	elsewhere := s.AddChannel(slacktest.Channel{ID: "C9999", Members: []string{slacktest.BotUserID, "U0001"}})
	shared := s.AddChannel(slacktest.Channel{ID: "C8888", ExtShared: true, ConnectedTeams: []string{"T0666"}, Members: []string{slacktest.BotUserID, "U0001", outsider}})
	for _, u := range []string{guest, single, stranger, gone, robot} {
		s.SetMember("C0001", u, true)
	}
	app := slacktest.App{BotID: "B0002", AppID: "A0002", UserID: "U0BOT2", Name: "deploybot"}
	s.SetMember("C0001", "U0003", true)

	plain := s.Say("C0001", "U0001", "lunch?")
	s.Reply("C0001", plain.TS, "U0002", "yes, at noon")                                          // a thread that the bot has not joined
	s.Say("C0001", "U0001", "ask <@U0002> about it")                                             // another person
	s.Say("C0001", "U0001", "clawbot is nice")                                                   // the name is no mention
	s.AppSays(app, "C0001", "", slacktest.Mention+" run it")                                     // another app, with a user
	s.AppSays(slacktest.App{BotID: "B0003", Name: "hook"}, "C0001", "", slacktest.Mention+" go") // a webhook
	s.AppSays(app, "C0001", joined.TS, "in the joined thread")
	s.Edit(plain, slacktest.Mention+" now it names you")
	s.Edit(direct, "hello there, edited")
	s.Edit(joined, slacktest.Mention+" join this thread, edited")
	s.Preview(joined, "https://example.com/page")
	s.ReplyNotice(joined)
	s.Join("C0001", "U0003")
	for _, u := range []string{guest, single, stranger, gone, robot} {
		s.Say("C0001", u, slacktest.Mention+" let me in")
		s.Reply("C0001", joined.TS, u, "let me in here")
	}
	s.Say(elsewhere, "U0001", slacktest.Mention+" in a channel that is not on the list")
	s.Say(shared, outsider, slacktest.Mention+" from another organisation")
	s.Say("C0001", "U0001", slacktest.Mention+" for another workspace", slacktest.Alter(func(doc map[string]any) {
		doc["team_id"] = "T0999"
		doc["authorizations"] = []any{map[string]any{"team_id": "T0999", "user_id": "U0BOT9"}}
	}))
	s.Say("C0001", "U0001", slacktest.Mention+" for another app", slacktest.Alter(func(doc map[string]any) { doc["api_app_id"] = "A0999" }))
	s.DeliverEvent("C0001", `{"type":"reaction_added","user":"U0001","reaction":"eyes","item":{"type":"message","channel":"C0001","ts":"1.2"}}`)
	s.DeliverEvent("C0001", `{"type":"of_next_year","user":"U0001","channel":"C0001","text":"<@U0BOT> hi"}`)
	s.DeliverEvent("C0001", `{"type":"message","channel":"C0001","channel_type":"channel","text":"<@U0BOT> nobody wrote this","ts":"1700009999.000100"}`)
	s.Delete(plain)
	s.Delete(direct)
	w.settled()

	for _, u := range []string{guest, outsider} {
		w.whispered(u, "I cannot answer you")
		if n := len(s.Ephemerals(u)); n != 1 {
			t.Errorf("%s was told %d times, want once: only what addresses the bot is answered", u, n)
		}
	}
	w.whispered("U0001", "not one I may answer in")
	w.want(turns, `SELECT count(*) FROM turns`)
	if n := len(w.model.Requests()); n != requests {
		t.Errorf("the model was asked %d times more:\n%s", n-requests, w.model.Requests()[n-1])
	}
	if lost := s.Lost(); len(lost) > 0 {
		t.Errorf("not acknowledged: %s", lost[0].Body)
	}
}

// A thread once joined goes on without mentions, for all its people; the model
// is told who said what.
//
// Rows: F18, F19, L13.
func TestJoinedThreadGoesOnWithoutMention(t *testing.T) {
	t.Parallel()
	w := newWorld(t, approverYAML)
	w.model.Default(modeltest.Echo)
	p := w.serve()
	ask := w.ask("first question")
	w.slack.WaitText(t, "C0001", ask.TS, "first question")
	w.slack.Reply("C0001", ask.TS, "U0002", "second question")
	w.slack.WaitText(t, "C0001", ask.TS, "second question")
	p.kill()
	w.serve()
	w.slack.Reply("C0001", ask.TS, "U0003", "third question")
	w.slack.WaitText(t, "C0001", ask.TS, "third question")
	w.settled()
	w.want("1 3\n", `SELECT count(DISTINCT session_id), count(*) FROM turns WHERE status = 'done'`)
	last := w.model.Requests()[2]
	var users []string
	for _, m := range last.Messages {
		if m.Role == "user" {
			users = append(users, m.Text)
		}
	}
	if len(users) != 3 || !strings.Contains(users[0], "Ana") || !strings.Contains(users[1], "Ben") || !strings.Contains(users[2], "Cleo") {
		t.Errorf("the model was shown:\n%s", last)
	}
}

// A long turn in one thread holds up no other thread, and no answer strays.
//
// Rows: F20, F22, T13, L10.
func TestThreadsDoNotWaitForEachOther(t *testing.T) {
	t.Parallel()
	w := newWorld(t, approverYAML)
	release := make(chan struct{})
	w.model.On("slow one", modeltest.Text("slow is done").Hold(release))
	w.model.Default(modeltest.Echo)
	w.serve()
	slow := w.ask("slow one")
	w.model.WaitRequests(t, 1)
	var quick []slacktest.Message
	for i := range 8 {
		quick = append(quick, w.ask(fmt.Sprintf("quick number %d", i)))
	}
	for i, m := range quick {
		w.slack.WaitText(t, "C0001", m.TS, fmt.Sprintf("quick number %d", i))
	}
	if said := w.said(slow); len(said) != 0 {
		t.Errorf("the slow thread has %q already", said)
	}
	close(release)
	w.slack.WaitText(t, "C0001", slow.TS, "slow is done")
	w.settled()
	for i, m := range append(quick, slow) {
		if said := w.said(m); len(said) != 1 {
			t.Errorf("thread %d holds %q", i, said)
		}
	}
	for _, r := range w.model.Requests() {
		if n := strings.Count(r.String(), "user:"); n != 1 {
			t.Errorf("a request carries messages of %d threads:\n%s", n, r)
		}
	}
}

// Messages of one thread are worked on one at a time and in order, also those
// that arrive while a card is open.
//
// Rows: F21.
func TestOneThreadIsWorkedOnInOrder(t *testing.T) {
	t.Parallel()
	w := newWorld(t, approverYAML)
	release := make(chan struct{})
	w.model.On("first", modeltest.Text("answer to first").Hold(release))
	w.model.On("second", modeltest.Call("write_file", `{"path":"a.txt","content":"x"}`), modeltest.Text("answer to second"))
	w.model.Default(modeltest.Echo)
	w.serve()
	ask := w.ask("first")
	w.model.WaitRequests(t, 1)
	w.slack.Reply("C0001", ask.TS, "U0001", "second")
	w.slack.Reply("C0001", ask.TS, "U0001", "third")
	w.slack.WaitIdle(t)
	if n := len(w.model.Requests()); n != 1 {
		t.Errorf("%d requests run at once in one thread", n)
	}
	close(release)
	card := w.card(ask)
	w.slack.Reply("C0001", ask.TS, "U0003", "fourth")
	w.slack.WaitIdle(t)
	w.click("U0002", card, "Approve")
	w.slack.WaitText(t, "C0001", ask.TS, "fourth")
	w.settled()
	w.want("first\nsecond\nthird\nfourth\n", `SELECT text FROM messages WHERE role = 'user' ORDER BY seq`)
	// What came in while the second one was worked on was taken up in its next
	// round; the answer is to the last of them.
	said := w.said(ask)
	if !strings.Contains(said[0], "answer to first") || !strings.Contains(said[len(said)-1], "fourth") {
		t.Errorf("the thread reads %q", said)
	}
}

// "stop" ends the turn of its thread: the open card is closed, nothing runs, and
// the thread goes on.
func TestStopEndsTheTurn(t *testing.T) {
	t.Parallel()
	w := newWorld(t, approverYAML)
	w.model.On("write", modeltest.Call("write_file", `{"path":"a.txt","content":"x"}`))
	w.model.Default(modeltest.Echo)
	w.serve()
	ask := w.ask("write it")
	card := w.card(ask)
	w.slack.Reply("C0001", ask.TS, "U0001", "stop")
	w.slack.WaitText(t, "C0001", ask.TS, "Stopped by Ana")
	w.closed(card, "cancelled")
	w.click("U0002", card, "Approve", slacktest.Stale())
	w.whispered("U0002", "decided already")
	w.slack.Reply("C0001", ask.TS, "U0001", "and now?")
	w.slack.WaitText(t, "C0001", ask.TS, "and now?")
	w.settled()
	w.want("cancelled\n", `SELECT outcome FROM tool_calls`)
	if got := w.wroteFile("a.txt"); got != "" {
		t.Errorf("it ran: %q", got)
	}
}

// A slash command is answered, and decides nothing.
func TestSlashCommandIsAnswered(t *testing.T) {
	t.Parallel()
	w := newWorld(t, approverYAML)
	w.serve()
	for _, text := range []string{"", "help", "approve ap_1", strings.Repeat("x", 3000)} {
		if err := w.slack.Command("U0002", "C0001", "/clawbot", text); err != nil {
			t.Errorf("%.20q: %v", text, err)
		}
	}
	if n := len(w.slack.Ephemerals("U0002")); n != 4 {
		t.Errorf("%d answers, want 4", n)
	}
	w.want("0\n", `SELECT count(*) FROM turns`)
}
