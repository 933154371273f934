package embedded

import (
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"

	"github.com/clawbot/clawbot/store/internal/pgserver"
)

// Role is whom to connect as.
type Role string

const (
	// Service has the rights on tables that migrations give it, and no others.
	Service Role = "clawbot"
	// Owner owns the database and all in it, and migrates it.
	Owner Role = "clawbot_owner"
)

// URL is a connection string with its password. However it is printed or
// logged, it shows none.
type URL struct {
	user, query string
	secret      *string // a pointer, because fmt prints what private fields hold
}

func newURL(role Role, password, socketDir string) URL {
	return URL{user: string(role), secret: &password, query: pgserver.SocketQuery(socketDir)}
}

// Reveal is the whole of it, for pgx.
func (u URL) Reveal() string { return u.with(url.UserPassword(u.user, *u.secret)) }

// String is the URL without the password.
func (u URL) String() string { return u.with(url.User(u.user)) }

// GoString is String, for %#v.
func (u URL) GoString() string { return u.String() }

// LogValue is String, for slog.
func (u URL) LogValue() slog.Value { return slog.StringValue(u.String()) }

// MarshalText is String, for encoders.
func (u URL) MarshalText() ([]byte, error) { return []byte(u.String()), nil }

func (u URL) with(user *url.Userinfo) string {
	return (&url.URL{Scheme: "postgres", User: user, Path: "/clawbot", RawQuery: u.query}).String()
}

const keysName = "postgres.keys"

// keys are the passwords of the roles.
type keys struct {
	Owner   string `json:"clawbot_owner"`
	Service string `json:"clawbot"`
}

func newKeys() keys { return keys{Owner: rand.Text(), Service: rand.Text()} }

func (k keys) of(role Role) string {
	if role == Owner {
		return k.Owner
	}
	return k.Service
}

func readKeys(dataDir string) (keys, error) {
	path := filepath.Join(dataDir, keysName)
	b, err := os.ReadFile(path)
	if err != nil {
		return keys{}, err
	}
	var k keys
	if err := json.Unmarshal(b, &k); err != nil || k.Owner == "" || k.Service == "" {
		return keys{}, fmt.Errorf("read %s: it is damaged: remove it, and new passwords are made", path)
	}
	return k, nil
}

// write replaces the file in one step.
func (k keys) write(dataDir string) error {
	b, err := json.Marshal(k)
	if err != nil {
		return err
	}
	path := filepath.Join(dataDir, keysName)
	tmp := path + ".new"
	if err := os.Remove(tmp); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	f, err := os.OpenFile(tmp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(append(b, '\n'))
	if err := errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	if err := os.Rename(tmp, path); err != nil {
		return err
	}
	return pgserver.SyncDir(dataDir)
}
