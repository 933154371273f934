package main

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/alecthomas/kong"
)

// command is one of the pointers to the …Cmd types below, with its arguments
// and flags filled in. The program dispatches by a type switch.
type command interface{ isCommand() }

// leaf marks a type as a command.
type leaf struct{}

func (leaf) isCommand() {}

// cli is the whole command line.
type cli struct {
	Serve     serveCmd     `cmd:"" default:"1" help:"Run every channel that is configured (the default)."`
	Chat      chatCmd      `cmd:"" help:"Talk to clawbot in this terminal."`
	Migrate   migrateCmds  `cmd:"" help:"Migrate the database schema."`
	Doctor    doctorCmd    `cmd:"" help:"Check settings, database, tokens, policy and sandbox."`
	Policy    policyCmds   `cmd:"" help:"Look at the rules."`
	Slack     slackCmds    `cmd:"" help:"Set up Slack."`
	Approvals approvalCmds `cmd:"" help:"Look at calls that wait for a person, and decide."`
	Grants    grantCmds    `cmd:"" help:"Look at standing consents, and end them."`
	Audit     auditCmds    `cmd:"" help:"Ask who allowed what, and whether the record is whole."`
	Sessions  sessionCmds  `cmd:"" help:"Look at conversations."`
	Version   versionCmd   `cmd:"" help:"Print version, commit and Go version."`
}

type migrateCmds struct {
	Up     migrateUpCmd     `cmd:"" help:"Bring the schema up to this version of clawbot."`
	Down   migrateDownCmd   `cmd:"" help:"Take the last migration back; data in what it added is lost."`
	Status migrateStatusCmd `cmd:"" help:"List the migrations and when each was applied."`
}

type policyCmds struct {
	Check policyCheckCmd `cmd:"" help:"Check the rules, and say which tools no rule names."`
}

type slackCmds struct {
	Manifest slackManifestCmd `cmd:"" help:"Print the manifest of the Slack app, with exactly the scopes and events that are used."`
}

type grantCmds struct {
	List   grantsListCmd   `cmd:"" help:"List what is allowed without asking again."`
	Revoke grantsRevokeCmd `cmd:"" help:"End one; the next such call asks again."`
}

func (grantCmds) Help() string { return example("clawbot grants list") }

type approvalCmds struct {
	List    approvalsListCmd    `cmd:"" help:"List the calls that wait for a person."`
	Show    approvalsShowCmd    `cmd:"" help:"Show one with all of its arguments."`
	Approve approvalsApproveCmd `cmd:"" help:"Let the call run."`
	Deny    approvalsDenyCmd    `cmd:"" help:"Refuse the call."`
}

type auditCmds struct {
	List   auditListCmd   `cmd:"" help:"List the latest audit rows, oldest first."`
	Show   auditShowCmd   `cmd:"" help:"Show all that is recorded about a turn, a call or an approval."`
	Verify auditVerifyCmd `cmd:"" help:"Compute every hash chain anew and name the first bad row."`
}

type sessionCmds struct {
	List sessionsListCmd `cmd:"" help:"List conversations, the latest first."`
	Show sessionsShowCmd `cmd:"" help:"Show a conversation and what happened in each turn."`
}

// Help implements kong.HelpProvider, as for all commands.
func (migrateCmds) Help() string { return example("clawbot migrate status") }

// Help implements kong.HelpProvider.
func (policyCmds) Help() string { return example("clawbot policy check") }

// Help implements kong.HelpProvider.
func (slackCmds) Help() string { return example("clawbot slack manifest") }

// Help implements kong.HelpProvider.
func (approvalCmds) Help() string {
	return example("clawbot approvals list", "clawbot approvals approve "+exampleApproval)
}

// Help implements kong.HelpProvider.
func (auditCmds) Help() string {
	return example("clawbot audit list --since 24h", "clawbot audit verify")
}

// Help implements kong.HelpProvider.
func (sessionCmds) Help() string { return example("clawbot sessions list") }

type serveCmd struct{ leaf }

// Help implements kong.HelpProvider.
func (serveCmd) Help() string { return example("clawbot serve", "CLAWBOT_CONFIG=clawbot.yaml clawbot") }

type chatCmd struct {
	leaf
	Session string `default:"default" placeholder:"NAME" help:"Name of the conversation to go on with or to begin (${default})."`
}

func (chatCmd) Help() string {
	return "A call that needs consent is answered with y (yes), n (no) or d (details).\n\n" + example("clawbot chat --session holiday")
}

type migrateUpCmd struct{ leaf }

func (migrateUpCmd) Help() string { return example("clawbot migrate up") }

type migrateDownCmd struct {
	leaf
	EraseAudit bool `help:"Go on although the audit has rows, which are lost."`
}

