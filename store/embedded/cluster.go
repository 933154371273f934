package embedded

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"

	"github.com/clawbot/clawbot/store/internal/pgserver"
)

const (
	clusterName = "postgres"
	initPrefix  = "postgres.init-"
	markName    = "clawbot.cluster"
	mark        = "A PostgreSQL cluster of clawbot's. Format 1.\n"
)

// admission is pg_hba.conf: everyone else is turned away.
const admission = "# Written by clawbot.\nlocal clawbot clawbot,clawbot_owner scram-sha-256\n"

// cluster is the database directory while it is being opened.
type cluster struct {
	dataDir  string
	dir      string
	programs Programs // zero: to be found
	account  pgserver.Account
	lock     *os.File // what every Postgres process on the cluster holds
	keys     keys
	log      *slog.Logger
}

// open makes the cluster ready to be started, whatever an earlier process
// left: nothing, half of it, or all of it with a server running on it. The
// caller has the data directory's lock, and closes the cluster's.
func (c *cluster) open(ctx context.Context) error {
	found, err := c.find()
	if err != nil {
		return err
	}
	var stopped bool
	c.lock, stopped, err = pgserver.Claim(ctx, c.dir, filepath.Join(c.dataDir, "postgres.lock"))
	if err != nil {
		return err
	}
	if stopped {
		c.log.Warn("postgres was left running by a clawbot that was killed; it has been stopped", "dir", c.dir)
	}
	if !found {
		return c.create(ctx)
	}

	if c.account, err = pgserver.OwnerOf(c.dir); err != nil {
		return err
	}
	if err := c.account.CanReach(c.dataDir); err != nil {
		return err
	}
	if err := c.choosePrograms(); err != nil {
		return err
	}
	c.keys, err = readKeys(c.dataDir)
	if errors.Is(err, fs.ErrNotExist) {
		c.log.Warn("postgres.keys is missing; new passwords are set", "dir", c.dataDir)
		return c.rekey(ctx)
	}
	return err
}

// find reports whether our cluster is there. Anything else that is there in
// its place is an error.
func (c *cluster) find() (bool, error) {
	info, err := os.Lstat(c.dir)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	foreign := fmt.Errorf("open %s: something is there that is not clawbot's database: move it away, or set CLAWBOT_DATA_DIR to another directory", c.dir)
	if !info.IsDir() {
		return false, foreign
	}
	text, err := os.ReadFile(filepath.Join(c.dir, markName))
	switch {
	case err == nil && string(text) == mark:
		return true, nil
	case err == nil:
		return false, fmt.Errorf("open %s: its format is not known to this clawbot, only to another version: %q", c.dir, strings.TrimSpace(string(text)))
	case !errors.Is(err, fs.ErrNotExist):
		return false, err
	}
	entries, err := os.ReadDir(c.dir)
	if err != nil {
		return false, err
	}
	if len(entries) > 0 {
		return false, foreign
	}
	return false, nil
}

// choosePrograms sees to it that an existing cluster is run by its own
// version.
func (c *cluster) choosePrograms() error {
	major, err := pgserver.Major(c.dir)
	if err != nil {
		return err
	}
	if c.programs == (Programs{}) {
		if c.programs, err = pgserver.Find(major); err != nil {
			return fmt.Errorf("open %s, made by PostgreSQL %d: %w", c.dir, major, err)
		}
	}
	if c.programs.Major != major {
		return fmt.Errorf("open %s: it was made by PostgreSQL %d and %s has version %d: install PostgreSQL %d", c.dir, major, c.programs.Dir, c.programs.Major, major)
	}
	return nil
}

// create makes the cluster beside its place and moves it there when it is
// complete: with roles, database and our mark.
func (c *cluster) create(ctx context.Context) (err error) {
	if c.account, err = pgserver.Unprivileged(); err != nil {
		return err
	}
	if err := c.account.CanReach(c.dataDir); err != nil {
		return err
	}
	if c.programs == (Programs{}) {
		if c.programs, err = pgserver.Find(0); err != nil {
			return err
		}
	}
	c.log.Info("creating the database", "dir", c.dir, "version", c.programs.Major)
	if err := c.removeUnfinished(); err != nil {
		return err
	}
	draft, err := os.MkdirTemp(c.dataDir, initPrefix)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.RemoveAll(draft))
		}
	}()
	if err := c.account.Own(draft); err != nil {
		return err
	}
	if err := pgserver.Init(ctx, c.programs, c.account, c.lock, draft, false); err != nil {
		return err
	}
	c.keys = newKeys()
	if err := pgserver.SingleUser(ctx, c.programs, c.account, c.lock, draft, setup(c.keys), c.keys.Owner, c.keys.Service); err != nil {
		return err
	}
	if err := c.account.WriteFile(draft, "pg_hba.conf", []byte(admission)); err != nil {
		return err
	}
	if err := c.account.WriteFile(draft, markName, []byte(mark)); err != nil {
		return err
	}
	if err := c.keys.write(c.dataDir); err != nil {
		return err
	}
	if err := os.Remove(c.dir); err != nil && !errors.Is(err, fs.ErrNotExist) { // it is empty, if it is there
		return err
	}
	if err := os.Rename(draft, c.dir); err != nil {
		return err
	}
	return pgserver.SyncDir(c.dataDir)
}

// setup makes the roles and the database. The rights on template1 are those
// that the new database starts with; only versions before 15 need them all.
func setup(k keys) []string {
	const modest = " LOGIN NOSUPERUSER NOCREATEDB NOCREATEROLE NOREPLICATION NOBYPASSRLS PASSWORD "
	return []string{
		"CREATE ROLE clawbot_owner" + modest + "'" + k.Owner + "'",
		"CREATE ROLE clawbot" + modest + "'" + k.Service + "'",
		"ALTER SCHEMA public OWNER TO clawbot_owner",
		"REVOKE ALL ON SCHEMA public FROM PUBLIC",
		"GRANT USAGE ON SCHEMA public TO clawbot",
		"CREATE DATABASE clawbot OWNER clawbot_owner TEMPLATE template1",
		"REVOKE ALL ON DATABASE clawbot FROM PUBLIC",
		"GRANT CONNECT ON DATABASE clawbot TO clawbot",
	}
}

// rekey gives both roles new passwords.
func (c *cluster) rekey(ctx context.Context) error {
	c.keys = newKeys()
	err := pgserver.SingleUser(ctx, c.programs, c.account, c.lock, c.dir, []string{
		"ALTER ROLE clawbot_owner PASSWORD '" + c.keys.Owner + "'",
		"ALTER ROLE clawbot PASSWORD '" + c.keys.Service + "'",
	}, c.keys.Owner, c.keys.Service)
	if err != nil {
		return err
	}
	return c.keys.write(c.dataDir)
}

// removeUnfinished removes clusters whose making was broken off.
func (c *cluster) removeUnfinished() error {
	entries, err := os.ReadDir(c.dataDir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), initPrefix) {
			if err := os.RemoveAll(filepath.Join(c.dataDir, e.Name())); err != nil {
				return err
			}
		}
	}
	return nil
}
