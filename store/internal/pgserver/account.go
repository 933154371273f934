package pgserver

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"syscall"
)

// Account is whom Postgres runs as.
type Account struct {
	Name     string
	UID, GID int
	drop     bool // we are root and give up that right for the child
}

// Unprivileged is the account for a new cluster: ourselves, or, for root,
// postgres or nobody, because PostgreSQL refuses to run as root.
func Unprivileged() (Account, error) {
	if os.Geteuid() != 0 {
		return Account{Name: "this user", UID: os.Geteuid(), GID: os.Getegid()}, nil
	}
	for _, name := range []string{"postgres", "nobody"} {
		u, err := user.Lookup(name)
		if err != nil {
			continue
		}
		return accountOf(u)
	}
	return Account{}, errors.New("find an account for Postgres: it refuses to run as root, and there is no user postgres or nobody: create one, run clawbot as another user, or set DATABASE_URL")
}

// OwnerOf is the account that an existing cluster belongs to.
func OwnerOf(dir string) (Account, error) {
	uid, gid, err := ownerIDs(dir)
	if err != nil {
		return Account{}, err
	}
	me := os.Geteuid()
	switch {
	case me != 0 && uid != me:
		return Account{}, fmt.Errorf("open %s: it belongs to user %d: run clawbot as that user or as root", dir, uid)
	case me != 0:
		return Account{Name: "this user", UID: me, GID: os.Getegid()}, nil
	case uid == 0:
		return Account{}, fmt.Errorf("open %s: it belongs to root, and Postgres refuses to run as root", dir)
	}
	name := strconv.Itoa(uid)
	if u, err := user.LookupId(name); err == nil {
		return accountOf(u)
	}
	return Account{Name: name, UID: uid, GID: gid, drop: true}, nil
}

func accountOf(u *user.User) (Account, error) {
	uid, err1 := strconv.ParseInt(u.Uid, 10, 64)
	gid, err2 := strconv.ParseInt(u.Gid, 10, 64)
	if err := errors.Join(err1, err2); err != nil {
		return Account{}, fmt.Errorf("read ids of user %s: %w", u.Username, err)
	}
	return Account{Name: "user " + u.Username, UID: int(uid), GID: int(gid), drop: true}, nil
}

// Own gives path to the account; nothing to do when that is ourselves.
func (a Account) Own(path string) error {
	if !a.drop {
		return nil
	}
	return os.Lchown(path, a.UID, a.GID)
}

// WriteFile puts a file of the account, mode 0600, into dir, a directory of
// the account, in one step and on disk. It follows no link that the account
// may have laid there: we may be root.
func (a Account) WriteFile(dir, name string, data []byte) (err error) {
	path := filepath.Join(dir, name)
	defer func() {
		if err != nil {
			err = fmt.Errorf("write %s: %w", path, err)
		}
	}()
	tmp := path + ".new"
	if err := os.Remove(tmp); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	f, err := os.OpenFile(tmp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if a.drop {
		err = errors.Join(err, f.Chown(a.UID, a.GID))
	}
	if err := errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	if err := os.Rename(tmp, path); err != nil {
		return err
	}
	return SyncDir(dir)
}

// SyncDir makes what was renamed in dir survive a power failure.
func SyncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// Command is exec.CommandContext for a program of the account, in a session
// of its own: a terminal's Ctrl-C and hang-up don't reach it. It gets none of
// our environment, which has tokens in it. When ctx ends, the program and all
// it started are killed.
func (a Account) Command(ctx context.Context, name string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = "/"
	cmd.Env = []string{"PATH=/usr/bin:/bin:/usr/sbin:/sbin", "LC_ALL=C", "TZ=UTC"}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if a.drop {
		cmd.SysProcAttr.Credential = &syscall.Credential{Uid: uint32(a.UID), Gid: uint32(a.GID)}
	}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	return cmd
}

// CanReach checks that the account may enter dir and every directory above
// it. The error names the first that it may not.
func (a Account) CanReach(dir string) error {
	if !a.drop {
		return nil
	}
	closed, err := a.firstClosed(dir)
	if err != nil || closed == "" {
		return err
	}
	// The mode bits say no. Access lists may still say yes: try it.
	try := a.Command(context.Background(), "/bin/sh", "-c", ":")
	try.Dir = dir
	if try.Run() == nil {
		return nil
	}
	return fmt.Errorf("open %s: %s, which runs Postgres, may not enter %s: run \"chmod a+x %s\" or set CLAWBOT_DATA_DIR to another place", dir, a.Name, closed, closed)
}

func (a Account) firstClosed(dir string) (string, error) {
	for _, d := range ancestors(dir) {
		info, err := os.Stat(d)
		if err != nil {
			return "", err
		}
		uid, gid, err := ownerIDs(d)
		if err != nil {
			return "", err
		}
		need := fs.FileMode(0o001)
		switch {
		case uid == a.UID:
			need = 0o100
		case gid == a.GID:
			need = 0o010
		}
		if info.Mode()&need == 0 {
			return d, nil
		}
	}
	return "", nil
}

// ancestors lists / and all below it down to dir.
func ancestors(dir string) []string {
	if parent := filepath.Dir(dir); parent != dir {
		return append(ancestors(parent), dir)
	}
	return []string{dir}
}

func ownerIDs(path string) (uid, gid int, err error) {
	info, err := os.Stat(path)
	if err != nil {
		return 0, 0, err
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return 0, 0, fmt.Errorf("read owner of %s: not known on this system", path)
	}
	return int(st.Uid), int(st.Gid), nil
}
