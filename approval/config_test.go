package approval

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/clawbot/clawbot/agent"
)

// with returns the default settings with one change.
func with(change func(*Config)) Config {
	c := DefaultConfig()
	change(&c)
	return c
}

func rules(rs ...Rule) Config {
	return with(func(c *Config) { c.Rules = rs })
}

func TestDefaultConfigMakesAPolicy(t *testing.T) {
	if _, errs := NewPolicy(DefaultConfig()); errs != nil {
		t.Fatal(errs)
	}
}

// Every mistake is reported at its place, in words that say what to write.
//
// Rows: L146.
func TestMistakes(t *testing.T) {
	shell := []string{"shell"}
	ann := Approvers{Users: []string{"slack:T1/U1"}}
	for name, test := range map[string]struct {
		config Config
		want   []string // "path: part of the message"
	}{
		"timeout of zero":   {with(func(c *Config) { c.Timeout = 0 }), []string{"approval.timeout: leaves no time"}},
		"timeout below":     {with(func(c *Config) { c.Timeout = -time.Second }), []string{"approval.timeout: -1s leaves no time"}},
		"reminder below":    {with(func(c *Config) { c.Reminder = -1 }), []string{"approval.reminder: below zero"}},
		"denial policy":     {with(func(c *Config) { c.DenialPolicy = "stop" }), []string{`approval.denial_policy: "stop" is unknown; write continue, degrade or fail`}},
		"default word":      {with(func(c *Config) { c.Default = new(agent.Action("maybe")) }), []string{`approval.default: "maybe" is unknown`}},
		"default ask_input": {with(func(c *Config) { c.Default = new(agent.AskInput) }), []string{`approval.default: "ask_input" is unknown`}},
		"default blank":     {with(func(c *Config) { c.Default = new(agent.Action("")) }), []string{`approval.default: "" is unknown`}},
		"quorum of zero":    {with(func(c *Config) { c.Quorum = 0 }), []string{"approval.quorum: write 1 or more"}},
		"nobody may decide": {with(func(c *Config) { c.Approvers = Approvers{} }), []string{"approval.approvers: nobody may decide"}},
		"people": {
			with(func(c *Config) {
				c.Approvers = Approvers{Users: []string{"slack:T1/U1", "bob", "slack:U2", "*"}, SlackGroups: []string{"*"}, DiscordRoles: []string{" "}}
			}),
			[]string{
				"approval.approvers.users[1]: is no person", "approval.approvers.users[2]: is no person",
				"approval.approvers.users[3]: is no person", "approval.approvers.slack_groups[0]: is no id",
				"approval.approvers.discord_roles[0]: is no id",
			},
		},
		"no tools":   {rules(Rule{Action: agent.Deny}), []string{"approval.rules[0].tools: names no tool"}},
		"bad globs":  {rules(Rule{Action: agent.Deny, Tools: []string{"shell", "", "read file", "[a-z]"}}), []string{"approval.rules[0].tools[1]: ", "approval.rules[0].tools[2]: ", "approval.rules[0].tools[3]: "}},
		"no action":  {rules(Rule{Tools: shell}), []string{"approval.rules[0].action: is missing"}},
		"bad action": {rules(Rule{Tools: shell, Action: "Allow"}), []string{`approval.rules[0].action: "Allow" is unknown`}},
		"input without target": {
			rules(Rule{Tools: shell, Action: agent.AskInput, Prompt: "code?"}),
			[]string{"approval.rules[0].target_arg: needs the argument"},
		},
		"target without input": {
			rules(Rule{Tools: shell, Action: agent.Ask, TargetArg: "code", Prompt: "code?"}),
			[]string{"approval.rules[0].target_arg: no effect", "approval.rules[0].prompt: no effect"},
		},
		"approvers where nobody is asked": {
			rules(Rule{Tools: shell, Action: agent.Allow, Approvers: &ann, Quorum: new(1), Timeout: new(time.Minute)}),
			[]string{"approval.rules[0].approvers: no effect", "approval.rules[0].quorum: no effect", "approval.rules[0].timeout: no effect"},
		},
		"a rule's own terms": {
			rules(Rule{Tools: shell, Action: agent.Ask, Approvers: &Approvers{Users: []string{"x"}}, Quorum: new(0), Timeout: new(time.Duration(0))}),
			[]string{"approval.rules[0].approvers.users[0]: is no person", "approval.rules[0].quorum: write 1", "approval.rules[0].timeout: leaves no time"},
		},
		"a rule that nobody may decide": {
			rules(Rule{Tools: shell, Action: agent.Ask, Approvers: &Approvers{}}),
			[]string{"approval.rules[0].approvers: nobody may decide"},
		},
		"names twice": {
			rules(Rule{Name: "a", Tools: shell, Action: agent.Deny}, Rule{Name: "b", Tools: shell, Action: agent.Deny}, Rule{Name: "A", Tools: shell, Action: agent.Deny}),
			[]string{"approval.rules[2].name: is also the name of approval.rules[0]"},
		},
		"a name given by place is taken": {
			rules(Rule{Name: "rule-2", Tools: shell, Action: agent.Deny}, Rule{Tools: shell, Action: agent.Deny}),
			[]string{"approval.rules[1].name: is also the name of approval.rules[0]"},
		},
		"a name that hides": {
			rules(Rule{Name: "a\u202eb", Tools: shell, Action: agent.Deny}, Rule{Name: strings.Repeat("x", 101), Tools: shell, Action: agent.Deny}),
			[]string{"approval.rules[0].name: visible", "approval.rules[1].name: at most 100"},
		},
		"conditions": {
			rules(
				Rule{Tools: shell, Action: agent.Deny, When: `arg.command == "x"`},
				Rule{Tools: shell, Action: agent.Deny, When: `args.command.contains(`},
				Rule{Tools: shell, Action: agent.Deny, When: `size(args)`},
				Rule{Tools: shell, Action: agent.Deny, When: `args.command.matches("(")`},
				Rule{Tools: shell, Action: agent.Deny, When: `tool == 1`},
				Rule{Tools: shell, Action: agent.Deny, When: "true &&\n  nobody"},
				Rule{Tools: shell, Action: agent.Deny, When: Condition("true || " + strings.Repeat("x", conditionLength))},
			),
			[]string{
				"approval.rules[0].when: column 1 of the condition: undeclared reference to 'arg' (did you mean 'args'?)",
				"approval.rules[1].when: column 23 of the condition: Syntax error: mismatched input '<EOF>'",
				"approval.rules[2].when: is of type int; write one that is true or false",
				"approval.rules[3].when: invalid matches argument",
				"approval.rules[4].when: no matching overload",
				"approval.rules[5].when: line 2, column 3 of the condition: undeclared reference to 'nobody'; args, tool, actor, channel and session can be used",
				"approval.rules[6].when: expression code point size exceeds limit",
			},
		},
		"all at once": {
			with(func(c *Config) {
				c.Timeout, c.Quorum, c.DenialPolicy = 0, 0, ""
				c.Rules = []Rule{{Tools: shell, Action: "x", When: "1"}}
			}),
			[]string{
				"approval.timeout: no time", "approval.denial_policy: unknown", "approval.quorum: too few",
				"approval.rules[0].action: unknown", "approval.rules[0].when: of type int",
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			p, errs := NewPolicy(test.config)
			if p != nil {
				t.Error("there is a policy in spite of mistakes")
			}
			for i, err := range errs {
				var e *agent.ConfigError
				if !errors.As(err, &e) {
					t.Fatalf("%v is no ConfigError", err)
				}
				if i >= len(test.want) {
					t.Errorf("one mistake more: %v", err)
					continue
				}
				path, part, _ := strings.Cut(test.want[i], ": ")
				if e.Path != path || !strings.Contains(e.Msg, part) {
					t.Errorf("mistake %d is\n %v\nwant\n %s", i, err, test.want[i])
				}
				if strings.Contains(e.Msg, "\n") {
					t.Errorf("more than one line: %q", e.Msg)
				}
			}
			if len(errs) < len(test.want) {
				t.Errorf("%d mistakes, want %d: %v", len(errs), len(test.want), errs)
			}
		})
	}
}

