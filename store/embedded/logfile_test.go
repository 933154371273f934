package embedded

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
)

func TestLogFileIsBounded(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "postgres.log")
	l, err := openLog(path)
	if err != nil {
		t.Fatal(err)
	}
	chunk := bytes.Repeat([]byte("x"), maxLog/4)
	for range 20 {
		if _, err := l.Write(chunk); err != nil {
			t.Fatal(err)
		}
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if l, err = openLog(path); err != nil { // the next start goes on where this one ended
		t.Fatal(err)
	}
	if _, err := l.Write([]byte("last")); err != nil {
		t.Fatal(err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}

	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var total int64
	for _, e := range entries {
		info, err := e.Info()
		if err != nil {
			t.Fatal(err)
		}
		total += info.Size()
		if info.Mode() != 0o600 {
			t.Errorf("mode of %s: %v", e.Name(), info.Mode())
		}
	}
	if len(entries) != 2 || total > 2*maxLog {
		t.Errorf("%d files with %d bytes", len(entries), total)
	}
	if b, err := os.ReadFile(path); err != nil || !bytes.HasSuffix(b, []byte("last")) {
		t.Errorf("the newest is not at the end of %s: %v", path, err)
	}
}
