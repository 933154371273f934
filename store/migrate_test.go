package store

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/clawbot/clawbot/agent"
	"github.com/clawbot/clawbot/migrations"
	"github.com/clawbot/clawbot/store/pgtest"
)

// all is how many migrations there are.
func all(t *testing.T) int {
	files, err := migrations.FS.ReadDir(".")
	if err != nil {
		t.Fatal(err)
	}
	return len(files)
}

// Six replicas start at once on an empty database.
//
// Rows: F120.
func TestMigrateTogether(t *testing.T) {
	t.Parallel()
	db := testDB{t: t, url: pgtest.Empty(t)}
	together(6, func(int) {
		if err := Migrate(context.Background(), db.url, db.url); err != nil {
			t.Error(err)
		}
	})
	if n := get[int](db, `SELECT count(*) FROM goose_db_version WHERE version_id > 0`); n != all(t) {
		t.Errorf("%d migrations were recorded, want %d", n, all(t))
	}
}

func TestMigrateUpAndDown(t *testing.T) {
	t.Parallel()
	db := testDB{t: t, url: pgtest.Empty(t)}
	applied := func() (n int) {
		list, err := Migrations(t.Context(), db.url)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range list {
			if m.Applied {
				n++
			}
		}
		return n
	}
	if n := applied(); n != 0 {
		t.Errorf("%d migrations on an empty database", n)
	}
	for range 2 {
		if err := Migrate(t.Context(), db.url, db.url); err != nil {
			t.Fatal(err)
		}
	}
	if n := applied(); n != all(t) {
		t.Errorf("%d migrations are applied, want %d", n, all(t))
	}
	for range all(t) {
		if err := MigrateDown(t.Context(), db.url, false); err != nil {
			t.Fatal(err)
		}
	}
	if n := get[int](db, `SELECT count(*) FROM pg_tables WHERE schemaname = 'public' AND tablename <> 'goose_db_version'`); n != 0 {
		t.Errorf("%d tables are left", n)
	}
	if err := MigrateDown(t.Context(), db.url, false); err == nil || !strings.Contains(err.Error(), "no migration is applied") {
		t.Errorf("down once more: %v", err)
	}
	if err := Migrate(t.Context(), db.url, db.url); err != nil {
		t.Errorf("up again: %v", err)
	}
}

