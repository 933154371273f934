package agent_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/clawbot/clawbot/agent"
)

// However a turn ends, the thread is told: an answer, or a notice that says what
// happened and bears the turn's id. The next message is answered as if nothing had been.
//
// Rows: L130.
func TestEveryEndIsTold(t *testing.T) {
	t.Parallel()
	repeats := func(n int) string { return strings.Repeat("call note {\"x\":1}\n", n) }
	for name, c := range map[string]struct {
		settings, rules, model string
		script                 string // before which a message is sent
		status                 agent.TurnStatus
		told                   string // ID: the turn's
	}{
		"answer":                      {model: "say hello", status: agent.TurnDone, told: "hello"},
		"answer after a call":         {rules: "allow *", model: "call note {}\nsay hello", status: agent.TurnDone, told: "hello"},
		"answer after a no":           {model: "call note {}\nsay I may not", script: "boss clicks deny", status: agent.TurnDone, told: "I may not"},
		"blank answer":                {model: "blank", status: agent.TurnDone, told: "The model returned an empty answer (ID)."},
		"withheld answer":             {model: "withheld", status: agent.TurnDone, told: "The model's provider withheld the answer (ID)."},
		"the key is refused":          {model: "fail auth", status: agent.TurnFailed, told: "refuses the key; an operator has to look at it (ID)."},
		"the model is away":           {model: "fail unavailable", status: agent.TurnFailed, told: "cannot be reached right now; please try again later (ID)."},
		"the request is refused":      {model: "fail refused", status: agent.TurnFailed, told: "refuses the request; an operator has to look at it (ID)."},
		"the model breaks down":       {model: "fail strangely", status: agent.TurnFailed, told: "Something went wrong on my side and I had to stop (ID)."},
		"the model is away later":     {rules: "allow *", model: "call note {}\nfail unavailable", status: agent.TurnFailed, told: "cannot be reached right now; please try again later (ID)."},
		"steps are used up":           {settings: "max_tool_iterations 1", rules: "allow *", model: "call note {}\nsay so far", status: agent.TurnDone, told: "so far"},
		"steps are used up, no word":  {settings: "max_tool_iterations 1", rules: "allow *", model: "call note {}\ncall note {}", status: agent.TurnDone, told: "The model returned an empty answer (ID)."},
		"time is used up":             {settings: "turn_timeout 200ms", rules: "allow *", model: "call hold {}", status: agent.TurnFailed, told: "I ran out of time for this and stopped (ID)."},
		"a tool hears nobody":         {settings: "turn_timeout 200ms", rules: "allow *", model: "call deaf {}", status: agent.TurnFailed, told: "I ran out of time for this and stopped (ID)."},
		"a person stops it":           {rules: "allow *", model: "call hold {}", script: "wait for hold\nben: stop", status: agent.TurnCancelled, told: "Stopped by ben (ID)."},
		"a person stops its question": {model: "call note {}", script: "wait parked\nben: stop", status: agent.TurnCancelled, told: "Stopped by ben (ID)."},
		"round in circles":            {rules: "allow *", model: repeats(5), status: agent.TurnFailed, told: "I went round in circles with the same calls and stopped (ID)."},
		"insists after a no":          {model: repeats(3), script: "boss clicks deny", status: agent.TurnFailed, told: "I went round in circles with the same calls and stopped (ID)."},
		"a no degrades":               {settings: "after_denial degrade", model: "call note {}", script: "boss clicks deny", status: agent.TurnDegraded, told: "I stopped here, because note was denied (ID)."},
		"a no fails":                  {settings: "after_denial fail", model: "call note {}", script: "boss clicks deny", status: agent.TurnFailed, told: "I stopped here, because note was denied (ID)."},
		"the policy's no fails":       {settings: "after_denial fail", rules: "deny note", model: "call note {}", status: agent.TurnFailed, told: "I stopped here, because note was denied (ID)."},
		"the clock fails":             {settings: "after_denial fail", rules: "ask note for 200ms", model: "call note {}", script: "wait failed", status: agent.TurnFailed, told: "I stopped here, because note was not decided in time (ID)."},
		"no card fails":               {settings: "after_denial fail", model: "call note {}", script: "refuse cards", status: agent.TurnFailed, told: "I stopped here, because note could not be put to anybody (ID)."},
		"a forged result":             {model: "call note {} ; gated {}", script: "boss clicks approve 1\nsettle\nforge result of note\nboss clicks approve 2", status: agent.TurnFailed, told: "a stored result is not the one that I stored; an operator has to look at it (ID)."},
		"the process died":            {rules: "allow *", model: "call hold {}\nsay please look", script: "wait for hold\ncrash\nstart", status: agent.TurnDone, told: "please look"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			b.configure(c.settings)
			b.policy = b.rules(c.rules)
			b.model.script(t, c.model)
			b.start()
			script := lines(c.script)
			if c.script == "refuse cards" { // before anything is asked
				b.step(script[0])
				script = nil
			}
			b.step("ann: go")
			for _, line := range script {
				b.step(line)
			}
			b.settle()
			status := b.query(`SELECT status FROM turns`)
			id := strings.TrimSpace(b.query(`SELECT id FROM turns`))
			told := b.query(`SELECT text FROM deliveries WHERE kind = 'text' AND turn_id = $1 ORDER BY ordinal DESC LIMIT 1`, id)
			if want := strings.ReplaceAll(c.told, "ID", id); status != fmt.Sprintln(c.status) || !strings.HasSuffix(told, want+"\n") {
				t.Errorf("the turn is %sthe thread is told %swant %s", status, told, want)
			}
			if shown := b.room.shown(); !strings.Contains(shown, "clawbot: "+strings.TrimSpace(stableText(told))) {
				t.Errorf("people see\n%s", shown)
			}
			b.model.script(t, "say and on")
			b.ledger.letGo()
			b.step("ann: go on")
			b.settle()
			if shown := b.room.shown(); !strings.HasSuffix(shown, "clawbot: and on\n") {
				t.Errorf("the next message is not answered:\n%s", shown)
			}
			b.stop()
			b.checkInvariants()
		})
	}
}
