package tools

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/clawbot/clawbot/agent"
)

// MaxWrite is how many bytes write_file takes. The arguments as a whole may not
// be larger than agent.MaxArgsBytes either.
const MaxWrite = 1 << 20

func writeFile(ws workspace) agent.Tool {
	return agent.Tool{
		Name:        "write_file",
		Description: "Write a text file of the workspace, whole: an existing file is replaced at once, missing directories are made.",
		Schema: json.RawMessage(`{"type":"object","properties":{` +
			`"path":{"type":"string","description":"path relative to the workspace","minLength":1,"maxLength":4096},` +
			`"content":{"type":"string","description":"the whole new content"}` +
			`},"required":["path","content"],"additionalProperties":false}`),
		Owner:      Owner,
		Idempotent: true, // the same bytes at the same place
		Default:    always(agent.Ask),
		Run: func(ctx context.Context, inv agent.Invocation) agent.Result {
			var args struct{ Path, Content string }
			if err := json.Unmarshal(inv.Args, &args); err != nil {
				return agent.Failed("the arguments are no JSON object with path and content")
			}
			return ws.write(ctx, args.Path, args.Content)
		},
	}
}

func (ws workspace) write(ctx context.Context, path, content string) agent.Result {
	p, err := local(path)
	switch {
	case err != nil:
		return agent.Failed(clean(err.Error()))
	case p == "." || strings.HasSuffix(path, "/"):
		return agent.Failed(fmt.Sprintf("cannot write %s: it names a directory, write a file name", name(path)))
	case len(content) > MaxWrite:
		return agent.Failed(fmt.Sprintf("cannot write %s: the content has %d bytes, at most %d are allowed", name(path), len(content), MaxWrite))
	case ctx.Err() != nil:
		return agent.Failed("cannot write " + name(path) + ": stopped")
	}
	dir, base := filepath.Split(p)
	if err := ws.makeDirs(filepath.Clean(dir)); err != nil {
		return agent.Failed(explain("write", path, err))
	}
	// From here on within the parent directory itself, wherever it is moved.
	parent, err := ws.root.OpenRoot(filepath.Clean(dir))
	if err != nil {
		return agent.Failed(explain("write", path, err))
	}
	defer parent.Close()

	mode, replaced := fs.FileMode(0o644), false
	switch info, err := parent.Lstat(base); {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return agent.Failed(explain("write", path, err))
	case !info.Mode().IsRegular():
		return agent.Failed(fmt.Sprintf("cannot write %s: it is %s, only regular files are replaced", name(path), kindOf(info.Mode())))
	default:
		mode, replaced = info.Mode().Perm(), true
	}
	if err := ws.replace(parent, base, content, mode); err != nil {
		return agent.Failed(explain("write", path, err))
	}
	verb := "wrote a new file"
	if replaced {
		verb = "replaced the file"
	}
	return agent.Succeeded(fmt.Sprintf("%s %s (%d bytes)", verb, name(path), len(content)))
}

// replace writes content beside base and renames it over base, so that nobody
// ever sees a half-written file and a crash leaves the old one.
func (ws workspace) replace(parent *os.Root, base, content string, mode fs.FileMode) (err error) {
	temp := ".clawbot-" + rand.Text() + ".tmp"
	f, err := parent.OpenFile(temp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			f.Close()
			parent.Remove(temp)
		}
	}()
	if _, err := f.WriteString(content); err != nil {
		return err
	}
	if ws.uid != 0 {
		if err := f.Chown(ws.uid, ws.gid); err != nil {
			return err
		}
	}
	if err := f.Chmod(mode); err != nil {
		return err
	}
	if err := f.Sync(); err != nil {
		return err
	}
	if err := f.Close(); err != nil {
		return err
	}
	return parent.Rename(temp, base)
}

// makeDirs makes the missing parents of a file.
func (ws workspace) makeDirs(dir string) error {
	if dir == "." || dir == "" {
		return nil
	}
	parts := strings.Split(dir, string(filepath.Separator))
	for i := range parts {
		p := filepath.Join(parts[:i+1]...)
		err := ws.root.Mkdir(p, 0o755)
		switch {
		case errors.Is(err, fs.ErrExist):
		case err != nil:
			return err
		case ws.uid != 0:
			if err := ws.root.Lchown(p, ws.uid, ws.gid); err != nil {
				return err
			}
		}
	}
	return nil
}
