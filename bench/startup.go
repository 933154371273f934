package main

import (
	"context"
	"errors"
)

// embedded measures a start that starts the private Postgres too, on a cluster
// that is there already.
func embedded(ctx context.Context, w *world, n sizes, t *table) error {
	var start, raw times
	for i := range n.starts + 1 {
		r, err := w.raw(ctx, 5)
		if err != nil {
			return err
		}
		p, err := w.start(ctx, "")
		if err != nil {
			return err
		}
		if err := p.stop(); err != nil {
			return err
		}
		if i == 0 {
			t.head("start-up, embedded")
			t.times("first start → ready, makes the cluster", times{p.ready}, r, 0)
			continue
		}
		start, raw = append(start, p.ready), append(raw, r...)
	}
	if len(start) == 0 {
		return errors.New("no start was measured")
	}
	t.times("start → ready", start, raw, 0)
	return nil
}
