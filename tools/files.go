package tools

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// workspace is the directory that file tools see. All access goes through the
// os.Root, so neither "..", nor a symbolic link, nor one that is swapped in
// between check and use leads out of it.
type workspace struct {
	root     *os.Root
	uid, gid int // whom new files are given to; uid 0: nobody is given anything
}

// ownerOf says whom a directory belongs to; 0 if that cannot be told.
func ownerOf(dir string) (uid, gid int) {
	info, err := os.Stat(dir)
	if err != nil {
		return 0, 0
	}
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		return int(st.Uid), int(st.Gid)
	}
	return 0, 0
}

// local checks a path of the model and returns it in its shortest form. What
// os.Root would refuse later is refused here in clear words.
func local(path string) (string, error) {
	switch {
	case strings.TrimSpace(path) == "":
		return "", errors.New(`the path is empty: write a path within the workspace, "." for the workspace itself`)
	case strings.ContainsRune(path, 0):
		return "", errors.New("the path holds a NUL character")
	case filepath.IsAbs(path):
		return "", fmt.Errorf("%s is absolute: write a path relative to the workspace", name(path))
	}
	for part := range strings.SplitSeq(filepath.ToSlash(path), "/") {
		if part == ".." {
			return "", fmt.Errorf("%s: .. is not allowed, paths stay within the workspace", name(path))
		}
	}
	clean := filepath.Clean(path)
	if !filepath.IsLocal(clean) {
		return "", fmt.Errorf("%s is not within the workspace", name(path))
	}
	return clean, nil
}

// explain turns an error of the file system into words for the model, without
// any path of the host.
func explain(verb, path string, err error) string {
	var pathErr *fs.PathError
	var linkErr *os.LinkError
	reason := err
	switch {
	case errors.As(err, &pathErr):
		reason = pathErr.Err
	case errors.As(err, &linkErr):
		reason = linkErr.Err
	}
	text := reason.Error()
	switch {
	case errors.Is(err, fs.ErrNotExist):
		text = "it does not exist"
	case errors.Is(err, fs.ErrPermission):
		text = "permission denied"
	case strings.Contains(text, "path escapes"):
		text = "it leads out of the workspace"
	}
	return clean(fmt.Sprintf("cannot %s %s: %s", verb, name(path), text))
}

// kindOf names what is no regular file.
func kindOf(mode fs.FileMode) string {
	switch {
	case mode.IsDir():
		return "a directory"
	case mode&fs.ModeSymlink != 0:
		return "a symbolic link"
	case mode&fs.ModeNamedPipe != 0:
		return "a named pipe"
	case mode&fs.ModeSocket != 0:
		return "a socket"
	case mode&fs.ModeDevice != 0:
		return "a device"
	case mode.IsRegular():
		return "a file"
	}
	return "no regular file"
}
