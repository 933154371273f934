package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/pressly/goose/v3"
	"github.com/pressly/goose/v3/lock"

	"github.com/clawbot/clawbot/migrations"
)

// MigrationStatus is the state of one migration.
type MigrationStatus struct {
	Version int64
	Name    string
	Applied bool
}

// Migrate brings the schema up to date. Several processes may do so at once: a
// session lock lets one work while the others wait, so the address must not go
// through a pooler in transaction mode. serviceURL is the role that runs clawbot;
// if it differs from the owner it gets exactly the rights it needs, which leave
// it no way to change audit rows.
func Migrate(ctx context.Context, ownerURL, serviceURL string) error {
	return withGoose(ctx, ownerURL, func(p *goose.Provider, db *sql.DB) error {
		if _, err := p.Up(ctx); err != nil {
			err = tidy(err)
			var refused *errServer
			if errors.As(err, &refused) && refused.code == "42501" { // insufficient_privilege
				err = fmt.Errorf("%w; set DATABASE_MIGRATE_URL to a role that owns the schema", err)
			}
			return fmt.Errorf("migrate database: %w", err)
		}
		return grantService(ctx, db, ownerURL, serviceURL)
	})
}

// ErrAuditNotEmpty keeps MigrateDown from erasing what must last.
var ErrAuditNotEmpty = errors.New("the audit has rows, and taking the migration back would erase them")

// MigrateDown undoes the latest migration. It loses the data of its tables; with
// rows in the audit it does so only if erase is set.
func MigrateDown(ctx context.Context, ownerURL string, erase bool) error {
	return withGoose(ctx, ownerURL, func(p *goose.Provider, db *sql.DB) error {
		at, err := p.GetDBVersion(ctx)
		if err != nil {
			return fmt.Errorf("read migrations: %w", tidy(err))
		}
		var rows bool
		// The first migration made the audit; without the table there is nothing to erase.
		if at > 1 {
			erase = true
		} else if err := db.QueryRowContext(ctx, `SELECT EXISTS (SELECT 1 FROM audit_log)`).Scan(&rows); err == nil && rows && !erase {
			return ErrAuditNotEmpty
		}
		_, err = p.Down(ctx)
		if errors.Is(err, goose.ErrNoNextVersion) {
			return errors.New("no migration is applied")
		}
		if err != nil {
			return fmt.Errorf("undo migration: %w", tidy(err))
		}
		return nil
	})
}

// Migrations lists all migrations and which are applied.
func Migrations(ctx context.Context, ownerURL string) ([]MigrationStatus, error) {
	var out []MigrationStatus
	err := withGoose(ctx, ownerURL, func(p *goose.Provider, _ *sql.DB) error {
		rows, err := p.Status(ctx)
		if err != nil {
			return fmt.Errorf("read migrations: %w", tidy(err))
		}
		for _, r := range rows {
			out = append(out, MigrationStatus{Version: r.Source.Version, Name: r.Source.Path, Applied: r.State == goose.StateApplied})
		}
		return nil
	})
	return out, err
}

func withGoose(ctx context.Context, url string, f func(*goose.Provider, *sql.DB) error) error {
	cfg, err := pgx.ParseConfig(url)
	if err != nil {
		return errors.New("read DATABASE_MIGRATE_URL: it is no Postgres address; write postgres://USER:PASSWORD@HOST:5432/DATABASE")
	}
	// DDL behind a long reader makes everyone queue behind the DDL: give up early.
	cfg.RuntimeParams["lock_timeout"] = "10000"
	db := stdlib.OpenDB(*cfg)
	defer db.Close()
	locker, err := lock.NewPostgresSessionLocker(lock.WithLockTimeout(1, 120))
	if err != nil {
		return err
	}
	p, err := goose.NewProvider(goose.DialectPostgres, db, migrations.FS, goose.WithSessionLocker(locker))
	if err != nil {
		return fmt.Errorf("read migrations: %w", tidy(err))
	}
	return f(p, db)
}

func grantService(ctx context.Context, db *sql.DB, ownerURL, serviceURL string) error {
	owner, err := pgx.ParseConfig(ownerURL)
	if err != nil {
		return err
	}
	service, err := pgx.ParseConfig(serviceURL)
	if err != nil {
		return errors.New("read DATABASE_URL: it is no Postgres address; write postgres://USER:PASSWORD@HOST:5432/DATABASE")
	}
	if owner.User == service.User {
		return nil
	}
	role := pgx.Identifier{service.User}.Sanitize()
	for _, stmt := range []string{
		"GRANT USAGE ON SCHEMA public TO " + role,
		"GRANT SELECT, INSERT, UPDATE, DELETE ON sessions, inbox, turns, messages, tool_calls, approvals, votes, grants, deliveries, jobs, events TO " + role,
		"REVOKE ALL ON audit_log FROM " + role,
		"GRANT SELECT, INSERT ON audit_log TO " + role,
		"GRANT USAGE ON ALL SEQUENCES IN SCHEMA public TO " + role,
	} {
		if _, err := db.ExecContext(ctx, stmt); err != nil {
			return fmt.Errorf("grant rights to the service's role: %w", tidy(err))
		}
	}
	return nil
}
