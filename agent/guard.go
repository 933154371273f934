package agent

import (
	"fmt"
	"slices"
	"strings"
)

// LoopGuard is the part `agent.loop_guard` of the settings file: it notices a
// model that goes round in circles.
type LoopGuard struct {
	Enabled bool `yaml:"enabled"`
	// Ignore are tools that are meant to be called again and again, such as one
	// that polls; upper and lower case are the same. They still count towards
	// max_tool_iterations.
	Ignore []string `yaml:"ignore"`
}

// guardVerdict is what the loop guard says about one call.
type guardVerdict int

const (
	guardPass  guardVerdict = iota
	guardWarn               // it runs, and the model is warned with its result
	guardBlock              // it does not run
	guardStop               // it does not run, and the turn ends
)

// How far back the guard looks, and the counts at which it warns; the next one
// blocks and the one after stops.
const (
	guardWindow      = 20
	warnRepeats      = 3 // the same call in a row
	warnPingPong     = 4 // cycles of two calls in turn
	warnNoProgress   = 5 // calls of one tool with the same result
	guardBlockedText = "Blocked: "
)

// guard judges the call at the given index from those before it, so that a turn
// that is taken up again is judged alike. What it finds is told in words.
func (g LoopGuard) guard(calls []ToolCall, at int) (guardVerdict, string) {
	if !g.Enabled || g.ignores(calls[at].Tool) {
		return guardPass, ""
	}
	var past []ToolCall
	for _, c := range calls[max(0, at-guardWindow):at] {
		// Calls of one answer were asked for before any of their results was known.
		if c.Batch < calls[at].Batch && !g.ignores(c.Tool) && c.Status != CallDeduplicated && c.Status != CallSkipped {
			past = append(past, c)
		}
	}
	verdict, why := guardPass, ""
	for _, f := range []func([]ToolCall, ToolCall) (int, string){repeats, pingPong, noProgress} {
		if n, what := f(past, calls[at]); guardVerdict(n) > verdict {
			verdict, why = guardVerdict(n), what
		}
	}
	return verdict, why
}

// loops reports whether the guard has seen enough: it stopped a call of the
// latest answer.
func (r *run) loops() bool {
	for i := len(r.work.Calls) - 1; i >= 0 && r.work.Calls[i].Batch == r.work.Calls[len(r.work.Calls)-1].Batch; i-- {
		if c := r.work.Calls[i]; c.Status == CallBlocked && strings.HasPrefix(c.Error, guardBlockedText) {
			if verdict, _ := r.Config.LoopGuard.guard(r.work.Calls, i); verdict == guardStop {
				return true
			}
		}
	}
	return false
}

func (g LoopGuard) ignores(tool string) bool {
	return slices.ContainsFunc(g.Ignore, func(n string) bool { return strings.EqualFold(n, tool) })
}

// step turns a count into a verdict: warn at the given count, block one later,
// stop after that.
func step(count, warn int) int { return min(max(count-warn+1, 0), int(guardStop)) }

// consented reports whether a person approved the call: then it is no loop, and
// counting begins anew.
func consented(c ToolCall) bool { return c.Approval != "" && c.Status.Ran() }

// repeats counts the same call in a row.
func repeats(past []ToolCall, c ToolCall) (int, string) {
	n := 1
	for i := len(past) - 1; i >= 0 && past[i].Tool == c.Tool && past[i].Args == c.Args && !consented(past[i]); i-- {
		n++
	}
	return step(n, warnRepeats), fmt.Sprintf("this is the same call %d times in a row", n)
}

// pingPong counts cycles of two different calls that alternate.
func pingPong(past []ToolCall, c ToolCall) (int, string) {
	line := append(slices.Clone(past), c)
	same := func(a, b ToolCall) bool { return a.Tool == b.Tool && a.Args == b.Args }
	n := 1
	for i := len(line) - 2; i >= 0 && !consented(line[i]); i-- {
		if same(line[i], line[i+1]) || i+2 < len(line) && !same(line[i], line[i+2]) {
			break
		}
		n++
	}
	if n < 2*warnPingPong {
		return 0, ""
	}
	cycles := (n + 1) / 2
	return step(cycles, warnPingPong), fmt.Sprintf("the same two calls alternate for the %dth time", cycles)
}

// noProgress counts calls of one tool that differ and yet have the same result.
func noProgress(past []ToolCall, c ToolCall) (int, string) {
	n, differ := 1, false
	var last *ToolCall
	for i := len(past) - 1; i >= 0 && past[i].Tool == c.Tool && !consented(past[i]); i-- {
		p := &past[i]
		differ = differ || p.Args != c.Args
		if p.Status == CallBlocked && strings.HasPrefix(p.Error, guardBlockedText) {
			n++ // by this guard: it would have been one more
			continue
		}
		if last != nil && (p.Output != last.Output || p.Error != last.Error) {
			break
		}
		last = p
		n++
	}
	if !differ || last == nil {
		return 0, ""
	}
	return step(n, warnNoProgress), fmt.Sprintf("%d calls of this tool in a row, with different arguments, had the same result", n-1)
}
