package demo_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/clawbot/clawbot/agent"
	"github.com/clawbot/clawbot/model/demo"
)

var (
	noon  = time.Date(2030, 1, 2, 12, 0, 0, 0, time.UTC)
	model = demo.New(func() time.Time { return noon })
)

func offer(names ...string) []agent.Tool {
	var tools []agent.Tool
	for _, name := range names {
		tools = append(tools, agent.Tool{Name: name})
	}
	return tools
}

var all = offer("write_file", "read_file", "list_dir", "http_fetch", "shell", "cron_add", "cron_list", "cron_remove",
	"send_message", "ask_user", "escalate_to_human", "delegate", "everything__echo")

func user(text string) agent.Message { return agent.Message{Role: agent.RoleUser, Text: text} }

func complete(t testing.TB, req agent.ModelRequest) agent.ModelReply {
	t.Helper()
	reply, err := model.Complete(context.Background(), req)
	if err != nil {
		t.Fatal(err)
	}
	return reply
}

func TestWishes(t *testing.T) {
	for text, want := range map[string]string{
		"write notes.txt: hello":                       `write_file {"content":"hello","path":"notes.txt"}`,
		"Please WRITE `a b.txt`: one\n two: three ":    `write_file {"content":"one\n two: three","path":"a b.txt"}`,
		"write hello world to notes.txt":               `write_file {"content":"hello world","path":"notes.txt"}`,
		"write notes.txt:":                             `write_file {"content":"","path":"notes.txt"}`,
		"write a.txt: x and write b.txt: y":            `write_file {"content":"x","path":"a.txt"}; write_file {"content":"y","path":"b.txt"}`,
		"write a.txt: read and write code":             `write_file {"content":"read and write code","path":"a.txt"}`,
		"read a.txt and read b.txt and list":           `read_file {"path":"a.txt"}; read_file {"path":"b.txt"}; list_dir {"path":"."}`,
		"<@U0BOT> read notes.txt":                      `read_file {"path":"notes.txt"}`,
		"@clawbot, list":                               `list_dir {"path":"."}`,
		"list sub/dir":                                 `list_dir {"path":"sub/dir"}`,
		"fetch https://example.com/x?y=1":              `http_fetch {"url":"https://example.com/x?y=1"}`,
		"fetch <https://example.com/|example.com>":     `http_fetch {"url":"https://example.com/"}`,
		"fetch example.com":                            `http_fetch {"url":"https://example.com"}`,
		"run ls -l | wc":                               `shell {"command":"ls -l | wc"}`,
		"run `date`":                                   `shell {"command":"date"}`,
		"remind me in 5 minutes: tea":                  `cron_add {"at":"2030-01-02T12:05:00Z","prompt":"Reminder: tea"}`,
		"remind me in 2 hours to stretch":              `cron_add {"at":"2030-01-02T14:00:00Z","prompt":"Reminder: stretch"}`,
		"remind me at 2030-02-03T04:05:06Z: tea":       `cron_add {"at":"2030-02-03T04:05:06Z","prompt":"Reminder: tea"}`,
		"remind me at 2030-02-03T04:05:06+01:00 to go": `cron_add {"at":"2030-02-03T04:05:06+01:00","prompt":"Reminder: go"}`,
		"remind me every day: stand-up":                `cron_add {"prompt":"Reminder: stand-up","schedule":"0 9 * * *"}`,
		"remind me every */5 * * * 1-5 to look up":     `cron_add {"prompt":"Reminder: look up","schedule":"*/5 * * * 1-5"}`,
		"reminders":                                    `cron_list {}`,
		"forget job_1":                                 `cron_remove {"id":"job_1"}`,
		"send hello":                                   `send_message {"text":"hello"}`,
		"send hello to all to C0123":                   `send_message {"conversation":"C0123","text":"hello to all"}`,
		"send \"hi\" to discord:42":                    `send_message {"channel":"discord","conversation":"42","text":"hi"}`,
		"send hi to <#C0123|general>":                  `send_message {"conversation":"C0123","text":"hi"}`,
		"ask Which colour?":                            `ask_user {"question":"Which colour?"}`,
		"escalate I am stuck":                          `escalate_to_human {"reason":"I am stuck"}`,
		"delegate count the files":                     `delegate {"task":"count the files"}`,
		`call everything__echo {"message": "hi"}`:      `everything__echo {"message": "hi"}`,
		"":                        "",
		"hello":                   "",
		"reading is fun":          "",
		"writer's block: hard":    "",
		"write something nice":    "",
		"read two words":          "",
		"run":                     "",
		"remind me":               "",
		"remind me at noon: eat":  "",
		"call x not json":         "",
		"list all of the entries": "",
	} {
		reply := complete(t, agent.ModelRequest{Messages: []agent.Message{user(text)}, Tools: all})
		var got []string
		for _, c := range reply.Calls {
			got = append(got, c.Tool+" "+c.Arguments)
		}
		if strings.Join(got, "; ") != want {
			t.Errorf("%q:\ngot  %s\nwant %s", text, strings.Join(got, "; "), want)
		}
		if want == "" && !strings.Contains(reply.Text, "write notes.txt: hello") {
			t.Errorf("%q: no examples in %q", text, reply.Text)
		}
		if stop := map[bool]agent.StopReason{true: agent.StopEnd, false: agent.StopTools}[want == ""]; reply.Stop != stop {
			t.Errorf("%q: stop %q", text, reply.Stop)
		}
	}
}

