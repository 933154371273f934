package tools

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"syscall"
	"unicode/utf8"

	"github.com/clawbot/clawbot/agent"
)

// MaxRead is how many bytes of a file read_file returns.
const MaxRead = 1 << 20

func readFile(ws workspace) agent.Tool {
	return agent.Tool{
		Name:        "read_file",
		Description: "Read a text file of the workspace. At most 1 MiB is returned; binary files are described.",
		Schema: json.RawMessage(`{"type":"object","properties":{` +
			`"path":{"type":"string","description":"path relative to the workspace","minLength":1,"maxLength":4096}` +
			`},"required":["path"],"additionalProperties":false}`),
		Owner:      Owner,
		Idempotent: true,
		Default:    always(agent.Allow),
		Run: func(_ context.Context, inv agent.Invocation) agent.Result {
			var args struct{ Path string }
			if err := json.Unmarshal(inv.Args, &args); err != nil {
				return agent.Failed("the arguments are no JSON object with a path")
			}
			return ws.read(args.Path)
		},
	}
}

func (ws workspace) read(path string) agent.Result {
	p, err := local(path)
	if err != nil {
		return agent.Failed(clean(err.Error()))
	}
	// Looked at first, because to open a device can have an effect; opened
	// without blocking and looked at again, because it may have been swapped.
	info, err := ws.root.Stat(p)
	if err != nil {
		return agent.Failed(explain("read", path, err))
	}
	if !info.Mode().IsRegular() {
		return agent.Failed(fmt.Sprintf("cannot read %s: it is %s", name(path), kindOf(info.Mode())))
	}
	f, err := ws.root.OpenFile(p, os.O_RDONLY|syscall.O_NONBLOCK|syscall.O_NOCTTY, 0)
	if err != nil {
		return agent.Failed(explain("read", path, err))
	}
	defer f.Close()
	if info, err = f.Stat(); err != nil {
		return agent.Failed(explain("read", path, err))
	}
	if !info.Mode().IsRegular() {
		return agent.Failed(fmt.Sprintf("cannot read %s: it is %s", name(path), kindOf(info.Mode())))
	}
	data, err := io.ReadAll(io.LimitReader(f, MaxRead+1))
	if err != nil {
		return agent.Failed(explain("read", path, err))
	}
	total := max(info.Size(), int64(len(data)))
	text, notes := describe(data, MaxRead, total)
	if notes != "" {
		return agent.Succeeded(fmt.Sprintf("[%s: %s]\n%s", name(path), notes, text))
	}
	return agent.Succeeded(text)
}

// describe turns bytes into text for a model: at most limit bytes, no binary
// data, valid UTF-8. The notes say what was left out or changed. A
// negative total is not known.
func describe(data []byte, limit int, total int64) (text, notes string) {
	if bytes.IndexByte(data[:min(len(data), 8192)], 0) >= 0 {
		return "", fmt.Sprintf("binary data, %s, looks like %s, not shown", size(total), http.DetectContentType(data))
	}
	if len(data) > limit {
		data = wholeRunes(data[:limit])
		notes = fmt.Sprintf("the first %d of %s", len(data), size(total))
	}
	if !utf8.Valid(data) || bytes.IndexByte(data, 0) >= 0 {
		if notes != "" {
			notes += ", "
		}
		notes += "not valid UTF-8, what cannot be shown is replaced by \uFFFD"
	}
	return clean(string(data)), notes
}

func size(total int64) string {
	if total < 0 {
		return "an unknown number of bytes"
	}
	return fmt.Sprintf("%d bytes", total)
}