// A quorum is not bounded where groups decide, whose members change.
func TestQuorumOfGroups(t *testing.T) {
	for _, a := range []Approvers{
		{SlackGroups: []string{"S1"}}, {DiscordRoles: []string{"7"}}, {Local: true},
		{Users: []string{"slack:T1/U1"}, Requester: true},
	} {
		if _, errs := NewPolicy(with(func(c *Config) { c.Approvers, c.Quorum = a, 2 })); errs != nil {
			t.Errorf("%+v: %v", a, errs)
		}
	}
}

// Where nobody can be asked, nobody need be named.
func TestNobodyIsNeededWhereNothingAsks(t *testing.T) {
	for name, c := range map[string]Config{
		"default deny": with(func(c *Config) { c.Approvers, c.Default = Approvers{}, new(agent.Deny) }),
		"a rule for all": with(func(c *Config) {
			c.Approvers = Approvers{}
			c.Rules = []Rule{
				{Tools: []string{"read_*"}, Action: agent.Allow},
				{Tools: []string{"**"}, Action: agent.Deny},
				{Tools: []string{"shell"}, Action: agent.Ask},
			}
		}),
	} {
		if _, errs := NewPolicy(c); errs != nil {
			t.Errorf("%s: %v", name, errs)
		}
	}
}

