// Package agent is the vocabulary of clawbot and its turn engine.
//
// Channels hand in messages (Inbound) and clicks (Click); the engine turns a
// message into a turn: history → model → tool calls → gate → execution →
// final text, and hands out deliveries that channels post. The package owns
// the interfaces it consumes (Model, Toolbox, Gate, Desk, Store, Channel) and
// imports no other package of clawbot, so every other part depends on it and it
// on none.
//
// The database is the authority; everything in memory can be lost at any line.
// A session is the mailbox of one thread. A worker claims it (lease and fencing
// revision), advances its turn step by step, and every step is one commit
// (Store.Save). A turn that waits for a person is a row and nothing else.
//
//	turn      running ─► done | degraded | failed | cancelled
//	             │  ▲
//	             ▼  │  decision, expiry
//	            parked
//
//	call      prepared ─► approved ─► started ─► succeeded | failed | interrupted
//	             │                        └────► unknown   (process died in between)
//	             └► denied | replaced | expired | undeliverable | deduplicated
//	                | blocked | cancelled | skipped
//
//	approval  pending ─► approved | denied | replaced | expired | cancelled
//	                     | undeliverable                  (one way, once)
//
// A message that waits in the mailbox is no turn yet; it becomes a running one
// in the transaction that claims the session.
package agent
