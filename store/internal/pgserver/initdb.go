package pgserver

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
)

// Superuser is the role that initdb makes. It has no password, and Init
// leaves a pg_hba.conf that admits nobody.
const Superuser = "postgres"

// Init makes a cluster in dir, an empty directory that belongs to the
// account: UTF-8, locale C, checksums, synced to disk. noSync leaves out the
// last, for clusters that may be lost. The programs hold the lock while they
// run.
func Init(ctx context.Context, p Programs, a Account, lock *os.File, dir string, noSync bool) error {
	args := []string{"-D", dir, "-U", Superuser, "--auth=reject", "--encoding=UTF8", "--locale=C", "--no-instructions"}
	if noSync {
		args = append(args, "--no-sync")
	} else {
		args = append(args, "--data-checksums")
	}
	out, err := run(ctx, a, lock, nil, p.path("initdb"), args...)
	if err != nil {
		return fmt.Errorf("create database cluster in %s: %w", dir, withOutput(ctx, err, out))
	}
	return nil
}

// SingleUser runs statements, one a line, on the database template1 of a
// cluster that nobody else has open, as superuser and without a password. The
// first that fails ends it. Words in secret are removed from the error.
func SingleUser(ctx context.Context, p Programs, a Account, lock *os.File, dir string, statements []string, secret ...string) error {
	out, err := run(ctx, a, lock, strings.NewReader(strings.Join(statements, "\n")+"\n"),
		p.path("postgres"), "--single", "-D", dir, "-c", "exit_on_error=on", "-c", "log_min_error_statement=panic", "template1")
	if err != nil {
		for _, word := range secret {
			out = bytes.ReplaceAll(out, []byte(word), []byte("***"))
		}
		return fmt.Errorf("set up database cluster in %s: %w", dir, withOutput(ctx, err, out))
	}
	return nil
}

// withOutput adds the last line that a program printed, which is where the
// PostgreSQL programs say what is wrong.
func withOutput(ctx context.Context, err error, out []byte) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	var exit *exec.ExitError
	if !errors.As(err, &exit) {
		return err
	}
	if line := telling(out); line != "" {
		return fmt.Errorf("%w: %s", err, line)
	}
	return err
}

// telling picks the line that explains a failure: the last FATAL, PANIC or
// error, or else the last of all.
func telling(out []byte) string {
	var last, fatal string
	for line := range strings.Lines(string(out)) {
		line = strings.TrimSpace(line)
		if line == "" {
			continue
		}
		last = line
		for _, word := range []string{"FATAL:", "PANIC:", "error:"} {
			if i := strings.Index(line, word); i >= 0 {
				fatal = strings.TrimSpace(line[i+len(word):])
			}
		}
	}
	if fatal != "" {
		return fatal
	}
	return last
}

// Major is the major version of the cluster in dir, or 0 and an error that
// wraps fs.ErrNotExist if there is none.
func Major(dir string) (int, error) {
	b, err := os.ReadFile(filepath.Join(dir, "PG_VERSION"))
	if err != nil {
		return 0, err
	}
	n, err := strconv.Atoi(strings.TrimSpace(string(b)))
	if err != nil {
		return 0, fmt.Errorf("read version of the cluster in %s: %w", dir, err)
	}
	return n, nil
}
