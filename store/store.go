// Package store keeps everything clawbot knows in Postgres, by pgx: one file per
// table or concept, SQL beside its Scan.
//
// In come the calls of agent.Store (the engine), approval.Store (decisions),
// tools.Jobs and tools.Outbox, and the questions of admins (query.go). Each
// method is one commit, holds no connection when it returns, and waits for
// nothing but the database. The clock of leases, deadlines and audit is the
// database's.
//
// Locks are taken in one order: the session's row first, then its approvals. The
// session's row holds the heads of its append-only lists (messages, events,
// audit), so whoever appends to one has locked it.
package store

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/clawbot/clawbot/agent"
)

// Config says which database and how many connections.
type Config struct {
	// URL of the service's own role. Required.
	URL string
	// MaxConns bounds the pool; 0 means 16. Connections are held for the length of
	// one transaction only, so few serve many sessions. One more renews leases.
	MaxConns int
	// LeaseFor is how long a claimed session stays with its worker without being
	// renewed, and a delivery with the process that tries it; 0 means 30 s.
	LeaseFor time.Duration
}

// DB is the store. It is safe for concurrent use.
type DB struct {
	pool  *pgxpool.Pool
	renew *pgxpool.Pool // one connection for Renew alone: a busy pool must cost nobody a lease
	lease time.Duration
}

// Open connects and checks the connection. The schema must be there: see Migrate.
// Errors name no password.
func Open(ctx context.Context, cfg Config) (*DB, error) {
	pc, err := pgxpool.ParseConfig(cfg.URL)
	if err != nil {
		return nil, errors.New("read DATABASE_URL: it is no Postgres address; write postgres://USER:PASSWORD@HOST:5432/DATABASE")
	}
	pc.MaxConns = int32(cfg.MaxConns)
	if pc.MaxConns == 0 {
		pc.MaxConns = 16
	}
	pc.MaxConnIdleTime = 5 * time.Minute
	// There are fewer statements than this; the default reserves a megabyte.
	pc.ConnConfig.StatementCacheCapacity, pc.ConnConfig.DescriptionCacheCapacity = 128, 16
	pc.ConnConfig.ConnectTimeout = 5 * time.Second
	params := pc.ConnConfig.RuntimeParams
	params["application_name"] = "clawbot"
	params["timezone"] = "UTC"
	// A transaction that is left open must not keep a row locked for ever.
	params["idle_in_transaction_session_timeout"] = "15000"
	params["statement_timeout"] = "30000"
	pool, err := pgxpool.NewWithConfig(ctx, pc)
	if err != nil {
		return nil, fmt.Errorf("open database: %w", tidy(err))
	}
	if err := pool.Ping(ctx); err != nil {
		pool.Close()
		return nil, fmt.Errorf("connect to database: %w", tidy(err))
	}
	single := pc.Copy()
	single.MaxConns = 1
	renew, err := pgxpool.NewWithConfig(ctx, single)
	if err != nil {
		pool.Close()
		return nil, fmt.Errorf("open database: %w", tidy(err))
	}
	db := &DB{pool: pool, renew: renew, lease: cfg.LeaseFor}
	if db.lease == 0 {
		db.lease = 30 * time.Second
	}
	return db, nil
}

// Close ends all connections. It waits for those in use.
func (db *DB) Close() {
	db.pool.Close()
	db.renew.Close()
}

// Ping reports whether the database answers and has the schema.
func (db *DB) Ping(ctx context.Context) error {
	_, err := db.pool.Exec(ctx, `SELECT 1 FROM sessions, audit_log LIMIT 0`)
	return tidy(err)
}

// inTx runs f in one transaction: commit if f returns nil, else rollback.
func (db *DB) inTx(ctx context.Context, f func(tx pgx.Tx) error) error {
	return tidy(pgx.BeginFunc(ctx, db.pool, f))
}

