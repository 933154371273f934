package agent

import "time"

// Action is what the policy says about a call. The order is by strictness.
type Action string

const (
	Allow    Action = "allow"
	Ask      Action = "ask"
	AskInput Action = "ask_input"
	Deny     Action = "deny"
)

// Source says who or what decided.
type Source string

const (
	SourcePerson  Source = "person"
	SourcePolicy  Source = "policy"
	SourceGrant   Source = "grant"
	SourceTimeout Source = "timeout"
	SourceSystem  Source = "system"
)

// Gate judges calls. It is pure: no network, no database, no memory of earlier
// calls.
type Gate interface {
	// Judge decides about one frozen call. A fault inside is a Deny with source
	// system, never an Allow.
	Judge(q Question) Judgement
}

// Question is a call as the policy sees it: frozen, after all rewriting.
type Question struct {
	Tool    Tool
	Args    []byte // canonical JSON object
	Origin  Origin
	Session SessionID
}

// Judgement is the policy's word on one call.
type Judgement struct {
	Action Action
	Rule   string // empty if no rule of the file matched
	Reason string
	Source Source // policy, or system for a fault

	// For Ask and AskInput.
	Approvers Approvers
	Quorum    int
	Timeout   time.Duration
	Prompt    string // AskInput
	TargetArg string // AskInput
	Secret    bool   // AskInput: the value is shown to nobody
}

// Approvers is who may decide one question. The zero value is nobody.
type Approvers struct {
	Users        []string `json:"users,omitempty"` // Actor in its text form
	SlackGroups  []string `json:"slack_groups,omitempty"`
	DiscordRoles []string `json:"discord_roles,omitempty"`
	Requester    bool     `json:"requester,omitempty"` // who asked may decide
	Local        bool     `json:"local,omitempty"`     // terminal, and console admins
}

// Empty reports whether nobody at all could decide.
func (a Approvers) Empty() bool {
	return len(a.Users) == 0 && len(a.SlackGroups) == 0 && len(a.DiscordRoles) == 0 && !a.Requester && !a.Local
}
