package approval

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/clawbot/clawbot/agent"
)

// hostile are texts that try to hide, to reorder, to forge or to break a card.
var hostile = []string{
	"", " ", "\n", "\t", "\r", "\x00", "\x1b[2K", "\x7f", "\u202E", "\u2066", "\u200B", "\uFEFF", "\u00A0", "\u2028", "\u3164", "\u2800",
	"\uFE0F", "\U000E0061", "\uE000", "\u0301\u0301\u0301\u0301\u0301\u0301", "s\u0336", `\u{202E}`, `\x{FF}`, `\`, "<@U1>", "<!channel>", "@everyone",
	"[approved](http://x)", "*bold*", "```", "Approved by boss", "xoxb-1234567890-abc", "é", "\U0001F600", strings.Repeat("x", 3000),
}

func anyText() *rapid.Generator[string] {
	part := rapid.OneOf(rapid.SampledFrom(hostile), rapid.String())
	return rapid.Map(rapid.SliceOfN(part, 0, 6), func(p []string) string { return strings.Join(p, "") })
}

// Whatever the arguments are, a card that can be approved tells all of them, shows
// nothing that hides, and says how much is masked.
//
// Rows: F94, F96, F97, T2, L77.
func TestDrawTellsAll(t *testing.T) {
	mask := agent.NewMasker("hunter2-canary")
	rapid.Check(t, func(t *rapid.T) {
		object := rapid.MapOfN(anyText(), rapid.OneOf(
			rapid.Map(anyText(), func(s string) any { return s }),
			rapid.Map(rapid.SliceOfN(anyText(), 0, 3), func(s []string) any { return s }),
			rapid.Map(rapid.MapOfN(anyText(), anyText(), 0, 3), func(m map[string]string) any { return m }),
			rapid.SampledFrom([]any{nil, true, 1.5, -7}),
		), 0, 30).Draw(t, "object")
		args, err := agent.CanonicalOf(object)
		if err != nil {
			t.Fatal(err)
		}
		long := rapid.IntRange(0, 20).Draw(t, "long")
		if long == 0 { // 100 kB
			args, err = agent.CanonicalOf(map[string]any{"x": strings.Repeat(anyText().Draw(t, "repeated")+".", 100_000/8)[:100_000/8]})
			if err != nil {
				t.Fatal(err)
			}
		}
		name := anyText()
		a := agent.Approval{
			ID: "ap", Status: agent.ApprovalPending, Tool: name.Draw(t, "tool"), Args: args, ArgsSHA256: agent.SHA256(args), Quorum: 2, Deadline: time.Now(),
			Requester: agent.Actor{Channel: "slack", Workspace: "T1", User: "U1"}, RequesterName: name.Draw(t, "requester"), Rule: name.Draw(t, "rule"), Why: name.Draw(t, "why"),
			Reason: name.Draw(t, "reason"), DecidedByName: name.Draw(t, "decider"), Source: agent.SourcePerson,
		}
		card := Draw(a, mask)
		shown, masked := mask.Object(args)
		if back, err := agent.Recanonical(agent.Unescape(card.Full)); err != nil || back != shown {
			t.Fatalf("Full reads back as %.300q, the arguments are %.300q, %v", back, shown, err)
		}
		if card.Masked != masked || (masked > 0) != strings.Contains(fmt.Sprint(card.Facts), fmt.Sprintf("%d secret value(s)", masked)) {
			t.Fatalf("%d values are masked, the card says %d: %v", masked, card.Masked, card.Facts)
		}
		if len(card.Buttons) != 3 {
			t.Fatalf("buttons: %v", card.Buttons)
		}
		// What the fields do not show, they say that they do not.
		if !card.Cut && len(card.Fields) != len(object) && long != 0 {
			t.Fatalf("%d fields of %d arguments", len(card.Fields), len(object))
		}
		for _, status := range []agent.ApprovalStatus{agent.ApprovalPending, agent.ApprovalApproved, agent.ApprovalDenied, agent.ApprovalExpired} {
			a.Status = status
			card := Draw(a, mask)
			texts := map[string]string{"title": card.Title, "tool": card.Tool, "outcome": card.Outcome, "full": card.Full}
			lines := []string{"title", "tool"}
			for i, f := range append(card.Fields, card.Facts...) {
				texts[fmt.Sprint("name ", i)], texts[fmt.Sprint("value ", i)] = f.Name, f.Value
				lines = append(lines, fmt.Sprint("name ", i))
			}
			for where, text := range texts {
				for _, r := range text {
					if r != '\n' && r != '\t' && agent.Hidden(r) {
						t.Fatalf("%s of the %s card shows %U: %.200q", where, status, r, text)
					}
				}
				if strings.Contains(text, "hunter2-canary") {
					t.Fatalf("%s tells the secret", where)
				}
			}
			for _, where := range lines {
				if strings.ContainsAny(texts[where], "\n\t") {
					t.Fatalf("%s is more than one line: %q", where, texts[where])
				}
			}
			if status != agent.ApprovalPending && len(card.Buttons) != 0 {
				t.Fatal("a card that is decided has buttons")
			}
		}
	})
}

