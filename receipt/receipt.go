// Package receipt makes and checks receipts: one line of evidence, behind a result that
// the model reads and stored with its call, that this is what the tool handed back for
// these arguments. A receipt is a keyed hash (HMAC-SHA-256). Its key lives in a file and
// never in the database, so who can write the database cannot make one.
//
// A receipt is no consent and no audit, and receipts are no chain: that one is missing
// shows nothing. Its scope is the session and the turn.
package receipt

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/clawbot/clawbot/agent"
)

// keySize is the length of a key in bytes; its file holds them in hex.
const keySize = 32

// version is the form of a receipt: v1.KEY.MAC, where KEY names the key.
const version = "v1"

// Key signs and checks receipts. It prints as its public id.
type Key struct {
	secret []byte
	id     string
}

var _ agent.Receipts = (*Key)(nil)

// ErrNoKey: there is no key file.
var ErrNoKey = errors.New("there is no key of receipts")

// ErrOtherKey: the receipt was made with another key, so this one says nothing of it.
var ErrOtherKey = errors.New("the receipt was made with another key")

// ErrMismatch: the receipt is not for this result.
var ErrMismatch = errors.New("the receipt does not match the call")

// Read reads a key file. The error is ErrNoKey where there is none.
func Read(path string) (*Key, error) {
	text, err := os.ReadFile(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, ErrNoKey
	case err != nil:
		return nil, fmt.Errorf("read the key of receipts: %w", err)
	}
	secret, err := hex.DecodeString(strings.TrimSpace(string(text)))
	if err != nil || len(secret) != keySize {
		return nil, fmt.Errorf("read the key of receipts: %s does not hold %d hexadecimal digits; write them (openssl rand -hex %d makes some) or remove the file", path, 2*keySize, keySize)
	}
	sum := agent.HashParts("clawbot receipt key 1", string(secret))
	return &Key{secret, hex.EncodeToString(sum[:4])}, nil
}

// Open reads a key file and makes it, with mode 0600, if there is none. Of several
// processes that make it at once all get the same key.
func Open(path string) (*Key, error) {
	k, err := Read(path)
	if !errors.Is(err, ErrNoKey) {
		return k, err
	}
	if err := create(path); err != nil {
		return nil, fmt.Errorf("make the key of receipts: %w", err)
	}
	return Read(path)
}

// create writes a new key beside path and gives it that name, if nobody has by then.
func create(path string) error {
	secret := make([]byte, keySize)
	if _, err := rand.Read(secret); err != nil {
		return err
	}
	dir := filepath.Dir(path)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	f, err := os.CreateTemp(dir, ".receipt-key-*") // mode 0600
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	if _, err := f.WriteString(hex.EncodeToString(secret) + "\n"); err != nil {
		return errors.Join(err, f.Close())
	}
	if err := errors.Join(f.Sync(), f.Close()); err != nil {
		return err
	}
	if err := os.Link(f.Name(), path); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return nil
}

// ID names the key without telling it.
func (k *Key) ID() string { return k.id }

// String is the id: a key that is printed by mistake tells nothing.
func (k *Key) String() string { return "receipt key " + k.id }

// GoString is String, for %#v.
func (k *Key) GoString() string { return k.String() }

// Sign implements agent.Receipts.
func (k *Key) Sign(e agent.Evidence) string {
	return version + "." + k.id + "." + hex.EncodeToString(k.mac(e))
}

// Verify checks a receipt. It returns nil, ErrOtherKey or ErrMismatch.
func (k *Key) Verify(receipt string, e agent.Evidence) error {
	form, rest, _ := strings.Cut(receipt, ".")
	id, text, ok := strings.Cut(rest, ".")
	mac, err := hex.DecodeString(text)
	switch {
	case form != version || !ok || err != nil:
		return ErrMismatch
	case id != k.id:
		return ErrOtherKey
	case !hmac.Equal(mac, k.mac(e)):
		return ErrMismatch
	}
	return nil
}

// mac is over the fields, each with its length, so that nothing of one can pass for
// part of another.
func (k *Key) mac(e agent.Evidence) []byte {
	h := hmac.New(sha256.New, k.secret)
	sum := agent.HashParts("clawbot receipt 1", string(e.Session), string(e.Turn), string(e.Call), e.Tool, e.ArgsSHA256, e.Output)
	h.Write(sum[:])
	return h.Sum(nil)
}
