//go:build !linux

package main

import "context"

// unmapStartPages does nothing: only on Linux is it known how.
func (*app) unmapStartPages(context.Context) error { return nil }