// A newcomer's first session.
func TestSession(t *testing.T) {
	req := agent.ModelRequest{Tools: offer("write_file")}
	say := func(text string) agent.ModelReply {
		req.Messages = append(req.Messages, user(text))
		reply := complete(t, req)
		req.Messages = append(req.Messages, agent.Message{Role: agent.RoleAssistant, Text: reply.Text, Calls: reply.Calls})
		return reply
	}
	answer := func(id agent.CallID, text string, failed bool) agent.ModelReply {
		req.Messages = append(req.Messages, agent.Message{Role: agent.RoleTool, CallID: id, Text: text, Failed: failed})
		reply := complete(t, req)
		req.Messages = append(req.Messages, agent.Message{Role: agent.RoleAssistant, Text: reply.Text})
		return reply
	}

	first := say("write a.txt: x")
	if len(first.Calls) != 1 || !strings.Contains(first.Text, "offline and scripted") {
		t.Errorf("first answer: %+v", first)
	}
	done := answer(first.Calls[0].ID, "wrote 1 byte to a.txt", false)
	if !strings.Contains(done.Text, "demo model") || !strings.Contains(done.Text, "write_file succeeded: wrote 1 byte to a.txt") {
		t.Errorf("after the result: %q", done.Text)
	}
	second := say("write b.txt: y")
	if second.Calls[0].ID == first.Calls[0].ID || strings.Contains(second.Text, "scripted") {
		t.Errorf("second wish: %+v", second)
	}
	denied := answer(second.Calls[0].ID, "not executed: denied by Bob: too early", true)
	if denied.Text != "write_file did not succeed: not executed: denied by Bob: too early" {
		t.Errorf("after a denial: %q", denied.Text)
	}
	if off := say("run date"); len(off.Calls) != 0 || !strings.Contains(off.Text, "tools.shell.enabled") {
		t.Errorf("a tool that is off: %+v", off)
	}
	if half := say("run date and write c.txt: z"); len(half.Calls) != 1 || !strings.Contains(half.Text, "tools.shell.enabled") {
		t.Errorf("one on, one off: %+v", half)
	}
	if lost := complete(t, req); !strings.Contains(lost.Text, "no result") {
		t.Errorf("a call without result: %q", lost.Text)
	}
}

func TestNoTools(t *testing.T) {
	for _, messages := range [][]agent.Message{
		{user("write a.txt: x")},
		{user("write a.txt: x"), {Role: agent.RoleAssistant, Calls: []agent.ProposedCall{{ID: "1", Tool: "write_file"}}}, {Role: agent.RoleTool, CallID: "1", Text: "ok"}},
	} {
		reply := complete(t, agent.ModelRequest{Messages: messages, Tools: all, NoTools: true})
		if len(reply.Calls) > 0 || reply.Text == "" || reply.Stop != agent.StopEnd {
			t.Errorf("got %+v", reply)
		}
	}
}

func TestLongResultIsBoundedAndFenced(t *testing.T) {
	long := strings.Repeat("```\nübel\xff\x00", 5000)
	reply := complete(t, agent.ModelRequest{Messages: []agent.Message{user("list"),
		{Role: agent.RoleAssistant, Calls: []agent.ProposedCall{{ID: "1", Tool: "list_dir"}}}, {Role: agent.RoleTool, CallID: "1", Text: long}}})
	if len(reply.Text) > 8000 || !utf8.ValidString(reply.Text) || !strings.Contains(reply.Text, "\n````\n") {
		t.Errorf("%d bytes: %.200q", len(reply.Text), reply.Text)
	}
}

func TestCancelled(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	stop()
	if _, err := model.Complete(ctx, agent.ModelRequest{}); !errors.Is(err, context.Canceled) || !errors.Is(err, agent.ErrModelUnavailable) {
		t.Error(err)
	}
}

// Whatever is typed, the answer is valid: some text, and calls that are objects.
func FuzzAnyText(f *testing.F) {
	for _, text := range []string{"", "write a: b and read c", "remind me in 99999 d x", "send \xff to <#C1|", "run \x00", "and and and", "call x {}", "please please"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		reply := complete(t, agent.ModelRequest{Messages: []agent.Message{user(text)}, Tools: all})
		if reply.Text == "" || !utf8.ValidString(reply.Text) {
			t.Errorf("answer %q", reply.Text)
		}
		for _, c := range reply.Calls {
			var object map[string]any
			if err := json.Unmarshal([]byte(c.Arguments), &object); err != nil || object == nil {
				t.Errorf("arguments %q", c.Arguments)
			}
		}
	})
}
