package store

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/clawbot/clawbot/agent"
	"github.com/clawbot/clawbot/audit"
)

// AuditQuery narrows a list of audit rows; zero fields do not narrow.
type AuditQuery struct {
	Since, Until time.Time
	Tool         string
	Actor        string
	Channel      string
	Decision     string
	Kind         string
	Session      agent.SessionID
	Limit        int // the latest so many; at least 1
}

const auditColumns = `SELECT session_id, seq, at, kind, turn_id, call_id, approval_id, tool, args::text, args_sha256,
	decision, source, actor, channel, backchannel, rule, reason, latency_ms, prev_hash, hash FROM audit_log`

// scanAudit reads a row with its arguments in the form that was hashed.
func scanAudit(row pgx.CollectableRow) (audit.Row, error) {
	var r audit.Row
	err := row.Scan(&r.SessionID, &r.Seq, &r.At, &r.Kind, &r.TurnID, &r.CallID, &r.ApprovalID, &r.Tool, &r.Args, &r.ArgsSHA256,
		&r.Decision, &r.Source, &r.Actor, &r.Channel, &r.Backchannel, &r.Rule, &r.Reason, &r.LatencyMS, &r.PrevHash, &r.Hash)
	r.At = r.At.UTC()
	if err == nil && r.Args != nil {
		// jsonb has its own order of keys; what cannot be read stays as it is, and
		// its hash will not match.
		if canonical, err := agent.Recanonical(*r.Args); err == nil {
			r.Args = &canonical
		}
	}
	return r, err
}

// AuditRows returns the latest rows that match, oldest first.
func (db *DB) AuditRows(ctx context.Context, q AuditQuery) ([]audit.Row, error) {
	rows, err := db.pool.Query(ctx, auditColumns+`
		WHERE ($1::timestamptz IS NULL OR at >= $1) AND ($2::timestamptz IS NULL OR at < $2)
			AND ($3 = '' OR tool = $3) AND ($4 = '' OR actor = $4) AND ($5 = '' OR channel = $5)
			AND ($6 = '' OR decision = $6) AND ($7 = '' OR kind = $7) AND ($8 = '' OR session_id = $8)
		ORDER BY at DESC, session_id, seq DESC LIMIT $9`,
		timeOrNull(q.Since), timeOrNull(q.Until), clean(q.Tool), clean(q.Actor), clean(q.Channel), clean(q.Decision), clean(q.Kind), clean(q.Session), q.Limit)
	if err != nil {
		return nil, tidy(err)
	}
	out, err := pgx.CollectRows(rows, scanAudit)
	if err != nil {
		return nil, tidy(err)
	}
	for i, j := 0, len(out)-1; i < j; i, j = i+1, j-1 {
		out[i], out[j] = out[j], out[i]
	}
	return out, nil
}

// AuditCall returns every row about a call or an approval, oldest first.
func (db *DB) AuditCall(ctx context.Context, id string) ([]audit.Row, error) {
	rows, err := db.pool.Query(ctx, auditColumns+` WHERE turn_id = $1 OR (turn_id, call_id) IN (
			SELECT turn_id, call_id FROM audit_log WHERE call_id = $1 OR approval_id = $1)
		ORDER BY session_id, seq`, clean(id))
	if err != nil {
		return nil, tidy(err)
	}
	out, err := pgx.CollectRows(rows, scanAudit)
	return out, tidy(err)
}

// Verified is what VerifyAudit has checked.
type Verified struct {
	Sessions int           `json:"sessions"`
	Rows     int64         `json:"rows"`
	Bad      *audit.BadRow `json:"bad"` // the first bad row, or nil
}

