// Package tools holds the tools that clawbot has built in, one file each, and
// what is common to all tools: the check of arguments against their schema, the
// hash of a definition, and the delivery defaults.
//
// The engine calls a tool with frozen arguments that have passed the schema,
// the policy and, where needed, a person. A tool does its work and returns
// text; it logs, asks and records nothing. Its own check here is the last one:
//
//   - files: one os.Root per workspace, so that no path and no symbolic link
//     leads out of it
//   - shell: off unless enabled; a process that can write the workspace alone,
//     reaches no network and inherits nothing of clawbot's environment
//   - http_fetch: addresses are checked when the connection is made, after the
//     name was resolved, and again for each redirect
//   - messages and jobs: through the interfaces Outbox and Jobs; the workspace
//     always comes from the origin
//
// Every output is bounded where it arises and is valid UTF-8 without NUL. The
// package starts no goroutine that outlives a call.
package tools
