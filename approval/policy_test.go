package approval

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/clawbot/clawbot/agent"
)

func policy(t testing.TB, c Config) *Policy {
	t.Helper()
	p, errs := NewPolicy(c)
	if errs != nil {
		t.Fatal(errs)
	}
	return p
}

// says returns a default of a tool that is always the same.
func says(a agent.Action) func(map[string]any, agent.Origin) agent.Action {
	return func(map[string]any, agent.Origin) agent.Action { return a }
}

func call(tool, args string) agent.Question {
	return agent.Question{
		Tool: agent.Tool{Name: tool},
		Args: []byte(args),
		Origin: agent.Origin{
			Place:  agent.Place{Channel: "slack", Workspace: "T1", Conversation: "C1", Thread: "17.5"},
			Author: agent.Actor{Channel: "slack", Workspace: "T1", User: "ANN"},
		},
		Session: "ses_1",
	}
}

// The rules of the documented example decide as it says.
//
// Rows: L146.
func TestJudgeByRules(t *testing.T) {
	c := with(func(c *Config) {
		c.Approvers = Approvers{Users: []string{"slack:T1/BOB"}, Local: true}
		c.Rules = []Rule{
			{Name: "reads-are-free", Tools: []string{"read_file", "list_*"}, Action: agent.Allow},
			{Name: "no-prod", Tools: []string{"shell"}, When: `args.command.contains("prod")`, Action: agent.Deny, Reason: "production is off limits"},
			{
				Name: "shell-asks", Tools: []string{"shell"}, Action: agent.Ask,
				Approvers: &Approvers{Users: []string{"slack:T1/EVE", "slack:T1/BOB"}}, Quorum: new(2), Timeout: new(30 * time.Minute),
			},
			{
				Name: "transfer-needs-code", Tools: []string{"bank__transfer"}, Action: agent.AskInput,
				TargetArg: "confirmation_code", Prompt: "Enter the confirmation code",
			},
			{Name: "plain", Tools: []string{"cron_add"}, Action: agent.Ask},
		}
	})
	p := policy(t, c)
	general := agent.Approvers{Users: []string{"slack:T1/BOB"}, Local: true}
	for _, test := range []struct {
		tool, args string
		want       agent.Judgement
	}{
		{"read_file", `{"path":"a"}`, agent.Judgement{Action: agent.Allow, Rule: "reads-are-free", Reason: "rule reads-are-free says allow"}},
		{"List_Dir", `{"path":"a"}`, agent.Judgement{Action: agent.Allow, Rule: "reads-are-free", Reason: "rule reads-are-free says allow"}},
		{"shell", `{"command":"deploy prod"}`, agent.Judgement{Action: agent.Deny, Rule: "no-prod", Reason: "production is off limits"}},
		{"SHELL", `{"command":"deploy prod"}`, agent.Judgement{Action: agent.Deny, Rule: "no-prod", Reason: "production is off limits"}},
		{"shell", `{"command":"ls"}`, agent.Judgement{
			Action: agent.Ask, Rule: "shell-asks", Reason: "rule shell-asks says ask",
			Approvers: agent.Approvers{Users: []string{"slack:T1/EVE", "slack:T1/BOB"}}, Quorum: 2, Timeout: 30 * time.Minute,
		}},
		{"bank__transfer", `{}`, agent.Judgement{
			Action: agent.AskInput, Rule: "transfer-needs-code", Reason: "rule transfer-needs-code says ask_input",
			Approvers: general, Quorum: 1, Timeout: 5 * time.Minute,
			Prompt: "Enter the confirmation code", TargetArg: "confirmation_code",
		}},
		{"cron_add", `{}`, agent.Judgement{
			Action: agent.Ask, Rule: "plain", Reason: "rule plain says ask", Approvers: general, Quorum: 1, Timeout: 5 * time.Minute,
		}},
		{"write_file", `{}`, agent.Judgement{
			Action: agent.Ask, Reason: "no rule matches and the tool's default is ask", Approvers: general, Quorum: 1, Timeout: 5 * time.Minute,
		}},
	} {
		test.want.Source = agent.SourcePolicy
		if diff := cmp.Diff(test.want, p.Judge(call(test.tool, test.args))); diff != "" {
			t.Errorf("%s %s: -want +got\n%s", test.tool, test.args, diff)
		}
	}
}