// pipelined runs one transaction in two round trips where it can: BEGIN goes out
// with the first statements and COMMIT with the last. f reads the results of first
// and returns the last statements; nil rolls back, without an error.
func (db *DB) pipelined(ctx context.Context, first *pgx.Batch, f func(conn *pgxpool.Conn, res pgx.BatchResults) (*pgx.Batch, error)) error {
	conn, err := db.pool.Acquire(ctx)
	if err != nil {
		return tidy(err)
	}
	defer conn.Release() // closes it if a transaction is still open
	begin := &pgx.Batch{}
	begin.Queue(`BEGIN`)
	begin.QueuedQueries = append(begin.QueuedQueries, first.QueuedQueries...)
	res := conn.SendBatch(ctx, begin)
	_, err = res.Exec()
	var last *pgx.Batch
	if err == nil {
		last, err = f(conn, res)
	}
	if cerr := res.Close(); err == nil {
		err = cerr
	}
	if err == nil && last != nil {
		err = commit(ctx, conn, last)
	}
	if err != nil || last == nil {
		bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
		defer cancel()
		conn.Exec(bounded, `ROLLBACK`) // if it fails, Release closes the connection
	}
	return tidy(err)
}

// commit sends the last statements of a transaction and its COMMIT.
func commit(ctx context.Context, conn *pgxpool.Conn, last *pgx.Batch) error {
	n := last.Len()
	last.Queue(`COMMIT`)
	res := conn.SendBatch(ctx, last)
	for range n {
		if _, err := res.Exec(); err != nil {
			res.Close()
			return err
		}
	}
	tag, err := res.Exec()
	if cerr := res.Close(); err == nil {
		err = cerr
	}
	if err == nil && tag.String() != "COMMIT" { // a failed transaction answers ROLLBACK
		err = pgx.ErrTxCommitRollback
	}
	return err
}

// errServer is a fault that the server reported, without the values that
// Postgres likes to quote in its detail.
type errServer struct {
	code, text, constraint string
}

func (e *errServer) Error() string {
	if e.constraint != "" {
		return fmt.Sprintf("database refused: %s (%s, constraint %s)", e.text, e.code, e.constraint)
	}
	return fmt.Sprintf("database refused: %s (%s)", e.text, e.code)
}

// tidy maps database errors to our few, and drops what must not be logged: the
// detail of a server error quotes rows, a connection error quotes the address.
func tidy(err error) error {
	var pg *pgconn.PgError
	var dial *pgconn.ConnectError
	switch {
	case err == nil:
		return nil
	case errors.Is(err, pgx.ErrNoRows):
		return agent.ErrNotFound
	case errors.As(err, &dial) && errors.As(err, &pg):
		return fmt.Errorf("database refused the connection: %s (%s); check DATABASE_URL", pg.Message, pg.Code)
	case errors.As(err, &dial):
		return fmt.Errorf("database cannot be reached at %s, port %d: %s", dial.Config.Host, dial.Config.Port, whyUnreachable(err))
	case errors.As(err, &pg) && (pg.Code == "42P01" || pg.Code == "42703"): // no such table, no such column
		return fmt.Errorf("the database lacks the schema of this version; run `clawbot migrate up` (%s)", pg.Message)
	case errors.As(err, &pg):
		return &errServer{code: pg.Code, text: pg.Message, constraint: pg.ConstraintName}
	}
	return err
}

// whyUnreachable says why a connection failed, without its address, which may
// hold a password.
func whyUnreachable(err error) string {
	var name *net.DNSError
	var op *net.OpError
	switch {
	case strings.Contains(err.Error(), "refused TLS"):
		return "the server offers no TLS; change sslmode in DATABASE_URL"
	case errors.As(err, &name):
		return "no such host; check DATABASE_URL"
	case errors.Is(err, context.DeadlineExceeded):
		return "it does not answer in time"
	case errors.As(err, &op):
		return op.Err.Error() + "; is it running, and is DATABASE_URL right?"
	}
	return "the connection failed; check DATABASE_URL"
}

// nullable returns nil for the empty text.
func nullable[T ~string](s T) *string {
	if s == "" {
		return nil
	}
	t := string(s)
	return &t
}

func actorOf(s string) agent.Actor {
	a, _ := agent.ParseActor(s) // what we stored ourselves; empty is nobody
	return a
}

func clean[T ~string](s T) string { return agent.Clean(string(s)) }

func channelNames(channels []agent.ChannelName) []string {
	out := make([]string, len(channels))
	for i, c := range channels {
		out[i] = string(c)
	}
	return out
}

// batchErr reads all results of a batch and returns the first error.
func batchErr(r pgx.BatchResults, n int) error {
	for range n {
		if _, err := r.Exec(); err != nil {
			r.Close()
			return err
		}
	}
	return r.Close()
}
