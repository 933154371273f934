package store

import (
	"context"
	"encoding/json"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/clawbot/clawbot/agent"
	"github.com/clawbot/clawbot/approval"
)

var _ approval.Store = (*DB)(nil)

// approvalColumns reads approvals with their votes and the state of their calls.
const approvalColumns = `SELECT a.id, a.session_id, a.turn_id, a.call_id, a.status, a.channel, a.workspace, a.conversation, a.thread,
	a.tool, a.args, a.args_sha256, a.request_sha256, a.filled, a.requester, a.requester_name, a.rule, a.why, a.approvers, a.quorum,
	a.asked_at, a.deadline, a.card_ref, a.decided_at, coalesce(a.decided_by, ''), coalesce(a.source, ''), a.reason, coalesce(a.backchannel, ''),
	a.target_arg, a.prompt, a.secret, a.replacement, c.status, coalesce(c.latency_ms, 0), coalesce((SELECT v.name FROM votes v WHERE v.approval_id = a.id AND v.actor = a.decided_by), ''),
	(SELECT coalesce(jsonb_agg(jsonb_build_object('actor', v.actor, 'name', v.name, 'at', v.at) ORDER BY v.at), '[]')
		FROM votes v WHERE v.approval_id = a.id AND v.vote = 'approve')
	FROM approvals a JOIN tool_calls c ON c.turn_id = a.turn_id AND c.call_id = a.call_id`

func scanApproval(row pgx.CollectableRow) (agent.Approval, error) {
	var a agent.Approval
	var requester, decidedBy string
	var decidedAt *time.Time
	var ms int64
	var votes []struct {
		Actor string    `json:"actor"`
		Name  string    `json:"name"`
		At    time.Time `json:"at"`
	}
	p := &a.Place
	err := row.Scan(&a.ID, &a.Session, &a.Turn, &a.Call, &a.Status, &p.Channel, &p.Workspace, &p.Conversation, &p.Thread,
		&a.Tool, &a.Args, &a.ArgsSHA256, &a.RequestSHA256, &a.Filled, &requester, &a.RequesterName, &a.Rule, &a.Why, &a.Approvers, &a.Quorum,
		&a.AskedAt, &a.Deadline, &a.CardRef, &decidedAt, &decidedBy, &a.Source, &a.Reason, &a.Backchannel,
		&a.TargetArg, &a.Prompt, &a.Secret, &a.Replacement,
		&a.CallStatus, &ms, &a.DecidedByName, &votes)
	if decidedAt != nil {
		a.DecidedAt = *decidedAt
	}
	a.Requester, a.DecidedBy = actorOf(requester), actorOf(decidedBy)
	a.CallLatency = time.Duration(ms) * time.Millisecond
	a.Timeout = a.Deadline.Sub(a.AskedAt)
	for _, v := range votes {
		a.Votes = append(a.Votes, agent.Vote{Actor: actorOf(v.Actor), Name: v.Name, At: v.At})
	}
	return a, err
}

func queueApproval(b *pgx.Batch, a agent.Approval) error {
	approvers, err := json.Marshal(a.Approvers)
	if err != nil {
		return err
	}
	filled := a.Filled
	if filled == nil {
		filled = []string{}
	}
	p := a.Place
	b.Queue(`INSERT INTO approvals (id, session_id, turn_id, call_id, status, channel, workspace, conversation, thread,
			tool, args, args_sha256, request_sha256, filled, requester, requester_name, rule, why, approvers, quorum, deadline, target_arg, prompt, secret)
		VALUES ($1, $2, $3, $4, 'pending', $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18::text::jsonb, $19, now() + $20, $21, $22, $23)`,
		a.ID, a.Session, a.Turn, clean(a.Call), p.Channel, p.Workspace, p.Conversation, p.Thread,
		clean(a.Tool), a.Args, a.ArgsSHA256, a.RequestSHA256, filled, a.Requester.String(), clean(a.RequesterName),
		clean(a.Rule), clean(a.Why), string(approvers), a.Quorum, a.Timeout,
		clean(a.TargetArg), clean(a.Prompt), a.Secret)
	return nil
}

// Approval implements approval.Store.
func (db *DB) Approval(ctx context.Context, id agent.ApprovalID) (agent.Approval, error) {
	rows, err := db.pool.Query(ctx, approvalColumns+` WHERE a.id = $1`, clean(id))
	if err != nil {
		return agent.Approval{}, tidy(err)
	}
	a, err := pgx.CollectExactlyOneRow(rows, scanApproval)
	return a, tidy(err)
}

// Approvals implements approval.Store.
func (db *DB) Approvals(ctx context.Context, q approval.Query) ([]agent.Approval, error) {
	rows, err := db.pool.Query(ctx, approvalColumns+`
		WHERE (NOT $1 OR a.status = 'pending') AND (NOT $2 OR a.deadline <= now())
		ORDER BY a.asked_at DESC LIMIT $3`, q.Pending || q.Overdue, q.Overdue, q.Limit)
	if err != nil {
		return nil, tidy(err)
	}
	out, err := pgx.CollectRows(rows, scanApproval)
	return out, tidy(err)
}