// Rows: L49.
func TestFirstMatchByPriorityThenFile(t *testing.T) {
	all := []string{"*"}
	p := policy(t, rules(
		Rule{Name: "c", Tools: all, Action: agent.Allow},
		Rule{Name: "a", Tools: all, Action: agent.Deny, Priority: 7, When: `tool == "a"`},
		Rule{Name: "z", Tools: all, Action: agent.Deny, Priority: -1},
		Rule{Name: "b", Tools: all, Action: agent.Ask, Priority: 7, When: `tool in ["a", "b"]`},
	))
	for tool, want := range map[string]string{"a": "a", "b": "b", "other": "c"} {
		if got := p.Judge(call(tool, `{}`)).Rule; got != want {
			t.Errorf("%s was decided by %s, want %s", tool, got, want)
		}
	}
}

// What a rule of higher priority requires, no list and no wildcard sets free, in
// whatever order the file has them.
//
// Rows: L54.
func TestRequiredWinsOverFree(t *testing.T) {
	all := []Rule{
		{Name: "required", Tools: []string{"shell", "bank__*"}, Action: agent.Ask, Priority: 1},
		{Name: "never", Tools: []string{"BANK__close*"}, Action: agent.Deny, Priority: 2},
		{Name: "free by name", Tools: []string{"shell", "read_file", "bank__close_account"}, Action: agent.Allow},
		{Name: "free by wildcard", Tools: []string{"bank__*", "*"}, Action: agent.Allow, Priority: -1},
	}
	for turn := range all { // each rule comes first once, and the order is reversed too
		order := append(append([]Rule{}, all[turn:]...), all[:turn]...)
		backwards := append([]Rule{}, order...)
		slices.Reverse(backwards)
		for _, rules := range [][]Rule{order, backwards} {
			p := policy(t, with(func(c *Config) { c.Rules = rules }))
			for tool, want := range map[string]string{
				"shell": "required", "Shell": "required", "bank__transfer": "required", "bank__close_account": "never",
				"read_file": "free by name", "list_dir": "free by wildcard",
			} {
				if got := p.Judge(call(tool, `{}`)).Rule; got != want {
					t.Errorf("%s is decided by %q, want %q", tool, got, want)
				}
			}
		}
	}
}

// A tool that is new falls under its own default and approval.default, however many
// rules there are for others, until a rule names it.
//
// Rows: L6.
func TestNewToolIsNotSetFree(t *testing.T) {
	others := []Rule{
		{Tools: []string{"read_*", "?ew"}, Action: agent.Allow},
		{Tools: []string{"brand_ne"}, Action: agent.Allow},
		{Tools: []string{"brand_new"}, Action: agent.Allow, When: `args.n == 1`},
	}
	for file, want := range map[agent.Action]agent.Action{"": agent.Ask, agent.Allow: agent.Ask, agent.Ask: agent.Ask, agent.Deny: agent.Deny} {
		p := policy(t, with(func(c *Config) {
			c.Rules = others
			if file != "" {
				c.Default = new(file)
			}
		}))
		if j := p.Judge(call("brand_new", `{"n":2}`)); j.Action != want || j.Rule != "" {
			t.Errorf("default %q: %+v", file, j)
		}
	}
	p := policy(t, with(func(c *Config) { c.Rules = others }))
	for tool, want := range map[string]bool{"read_file": true, "READ_x": true, "brand_new": true, "brand_newer": false, "other": false} {
		if got := p.Names(tool); got != want {
			t.Errorf("a rule names %s: %t, want %t", tool, got, want)
		}
	}
}

