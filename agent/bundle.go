package agent

// Bundle is what a turn works with, resolved once: a worker takes the bundle when
// it claims a session and keeps it until it lets the session go, so nothing
// changes within a batch. It never changes; Engine.Use puts another one in its
// place for the turns that are claimed from then on. What belongs to one message
// (history, origin, what people write meanwhile, stopping) is beside it.
type Bundle struct {
	Config  Config
	Model   Model
	Gate    Gate
	Toolbox Toolbox
	// AfterDenial is what becomes of a turn after a refusal; empty is continue.
	AfterDenial AfterDenial
	// Before are asked in this order before a call, After are told when it has run.
	Before []BeforeHook
	After  []AfterHook
	// Observer measures; nil measures nothing.
	Observer Observer
	// Receipts signs the results of successful calls; nil is off.
	Receipts Receipts

	tools  []Tool // without the excluded ones
	byName map[string]Tool
}

// resolved works out the effective registry. It is the one place that does.
func (b Bundle) resolved() *Bundle {
	if b.Observer == nil {
		b.Observer = unobserved{}
	}
	b.tools, b.byName = nil, map[string]Tool{}
	for _, t := range b.Toolbox.Tools() {
		if !b.Config.Excludes(t.Name) {
			b.tools = append(b.tools, t)
			b.byName[t.Name] = t
		}
	}
	return &b
}

// Receipts makes evidence that a result is what a tool handed back. It is neither
// consent nor the audit. Package receipt implements it.
type Receipts interface {
	// Sign returns one line of text without line breaks.
	Sign(e Evidence) string
}

// Evidence is what a receipt is about. Its scope is the session and the turn: a
// receipt of another does not verify in its place.
type Evidence struct {
	Session    SessionID
	Turn       TurnID
	Call       CallID
	Tool       string
	ArgsSHA256 string
	Output     string // the whole of it, as it is stored
}
