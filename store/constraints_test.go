package store

import (
	"strings"
	"testing"
	"time"
)

// The rules of the states are constraints as well: a wrong program cannot store a
// wrong state. Each statement alone breaks one of them.
//
// Rows: F82.
func TestConstraints(t *testing.T) {
	t.Parallel()
	db := newDB(t)
	db.asked("1", 2, time.Minute)
	const insertCall = `INSERT INTO tool_calls (turn_id, call_id, session_id, batch, position, tool, raw, args, args_sha256, definition, status, started_at, finished_at)
		SELECT id, 'new', session_id, 9, 9, 'note', '', '{}', '', '', `
	const insertAudit = `INSERT INTO audit_log (session_id, seq, at, kind, source, actor, prev_hash, hash) SELECT id, `
	for sql, constraint := range map[string]string{
		// turns: one at a time, ended exactly when it has an end
		`INSERT INTO turns (id, session_id, status, channel, workspace, conversation, thread, author, author_name, ref)
			SELECT 'other', session_id, 'running', '', '', '', '', '', '', '' FROM turns`: "turns_open",
		`UPDATE turns SET status = 'finished', ended_at = now()`:       "turns_status_check",
		`UPDATE turns SET status = 'done'`:                             "turns_check1",
		`UPDATE turns SET ended_at = now()`:                            "turns_check1",
		`UPDATE turns SET stopped_by = 'x'`:                            "turns_check",
		`UPDATE turns SET iterations = -1`:                             "turns_iterations_check",
		`UPDATE sessions SET lease_owner = 'w', leased_until = NULL`:   "sessions_check",
		`UPDATE sessions SET leased_until = now(), lease_owner = NULL`: "sessions_check",
		`INSERT INTO sessions (id, channel, workspace, conversation, thread) SELECT 'other', channel, workspace, conversation, thread FROM sessions`: "sessions_channel_workspace_conversation_thread_job_key",
		`INSERT INTO inbox (session_id, channel, key, author, author_name, ref, text) SELECT session_id, channel, key, '', '', '', '' FROM inbox`:    "inbox_channel_key_key",

		// messages
		`UPDATE messages SET role = 'system', author = NULL WHERE role = 'user'`: "messages_role_check",
		`UPDATE messages SET call_id = 'c0' WHERE role = 'user'`:                 "messages_check",
		`UPDATE messages SET role = 'tool' WHERE role = 'assistant'`:             "messages_check",
		`UPDATE messages SET author = 'x' WHERE role = 'assistant'`:              "messages_check1",
		`UPDATE messages SET calls = '[]' WHERE role = 'user'`:                   "messages_check2",
		`UPDATE messages SET seq = 1`:                                            "messages_pkey",

		// calls: what ran was started, what was not started did not run
		insertCall + `'running', NULL, now() FROM turns`:                          "tool_calls_status_check",
		insertCall + `'started', NULL, NULL FROM turns`:                           "tool_calls_check",
		insertCall + `'succeeded', NULL, now() FROM turns`:                        "tool_calls_check",
		insertCall + `'denied', now(), now() FROM turns`:                          "tool_calls_check",
		insertCall + `'denied', NULL, NULL FROM turns`:                            "tool_calls_check1",
		insertCall + `'prepared', NULL, now() FROM turns`:                         "tool_calls_check1",
		insertCall + `'approved', NULL, NULL FROM turns`:                          "tool_calls_check3",
		`UPDATE tool_calls SET status = 'started', started_at = now(), args = ''`: "tool_calls_check2",
		`UPDATE tool_calls SET status = 'succeeded', started_at = now()`:          "tool_calls_check1",
		`UPDATE tool_calls SET position = 0`:                                      "tool_calls_turn_id_batch_position_key",
		`UPDATE tool_calls SET batch = 0`:                                         "tool_calls_batch_check",

		// approvals: one way, and a person exactly when the row says who
		`UPDATE approvals SET status = 'maybe', decided_at = now(), source = 'system'`:                                                "approvals_status_check",
		`UPDATE approvals SET status = 'approved'`:                                                                                    "approvals_check1",
		`UPDATE approvals SET decided_at = now()`:                                                                                     "approvals_check1",
		`UPDATE approvals SET source = 'person'`:                                                                                      "approvals_check2",
		`UPDATE approvals SET status = 'approved', decided_at = now(), source = 'person'`:                                             "approvals_check3",
		`UPDATE approvals SET status = 'expired', decided_at = now(), source = 'timeout', decided_by = 'x'`:                           "approvals_check3",
		`UPDATE approvals SET status = 'approved', decided_at = now(), source = 'timeout'`:                                            "approvals_check4",
		`UPDATE approvals SET status = 'denied', decided_at = now(), source = 'system'`:                                               "approvals_check4",
		`UPDATE approvals SET status = 'cancelled', decided_at = now(), source = 'model'`:                                             "approvals_source_check",
		`UPDATE approvals SET quorum = 0`:                                                                                             "approvals_quorum_check",
		`UPDATE approvals SET deadline = asked_at`:                                                                                    "approvals_check",
		`INSERT INTO votes (approval_id, actor, name, vote, backchannel) SELECT id, 'x', '', 'maybe', '' FROM approvals`:              "votes_vote_check",
		`INSERT INTO votes (approval_id, actor, name, vote, backchannel) SELECT 'ap_unknown', 'x', '', 'deny', ''`:                    "votes_approval_id_fkey",
		`INSERT INTO approvals SELECT (jsonb_populate_record(a, '{"id":"ap_other","call_id":"unknown"}')).* FROM approvals a LIMIT 1`: "approvals_turn_id_call_id_fkey",
		`INSERT INTO approvals SELECT (jsonb_populate_record(a, '{"id":"ap_other"}')).* FROM approvals a LIMIT 1`:                     "approvals_turn_id_call_id_version_key",

		// deliveries
		`UPDATE deliveries SET state = 'lost', done_at = now()`: "deliveries_state_check",
		`UPDATE deliveries SET state = 'sent'`:                  "deliveries_check1",
		`UPDATE deliveries SET done_at = now()`:                 "deliveries_check1",
		`UPDATE deliveries SET kind = 'text'`:                   "deliveries_check",
		`UPDATE deliveries SET approval_id = NULL`:              "deliveries_check",
		`UPDATE deliveries SET parts = -1`:                      "deliveries_parts_check",

		// grants
		`INSERT INTO grants (id, session_id, tool, args_sha256, granted_by, granted_to, approval_id, expires_at, uses_left)
			VALUES ('g', 's', 't', 'h', 'a', 'b', 'ap', now() + interval '1 hour', -1)`: "grants_uses_left_check",
		`INSERT INTO grants (id, session_id, tool, args_sha256, granted_by, granted_to, approval_id, expires_at, uses_left)
			VALUES ('g', 's', 't', 'h', 'a', 'b', 'ap', now(), 1)`: "grants_check1",

		// the audit: a person exactly when the row says who; the chain has no forks
		insertAudit + `9, now(), 'hearsay', 'system', NULL, '', '' FROM sessions`:          "audit_log_kind_check",
		insertAudit + `9, now(), 'tool_started', 'model', NULL, '', '' FROM sessions`:      "audit_log_source_check",
		insertAudit + `9, now(), 'approval_decided', 'person', NULL, '', '' FROM sessions`: "audit_log_check",
		insertAudit + `9, now(), 'approval_decided', 'timeout', 'x', '', '' FROM sessions`: "audit_log_check",
		insertAudit + `1, now(), 'tool_started', 'system', NULL, '', '' FROM sessions`:     "audit_log_pkey",
		insertAudit + `0, now(), 'tool_started', 'system', NULL, '', '' FROM sessions`:     "audit_log_seq_check",
	} {
		err := db.try(sql)
		switch {
		case err == nil:
			t.Errorf("went through, but breaks %s:\n%s", constraint, sql)
		case !strings.Contains(err.Error(), `"`+constraint+`"`):
			t.Errorf("%v, want a violation of %s:\n%s", err, constraint, sql)
		}
	}
}
