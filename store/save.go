package store

import (
	"context"
	"encoding/json"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/clawbot/clawbot/agent"
	"github.com/clawbot/clawbot/audit"
)

// storedCall is how an assistant's call is written in messages.calls.
type storedCall struct {
	ID        agent.CallID `json:"id"`
	Tool      string       `json:"tool"`
	Arguments string       `json:"arguments"`
}

// Save implements agent.Store.
func (db *DB) Save(ctx context.Context, l agent.Lease, s agent.Step) (agent.Saved, error) {
	var saved agent.Saved
	rows, err := auditRows(s.Audit)
	if err != nil {
		return saved, err
	}
	first := &pgx.Batch{}
	queueLock(first, l)
	err = db.pipelined(ctx, first, func(conn *pgxpool.Conn, res pgx.BatchResults) (*pgx.Batch, error) {
		h, err := readHead(res)
		if cerr := res.Close(); err == nil {
			err = cerr
		}
		if err == pgx.ErrNoRows {
			return nil, agent.ErrLeaseLost
		}
		if err != nil {
			return nil, err
		}
		saved.Stop = h.stop
		if s.Steer {
			if saved.Steered, err = steer(ctx, conn, s.Turn); err != nil {
				return nil, err
			}
		}
		b := &pgx.Batch{}
		if saved.Deliveries, err = h.queueStep(b, l, s, saved.Steered, rows, db.lease); err != nil {
			return nil, err
		}
		if s.Release {
			h.queueRelease(b, l, s.Again, s.Turn.Status.Ended())
		} else {
			h.queueHead(b, false)
		}
		return b, nil
	})
	return saved, err
}

// queueStep queues what a step changes beside its session. It returns the delivery
// that the saver may send at once.
func (h *head) queueStep(b *pgx.Batch, l agent.Lease, s agent.Step, steered []agent.Message, rows []audit.Row, lease time.Duration) (mine []agent.Delivery, err error) {
	queueTurn(b, s.Turn, s.Progress)
	if err := h.queueMessages(b, append(slices.Clone(s.Messages), steered...)); err != nil {
		return nil, err
	}
	for _, c := range s.Calls {
		h.queueCall(b, c)
	}
	for _, a := range s.Approvals {
		if err := queueApproval(b, a); err != nil {
			return nil, err
		}
	}
	if err := h.queueEvents(b, s.Events); err != nil {
		return nil, err
	}
	for _, id := range s.GrantUses {
		queueGrantUse(b, id)
	}
	h.queueAudit(b, rows)
	for i, d := range s.Deliveries {
		// What is older goes first; only with nothing before it may the saver send
		// its own at once, and of those the first.
		if i == 0 && !h.backlog {
			queueDelivery(b, d, l.Owner, lease)
			mine = s.Deliveries[:1]
			continue
		}
		queueDelivery(b, d, "", 0)
	}
	for _, id := range s.Refresh {
		queueRedraw(b, refresh(s.Turn, id, h.now))
	}
	return mine, nil
}

// steer takes the session's waiting messages into its turn.
func steer(ctx context.Context, tx querier, t agent.Turn) ([]agent.Message, error) {
	rows, err := tx.Query(ctx, `WITH taken AS (
			UPDATE inbox SET turn_id = $2 WHERE session_id = $1 AND turn_id IS NULL RETURNING id, author, author_name, text)
		SELECT author, author_name, text FROM taken ORDER BY id`, t.Session, t.ID)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (agent.Message, error) {
		m := agent.Message{Role: agent.RoleUser, Turn: t.ID}
		var author string
		err := row.Scan(&author, &m.AuthorName, &m.Text)
		m.Author = actorOf(author)
		return m, err
	})
}

// queueTurn writes a turn's state. With progress to show, its status line becomes due: the
// first time after that while, or ten times that while only people are waited for, whose
// card says so already; then a second after a change; and at the end at once, or never if
// it was not shown by then. One that is being drawn stays leased, and is due again behind.
func queueTurn(b *pgx.Batch, t agent.Turn, progress time.Duration) {
	if t.ID == "" {
		return
	}
	b.Queue(`UPDATE turns SET status = $2, model = $3, iterations = $4, active_ms = $5, error = $6,
			ended_at = CASE WHEN $7 THEN now() END, batch_active_ms = $8,
			status_changes = status_changes + CASE WHEN $9 THEN 1 ELSE 0 END,
			status_due_at = CASE
				WHEN NOT $9 OR status_tries > 0 THEN status_due_at
				WHEN $7 THEN CASE WHEN status_ref <> '' THEN now() END
				WHEN status_ref <> '' THEN coalesce(status_due_at, now() + interval '1 second')
				WHEN $2 = 'parked' THEN now() + 10 * $10::interval
				ELSE least(coalesce(status_due_at, 'infinity'), now() + $10::interval) END
		WHERE id = $1`, t.ID, t.Status, clean(t.Model), t.Iterations, t.Active.Milliseconds(), clean(t.Error), t.Status.Ended(), t.BatchActive.Milliseconds(),
		progress > 0, progress)
}

