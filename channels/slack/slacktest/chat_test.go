package slacktest_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/slack-go/slack"

	"github.com/clawbot/clawbot/channels/slack/slacktest"
)

func TestTokens(t *testing.T) {
	s := slacktest.Start(t)
	for _, tc := range []struct{ token, want string }{
		{"xoxb-other", "invalid_auth"}, {"", "not_authed"}, {s.AppToken, "not_allowed_token_type"},
	} {
		_, err := slack.New(tc.token, slack.OptionAPIURL(s.APIURL())).AuthTest()
		wantError(t, err, tc.want)
	}
	who, err := client(t, s).AuthTest()
	if err != nil {
		t.Fatal(err)
	}
	if who.UserID != slacktest.BotUserID || who.BotID != slacktest.BotID || who.TeamID != slacktest.TeamID {
		t.Errorf("auth.test says %+v", who)
	}
	if scopes := who.Header.Get("X-OAuth-Scopes"); !strings.Contains(scopes, "chat:write") {
		t.Errorf("x-oauth-scopes is %q", scopes)
	}
	_, _, err = slack.New(s.BotToken, slack.OptionAPIURL(s.APIURL()), slack.OptionAppLevelToken(s.BotToken)).StartSocketModeContext(t.Context())
	wantError(t, err, "not_allowed_token_type")
}

// A person asks, the app answers with a card and replaces it.
func TestPostUpdateRender(t *testing.T) {
	s := slacktest.Start(t)
	api := client(t, s)
	ask := s.Say("C0001", "U0001", slacktest.Mention+" if a &lt; b &amp;&amp; c, delete logs")
	post(t, api, "C0001", slack.MsgOptionTS(ask.TS), slack.MsgOptionText("May I?", false), slack.MsgOptionBlocks(
		slack.NewHeaderBlock(plain("Approval needed")),
		slack.NewSectionBlock(text("*shell* see <https://x.example/a|the docs>, <@U0002>"), nil, nil),
		slack.NewMarkdownBlock("", "```\nrm -rf &lt;dir&gt;\n```"),
		slack.NewActionBlock("", button("ok", "Approve"), button("no", "Deny")),
	))
	card := s.WaitMessage(t, "C0001", ask.TS, func(m slacktest.Message) bool { return m.HasButton("Approve") })
	if diff := cmp.Diff([]string{"U0002"}, card.Pings); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]slacktest.Link{{URL: "https://x.example/a", Label: "the docs"}}, card.Links); diff != "" {
		t.Error(diff)
	}
	want := strings.TrimPrefix(`
#general
Ana: @clawbot if a < b && c, delete logs
  clawbot: # Approval needed
      *shell* see {link the docs -> https://x.example/a}, {ping @Ben}
      `+"```"+`
      rm -rf <dir>
      `+"```"+`
      [Approve] [Deny]
`, "\n")
	if diff := cmp.Diff(want, s.Render("C0001", ask.TS)); diff != "" {
		t.Error(diff)
	}
	if _, _, _, err := api.UpdateMessage("C0001", card.TS, slack.MsgOptionText("Approved by Ben &amp; co.", false), slack.MsgOptionParse(false)); err != nil {
		t.Fatal(err)
	}
	if _, err := api.PostEphemeral("C0001", "U0003", slack.MsgOptionTS(ask.TS), slack.MsgOptionText("Only you", false)); err != nil {
		t.Fatal(err)
	}
	want = strings.TrimPrefix(`
#general
Ana: @clawbot if a < b && c, delete logs
  clawbot (edited): Approved by Ben & co.
  clawbot (only Cleo sees this): Only you
`, "\n")
	if diff := cmp.Diff(want, s.Render("C0001", ask.TS)); diff != "" {
		t.Error(diff)
	}
	if got := s.Ephemerals("U0003"); len(got) != 1 || got[0].Shown != "Only you" {
		t.Errorf("ephemerals %+v", got)
	}
	if m, _ := s.Message("C0001", card.TS); m.HasButton("Approve") || len(m.Revisions) != 1 {
		t.Errorf("text alone should have removed the blocks: %+v", m)
	}
}

