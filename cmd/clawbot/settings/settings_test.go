package settings

import (
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/sethvargo/go-envconfig"

	"github.com/clawbot/clawbot/agent"
)

// load writes a settings file and loads it with the given variables.
func load(t *testing.T, text string, pairs ...string) (Settings, error) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "clawbot.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	s, err := Load(envconfig.MapLookuper(vars(append(pairs, "CLAWBOT_CONFIG", path)...)))
	if err != nil {
		err = errors.New(strings.ReplaceAll(err.Error(), path, "clawbot.yaml"))
	}
	return s, err
}

var (
	slackOn   = []string{"SLACK_BOT_TOKEN", "xoxb-1", "SLACK_APP_TOKEN", "xapp-1"}
	discordOn = []string{"DISCORD_BOT_TOKEN", "d"}
)

// The file that documents every key loads, and says what is not there yet.
func TestDocumentedFiles(t *testing.T) {
	s, err := Load(envconfig.MapLookuper(vars(append(slackOn, "CLAWBOT_CONFIG", "testdata/contract.yaml")...)))
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		"mcp: MCP servers are not available in this version; none is started or called",
		"tool_filter_groups: filter groups are not available in this version; there are no MCP tools to filter",
	}
	if diff := cmp.Diff(want, s.Notices()); diff != "" {
		t.Error(diff)
	}
	if s.Approval.Default == nil || *s.Approval.Default != agent.Ask {
		t.Error("it is not known that approval.default is in the file")
	}

	s, err = Load(envconfig.MapLookuper(vars(append(slackOn, "CLAWBOT_CONFIG", "../../../docs/clawbot.example.yaml")...)))
	if err != nil || s.Notices() != nil {
		t.Fatal(err, s.Notices())
	}
	// It shows the defaults, but for what its comments call examples.
	example := s.File
	example.Approval.Approvers, example.Approval.Rules = defaults().Approval.Approvers, nil
	want2 := defaults()
	opts := cmp.FilterPath(func(p cmp.Path) bool { return p.Last().String() == ".Warn" }, cmp.Ignore())
	empty := cmp.FilterValues(func(a, b []string) bool { return len(a) == 0 && len(b) == 0 }, cmp.Ignore())
	if diff := cmp.Diff(want2, example, opts, empty); diff != "" {
		t.Errorf("the example is not the defaults: %s", diff)
	}
}

// Where a channel is on and something may ask, somebody on it must be able to decide.
func TestSomebodyMustDecide(t *testing.T) {
	const nobody = `nobody there may decide what is asked; write users: ["slack:TEAM/USER"], slack_groups: ["ID"] or requester: true`
	for name, test := range map[string]struct {
		text string
		vars []string
		want string // "" = loads
	}{
		"no channel":    {"", nil, ""},
		"Slack, nobody": {"approval: {}\n", slackOn, "clawbot.yaml:1:11: approval.approvers: Slack is on (SLACK_BOT_TOKEN), but " + nobody},
		"Slack, others": {"approval:\n  approvers:\n    users: [\"discord:9/1\", \"cli:ann\"]\n", slackOn, "clawbot.yaml:3:5: approval.approvers: Slack is on (SLACK_BOT_TOKEN), but " + nobody},
		"Slack, user":   {"approval: { approvers: { users: [\"slack:T1/U1\"] } }\n", slackOn, ""},
		"Slack, group":  {"approval: { approvers: { slack_groups: [S1] } }\n", slackOn, ""},
		"Slack, self":   {"approval: { approvers: { requester: true } }\n", slackOn, ""},
		"never asks":    {"approval: { default: deny, rules: [{ name: a, tools: [read_file], action: allow }] }\n", slackOn, ""},
		"a rule asks": {
			"approval:\n  default: deny\n  rules:\n    - { name: a, tools: [shell], action: ask }\n", slackOn,
			"clawbot.yaml:2:3: approval.approvers: Slack is on (SLACK_BOT_TOKEN), but " + nobody,
		},
		"a rule's own people are nowhere": {
			"approval:\n  approvers: { requester: true }\n  rules:\n    - { name: a, tools: [shell], action: ask, approvers: { users: [\"discord:9/1\"] } }\n", slackOn,
			"clawbot.yaml:4:58: approval.rules[0].approvers: Slack is on (SLACK_BOT_TOKEN), but " + nobody,
		},
		"Discord, nobody": {
			"approval: { approvers: { users: [\"slack:T1/U1\"] } }\nchannels: { discord: { allow: { guilds: [\"9\"] } } }\n", discordOn,
			`clawbot.yaml:1:24: approval.approvers: Discord is on (DISCORD_BOT_TOKEN), but nobody there may decide what is asked; write users: ["discord:GUILD/USER"], discord_roles: ["ID"] or requester: true`,
		},
		"Discord, nobody may speak": {
			"approval: { approvers: { discord_roles: [\"7\"] } }\nchannels: { discord: { allow: { channels: [\"9\"] } } }\n", discordOn,
			"clawbot.yaml:2:31: channels.discord.allow: Discord is on (DISCORD_BOT_TOKEN), but nobody may speak there; write ids into guilds, roles or users",
		},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := load(t, test.text, test.vars...)
			if got := errorText(err); got != test.want {
				t.Errorf("got\n%s\nwant\n%s", got, test.want)
			}
		})
	}
}