func (h *head) queueMessages(b *pgx.Batch, messages []agent.Message) error {
	for _, m := range messages {
		h.message++
		var calls *string
		if len(m.Calls) > 0 {
			stored := make([]storedCall, len(m.Calls))
			for i, c := range m.Calls {
				stored[i] = storedCall{ID: c.ID, Tool: clean(c.Tool), Arguments: clean(c.Arguments)}
			}
			js, err := json.Marshal(stored)
			if err != nil {
				return err
			}
			text := string(js)
			calls = &text
		}
		b.Queue(`INSERT INTO messages (session_id, seq, turn_id, role, author, author_name, text, calls, call_id, failed)
			VALUES ($1, $2, $3, $4, $5, $6, $7, $8::text::jsonb, $9, $10)`,
			h.session, h.message, m.Turn, m.Role, nullable(m.Author.String()), nullable(clean(m.AuthorName)), clean(m.Text), calls, nullable(m.CallID), m.Failed)
	}
	return nil
}

// History implements agent.Store.
func (db *DB) History(ctx context.Context, id agent.SessionID, limit int) ([]agent.Message, error) {
	rows, err := db.pool.Query(ctx, `SELECT turn_id, role, coalesce(author, ''), coalesce(author_name, ''), text, calls, coalesce(call_id, ''), failed
		FROM (SELECT seq, turn_id, role, author, author_name, text, calls, call_id, failed FROM messages WHERE session_id = $1 ORDER BY seq DESC LIMIT $2) m ORDER BY seq`, id, limit)
	if err != nil {
		return nil, tidy(err)
	}
	out, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (agent.Message, error) {
		var m agent.Message
		var author string
		var calls []storedCall
		err := row.Scan(&m.Turn, &m.Role, &author, &m.AuthorName, &m.Text, &calls, &m.CallID, &m.Failed)
		m.Author = actorOf(author)
		for _, c := range calls {
			m.Calls = append(m.Calls, agent.ProposedCall{ID: c.ID, Tool: c.Tool, Arguments: c.Arguments})
		}
		return m, err
	})
	return out, tidy(err)
}

const callColumns = `SELECT turn_id, call_id, batch, position, tool, raw, args, args_sha256, definition, filled, status,
	coalesce(approval_id, ''), rule, output, error, coalesce(latency_ms, 0), started_at, asked_tool, secret_arg, result_sha256, receipt, grant_id FROM tool_calls`

func scanCall(row pgx.CollectableRow) (agent.ToolCall, error) {
	var c agent.ToolCall
	var ms int64
	var started *time.Time
	err := row.Scan(&c.Turn, &c.ID, &c.Batch, &c.Position, &c.Tool, &c.Raw, &c.Args, &c.ArgsSHA256, &c.Definition, &c.Filled, &c.Status,
		&c.Approval, &c.Rule, &c.Output, &c.Error, &ms, &started, &c.AskedTool, &c.SecretArg, &c.ResultSHA256, &c.Receipt, &c.Grant)
	c.Latency = time.Duration(ms) * time.Millisecond
	if started != nil {
		c.StartedAt = *started
	}
	return c, err
}

// queueCall inserts a call or moves it on. What was frozen is written once and
// never updated, and a call that has ended stays as it is.
func (h *head) queueCall(b *pgx.Batch, c agent.ToolCall) {
	var latency *int64
	if c.Status.Ran() && c.Status.Ended() {
		ms := c.Latency.Milliseconds()
		latency = &ms
	}
	filled := c.Filled
	if filled == nil {
		filled = []string{}
	}
	b.Queue(`INSERT INTO tool_calls AS t (turn_id, call_id, session_id, batch, position, tool, raw, args, args_sha256, definition, filled, status,
			approval_id, rule, output, error, latency_ms, started_at, finished_at, asked_tool, secret_arg, result_sha256, receipt, grant_id)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17,
			CASE WHEN $18 THEN now() END, CASE WHEN $19 THEN now() END, $20, $21, $22, $23, $24)
		ON CONFLICT (turn_id, call_id) DO UPDATE SET status = excluded.status, output = excluded.output, error = excluded.error,
			result_sha256 = excluded.result_sha256, receipt = excluded.receipt, latency_ms = excluded.latency_ms, started_at = coalesce(t.started_at, excluded.started_at), finished_at = excluded.finished_at
		WHERE t.finished_at IS NULL`,
		c.Turn, clean(c.ID), h.session, c.Batch, c.Position, clean(c.Tool), clean(c.Raw), c.Args, c.ArgsSHA256, c.Definition, filled, c.Status,
		nullable(c.Approval), clean(c.Rule), clean(c.Output), clean(c.Error), latency, c.Status.Ran(), c.Status.Ended(),
		clean(c.AskedTool), clean(c.SecretArg), c.ResultSHA256, clean(c.Receipt), c.Grant)
}
