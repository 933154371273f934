package agent

import "time"

// AuditRecord is one row of the audit before it enters the chain.
type AuditRecord struct {
	Kind        AuditKind
	Turn        TurnID
	Call        CallID
	Approval    ApprovalID
	Tool        string
	Args        string // JSON object with secrets masked; empty = null
	ArgsSHA256  string
	Decision    string
	Source      Source
	Actor       Actor
	Channel     ChannelName
	Backchannel ChannelName
	Rule        string
	Reason      string
	Latency     time.Duration // waiting or running time; negative = null
}

// AuditKind is the kind of an audit row.
type AuditKind string

const (
	AuditPolicyDecision    AuditKind = "policy_decision"
	AuditApprovalRequested AuditKind = "approval_requested"
	AuditApprovalVote      AuditKind = "approval_vote"
	AuditApprovalDecided   AuditKind = "approval_decided"
	AuditClickRefused      AuditKind = "click_refused"
	AuditToolStarted       AuditKind = "tool_started"
	AuditToolFinished      AuditKind = "tool_finished"
	AuditGrantCreated      AuditKind = "grant_created"
	AuditGrantUsed         AuditKind = "grant_used"
	AuditGrantRevoked      AuditKind = "grant_revoked"
)
