package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/clawbot/clawbot/agent"
	"github.com/clawbot/clawbot/approval"
	"github.com/clawbot/clawbot/audit"
	"github.com/clawbot/clawbot/channels/slack"
	"github.com/clawbot/clawbot/receipt"
	"github.com/clawbot/clawbot/store"
)

// withDatabase runs f on the database, beside a running clawbot or alone.
func (a *app) withDatabase(ctx context.Context, how use, f func(*database) error) error {
	db, err := a.openDatabase(ctx, how)
	if err != nil {
		return err
	}
	return errors.Join(f(db), db.Close())
}

// migrate changes the schema, if change is not nil, and lists the migrations.
func (a *app) migrate(ctx context.Context, change func(*database, context.Context) error, asJSON bool) error {
	how := owning
	if change == nil {
		how = asking
	}
	return a.withDatabase(ctx, how, func(db *database) error {
		if change != nil {
			if err := change(db, ctx); err != nil {
				return err
			}
		}
		list, err := store.Migrations(ctx, db.owner)
		if err != nil {
			return err
		}
		return a.print(asJSON, list, func(w io.Writer) {
			fmt.Fprintln(w, "VERSION\tNAME\tAPPLIED")
			for _, m := range list {
				fmt.Fprintf(w, "%d\t%s\t%t\n", m.Version, m.Name, m.Applied)
			}
		})
	})
}

func (d *database) migrateUp(ctx context.Context) error {
	return store.Migrate(ctx, d.owner, d.service)
}

func migrateDown(erase bool) func(*database, context.Context) error {
	return func(d *database, ctx context.Context) error {
		err := store.MigrateDown(ctx, d.owner, erase)
		if errors.Is(err, store.ErrAuditNotEmpty) {
			err = fmt.Errorf("%w; give --erase-audit if that is what you want", err)
		}
		return err
	}
}

func (a *app) auditList(ctx context.Context, q store.AuditQuery, asJSON bool) error {
	return a.withDatabase(ctx, asking, func(db *database) error {
		rows, err := db.AuditRows(ctx, q)
		if err != nil {
			return err
		}
		return a.printAudit(asJSON, rows)
	})
}

func (a *app) auditShow(ctx context.Context, id string, asJSON bool) error {
	return a.withDatabase(ctx, asking, func(db *database) error {
		rows, err := db.AuditCall(ctx, id)
		if err == nil && len(rows) == 0 {
			err = fmt.Errorf("the audit has nothing about %q; give the id of a turn, a call or an approval, as `clawbot audit list --json` shows them", id)
		}
		if err != nil {
			return err
		}
		if asJSON {
			return a.printAudit(true, rows)
		}
		for _, r := range rows {
			fmt.Fprintf(a.stdout, "%s seq %d\n", r.SessionID, r.Seq)
			for _, f := range auditFields(r) {
				if f.value != "" {
					fmt.Fprintf(a.stdout, "  %-12s %s\n", f.name, agent.VisibleLine(f.value))
				}
			}
		}
		return a.showReceipts(ctx, db, id)
	})
}

// showReceipts prints the receipts of a turn, a call or an approval.
func (a *app) showReceipts(ctx context.Context, db *database, id string) error {
	key, err := a.receiptKey()
	if err != nil {
		return err
	}
	return db.Receipts(ctx, id, func(r store.Receipt) error {
		verdict := "matches the call"
		if err := checkReceipt(key, r); err != nil {
			verdict = err.Error()
		}
		_, err := fmt.Fprintf(a.stdout, "receipt of call %s: %s (%s)\n", agent.VisibleLine(string(r.Call)), agent.VisibleLine(r.Line), verdict)
		return err
	})
}

type auditField struct{ name, value string }

