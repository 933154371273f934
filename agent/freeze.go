package agent

import "encoding/hex"

// RequestSHA256 is what a consent is bound to: where and for whom the call was
// asked, the tool as it was defined then, and the exact arguments.
func RequestSHA256(session SessionID, place Place, c ToolCall) string {
	sum := HashParts("clawbot request 1",
		string(place.Channel), place.Workspace, place.Conversation, place.Thread,
		string(session), string(c.Turn), string(c.ID), c.Tool, c.Definition, c.Args)
	return hex.EncodeToString(sum[:])
}
