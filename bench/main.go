// Command bench measures a built clawbot from outside and prints one table.
//
// What it measures is the program as an operator runs it: a process of its own
// on a Postgres that syncs to disk, connected to a Slack and a model that answer
// at once and live in this process. Every time stands beside the time of a raw
// commit, a one-row INSERT on one connection, taken between the samples: the
// ratio is what can be compared between machines and between a quiet and a busy
// hour. README.md explains each figure.
//
// world.go is what stands around the program, program.go the running program,
// turns.go, parked.go, startup.go and statements.go are the measurements,
// figures.go the table.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"
)

func main() {
	var p plan
	flag.StringVar(&p.program, "program", "", "the clawbot to measure; needed")
	short := flag.Bool("short", false, "a few samples only: shows that everything runs, the times mean little")
	flag.IntVar(&p.parked, "parked", 0, "how many turns to park; 0 is 10000, or 30 with -short")
	flag.StringVar(&p.only, "only", "", "measure one part: turns, throughput, embedded, statements or memory")
	flag.Usage = func() {
		fmt.Fprintln(flag.CommandLine.Output(), "usage: bench -program bin/clawbot [-short] [-only PART] [-parked N]\n\nMeasures clawbot beside a raw commit and prints a table; see bench/README.md.")
		flag.PrintDefaults()
	}
	flag.Parse()
	if p.program == "" || flag.NArg() > 0 {
		flag.Usage()
		os.Exit(2)
	}
	parked := p.parked
	if p.sizes = full; *short {
		p.sizes = brief
	}
	if parked > 0 {
		p.parked = parked
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, p, os.Stdout, os.Stderr)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// plan is what to measure.
type plan struct {
	program string // path of the binary
	only    string // name of the one part to measure; "" is all
	sizes
}

// sizes is how much of everything is measured.
type sizes struct {
	rounds   int // starts of the program, each followed by the next four
	acks     int // messages acknowledged, by socket and by HTTP
	plain    int // plain turns
	approved int // approved turns; see maxApproved
	warm     int // plain turns before the first sample

	sessions int // conversations at once
	each     int // turns of each of them
	counted  int // turns of each kind whose statements are counted
	starts   int // starts on an embedded database
	parked   int
	settle   time.Duration // idle before memory is read: every timer comes round, the collector too
}

var (
	full  = sizes{rounds: 6, acks: 15, plain: 20, approved: maxApproved - 1, warm: 10, sessions: 16, each: 40, counted: maxApproved, starts: 5, parked: 10_000, settle: 10 * time.Second}
	brief = sizes{rounds: 1, acks: 2, plain: 3, approved: 2, warm: 1, sessions: 4, each: 2, counted: 3, starts: 1, parked: 30, settle: 100 * time.Millisecond}
)

// run measures everything and prints the table to out, and what it is doing to
// progress.
func run(ctx context.Context, p plan, out, progress io.Writer) (err error) {
	w, err := newWorld(ctx, p.program)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, w.close()) }()
	t, found := &table{}, false
	for _, part := range []struct {
		name string
		run  func(context.Context, *world, sizes, *table) error
	}{
		{"turns", turns},
		{"throughput", throughput},
		{"embedded", embedded},
		{"statements", statements},
		{"memory", memory},
	} {
		if p.only != "" && p.only != part.name {
			continue
		}
		found = true
		fmt.Fprintf(progress, "measuring %s\n", part.name)
		if err := part.run(ctx, w, p.sizes, t); err != nil {
			return fmt.Errorf("%s: %w", part.name, err)
		}
	}
	if !found {
		return fmt.Errorf("there is no part %q: write turns, throughput, embedded, statements or memory", p.only)
	}
	return t.print(out)
}
