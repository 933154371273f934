package settings

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/sethvargo/go-envconfig"

	"github.com/clawbot/clawbot/agent"
	"github.com/clawbot/clawbot/approval"
)

var update = flag.Bool("update", false, "write the golden files")

// read decodes a text over the defaults.
func read(text string) (File, Positions, Errors) {
	f := defaults()
	at, errs := decode("x.yaml", []byte(text), &f)
	return f, at, errs.sort()
}

// A file with two dozen mistakes gets one line for each, in its order.
func TestManyMistakes(t *testing.T) {
	_, err := Load(envconfig.MapLookuper(vars("CLAWBOT_CONFIG", "testdata/mistakes.yaml")))
	if err == nil {
		t.Fatal("no mistake was found")
	}
	got := err.Error() + "\n"
	golden := filepath.Join("testdata", "mistakes.golden")
	if *update {
		if err := os.WriteFile(golden, []byte(got), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Error(diff)
	}
}

func TestDecodeMistakes(t *testing.T) {
	for name, test := range map[string]struct {
		text string
		want []string // "line:col: part"
	}{
		"no YAML":             {"agent: [1, 2\napproval: }", []string{"2:1: this is no YAML"}},
		"a tab":               {"agent:\n\tsystem_prompt: x\n", []string{"2:1: a tab indents this line; write spaces"}},
		"a tab further in":    {"agent:\n  tool_receipts:\n  \tenabled: true\n", []string{"3:3: a tab indents this line"}},
		"two documents":       {"agent: {}\n---\napproval: {}\n", []string{"3:1: a second document"}},
		"a list":              {"- agent\n", []string{"1:1: a list is here; write a section with the keys agent, approval, hooks, channels, tools, mcp or tool_filter_groups"}},
		"a word":              {"agent\n", []string{`1:1: "agent" is text; write a section`}},
		"not UTF-8":           {"agent:\n  system_prompt: \"\xff\"\n", []string{"2:19: a character that is not UTF-8"}},
		"a control character": {"agent:\n  system_prompt: \"\x1b[0m\"\n", []string{"2:19: a character that is not"}},
		"key twice":           {"agent:\n  parallel_tools: true\n  parallel_tools: false\n", []string{"3:3: agent.parallel_tools: this key is here twice, first in line 2; remove one"}},
		"section twice":       {"agent: {}\napproval: {}\nagent: {}\n", []string{"3:1: agent: this key is here twice, first in line 1"}},
		"key twice in a row":  {"tools: { shell: { enabled: true, enabled: false } }\n", []string{"1:34: tools.shell.enabled: this key is here twice"}},
		"server twice":        {"mcp:\n  servers:\n    a: { url: http://x/ }\n    a: { url: http://y/ }\n", []string{"4:5: mcp.servers.a: this key is here twice"}},
		"near a known key":    {"approval:\n  aprovers: {}\n", []string{"2:3: approval.aprovers: this key is unknown; did you mean approvers?"}},
		"swapped letters":     {"aprpoval: {}\n", []string{"1:1: aprpoval: this key is unknown; did you mean approval?"}},
		"upper case":          {"Agent: {}\n", []string{"1:1: Agent: this key is unknown; did you mean agent?"}},
		"in another section":  {"approval:\n  sandbox: auto\n", []string{"2:3: approval.sandbox: this key is unknown; it belongs into the section tools.shell"}},
		"outside of sections": {"agent:\n  tool_filter_groups: []\n", []string{"2:3: agent.tool_filter_groups: this key is unknown; it belongs to the left margin"}},
		"nothing like it":     {"channels:\n  slack:\n    token: x\n", []string{"3:5: channels.slack.token: this key is unknown; write one of allow, trigger, approval_channel or connections"}},
		"blank key":           {"\"\": 1\n", []string{"1:1: : this key is unknown; write one of agent"}},
		"bool":                {"agent: { parallel_tools: on, strict_parsing: 1 }\n", []string{`1:26: agent.parallel_tools: "on" is text; write true or false`, `1:46: agent.strict_parsing: "1" is a number; write true or false`}},
		"int":                 {"approval:\n  quorum: 1.5\n", []string{`2:11: approval.quorum: "1.5" is a number; write a whole number`}},
		"octal":               {"approval:\n  quorum: 010\n", []string{`2:11: approval.quorum: "010" is a number; write a whole number`}},
		"huge int":            {"approval:\n  quorum: 99999999999999999999\n", []string{"2:11: approval.quorum: "}},
		"duration":            {"approval:\n  timeout: 5 minutes\n", []string{`2:12: approval.timeout: "5 minutes" is no duration; write a duration with its unit such as 30s, 5m or 1h30m`}},
		"duration as list":    {"approval: { timeout: [5m] }\n", []string{"1:22: approval.timeout: a list is here; write a duration"}},
		"text for a list":     {"agent: { excluded_tools: shell }\n", []string{`1:26: agent.excluded_tools: "shell" is text; write a list such as ["NAME"]`}},
		"section for a list":  {"approval: { rules: { a: {} } }\n", []string{"1:20: approval.rules: a section is here; write a list such as [{KEY: VALUE}]"}},
		"number for text":     {"channels: { slack: { approval_channel: 0777 } }\n", []string{`1:40: channels.slack.approval_channel: "0777" is a number, but text is needed; write it in quotes: "0777"`}},
		"nothing for text":    {"agent:\n  system_prompt:\n  parallel_tools: true\n", []string{`2:3: agent.system_prompt: there is no value`}},
		"nothing in a list":   {"agent:\n  excluded_tools: [a, null]\n", []string{"2:23: agent.excluded_tools[1]: the entry has no value"}},
		"no action":           {"approval:\n  rules:\n    - name: a\n      tools: [\"*\"]\n      when:\n      action: allow\n", []string{"5:7: approval.rules[0].when: there is no value"}},
		"default blank":       {"approval:\n  default:\n", []string{"2:3: approval.default: there is no value"}},
		"a tag":               {"agent:\n  system_prompt: !!str 5\n", []string{"2:18: agent.system_prompt: tags such as !!str are not known"}},
		"unknown alias":       {"agent:\n  system_prompt: *x\n", []string{"2:18: agent.system_prompt: no anchor before it is called &x"}},
		"alias too early":     {"agent:\n  system_prompt: *x\n  tool_protocol: &x native\n", []string{"2:18: agent.system_prompt: no anchor before it"}},
		"alias of itself":     {"agent:\n  excluded_tools: &x [a, *x]\n", []string{"2:26: agent.excluded_tools[1]: the anchor &x would contain itself"}},
		"merge of a list":     {"agent:\n  <<: [1]\n", []string{"2:3: agent: << takes a section"}},
		"a complex key":       {"agent:\n  ? a\n  : b\n", []string{"2:3: agent: this is no plain key"}},
	} {
		t.Run(name, func(t *testing.T) {
			_, _, errs := read(test.text)
			for i, m := range errs {
				if strings.Contains(m.Error(), "\n") {
					t.Errorf("more than one line: %q", m.Error())
				}
				if i >= len(test.want) {
					t.Errorf("one mistake more: %v", m)
					continue
				}
				place, part, _ := strings.Cut(test.want[i], ": ")
				if got := m.Error(); !strings.HasPrefix(got, "x.yaml:"+place+":") || !strings.Contains(got, part) {
					t.Errorf("got\n%s\nwant\n%s", got, test.want[i])
				}
			}
			if len(errs) < len(test.want) {
				t.Errorf("got %v, want %v", errs, test.want)
			}
		})
	}
}

func TestDecodeGood(t *testing.T) {
	for name, test := range map[string]struct {
		text   string
		change func(*File)
	}{
		"empty":                             {"", func(*File) {}},
		"comments":                          {"# nothing\n---\n# more\n", func(*File) {}},
		"null":                              {"null\n", func(*File) {}},
		"empty section":                     {"approval:\n  approvers:\n  rules:\nagent:\n", func(f *File) { f.Approval.Rules = []approval.Rule{} }},
		"byte order mark and Windows lines": {"\ufeffagent:\r\n  max_tool_iterations: 3\r\n", func(f *File) { f.Agent.MaxToolIterations = 3 }},
		"values": {
			"agent: { max_tool_iterations: 1_000, turn_timeout: 1h30m, system_prompt: '' }\napproval: { timeout: \"30s\", reminder: 0, default: deny }\n",
			func(f *File) {
				f.Agent.MaxToolIterations, f.Agent.TurnTimeout, f.Agent.SystemPrompt = 1000, 90*time.Minute, ""
				f.Approval.Timeout, f.Approval.Default = 30*time.Second, new(agent.Deny)
			},
		},
		"blocks of text": {
			"agent:\n  system_prompt: |\n    one\n    two\n  tool_protocol: >-\n    native\n",
			func(f *File) { f.Agent.SystemPrompt = "one\ntwo\n" },
		},
		"a list replaces the default, a section does not": {
			"channels:\n  slack:\n    allow:\n      users: [U1]\n",
			func(f *File) { f.Channels.Slack.Allow.Users = []string{"U1"} },
		},
		"anchors": {
			"approval:\n  approvers: &ops\n    users: [\"slack:T1/U1\"]\n  rules:\n    - { name: a, tools: &t [shell], action: ask, approvers: *ops }\n    - { name: b, tools: *t, action: deny }\n",
			func(f *File) {
				ops := []string{"slack:T1/U1"}
				f.Approval.Approvers.Users = ops
				f.Approval.Rules = []approval.Rule{
					{Name: "a", Tools: []string{"shell"}, Action: agent.Ask, Approvers: &approval.Approvers{Users: ops}},
					{Name: "b", Tools: []string{"shell"}, Action: agent.Deny},
				}
			},
		},
		"merges": {
			"approval:\n  rules:\n    - &a\n      name: a\n      tools: [x]\n      action: deny\n    - <<: *a\n      name: b\n    - <<: [{name: c, reason: r}, *a]\n",
			func(f *File) {
				f.Approval.Rules = []approval.Rule{
					{Name: "a", Tools: []string{"x"}, Action: agent.Deny},
					{Name: "b", Tools: []string{"x"}, Action: agent.Deny},
					{Name: "c", Tools: []string{"x"}, Action: agent.Deny, Reason: "r"},
				}
			},
		},
		"own values of a rule": {
			"approval:\n  rules:\n    - { name: a, tools: ['*'], action: ask, quorum: 2, timeout: 1m, priority: -3, when: 'true' }\n",
			func(f *File) {
				f.Approval.Rules = []approval.Rule{{
					Name: "a", Tools: []string{"*"}, Action: agent.Ask, Quorum: new(2), Timeout: new(time.Minute), Priority: -3, When: "true",
				}}
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			got, _, errs := read(test.text)
			if errs != nil {
				t.Fatal(errs)
			}
			want := defaults()
			test.change(&want)
			if diff := cmp.Diff(want, got, cmpopts.EquateEmpty(), cmpopts.IgnoreFields(approval.Config{}, "Warn")); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// Aliases of aliases cannot make the reader work or allocate without end.
func TestManyAliases(t *testing.T) {
	var b strings.Builder
	b.WriteString("mcp:\n  servers:\n    a: &a { command: [" + strings.Repeat("x,", 300) + "x] }\n")
	for i := range 300 {
		b.WriteString("    n" + strings.Repeat("n", i) + ": *a\n")
	}
	_, _, errs := read(b.String())
	if len(errs) != 1 || !strings.Contains(errs[0].Msg, "the aliases make the file too large") {
		t.Errorf("%d mistakes: %v", len(errs), errs)
	}
}

func TestPositions(t *testing.T) {
	_, at, errs := read("approval:\n  rules:\n    - name: a\n      when: 'x'\n    - { name: b,\n        action: deny }\n")
	if errs != nil {
		t.Fatal(errs)
	}
	for path, want := range map[string]position{
		"approval":                       {2, 3},
		"approval.rules[0]":              {3, 7},
		"approval.rules[0].when":         {4, 13},
		"approval.rules[1]":              {5, 7},
		"approval.rules[1].action":       {6, 17},
		"approval.rules[1].quorum":       {5, 7}, // not there: the rule
		"approval.rules[0].when.nowhere": {4, 13},
		"approval.quorum":                {2, 3},
		"agent.system_prompt":            {0, 0},
		"":                               {0, 0},
	} {
		if line, col := at.At(path); (position{line, col}) != want {
			t.Errorf("%s is at %d:%d, want %v", path, line, col, want)
		}
	}
}

// Whatever the text, reading it ends, with mistakes that have a place.
func FuzzDecode(f *testing.F) {
	for _, name := range []string{"testdata/mistakes.yaml", "testdata/contract.yaml"} {
		text, err := os.ReadFile(name)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(string(text))
	}
	f.Add("a: &x [*x, {<<: *x}]\n? b\n: !!str c\n--- |\n\td")
	f.Fuzz(func(t *testing.T, text string) {
		file, _, errs := read(text)
		for _, m := range errs {
			if m.Line < 1 || m.Col < 1 || strings.Contains(m.Error(), "\n") {
				t.Errorf("%q", m.Error())
			}
		}
		if errs == nil {
			Settings{File: file}.check(nil)
		}
	})
}
