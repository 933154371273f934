package agent

import (
	"context"
	"fmt"
	"time"
)

// Channel is an adapter to one platform. It translates and delivers; it never
// runs a tool and knows nothing of policy.
type Channel interface {
	Name() ChannelName
	// Run receives until ctx ends and hands everything to in. It returns nil
	// when ctx ended, else why it cannot go on. It waits for its goroutines.
	Run(ctx context.Context, in Inlet) error
	// Split cuts a text of the model into the parts that Post sends one by one,
	// each within the platform's limits. A blank text has no parts.
	Split(text string) []string
	// Post sends a message and returns the platform's id of it. Errors that
	// cannot be mended by trying again are *SendError with Permanent.
	Post(ctx context.Context, to Place, p Post) (ref string, err error)
	// Edit replaces a message of ours. Editing to the same content is harmless.
	Edit(ctx context.Context, to Place, ref string, p Post) error
}

// Inlet is what a channel hands its events to.
type Inlet interface {
	// Receive stores a message durably; acknowledge the platform after it
	// returned nil. A repeat is no error.
	Receive(ctx context.Context, m Inbound) (Receipt, error)
	// Decide applies a click. A refusal is a Verdict, not an error; an error
	// means that nothing was decided.
	Decide(ctx context.Context, c Click) (Verdict, error)
	// Card returns the card of an approval as it is now, with every argument in
	// Full. ErrNotFound if there is none.
	Card(ctx context.Context, id ApprovalID) (Card, error)
}

// Post is one message to send: a text part, a card, or a status line.
type Post struct {
	Key  DeliveryID // the same on each attempt, so that a platform can notice a repeat
	Text string     // Markdown of a model or plain notice, already split
	Card *Card
	// Status is shown as it is; a channel that cannot edit refuses it for good.
	Status *Status
	// Unsure: an earlier attempt with this key may have arrived. A platform that
	// can look for it does so before it posts.
	Unsure bool
}

// Card is the channel-neutral picture of an approval, drawn by code from the
// frozen bytes. All texts are plain: what does not show is written as an escape,
// secrets are masked; a channel escapes its own markup and never makes a link
// or a mention of any of it.
type Card struct {
	Approval ApprovalID
	Status   ApprovalStatus
	Place    Place       // the thread it belongs to
	Ref      string      // the platform's id of the card; empty until it was posted
	Title    string      // "Approval needed: write_file"
	Tool     string      //
	Fields   []CardField // the arguments by name
	Facts    []CardField // who asked, rule, deadline, hash
	Outcome  string      // empty while pending; who, when, what happened
	Full     string      // the whole of the arguments, for Details
	Masked   int         // how many values are masked
	Cut      bool        // some field is shortened; Full has the rest
	Buttons  []Button    // empty once decided
	Input    *CardInput  // pending ask_input: what is wanted; nil for ask
}

// CardInput is the value that ask_input wants of a person. A button with VerbInput
// stands for it: a channel asks for the value in a dialog and sends it in
// Click.Value.
type CardInput struct {
	Arg    string // name of the argument
	Prompt string // the rule's question; may be empty
	Secret bool   // do not show the value anywhere, not even while it is typed where the platform can hide it
}

// CardField is one line of a card.
type CardField struct {
	Name  string
	Value string
	Code  bool // show literally, in a code block
}

// Button is one thing that can be clicked. Its value on the platform is the
// approval's id and nothing else.
type Button struct {
	Verb  Verb
	Label string
}

// SendError is a failure to post or edit.
type SendError struct {
	Permanent  bool          // trying again cannot help
	Unsure     bool          // it may have arrived all the same
	RetryAfter time.Duration // the platform's wish; 0 = none
	Reason     string        // for logs and the audit, without secrets, e.g. "channel_not_found"
	Err        error         // may be nil
}

func (e *SendError) Error() string {
	if e.Err != nil {
		return fmt.Sprintf("send message: %s: %v", e.Reason, e.Err)
	}
	return "send message: " + e.Reason
}

func (e *SendError) Unwrap() error { return e.Err }
