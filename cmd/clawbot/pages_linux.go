package main

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"strings"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// unmapAfter is when starting is over: connected, and every loop has come round.
const unmapAfter = 3 * time.Second

// unmapStartPages lets go of the pages of this binary that only its start has
// read: initialisation, settings, migrations. They are most of what is resident
// when clawbot is idle. What is needed again is mapped again when it is touched,
// mostly from the page cache.
func (a *app) unmapStartPages(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return nil
	case <-time.After(unmapAfter):
	}
	if err := unmapBinary(); err != nil {
		a.log.Debug("pages of the binary stay mapped", "err", err)
	}
	return nil
}

// unmapBinary drops the mappings of the binary that nobody can have changed: read
// only, and with no page that differs from the file, such as those that a dynamic
// linker or a debugger has written.
func unmapBinary() error {
	exe, err := os.Executable()
	if err != nil {
		return err
	}
	f, err := os.Open("/proc/self/smaps")
	if err != nil {
		return err
	}
	defer f.Close()
	var from, to uintptr // of the mapping whose lines are being read; 0 if it is of no interest
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		fields := strings.Fields(lines.Text())
		switch {
		case len(fields) == 6 && fields[5] == exe && (fields[1] == "r-xp" || fields[1] == "r--p"):
			if _, err := fmt.Sscanf(fields[0], "%x-%x", &from, &to); err != nil {
				return fmt.Errorf("read smaps: %w", err)
			}
		case len(fields) >= 5 && !strings.HasSuffix(fields[0], ":"):
			from = 0
		case from != 0 && len(fields) == 3 && fields[0] == "Anonymous:":
			if fields[1] == "0" {
				start := *(*unsafe.Pointer)(unsafe.Pointer(&from)) // of the binary, not of Go's heap
				if err := unix.Madvise(unsafe.Slice((*byte)(start), to-from), unix.MADV_DONTNEED); err != nil {
					return fmt.Errorf("unmap pages: %w", err)
				}
			}
			from = 0
		}
	}
	return lines.Err()
}
