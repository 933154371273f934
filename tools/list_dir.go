package tools

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"strings"

	"github.com/clawbot/clawbot/agent"
)

// MaxEntries is how many entries list_dir shows; maxCounted how many it looks at.
const (
	MaxEntries = 1000
	maxCounted = 100_000
)

func listDir(ws workspace) agent.Tool {
	return agent.Tool{
		Name:        "list_dir",
		Description: "List a directory of the workspace, sorted by name: directories end in /, files have their size. At most 1000 entries.",
		Schema: json.RawMessage(`{"type":"object","properties":{` +
			`"path":{"type":"string","description":"path relative to the workspace, \".\" for the workspace itself","minLength":1,"maxLength":4096}` +
			`},"required":["path"],"additionalProperties":false}`),
		Owner:      Owner,
		Idempotent: true,
		Default:    always(agent.Allow),
		Run: func(ctx context.Context, inv agent.Invocation) agent.Result {
			var args struct{ Path string }
			if err := json.Unmarshal(inv.Args, &args); err != nil {
				return agent.Failed("the arguments are no JSON object with a path")
			}
			return ws.list(ctx, args.Path)
		},
	}
}

func (ws workspace) list(ctx context.Context, path string) agent.Result {
	p, err := local(path)
	if err != nil {
		return agent.Failed(clean(err.Error()))
	}
	info, err := ws.root.Stat(p)
	if err != nil {
		return agent.Failed(explain("list", path, err))
	}
	if !info.IsDir() {
		return agent.Failed(fmt.Sprintf("cannot list %s: it is %s", name(path), kindOf(info.Mode())))
	}
	dir, err := ws.root.OpenRoot(p)
	if err != nil {
		return agent.Failed(explain("list", path, err))
	}
	defer dir.Close()
	f, err := dir.Open(".")
	if err != nil {
		return agent.Failed(explain("list", path, err))
	}
	defer f.Close()

	var names []string
	more := ""
	for {
		if ctx.Err() != nil {
			return agent.Failed("cannot list " + name(path) + ": stopped")
		}
		batch, err := f.Readdirnames(1000)
		names = append(names, batch...)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return agent.Failed(explain("list", path, err))
		}
		if len(names) >= maxCounted {
			more = "more than "
			break
		}
	}
	if len(names) == 0 {
		return agent.Succeeded("(empty directory)")
	}
	slices.Sort(names)
	total := len(names)
	var out strings.Builder
	if total > MaxEntries {
		fmt.Fprintf(&out, "[%s: the first %d of %s%d entries]\n", name(path), MaxEntries, more, total)
		names = names[:MaxEntries]
	}
	for _, n := range names {
		out.WriteString(entry(dir.Lstat, dir.Readlink, n))
		out.WriteByte('\n')
	}
	return agent.Succeeded(clean(out.String()))
}

func entry(lstat func(string) (fs.FileInfo, error), readlink func(string) (string, error), n string) string {
	info, err := lstat(n)
	switch {
	case err != nil: // gone since
		return name(n)
	case info.IsDir():
		return name(n) + "/"
	case info.Mode()&fs.ModeSymlink != 0:
		target, err := readlink(n)
		if err != nil {
			return name(n) + " (a symbolic link)"
		}
		return name(n) + " -> " + name(target)
	case info.Mode().IsRegular():
		return fmt.Sprintf("%s (%d bytes)", name(n), info.Size())
	}
	return name(n) + " (" + kindOf(info.Mode()) + ")"
}
