// Command clawbot brings an LLM agent into Slack for teams that cannot afford
// surprises. It reads the settings, builds the parts and runs them; it is the
// only place that knows all of them.
//
// cli.go is the command line, app.go builds the parts, serve.go and chat.go run
// them, admin.go and doctor.go answer questions.
package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime"
	"syscall"
	"time"
	_ "time/tzdata" // schedules name time zones, and small images have none

	"github.com/clawbot/clawbot/agent"
	"github.com/clawbot/clawbot/store"
	"github.com/clawbot/clawbot/tools"
)

// Set by the linker.
var (
	version = "dev"
	commit  = "unknown"
)

func main() {
	tools.SandboxMain() // the shell tool starts this program again to confine itself
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "clawbot:", err)
	}
	os.Exit(exitStatus(err))
}

// run does what the command line says. A second signal ends the process at once.
func run(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) error {
	cmd, err := parse(args)
	if err != nil {
		return err
	}
	switch c := cmd.(type) {
	case *helpCmd:
		_, err := io.WriteString(stdout, c.Text)
		return err
	case *versionCmd:
		_, err := fmt.Fprintf(stdout, "clawbot %s, commit %s, %s\n", version, commit, runtime.Version())
		return err
	case *slackManifestCmd:
		return slackManifest(stdout)
	}
	_, serving := cmd.(*serveCmd)
	a, err := newApp(!serving, stdin, stdout, stderr)
	if err != nil {
		return err
	}
	switch c := cmd.(type) {
	case *serveCmd:
		return a.serve(ctx)
	case *chatCmd:
		return a.chat(ctx, c.Session)
	case *migrateUpCmd:
		return a.migrate(ctx, (*database).migrateUp, false)
	case *migrateDownCmd:
		return a.migrate(ctx, migrateDown(c.EraseAudit), false)
	case *migrateStatusCmd:
		return a.migrate(ctx, nil, c.JSON)
	case *doctorCmd:
		return a.doctor(ctx)
	case *policyCheckCmd:
		return a.policyCheck()
	case *approvalsListCmd:
		return a.approvalsList(ctx, c.JSON)
	case *approvalsShowCmd:
		return a.approvalsShow(ctx, agent.ApprovalID(c.ID), c.JSON)
	case *approvalsApproveCmd:
		return a.approve(ctx, agent.ApprovalID(c.ID), c.Reason, c.Value)
	case *approvalsDenyCmd:
		return a.deny(ctx, agent.ApprovalID(c.ID), c.Reason, c.Instead)
	case *grantsListCmd:
		return a.grantsList(ctx, c.All, c.JSON)
	case *grantsRevokeCmd:
		return a.grantsRevoke(ctx, agent.GrantID(c.ID))
	case *auditListCmd:
		now := time.Now()
		return a.auditList(ctx, store.AuditQuery{
			Since: c.Since.Time(now), Until: c.Until.Time(now), Tool: c.Tool, Actor: c.Actor, Channel: c.Channel,
			Decision: string(c.Decision), Session: agent.SessionID(c.Session), Limit: c.Limit,
		}, c.JSON)
	case *auditShowCmd:
		return a.auditShow(ctx, c.ID, c.JSON)
	case *auditVerifyCmd:
		return a.auditVerify(ctx, c.JSON)
	case *sessionsListCmd:
		return a.sessionsList(ctx, c.Limit, c.JSON)
	case *sessionsShowCmd:
		return a.sessionsShow(ctx, agent.SessionID(c.ID), c.JSON)
	}
	return fmt.Errorf("command %T has no action", cmd)
}
