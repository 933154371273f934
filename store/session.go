package store

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/clawbot/clawbot/agent"
	"github.com/clawbot/clawbot/audit"
)

// Receive implements agent.Store. It is one statement, unless it is about a stop.
//
// A repeat that was stored before does nothing. Of two that come at the same
// moment one waits for the other's session row and then finds the key.
func (db *DB) Receive(ctx context.Context, m agent.Inbound) (agent.Receipt, error) {
	if m.Stop {
		if r, err := db.receiveStop(ctx, m); err != nil || r.Stopped || m.Turn != "" {
			return r, err
		}
	}
	o := m.Origin
	job := agent.JobID("")
	if m.Apart {
		job = m.Job
	}
	args := []any{o.Channel, clean(o.Workspace), clean(o.Conversation), clean(o.Thread), job,
		clean(m.Key), clean(o.Author.String()), clean(o.AuthorName), clean(o.Ref), clean(m.Text),
		agent.NewID[agent.SessionID]("ses", time.Now())}
	var row pgx.Row
	if m.JoinedOnly {
		row = db.pool.QueryRow(ctx, receiveJoined, args...)
	} else {
		row = db.pool.QueryRow(ctx, receiveAny, args...)
	}
	var r agent.Receipt
	err := row.Scan(&r.Session, &r.New)
	if err == pgx.ErrNoRows { // a repeat, or a thread that is not joined
		return agent.Receipt{}, nil
	}
	return r, tidy(err)
}

const (
	receiveAny = `WITH fresh AS (SELECT 1 WHERE NOT EXISTS (SELECT 1 FROM inbox WHERE channel = $1 AND key = $6)),
		s AS (INSERT INTO sessions AS s (id, channel, workspace, conversation, thread, job, runnable_at, wakes)
			SELECT $11, $1, $2, $3, $4, $5, now(), 1 FROM fresh
			ON CONFLICT (channel, workspace, conversation, thread, job) DO UPDATE
				SET runnable_at = coalesce(s.runnable_at, now()), wakes = s.wakes + 1
			RETURNING id),
		` + receiveInbox
	receiveJoined = `WITH s AS (UPDATE sessions SET runnable_at = coalesce(runnable_at, now()), wakes = wakes + 1
			WHERE channel = $1 AND workspace = $2 AND conversation = $3 AND thread = $4 AND job = $5 AND $11::text <> ''
				AND NOT EXISTS (SELECT 1 FROM inbox WHERE channel = $1 AND key = $6)
			RETURNING id),
		` + receiveInbox
	receiveInbox = `stored AS (INSERT INTO inbox (session_id, channel, key, author, author_name, ref, text)
			SELECT id, $1, $6, $7, $8, $9, $10 FROM s ON CONFLICT (channel, key) DO NOTHING RETURNING id)
		SELECT id, EXISTS (SELECT 1 FROM stored) FROM s`
)

// receiveStop is Receive for a message that asks for the end of an open turn.
// Without one it does nothing.
func (db *DB) receiveStop(ctx context.Context, m agent.Inbound) (agent.Receipt, error) {
	o := m.Origin
	var r agent.Receipt
	err := db.inTx(ctx, func(tx pgx.Tx) error {
		var err error
		if m.Turn != "" {
			err = tx.QueryRow(ctx, `SELECT id FROM sessions WHERE id IN (SELECT session_id FROM turns
				WHERE id = $5 AND channel = $1 AND workspace = $2 AND conversation = $3 AND thread = $4) FOR UPDATE`,
				o.Channel, clean(o.Workspace), clean(o.Conversation), clean(o.Thread), clean(m.Turn)).Scan(&r.Session)
		} else {
			err = tx.QueryRow(ctx, `SELECT id FROM sessions
				WHERE channel = $1 AND workspace = $2 AND conversation = $3 AND thread = $4 AND job = '' FOR UPDATE`,
				o.Channel, clean(o.Workspace), clean(o.Conversation), clean(o.Thread)).Scan(&r.Session)
		}
		if err == pgx.ErrNoRows {
			return nil
		}
		if err != nil {
			return err
		}
		r.Stopped, err = stopTurn(ctx, tx, r.Session, m)
		r.New = r.Stopped
		return err
	})
	return r, err
}

