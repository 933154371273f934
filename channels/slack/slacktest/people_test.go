package slacktest_test

import (
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/slack-go/slack"

	"github.com/clawbot/clawbot/channels/slack/slacktest"
)

// eventIDs lists the event_ids acknowledged since an earlier count.
func eventIDs(s *slacktest.Server, since int) []string {
	var out []string
	for _, a := range s.Acks()[since:] {
		out = append(out, a.EventID)
	}
	return out
}

func TestRepeats(t *testing.T) {
	s := slacktest.Start(t)
	p := startProgram(t, s, nil)
	m := s.Say("C0001", "U0001", "one", slacktest.Times(2), slacktest.AtOnce())
	s.WaitIdle(t)
	if ids := eventIDs(s, 0); len(ids) != 2 || ids[0] != ids[1] {
		t.Errorf("the same event twice has ids %v", ids)
	}
	s.Redeliver(m)
	s.Say("C0001", "U0001", "two", slacktest.Times(2), slacktest.FreshIDs(), slacktest.ClientMsgID("twin"))
	s.WaitIdle(t)
	if ids := eventIDs(s, 1); len(ids) != 4 || ids[0] == ids[1] || ids[2] == ids[3] {
		t.Errorf("ids %v", ids)
	}
	got := p.snapshot().messages
	if got[2].TimeStamp != m.TS || got[3].TimeStamp != got[4].TimeStamp || got[3].ClientMsgID != "twin" {
		t.Errorf("messages %+v", got)
	}
}

func TestThreadEvents(t *testing.T) {
	s := slacktest.Start(t)
	p := startProgram(t, s, nil)
	root := s.Say("C0001", "U0001", "root", slacktest.Undelivered())
	s.Reply("C0001", root.TS, "U0002", "reply", slacktest.Broadcast())
	s.ReplyNotice(root)
	s.Say("C0001", "U0001", "x", slacktest.Alter(func(doc map[string]any) {
		doc["team_id"] = "T0002"
		doc["event"].(map[string]any)["text"] = "altered"
	}))
	s.WaitIdle(t)
	got := p.snapshot().messages
	if got[0].SubType != "thread_broadcast" || got[0].ThreadTimeStamp != root.TS || got[0].Root.Text != "root" {
		t.Errorf("broadcast %+v", got[0])
	}
	if got[1].SubType != "message_changed" || got[1].Message.ReplyCount != 1 || got[1].PreviousMessage.ReplyCount != 0 ||
		got[1].Message.Text != got[1].PreviousMessage.Text {
		t.Errorf("notice %+v", got[1])
	}
	if got[2].Text != "altered" {
		t.Errorf("altered %+v", got[2])
	}
}

func TestPersonsBlocks(t *testing.T) {
	s := slacktest.Start(t)
	typed := slacktest.Mention + " see <https://a.example|a> in <#C0001> <!here> <!subteam^S0001> " + slacktest.Escape("<&>")
	m := s.Say("C0001", "U0001", typed)
	if want := "@clawbot see a in #general @here @S0001 <&>"; m.Shown != want {
		t.Errorf("shown %q, want %q", m.Shown, want)
	}
	if diff := cmp.Diff([]string{slacktest.BotUserID, "here", "S0001"}, m.Pings); diff != "" {
		t.Error(diff)
	}
}

func TestMembership(t *testing.T) {
	s := slacktest.Start(t)
	s.SetMember("C0001", "U0003", false)
	defer func() {
		if said, _ := recover().(string); !strings.Contains(said, "U0003 is not in C0001") {
			t.Errorf("panicked with %q", said)
		}
	}()
	s.Say("C0001", "U0003", "hi")
}

func TestForgedClick(t *testing.T) {
	s := slacktest.Start(t)
	p := startProgram(t, s, nil)
	s.WaitConnected(t, 1)
	m := card(t, p, s, "")
	if err := s.Click("U0001", m, "Approve", slacktest.Alter(func(doc map[string]any) {
		doc["user"] = map[string]any{"id": "U0FOE", "team_id": "T0666"}
	})); err != nil {
		t.Fatal(err)
	}
	if err := s.ClickRaw(map[string]any{"type": "block_actions", "actions": []any{}}); err != nil {
		t.Fatal(err)
	}
	if got := p.snapshot().clicks; got[0].User.ID != "U0FOE" || len(got) != 2 {
		t.Errorf("clicks %+v", got)
	}
	s.AddUser(slacktest.User{ID: "U0OUT"})
	if err := s.Click("U0OUT", m, "Approve"); err == nil {
		t.Error("somebody clicked in a channel that he is not in")
	}
}

