package pgtest

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/clawbot/clawbot/store/internal/pgserver"
)

// installation is what servers are made of on this machine.
type installation struct {
	programs pgserver.Programs
	account  pgserver.Account
	root     string // this user's directory in memory or under the temporary one
}

// findInstallation looks for PostgreSQL, and for a directory on a disk or, if
// nothing speaks against it, in memory.
func findInstallation(place func() string) (installation, error) {
	programs, err := pgserver.Find(0)
	if err != nil {
		return installation{}, err
	}
	account, err := pgserver.Unprivileged()
	if err != nil {
		return installation{}, err
	}
	root, err := rootDir(place())
	if err != nil {
		return installation{}, err
	}
	if err := account.CanReach(root); err != nil {
		return installation{}, err
	}
	return installation{programs: programs, account: account, root: root}, nil
}

// inMemory is Linux' memory file system if it is there and has room, or else
// the temporary directory. A database is some 300 files: there a copy of one
// takes 5 ms, on a disk 90. Whoever sets TMPDIR gets what they set.
func inMemory() string {
	const shm, room = "/dev/shm", 2 << 30
	var fs unix.Statfs_t
	if os.Getenv("TMPDIR") == "" && unix.Access(shm, unix.W_OK) == nil &&
		unix.Statfs(shm, &fs) == nil && uint64(fs.Bavail)*uint64(fs.Bsize) > room {
		return shm
	}
	return os.TempDir()
}

// rootDir is the directory of all servers of this user. Its name is known to
// everyone, so it must be ours.
func rootDir(place string) (string, error) {
	place, err := filepath.EvalSymlinks(place)
	if err != nil {
		return "", err
	}
	name := fmt.Sprintf("clawbot-pgtest-%d", os.Geteuid())
	dir := filepath.Join(place, name)
	if longest := filepath.Join(dir, "01234567", "server-0123456789", dataDir); !pgserver.SocketFits(longest) {
		dir = filepath.Join("/tmp", name)
	}
	if err := ownDir(dir); err != nil {
		return "", err
	}
	return dir, nil
}

// ownDir makes dir, or checks that it is a directory of ours that others
// cannot write to. The account that runs Postgres may pass through it.
func ownDir(dir string) error {
	err := os.Mkdir(dir, 0o700)
	if err == nil {
		return os.Chmod(dir, 0o711)
	}
	info, lerr := os.Lstat(dir)
	if lerr != nil {
		return err
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok || !info.IsDir() || int(st.Uid) != os.Geteuid() || info.Mode()&0o022 != 0 {
		return fmt.Errorf("use %s: it is not a directory that only this user can write to: remove it", dir)
	}
	return nil
}

// home is the directory of this checkout's servers.
func (i installation) home() (string, error) {
	dir := filepath.Join(i.root, checkout())
	return dir, ownDir(dir)
}

func (i installation) newDir(home string) (string, error) {
	dir, err := os.MkdirTemp(home, "server-")
	if err != nil {
		return "", err
	}
	return dir, os.Chmod(dir, 0o711)
}

// throwaway are the settings for a server that is thrown away: nothing is synced to
// disk. A commit still reaches the operating system before it is reported, so
// it survives a kill of Postgres as it does in production.
var throwaway = map[string]string{
	"fsync":                           "off",
	"full_page_writes":                "off",
	"autovacuum":                      "off",
	"max_connections":                 "300",
	"max_locks_per_transaction":       "128",
	"shared_buffers":                  "64MB",
	"wal_level":                       "minimal",
	"max_wal_senders":                 "0",
	"max_logical_replication_workers": "0",
	"checkpoint_timeout":              "1h",
	"max_wal_size":                    "256MB",
	"dynamic_shared_memory_type":      "mmap", // in the cluster: a killed server leaves nothing elsewhere
	"timezone":                        "UTC",
	"log_checkpoints":                 "off",
}

// trustAll lets everyone in who can reach the socket: the directory it is in
// admits only us and the account that runs Postgres.
const trustAll = "local all all trust\n"

// runIn makes a cluster in dir and hands it to start. A cluster that doesn't
// start came from a damaged copy: a second try is made without the copy.
func (i installation) runIn(ctx context.Context, dir string, settings map[string]string, start func(pgserver.Config) error) error {
	cfg := pgserver.Config{
		Programs:  i.programs,
		Account:   i.account,
		Dir:       filepath.Join(dir, dataDir),
		SocketDir: filepath.Join(dir, dataDir),
		Settings:  settings,
	}
	lock, _, err := pgserver.Claim(ctx, cfg.Dir, filepath.Join(dir, runLock))
	if err != nil {
		return err
	}
	defer lock.Close() // the server has it by then
	cfg.Lock = lock
	try := func() error {
		if err := i.copyCluster(ctx, cfg.Dir); err != nil {
			return err
		}
		return start(cfg)
	}
	first := try()
	if first == nil || ctx.Err() != nil {
		return first
	}
	if err := errors.Join(os.RemoveAll(cfg.Dir), os.RemoveAll(i.cache())); err != nil {
		return errors.Join(first, err)
	}
	return try()
}

// cache is where a cluster is kept that was made once for this version of
// PostgreSQL and this account, since copying takes a third of the time that
// initdb takes.
func (i installation) cache() string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%s\n%d\n%s", i.programs.Version, i.account.UID, trustAll))
	return filepath.Join(i.root, "initdb-"+hex.EncodeToString(sum[:6]))
}

func (i installation) copyCluster(ctx context.Context, data string) error {
	if err := i.fillCache(ctx); err != nil {
		return err
	}
	if err := errors.Join(os.Mkdir(data, 0o700), i.account.Own(data)); err != nil {
		return err
	}
	out, err := i.account.Command(ctx, "/bin/cp", "-Rp", i.cache()+"/.", data).CombinedOutput()
	if err != nil {
		return fmt.Errorf("copy %s: %w: %s", i.cache(), err, bytes.TrimSpace(out))
	}
	return nil
}

// fillCache makes the cached cluster if it is not there. It gets its name
// only when it is complete.
func (i installation) fillCache(ctx context.Context) error {
	lock, err := awaitLock(ctx, filepath.Join(i.root, guardLock))
	if err != nil {
		return err
	}
	defer lock.Close()
	if _, err := os.Stat(i.cache()); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	killed, err := filepath.Glob(filepath.Join(i.root, "draft-*"))
	if err != nil {
		return err
	}
	for _, dir := range killed {
		if err := os.RemoveAll(dir); err != nil {
			return err
		}
	}
	draft, err := os.MkdirTemp(i.root, "draft-")
	if err != nil {
		return err
	}
	err = i.account.Own(draft)
	if err == nil {
		err = pgserver.Init(ctx, i.programs, i.account, lock, draft, true)
	}
	if err == nil {
		err = i.account.WriteFile(draft, "pg_hba.conf", []byte(trustAll))
	}
	if err == nil {
		err = os.Rename(draft, i.cache())
	}
	if err != nil {
		return errors.Join(err, os.RemoveAll(draft))
	}
	return nil
}