func auditFields(r audit.Row) []auditField {
	latency := ""
	if r.LatencyMS != nil {
		latency = fmt.Sprint(*r.LatencyMS)
	}
	return []auditField{
		{"at", r.At.Format(time.RFC3339Nano)}, {"kind", r.Kind}, {"decision", text(r.Decision)}, {"source", text(r.Source)},
		{"actor", text(r.Actor)}, {"tool", text(r.Tool)}, {"args", text(r.Args)}, {"args_sha256", text(r.ArgsSHA256)},
		{"channel", text(r.Channel)}, {"backchannel", text(r.Backchannel)}, {"rule", text(r.Rule)}, {"reason", text(r.Reason)},
		{"latency_ms", latency}, {"turn_id", text(r.TurnID)}, {"call_id", text(r.CallID)}, {"approval_id", text(r.ApprovalID)},
		{"prev_hash", r.PrevHash}, {"hash", r.Hash},
	}
}

func (a *app) printAudit(asJSON bool, rows []audit.Row) error {
	if rows == nil {
		rows = []audit.Row{}
	}
	return a.print(asJSON, rows, func(w io.Writer) {
		fmt.Fprintln(w, "AT\tKIND\tTOOL\tDECISION\tSOURCE\tACTOR\tCHANNEL\tRULE\tTURN\tREASON\tARGS")
		for _, r := range rows {
			cells := []string{r.At.Format("2006-01-02 15:04:05.000"), r.Kind, text(r.Tool), text(r.Decision), text(r.Source), text(r.Actor),
				text(r.Channel), text(r.Rule), text(r.TurnID), agent.Bound(text(r.Reason), 60), agent.Bound(text(r.Args), 80)}
			for i, c := range cells {
				if cells[i] = agent.VisibleLine(strings.ReplaceAll(c, "\n", " ")); c == "" {
					cells[i] = "-"
				}
			}
			fmt.Fprintln(w, strings.Join(cells, "\t"))
		}
	})
}

func (a *app) auditVerify(ctx context.Context, asJSON bool) error {
	return a.withDatabase(ctx, asking, func(db *database) error {
		v, err := db.VerifyAudit(ctx)
		if err != nil {
			return err
		}
		receipts, err := a.verifyReceipts(ctx, db)
		if err != nil {
			return err
		}
		if asJSON {
			if err := a.print(true, struct {
				store.Verified
				Receipts verifiedReceipts `json:"receipts"`
			}{v, receipts}, nil); err != nil {
				return err
			}
		}
		if v.Bad != nil {
			return fmt.Errorf("the audit does not verify: %w", v.Bad)
		}
		if receipts.Bad != "" {
			return fmt.Errorf("a receipt does not verify: %s; its tool, arguments or output are not those that were signed", receipts.Bad)
		}
		if !asJSON {
			fmt.Fprintf(a.stdout, "the audit verifies: %d rows in %d sessions%s\n", v.Rows, v.Sessions, receipts)
		}
		return nil
	})
}

// verifiedReceipts is what became of all stored receipts.
type verifiedReceipts struct {
	Checked int    `json:"checked"`
	Foreign int    `json:"other_key"`     // made with a key that is not here
	Bad     string `json:"bad,omitempty"` // the first that does not match its call
}

// String goes on where a sentence about the audit ends.
func (v verifiedReceipts) String() string {
	text := ""
	if v.Checked > 0 {
		text = fmt.Sprintf("; %d receipts match their calls", v.Checked)
	}
	if v.Foreign > 0 {
		text += fmt.Sprintf("; %d receipts were made with another key and cannot be checked here (agent.tool_receipts.key_file)", v.Foreign)
	}
	return text
}

// receiptKey reads the key of receipts; nil where there is none.
func (a *app) receiptKey() (*receipt.Key, error) {
	key, err := receipt.Read(a.ReceiptKey())
	if errors.Is(err, receipt.ErrNoKey) {
		return nil, nil
	}
	return key, err
}

