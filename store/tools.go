package store

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/clawbot/clawbot/agent"
	"github.com/clawbot/clawbot/tools"
)

var (
	_ tools.Jobs   = (*DB)(nil)
	_ tools.Outbox = (*DB)(nil)
)

// Send implements tools.Outbox. The delivery's id is made of the call, so that
// the same call queues one message however often it runs.
func (db *DB) Send(ctx context.Context, inv agent.Invocation, to agent.Place, text string) error {
	b := &pgx.Batch{}
	queueDelivery(b, agent.Delivery{
		ID:      agent.DeliveryID(fmt.Sprintf("dlv_%s_%s", inv.Turn, clean(inv.Call))),
		Session: inv.Session, Turn: inv.Turn, Kind: agent.DeliverText, Place: to, Text: text}, "", 0)
	return tidy(batchErr(db.pool.SendBatch(ctx, b), 1))
}

// AddJob implements tools.Jobs.
func (db *DB) AddJob(ctx context.Context, j tools.Job) error {
	o, d := j.Origin, j.Delivery
	_, err := db.pool.Exec(ctx, `INSERT INTO jobs (id, channel, workspace, conversation, thread, mode,
			to_channel, to_workspace, to_conversation, to_thread, prompt, schedule, creator, creator_name, next_at)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15) ON CONFLICT (id) DO NOTHING`,
		j.ID, o.Channel, clean(o.Workspace), clean(o.Conversation), clean(o.Thread), d.Mode,
		d.Place.Channel, clean(d.Place.Workspace), clean(d.Place.Conversation), clean(d.Place.Thread),
		clean(j.Prompt), clean(j.Schedule), o.Author.String(), clean(o.AuthorName), j.Next)
	return tidy(err)
}

const jobColumns = `SELECT id, channel, workspace, conversation, thread, mode, to_channel, to_workspace, to_conversation, to_thread,
	prompt, schedule, creator, creator_name, next_at FROM jobs`

func scanJob(row pgx.CollectableRow) (tools.Job, error) {
	var j tools.Job
	var creator string
	o, to := &j.Origin, &j.Delivery.Place
	err := row.Scan(&j.ID, &o.Channel, &o.Workspace, &o.Conversation, &o.Thread, &j.Delivery.Mode,
		&to.Channel, &to.Workspace, &to.Conversation, &to.Thread, &j.Prompt, &j.Schedule, &creator, &o.AuthorName, &j.Next)
	o.Author = actorOf(creator)
	if j.Schedule == "" {
		j.At = j.Next
	}
	return j, err
}

// Jobs implements tools.Jobs.
func (db *DB) Jobs(ctx context.Context, s tools.Scope) ([]tools.Job, error) {
	rows, err := db.pool.Query(ctx, jobColumns+` WHERE channel = $1 AND workspace = $2 AND conversation = $3 AND next_at IS NOT NULL
		ORDER BY next_at, id`, s.Channel, clean(s.Workspace), clean(s.Conversation))
	if err != nil {
		return nil, tidy(err)
	}
	out, err := pgx.CollectRows(rows, scanJob)
	return out, tidy(err)
}

// RemoveJob implements tools.Jobs.
func (db *DB) RemoveJob(ctx context.Context, s tools.Scope, id agent.JobID) error {
	tag, err := db.pool.Exec(ctx, `UPDATE jobs SET next_at = NULL, removed_at = now()
		WHERE id = $1 AND channel = $2 AND workspace = $3 AND conversation = $4 AND next_at IS NOT NULL`,
		clean(id), s.Channel, clean(s.Workspace), clean(s.Conversation))
	if err == nil && tag.RowsAffected() == 0 {
		return agent.ErrNotFound
	}
	return tidy(err)
}

// DueJobs returns jobs whose time has come. Several processes may get the same
// one: its message has one key for one time, and JobDone moves it on once.
func (db *DB) DueJobs(ctx context.Context, limit int) ([]tools.Job, error) {
	rows, err := db.pool.Query(ctx, jobColumns+` WHERE next_at <= now() ORDER BY next_at LIMIT $1`, limit)
	if err != nil {
		return nil, tidy(err)
	}
	out, err := pgx.CollectRows(rows, scanJob)
	return out, tidy(err)
}

// JobDone moves a job on from the run at one time to the next; a zero next ends it.
func (db *DB) JobDone(ctx context.Context, id agent.JobID, ran, next time.Time) error {
	var at *time.Time
	if !next.IsZero() {
		at = &next
	}
	_, err := db.pool.Exec(ctx, `UPDATE jobs SET next_at = $3 WHERE id = $1 AND next_at = $2`, id, ran, at)
	return tidy(err)
}