func TestWholeChannel(t *testing.T) {
	s := slacktest.Start(t)
	api := client(t, s)
	dm := s.DM("U0001")
	one := s.Say(dm, "U0001", "one")
	s.Say(dm, "U0001", "two")
	list := slack.NewRichTextList(slack.RTEListOrdered, 0,
		slack.NewRichTextSection(slack.NewRichTextSectionTextElement("first", nil)),
		slack.NewRichTextSection(slack.NewRichTextSectionTextElement("ls", &slack.RichTextSectionTextStyle{Code: true})))
	code := &slack.RichTextPreformatted{
		Type: slack.RTEPreformatted, Elements: []slack.RichTextSectionElement{slack.NewRichTextSectionTextElement("a  b", nil)},
	}
	post(t, api, dm, slack.MsgOptionTS(one.TS), slack.MsgOptionBlocks(slack.NewRichTextBlock("", list, code), slack.NewDividerBlock(),
		slack.NewImageBlock("https://a.example/i.png", "a cat", "", nil),
		slack.NewContextBlock("", text("by"), plain("rule 7"))))
	if err := api.AddReaction("eyes", slack.NewRefToMessage(dm, one.TS)); err != nil {
		t.Fatal(err)
	}
	want := strings.TrimPrefix(`
direct message with Ana
Ana: one
    :eyes: 1
  clawbot: 1. first
      2. `+"`ls`"+`
      `+"```"+`
      a  b
      `+"```"+`
      ---
      [image: a cat]
      by rule 7
Ana: two
`, "\n")
	if diff := cmp.Diff(want, s.Render(dm, "")); diff != "" {
		t.Error(diff)
	}
}

// Methods that write take JSON; those that only read take forms.
func TestJSONBodies(t *testing.T) {
	s := slacktest.Start(t)
	root := s.Say("C0001", "U0001", "root")
	call := func(method, body string) (answer struct {
		OK    bool   `json:"ok"`
		Error string `json:"error"`
	}) {
		req, _ := http.NewRequest(http.MethodPost, s.APIURL()+method, strings.NewReader(body))
		req.Header.Set("Content-Type", "application/json; charset=utf-8")
		req.Header.Set("Authorization", "Bearer "+s.BotToken)
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = resp.Body.Close() }()
		raw, _ := io.ReadAll(resp.Body)
		if err := json.Unmarshal(raw, &answer); err != nil {
			t.Fatalf("%s: %v", raw, err)
		}
		return answer
	}
	body := `{"channel":"C0001","thread_ts":"` + root.TS + `","unfurl_links":false,"unfurl_media":false,` +
		`"blocks":[{"type":"section","text":{"type":"mrkdwn","text":"from JSON"}}]}`
	if a := call("chat.postMessage", body); !a.OK {
		t.Errorf("post: %+v", a)
	}
	s.WaitText(t, "C0001", root.TS, "from JSON")
	if a := call("conversations.info", `{"channel":"C0001"}`); a.Error != "channel_not_found" {
		t.Errorf("info: %+v", a)
	}
	if a := call("chat.postMessage", `{`); a.Error != "invalid_json" {
		t.Errorf("broken: %+v", a)
	}
	s.NoViolations(t)
}

func TestOptions(t *testing.T) {
	at := time.Unix(1800000000, 0)
	s := slacktest.Start(t, slacktest.Strict(), slacktest.WithEpoch(at), slacktest.WithPingInterval(time.Millisecond),
		slacktest.WithCloseGrace(0))
	p := startProgram(t, s, nil)
	if m := s.Say("C0001", "U0001", "hi"); m.TS != "1800000000.000100" {
		t.Errorf("ts %s", m.TS)
	}
	s.WaitIdle(t)
	s.Disconnect("link_disabled")
	s.WaitConnected(t, 1)
	if n := len(p.snapshot().hello); n < 1 {
		t.Errorf("%d connections", n)
	}
	if calls := s.WaitCalls(t, "apps.connections.open", 2); calls[0].Error != "" {
		t.Errorf("calls %+v", calls)
	}
}