// verifyReceipts checks every stored receipt against its call.
func (a *app) verifyReceipts(ctx context.Context, db *database) (v verifiedReceipts, err error) {
	key, err := a.receiptKey()
	if err != nil {
		return v, err
	}
	err = db.Receipts(ctx, "", func(r store.Receipt) error {
		switch checkReceipt(key, r) {
		case nil:
			v.Checked++
		case receipt.ErrOtherKey:
			v.Foreign++
		default:
			if v.Bad == "" {
				v.Bad = fmt.Sprintf("session %s, turn %s, call %s", r.Session, r.Turn, agent.VisibleLine(string(r.Call)))
			}
		}
		return nil
	})
	return v, err
}

func checkReceipt(key *receipt.Key, r store.Receipt) error {
	if key == nil {
		return receipt.ErrOtherKey
	}
	return key.Verify(r.Line, r.Evidence)
}

func (a *app) approvalsList(ctx context.Context, asJSON bool) error {
	return a.withDatabase(ctx, asking, func(db *database) error {
		list, err := db.Approvals(ctx, approval.Query{Pending: true, Limit: 1000})
		if err != nil {
			return err
		}
		if asJSON {
			out := make([]approvalJSON, len(list))
			for i, ap := range list {
				out[i] = a.approvalJSON(ap)
			}
			return a.print(true, out, nil)
		}
		return a.print(false, nil, func(w io.Writer) {
			fmt.Fprintln(w, "ID\tSTATUS\tTOOL\tREQUESTED BY\tDECIDE BEFORE\tARGS")
			for _, ap := range list {
				args, _ := a.mask.Call(ap.Args, ap.SecretArg())
				fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\n", ap.ID, ap.Status, agent.VisibleLine(ap.Tool), agent.VisibleLine(ap.Requester.String()),
					ap.Deadline.UTC().Format("2006-01-02 15:04:05"), agent.VisibleLine(strings.ReplaceAll(agent.Bound(args, 80), "\n", " ")))
			}
		})
	})
}

func (a *app) approvalsShow(ctx context.Context, id agent.ApprovalID, asJSON bool) error {
	return a.withDatabase(ctx, asking, func(db *database) error {
		ap, err := db.Approval(ctx, id)
		if errors.Is(err, agent.ErrNotFound) {
			return fmt.Errorf("there is no approval %q; `clawbot approvals list` shows the open ones", id)
		}
		if err != nil {
			return err
		}
		if asJSON {
			return a.print(true, a.approvalJSON(ap), nil)
		}
		c := approval.Draw(ap, a.mask)
		fmt.Fprintf(a.stdout, "%s\n", c.Title)
		for _, f := range c.Facts {
			fmt.Fprintf(a.stdout, "  %s: %s\n", f.Name, f.Value)
		}
		if c.Outcome != "" {
			fmt.Fprintf(a.stdout, "  %s\n", c.Outcome)
		}
		fmt.Fprintf(a.stdout, "%s\n", c.Full)
		return nil
	})
}

// approvalJSON is an approval as --json prints it, secrets masked.
type approvalJSON struct {
	ID          agent.ApprovalID     `json:"id"`
	Status      agent.ApprovalStatus `json:"status"`
	Session     agent.SessionID      `json:"session_id"`
	Turn        agent.TurnID         `json:"turn_id"`
	Call        agent.CallID         `json:"call_id"`
	Tool        string               `json:"tool"`
	Args        json.RawMessage      `json:"args"`
	ArgsSHA256  string               `json:"args_sha256"`
	TargetArg   string               `json:"target_arg,omitempty"`
	Prompt      string               `json:"prompt,omitempty"`
	Requester   string               `json:"requester"`
	Rule        string               `json:"rule"`
	Approvers   agent.Approvers      `json:"approvers"`
	Quorum      int                  `json:"quorum"`
	Approvals   int                  `json:"approvals"`
	AskedAt     time.Time            `json:"asked_at"`
	Deadline    time.Time            `json:"deadline"`
	DecidedBy   string               `json:"decided_by"`
	Source      agent.Source         `json:"source"`
	Reason      string               `json:"reason"`
	Backchannel agent.ChannelName    `json:"backchannel"`
}