func (migrateDownCmd) Help() string { return example("clawbot migrate down") }

type migrateStatusCmd struct {
	leaf
	asJSON
}

func (migrateStatusCmd) Help() string { return example("clawbot migrate status") }

type doctorCmd struct{ leaf }

func (doctorCmd) Help() string {
	return "Prints one line per check: ok, warn or fail. The exit status is 1 if any fails.\n\n" + example("clawbot doctor")
}

type policyCheckCmd struct{ leaf }

func (policyCheckCmd) Help() string { return example("clawbot policy check") }

type slackManifestCmd struct{ leaf }

func (slackManifestCmd) Help() string { return example("clawbot slack manifest > manifest.yaml") }

type grantsListCmd struct {
	leaf
	All bool `help:"Also those that have ended."`
	asJSON
}

func (grantsListCmd) Help() string { return example("clawbot grants list --json") }

type grantsRevokeCmd struct {
	leaf
	ID string `arg:"" help:"Id of the grant, as list prints it."`
}

func (grantsRevokeCmd) Help() string {
	return example("clawbot grants revoke grt_06h2zdsx8zqfc9bh00mn6g74br")
}

type approvalsListCmd struct {
	leaf
	asJSON
}

func (approvalsListCmd) Help() string { return example("clawbot approvals list --json") }

type approvalsShowCmd struct {
	leaf
	ID string `arg:"" help:"Id of the approval, as list prints it."`
	asJSON
}

func (approvalsShowCmd) Help() string { return example("clawbot approvals show " + exampleApproval) }

type approvalsApproveCmd struct {
	leaf
	ID     string `arg:"" help:"Id of the approval, as list prints it."`
	Reason string `placeholder:"TEXT" help:"Why; kept in the audit."`
	Value  string `placeholder:"TEXT" help:"The value that an ask_input rule asks for; - reads it from standard input."`
}

func (approvalsApproveCmd) Help() string {
	return example("clawbot approvals approve " + exampleApproval)
}

type approvalsDenyCmd struct {
	leaf
	ID      string `arg:"" help:"Id of the approval, as list prints it."`
	Reason  string `placeholder:"TEXT" help:"Why; told to the model and kept in the audit."`
	Instead string `placeholder:"TEXT" help:"What the model gets as the result instead of running the tool."`
}

func (approvalsDenyCmd) Help() string {
	return example("clawbot approvals deny " + exampleApproval + ` --reason "wrong host"`)
}

type auditListCmd struct {
	leaf
	Since    moment   `placeholder:"TIME" help:"Only from then on: 2026-01-31, 2026-01-31T08:00:00Z, or 24h or 7d for so long ago."`
	Until    moment   `placeholder:"TIME" help:"Only before then."`
	Tool     string   `placeholder:"NAME" help:"Only this tool."`
	Actor    string   `placeholder:"PERSON" help:"Only this person: slack:TEAM/USER, cli:NAME."`
	Channel  string   `placeholder:"NAME" help:"Only turns that came from there: slack, terminal."`
	Decision decision `placeholder:"WORD" help:"Only this decision or outcome, as approved, denied, expired, failed."`
	Session  string   `placeholder:"ID" help:"Only this conversation."`
	Limit    int      `default:"50" placeholder:"N" help:"At most so many rows (${default})."`
	asJSON
}

func (auditListCmd) Help() string {
	return example("clawbot audit list --since 24h --tool shell --decision approved", "clawbot audit list --actor slack:T0001/U0001 --json")
}

// Validate implements kong.Validatable.
func (c auditListCmd) Validate() error {
	if c.Limit < 1 {
		return fmt.Errorf("--limit %d shows nothing; write 1 or more", c.Limit)
	}
	return nil
}

type auditShowCmd struct {
	leaf
	ID string `arg:"" help:"Id of a turn, a call or an approval."`
	asJSON
}

func (auditShowCmd) Help() string { return example("clawbot audit show " + exampleApproval) }

type auditVerifyCmd struct {
	leaf
	asJSON
}

func (auditVerifyCmd) Help() string {
	return "The exit status is 1 and the first bad row is named if anything was changed.\n\n" + example("clawbot audit verify")
}

type sessionsListCmd struct {
	leaf
	Limit int `default:"50" placeholder:"N" help:"At most so many (${default})."`
	asJSON
}

func (sessionsListCmd) Help() string { return example("clawbot sessions list --json") }

// Validate implements kong.Validatable.
func (c sessionsListCmd) Validate() error {
	if c.Limit < 1 {
		return fmt.Errorf("--limit %d shows nothing; write 1 or more", c.Limit)
	}
	return nil
}