// The tool's own default counts where no rule matches; approval.default can
// only make it stricter.
//
// Rows: L50.
func TestDefaults(t *testing.T) {
	for _, test := range []struct {
		own  agent.Action // "" = the tool has none
		file agent.Action // "" = not in the file
		want agent.Action
		why  string
	}{
		{"", "", agent.Ask, "no rule matches and the tool's default is ask"},
		{agent.Allow, "", agent.Allow, "no rule matches and the tool's default is allow"},
		{agent.Deny, "", agent.Deny, "no rule matches and the tool's default is deny"},
		{agent.Allow, agent.Allow, agent.Allow, "no rule matches and the tool's default is allow"},
		{agent.Allow, agent.Ask, agent.Ask, "no rule matches and approval.default is ask"},
		{agent.Allow, agent.Deny, agent.Deny, "no rule matches and approval.default is deny"},
		{agent.Ask, agent.Allow, agent.Ask, "no rule matches and the tool's default is ask"},
		{agent.Ask, agent.Deny, agent.Deny, "no rule matches and approval.default is deny"},
		{agent.Deny, agent.Allow, agent.Deny, "no rule matches and the tool's default is deny"},
		{agent.Deny, agent.Ask, agent.Deny, "no rule matches and the tool's default is deny"},
		{"", agent.Allow, agent.Ask, "no rule matches and the tool's default is ask"},
		{"", agent.Deny, agent.Deny, "no rule matches and approval.default is deny"},
	} {
		q := call("x", `{}`)
		if test.own != "" {
			q.Tool.Default = says(test.own)
		}
		c := DefaultConfig()
		if test.file != "" {
			c.Default = new(test.file)
		}
		j := policy(t, c).Judge(q)
		if j.Action != test.want || j.Reason != test.why || j.Rule != "" || j.Source != agent.SourcePolicy {
			t.Errorf("own %q, file %q: %+v", test.own, test.file, j)
		}
		if asked := j.Action == agent.Ask; asked == j.Approvers.Empty() || asked != (j.Quorum == 1) || asked != (j.Timeout > 0) {
			t.Errorf("own %q, file %q: approvers %+v", test.own, test.file, j)
		}
	}
}

// A tool's default sees the arguments and the origin.
func TestDefaultSeesTheCall(t *testing.T) {
	q := call("http_fetch", `{"url":"https://example.org/","n":3}`)
	q.Tool.Default = func(args map[string]any, o agent.Origin) agent.Action {
		if args["url"] == "https://example.org/" && args["n"] == int64(3) && o.Conversation == "C1" {
			return agent.Allow
		}
		return agent.Deny
	}
	if j := policy(t, DefaultConfig()).Judge(q); j.Action != agent.Allow {
		t.Errorf("%+v", j)
	}
}

// Rows: L49.
func TestConditions(t *testing.T) {
	for _, test := range []struct {
		when, args string
		want       bool
	}{
		{`args.n == 3`, `{"n":3}`, true},
		{`args.n > 2`, `{"n":2.5}`, true},
		{`args.n == 9007199254740993`, `{"n":9007199254740993}`, true}, // not as a float
		{`args.n == 9007199254740992`, `{"n":9007199254740993}`, false},
		{`args.n == 18446744073709551615u`, `{"n":18446744073709551615}`, true},
		{`args.n > 1e30`, `{"n":1e31}`, true},
		{`type(args.n) == int`, `{"n":-7}`, true},
		{`type(args.n) == double`, `{"n":7.0}`, true},
		{`args.list[1].x == 5`, `{"list":[0,{"x":5}]}`, true},
		{`args.list.exists(x, x > 4)`, `{"list":[1,2,5]}`, true},
		{`args.flag`, `{"flag":true}`, true},
		{`args.nothing == null`, `{"nothing":null}`, true},
		{`has(args.missing) && args.missing == "x"`, `{}`, false},
		{`args.path.lowerAscii().startsWith("/etc/")`, `{"path":"/ETC/passwd"}`, true},
		{`args.path.matches("^/srv/[a-z]+$")`, `{"path":"/srv/data"}`, true},
		{`tool == "x"`, `{}`, true},
		{`actor == "slack:T1/ANN"`, `{}`, true},
		{`channel == "slack"`, `{}`, true},
		{`session.workspace == "T1" && session.conversation == "C1" && session.thread == "17.5" && session.id == "ses_1"`, `{}`, true},
	} {
		p := policy(t, rules(Rule{Name: "r", Tools: []string{"*"}, When: Condition(test.when), Action: agent.Allow}))
		j := p.Judge(call("x", test.args))
		if got := j.Rule == "r" && j.Source == agent.SourcePolicy; got != test.want {
			t.Errorf("%s on %s: %+v", test.when, test.args, j)
		}
	}
}