// stopTurn marks the session's open turn for its end. The turn takes the message,
// so that none begins with it. It reports false where no turn is open.
func stopTurn(ctx context.Context, tx pgx.Tx, session agent.SessionID, m agent.Inbound) (bool, error) {
	o := m.Origin
	tag, err := tx.Exec(ctx, `WITH stored AS (
			INSERT INTO inbox (session_id, channel, key, author, author_name, ref, text, turn_id)
			SELECT $1, $4, $5, $2, $3, $6, $7, id FROM turns WHERE session_id = $1 AND status IN ('running', 'parked') AND ($8 = '' OR id = $8)
			ON CONFLICT (channel, key) DO NOTHING RETURNING turn_id),
		stopped AS (
			UPDATE turns SET stopped_by = coalesce(stopped_by, $2), stopped_name = coalesce(stopped_name, $3)
			FROM stored WHERE id = stored.turn_id)
		UPDATE sessions SET runnable_at = coalesce(runnable_at, now()), wakes = wakes + 1
		WHERE id = $1 AND EXISTS (SELECT 1 FROM stored)`,
		session, clean(o.Author.String()), clean(o.AuthorName), o.Channel, clean(m.Key), clean(o.Ref), clean(m.Text), clean(m.Turn))
	return err == nil && tag.RowsAffected() == 1, err
}

// Claim implements agent.Store.
//
// Its commit does not wait for the disk: losing it to a crash of Postgres only
// means that the session is claimed again. Since owner is part of the fence, a
// revision that is handed out twice after such a crash fences all the same.
func (db *DB) Claim(ctx context.Context, owner string, channels []agent.ChannelName) (*agent.Work, error) {
	first := &pgx.Batch{}
	first.Queue(`SET LOCAL synchronous_commit = off`)
	first.Queue(`UPDATE sessions SET revision = revision + 1, claims = claims + 1, lease_owner = $1, leased_until = now() + $2
		WHERE id = (SELECT id FROM sessions
			WHERE runnable_at <= now() AND (leased_until IS NULL OR leased_until < now()) AND channel = ANY ($3)
			ORDER BY runnable_at LIMIT 1 FOR UPDATE SKIP LOCKED)
		RETURNING id, revision, wakes, claims`, owner, db.lease, channelNames(channels))
	var w *agent.Work
	err := db.pipelined(ctx, first, func(conn *pgxpool.Conn, res pgx.BatchResults) (*pgx.Batch, error) {
		if _, err := res.Exec(); err != nil {
			return nil, err
		}
		l := agent.Lease{Owner: owner}
		err := res.QueryRow().Scan(&l.Session, &l.Revision, &l.Wakes, &l.Claims)
		if err == pgx.ErrNoRows {
			return nil, nil
		}
		if cerr := res.Close(); err == nil {
			err = cerr
		}
		if err != nil {
			return nil, err
		}
		w = &agent.Work{Lease: l}
		if err := loadTurn(ctx, conn, w); err != nil {
			return nil, err
		}
		if w.Turn == nil {
			if err := beginTurn(ctx, conn, w); err != nil {
				return nil, err
			}
		}
		return &pgx.Batch{}, nil
	})
	if err != nil {
		return nil, err
	}
	return w, nil
}

// querier is an open transaction.
type querier interface {
	SendBatch(ctx context.Context, b *pgx.Batch) pgx.BatchResults
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
	Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
}

