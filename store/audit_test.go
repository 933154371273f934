package store

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"pgregory.net/rapid"

	"github.com/clawbot/clawbot/agent"
	"github.com/clawbot/clawbot/audit"
)

// otherVerifier computes the hash of a row without a line of Go, so that the
// encoding is what docs/audit.md says and not what package audit happens to do.
// $1 is the row as an export has it.
const otherVerifier = `
WITH r AS (SELECT $1::text::jsonb AS r),
text_fields(n, v) AS (
	SELECT n, r ->> name FROM r, unnest(ARRAY['turn_id', 'call_id', 'approval_id', 'tool', 'args', 'args_sha256', 'decision',
		'source', 'actor', 'channel', 'backchannel', 'rule', 'reason']) WITH ORDINALITY AS f(name, n)),
encoded(n, b) AS (
	SELECT n, CASE WHEN v IS NULL THEN '\x00' ELSE '\x01'::bytea || int4send(octet_length(convert_to(v, 'UTF8'))) || convert_to(v, 'UTF8') END FROM text_fields)
SELECT encode(sha256(
	'\x0001'::bytea
	|| '\x01'::bytea || int4send(octet_length(convert_to(r ->> 'session_id', 'UTF8'))) || convert_to(r ->> 'session_id', 'UTF8')
	|| '\x01'::bytea || int8send((r ->> 'seq')::bigint)
	|| '\x01'::bytea || int8send((extract(epoch FROM (r ->> 'at')::timestamptz) * 1000000)::bigint)
	|| '\x01'::bytea || int4send(octet_length(r ->> 'kind')) || convert_to(r ->> 'kind', 'UTF8')
	|| (SELECT string_agg(b, ''::bytea ORDER BY n) FROM encoded)
	|| CASE WHEN r ->> 'latency_ms' IS NULL THEN '\x00' ELSE '\x01'::bytea || int8send((r ->> 'latency_ms')::bigint) END
	|| '\x01'::bytea || int4send(octet_length(r ->> 'prev_hash')) || convert_to(r ->> 'prev_hash', 'UTF8')), 'hex')
FROM r`

