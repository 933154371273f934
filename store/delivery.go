package store

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/clawbot/clawbot/agent"
)

// refresh is a delivery that draws an approval's card again.
func refresh(t agent.Turn, id agent.ApprovalID, now time.Time) agent.Delivery {
	return agent.Delivery{
		ID: agent.NewID[agent.DeliveryID]("dlv", now), Session: t.Session, Turn: t.ID,
		Kind: agent.DeliverCard, Place: t.Origin.Place, Approval: &agent.Approval{ID: id},
	}
}

// queueDelivery inserts a delivery; an id that is there already stays as it is.
// With a lease owner it is that process's to send for a while, else anybody's.
func queueDelivery(b *pgx.Batch, d agent.Delivery, owner string, lease time.Duration) {
	var id *string
	if d.Approval != nil {
		id = nullable(d.Approval.ID)
	}
	p := d.Place
	b.Queue(`INSERT INTO deliveries (id, session_id, turn_id, kind, channel, workspace, conversation, thread, text, approval_id, state, lease_owner, leased_until)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, 'due', $11, CASE WHEN $11::text IS NOT NULL THEN now() + $12::interval END)
		ON CONFLICT (id) DO NOTHING`,
		d.ID, d.Session, d.Turn, d.Kind, p.Channel, clean(p.Workspace), clean(p.Conversation), clean(p.Thread), clean(d.Text), id, nullable(owner), lease)
}

// queueRedraw inserts a delivery that draws a card again, unless one waits already:
// that one will find the card as it is now. Its row is locked, so that nobody takes
// it, and with it an older picture, before this transaction is over.
func queueRedraw(b *pgx.Batch, d agent.Delivery) {
	p := d.Place
	b.Queue(`WITH waiting AS (
			SELECT id FROM deliveries WHERE session_id = $2 AND approval_id = $8 AND state = 'due' AND (leased_until IS NULL OR leased_until < now())
			FOR UPDATE)
		INSERT INTO deliveries (id, session_id, turn_id, kind, channel, workspace, conversation, thread, text, approval_id, state)
		SELECT $1, $2, $3, 'card', $4, $5, $6, $7, '', $8, 'due' WHERE NOT EXISTS (SELECT 1 FROM waiting)`,
		d.ID, d.Session, d.Turn, p.Channel, clean(p.Workspace), clean(p.Conversation), clean(p.Thread), d.Approval.ID)
}

// DueDeliveries implements agent.Store. Its commit does not wait for the disk:
// losing a lease to a crash of Postgres means an early second attempt at most.
func (db *DB) DueDeliveries(ctx context.Context, owner string, channels []agent.ChannelName, limit int) ([]agent.Delivery, error) {
	b := &pgx.Batch{}
	b.Queue(`SELECT set_config('synchronous_commit', 'off', true)`)
	// An owner that is still named tried it and did not say how it went. A card that
	// is only drawn again waits for no text and no text for it, only for its like.
	b.Queue(`WITH due AS (SELECT id AS due_id, lease_owner IS NOT NULL AS unsure FROM deliveries d
			WHERE state = 'due' AND due_at <= now() AND (leased_until IS NULL OR leased_until < now()) AND channel = ANY ($3)
				AND NOT EXISTS (SELECT 1 FROM deliveries e
					WHERE e.session_id = d.session_id AND e.state = 'due' AND e.ordinal < d.ordinal
						AND CASE WHEN `+isEdit+` THEN e.approval_id = d.approval_id ELSE NOT `+olderIsEdit+` END)
			ORDER BY due_at LIMIT $4 FOR UPDATE SKIP LOCKED)
		UPDATE deliveries SET lease_owner = $1, leased_until = now() + $2::interval FROM due WHERE id = due_id
		RETURNING id, session_id, turn_id, kind, channel, workspace, conversation, thread, text, coalesce(approval_id, ''), parts, attempts, unsure`,
		owner, db.lease, channelNames(channels), limit)
	res := db.pool.SendBatch(ctx, b)
	defer res.Close()
	if _, err := res.Exec(); err != nil {
		return nil, tidy(err)
	}
	rows, err := res.Query()
	if err != nil {
		return nil, tidy(err)
	}
	out, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (agent.Delivery, error) {
		var d agent.Delivery
		var approval agent.ApprovalID
		p := &d.Place
		err := row.Scan(&d.ID, &d.Session, &d.Turn, &d.Kind, &p.Channel, &p.Workspace, &p.Conversation, &p.Thread, &d.Text, &approval, &d.Parts, &d.Attempts, &d.Unsure)
		if approval != "" {
			d.Approval = &agent.Approval{ID: approval}
		}
		return d, err
	})
	if err == nil {
		err = res.Close()
	}
	return out, tidy(err)
}

// Delivered implements agent.Store.
func (db *DB) Delivered(ctx context.Context, d agent.Delivery, a agent.Attempt) error {
	state := "due"
	switch {
	case a.Done:
		state = "sent"
	case a.Failed:
		state = "failed"
	}
	b := &pgx.Batch{} // one transaction, as every batch
	b.Queue(`UPDATE deliveries SET state = $2, parts = $3, ref = CASE WHEN $4 = '' THEN ref ELSE $4 END, reason = $5,
			attempts = attempts + 1, due_at = now() + $6::interval, leased_until = NULL,
			lease_owner = CASE WHEN $8 THEN lease_owner END, done_at = CASE WHEN $7 THEN now() END
		WHERE id = $1 AND state = 'due'`, d.ID, state, a.Parts, a.Ref, clean(a.Reason), a.RetryIn, a.Done || a.Failed, a.Unsure)
	if a.Done && d.Approval != nil && a.Ref != "" {
		b.Queue(`UPDATE approvals SET card_ref = $2 WHERE id = $1 AND card_ref = ''`, d.Approval.ID, a.Ref)
	}
	return tidy(batchErr(db.pool.SendBatch(ctx, b), b.Len()))
}

// DeliveredPart records that one part of a long text is out, so that a crash
// before the next does not send it again.
func (db *DB) DeliveredPart(ctx context.Context, id agent.DeliveryID, parts int, ref string) error {
	_, err := db.pool.Exec(ctx, `UPDATE deliveries SET parts = $2, ref = $3 WHERE id = $1 AND state = 'due'`, id, parts, ref)
	return tidy(err)
}
