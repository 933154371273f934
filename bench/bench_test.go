package main

import (
	"bytes"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// buildFlags are those of the tests, so that what the tests have compiled is used.
var buildFlags []string

// The short form measures everything once. Its times mean nothing, so nothing is
// asked of them; how many statements a turn takes is tested where they are made.
func TestShortForm(t *testing.T) {
	program := filepath.Join(t.TempDir(), "clawbot")
	args := append([]string{"build", "-o", program}, buildFlags...)
	if out, err := exec.CommandContext(t.Context(), "go", append(args, "../cmd/clawbot")...).CombinedOutput(); err != nil {
		t.Fatalf("build the program: %v\n%s", err, out)
	}
	var out, progress bytes.Buffer
	if err := run(t.Context(), plan{program: program, sizes: brief}, &out, &progress); err != nil {
		t.Fatalf("%v\n%s%s", err, &progress, &out)
	}
	for _, figure := range []string{
		"raw commit", "receive → acknowledged, socket", "receive → acknowledged, HTTP", "plain turn", "approved turn", "click → tool start",
		"start → ready, DATABASE_URL", "turns per second", "makes the cluster", "plain turn, commits", "approved turn, commits", "memory",
	} {
		if !strings.Contains(out.String(), figure) {
			t.Errorf("the table lacks %q:\n%s", figure, &out)
		}
	}
}

func TestTimes(t *testing.T) {
	var got times
	if got.median() != 0 {
		t.Errorf("the median of nothing is %v", got.median())
	}
	for i := range 100 {
		got = append(got, time.Duration(100-i)) // 100 to 1
	}
	if m, p := got.median(), got.p95(); m != 51 || p != 96 {
		t.Errorf("median %d, 95th percentile %d; want 51 and 96", m, p)
	}
}

func TestCount(t *testing.T) {
	log := strings.ReplaceAll(`
bench 7 0 LOG:  duration: 0.1 ms  statement: begin
bench 8 0 LOG:  duration: 0.1 ms  statement: begin
bench 7 0 LOG:  duration: 0.1 ms  parse stmt_1: UPDATE a SET b = 1
bench 7 0 LOG:  duration: 0.1 ms  bind stmt_1: UPDATE a SET b = 1
bench 7 91 LOG:  duration: 0.1 ms  execute stmt_1: UPDATE a SET b = 1,
>c = 'begin'
bench 8 0 LOG:  duration: 0.1 ms  execute stmt_2: SET LOCAL synchronous_commit = off
bench 8 92 LOG:  duration: 0.1 ms  execute stmt_3: UPDATE a
bench 7 0 LOG:  duration: 0.1 ms  statement: commit
bench 8 0 LOG:  duration: 0.1 ms  statement: commit
bench 7 0 LOG:  duration: 0.1 ms  execute stmt_4: SELECT 1
bench 7 93 LOG:  duration: 0.1 ms  execute stmt_5: INSERT INTO a VALUES (1)
bench 9 94 LOG:  duration: 0.1 ms  execute stmt_5: INSERT INTO ours VALUES (1)
2026-01-01 00:00:00 UTC [7] LOG:  checkpoint starting: time
bench 8 0 LOG:  duration: 0.1 ms  statement: begin
bench 8 0 LOG:  duration: 0.1 ms  execute stmt_3: UPDATE a
bench 8 0 LOG:  duration: 0.1 ms  statement: rollback
`, ">", "\t")
	want := counts{sync: 2, syncStatements: 4, async: 1, asyncStatements: 4, empty: 2, emptyStatements: 4}
	if got := count(log, 9); got != want {
		t.Errorf("count = %+v, want %+v", got, want)
	}
}