func (a *app) approvalJSON(ap agent.Approval) approvalJSON {
	args, _ := a.mask.Call(ap.Args, ap.SecretArg())
	return approvalJSON{
		ID: ap.ID, Status: ap.Status, Session: ap.Session, Turn: ap.Turn, Call: ap.Call, Tool: ap.Tool, Args: json.RawMessage(args),
		ArgsSHA256: ap.ArgsSHA256, TargetArg: ap.TargetArg, Prompt: ap.Prompt, Requester: ap.Requester.String(), Rule: ap.Rule, Approvers: ap.Approvers, Quorum: ap.Quorum, Approvals: len(ap.Votes),
		AskedAt: ap.AskedAt, Deadline: ap.Deadline, DecidedBy: ap.DecidedBy.String(), Source: ap.Source, Reason: ap.Reason, Backchannel: ap.Backchannel,
	}
}

// approve says yes, with the value that the question wants, if it wants one.
func (a *app) approve(ctx context.Context, id agent.ApprovalID, reason, value string) error {
	c := agent.Click{Approval: id, Verb: agent.VerbApprove, Reason: reason}
	if value == "-" {
		text, err := io.ReadAll(io.LimitReader(a.stdin, 1<<20))
		if err != nil {
			return fmt.Errorf("read the value from standard input: %w", err)
		}
		value = string(text)
	}
	if value != "" {
		c.Verb, c.Value = agent.VerbInput, value
	}
	return a.decide(ctx, c)
}

// deny says no, or answers instead of the tool.
func (a *app) deny(ctx context.Context, id agent.ApprovalID, reason, instead string) error {
	c := agent.Click{Approval: id, Verb: agent.VerbDeny, Reason: reason}
	if instead != "" {
		c.Verb, c.Value = agent.VerbReplace, instead
	}
	return a.decide(ctx, c)
}

// decide is the command line's way to answer a question. It passes the same check
// as a click.
func (a *app) decide(ctx context.Context, c agent.Click) error {
	return a.withDatabase(ctx, asking, func(db *database) error {
		var box agent.Toolbox
		if c.Verb == agent.VerbInput {
			tools, err := a.toolbox(db.DB)
			if err != nil {
				return err
			}
			box = tools
		}
		desk := approval.NewDesk(db.DB, nil, box, a.mask, agent.NewBell(), a.log)
		name := userName()
		c.Actor, c.ActorName, c.Backchannel = agent.Actor{Channel: "cli", User: name}, name, "cli"
		v, err := desk.Decide(ctx, c)
		if err != nil {
			return err
		}
		if !v.Accepted {
			return errors.New(v.Text)
		}
		if v.Text != "" {
			fmt.Fprintln(a.stdout, v.Text)
			return nil
		}
		fmt.Fprintf(a.stdout, "%s is %s\n", c.Approval, v.Status)
		return nil
	})
}

func (a *app) sessionsList(ctx context.Context, limit int, asJSON bool) error {
	return a.withDatabase(ctx, asking, func(db *database) error {
		list, err := db.Sessions(ctx, limit)
		if err != nil {
			return err
		}
		return a.print(asJSON, list, func(w io.Writer) {
			fmt.Fprintln(w, "ID\tCHANNEL\tCONVERSATION\tTHREAD\tTURNS\tMESSAGES\tLAST TURN\tBEGUN")
			for _, s := range list {
				fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%d\t%d\t%s\t%s\n", s.ID, s.Place.Channel, agent.VisibleLine(s.Place.Conversation),
					agent.VisibleLine(s.Place.Thread), s.Turns, s.Messages, s.Last, s.CreatedAt.UTC().Format("2006-01-02 15:04:05"))
			}
		})
	})
}