func TestAsking(t *testing.T) {
	bob := Approvers{Users: []string{"slack:T1/BOB"}}
	p, errs := NewPolicy(rules(
		Rule{Name: "free", Tools: []string{"read_file"}, Action: agent.Allow},
		Rule{Name: "plain", Tools: []string{"shell"}, Action: agent.Ask},
		Rule{Name: "first", Tools: []string{"write_file"}, Action: agent.Ask, Approvers: &bob, Quorum: new(1), Priority: 5},
	))
	if errs != nil {
		t.Fatal(errs)
	}
	local := agent.Approvers{Local: true}
	want := []Asking{
		{"first", agent.Approvers(bob), 1, "approval.rules[2].approvers", "approval.rules[2].quorum"},
		{"plain", local, 1, "approval.approvers", "approval.quorum"},
		{"", local, 1, "approval.approvers", "approval.quorum"},
	}
	if diff := cmp.Diff(want, p.Asking()); diff != "" {
		t.Error(diff)
	}
}

func TestBlankConditionIsNoCondition(t *testing.T) {
	c := Condition("true")
	if err := c.UnmarshalText([]byte(" \n")); err == nil || c != "true" {
		t.Errorf("a blank condition was taken: %q, %v", c, err)
	}
	if err := c.UnmarshalText([]byte("false")); err != nil || c != "false" {
		t.Errorf("%q, %v", c, err)
	}
}

// A quorum that nobody can reach is told, and keeps nothing from starting: it is
// the safe side, and files are written before all approvers are named.
func TestUnmeetableQuorum(t *testing.T) {
	ann := Approvers{Users: []string{"slack:T1/U1", "slack:T1/U1"}}
	c := DefaultConfig()
	c.Approvers, c.Quorum = ann, 2
	c.Rules = []Rule{
		{Tools: []string{"shell"}, Action: agent.Ask, Approvers: &Approvers{Users: []string{"slack:T1/U2"}}},
		{Tools: []string{"note"}, Action: agent.Ask, Quorum: new(3)},
		{Tools: []string{"free"}, Action: agent.Ask, Approvers: &Approvers{SlackGroups: []string{"S1"}}},
	}
	p, errs := NewPolicy(c)
	if errs != nil {
		t.Fatal(errs)
	}
	want := []string{
		"approval.rules[0].approvers: 2 people must agree but at most 1 can decide, so these calls never run; write a quorum of at most 1 or name more approvers",
		"approval.rules[1].quorum: 3 people must agree but at most 1 can decide, so these calls never run; write a quorum of at most 1 or name more approvers",
		"approval.quorum: 2 people must agree but at most 1 can decide, so these calls never run; write a quorum of at most 1 or name more approvers",
	}
	if diff := cmp.Diff(want, p.Unmeetable()); diff != "" {
		t.Error(diff)
	}
}

// The defaults that docs/lifecycle.md tells of.
//
// Rows: L124.
func TestDefaultsAreAsDocumented(t *testing.T) {
	page, err := os.ReadFile("../docs/lifecycle.md")
	if err != nil {
		t.Fatal(err)
	}
	c := DefaultConfig()
	for key, value := range map[string]string{"timeout": c.Timeout.String(), "quorum": fmt.Sprint(c.Quorum), "denial_policy": string(c.DenialPolicy)} {
		if line := fmt.Sprintf("| `approval.%s` | %s |\n", key, value); !strings.Contains(string(page), line) {
			t.Errorf("the page lacks %s", line)
		}
	}
}