// loadTurn fills in the session's open turn, its calls and approvals.
func loadTurn(ctx context.Context, tx querier, w *agent.Work) error {
	b := &pgx.Batch{}
	b.Queue(`SELECT id, session_id, status, channel, workspace, conversation, thread, author, author_name, ref, model, iterations, active_ms, error,
			coalesce(stopped_by, ''), coalesce(stopped_name, ''), batch_active_ms
		FROM turns WHERE session_id = $1 AND status IN ('running', 'parked')`, w.Session)
	b.Queue(callColumns+` WHERE (turn_id, session_id) IN (SELECT id, session_id FROM turns WHERE session_id = $1 AND status IN ('running', 'parked'))
		ORDER BY batch, position`, w.Session)
	b.Queue(approvalColumns+` WHERE a.turn_id IN (SELECT id FROM turns WHERE session_id = $1 AND status IN ('running', 'parked'))`, w.Session)
	res := tx.SendBatch(ctx, b)
	defer res.Close()

	var t agent.Turn
	var author, stoppedBy string
	var active, batchActive int64
	o := &t.Origin
	err := res.QueryRow().Scan(&t.ID, &t.Session, &t.Status, &o.Channel, &o.Workspace, &o.Conversation, &o.Thread,
		&author, &o.AuthorName, &o.Ref, &t.Model, &t.Iterations, &active, &t.Error, &stoppedBy, &t.Stop.Name, &batchActive)
	if err == pgx.ErrNoRows {
		return nil
	}
	if err != nil {
		return err
	}
	o.Author, t.Stop.By = actorOf(author), actorOf(stoppedBy)
	t.Active = time.Duration(active) * time.Millisecond
	t.BatchActive = time.Duration(batchActive) * time.Millisecond
	w.Turn = &t
	rows, err := res.Query()
	if err != nil {
		return err
	}
	if w.Calls, err = pgx.CollectRows(rows, scanCall); err != nil {
		return err
	}
	if rows, err = res.Query(); err != nil {
		return err
	}
	approvals, err := pgx.CollectRows(rows, scanApproval)
	if err != nil {
		return err
	}
	w.Approvals = make(map[agent.ApprovalID]agent.Approval, len(approvals))
	for _, a := range approvals {
		w.Approvals[a.ID] = a
	}
	return res.Close()
}

// beginTurn makes a turn of the session's oldest waiting message, if there is one.
func beginTurn(ctx context.Context, tx querier, w *agent.Work) error {
	id := agent.NewID[agent.TurnID]("turn", time.Now())
	t := agent.Turn{ID: id, Session: w.Session, Status: agent.TurnRunning}
	o := &t.Origin
	var author string
	err := tx.QueryRow(ctx, `WITH message AS (
			UPDATE inbox SET turn_id = $2 WHERE id = (
				SELECT id FROM inbox WHERE session_id = $1 AND turn_id IS NULL ORDER BY id LIMIT 1)
			RETURNING author, author_name, ref, text),
		head AS (
			UPDATE sessions SET message_seq = message_seq + 1 WHERE id = $1 AND EXISTS (SELECT 1 FROM message)
			RETURNING message_seq, channel, workspace, conversation, thread),
		turn AS (
			INSERT INTO turns (id, session_id, status, channel, workspace, conversation, thread, author, author_name, ref)
			SELECT $2, $1, 'running', channel, workspace, conversation, thread, author, author_name, ref FROM message, head),
		stored AS (
			INSERT INTO messages (session_id, seq, turn_id, role, author, author_name, text)
			SELECT $1, message_seq, $2, 'user', author, author_name, text FROM message, head)
		SELECT channel, workspace, conversation, thread, author, author_name, ref FROM message, head`, w.Session, id).
		Scan(&o.Channel, &o.Workspace, &o.Conversation, &o.Thread, &author, &o.AuthorName, &o.Ref)
	if err == pgx.ErrNoRows {
		return nil
	}
	if err != nil {
		return err
	}
	o.Author = actorOf(author)
	w.Turn = &t
	return nil
}

// Renew implements agent.Store.
func (db *DB) Renew(ctx context.Context, owner string, ids []agent.SessionID) (kept, stopped []agent.SessionID, err error) {
	rows, err := db.renew.Query(ctx, `UPDATE sessions s SET leased_until = now() + $3
		WHERE id = ANY ($1) AND lease_owner = $2
		RETURNING id, EXISTS (SELECT 1 FROM turns t WHERE t.session_id = s.id AND t.status = 'running' AND t.stopped_by IS NOT NULL)`, ids, owner, db.lease)
	if err != nil {
		return nil, nil, tidy(err)
	}
	var id agent.SessionID
	var stop bool
	_, err = pgx.ForEachRow(rows, []any{&id, &stop}, func() error {
		kept = append(kept, id)
		if stop {
			stopped = append(stopped, id)
		}
		return nil
	})
	return kept, stopped, tidy(err)
}