// A fault of the policy refuses the call, says so, warns, and tells nothing of
// the arguments.
//
// Rows: L53.
func TestFaultsRefuse(t *testing.T) {
	const secret = "hunter2"
	loop := `args.a.all(x, args.a.all(y, args.a.all(z, x + y + z >= 0)))`
	numbers, _ := json.Marshal(map[string][]int{"a": make([]int, 5000)})
	for name, test := range map[string]struct {
		when   string
		args   string
		own    func(map[string]any, agent.Origin) agent.Action
		reason string
	}{
		"missing":          {when: `args.command.contains("x")`, args: `{"other":"hunter2"}`, reason: "the condition of rule r cannot be evaluated: a value that it reads is missing"},
		"missing by value": {when: `args[args.key] == 1`, args: `{"key":"hunter2"}`, reason: "is missing"},
		"type":             {when: `args.n.contains("x")`, args: `{"n":5,"s":"hunter2"}`, reason: "has another type"},
		"conversion":       {when: `int(args.n) > 5`, args: `{"n":"hunter2"}`, reason: "it fails on these arguments"},
		"division":         {when: `5 / args.n > 1`, args: `{"n":0}`, reason: "it fails on these arguments"},
		"overflow":         {when: `args.n + 1 > 0`, args: `{"n":9223372036854775807}`, reason: "it fails on these arguments"},
		"no bool":          {when: `args.s`, args: `{"s":"hunter2"}`, reason: "neither true nor false"},
		"bad regex":        {when: `"x".matches(args.r)`, args: `{"r":"hunter2("}`, reason: "it fails on these arguments"},
		"null":             {when: `args.s`, args: `{"s":null}`, reason: "neither true nor false"},
		"loops":            {when: loop, args: string(numbers), reason: "it takes too long"},
		"memory":           {when: `args.a.map(x, args.a).size() > 0 && args.a.map(x, args.a.map(y, args.a)).size() > 0`, args: string(numbers), reason: "it takes too long"},
		"array":            {args: `["hunter2"]`, reason: "cannot read the arguments"},
		"null arguments":   {args: `null`, reason: "cannot read the arguments"},
		"nothing":          {args: ``, reason: "cannot read the arguments"},
		"two objects":      {args: `{} {}`, reason: "cannot read the arguments"},
		"number too large": {args: `{"n":[{"x":1e999}]}`, reason: "cannot read the arguments"},
		"panic":            {args: `{}`, own: func(map[string]any, agent.Origin) agent.Action { panic(secret) }, reason: "the policy failed on this call"},
		"unknown default":  {args: `{}`, own: says("yes"), reason: "the tool's default is no action"},
		"blank default":    {args: `{}`, own: says(""), reason: "the tool's default is no action"},
		"input by default": {args: `{}`, own: says(agent.AskInput), reason: "the tool's default is no action"},
	} {
		t.Run(name, func(t *testing.T) {
			var warnings []string
			c := with(func(c *Config) {
				c.Warn = func(rule, problem string) { warnings = append(warnings, rule+"|"+problem) }
				if test.when != "" {
					c.Rules = []Rule{{Name: "r", Tools: []string{"*"}, When: Condition(test.when), Action: agent.Allow}}
				}
			})
			q := call("x", test.args)
			q.Tool.Default = test.own
			begun := time.Now()
			j := policy(t, c).Judge(q)
			if j.Action != agent.Deny || j.Source != agent.SourceSystem || !strings.Contains(j.Reason, test.reason) {
				t.Errorf("%+v", j)
			}
			if strings.Contains(fmt.Sprint(j, warnings), secret) {
				t.Errorf("the arguments got out: %+v %v", j, warnings)
			}
			if diff := cmp.Diff([]string{j.Rule + "|" + j.Reason}, warnings); diff != "" {
				t.Errorf("warnings: %s", diff)
			}
			if took := time.Since(begun); took > 20*time.Second {
				t.Errorf("took %s", took)
			}
		})
	}
}