// The golden rows of package audit, and rows that were really written, have the
// hash that a second verifier computes.
//
// Rows: T19.
func TestOtherVerifier(t *testing.T) {
	t.Parallel()
	db := newDB(t)
	data, err := os.ReadFile("../audit/testdata/golden.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	rows := strings.Split(strings.TrimSpace(string(data)), "\n")
	auditOfAll(db)
	written, err := db.AuditRows(t.Context(), AuditQuery{Limit: 1000})
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range written {
		js, err := json.Marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		rows = append(rows, string(js))
	}
	for _, line := range rows {
		var r audit.Row
		if err := json.Unmarshal([]byte(line), &r); err != nil {
			t.Fatal(err)
		}
		if got := get[string](db, otherVerifier, line); got != r.Hash || got != audit.Sum(r) {
			t.Errorf("%s, seq %d: %s, hash %s", r.SessionID, r.Seq, got, r.Hash)
		}
	}
}

// auditOfAll writes rows of every kind into the chains of two sessions.
func auditOfAll(db testDB) {
	db.t.Helper()
	for _, thread := range []string{"1", "2"} {
		db.receive(message(thread, "m"+thread, "x"))
		w := db.claim("w")
		step := ended(w)
		for _, kind := range []agent.AuditKind{agent.AuditPolicyDecision, agent.AuditApprovalRequested, agent.AuditApprovalVote, agent.AuditApprovalDecided,
			agent.AuditClickRefused, agent.AuditToolStarted, agent.AuditToolFinished, agent.AuditGrantCreated, agent.AuditGrantUsed, agent.AuditGrantRevoked} {
			step.Audit = append(step.Audit,
				agent.AuditRecord{Kind: kind, Turn: w.Turn.ID, Call: "c1", Approval: "ap", Tool: "note", Args: `{"a":"<ü\u0000>","n":1E5,"x":[-0,1.50]}`,
					ArgsSHA256: agent.SHA256("x"), Decision: "approved", Source: agent.SourcePerson, Actor: person("boss"), Channel: "slack", Backchannel: "web",
					Rule: "rule", Reason: "words", Latency: 1500 * time.Millisecond},
				agent.AuditRecord{Kind: kind, Source: agent.SourceSystem, Latency: -1})
		}
		db.save(w, step)
	}
}

// Deleting a session takes its history, calls, questions and timeline, and leaves its
// audit whole: every row is there, the chain verifies, and a row that goes missing
// later is still found out.
//
// Rows: L147.
func TestDeletedSessionKeepsItsAudit(t *testing.T) {
	t.Parallel()
	db := newDB(t)
	auditOfAll(db)
	db.asked("3", 2, time.Hour)
	session := agent.SessionID(get[string](db, `SELECT id FROM sessions WHERE thread = '3'`))
	tables := []string{"inbox", "turns", "messages", "tool_calls", "approvals", "deliveries", "events"}
	for _, table := range tables {
		if n := get[int](db, `SELECT count(*) FROM `+table+` WHERE session_id = $1`, session); n == 0 {
			t.Errorf("there is nothing in %s to delete", table)
		}
	}
	before := get[string](db, `SELECT string_agg(a::text, '|' ORDER BY session_id, seq) FROM audit_log a`)
	others := get[int](db, `SELECT count(*) FROM sessions`) - 1
	db.exec(`DELETE FROM sessions WHERE id = $1`, session)
	for _, table := range tables {
		if n := get[int](db, `SELECT count(*) FROM `+table+` WHERE session_id = $1`, session); n != 0 {
			t.Errorf("%d rows are left in %s", n, table)
		}
	}
	if n := get[int](db, `SELECT count(*) FROM sessions`); n != others {
		t.Errorf("%d sessions are left, want %d", n, others)
	}
	if after := get[string](db, `SELECT string_agg(a::text, '|' ORDER BY session_id, seq) FROM audit_log a`); after != before {
		t.Error("the audit has changed")
	}
	db.exec(`DELETE FROM sessions`)
	db.verify()
	if rows, err := db.AuditRows(t.Context(), AuditQuery{Session: session, Limit: 100}); err != nil || len(rows) == 0 {
		t.Errorf("the deleted session has %d audit rows (%v)", len(rows), err)
	}
	if err := db.try(`DELETE FROM audit_log WHERE session_id = $1`, session); err == nil {
		t.Error("audit rows can be deleted")
	}
}

// Whoever gets around the triggers is found out: each column of each row, rows
// that are gone, and rows in each other's place.
//
// Rows: T19.
func TestTamperedTable(t *testing.T) {
	t.Parallel()
	db := newDB(t)
	auditOfAll(db)
	db.verify()
	conn, err := pgx.Connect(t.Context(), db.url)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	// Only a superuser can do this.
	if _, err := conn.Exec(t.Context(), `SET session_replication_role = replica`); err != nil {
		t.Fatal(err)
	}
	for _, sql := range []string{
		`CREATE TABLE kept AS SELECT * FROM audit_log`,
		`ALTER TABLE audit_log DROP CONSTRAINT audit_log_check, DROP CONSTRAINT audit_log_kind_check, DROP CONSTRAINT audit_log_source_check`,
	} {
		if _, err := conn.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	session := get[string](db, `SELECT max(session_id) FROM audit_log`)
	const rows = 20
	caught := func(what string, seq int64, sql string, args ...any) {
		t.Helper()
		tag, err := conn.Exec(t.Context(), sql, args...)
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		if tag.RowsAffected() == 0 {
			t.Fatalf("%s changed nothing", what)
		}
		v, err := db.VerifyAudit(t.Context())
		switch {
		case err != nil:
			t.Errorf("%s: %v", what, err)
		case v.Bad == nil:
			t.Errorf("%s was not noticed", what)
		case v.Bad.SessionID != session || v.Bad.Seq != seq:
			t.Errorf("%s: %v, want session %s, seq %d", what, v.Bad, session, seq)
		}
		for _, sql := range []string{`DELETE FROM audit_log`, `INSERT INTO audit_log SELECT * FROM kept`} {
			if _, err := conn.Exec(t.Context(), sql); err != nil {
				t.Fatal(err)
			}
		}
	}
	other := map[string]string{
		"at": `at + interval '1 microsecond'`, "args": `coalesce(args, '{}') || '{"b":1}'`, "latency_ms": `coalesce(latency_ms, 0) + 1`,
	}
	for _, column := range []string{"at", "kind", "turn_id", "call_id", "approval_id", "tool", "args", "args_sha256", "decision", "source",
		"actor", "channel", "backchannel", "rule", "reason", "latency_ms", "prev_hash", "hash"} {
		value, ok := other[column]
		if !ok {
			value = `coalesce(` + column + `, '') || 'x'`
		}
		for seq := int64(1); seq <= 2; seq++ { // one row with all columns, one with few
			caught(fmt.Sprint(column, " of row ", seq), seq, `UPDATE audit_log SET `+column+` = `+value+` WHERE session_id = $1 AND seq = $2`, session, seq)
		}
		if column != "at" && column != "kind" && column != "prev_hash" && column != "hash" {
			caught("no more "+column, 1, `UPDATE audit_log SET `+column+` = NULL WHERE session_id = $1 AND seq = 1`, session)
		}
	}
	for _, seq := range []int64{1, 2 + rand.Int64N(rows-2), rows} {
		caught(fmt.Sprint("row ", seq, " deleted"), seq, `DELETE FROM audit_log WHERE session_id = $1 AND seq = $2`, session, seq)
	}
	caught("the end deleted", 11, `DELETE FROM audit_log WHERE session_id = $1 AND seq > 10`, session)
	caught("all rows deleted", 1, `DELETE FROM audit_log WHERE session_id = $1`, session)
	caught("two rows swapped", 5, `UPDATE audit_log SET seq = CASE seq WHEN 5 THEN 1006 WHEN 6 THEN 1005 END WHERE session_id = $1 AND seq IN (5, 6)`, session)
	caught("a row added", rows+1, `INSERT INTO audit_log SELECT (jsonb_populate_record(a, '{"seq": 21}')).* FROM audit_log a WHERE session_id = $1 AND seq = 20`, session)
	db.verify()
}

// What StableArgs makes of any arguments comes back from a real jsonb column as
// the same canonical text.
func TestStableArgsThroughJSONB(t *testing.T) {
	t.Parallel()
	conn, err := pgx.Connect(t.Context(), migrated(t))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	check := func(t interface{ Fatalf(string, ...any) }, args string) {
		stable, err := audit.StableArgs(args)
		if err != nil {
			t.Fatalf("%s: %v", args, err)
		}
		var back string
		if err := conn.QueryRow(context.Background(), `SELECT ($1::text::jsonb)::text`, stable).Scan(&back); err != nil {
			t.Fatalf("%s: %v", stable, err)
		}
		if again, err := agent.Recanonical(back); err != nil || again != stable {
			t.Fatalf("wrote %s, read %s, %v", stable, again, err)
		}
	}
	numbers := []string{"1e999999", "-0", "-0.0", "-0.00e3", "0", "1.0", "1.50", "1E5", "1e-7", "12345678901234567890123", "0.1000000000000000055511151231257827",
		strings.Repeat("9", 300), strings.Repeat("9", 301), "0." + strings.Repeat("3", 300), "-1." + strings.Repeat("0", 301), "1e400", "-1.0E+2"}
	texts := []string{"", "\x00", "a\x00b", "\uFFFD", "a\uFFFDb", "\x01\x1f\x7f", "<>&\u2028", `\u0000`, `"`, "é\U0001F600", "\U0010FFFF"}
	check(t, `{"x":[`+strings.Join(numbers, ",")+`]}`)
	check(t, `{"a`+`\u0000":1,"a`+"\uFFFD"+`":2,"a`+"\uFFFD\uFFFD"+`":3}`)
	rapid.Check(t, func(t *rapid.T) {
		value := rapid.Custom(func(t *rapid.T) any {
			if rapid.Bool().Draw(t, "number") {
				n := rapid.OneOf(rapid.SampledFrom(numbers), rapid.StringMatching(`-?(0|[1-9][0-9]{0,30})(\.[0-9]{1,30})?([eE][+-]?[0-9]{1,6})?`)).Draw(t, "n")
				return json.Number(n)
			}
			return rapid.OneOf(rapid.String(), rapid.SampledFrom(texts)).Draw(t, "s")
		})
		object := rapid.MapOfN(rapid.OneOf(rapid.String(), rapid.SampledFrom(texts)), rapid.SliceOfN(value, 0, 4), 0, 5).Draw(t, "object")
		args, err := agent.CanonicalOf(object)
		if err != nil {
			t.Fatalf("%v", err)
		}
		check(t, args)
	})
}

// A row with arguments near the limit, which masking and jsonb make longer,
// verifies as well.
func TestLongArgsVerify(t *testing.T) {
	t.Parallel()
	db := newDB(t)
	mask := agent.NewMasker()
	for i, raw := range []string{
		`{"x":[` + strings.Repeat("1,", 400_000) + `1]}`,
		`{"token":[` + strings.Repeat("1,", 120_000) + `1]}`,
		`{"x":[` + strings.Repeat("-0,", 250_000) + `-0]}`,
		`{"x":` + strings.Repeat("[", 62) + strings.Repeat("]", 62) + `}`,
	} {
		args, err := agent.Canonical(raw)
		if err != nil {
			t.Fatal(err)
		}
		shown, _ := mask.Object(args)
		db.receive(message(fmt.Sprint(i), fmt.Sprint("m", i), "x"))
		w := db.claim("w")
		step := ended(w)
		step.Audit = []agent.AuditRecord{{Kind: agent.AuditToolStarted, Args: shown, Source: agent.SourceSystem, Latency: -1}}
		db.save(w, step)
	}
	db.verify()
}
