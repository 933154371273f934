package agent

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
)

// RequestSHA256 is what a consent is bound to: where and for whom the call was
// asked, the tool as it was defined then, and the exact arguments. Each field
// goes in with its length, so that no two calls share a hash by shifting text
// from one field to the next.
func RequestSHA256(session SessionID, place Place, c ToolCall) string {
	h := sha256.New()
	h.Write([]byte("clawbot request 1\x00"))
	for _, f := range []string{
		string(place.Channel), place.Workspace, place.Conversation, place.Thread,
		string(session), string(c.Turn), string(c.ID), c.Tool, c.Definition, c.Args,
	} {
		var n [8]byte
		binary.BigEndian.PutUint64(n[:], uint64(len(f)))
		h.Write(n[:])
		h.Write([]byte(f))
	}
	return hex.EncodeToString(h.Sum(nil))
}
