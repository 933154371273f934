package agent

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// The table of defaults in docs/lifecycle.md says what the code says. Those of other
// packages are held by theirs.
//
// Rows: L124, L131, L132, L134, L135, L136, L137, L138.
func TestDefaultsAreAsDocumented(t *testing.T) {
	c := DefaultConfig()
	want := map[string]string{
		"`agent.max_tool_iterations`": fmt.Sprint(c.MaxToolIterations), "`agent.max_tool_result_chars`": fmt.Sprint(c.MaxToolResultChars),
		"`agent.parallel_tools`": fmt.Sprint(c.ParallelTools), "`agent.tool_protocol`": string(c.ToolProtocol), "`agent.strict_parsing`": fmt.Sprint(c.StrictParsing),
		"`agent.tool_receipts.enabled`": fmt.Sprint(c.ToolReceipts.Enabled), "`agent.loop_guard.enabled`": fmt.Sprint(c.LoopGuard.Enabled),
		"`agent.turn_timeout`": c.TurnTimeout.String(), "`agent.progress_after`": c.ProgressAfter.String(),
		"characters of one result that are stored": fmt.Sprint(maxStoredOutput), "bytes of text in one model request": fmt.Sprint(historySize),
		"at most so many": fmt.Sprint(maxTogether), "calls that it looks back": fmt.Sprint(guardWindow),
		"same call in a row: warn, then block, then stop": fmt.Sprint(warnRepeats), "cycles of two calls: warn, then block, then stop": fmt.Sprint(warnPingPong),
		"same result of different calls: warn, then block, then stop": fmt.Sprint(warnNoProgress), "same call after a refusal ends the turn": fmt.Sprint(maxRefusals),
		"calls taken from one answer": fmt.Sprint(maxCalls), "open questions of a turn": fmt.Sprint(maxPending),
	}
	page, err := os.ReadFile("../docs/lifecycle.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(page), "\n## Defaults\n")
	table, _, _ = strings.Cut(table, "\n## ")
	got := map[string]string{}
	for _, line := range strings.Split(table, "\n") {
		cells := strings.Split(line, "|")
		if len(cells) != 5 || strings.Contains(line, "---") || strings.Contains(line, "setting") {
			continue
		}
		key := strings.TrimSpace(cells[2])
		if key == "" {
			key = strings.TrimSpace(cells[1])
		}
		if !strings.HasPrefix(key, "`approval.") && !strings.HasPrefix(key, "`hooks") {
			got[key] = strings.TrimSpace(cells[3])
		}
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("- in the code, + on the page\n%s", d)
	}
}
