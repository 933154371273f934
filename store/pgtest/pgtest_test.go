package pgtest_test

import (
	"context"
	"testing"
	"testing/fstest"

	"github.com/jackc/pgx/v5"
	"go.uber.org/goleak"

	"github.com/clawbot/clawbot/store/pgtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func connect(t *testing.T, dsn string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), dsn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close(context.Background()) })
	return conn
}

func query[T any](t *testing.T, conn *pgx.Conn, sql string) T {
	t.Helper()
	var v T
	if err := conn.QueryRow(t.Context(), sql).Scan(&v); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	return v
}

func run(t *testing.T, conn *pgx.Conn, sql string) {
	t.Helper()
	if _, err := conn.Exec(t.Context(), sql); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
}

func TestEmpty(t *testing.T) {
	a, b := connect(t, pgtest.Empty(t)), connect(t, pgtest.Empty(t))
	run(t, a, `CREATE TABLE t (n int)`)
	run(t, b, `CREATE TABLE t (n int)`)
}

func TestDatabase(t *testing.T) {
	calls := 0
	migrate := func(ctx context.Context, dsn string) error {
		calls++
		conn, err := pgx.Connect(ctx, dsn)
		if err != nil {
			return err
		}
		defer conn.Close(ctx)
		_, err = conn.Exec(ctx, `CREATE TABLE t (n int); INSERT INTO t VALUES (1)`)
		return err
	}
	name := t.Name() + pgtest.Hash(fstest.MapFS{"1.sql": {Data: []byte("x")}})
	a := connect(t, pgtest.Database(t, name, migrate))
	b := connect(t, pgtest.Database(t, name, migrate))
	run(t, a, `INSERT INTO t VALUES (2)`)
	if got := query[int](t, b, `SELECT count(*) FROM t`); got != 1 {
		t.Errorf("rows in the other copy: %d, want 1", got)
	}
	if calls > 1 {
		t.Errorf("migrated %d times", calls)
	}
}

func TestDedicated(t *testing.T) {
	srv := pgtest.Dedicated(t)
	dsn := srv.Empty(t)
	conn := connect(t, dsn)
	run(t, conn, `CREATE TABLE t (n int)`)
	run(t, conn, `INSERT INTO t VALUES (1)`)
	srv.Kill()
	if _, err := conn.Exec(t.Context(), `SELECT 1`); err == nil {
		t.Error("the connection outlived its server")
	}
	srv.Start()
	if got := query[int](t, connect(t, dsn), `SELECT n FROM t`); got != 1 {
		t.Errorf("n = %d", got)
	}
	srv.Stop()
	srv.Start()
	if got := query[string](t, connect(t, dsn), `SHOW fsync`); got != "off" {
		t.Errorf("fsync = %s", got)
	}
}

func TestNew(t *testing.T) {
	srv, err := pgtest.New(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := srv.Close(); err != nil {
			t.Error(err)
		}
	}()
	dsn, err := srv.Create(t.Context(), "one")
	if err != nil {
		t.Fatal(err)
	}
	if got := query[string](t, connect(t, dsn), `SHOW fsync`); got != "on" {
		t.Errorf("fsync = %s", got)
	}
}