// NextDeadline implements approval.Store.
func (db *DB) NextDeadline(ctx context.Context) (time.Duration, error) {
	var wait *time.Duration
	err := db.pool.QueryRow(ctx, `SELECT min(deadline) - clock_timestamp() FROM approvals WHERE status = 'pending'`).Scan(&wait)
	if err != nil {
		return 0, tidy(err)
	}
	if wait == nil {
		return time.Hour, nil
	}
	return max(*wait, 0), nil
}

// Decide implements approval.Store: the one place where an approval changes.
//
// The session is locked first, then the approval; rule sees the approval as it
// is under the lock and the database's time. Its ruling, the audit rows, the
// timeline, the redrawn card and the session's wake-up are one commit. The
// UPDATE names the pending state again: whatever happened, one decision wins.
func (db *DB) Decide(ctx context.Context, id agent.ApprovalID, rule func(a agent.Approval, now time.Time) approval.Ruling) (approval.Ruling, error) {
	var ruling approval.Ruling
	first := &pgx.Batch{}
	first.Queue(lockAny, clean(id))
	first.Queue(lookAroundApproval)
	first.Queue(approvalColumns+` WHERE a.id = $1 FOR UPDATE OF a`, clean(id))
	err := db.pipelined(ctx, first, func(_ *pgxpool.Conn, res pgx.BatchResults) (*pgx.Batch, error) {
		h, err := readHead(res)
		if err != nil {
			return nil, err
		}
		rows, err := res.Query()
		if err != nil {
			return nil, err
		}
		a, err := pgx.CollectExactlyOneRow(rows, scanApproval)
		if cerr := res.Close(); err == nil {
			err = cerr
		}
		if err != nil {
			return nil, err
		}
		ruling = rule(a, h.now)
		if len(ruling.Audit) == 0 {
			return nil, nil // nothing happened that is worth a row
		}
		b := &pgx.Batch{}
		return b, h.queueRuling(b, a, ruling)
	})
	return ruling, err
}

// queueRuling queues what a ruling changes.
func (h *head) queueRuling(b *pgx.Batch, a agent.Approval, r approval.Ruling) error {
	if r.Vote != "" {
		b.Queue(`INSERT INTO votes (approval_id, actor, name, vote, backchannel) VALUES ($1, $2, $3, $4, $5)
			ON CONFLICT (approval_id, actor) DO UPDATE SET vote = excluded.vote, at = now()`,
			a.ID, clean(r.Actor.String()), clean(r.ActorName), r.Vote, r.Backchannel)
	}
	decided := r.Status != agent.ApprovalPending
	if decided {
		// Under the lock the row is as rule saw it. If it were not, the division would
		// fail the transaction, and nothing would be decided.
		b.Queue(`WITH decided AS (
				UPDATE approvals SET status = $2, decided_at = $3, decided_by = $4, source = $5, reason = $6, backchannel = $7, replacement = $8
				WHERE id = $1 AND status = 'pending' RETURNING id)
			SELECT 1 / count(*) FROM decided`,
			a.ID, r.Status, h.now, nullable(clean(r.Actor.String())), r.Source, clean(r.Reason), nullable(r.Backchannel), clean(r.Replacement))
	}
	if r.Status == agent.ApprovalApproved && r.Grant != nil {
		queueGrant(b, *r.Grant)
	}
	if r.Status == agent.ApprovalApproved && r.Args != "" {
		h.queueNewArgs(b, a, r)
	}
	if r.Status == agent.ApprovalApproved {
		b.Queue(`UPDATE tool_calls SET status = 'approved' WHERE turn_id = $1 AND call_id = $2 AND status = 'prepared'`, a.Turn, a.Call)
	}
	if err := h.queueEvents(b, r.Events); err != nil {
		return err
	}
	rows, err := auditRows(r.Audit)
	if err != nil {
		return err
	}
	h.queueAudit(b, rows)
	if r.Redraw {
		queueRedraw(b, agent.Delivery{
			ID: agent.NewID[agent.DeliveryID]("dlv", h.now), Session: h.session, Turn: a.Turn,
			Kind: agent.DeliverCard, Place: a.Place, Approval: &a})
	}
	h.queueHead(b, decided)
	return nil
}

// queueNewArgs puts the arguments that a person completed in the place of those that
// were asked about, in the question and in the call, which has not begun.
func (h *head) queueNewArgs(b *pgx.Batch, a agent.Approval, r approval.Ruling) {
	sum := agent.SHA256(r.Args)
	request := agent.RequestSHA256(a.Session, a.Place, agent.ToolCall{Turn: a.Turn, ID: a.Call, Tool: a.Tool, Definition: r.Definition, Args: r.Args})
	b.Queue(`UPDATE approvals SET args = $2, args_sha256 = $3, request_sha256 = $4 WHERE id = $1`, a.ID, r.Args, sum, request)
	b.Queue(`UPDATE tool_calls SET args = $3, args_sha256 = $4, secret_arg = $5 WHERE turn_id = $1 AND call_id = $2 AND status = 'prepared'`,
		a.Turn, a.Call, r.Args, sum, clean(a.SecretArg()))
}