func TestGlobs(t *testing.T) {
	for _, test := range []struct {
		glob, name string
		want       bool
	}{
		{"shell", "shell", true}, {"shell", "shells", false}, {"shell", "shel", false},
		{"*", "anything", true}, {"**", "anything", true}, {"?", "a", true}, {"?", "ab", false}, {"?", "", false},
		{"bank__*", "bank__transfer", true}, {"bank__*", "bank_x", false}, {"*__read", "files__read", true},
		{"a*b*c", "a-b-b-c", true}, {"a*b*c", "a-b-b", false}, {"a?c", "abc", true}, {"*a", "baa", true}, {"a*", "a", true},
		{strings.Repeat("a*", 32) + "b", strings.Repeat("a", 64), false},
	} {
		if got := agent.MatchGlob(test.glob, test.name); got != test.want {
			t.Errorf("%s on %s: %v", test.glob, test.name, got)
		}
	}
}

// MatchGlob agrees with a plain definition.
func TestGlobsByDefinition(t *testing.T) {
	var plain func(p, n string) bool
	plain = func(p, n string) bool {
		switch {
		case p == "":
			return n == ""
		case p[0] == '*':
			return plain(p[1:], n) || n != "" && plain(p, n[1:])
		default:
			return n != "" && (p[0] == '?' || p[0] == n[0]) && plain(p[1:], n[1:])
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		p := rapid.StringMatching(`[ab*?]{0,8}`).Draw(t, "pattern")
		n := rapid.StringMatching(`[ab]{0,8}`).Draw(t, "name")
		if got, want := agent.MatchGlob(p, n), plain(p, n); got != want {
			t.Fatalf("%v, want %v", got, want)
		}
	})
}

// The hash follows everything that decides, and nothing else.
func TestHash(t *testing.T) {
	base := func() Config {
		return rules(
			Rule{Name: "a", Tools: []string{"x"}, Action: agent.Deny},
			Rule{Name: "b", Tools: []string{"y"}, Action: agent.Ask},
		)
	}
	hash := func(change func(*Config)) string {
		c := base()
		change(&c)
		return policy(t, c).Hash()
	}
	same := hash(func(*Config) {})
	if len(same) != 64 {
		t.Fatalf("%q is no SHA-256", same)
	}
	if got := hash(func(c *Config) { c.Warn = func(string, string) {} }); got != same {
		t.Error("the warning hook changes the hash")
	}
	if got := hash(func(c *Config) { c.Reminder = time.Minute }); got != same {
		t.Error("the reminder changes the hash")
	}
	seen := map[string]string{same: "nothing"}
	for name, change := range map[string]func(*Config){
		"timeout":   func(c *Config) { c.Timeout++ },
		"denial":    func(c *Config) { c.DenialPolicy = agent.DenialFail },
		"approvers": func(c *Config) { c.Approvers.Requester = true },
		"quorum":    func(c *Config) { c.Quorum = 2 },
		"default":   func(c *Config) { c.Default = new(agent.Ask) },
		"condition": func(c *Config) { c.Rules[0].When = "true" },
		"order":     func(c *Config) { c.Rules[0], c.Rules[1] = c.Rules[1], c.Rules[0] },
		"priority":  func(c *Config) { c.Rules[1].Priority = 1 },
		"reason":    func(c *Config) { c.Rules[0].Reason = "no" },
		"own":       func(c *Config) { c.Rules[1].Quorum = new(1) },
	} {
		got := hash(change)
		if twin, twice := seen[got]; twice {
			t.Errorf("%s and %s have the same hash", name, twin)
		}
		seen[got] = name
	}
}

