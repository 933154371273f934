package main

import (
	"fmt"
	"io"
	"runtime"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
)

// times are the samples of one figure.
type times []time.Duration

// at returns the sample below which the given share of them lies.
func (t times) at(share float64) time.Duration {
	if len(t) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(t))
	return sorted[min(int(share*float64(len(sorted))), len(sorted)-1)]
}

func (t times) median() time.Duration { return t.at(0.5) }
func (t times) p95() time.Duration    { return t.at(0.95) }

// table is what is printed in the end.
type table struct{ rows [][]string }

// row adds a line; all have the same number of cells, so that they stay aligned.
func (t *table) row(cells ...string) {
	t.rows = append(t.rows, append(cells, make([]string, columns-len(cells))...))
}

// columns: name, median, 95th percentile, ratio, aim, note.
const columns = 6

func (t *table) head(title string) { t.row(); t.row(title) }

// times adds a figure in time beside the raw commits that were taken between its
// samples. aim is at most how many raw commits it should take; 0 is no aim.
func (t *table) times(name string, got, raw times, aim float64) {
	ratio := float64(got.median()) / float64(raw.median())
	t.row(name, ms(got.median()), ms(got.p95()), fmt.Sprintf("%.1f", ratio), verdict(ratio, aim, "%.0f"), fmt.Sprintf("%d samples", len(got)))
}

// size adds a figure in bytes.
func (t *table) size(name string, bytes int64, aim float64, note string) {
	mb := float64(bytes) / 1e6
	t.row(name, fmt.Sprintf("%.1f MB", mb), "", "", verdict(mb, aim, "%.0f MB"), note)
}

func (t *table) count(name string, n float64, note string) {
	t.row(name, fmt.Sprintf("%.2f", n), "", "", "", note)
}

func verdict(got, aim float64, format string) string {
	if aim == 0 {
		return ""
	}
	word := "missed"
	if got <= aim {
		word = "met"
	}
	return fmt.Sprintf("at most "+format+": %s", aim, word)
}

func ms(d time.Duration) string { return fmt.Sprintf("%.2f ms", float64(d)/1e6) }

func (t *table) print(out io.Writer) error {
	fmt.Fprintf(out, "clawbot on %s/%s, %d processors, %s\n\n", runtime.GOOS, runtime.GOARCH, runtime.NumCPU(), time.Now().UTC().Format("2006-01-02 15:04 MST"))
	var text strings.Builder
	w := tabwriter.NewWriter(&text, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "\tmedian\tp95\t× raw\taim\t")
	for _, row := range t.rows {
		fmt.Fprintln(w, strings.Join(row, "\t"))
	}
	if err := w.Flush(); err != nil {
		return err
	}
	for line := range strings.Lines(text.String()) {
		if _, err := fmt.Fprintln(out, strings.TrimRight(line, " \n")); err != nil {
			return err
		}
	}
	return nil
}