func errorText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// A rule may name people of another front door on purpose; that is worth a notice.
func TestRuleForAnotherFrontDoor(t *testing.T) {
	s, err := load(t, "approval:\n  approvers: { requester: true }\n  rules:\n    - { name: a, tools: [shell], action: ask, approvers: { local: true } }\n", slackOn...)
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"approval.rules[0].approvers: nobody on Slack can decide what rule a asks; it waits for the people the rule names"}
	if diff := cmp.Diff(want, s.Notices()); diff != "" {
		t.Error(diff)
	}
}

// What this version lacks is told; where going on would be less safe, it is refused.
func TestUnavailable(t *testing.T) {
	s, err := load(t, `
agent: { tool_protocol: text, tool_receipts: { enabled: true } }
approval: { reminder: 1m, default: allow, approvers: { users: ["web:ann"], requester: true } }
channels: { discord: { allow: { guilds: ["9"] } } }
mcp: { deferred: true }
tool_filter_groups: [{ mode: always, tools: ["a__*"] }]
`, append(discordOn, "SLACK_SIGNING_SECRET", "x", "OTEL_EXPORTER_OTLP_ENDPOINT", "http://x:4318")...)
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		"DISCORD_BOT_TOKEN: the Discord channel is not available in this version; nothing connects to Discord",
		"SLACK_SIGNING_SECRET: it has no effect without SLACK_BOT_TOKEN; Slack is off",
		"approval.approvers.users[0]: the web console is not available in this version; web:ann cannot decide there",
		"approval.default: allow loosens nothing, since a tool's own default still counts; write a rule with action: allow",
		"approval.reminder: reminders are not available in this version; a card is posted once",
		"mcp: MCP servers are not available in this version; none is started or called",
		"tool_filter_groups: filter groups are not available in this version; there are no MCP tools to filter",
	}
	if diff := cmp.Diff(want, s.Notices()); diff != "" {
		t.Error(diff)
	}
}

func TestSectionsWithoutAPackage(t *testing.T) {
	_, err := load(t, `channels:
  slack: { trigger: always, allow: { users: ["U1", "a b"] } }
  discord: { trigger: "", allow: { roles: [""] } }
tools:
  workspace: " "
  shell: { sandbox: docker, timeout: 0s }
  http_fetch: { allow_hosts: ["a b"] }
mcp:
  servers:
    a__b: { url: "http://x/" }
    both: { url: "http://x/", command: ["x"] }
    none: {}
tool_filter_groups:
  - { mode: sometimes, tools: [x] }
  - { mode: dynamic, tools: [] }
`)
	var got []string
	for line := range strings.Lines(errorText(err)) {
		place, rest, _ := strings.Cut(line, ": ")
		path, _, _ := strings.Cut(rest, ": ")
		got = append(got, strings.TrimPrefix(place, "clawbot.yaml:")+" "+path)
	}
	want := []string{
		"2:21 channels.slack.trigger", "2:52 channels.slack.allow.users[1]",
		"3:23 channels.discord.trigger", "3:44 channels.discord.allow.roles[0]",
		"5:14 tools.workspace", "6:21 tools.shell.sandbox", "6:38 tools.shell.timeout", "7:31 tools.http_fetch.allow_hosts[0]",
		"10:11 mcp.servers.a__b", "11:11 mcp.servers.both", "12:11 mcp.servers.none",
		"14:13 tool_filter_groups[0].mode", "15:5 tool_filter_groups[1].keywords", "15:29 tool_filter_groups[1].tools",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s\n%v", diff, err)
	}
}

func TestUnknownExclusions(t *testing.T) {
	s := Settings{File: defaults()}
	s.Agent.ExcludedTools = []string{"SHELL", "shel"}
	want := []string{"agent.excluded_tools[1]: there is no tool shel"}
	if diff := cmp.Diff(want, s.UnknownExclusions([]string{"shell", "read_file"})); diff != "" {
		t.Error(diff)
	}
}

// docs/settings.md has a row for each variable and each key, and no other.
func TestDocumentation(t *testing.T) {
	text, err := os.ReadFile("../../../docs/settings.md")
	if err != nil {
		t.Fatal(err)
	}
	var documented []string
	for _, row := range regexp.MustCompile("(?m)^\\| (`[^|]*`) \\|").FindAllStringSubmatch(string(text), -1) {
		for _, name := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(row[1], -1) {
			documented = append(documented, name[1])
		}
	}
	var known []string
	for name := range Variables() {
		known = append(known, name)
	}
	known = append(known, keys(reflect.TypeFor[File](), "")...)
	slices.Sort(documented)
	slices.Sort(known)
	if diff := cmp.Diff(known, documented); diff != "" {
		t.Errorf("- in the program, + in docs/settings.md:\n%s", diff)
	}
}

// keys returns the path of each key that has a value.
func keys(t reflect.Type, path string) []string {
	switch t.Kind() {
	case reflect.Pointer:
		return keys(t.Elem(), path)
	case reflect.Slice:
		if t.Elem().Kind() == reflect.Struct {
			return keys(t.Elem(), path+"[]")
		}
	case reflect.Map:
		return keys(t.Elem(), path+".NAME")
	case reflect.Struct:
		var out []string
		for i := range t.NumField() {
			if key := keyOf(t.Field(i)); key != "" {
				out = append(out, keys(t.Field(i).Type, join(path, key))...)
			}
		}
		return out
	}
	return []string{path}
}
