package store

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/clawbot/clawbot/agent"
)

// DueStatuses implements agent.Store. Its commit does not wait for the disk: losing a
// lease to a crash of Postgres means an early second attempt at most.
func (db *DB) DueStatuses(ctx context.Context, channels []agent.ChannelName, limit int) ([]agent.StatusDue, error) {
	b := &pgx.Batch{}
	b.Queue(`SELECT set_config('synchronous_commit', 'off', true)`)
	b.Queue(`WITH due AS (SELECT id AS due_id FROM turns WHERE status_due_at <= now() AND channel = ANY ($2)
			ORDER BY status_due_at LIMIT $3 FOR UPDATE SKIP LOCKED)
		UPDATE turns SET status_due_at = now() + $1::interval, status_tries = status_tries + 1 FROM due WHERE id = due_id
		RETURNING id, session_id, status, channel, workspace, conversation, thread, status_ref, status_tries, status_changes`,
		db.lease, channelNames(channels), limit)
	res := db.pool.SendBatch(ctx, b)
	defer res.Close()
	if _, err := res.Exec(); err != nil {
		return nil, tidy(err)
	}
	rows, err := res.Query()
	if err != nil {
		return nil, tidy(err)
	}
	out, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (agent.StatusDue, error) {
		var s agent.StatusDue
		o := &s.Turn.Origin
		err := row.Scan(&s.Turn.ID, &s.Turn.Session, &s.Turn.Status, &o.Channel, &o.Workspace, &o.Conversation, &o.Thread, &s.Ref, &s.Tries, &s.Changes)
		return s, err
	})
	if err == nil {
		err = res.Close()
	}
	for i := 0; i < len(out) && err == nil; i++ {
		out[i].Calls, err = db.calls(ctx, out[i].Turn.ID)
	}
	return out, tidy(err)
}

// calls reads the calls of a turn without what a picture does not need.
func (db *DB) calls(ctx context.Context, id agent.TurnID) ([]agent.ToolCall, error) {
	rows, err := db.pool.Query(ctx, `SELECT tool, status, coalesce(approval_id, ''), left(error, 1000) FROM tool_calls WHERE turn_id = $1 ORDER BY batch, position`, id)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (agent.ToolCall, error) {
		var c agent.ToolCall
		err := row.Scan(&c.Tool, &c.Status, &c.Approval, &c.Error)
		return c, err
	})
}

// StatusDrawn implements agent.Store.
func (db *DB) StatusDrawn(ctx context.Context, s agent.StatusDue, ref string) error {
	_, err := db.pool.Exec(ctx, `UPDATE turns SET status_ref = CASE WHEN $2 = '' THEN status_ref ELSE $2 END, status_tries = 0,
			status_due_at = CASE WHEN status_changes <> $3 AND $2 <> '' THEN now() + interval '1 second' END
		WHERE id = $1`, s.Turn.ID, clean(ref), s.Changes)
	return tidy(err)
}