// ReleaseAll ends every lease. It is for the embedded database alone, where the
// process that starts is the only one and earlier owners are dead.
func (db *DB) ReleaseAll(ctx context.Context) error {
	_, err := db.pool.Exec(ctx, `WITH s AS (UPDATE sessions SET lease_owner = NULL, leased_until = NULL WHERE lease_owner IS NOT NULL),
		d AS (UPDATE deliveries SET leased_until = NULL WHERE state = 'due')
		UPDATE turns SET status_due_at = now() WHERE status_tries > 0`)
	return tidy(err)
}

// head is a locked session: the ends of its append-only lists, and the time.
type head struct {
	session agent.SessionID
	now     time.Time
	message int64
	event   int64
	audit   audit.Head
	backlog bool // deliveries of the session are waiting
	stop    agent.Stop
}

// Both lock a session's row first, and look at the clock and at what waits in a
// statement of its own: while the first waits for the lock, its snapshot grows old.
const (
	lockAny = `SELECT id, message_seq, event_seq, audit_seq, audit_hash FROM sessions
		WHERE id = (SELECT session_id FROM approvals WHERE id = $1) FOR UPDATE`
	lockGrant = `SELECT id, message_seq, event_seq, audit_seq, audit_hash FROM sessions
		WHERE id = (SELECT session_id FROM grants WHERE id = $1) FOR UPDATE`
	lockOwn = `SELECT id, message_seq, event_seq, audit_seq, audit_hash FROM sessions
		WHERE id = $1 AND revision = $2 AND lease_owner = $3 FOR UPDATE`
	lookAround = `SELECT clock_timestamp(), EXISTS (SELECT 1 FROM deliveries d WHERE d.session_id = s.id AND d.state = 'due' AND NOT ` + isEdit + `),
			coalesce(t.stopped_by, ''), coalesce(t.stopped_name, '')
		FROM sessions s LEFT JOIN turns t ON t.session_id = s.id AND t.status IN ('running', 'parked') WHERE s.id = $1`
	lookAroundApproval = `SELECT clock_timestamp(), false, '', ''`
	// isEdit is true of a delivery d that draws a card again which is there already,
	// olderIsEdit of a delivery e.
	isEdit      = `(d.kind = 'card' AND EXISTS (SELECT 1 FROM approvals a WHERE a.id = d.approval_id AND a.card_ref <> ''))`
	olderIsEdit = `(e.kind = 'card' AND EXISTS (SELECT 1 FROM approvals a WHERE a.id = e.approval_id AND a.card_ref <> ''))`
)

// queueLock queues the lock of a lease's session; readHead reads it.
func queueLock(b *pgx.Batch, l agent.Lease) {
	b.Queue(lockOwn, l.Session, l.Revision, l.Owner)
	b.Queue(lookAround, l.Session)
}

// readHead reads what lockAny or lockOwn and lookAround found.
func readHead(res pgx.BatchResults) (*head, error) {
	h := &head{}
	if err := res.QueryRow().Scan(&h.session, &h.message, &h.event, &h.audit.Seq, &h.audit.Hash); err != nil {
		return nil, err
	}
	var stoppedBy string
	err := res.QueryRow().Scan(&h.now, &h.backlog, &stoppedBy, &h.stop.Name)
	h.stop.By = actorOf(stoppedBy)
	return h, err
}

// auditRows turns records into rows that have no place in a chain yet. Large
// arguments take their time here, so it is done before anything is locked where
// that is possible.
func auditRows(records []agent.AuditRecord) ([]audit.Row, error) {
	rows := make([]audit.Row, len(records))
	stable := map[string]string{} // the records of a step are mostly about one call
	for i, r := range records {
		row := &rows[i]
		*row = audit.Row{
			Kind: string(r.Kind), TurnID: nullable(r.Turn), CallID: nullable(r.Call), ApprovalID: nullable(r.Approval),
			Tool: nullable(clean(r.Tool)), ArgsSHA256: nullable(r.ArgsSHA256),
			Decision: nullable(r.Decision), Source: nullable(r.Source), Actor: nullable(clean(r.Actor.String())),
			Channel: nullable(r.Channel), Backchannel: nullable(r.Backchannel),
			Rule: nullable(clean(r.Rule)), Reason: nullable(clean(r.Reason)),
		}
		if r.Args != "" {
			args, ok := stable[r.Args]
			if !ok {
				var err error
				if args, err = audit.StableArgs(r.Args); err != nil {
					return nil, err
				}
				stable[r.Args] = args
			}
			row.Args = &args
		}
		if r.Latency >= 0 {
			ms := r.Latency.Milliseconds()
			row.LatencyMS = &ms
		}
	}
	return rows, nil
}

