package embedded

import (
	"errors"
	"os"
)

// maxLog is how long the log gets before it is put aside, in bytes. One log
// that was put aside is kept.
const maxLog = 4 << 20

// logFile is a log of bounded size. One goroutine writes to it.
type logFile struct {
	path string
	file *os.File
	size int64
}

func openLog(path string) (*logFile, error) {
	l := &logFile{path: path}
	return l, l.open()
}

func (l *logFile) open() error {
	f, err := os.OpenFile(l.path, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	info, err := f.Stat()
	if err != nil {
		return errors.Join(err, f.Close())
	}
	l.file, l.size = f, info.Size()
	return nil
}

func (l *logFile) Write(p []byte) (int, error) {
	if l.size+int64(len(p)) > maxLog {
		if err := errors.Join(l.file.Close(), os.Rename(l.path, l.path+".1"), l.open()); err != nil {
			return 0, err
		}
	}
	n, err := l.file.Write(p)
	l.size += int64(n)
	return n, err
}

// Close is called when the writer has ended.
func (l *logFile) Close() error { return l.file.Close() }
