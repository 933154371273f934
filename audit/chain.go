// Package audit is the hash chain over what was asked, decided and done: how a
// row becomes bytes, how rows are linked, and how a chain is verified. It is
// pure; package store writes the rows in the commit of the state they tell of.
//
// There is one chain per session. Row n carries the hash of row n-1 and its own:
//
//	hash = SHA-256( 0x00 ‖ version ‖ fields, each with its length ‖ prev_hash )
//
// The hash is over the stored values and never over a database's rendering of
// the row, so any program can recompute it from an export. Fields and order are
// in docs/audit.md.
package audit

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"time"
)

// Version of the encoding; a change of fields or order is a new version.
const Version = 1

// Row is one row of audit_log. Nil is the database's null; the chain tells it
// from the empty text.
type Row struct {
	SessionID string    `json:"session_id"`
	Seq       int64     `json:"seq"` // from 1, without gaps
	At        time.Time `json:"at"`  // microseconds count, nothing finer
	Kind      string    `json:"kind"`

	TurnID      *string `json:"turn_id"`
	CallID      *string `json:"call_id"`
	ApprovalID  *string `json:"approval_id"`
	Tool        *string `json:"tool"`
	Args        *string `json:"args"` // canonical JSON with secrets masked, see StableArgs
	ArgsSHA256  *string `json:"args_sha256"`
	Decision    *string `json:"decision"`
	Source      *string `json:"source"`
	Actor       *string `json:"actor"`
	Channel     *string `json:"channel"`
	Backchannel *string `json:"backchannel"`
	Rule        *string `json:"rule"`
	Reason      *string `json:"reason"`
	LatencyMS   *int64  `json:"latency_ms"`

	PrevHash string `json:"prev_hash"` // hex; empty for the first row
	Hash     string `json:"hash"`      // hex
}

// Sum returns the hash that belongs to r, from all its fields but Hash.
func Sum(r Row) string {
	h := sha256.New()
	buf := make([]byte, 0, 512)
	buf = append(buf, 0x00, Version)
	buf = appendText(buf, &r.SessionID)
	buf = appendInt(buf, &r.Seq)
	at := r.At.UnixMicro()
	buf = appendInt(buf, &at)
	buf = appendText(buf, &r.Kind)
	for _, f := range []*string{r.TurnID, r.CallID, r.ApprovalID, r.Tool, r.Args, r.ArgsSHA256, r.Decision,
		r.Source, r.Actor, r.Channel, r.Backchannel, r.Rule, r.Reason} {
		buf = appendText(buf, f)
	}
	buf = appendInt(buf, r.LatencyMS)
	buf = appendText(buf, &r.PrevHash)
	h.Write(buf)
	return hex.EncodeToString(h.Sum(nil))
}

// appendText writes 0 for null, else 1, the length as four bytes big-endian, and
// the bytes.
func appendText(buf []byte, s *string) []byte {
	if s == nil {
		return append(buf, 0)
	}
	buf = append(buf, 1)
	buf = binary.BigEndian.AppendUint32(buf, uint32(len(*s)))
	return append(buf, *s...)
}

// appendInt writes 0 for null, else 1 and eight bytes big-endian.
func appendInt(buf []byte, n *int64) []byte {
	if n == nil {
		return append(buf, 0)
	}
	return binary.BigEndian.AppendUint64(append(buf, 1), uint64(*n))
}

// Head is the end of a session's chain. The zero Head is an empty chain.
type Head struct {
	Seq  int64
	Hash string
}

// Link sets seq, prev_hash and hash of r behind the head and returns the new head.
func (h Head) Link(r *Row) Head {
	r.Seq = h.Seq + 1
	r.PrevHash = h.Hash
	r.Hash = Sum(*r)
	return Head{Seq: r.Seq, Hash: r.Hash}
}

// BadRow is the first fault of a chain.
type BadRow struct {
	SessionID string `json:"session_id"`
	Seq       int64  `json:"seq"`
	Why       string `json:"why"`
}

func (b *BadRow) Error() string {
	return fmt.Sprintf("session %s, seq %d: %s", b.SessionID, b.Seq, b.Why)
}

// Verifier checks the rows of one session, given in order of seq.
type Verifier struct {
	session string
	head    Head
}

// NewVerifier begins a chain.
func NewVerifier(session string) *Verifier { return &Verifier{session: session} }

// Row checks the next row. The error is a *BadRow.
func (v *Verifier) Row(r Row) error {
	bad := func(format string, args ...any) error {
		return &BadRow{SessionID: v.session, Seq: r.Seq, Why: fmt.Sprintf(format, args...)}
	}
	switch {
	case r.SessionID != v.session:
		return bad("belongs to session %s", r.SessionID)
	case r.Seq != v.head.Seq+1:
		return &BadRow{SessionID: v.session, Seq: v.head.Seq + 1, Why: fmt.Sprintf("row is missing, the next one has seq %d", r.Seq)}
	case r.PrevHash != v.head.Hash:
		return bad("prev_hash is not the hash of the row before")
	case r.Hash != Sum(r):
		return bad("hash does not match the row's content")
	}
	v.head = Head{Seq: r.Seq, Hash: r.Hash}
	return nil
}

// End checks that the chain ends where the session says it does. The error is a
// *BadRow.
func (v *Verifier) End(want Head) error {
	if v.head != want {
		return &BadRow{SessionID: v.session, Seq: v.head.Seq + 1,
			Why: fmt.Sprintf("chain ends at seq %d, the session's head says %d", v.head.Seq, want.Seq)}
	}
	return nil
}