func TestChatErrors(t *testing.T) {
	s := slacktest.Start(t)
	api := client(t, s)
	s.AddChannel(slacktest.Channel{ID: "C0OLD", Archived: true, Members: []string{slacktest.BotUserID}})
	s.AddChannel(slacktest.Channel{ID: "C0OUT", Members: []string{"U0001"}})
	s.AddChannel(slacktest.Channel{ID: "G0OUT", Kind: slacktest.Private, Members: []string{"U0001"}})
	s.AddUser(slacktest.User{ID: "U0OUT", Name: "Out"})
	root := s.Say("C0001", "U0001", "root")
	hello := slack.MsgOptionText("hello", false)
	for channel, want := range map[string]string{
		"C9": "channel_not_found", "G0OUT": "channel_not_found", "C0OUT": "not_in_channel", "C0OLD": "is_archived",
	} {
		_, _, err := api.PostMessage(channel, hello)
		wantError(t, err, want)
	}
	_, _, err := api.PostMessage("C0001", slack.MsgOptionText(" \n", false))
	wantError(t, err, "no_text")
	_, _, err = api.PostMessage("C0001", hello, slack.MsgOptionMarkdownText("x"))
	wantError(t, err, "markdown_text_conflict")
	_, _, err = api.PostMessage("C0001", hello, slack.MsgOptionTS("1600000000.000100"))
	wantError(t, err, "thread_not_found")
	_, _, _, err = api.UpdateMessage("C0001", root.TS, hello)
	wantError(t, err, "cant_update_message")
	_, _, _, err = api.UpdateMessage("C0001", "1600000000.000100", hello)
	wantError(t, err, "message_not_found")
	_, _, err = api.DeleteMessage("C0001", root.TS)
	wantError(t, err, "cant_delete_message")
	_, err = api.PostEphemeral("C0001", "U0OUT", hello)
	wantError(t, err, "user_not_in_channel")
	ts, err := api.PostEphemeral("C0001", "U0001", hello)
	if err != nil {
		t.Fatal(err)
	}
	_, _, _, err = api.UpdateMessage("C0001", ts, hello)
	wantError(t, err, "message_not_found")

	rich := slack.NewRichTextBlock("", slack.NewRichTextSection(slack.NewRichTextSectionTextElement("x", nil)))
	ts = post(t, api, "C0001", slack.MsgOptionBlocks(rich))
	_, _, _, err = api.UpdateMessage("C0001", ts, slack.MsgOptionBlocks(slack.NewSectionBlock(text("y"), nil, nil)))
	wantError(t, err, "block_mismatch")

	if err := api.SetUserPresence("auto"); err == nil || err.Error() != "unknown_method" {
		t.Errorf("unknown method: %v", err)
	}
}

func TestViolations(t *testing.T) {
	s := slacktest.Start(t)
	api := client(t, s)
	root := s.Say("C0001", "U0001", "root")
	reply := s.Reply("C0001", root.TS, "U0002", "reply")
	meta := slack.MsgOptionMetadata(slack.SlackMetadata{EventType: "d", EventPayload: map[string]any{"delivery_id": "1"}})
	ts := post(t, api, "C0001", slack.MsgOptionText("fine &amp; dandy <https://a.example|a>", false))
	if v := s.TakeViolations(); len(v) != 0 {
		t.Errorf("a clean post has violations %v", v)
	}
	for _, tc := range []struct {
		name string
		act  func()
		want string
	}{
		{"unfurl", func() { _, _, _ = api.PostMessage("C0001", slack.MsgOptionText("x", false)) }, "unfurl_links is not false"},
		{"channel", func() { post(t, api, "C0001", slack.MsgOptionText("<!channel> x", false)) }, "pings channel"},
		{"user", func() { post(t, api, "C0001", slack.MsgOptionText("hi <@U0001>", false)) }, "pings U0001"},
		{"group", func() { post(t, api, "C0001", slack.MsgOptionText("hi <!subteam^S0001|x>", false)) }, "pings S0001"},
		{"markdown", func() { post(t, api, "C0001", slack.MsgOptionMarkdownText("hi <!here>")) }, "pings here"},
		{"section", func() {
			post(t, api, "C0001", slack.MsgOptionBlocks(slack.NewSectionBlock(text("<!everyone>"), nil, nil)))
		}, "pings everyone"},
		{"rich", func() {
			post(t, api, "C0001", slack.MsgOptionBlocks(slack.NewRichTextBlock("", slack.NewRichTextSection(slack.NewRichTextSectionUserElement("U0002", nil)))))
		}, "pings U0002"},
		{"long", func() { post(t, api, "C0001", slack.MsgOptionText(strings.Repeat("x", 4001), false)) }, "4001 characters"},
		{"parse", func() { _, _, _, _ = api.UpdateMessage("C0001", ts, slack.MsgOptionText("x", false)) }, "parse is"},
		{"name", func() { _, _, _, _ = api.UpdateMessage("C0001", ts, slack.MsgOptionText("x @here", false)) }, "pings here"},
		{"escape", func() { post(t, api, "C0001", slack.MsgOptionText("a<b && c>d", false)) }, "not escaped"},
		{"reply root", func() { post(t, api, "C0001", slack.MsgOptionTS(reply.TS), slack.MsgOptionText("x", false)) }, "names a reply"},
		{"twin", func() {
			post(t, api, "C0001", slack.MsgOptionText("x", false), meta)
			post(t, api, "C0001", slack.MsgOptionText("x", false), meta)
		}, "same metadata"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			tc.act()
			for _, v := range s.TakeViolations() {
				if strings.Contains(v.What, tc.want) {
					return
				}
			}
			t.Errorf("no violation %q", tc.want)
		})
	}
	s.AllowPings("U0001")
	post(t, api, "C0001", slack.MsgOptionText("hi <@U0001>", false))
	s.NoViolations(t)
}

