package main

import (
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/alecthomas/kong"
	"github.com/google/go-cmp/cmp"
)

func TestParse(t *testing.T) {
	day := time.Date(2026, 1, 31, 0, 0, 0, 0, time.UTC)
	for line, want := range map[string]command{
		"":                              &serveCmd{},
		"serve":                         &serveCmd{},
		"chat":                          &chatCmd{Session: "default"},
		"chat --session holiday":        &chatCmd{Session: "holiday"},
		"migrate up":                    &migrateUpCmd{},
		"migrate down":                  &migrateDownCmd{},
		"migrate status --json":         &migrateStatusCmd{asJSON: asJSON{true}},
		"doctor":                        &doctorCmd{},
		"policy check":                  &policyCheckCmd{},
		"slack manifest":                &slackManifestCmd{},
		"approvals list":                &approvalsListCmd{},
		"approvals list --json":         &approvalsListCmd{asJSON: asJSON{true}},
		"approvals show ap_1":           &approvalsShowCmd{ID: "ap_1"},
		"approvals approve ap_1":        &approvalsApproveCmd{ID: "ap_1"},
		"approvals deny ap_1":           &approvalsDenyCmd{ID: "ap_1"},
		"approvals deny ap_1 --reason=": &approvalsDenyCmd{ID: "ap_1"},
		"approvals deny --reason no ap": &approvalsDenyCmd{ID: "ap", Reason: "no"},
		"audit list":                    &auditListCmd{Limit: 50},
		"audit list --since 7d --until 2026-01-31 --tool shell --actor slack:T1/U1 --channel slack --decision expired --session ses_1 --limit 3 --json": &auditListCmd{
			Since: moment{ago: 7 * 24 * time.Hour}, Until: moment{at: day}, Tool: "shell", Actor: "slack:T1/U1", Channel: "slack",
			Decision: "expired", Session: "ses_1", Limit: 3, asJSON: asJSON{true},
		},
		"audit show turn_1":        &auditShowCmd{ID: "turn_1"},
		"audit verify":             &auditVerifyCmd{},
		"sessions list --limit 9":  &sessionsListCmd{Limit: 9},
		"sessions show ses_1":      &sessionsShowCmd{ID: "ses_1"},
		"version":                  &versionCmd{},
		"sessions show --json ses": &sessionsShowCmd{ID: "ses", asJSON: asJSON{true}},
	} {
		got, err := parse(strings.Fields(line))
		if err != nil {
			t.Errorf("%s: %v", line, err)
			continue
		}
		if diff := cmp.Diff(want, got, cmp.Exporter(func(reflect.Type) bool { return true })); diff != "" {
			t.Errorf("%s: %s", line, diff)
		}
	}
}

// Wrong usage is one line that says where to look, and exit status 2.
func TestWrongUsage(t *testing.T) {
	for line, want := range map[string]string{
		"sevre":                      "unexpected argument sevre",
		"--port 8":                   "unknown flag --port; see clawbot",
		"serve now":                  "unexpected argument now; see clawbot serve --help",
		"approvals":                  `expected one of "list", "show", "approve", "deny"; see clawbot approvals --help`,
		"approvals deny":             `expected "<id>"; see clawbot approvals deny --help`,
		"approvals lst":              "unexpected argument lst",
		"migrate sideways":           "unexpected argument sideways",
		"audit show":                 `expected "<id>"`,
		"audit list --limit 0":       "--limit 0 shows nothing; write 1 or more",
		"sessions list --limit -1":   "--limit",
		"audit list --since soon":    `"soon" is no time; write 2026-01-31`,
		"audit list --since -4h":     "--since",
		"audit list --since 999999d": `"999999d" is no time`,
		"audit list --decision no":   `"no" is no decision; write one of allow, approve, deny`,
		"chat --session":             "--session",
	} {
		c, err := parse(strings.Fields(line))
		if err == nil {
			t.Errorf("%s was taken as %T", line, c)
			continue
		}
		if exitStatus(err) != 2 || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") || !strings.Contains(err.Error(), "; see clawbot") {
			t.Errorf("%s: status %d, %v", line, exitStatus(err), err)
		}
	}
}

func TestExitStatus(t *testing.T) {
	if exitStatus(nil) != 0 || exitStatus(errors.New("x")) != 1 || exitStatus(fmt.Errorf("a: %w", usageError{"x"})) != 2 {
		t.Error("wrong")
	}
}

// Every command has help with an example that is itself a right command line,
// and help shows nothing of the environment.
func TestHelp(t *testing.T) {
	t.Setenv("OPENAI_API_KEY", "canary")
	parser, err := kong.New(new(cli), kong.Name("clawbot"))
	if err != nil {
		t.Fatal(err)
	}
	var walk func(n *kong.Node)
	walk = func(n *kong.Node) {
		for _, child := range n.Children {
			walk(child)
		}
		line := strings.TrimPrefix(n.Path(), "clawbot")
		c, err := parse(append(strings.Fields(stripArgs(line)), "--help"))
		help, ok := c.(*helpCmd)
		if err != nil || !ok || !strings.Contains(help.Text, "clawbot") || strings.Contains(help.Text, "canary") {
			t.Errorf("%q --help: %v %v", line, c, err)
			return
		}
		if !strings.Contains(help.Text, "Example:") {
			t.Errorf("%q has no example: %s", line, help.Text)
		}
		_, examples, _ := strings.Cut(n.Detail, "Example:\n")
		for text := range strings.Lines(examples) {
			_, args, _ := strings.Cut(text, "clawbot ")
			args, _, _ = strings.Cut(args, ">")
			args = strings.ReplaceAll(args, `"wrong host"`, "wrong")
			if strings.HasPrefix(strings.TrimSpace(text), "CLAWBOT_CONFIG=") {
				args = ""
			}
			got, err := parse(strings.Fields(args))
			if err != nil || len(n.Children) == 0 && reflect.TypeOf(got).Elem() != n.Target.Type() {
				t.Errorf("example %q: %T, %v", text, got, err)
			}
		}
	}
	walk(parser.Model.Node)
}

// stripArgs takes placeholders out of a path.
func stripArgs(path string) string {
	var out []string
	for _, word := range strings.Fields(path) {
		if !strings.ContainsAny(word, "<[(") {
			out = append(out, word)
		}
	}
	return strings.Join(out, " ")
}

func TestMoment(t *testing.T) {
	now := time.Date(2026, 2, 1, 12, 0, 0, 0, time.UTC)
	for text, want := range map[string]time.Time{
		"2026-01-31":                now.Add(-36 * time.Hour),
		"2026-01-31T13:00:00+01:00": now.Add(-24 * time.Hour),
		"90m":                       now.Add(-90 * time.Minute),
		"2d":                        now.Add(-48 * time.Hour),
	} {
		var m moment
		if err := m.UnmarshalText([]byte(text)); err != nil || !m.Time(now).Equal(want) {
			t.Errorf("%s: %v, %v", text, m.Time(now), err)
		}
	}
	if !(moment{}).Time(now).IsZero() {
		t.Error("no moment is some time")
	}
}
