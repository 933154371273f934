package agent

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// ConfigError is one mistake in the settings. Path names the place as in
// "approval.rules[2].when", so that whoever read the file can add its line and
// column; Msg says what is wrong and what to write, without any secret.
type ConfigError struct {
	Path string
	Msg  string
}

func (e *ConfigError) Error() string { return e.Path + ": " + e.Msg }

// Config is the section `agent` of the settings file. DefaultConfig has the
// values that count where the file is silent.
type Config struct {
	// SystemPrompt opens every model request. It may be empty.
	SystemPrompt string `yaml:"system_prompt"`
	// MaxToolIterations bounds the model requests of a turn that may call tools;
	// after them comes one last request without tools, for a summary. At least 1.
	MaxToolIterations int `yaml:"max_tool_iterations"`
	// MaxToolResultChars bounds one tool result as the model sees it, in
	// characters; the whole text stays in the database. At least MinToolResultChars.
	MaxToolResultChars int `yaml:"max_tool_result_chars"`
	// ParallelTools lets the calls of one answer run at the same time where none
	// of them needs consent.
	ParallelTools bool `yaml:"parallel_tools"`
	// ExcludedTools are tool names that neither the model sees nor anything
	// runs; upper and lower case are the same.
	ExcludedTools []string `yaml:"excluded_tools"`
	// ToolProtocol says how the model is told of tools.
	ToolProtocol ToolProtocol `yaml:"tool_protocol"`
	// StrictParsing hides the text protocol, whatever ToolProtocol says: what looks like
	// a call in a text is text.
	StrictParsing bool `yaml:"strict_parsing"`
	// ToolReceipts adds a line of evidence to each successful result.
	ToolReceipts ToolReceipts `yaml:"tool_receipts"`
	// LoopGuard notices a model that goes round in circles.
	LoopGuard LoopGuard `yaml:"loop_guard"`
	// ProgressAfter is how long a turn with tool calls goes on before a status line
	// shows how far it is, with a button to stop it. Zero shows none.
	ProgressAfter time.Duration `yaml:"progress_after"`
	// TurnTimeout bounds the working time of a turn; waiting for people does not count.
	TurnTimeout time.Duration `yaml:"turn_timeout"`
}

// ToolReceipts is the part `agent.tool_receipts` of the settings file.
type ToolReceipts struct {
	Enabled bool `yaml:"enabled"`
	// KeyFile holds the key; empty is a file in the data directory. Processes on one
	// database need the same.
	KeyFile string `yaml:"key_file"`
}

// ToolProtocol is a way to offer tools to a model.
type ToolProtocol string

const (
	ProtocolNative ToolProtocol = "native" // the provider's own tool calls
	ProtocolText   ToolProtocol = "text"   // instructions in the prompt, calls in the text
)

// TextProtocol reports whether tools are offered in the text.
func (c Config) TextProtocol() bool { return c.ToolProtocol == ProtocolText && !c.StrictParsing }

// MinToolResultChars leaves room for the marker that says how much is missing.
const MinToolResultChars = 200

// DefaultConfig returns the settings of an empty file.
func DefaultConfig() Config {
	return Config{
		SystemPrompt:       "You are clawbot.",
		MaxToolIterations:  10,
		MaxToolResultChars: 50_000,
		ParallelTools:      true,
		ToolProtocol:       ProtocolNative,
		LoopGuard:          LoopGuard{Enabled: true},
		ProgressAfter:      3 * time.Second,
		TurnTimeout:        20 * time.Minute,
	}
}

// Validate returns every mistake, each a *ConfigError.
func (c Config) Validate() []error {
	var errs []error
	wrong := func(key, format string, args ...any) {
		errs = append(errs, &ConfigError{Path: "agent." + key, Msg: fmt.Sprintf(format, args...)})
	}
	if c.MaxToolIterations < 1 {
		wrong("max_tool_iterations", "%d leaves the model no request; write 1 or more", c.MaxToolIterations)
	}
	if c.MaxToolResultChars < MinToolResultChars {
		wrong("max_tool_result_chars", "%d is too few; write %d or more", c.MaxToolResultChars, MinToolResultChars)
	}
	if c.ProgressAfter < 0 {
		wrong("progress_after", "%s is below zero; write 0s for no status line", c.ProgressAfter)
	}
	if c.TurnTimeout <= 0 {
		wrong("turn_timeout", "%s leaves no time; write a duration above zero such as 20m", c.TurnTimeout)
	}
	switch c.ToolProtocol {
	case ProtocolNative, ProtocolText:
	default:
		wrong("tool_protocol", "%q is unknown; write native or text", c.ToolProtocol)
	}
	for i, name := range c.ExcludedTools {
		if name == "" || strings.ContainsFunc(name, notInToolName) {
			wrong(fmt.Sprintf("excluded_tools[%d]", i), "%q is no tool name; write letters, digits, _ and - only", name)
		}
	}
	return errs
}

// Excludes reports whether ExcludedTools names a tool, in any case.
func (c Config) Excludes(tool string) bool {
	return slices.ContainsFunc(c.ExcludedTools, func(n string) bool { return strings.EqualFold(n, tool) })
}

func notInToolName(r rune) bool {
	return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '_' || r == '-')
}
