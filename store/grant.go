package store

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/clawbot/clawbot/agent"
)

// queueGrant stores a grant. The definition is that of the call it was given for.
func queueGrant(b *pgx.Batch, g agent.Grant) {
	b.Queue(`INSERT INTO grants (id, session_id, tool, args, args_sha256, definition, terms, granted_by, granted_to, approval_id, created_at, expires_at, uses_left)
		SELECT $1, $2, $3, $4, $5, c.definition, $6, $7, $8, a.id, $10, $11, $12
		FROM approvals a JOIN tool_calls c ON c.turn_id = a.turn_id AND c.call_id = a.call_id WHERE a.id = $9`,
		g.ID, g.Session, clean(g.Tool), g.Args, g.ArgsSHA256, g.Terms, clean(g.GrantedBy.String()), clean(g.GrantedTo.String()), g.Approval, g.CreatedAt, g.ExpiresAt, g.UsesLeft)
}

// queueGrantUse counts one use. If the grant ended since it was found, the division
// fails the step.
func queueGrantUse(b *pgx.Batch, id agent.GrantID) {
	b.Queue(`WITH used AS (UPDATE grants SET uses_left = uses_left - 1
			WHERE id = $1 AND uses_left > 0 AND revoked_at IS NULL AND expires_at > now() RETURNING id)
		SELECT 1 / count(*) FROM used`, id)
}

// FindGrant implements agent.Store.
func (db *DB) FindGrant(ctx context.Context, q agent.GrantQuery) (agent.Grant, error) {
	rows, err := db.pool.Query(ctx, grantColumns+` WHERE session_id = $1 AND tool = $2 AND args_sha256 = $3 AND definition = $4 AND terms = $5 AND granted_to = $6
			AND revoked_at IS NULL AND expires_at > now() AND uses_left > 0
		ORDER BY expires_at LIMIT 1`, q.Session, clean(q.Tool), q.ArgsSHA256, q.Definition, q.Terms, clean(q.For.String()))
	if err != nil {
		return agent.Grant{}, tidy(err)
	}
	list, err := pgx.CollectRows(rows, scanGrant)
	if err != nil || len(list) == 0 {
		return agent.Grant{}, tidy(err)
	}
	return list[0], nil
}

// GrantHolds implements agent.Store.
func (db *DB) GrantHolds(ctx context.Context, id agent.GrantID) (holds bool, err error) {
	err = db.pool.QueryRow(ctx, `SELECT EXISTS (SELECT 1 FROM grants WHERE id = $1 AND revoked_at IS NULL AND expires_at > now())`, id).Scan(&holds)
	return holds, tidy(err)
}

const grantColumns = `SELECT id, session_id, tool, args, args_sha256, definition, terms, granted_by, granted_to, approval_id, created_at, expires_at, uses_left,
	revoked_at, coalesce(revoked_by, '') FROM grants`

func scanGrant(row pgx.CollectableRow) (agent.Grant, error) {
	var g agent.Grant
	var by, to, revokedBy string
	var revoked *time.Time
	err := row.Scan(&g.ID, &g.Session, &g.Tool, &g.Args, &g.ArgsSHA256, &g.Definition, &g.Terms, &by, &to, &g.Approval, &g.CreatedAt, &g.ExpiresAt, &g.UsesLeft, &revoked, &revokedBy)
	g.GrantedBy, g.GrantedTo, g.RevokedBy = actorOf(by), actorOf(to), actorOf(revokedBy)
	if revoked != nil {
		g.RevokedAt = *revoked
	}
	return g, err
}

// Grants lists the grants given latest; ended ones too if all is set.
func (db *DB) Grants(ctx context.Context, all bool, limit int) ([]agent.Grant, error) {
	rows, err := db.pool.Query(ctx, grantColumns+` WHERE $1 OR (revoked_at IS NULL AND expires_at > now() AND uses_left > 0) ORDER BY created_at DESC LIMIT $2`, all, limit)
	if err != nil {
		return nil, tidy(err)
	}
	out, err := pgx.CollectRows(rows, scanGrant)
	return out, tidy(err)
}

// RevokeGrant ends a grant, with the audit row about it in the same commit. It reports
// whether the grant was not revoked before; agent.ErrNotFound if there is none.
func (db *DB) RevokeGrant(ctx context.Context, id agent.GrantID, by agent.Actor, record func(agent.Grant) agent.AuditRecord) (revoked bool, err error) {
	first := &pgx.Batch{}
	first.Queue(lockGrant, clean(id))
	first.Queue(lookAroundApproval)
	first.Queue(grantColumns+` WHERE id = $1 FOR UPDATE`, clean(id))
	err = db.pipelined(ctx, first, func(_ *pgxpool.Conn, res pgx.BatchResults) (*pgx.Batch, error) {
		h, err := readHead(res)
		if err != nil {
			return nil, err
		}
		rows, err := res.Query()
		if err != nil {
			return nil, err
		}
		g, err := pgx.CollectExactlyOneRow(rows, scanGrant)
		if cerr := res.Close(); err == nil {
			err = cerr
		}
		if err != nil || !g.RevokedAt.IsZero() {
			return nil, err
		}
		audited, err := auditRows([]agent.AuditRecord{record(g)})
		if err != nil {
			return nil, err
		}
		b := &pgx.Batch{}
		b.Queue(`UPDATE grants SET revoked_at = now(), revoked_by = $2 WHERE id = $1`, id, clean(by.String()))
		h.queueAudit(b, audited)
		h.queueHead(b, false)
		revoked = true
		return b, nil
	})
	return revoked, err
}
