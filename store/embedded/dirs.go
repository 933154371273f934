package embedded

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"github.com/clawbot/clawbot/store/internal/pgserver"
)

// makeDataDir makes dir, and what is missing above it, and returns its name
// without symbolic links. What it makes is for this user alone, except that
// as root others may pass through: one of them runs Postgres. What is there
// keeps the mode it has.
func makeDataDir(dir string) (string, error) {
	if dir == "" {
		return "", errors.New("open database: no data directory given: set CLAWBOT_DATA_DIR")
	}
	dir, err := filepath.Abs(dir)
	if err != nil {
		return "", err
	}
	mode := fs.FileMode(0o700)
	if os.Geteuid() == 0 {
		mode = 0o711
	}
	if err := makeDirs(dir, mode); err != nil {
		return "", err
	}
	return filepath.EvalSymlinks(dir)
}

func makeDirs(dir string, mode fs.FileMode) error {
	switch _, err := os.Stat(dir); {
	case err == nil:
		return nil
	case !errors.Is(err, fs.ErrNotExist):
		return err
	}
	if err := makeDirs(filepath.Dir(dir), mode); err != nil {
		return err
	}
	if err := os.Mkdir(dir, mode); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return os.Chmod(dir, mode) // whatever the umask says
}

// makeRuntimeDir makes a directory for the socket of a cluster whose own name
// is too long for one. Its name depends on the cluster's only. Since others
// may write beside it, it must turn out to be the account's own.
func makeRuntimeDir(account pgserver.Account, cluster string) (string, error) {
	places := []string{os.Getenv("XDG_RUNTIME_DIR"), "/tmp"}
	if os.Geteuid() == 0 {
		places = []string{"/run", "/var/run", "/tmp"}
	}
	sum := sha256.Sum256([]byte(cluster))
	name := "clawbot-" + hex.EncodeToString(sum[:6])
	var errs error
	for _, place := range places {
		dir := filepath.Join(place, name)
		if !filepath.IsAbs(dir) || !pgserver.SocketFits(dir) {
			continue
		}
		err := ownDir(account, dir)
		if err == nil {
			return dir, nil
		}
		errs = errors.Join(errs, err)
	}
	return "", fmt.Errorf("find a place for the database's socket: %w", errs)
}

func ownDir(account pgserver.Account, dir string) error {
	err := os.Mkdir(dir, 0o700)
	if err == nil {
		return account.Own(dir)
	}
	if !errors.Is(err, fs.ErrExist) {
		return err
	}
	info, err := os.Lstat(dir)
	if err != nil {
		return err
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok || !info.IsDir() || info.Mode().Perm() != 0o700 || int(st.Uid) != account.UID {
		return fmt.Errorf("use %s: it is not the private directory of %s: remove it", dir, account.Name)
	}
	return nil
}
