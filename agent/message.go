package agent

// Inbound is one message of a person, as a channel hands it in after it has
// checked who may speak.
type Inbound struct {
	// Key names the message within its channel; a second Inbound with the same
	// key is a repeat and does nothing. It must not depend on how or how often
	// the platform delivered it (Slack: channel and ts, never the event id).
	Key    string
	Origin Origin
	Text   string
	// JoinedOnly accepts the message only if the session exists already: a
	// thread once joined keeps triggering, others need a mention.
	JoinedOnly bool
	// Stop asks for the end of the session's open turn. Without one, the message
	// is like any other. Engine.Receive sets it from what a person wrote.
	Stop bool
	// Turn makes Stop count for this turn alone, and the message nothing else: what a
	// Stop button says. The turn must belong to the place that Origin names.
	Turn TurnID
	// Job is the scheduled job that says this, or empty. Its words stop nothing.
	Job JobID
	// Apart gives the job a session of its own at the place, so that it reads
	// nothing of what was said there.
	Apart bool
}

// Receipt tells a channel what became of an Inbound.
type Receipt struct {
	Session SessionID
	New     bool // false: a repeat, or JoinedOnly and not joined
	Stopped bool // true: it asked for the end of an open turn
}

// Role says who wrote a message of the history.
type Role string

const (
	RoleUser      Role = "user"
	RoleAssistant Role = "assistant"
	RoleTool      Role = "tool"
)

// Message is one entry of a session's history, stored neutrally so that models
// of different providers can follow each other in one session.
type Message struct {
	Role       Role
	Turn       TurnID
	Author     Actor  // role user
	AuthorName string // role user; untrusted text
	Text       string
	Calls      []ProposedCall // role assistant: what the model asked for, in its order
	CallID     CallID         // role tool: the call this answers
	Failed     bool           // role tool: the call did not succeed
}

// ProposedCall is a tool call as the model wrote it, before anything judged it.
type ProposedCall struct {
	ID        CallID // unique within the turn; minted where the model gave none or one twice
	Tool      string
	Arguments string // raw, meant to be a JSON object, maybe broken
}
