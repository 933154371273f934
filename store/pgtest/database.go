package pgtest

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io/fs"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

// patience bounds every single thing done to a database here.
const patience = 2 * time.Minute

// Server is a Postgres server for tests. The role that its URLs name is a
// superuser.
type Server struct {
	base       url.URL  // of the database postgres
	disposable bool     // ends with the test: its databases need no dropping
	templates  sync.Map // names of those that are known to be there
}

// URL is the connection string of a database on the server.
func (s *Server) URL(database string) string {
	u := s.base
	u.Path = "/" + database
	return u.String()
}

// Empty makes an empty database on the shared server and returns its URL. It
// is dropped when the test ends, whoever is still connected.
func Empty(t testing.TB) string {
	t.Helper()
	return Shared(t).Empty(t)
}

// Database returns the URL of a fresh copy of a migrated database on the
// shared server; see [Server.Database].
func Database(t testing.TB, template string, migrate func(ctx context.Context, dsn string) error) string {
	t.Helper()
	return Shared(t).Database(t, template, migrate)
}

// Empty is [Empty] on this server.
func (s *Server) Empty(t testing.TB) string {
	t.Helper()
	return s.create(t, "template0")
}

// Database returns the URL of a copy of a database that migrate has filled.
// migrate runs once for each template name and server, whichever test binary
// comes first, and must have closed its connections when it returns; so the
// name has to change whenever its result would, which [Hash] of the
// migrations takes care of. The copy is dropped when the test ends.
//
// Roles belong to the server and not to a database: a migration that makes
// one must bear that it is there already.
func (s *Server) Database(t testing.TB, template string, migrate func(ctx context.Context, dsn string) error) string {
	t.Helper()
	sum := sha256.Sum256([]byte(template))
	name := "template_" + hex.EncodeToString(sum[:8])
	if err := s.ensureTemplate(t.Context(), name, migrate); err != nil {
		t.Fatalf("pgtest: make template %s: %v", template, err)
	}
	return s.create(t, name)
}

// Hash is a short digest of all files in fsys: names and contents.
func Hash(fsys fs.FS) string {
	sum := sha256.New()
	err := fs.WalkDir(fsys, ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := fs.ReadFile(fsys, path)
		fmt.Fprintf(sum, "%s\n%d\n%s", path, len(data), data)
		return err
	})
	if err != nil {
		panic(fmt.Sprintf("pgtest: hash files: %v", err)) // they are embedded: it cannot happen
	}
	return hex.EncodeToString(sum.Sum(nil)[:8])
}

// ensureTemplate makes the template database if it is not there. It gets its
// name only when it is complete, so a test binary killed in between leaves
// nothing that could be taken for one.
func (s *Server) ensureTemplate(ctx context.Context, name string, migrate func(context.Context, string) error) error {
	if _, ok := s.templates.Load(name); ok {
		return nil
	}
	err := s.use(ctx, func(ctx context.Context, conn *pgx.Conn) error {
		return s.makeTemplate(ctx, conn, name, migrate)
	})
	if err == nil {
		s.templates.Store(name, true)
	}
	return err
}

func (s *Server) makeTemplate(ctx context.Context, conn *pgx.Conn, name string, migrate func(context.Context, string) error) error {
	found := func() (yes bool, err error) {
		err = conn.QueryRow(ctx, `SELECT EXISTS (SELECT FROM pg_database WHERE datname = $1)`, name).Scan(&yes)
		return yes, err
	}
	if yes, err := found(); yes || err != nil {
		return err
	}
	// The lock goes with the connection.
	if _, err := conn.Exec(ctx, `SELECT pg_advisory_lock(hashtextextended($1, 0))`, name); err != nil {
		return err
	}
	if yes, err := found(); yes || err != nil {
		return err
	}
	draft := name + "_draft"
	if _, err := conn.Exec(ctx, `DROP DATABASE IF EXISTS `+quote(draft)+` WITH (FORCE)`); err != nil {
		return err
	}
	if err := s.copyDatabase(ctx, draft, "template0"); err != nil {
		return err
	}
	if err := migrate(ctx, s.URL(draft)); err != nil {
		return fmt.Errorf("migrate: %w", err)
	}
	_, err := conn.Exec(ctx, `ALTER DATABASE `+quote(draft)+` RENAME TO `+quote(name))
	return err
}

// create makes a database for the test and sees to its end.
func (s *Server) create(t testing.TB, template string) string {
	t.Helper()
	name := databaseName(t.Name())
	if err := s.copyDatabase(t.Context(), name, template); err != nil {
		t.Fatalf("pgtest: create database: %v", err)
	}
	if s.disposable {
		return s.URL(name)
	}
	t.Cleanup(func() {
		if err := s.exec(context.Background(), `DROP DATABASE IF EXISTS `+quote(name)+` WITH (FORCE)`); err != nil {
			t.Logf("pgtest: drop database: %v", err)
		}
	})
	return s.URL(name)
}

// copyDatabase copies files rather than pages, which takes half the time and
// writes no log. Before PostgreSQL 15 that was the only way, and had no name.
func (s *Server) copyDatabase(ctx context.Context, name, template string) error {
	sql := `CREATE DATABASE ` + quote(name) + ` TEMPLATE ` + quote(template)
	return s.use(ctx, func(ctx context.Context, conn *pgx.Conn) error {
		version := conn.PgConn().ParameterStatus("server_version")
		if !strings.HasPrefix(version, "14.") {
			sql += ` STRATEGY file_copy`
		}
		_, err := conn.Exec(ctx, sql)
		return err
	})
}

func (s *Server) exec(ctx context.Context, sql string) error {
	return s.use(ctx, func(ctx context.Context, conn *pgx.Conn) error {
		_, err := conn.Exec(ctx, sql)
		return err
	})
}

// use lends out a connection to the database postgres.
func (s *Server) use(ctx context.Context, f func(context.Context, *pgx.Conn) error) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	conn, err := pgx.Connect(ctx, s.URL("postgres"))
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	return f(ctx, conn)
}

// databaseName keeps enough of the test's name to be recognised in
// pg_stat_activity, within the 63 bytes that Postgres allows.
func databaseName(test string) string {
	clean := strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= '0' && r <= '9':
			return r
		case r >= 'A' && r <= 'Z':
			return r + 'a' - 'A'
		}
		return '_'
	}, test)
	return clean[:min(len(clean), 40)] + "_" + strings.ToLower(rand.Text()[:10])
}

func quote(name string) string { return pgx.Identifier{name}.Sanitize() }