// queueAudit links the rows to the chain and queues their inserts.
func (h *head) queueAudit(b *pgx.Batch, rows []audit.Row) {
	for _, row := range rows {
		row.SessionID, row.At = string(h.session), h.now
		h.audit = h.audit.Link(&row)
		b.Queue(`INSERT INTO audit_log (session_id, seq, at, kind, turn_id, call_id, approval_id, tool, args, args_sha256,
				decision, source, actor, channel, backchannel, rule, reason, latency_ms, prev_hash, hash)
			VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9::text::jsonb, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20)`,
			row.SessionID, row.Seq, row.At, row.Kind, row.TurnID, row.CallID, row.ApprovalID, row.Tool, row.Args, row.ArgsSHA256,
			row.Decision, row.Source, row.Actor, row.Channel, row.Backchannel, row.Rule, row.Reason, row.LatencyMS, row.PrevHash, row.Hash)
	}
}

func (h *head) queueEvents(b *pgx.Batch, events []agent.Event) error {
	for _, e := range events {
		h.event++
		fields := make(map[string]string, len(e.Fields))
		for k, v := range e.Fields {
			fields[k] = agent.Clean(v)
		}
		js, err := json.Marshal(fields)
		if err != nil {
			return err
		}
		b.Queue(`INSERT INTO events (session_id, seq, turn_id, call_id, type, fields, at) VALUES ($1, $2, $3, $4, $5, $6::text::jsonb, $7)`,
			h.session, h.event, e.Turn, nullable(e.Call), e.Type, string(js), h.now)
	}
	return nil
}

// queueHead writes the heads back and makes the session runnable where wake is set.
func (h *head) queueHead(b *pgx.Batch, wake bool) {
	b.Queue(`UPDATE sessions SET message_seq = $2, event_seq = $3, audit_seq = $4, audit_hash = $5,
			runnable_at = CASE WHEN $6 THEN coalesce(runnable_at, now()) ELSE runnable_at END,
			wakes = wakes + CASE WHEN $6 THEN 1 ELSE 0 END
		WHERE id = $1`, h.session, h.message, h.event, h.audit.Seq, h.audit.Hash, wake)
}

// queueRelease is queueHead at the end of a lease. The session stays runnable if
// again says so, if it was woken since the claim, or if its turn has ended and
// messages wait.
func (h *head) queueRelease(b *pgx.Batch, l agent.Lease, again, ended bool) {
	b.Queue(`UPDATE sessions SET message_seq = $2, event_seq = $3, audit_seq = $4, audit_hash = $5,
			lease_owner = NULL, leased_until = NULL, claims = 0,
			runnable_at = CASE WHEN $6 OR wakes <> $7
				OR ($8 AND EXISTS (SELECT 1 FROM inbox WHERE session_id = $1 AND turn_id IS NULL)) THEN now() END
		WHERE id = $1`, h.session, h.message, h.event, h.audit.Seq, h.audit.Hash, again, l.Wakes, ended)
}

// terminalLock is the advisory lock of `clawbot chat`.
const terminalLock = 0x636c6177_74657274

// HoldTerminal makes this process the one that serves terminal sessions, until
// free is called or the connection ends. It occupies a connection of the pool.
func (db *DB) HoldTerminal(ctx context.Context) (free func(), err error) {
	conn, err := db.pool.Acquire(ctx)
	if err != nil {
		return nil, tidy(err)
	}
	var got bool
	if err := conn.QueryRow(ctx, `SELECT pg_try_advisory_lock($1)`, int64(terminalLock)).Scan(&got); err != nil || !got {
		conn.Release()
		if err != nil {
			return nil, tidy(err)
		}
		return nil, errors.New("another `clawbot chat` works on this database; leave it first")
	}
	return func() {
		// Closing the connection frees the lock, whatever state it is in.
		conn.Hijack().Close(context.WithoutCancel(ctx))
	}, nil
}
