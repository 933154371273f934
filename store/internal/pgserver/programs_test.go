package pgserver

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// lay makes programs in dir that answer with a version.
func lay(t *testing.T, dir, version string) string {
	t.Helper()
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	script := "#!/bin/sh\necho 'postgres (PostgreSQL) " + version + "'\n"
	for _, name := range []string{"postgres", "initdb", "pg_ctl"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(script), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestFind(t *testing.T) {
	tmp := t.TempDir()
	onPath := lay(t, filepath.Join(tmp, "path"), "16.2")
	oldOnPath := lay(t, filepath.Join(tmp, "old"), "13.9")
	client := filepath.Join(tmp, "client")
	lay(t, client, "17.0")
	if err := os.Remove(filepath.Join(client, "initdb")); err != nil {
		t.Fatal(err)
	}
	lay(t, filepath.Join(tmp, "debian/9.6/bin"), "9.6.24")
	debian15 := lay(t, filepath.Join(tmp, "debian/15/bin"), "15.18 (Debian 15.18-0+deb12u1)")
	lay(t, filepath.Join(tmp, "debian/13/bin"), "13.1")
	brew18 := lay(t, filepath.Join(tmp, "opt/postgresql@18/bin"), "18beta1")
	app := lay(t, filepath.Join(tmp, "app/Versions/14/bin"), "14.0")
	debian := filepath.Join(tmp, "debian/*/bin")
	brew := filepath.Join(tmp, "opt/postgresql@*/bin")

	for _, c := range []struct {
		name         string
		major        int
		path, places []string
		want         string // directory, or words of the error
		wantMajor    int
	}{
		{"path before the usual places", 0, []string{onPath}, []string{debian}, onPath, 16},
		{"newest of the usual places", 0, nil, []string{debian, brew}, brew18, 18},
		{"newest, not last by name", 0, nil, []string{debian}, debian15, 15},
		{"too old on the path", 0, []string{oldOnPath}, []string{debian}, debian15, 15},
		{"client programs only", 0, []string{client}, []string{debian}, debian15, 15},
		{"a certain version", 14, []string{onPath}, []string{debian, brew, filepath.Join(tmp, "app/Versions/*/bin")}, app, 14},
		{"the directory of the day", 0, []string{".", ""}, []string{debian}, debian15, 15},
		{"none", 0, nil, nil, "PostgreSQL 14 or newer is needed: run", 0},
		{"only old ones", 0, []string{oldOnPath}, nil, "found only 13 in " + oldOnPath, 0},
		{"not that version", 17, []string{onPath}, nil, "PostgreSQL 17 is needed (found only 16 in " + onPath, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := find(c.major, c.path, c.places)
			if c.wantMajor == 0 {
				if !errors.Is(err, ErrNoPrograms) || !strings.Contains(err.Error(), c.want) ||
					!strings.Contains(err.Error(), "install ") || strings.Contains(err.Error(), "\n") {
					t.Errorf("error %q, want one line with %q and how to install", err, c.want)
				}
				return
			}
			if err != nil || got.Dir != c.want || got.Major != c.wantMajor {
				t.Errorf("%+v, %v; want %d in %s", got, err, c.wantMajor, c.want)
			}
		})
	}
}

func TestTelling(t *testing.T) {
	for out, want := range map[string]string{
		"": "",
		"creating directory ... ok\ninitdb: error: could not change permissions of directory \"/x\": Operation not permitted\n":                      `could not change permissions of directory "/x": Operation not permitted`,
		"2026-01-01 UTC [1] FATAL:  lock file \"postmaster.pid\" already exists\n2026-01-01 UTC [1] HINT:  Is another postmaster (PID 2) running?\n": `lock file "postmaster.pid" already exists`,
		"sh: postgres: not found\n": "sh: postgres: not found",
	} {
		if got := telling([]byte(out)); got != want {
			t.Errorf("telling(%q) = %q, want %q", out, got, want)
		}
	}
}

// Postgres writes the file line by line: any beginning of it can be read.
func TestReadPidFile(t *testing.T) {
	const whole = "4711\n/data\n1700000000\n5432\n/socket\n\n   123456    789\nready   \n"
	dir := t.TempDir()
	for n := range len(whole) + 1 {
		if err := os.WriteFile(filepath.Join(dir, "postmaster.pid"), []byte(whole[:n]), 0o600); err != nil {
			t.Fatal(err)
		}
		f, err := readPidFile(dir)
		if err != nil {
			t.Fatalf("%q: %v", whole[:n], err)
		}
		if f.ready && f != (pidFile{pid: 4711, socketDir: "/socket", segment: 789, ready: true}) {
			t.Errorf("%q: %+v", whole[:n], f)
		}
		if n == len(whole) && !f.ready {
			t.Errorf("%+v is not ready", f)
		}
	}
}