// A wrong address is an error that does not repeat it: it holds a password.
func TestAddressesAreNotRepeated(t *testing.T) {
	t.Parallel()
	for _, bad := range []string{"postgres://u:hunter2@h:notaport/db", "postgres://u:hunter2@127.0.0.1:1/db?connect_timeout=1"} {
		for name, err := range map[string]error{
			"migrate": Migrate(t.Context(), bad, bad),
			"open":    func() error { _, err := Open(t.Context(), Config{URL: bad}); return err }(),
		} {
			if err == nil || strings.Contains(err.Error(), "hunter2") {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
}

// serviceDB is a database whose service has a role of its own. The role is a
// plain one, as an operator would make it.
func serviceDB(t *testing.T) (owner testDB, service *DB) {
	t.Helper()
	owner = testDB{t: t, url: pgtest.Empty(t)}
	role := fmt.Sprintf("service_%d", time.Now().UnixNano())
	owner.exec(`CREATE ROLE ` + role + ` LOGIN PASSWORD 'service'`)
	t.Cleanup(func() {
		if err := owner.try(`DROP OWNED BY ` + role); err != nil {
			t.Log(err)
		}
		if err := owner.try(`DROP ROLE ` + role); err != nil {
			t.Log(err)
		}
	})
	u, err := url.Parse(owner.url)
	if err != nil {
		t.Fatal(err)
	}
	u.User = url.UserPassword(role, "service")
	if err := Migrate(t.Context(), owner.url, u.String()); err != nil {
		t.Fatal(err)
	}
	return owner, openDB(t, Config{URL: u.String()})
}

// The service's own role can do its work, and cannot touch what it has recorded,
// whatever it tries.
//
// Rows: T19, F108.
func TestServiceRole(t *testing.T) {
	t.Parallel()
	owner, service := serviceDB(t)
	db := testDB{service, t, service.pool.Config().ConnString()}
	id := db.asked("1", 1, time.Minute)[0]
	if _, err := db.decide(id, agent.ApprovalApproved, "boss"); err != nil {
		t.Fatal(err)
	}
	w := db.claim("w")
	db.save(w, ended(w))
	db.verify()

	for _, sql := range []string{
		`UPDATE audit_log SET actor = NULL`,
		`DELETE FROM audit_log`,
		`TRUNCATE audit_log`,
		`DROP TABLE audit_log`,
		`ALTER TABLE audit_log DISABLE TRIGGER ALL`,
		`DROP TRIGGER audit_log_rows ON audit_log`,
		`CREATE OR REPLACE FUNCTION audit_log_is_append_only() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NEW; END'`,
		`SET session_replication_role = replica`,
		`TRUNCATE sessions CASCADE`,
	} {
		if _, err := service.pool.Exec(t.Context(), sql); err == nil {
			t.Errorf("the service may %s", sql)
		}
	}
	// Every table of ours is either the audit, or one the service may work with.
	for _, table := range tables(owner) {
		for _, right := range []string{"SELECT", "INSERT", "UPDATE", "DELETE", "TRUNCATE", "TRIGGER"} {
			want := right != "TRUNCATE" && right != "TRIGGER" && (table != "audit_log" || right == "SELECT" || right == "INSERT")
			if table == "goose_db_version" {
				want = false
			}
			got := get[bool](owner, `SELECT has_table_privilege($1, $2, $3)`, service.pool.Config().ConnConfig.User, table, right)
			if got != want {
				t.Errorf("%s on %s: the service has it: %v, want %v", right, table, got, want)
			}
		}
	}
}

func tables(db testDB) []string {
	return get[[]string](db, `SELECT array_agg(tablename::text ORDER BY tablename) FROM pg_tables WHERE schemaname = 'public'`)
}

// Even the owner's ordinary statements are refused.
//
// Rows: T19, F108.
func TestAuditIsAppendOnly(t *testing.T) {
	t.Parallel()
	db := newDB(t)
	db.asked("1", 1, time.Minute)
	for _, sql := range []string{
		`UPDATE audit_log SET reason = 'other' WHERE seq = 1`,
		`UPDATE audit_log SET hash = hash`,
		`DELETE FROM audit_log WHERE seq = 1`,
		`TRUNCATE audit_log`,
		`TRUNCATE sessions, audit_log CASCADE`,
	} {
		if err := db.try(sql); err == nil || !strings.Contains(err.Error(), "append-only") {
			t.Errorf("%s: %v", sql, err)
		}
	}
	// What is deleted elsewhere does not reach it.
	db.exec(`DELETE FROM sessions`)
	if n := get[int](db, `SELECT count(*) FROM audit_log`); n != 1 {
		t.Errorf("%d rows are left of 1", n)
	}
	db.verify()
}

// DDL does not wait for ever behind a reader, with everybody behind it.
//
// Rows: F123.
func TestMigrationGivesUpOnALock(t *testing.T) {
	t.Parallel()
	db := newDB(t)
	conn, err := pgx.Connect(t.Context(), db.url)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.Background())
	tx, err := conn.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback(context.Background())
	if _, err := tx.Exec(t.Context(), `SELECT count(*) FROM turns`); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	if err := MigrateDown(t.Context(), db.url, false); err == nil || time.Since(began) > 20*time.Second {
		t.Errorf("after %s: %v", time.Since(began), err)
	}
}

// Taking the schema back would erase the audit: only with a word for it.
func TestMigrateDownKeepsTheAudit(t *testing.T) {
	t.Parallel()
	db := newDB(t)
	db.receive(message("1.0", "m1", "hello"))
	db.exec(`INSERT INTO audit_log (session_id, seq, at, kind, prev_hash, hash) VALUES ('s', 1, now(), 'tool_started', '', 'x')`)
	for range all(t) - 1 {
		if err := MigrateDown(t.Context(), db.url, false); err != nil {
			t.Fatal(err)
		}
	}
	if err := MigrateDown(t.Context(), db.url, false); !errors.Is(err, ErrAuditNotEmpty) {
		t.Errorf("with rows in the audit: %v", err)
	}
	if n := get[int](db, `SELECT count(*)::int FROM audit_log`); n != 1 {
		t.Errorf("%d rows are left", n)
	}
	if err := MigrateDown(t.Context(), db.url, true); err != nil {
		t.Errorf("with the word for it: %v", err)
	}
}
