package agent

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"time"
)

// GrantID is "grt_…": one standing consent.
type GrantID string

// Grant is a standing consent: the same call, in the same session, for the same person
// and under the same terms is not asked about again, so often and so long. It is given
// with an approval, by who may give that, and covers nothing else: not another argument,
// not another thread, not another tool of that name.
type Grant struct {
	ID         GrantID
	Session    SessionID
	Tool       string
	Args       string // of the approval it came with; shown where grants are listed
	ArgsSHA256 string
	Definition string // hash of the tool's definition then
	Terms      string // Judgement.Terms then: a change of who may decide ends the grant
	GrantedBy  Actor
	GrantedTo  Actor // whose turns it is for
	Approval   ApprovalID
	CreatedAt  time.Time
	ExpiresAt  time.Time
	UsesLeft   int
	RevokedAt  time.Time // zero: not revoked
	RevokedBy  Actor
}

// Bounds of a grant. MaxGrantTime and MaxGrantUses are the most that may be given.
const (
	DefaultGrantTime = 24 * time.Hour
	DefaultGrantUses = 20
	MaxGrantTime     = 30 * 24 * time.Hour
	MaxGrantUses     = 1000
)

// GrantQuery is what a grant must match to answer a question.
type GrantQuery struct {
	Session    SessionID
	Tool       string
	ArgsSHA256 string
	Definition string
	Terms      string
	For        Actor
}

// Terms is a hash of who may decide. Consent that was given under other terms does not
// count under these.
func (j Judgement) Terms() string {
	who, err := json.Marshal(j.Approvers)
	if err != nil {
		return ""
	}
	sum := HashParts("clawbot terms 1", string(who), fmt.Sprint(j.Quorum))
	return hex.EncodeToString(sum[:])
}

// granted reports whether a grant answers for a call that would be asked about, and if
// so uses it up by one, in the commit that stores the call.
func (r *run) granted(ctx context.Context, c *ToolCall, j Judgement) (bool, error) {
	if j.Quorum != 1 || j.Action != Ask {
		return false, nil
	}
	g, err := r.Store.FindGrant(ctx, GrantQuery{
		Session: r.work.Turn.Session, Tool: c.Tool, ArgsSHA256: c.ArgsSHA256, Definition: c.Definition, Terms: j.Terms(), For: r.work.Turn.Origin.Author})
	if err != nil {
		return false, fmt.Errorf("%w: look for a grant: %w", errSave, err)
	}
	if g.ID == "" {
		return false, nil
	}
	c.Grant = g.ID
	r.step.Calls = append(r.step.Calls, *c)
	r.step.GrantUses = append(r.step.GrantUses, g.ID)
	r.audit(AuditRecord{Kind: AuditGrantUsed, Approval: g.Approval, Decision: string(Allow), Source: SourceGrant, Rule: j.Rule,
		Reason: fmt.Sprintf("%s, given by %s", g.ID, g.GrantedBy), Latency: -1}, c)
	return true, nil
}