func TestHistoryAndConversations(t *testing.T) {
	s := slacktest.Start(t)
	api := client(t, s)
	root := s.Say("C0001", "U0001", "root")
	meta := slack.SlackMetadata{EventType: "d", EventPayload: map[string]any{"id": "7"}}
	post(t, api, "C0001", slack.MsgOptionTS(root.TS), slack.MsgOptionText("one", false), slack.MsgOptionMetadata(meta))
	post(t, api, "C0001", slack.MsgOptionTS(root.TS), slack.MsgOptionText("two", false))
	s.Say("C0001", "U0002", "other")

	params := &slack.GetConversationRepliesParameters{ChannelID: "C0001", Timestamp: root.TS, Limit: 2, IncludeAllMetadata: true}
	page, more, cursor, err := api.GetConversationReplies(params)
	if err != nil || len(page) != 2 || !more || page[0].ReplyCount != 2 {
		t.Fatalf("first page %+v more=%v err=%v", page, more, err)
	}
	if diff := cmp.Diff(meta, page[1].Metadata); diff != "" {
		t.Error(diff)
	}
	params.Cursor, params.IncludeAllMetadata = cursor, false
	page, more, _, err = api.GetConversationReplies(params)
	if err != nil || len(page) != 1 || more || page[0].Text != "two" {
		t.Fatalf("second page %+v more=%v err=%v", page, more, err)
	}
	history, err := api.GetConversationHistory(&slack.GetConversationHistoryParameters{ChannelID: "C0001"})
	if err != nil || len(history.Messages) != 2 || history.Messages[0].Text != "other" {
		t.Fatalf("history %+v err=%v", history, err)
	}

	s.AddUser(slacktest.User{ID: "U0EXT", Name: "Eve", TeamID: "T0002", Stranger: true})
	s.AddUser(slacktest.User{ID: "U0GST", Name: "Gus", Restricted: true})
	if u, err := api.GetUserInfo("U0EXT"); err != nil || !u.IsStranger || u.TeamID != "T0002" {
		t.Errorf("external user %+v err=%v", u, err)
	}
	if u, err := api.GetUserInfo("U0GST"); err != nil || !u.IsRestricted {
		t.Errorf("guest %+v err=%v", u, err)
	}
	_, err = api.GetUserInfo("U9")
	wantError(t, err, "user_not_found")
	s.AddGroup(slacktest.Group{ID: "S0001", Handle: "admins", Members: []string{"U0001"}})
	if ids, err := api.GetUserGroupMembers("S0001"); err != nil || len(ids) != 1 {
		t.Errorf("group %v err=%v", ids, err)
	}
	_, err = api.GetUserGroupMembers("S9")
	wantError(t, err, "no_such_subteam")
	s.AddChannel(slacktest.Channel{ID: "C0EXT", ExtShared: true, ConnectedTeams: []string{"T0002"}, Members: []string{slacktest.BotUserID}})
	c, err := api.GetConversationInfo(&slack.GetConversationInfoInput{ChannelID: "C0EXT"})
	if err != nil || !c.IsExtShared || !c.IsMember || len(c.ConnectedTeamIDs) != 1 {
		t.Errorf("channel %+v err=%v", c, err)
	}
	dm, _, _, err := api.OpenConversation(&slack.OpenConversationParameters{Users: []string{"U0002"}})
	if err != nil || dm.ID != s.DM("U0002") {
		t.Errorf("dm %+v err=%v", dm, err)
	}
	ref := slack.NewRefToMessage("C0001", root.TS)
	if err := api.AddReaction("eyes", ref); err != nil {
		t.Error(err)
	}
	wantError(t, api.AddReaction("eyes", ref), "already_reacted")
	if err := api.RemoveReaction("eyes", ref); err != nil {
		t.Error(err)
	}
	wantError(t, api.RemoveReaction("eyes", ref), "no_reaction")
	if link, err := api.GetPermalink(&slack.PermalinkParameters{Channel: "C0001", Ts: root.TS}); err != nil || !strings.Contains(link, "C0001/p17") {
		t.Errorf("permalink %q err=%v", link, err)
	}
}