func (a *app) sessionsShow(ctx context.Context, id agent.SessionID, asJSON bool) error {
	return a.withDatabase(ctx, asking, func(db *database) error {
		turns, err := db.Turns(ctx, id)
		if errors.Is(err, agent.ErrNotFound) {
			return fmt.Errorf("there is no session %q; `clawbot sessions list` shows them", id)
		}
		if err != nil {
			return err
		}
		history, err := db.History(ctx, id, 10_000)
		if err != nil {
			return err
		}
		if asJSON {
			return a.print(true, struct {
				Turns    []store.TurnInfo `json:"turns"`
				Messages []messageJSON    `json:"messages"`
			}{turns, a.messages(history)}, nil)
		}
		for _, m := range a.messages(history) {
			fmt.Fprintf(a.stdout, "%s: %s\n", m.who(), agent.Visible(m.Text))
			for _, c := range m.Calls {
				fmt.Fprintf(a.stdout, "  asks for %s %s (%s)\n", agent.VisibleLine(c.Tool), agent.VisibleLine(c.Arguments), c.ID)
			}
		}
		for _, t := range turns {
			fmt.Fprintf(a.stdout, "\n%s %s, model %s, %d requests, %d ms at work\n", t.ID, t.Status, t.Model, t.Iterations, t.ActiveMS)
			for _, e := range t.Events {
				js, err := json.Marshal(e.Fields)
				if err != nil {
					return err
				}
				fmt.Fprintf(a.stdout, "  %s %-18s %s\n", e.At.UTC().Format("15:04:05.000"), e.Type, agent.VisibleLine(string(js)))
			}
		}
		return nil
	})
}

type messageJSON struct {
	Role   agent.Role   `json:"role"`
	Turn   agent.TurnID `json:"turn_id"`
	Author string       `json:"author,omitempty"`
	Name   string       `json:"author_name,omitempty"`
	Text   string       `json:"text"`
	Calls  []callJSON   `json:"calls,omitempty"`
	CallID agent.CallID `json:"call_id,omitempty"`
	Failed bool         `json:"failed,omitempty"`
}

type callJSON struct {
	ID        agent.CallID `json:"id"`
	Tool      string       `json:"tool"`
	Arguments string       `json:"arguments"`
}

func (m messageJSON) who() string {
	switch m.Role {
	case agent.RoleUser:
		return agent.VisibleLine(m.Name + " (" + m.Author + ")")
	case agent.RoleTool:
		return "tool " + string(m.CallID)
	}
	return string(m.Role)
}

// messages returns a history with secrets masked, since it is for showing.
func (a *app) messages(history []agent.Message) []messageJSON {
	out := make([]messageJSON, len(history))
	for i, m := range history {
		text, _ := a.mask.Text(m.Text)
		out[i] = messageJSON{Role: m.Role, Turn: m.Turn, Author: m.Author.String(), Name: m.AuthorName, Text: text, CallID: m.CallID, Failed: m.Failed}
		for _, c := range m.Calls {
			args, _ := a.mask.Object(c.Arguments)
			out[i].Calls = append(out[i].Calls, callJSON{ID: c.ID, Tool: c.Tool, Arguments: args})
		}
	}
	return out
}

// slackManifest needs no settings: people run it before they have tokens.
func slackManifest(w io.Writer) error {
	out, err := slack.Manifest("")
	if err != nil {
		return err
	}
	_, err = w.Write(out)
	return err
}

// print writes v as JSON, or table as aligned columns.
func (a *app) print(asJSON bool, v any, table func(io.Writer)) error {
	if asJSON {
		enc := json.NewEncoder(a.stdout)
		enc.SetEscapeHTML(false)
		enc.SetIndent("", "  ")
		return enc.Encode(v)
	}
	w := tabwriter.NewWriter(a.stdout, 0, 0, 2, ' ', 0)
	table(w)
	return w.Flush()
}

func text(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}