// VerifyAudit recomputes every chain, session by session, and compares each with
// the head in its session's row. It reads one snapshot, row by row, so it may run
// beside a working clawbot and needs little memory. A session whose row is gone
// is checked up to its last audit row.
func (db *DB) VerifyAudit(ctx context.Context) (Verified, error) {
	var v Verified
	err := pgx.BeginTxFunc(ctx, db.pool, pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly}, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, `SET LOCAL statement_timeout = 0`); err != nil {
			return err
		}
		heads := map[string]audit.Head{}
		rows, err := tx.Query(ctx, `SELECT id, audit_seq, audit_hash FROM sessions WHERE audit_seq > 0`)
		if err != nil {
			return err
		}
		var id string
		var h audit.Head
		if _, err := pgx.ForEachRow(rows, []any{&id, &h.Seq, &h.Hash}, func() error { heads[id] = h; return nil }); err != nil {
			return err
		}
		var chain *audit.Verifier
		session := ""
		end := func() error {
			if chain == nil {
				return nil
			}
			h, ok := heads[session]
			delete(heads, session)
			if !ok {
				return nil
			}
			return chain.End(h)
		}
		if rows, err = tx.Query(ctx, auditColumns+` ORDER BY session_id, seq`); err != nil {
			return err
		}
		defer rows.Close()
		for rows.Next() {
			r, err := scanAudit(rows)
			if err != nil {
				return err
			}
			if chain == nil || r.SessionID != session {
				if err := end(); err != nil {
					return err
				}
				session, chain = r.SessionID, audit.NewVerifier(r.SessionID)
				v.Sessions++
			}
			if err := chain.Row(r); err != nil {
				return err
			}
			v.Rows++
		}
		if err := rows.Err(); err != nil {
			return err
		}
		if err := end(); err != nil {
			return err
		}
		for id := range heads {
			return &audit.BadRow{SessionID: id, Seq: 1, Why: "all rows of the session are missing"}
		}
		return nil
	})
	if errors.As(err, &v.Bad) {
		return v, nil
	}
	return v, tidy(err)
}

// Receipt is what a stored receipt is about, beside it.
type Receipt struct {
	agent.Evidence
	Line string
}

// Receipts calls f for each stored receipt, in the order of sessions and turns, of all
// calls or of the turn, call or approval with the given id. It reads row by row.
func (db *DB) Receipts(ctx context.Context, id string, f func(Receipt) error) error {
	tx, err := db.pool.BeginTx(ctx, pgx.TxOptions{AccessMode: pgx.ReadOnly})
	if err != nil {
		return tidy(err)
	}
	defer tx.Rollback(ctx)
	if _, err := tx.Exec(ctx, `SET LOCAL statement_timeout = 0`); err != nil {
		return tidy(err)
	}
	rows, err := tx.Query(ctx, `SELECT session_id, turn_id, call_id, tool, args, output, receipt FROM tool_calls
		WHERE receipt <> '' AND ($1 = '' OR $1 IN (turn_id, call_id, approval_id)) ORDER BY session_id, turn_id, batch, position`, clean(id))
	if err != nil {
		return tidy(err)
	}
	var r Receipt
	var args string
	_, err = pgx.ForEachRow(rows, []any{&r.Session, &r.Turn, &r.Call, &r.Tool, &args, &r.Output, &r.Line}, func() error {
		r.ArgsSHA256 = agent.SHA256(args) // of what is stored, not what is said of it
		return f(r)
	})
	return tidy(err)
}

// SessionInfo is one line of the list of sessions.
type SessionInfo struct {
	ID        agent.SessionID `json:"id"`
	Place     agent.Place     `json:"place"`
	CreatedAt time.Time       `json:"created_at"`
	Turns     int             `json:"turns"`
	Messages  int             `json:"messages"`
	Last      string          `json:"last_turn_status"` // of the latest turn; "" if there is none
}

// Sessions lists the sessions begun latest.
func (db *DB) Sessions(ctx context.Context, limit int) ([]SessionInfo, error) {
	rows, err := db.pool.Query(ctx, `SELECT id, channel, workspace, conversation, thread, created_at, message_seq,
			(SELECT count(*) FROM turns t WHERE t.session_id = s.id),
			coalesce((SELECT status FROM turns t WHERE t.session_id = s.id ORDER BY started_at DESC LIMIT 1), '')
		FROM sessions s ORDER BY created_at DESC LIMIT $1`, limit)
	if err != nil {
		return nil, tidy(err)
	}
	out, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (SessionInfo, error) {
		var s SessionInfo
		p := &s.Place
		err := row.Scan(&s.ID, &p.Channel, &p.Workspace, &p.Conversation, &p.Thread, &s.CreatedAt, &s.Messages, &s.Turns, &s.Last)
		return s, err
	})
	return out, tidy(err)
}

