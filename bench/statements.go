package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
)

// logPrefix begins each line of the log of Postgres: process id, and the id of
// the transaction, 0 while it has written nothing.
const logPrefix = "bench %p %x "

// statements counts what turns ask of Postgres, from its log, in a database of
// its own where nothing is timed. Turns come one after the other.
func statements(ctx context.Context, w *world, n sizes, t *table) (err error) {
	url, err := w.pg.Create(ctx, "counted")
	if err != nil {
		return err
	}
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	for _, sql := range []string{
		`ALTER SYSTEM SET log_line_prefix = '` + logPrefix + `'`,
		`SELECT pg_reload_conf()`,
		`ALTER DATABASE counted SET log_min_duration_statement = 0`, // logged when done, and once each
	} {
		if _, err := conn.Exec(ctx, sql); err != nil {
			return err
		}
	}
	p, err := w.start(ctx, url)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, p.stop()) }()
	t.head("database work per turn")
	for _, kind := range []struct {
		name string
		turn func() error
	}{
		{"plain turn", func() error { _, err := w.plainTurn(ctx); return err }},
		{"approved turn", func() error { _, err := w.approvedTurn(ctx); return err }},
	} {
		// Statements are prepared at their first use on each connection.
		if err := kind.turn(); err != nil {
			return err
		}
		c, err := w.counted(ctx, conn, n.counted-1, kind.turn)
		if err != nil {
			return err
		}
		per := func(x int) float64 { return float64(x) / float64(n.counted-1) }
		t.count(kind.name+", commits that wait for the disk", per(c.sync), fmt.Sprintf("%.2f statements in them, BEGIN and COMMIT included", per(c.syncStatements)))
		t.count("  commits that do not wait", per(c.async), fmt.Sprintf("%.2f statements in them", per(c.asyncStatements)))
		t.count("  reads and wake-ups for nothing", per(c.empty), fmt.Sprintf("%.2f statements in them; timers are in here too", per(c.emptyStatements)))
		t.row("  log written", fmt.Sprintf("%.1f kB", per(c.wal)/1e3), "", "", "", "write-ahead log, checkpoints included")
	}
	return nil
}

// counts is what some turns have asked of Postgres.
type counts struct {
	sync, async, empty                               int // transactions: written and synced; written; nothing written
	syncStatements, asyncStatements, emptyStatements int
	wal                                              int // bytes
}

// counted counts during n turns and until the last is over to the last row.
func (w *world) counted(ctx context.Context, conn *pgx.Conn, n int, turn func() error) (counts, error) {
	position := func() (lsn int, err error) {
		err = conn.QueryRow(ctx, `SELECT pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0')::bigint`).Scan(&lsn)
		return lsn, err
	}
	if err := w.quiet(ctx, conn); err != nil {
		return counts{}, err
	}
	before, err := position()
	if err != nil {
		return counts{}, err
	}
	w.log.record(true)
	for range n {
		if err := turn(); err != nil {
			return counts{}, err
		}
	}
	if err := w.quiet(ctx, conn); err != nil {
		return counts{}, err
	}
	c := count(w.log.record(false), int(conn.PgConn().PID()))
	after, err := position()
	c.wal = after - before
	return c, err
}

// quiet waits until no turn runs and no post is due.
func (w *world) quiet(ctx context.Context, conn *pgx.Conn) error {
	for {
		var busy bool
		err := conn.QueryRow(ctx, `SELECT EXISTS (SELECT 1 FROM sessions WHERE runnable_at IS NOT NULL OR lease_owner IS NOT NULL)
			OR EXISTS (SELECT 1 FROM deliveries WHERE state = 'due')`).Scan(&busy)
		if err != nil {
			return err
		}
		select {
		case <-time.After(50 * time.Millisecond): // for the log to come through the pipe, too
		case <-ctx.Done():
			return ctx.Err()
		}
		if !busy {
			return nil
		}
	}
}

// statementLog collects the log of Postgres while it records.
type statementLog struct {
	mu  sync.Mutex
	on  bool
	buf bytes.Buffer
}

func newStatementLog() *statementLog { return &statementLog{} }

func (l *statementLog) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.on {
		l.buf.Write(p)
	}
	return len(p), nil
}

// record begins or ends recording and returns what was recorded so far.
func (l *statementLog) record(on bool) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	text := l.buf.String()
	l.buf.Reset()
	l.on = on
	return text
}

// count sorts the statements in a log into transactions. Those of process skip,
// which are ours, are left out.
func count(log string, skip int) counts {
	type transaction struct {
		open, wrote, async bool
		statements         int
		id                 string
	}
	var c counts
	running := map[string]*transaction{}
	end := func(x *transaction) {
		switch {
		case !x.wrote:
			c.empty++
			c.emptyStatements += x.statements
		case x.async:
			c.async++
			c.asyncStatements += x.statements
		default:
			c.sync++
			c.syncStatements += x.statements
		}
		*x = transaction{}
	}
	for line := range strings.Lines(log) {
		fields := strings.Fields(line)
		if len(fields) < 4 || fields[0] != "bench" || fields[1] == fmt.Sprint(skip) {
			continue
		}
		sql, ok := executed(line)
		if !ok {
			continue
		}
		x := running[fields[1]]
		if x == nil {
			x = &transaction{}
			running[fields[1]] = x
		}
		if !x.open && x.id != "0" && x.id != fields[2] && x.statements > 0 {
			end(x) // statements of one batch are one transaction and have one id
		}
		x.id = fields[2]
		x.statements++
		x.wrote = x.wrote || fields[2] != "0"
		x.async = x.async || strings.HasPrefix(sql, "SET LOCAL synchronous_commit = off") || strings.HasPrefix(sql, "SELECT set_config('synchronous_commit', 'off', true)")
		switch strings.ToLower(strings.TrimSpace(sql)) {
		case "begin":
			x.open = true
		case "commit", "rollback":
			end(x)
		default:
			// A batch goes on while its id stays; what sets its commit comes first, without one.
			if !x.open && x.id == "0" && !strings.HasPrefix(sql, "SELECT set_config(") {
				end(x)
			}
		}
	}
	for _, x := range running {
		if x.statements > 0 {
			end(x)
		}
	}
	return c
}

// executed returns the statement of a line that says one was executed; its
// preparation has lines of its own.
func executed(line string) (sql string, ok bool) {
	_, rest, ok := strings.Cut(line, "LOG:  duration: ")
	if !ok {
		return "", false
	}
	_, rest, ok = strings.Cut(rest, " ms  ")
	if !ok {
		return "", false
	}
	what, sql, ok := strings.Cut(rest, ": ")
	return sql, ok && (what == "statement" || strings.HasPrefix(what, "execute "))
}