func TestDrawOutcomes(t *testing.T) {
	boss := agent.Actor{Channel: "slack", Workspace: "T1", User: "U2"}
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for _, c := range []struct {
		a          agent.Approval
		title, out string
	}{
		{agent.Approval{Status: agent.ApprovalApproved, DecidedBy: boss, DecidedByName: "Bo", Source: agent.SourcePerson, CallStatus: agent.CallSucceeded, CallLatency: time.Second},
			"Approved: note", "approved by Bo (slack:T1/U2) at 2026-01-02 03:04:05 UTC. It ran and succeeded in 1s"},
		{agent.Approval{Status: agent.ApprovalApproved, DecidedBy: boss, Source: agent.SourcePerson, CallStatus: agent.CallApproved},
			"Approved: note", "approved by slack:T1/U2 at 2026-01-02 03:04:05 UTC. It will run in its turn"},
		{agent.Approval{Status: agent.ApprovalApproved, DecidedBy: boss, Source: agent.SourcePerson, CallStatus: agent.CallBlocked},
			"Approved: note", "approved by slack:T1/U2 at 2026-01-02 03:04:05 UTC. It was not executed, because it was no longer allowed when its turn came"},
		{agent.Approval{Status: agent.ApprovalApproved, DecidedBy: boss, Source: agent.SourcePerson, CallStatus: agent.CallUnknown},
			"Approved: note", "approved by slack:T1/U2 at 2026-01-02 03:04:05 UTC. It was started and clawbot stopped before the result was known; whether it took effect must be checked by hand"},
		{agent.Approval{Status: agent.ApprovalDenied, DecidedBy: boss, DecidedByName: "Bo", Source: agent.SourcePerson, Reason: "not today", CallStatus: agent.CallPrepared},
			"Denied: note", "denied by Bo (slack:T1/U2) at 2026-01-02 03:04:05 UTC: not today. It was not executed"},
		{agent.Approval{Status: agent.ApprovalExpired, Source: agent.SourceTimeout, Reason: "nobody decided in time", CallStatus: agent.CallExpired},
			"Expired: note", "expired at 2026-01-02 03:04:05 UTC, nobody decided in time. It was not executed"},
		{agent.Approval{Status: agent.ApprovalUndeliverable, Source: agent.SourceSystem, CallStatus: agent.CallUndeliverable},
			"Undeliverable: note", "could not be shown to anybody, 2026-01-02 03:04:05 UTC. It was not executed"},
		{agent.Approval{Status: agent.ApprovalCancelled, Source: agent.SourceSystem, CallStatus: agent.CallCancelled},
			"Cancelled: note", "cancelled at 2026-01-02 03:04:05 UTC. It was not executed"},
	} {
		c.a.Tool, c.a.Args, c.a.DecidedAt = "note", "{}", at
		card := Draw(c.a, agent.NewMasker())
		if card.Title != c.title || card.Outcome != c.out {
			t.Errorf("%s, %s:\n%s\n%s, want\n%s\n%s", c.a.Status, c.a.CallStatus, card.Title, card.Outcome, c.title, c.out)
		}
	}
}
