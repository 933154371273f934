package demo

import (
	"encoding/json"
	"strings"
	"unicode/utf8"

	"github.com/clawbot/clawbot/agent"
)

const (
	self = "I am the *demo model*: offline and scripted, with no language model behind me. " +
		"Set OPENAI_API_KEY or ANTHROPIC_API_KEY for a real one."

	examples = "I understand these wishes:\n" +
		"- `write notes.txt: hello`, also two at once: `write a.txt: x and write b.txt: y`\n" +
		"- `read notes.txt` and `list` or `list DIR`\n" +
		"- `fetch https://example.com/`\n" +
		"- `run date` (if the shell is on)\n" +
		"- `remind me in 5 minutes: tea`, `remind me every day: stand-up`, `reminders`, `forget ID`\n" +
		"- `send hello` and `send hello to C0123`\n" +
		"- `call TOOL {\"any\": \"arguments\"}`"

	maxShown = 3000 // characters of a result in an answer
)

// introduce puts the introduction before the first answer that surely is shown:
// one without calls. Text beside calls may stay inside.
func introduce(req agent.ModelRequest, text string) string {
	for _, m := range req.Messages {
		if m.Role == agent.RoleAssistant && len(m.Calls) == 0 {
			return text
		}
	}
	return self + "\n\n" + text
}

// announce is the text beside calls.
func announce(req agent.ModelRequest, reply agent.ModelReply) string {
	var names []string
	for _, call := range reply.Calls {
		names = append(names, call.Tool)
	}
	text := reply.Text + "I ask for " + strings.Join(names, " and ") + "."
	for _, m := range req.Messages {
		if m.Role == agent.RoleAssistant {
			return text
		}
	}
	return "(Demo model, offline and scripted.) " + text
}

// unavailable says why a tool cannot be called and how to change that.
func unavailable(tool string) string {
	text := "The tool " + tool + " is not available here"
	switch tool {
	case "shell":
		return "The shell is off. To turn it on, set `tools.shell.enabled: true` in the file that CLAWBOT_CONFIG names and restart clawbot."
	case "http_fetch":
		return text + ". To turn it on, set `tools.http_fetch.enabled: true` in the file that CLAWBOT_CONFIG names and restart clawbot."
	}
	return text + "."
}

// done is one call with its result.
type done struct {
	tool   string
	result agent.Message
}

func report(batch []done) string {
	var parts []string
	for _, d := range batch {
		text, said := shown(d.result.Text), "succeeded"
		if d.result.Failed {
			text, said = shown(reason(d.result.Text)), "did not succeed"
		}
		parts = append(parts, d.tool+" "+said+": "+text)
	}
	return strings.Join(parts, "\n\n")
}

// reason is the error of a result without success, which comes as JSON.
func reason(text string) string {
	var result struct {
		Error string `json:"error"`
	}
	if json.Unmarshal([]byte(text), &result) != nil || result.Error == "" {
		return text
	}
	return result.Error
}

// shown bounds a result and fences it if it has several lines.
func shown(text string) string {
	text = strings.TrimSpace(agent.Clean(text))
	if text == "" {
		return "(no output)"
	}
	if utf8.RuneCountInString(text) > maxShown {
		text = string([]rune(text)[:maxShown]) + "\n… (the rest is left out)"
	}
	if !strings.Contains(text, "\n") {
		return text
	}
	fence := "```"
	for strings.Contains(text, fence) {
		fence += "`"
	}
	return "\n" + fence + "\n" + text + "\n" + fence
}