type sessionsShowCmd struct {
	leaf
	ID string `arg:"" help:"Id of the conversation, as list prints it."`
	asJSON
}

func (sessionsShowCmd) Help() string { return example("clawbot sessions show " + exampleSession) }

type versionCmd struct{ leaf }

func (versionCmd) Help() string { return example("clawbot version") }

// helpCmd is what --help makes of any command line: a text to print.
type helpCmd struct {
	leaf
	Text string
}

type asJSON struct {
	JSON bool `name:"json" help:"Print JSON."`
}

const (
	exampleApproval = "ap_064r5k2m9c8w3q7x1n0tzv4hbd"
	exampleSession  = "ses_064r5k2m9c8w3q7x1n0tzv4hbd"
)

func example(lines ...string) string {
	return "Example:\n  " + strings.Join(lines, "\n  ")
}

// moment is a point in time on the command line, absolute or so long ago.
type moment struct {
	at  time.Time
	ago time.Duration
}

// UnmarshalText reads a date, an RFC 3339 time, or a duration.
func (m *moment) UnmarshalText(text []byte) error {
	s := string(text)
	for _, layout := range []string{time.DateOnly, time.RFC3339} {
		if at, err := time.Parse(layout, s); err == nil {
			*m = moment{at: at}
			return nil
		}
	}
	ago, err := time.ParseDuration(s)
	if days, found := strings.CutSuffix(s, "d"); found {
		var n uint64
		n, err = strconv.ParseUint(days, 10, 16)
		ago = time.Duration(n) * 24 * time.Hour
	}
	if err != nil || ago <= 0 {
		return fmt.Errorf("%q is no time; write 2026-01-31, 2026-01-31T08:00:00Z, or 24h or 7d for so long ago", s)
	}
	*m = moment{ago: ago}
	return nil
}

// Time returns the point in time as seen from now; the zero time if there is none.
func (m moment) Time(now time.Time) time.Time {
	if m.ago > 0 {
		return now.Add(-m.ago)
	}
	return m.at
}

// decision is a word of the audit's column of that name.
type decision string

// UnmarshalText refuses other words, which would find nothing without saying why.
func (d *decision) UnmarshalText(text []byte) error {
	known := []string{
		"allow", "approve", "deny", "ask", "ask_input", "approved", "denied", "replaced", "expired", "cancelled", "undeliverable",
		"succeeded", "failed", "interrupted", "unknown",
	}
	if !slices.Contains(known, string(text)) {
		return fmt.Errorf("%q is no decision; write one of %s", text, strings.Join(known, ", "))
	}
	*d = decision(text)
	return nil
}

// usageError is a command line that means nothing. Its text is one line that
// says what to do.
type usageError struct{ text string }

func (e usageError) Error() string { return e.text }

// exitStatus is 0 for success, 2 for wrong usage and 1 for any other failure.
func exitStatus(err error) int {
	var usage usageError
	switch {
	case err == nil:
		return 0
	case errors.As(err, &usage):
		return 2
	}
	return 1
}

// parse reads a command line without the program's name. The error is a
// usageError.
func parse(args []string) (command, error) {
	if len(args) == 1 && args[0] == "--version" {
		return &versionCmd{}, nil
	}
	var out bytes.Buffer
	var helped bool
	parser, err := kong.New(new(cli),
		kong.Name("clawbot"),
		kong.Description("An LLM agent in Slack and in the terminal that asks people before it acts.\n\n"+
			example("clawbot doctor", "clawbot chat", "clawbot serve")),
		kong.Writers(&out, &out),
		kong.Exit(func(int) { helped = true }),
		kong.ConfigureHelp(kong.HelpOptions{Compact: true, WrapUpperBound: 100}),
	)
	if err != nil {
		return nil, fmt.Errorf("build the command line: %w", err)
	}
	ctx, err := parser.Parse(args)
	if helped {
		return &helpCmd{Text: out.String()}, nil
	}
	if err != nil {
		return nil, usageError{oneLine(err.Error()) + "; see " + helpFor(err)}
	}
	c, ok := ctx.Selected().Target.Addr().Interface().(command)
	if !ok {
		return nil, usageError{"this is no whole command; see clawbot --help"}
	}
	return c, nil
}

// helpFor returns the command whose --help explains the mistake.
func helpFor(err error) string {
	var p *kong.ParseError
	if errors.As(err, &p) {
		if at := p.Context.Selected(); at != nil {
			return at.FullPath() + " --help"
		}
		for i := len(p.Context.Path) - 1; i >= 0; i-- {
			if node := p.Context.Path[i].Node(); node != nil {
				return node.FullPath() + " --help"
			}
		}
	}
	return "clawbot --help"
}

func oneLine(text string) string { return strings.Join(strings.Fields(text), " ") }
