package agent

import (
	"crypto/rand"
	"encoding/base32"
	"encoding/binary"
	"strings"
	"time"
)

// Ids are distinct types so that they cannot be swapped. All are opaque text:
// a short prefix and 26 characters. A tool call's id is the provider's own
// (unique within its turn) and has no fixed form.
type (
	SessionID  string // "ses_…": one thread or direct message
	TurnID     string // "turn_…": one message and everything it led to
	CallID     string // the model's id of a tool call, unique within its turn
	ApprovalID string // "ap_…": one question to people
	DeliveryID string // "dlv_…": one thing to post or edit
	JobID      string // "job_…": one scheduled prompt
)

var idEncoding = base32.NewEncoding("0123456789abcdefghjkmnpqrstvwxyz").WithPadding(base32.NoPadding)

// NewID returns prefix + "_" + 26 characters: 48 bits of milliseconds, so that
// keys of one table are written near each other, then 80 random bits, so that
// an id that was not handed out cannot be guessed.
func NewID[T ~string](prefix string, now time.Time) T {
	var b [16]byte
	binary.BigEndian.PutUint64(b[:8], uint64(now.UnixMilli())<<16)
	rand.Read(b[6:]) // never fails: crypto/rand aborts the program instead
	var out strings.Builder
	out.Grow(len(prefix) + 27)
	out.WriteString(prefix)
	out.WriteByte('_')
	out.WriteString(idEncoding.EncodeToString(b[:]))
	return T(out.String())
}