// What a caller does with a judgement or the settings does not reach the policy.
func TestPolicyNeverChanges(t *testing.T) {
	c := with(func(c *Config) {
		c.Approvers.Users = []string{"slack:T1/BOB"}
		c.Default = new(agent.Deny)
	})
	p := policy(t, c)
	*c.Default = agent.Allow
	c.Approvers.Users[0] = "slack:T1/EVE"
	if j := p.Judge(call("x", `{}`)); j.Action != agent.Deny {
		t.Errorf("%+v", j)
	}
	c.Default, c.Approvers.Users[0] = nil, "slack:T1/BOB"
	p = policy(t, c)
	c.Approvers.Users[0] = "slack:T1/EVE"
	p.Judge(call("x", `{}`)).Approvers.Users[0] = "slack:T1/EVE"
	if j := p.Judge(call("x", `{}`)); j.Approvers.Users[0] != "slack:T1/BOB" {
		t.Errorf("%+v", j)
	}
}

func TestJudgeIsSafeForMany(t *testing.T) {
	p := policy(t, rules(Rule{Name: "r", Tools: []string{"*"}, When: `args.list.exists(x, x == 3)`, Action: agent.Allow}))
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 50 {
				if j := p.Judge(call("x", `{"list":[1,2,3]}`)); j.Rule != "r" {
					t.Errorf("%+v", j)
				}
			}
		})
	}
	wg.Wait()
}

// Whatever the arguments, Judge answers with an action, and never with an allow
// that no rule and no default gave.
func FuzzJudge(f *testing.F) {
	p := policy(f, rules(
		Rule{Name: "deep", Tools: []string{"a*"}, When: `args.a.b[0].c.contains("x") || args.n % 2 == 0`, Action: agent.Ask},
		Rule{Name: "loop", Tools: []string{"*b"}, When: `args.exists(k, args[k] == tool) && args.s.matches(args.r)`, Action: agent.Deny},
		Rule{Name: "text", Tools: []string{"?c"}, When: `args.s.split(",").map(x, int(x)).exists(x, x > 10)`, Action: agent.Ask},
	))
	f.Add("a", `{"a":{"b":[{"c":"x"}]},"n":3}`)
	f.Add("bb", `{"s":"aaa","r":"(a*)*"}`)
	f.Add("cc", `{"s":"1,2,x"}`)
	f.Add("", `{`)
	f.Add("d", `[[[]]]`)
	f.Fuzz(func(t *testing.T, tool, args string) {
		j := p.Judge(call(tool, args))
		switch {
		case j.Action == agent.Deny && j.Source == agent.SourceSystem && j.Approvers.Empty():
		case j.Action == agent.Deny && j.Rule == "loop":
		case j.Action == agent.Ask && !j.Approvers.Empty() && j.Quorum == 1:
		default:
			t.Errorf("%+v", j)
		}
	})
}

func BenchmarkJudge(b *testing.B) {
	p := policy(b, rules(
		Rule{Name: "no-prod", Tools: []string{"shell"}, When: `args.command.contains("prod")`, Action: agent.Deny},
		Rule{Name: "shell-asks", Tools: []string{"shell"}, Action: agent.Ask},
	))
	q := call("shell", `{"command":"ls -l /srv/data","timeout_s":5}`)
	for b.Loop() {
		p.Judge(q)
	}
}
