package main

import (
	"strings"
	"testing"

	"github.com/clawbot/clawbot/model/modeltest"
)

const writeInText = "I write it.\n<tool_call>\n{\"name\": \"write_file\", \"arguments\": {\"path\": \"a.txt\", \"content\": \"x\"}}\n</tool_call>"

// A model without tool calls is told of the tools in its system text; its call in text
// goes the way of every call, and one in a code block is a text.
//
// Rows: L17, L27, L29, L31.
func TestTextProtocol(t *testing.T) {
	t.Parallel()
	for provider, use := range map[string]func(*world){"openai": func(*world) {}, "anthropic": (*world).anthropic} {
		t.Run(provider, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, approverYAML+"\nagent: { tool_protocol: text }\n")
			use(w)
			fenced := "So one calls:\n```\n" + writeInText + "\n```"
			w.model.Reply(modeltest.Text(writeInText), modeltest.Text(fenced))
			w.serve()
			ask := w.ask("write it")
			card := w.card(ask)
			w.click("U0002", card, "Approve")
			w.slack.WaitText(t, "C0001", ask.TS, "So one calls:")
			w.settled()
			if got := w.wroteFile("a.txt"); got != "x" {
				t.Errorf("a.txt holds %q", got)
			}
			w.want("1\n", `SELECT count(*) FROM tool_calls`)
			w.want("I write it.\n", `SELECT text FROM messages WHERE calls IS NOT NULL`)
			for _, r := range w.model.Requests() {
				if len(r.Tools) != 0 || !strings.Contains(r.System, "write_file") {
					t.Errorf("tools %v, system:\n%s", r.Tools, r.System)
				}
			}
			if second := w.model.Requests()[1].String(); !strings.Contains(second, "tool_result") || !strings.Contains(second, "wrote a new file") {
				t.Errorf("the second request:\n%s", second)
			}
			said := strings.Join(w.said(ask), "\n")
			if !strings.Contains(said, "<tool_call>") || strings.Contains(said, "I write it.\n<tool_call>\n{\"name\"") && strings.Count(said, "<tool_call>") != 1 {
				t.Errorf("people read:\n%s", said)
			}
		})
	}
}

// strict_parsing hides the protocol, whatever else is set.
//
// Rows: L18.
func TestStrictParsing(t *testing.T) {
	t.Parallel()
	w := newWorld(t, approverYAML+"\nagent: { tool_protocol: text, strict_parsing: true }\n")
	w.model.Reply(modeltest.Text(writeInText))
	p := w.serve()
	ask := w.ask("write it")
	m := w.slack.WaitText(t, "C0001", ask.TS, "<tool_call>")
	w.settled()
	if !strings.Contains(m.Shown, `"path": "a.txt"`) || len(m.Buttons) > 0 {
		t.Errorf("people read %s", m.Shown)
	}
	w.want("0\n", `SELECT count(*) FROM tool_calls`)
	if r := w.model.Requests()[0]; len(r.Tools) == 0 || strings.Contains(r.System, "tool_call") {
		t.Errorf("%d tools, system:\n%s", len(r.Tools), r.System)
	}
	if !strings.Contains(p.out.String(), "agent.strict_parsing hides agent.tool_protocol") {
		t.Error("it is not told at start")
	}
}
