package agent

import (
	"context"
	"errors"
	"time"
)

// The errors of a store, as far as its callers act on them.
var (
	// ErrNotFound: no row with that id.
	ErrNotFound = errors.New("not found")
	// ErrLeaseLost: another worker owns the session now. The turn goes on there;
	// whoever gets this error drops everything and writes nothing more.
	ErrLeaseLost = errors.New("session lease lost")
)

// Store is the engine's database. Every method is one commit and none holds a
// connection when it returns. Times are the database's clock.
type Store interface {
	// Receive stores a message and makes its session runnable. A key that is
	// there already changes nothing.
	Receive(ctx context.Context, m Inbound) (Receipt, error)

	// Claim takes the session that has been runnable longest, of those on the given
	// channels, and begins its next turn if none is open. It returns nil when there
	// is nothing to do.
	Claim(ctx context.Context, owner string, channels []ChannelName) (*Work, error)
	// Renew extends the leases of the given sessions and returns those that the
	// owner still has, and those of them whose turn a person wants to end.
	Renew(ctx context.Context, owner string, ids []SessionID) (kept, stopped []SessionID, err error)
	// Save applies one step of a turn, whole or not at all. ErrLeaseLost if the
	// lease is no longer the current one.
	Save(ctx context.Context, lease Lease, step Step) (Saved, error)

	// History returns the session's messages in order, at most limit from the end.
	History(ctx context.Context, id SessionID, limit int) ([]Message, error)

	// FindGrant returns a grant that matches, has not ended and has uses left; the zero
	// Grant if there is none.
	FindGrant(ctx context.Context, q GrantQuery) (Grant, error)
	// GrantHolds reports whether a grant whose use is counted may still be acted on: it
	// was not revoked and has not expired.
	GrantHolds(ctx context.Context, id GrantID) (bool, error)

	// DueStatuses leases status lines that are to be drawn, of turns on the given
	// channels.
	DueStatuses(ctx context.Context, channels []ChannelName, limit int) ([]StatusDue, error)
	// StatusDrawn records that one was drawn, or given up with no ref. If the turn has
	// changed since, it is due again.
	StatusDrawn(ctx context.Context, s StatusDue, ref string) error

	// DueDeliveries leases deliveries that are due, at most one per session: the
	// oldest, so that a session's posts keep their order.
	DueDeliveries(ctx context.Context, owner string, channels []ChannelName, limit int) ([]Delivery, error)
	// Delivered records one attempt. A card's Ref is stored with its approval.
	Delivered(ctx context.Context, d Delivery, a Attempt) error
	// DeliveredPart records that the first parts of a text are out, so that a crash
	// before the rest does not send them again.
	DeliveredPart(ctx context.Context, id DeliveryID, parts int, ref string) error
}

// Lease is the right to write a session's turn. A later claim has a higher
// revision, and writes with an older one are refused.
type Lease struct {
	Session  SessionID
	Revision int64
	Owner    string
	Wakes    int64 // how often the session had been woken when it was claimed
	Claims   int   // how often it was claimed since it was last released, this time included
}

// Work is a claimed session: its open turn and what is known of it.
type Work struct {
	Lease
	Turn *Turn // nil: woken, but nothing to do
	// Calls of the turn in order, with those that have ended.
	Calls []ToolCall
	// Approvals of the turn by id, with their decisions.
	Approvals map[ApprovalID]Approval
}

// TurnStatus is the state of a turn.
type TurnStatus string

const (
	TurnRunning   TurnStatus = "running"
	TurnParked    TurnStatus = "parked"
	TurnDone      TurnStatus = "done"
	TurnDegraded  TurnStatus = "degraded"
	TurnFailed    TurnStatus = "failed"
	TurnCancelled TurnStatus = "cancelled"
)

// Ended reports whether the turn is over.
func (s TurnStatus) Ended() bool { return s != TurnRunning && s != TurnParked }

// Turn is one message of a person and everything it leads to.
type Turn struct {
	ID         TurnID
	Session    SessionID
	Origin     Origin
	Status     TurnStatus
	Iterations int           // model requests made
	Active     time.Duration // working time so far, without waiting for people
	// BatchActive is what Active was when the calls of the latest answer were taken in.
	BatchActive time.Duration
	Model       string
	Error       string // for people: one sentence; empty unless degraded, failed or cancelled
	Stop        Stop
}

// Stop is a person's wish that a turn ends. The zero Stop is none.
type Stop struct {
	By   Actor
	Name string // untrusted text
}

// Step is what one commit changes. Zero fields change nothing.
type Step struct {
	Turn       Turn       // its new state
	Messages   []Message  // to append
	Calls      []ToolCall // to insert or update, by turn and id
	Approvals  []Approval // to ask
	Deliveries []Delivery // to send
	Events     []Event
	Audit      []AuditRecord
	// GrantUses are grants to use up by one; if one of them ended meanwhile, the step fails.
	GrantUses []GrantID
	// Refresh names approvals whose card must be drawn again.
	Refresh []ApprovalID
	// Progress is set if the turn has something to show in its status line: how long it
	// goes on before there is one.
	Progress time.Duration
	// Steer takes what people wrote meanwhile into the turn, behind Messages.
	Steer bool
	// Release ends the lease: the turn ended or parked. Again leaves the session
	// runnable, so that another worker goes on at once.
	Release bool
	Again   bool
}

// Saved is what the database added to a step.
type Saved struct {
	// Deliveries of the step that the saver may send at once; it holds a lease on
	// them. It is the first at most, and none if older ones of the session wait:
	// one that fails must not be overtaken by the next.
	Deliveries []Delivery
	Steered    []Message // what people wrote meanwhile, if Steer was set
	Stop       Stop      // whether somebody wants the turn to end
}

// StatusDue is a status line that is to be drawn.
type StatusDue struct {
	Turn    Turn
	Calls   []ToolCall
	Ref     string // the platform's id; empty if it is not there yet
	Tries   int    // attempts whose end nobody recorded, with this one
	Changes int    // of the turn, when this picture was taken
}

// DeliveryKind says what a delivery is.
type DeliveryKind string

const (
	DeliverText DeliveryKind = "text" // an answer, a notice, or send_message
	DeliverCard DeliveryKind = "card" // make the card show the approval as it is: post or edit
)

// Delivery is one thing to send, kept until the platform confirmed it.
type Delivery struct {
	ID       DeliveryID
	Session  SessionID
	Turn     TurnID
	Kind     DeliveryKind
	Place    Place
	Text     string
	Approval *Approval // kind card; only its ID counts, the rest is read when it is sent
	Parts    int       // kind text: how many parts are sent already
	Attempts int
	// Unsure: an earlier attempt ended without anybody's knowing whether it
	// arrived, say because the process died.
	Unsure bool
}

// Attempt is the outcome of trying a delivery.
type Attempt struct {
	Parts  int    // parts sent so far
	Ref    string // platform id of what was posted last
	Done   bool
	Failed bool // given up for good
	Unsure bool // it may have arrived all the same
	Reason string
	// RetryIn delays the next attempt, when neither Done nor Failed.
	RetryIn time.Duration
}
