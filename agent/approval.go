package agent

import (
	"context"
	"time"
)

// ApprovalStatus is the state of a question to people.
type ApprovalStatus string

const (
	ApprovalPending       ApprovalStatus = "pending"
	ApprovalApproved      ApprovalStatus = "approved"
	ApprovalDenied        ApprovalStatus = "denied"
	ApprovalReplaced      ApprovalStatus = "replaced"
	ApprovalExpired       ApprovalStatus = "expired"
	ApprovalCancelled     ApprovalStatus = "cancelled"
	ApprovalUndeliverable ApprovalStatus = "undeliverable"
)

// Approval is one question to people about one frozen call, with its decision
// once there is one.
type Approval struct {
	ID      ApprovalID
	Session SessionID
	Turn    TurnID
	Call    CallID
	Place   Place // where the card is; the asking thread
	Status  ApprovalStatus

	Tool          string
	Args          string // the frozen bytes
	ArgsSHA256    string
	RequestSHA256 string // over everything the consent is bound to
	Filled        []string

	Requester     Actor
	RequesterName string
	Rule          string
	Why           string // the policy's reason for asking
	TargetArg     string // ask_input: the argument that takes the value; empty for ask
	Prompt        string // ask_input: the question
	Secret        bool   // ask_input: the value is shown to nobody
	Approvers     Approvers
	Quorum        int
	Timeout       time.Duration
	AskedAt       time.Time
	Deadline      time.Time // by the database's clock
	CardRef       string    // the platform's id of the card; empty until it is confirmed

	Votes     []Vote
	DecidedAt time.Time
	DecidedBy Actor
	// DecidedByName is how that person was called then; untrusted text.
	DecidedByName string
	Source        Source
	Reason        string
	// Replacement is what a person said instead of letting the call run.
	Replacement string
	// Backchannel is where the decision was made.
	Backchannel ChannelName

	// CallStatus is the state of the call itself, so that the card can say what
	// happened after the decision.
	CallStatus  CallStatus
	CallLatency time.Duration
}

// SecretArg is the argument whose value is shown to nobody, if there is one.
func (a Approval) SecretArg() string {
	if a.Secret {
		return a.TargetArg
	}
	return ""
}

// Vote is one person's yes.
type Vote struct {
	Actor Actor
	Name  string
	At    time.Time
}

// Verb is what somebody wants to do with an approval.
type Verb string

const (
	VerbApprove Verb = "approve"
	VerbDeny    Verb = "deny"
	VerbDetails Verb = "details"
	VerbInput   Verb = "input"   // yes, with the value that ask_input wants
	VerbAlways  Verb = "always"  // yes, and the same call is not asked about again for a while
	VerbReplace Verb = "replace" // no; the model reads Click.Value as the result
)

// Click is a person's act on a card, whatever it was made with: a button, a
// modal, the terminal, the command line. Actor comes from the authenticated
// event, never from text.
type Click struct {
	Approval  ApprovalID
	Verb      Verb
	Actor     Actor
	ActorName string
	Reason    string
	Value     string // of VerbInput and VerbReplace, as it was typed
	// Always bounds the grant of VerbAlways; zero is DefaultGrantTime and DefaultGrantUses.
	AlwaysFor  time.Duration
	AlwaysUses int
	// Try only asks whether this person may do it now, before a form is opened.
	// Nothing is decided; a refusal is recorded all the same.
	Try         bool
	Backchannel ChannelName
}

// Verdict is what became of a Click. Where it was not accepted, Text is for the
// clicker alone and says why.
type Verdict struct {
	Accepted bool
	Status   ApprovalStatus
	Text     string
}

// Desk is where questions to people are decided and drawn.
type Desk interface {
	// Decide applies a click. A refusal is a Verdict, not an error; an error
	// means that nothing was decided.
	Decide(ctx context.Context, c Click) (Verdict, error)
	// Card draws an approval as it is now, from its stored bytes alone.
	// ErrNotFound if there is none.
	Card(ctx context.Context, id ApprovalID) (Card, error)
	// Close ends a question without a person: undeliverable or cancelled. A question
	// that is decided already stays as it is.
	Close(ctx context.Context, id ApprovalID, status ApprovalStatus, reason string) error
}