// TurnInfo is a turn with its timeline.
type TurnInfo struct {
	ID         agent.TurnID     `json:"id"`
	Status     agent.TurnStatus `json:"status"`
	Author     string           `json:"author"`
	Model      string           `json:"model"`
	Iterations int              `json:"iterations"`
	ActiveMS   int64            `json:"active_ms"`
	Error      string           `json:"error"`
	StartedAt  time.Time        `json:"started_at"`
	EndedAt    *time.Time       `json:"ended_at"`
	Events     []EventInfo      `json:"events"`
}

// EventInfo is one entry of a timeline.
type EventInfo struct {
	Seq    int64             `json:"seq"`
	At     time.Time         `json:"at"`
	Type   string            `json:"type"`
	CallID string            `json:"tool_call_id,omitempty"`
	Fields map[string]string `json:"fields"`
}

// Turns returns a session's turns in order, each with its timeline;
// agent.ErrNotFound if there is no such session.
func (db *DB) Turns(ctx context.Context, id agent.SessionID) ([]TurnInfo, error) {
	var there bool
	if err := db.pool.QueryRow(ctx, `SELECT EXISTS (SELECT 1 FROM sessions WHERE id = $1)`, clean(id)).Scan(&there); err != nil {
		return nil, tidy(err)
	}
	if !there {
		return nil, agent.ErrNotFound
	}
	rows, err := db.pool.Query(ctx, `SELECT t.id, t.status, t.author, t.model, t.iterations, t.active_ms, t.error, t.started_at, t.ended_at,
			(SELECT coalesce(jsonb_agg(jsonb_build_object('seq', e.seq, 'at', e.at, 'type', e.type,
				'tool_call_id', coalesce(e.call_id, ''), 'fields', e.fields) ORDER BY e.seq), '[]')
			FROM events e WHERE e.session_id = t.session_id AND e.turn_id = t.id)
		FROM turns t WHERE session_id = $1 ORDER BY started_at, id`, id)
	if err != nil {
		return nil, tidy(err)
	}
	out, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (TurnInfo, error) {
		var t TurnInfo
		var events []byte
		err := row.Scan(&t.ID, &t.Status, &t.Author, &t.Model, &t.Iterations, &t.ActiveMS, &t.Error, &t.StartedAt, &t.EndedAt, &events)
		if err == nil {
			err = json.Unmarshal(events, &t.Events)
		}
		return t, err
	})
	return out, tidy(err)
}

func timeOrNull(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return &t
}

// Going tells whether more will be said in a conversation without anybody's
// doing, and which of its questions are shown and wait.
func (db *DB) Going(ctx context.Context, p agent.Place) (busy bool, open []agent.ApprovalID, err error) {
	// A session stays runnable until its worker has let go of it.
	err = db.pool.QueryRow(ctx, `WITH s AS (
			SELECT id, runnable_at FROM sessions WHERE channel = $1 AND workspace = $2 AND conversation = $3 AND thread = $4 AND job = '')
		SELECT s.runnable_at IS NOT NULL
			OR EXISTS (SELECT 1 FROM deliveries d WHERE d.session_id = s.id AND d.state = 'due'),
			ARRAY(SELECT a.id FROM approvals a WHERE a.session_id = s.id AND a.status = 'pending' ORDER BY a.asked_at, a.id)
		FROM s`, p.Channel, clean(p.Workspace), clean(p.Conversation), clean(p.Thread)).Scan(&busy, &open)
	if errors.Is(err, pgx.ErrNoRows) {
		return false, nil, nil
	}
	return busy, open, tidy(err)
}
