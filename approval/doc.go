// Package approval decides what may run: the policy judges every call (Policy),
// and where it says ask, people decide (Desk).
//
// In come frozen calls from the engine and clicks from channels; out go
// judgements, cards and rulings. It owns no table: the store applies a ruling
// under the lock of the approval, and the ruling is worked out by a pure
// function of what is stored, so that every way in (button, terminal, command
// line, clock) passes the same check.
//
//	pending ─► approved       quorum of different people said yes
//	        ─► denied         one authorised person said no
//	        ─► replaced       an authorised person answered instead
//	        ─► expired        the deadline passed; nothing but the clock does this
//	        ─► cancelled      the turn ended, or nobody is left to ask
//	        ─► undeliverable  the question could not be shown
//
// One way, once. Whatever is unknown, late, unauthorised or fails is not a yes.
package approval
