package agent

import (
	"errors"
	"strings"
	"testing"
	"time"
)

func TestDefaultConfigIsValid(t *testing.T) {
	if errs := DefaultConfig().Validate(); errs != nil {
		t.Fatal(errs)
	}
}

func TestConfigMistakes(t *testing.T) {
	for want, change := range map[string]func(*Config){
		"agent.max_tool_iterations: 0 leaves":                    func(c *Config) { c.MaxToolIterations = 0 },
		"agent.max_tool_result_chars: 199 is too few":            func(c *Config) { c.MaxToolResultChars = 199 },
		"agent.turn_timeout: -1s leaves":                         func(c *Config) { c.TurnTimeout = -time.Second },
		`agent.tool_protocol: "xml" is unknown; write native or`: func(c *Config) { c.ToolProtocol = "xml" },
		`agent.excluded_tools[1]: "read file" is no tool name`:   func(c *Config) { c.ExcludedTools = []string{"shell", "read file"} },
		`agent.excluded_tools[0]: "" is no tool name`:            func(c *Config) { c.ExcludedTools = []string{""} },
	} {
		c := DefaultConfig()
		change(&c)
		errs := c.Validate()
		var e *ConfigError
		if len(errs) != 1 || !errors.As(errs[0], &e) || !strings.HasPrefix(e.Error(), want) {
			t.Errorf("got %v, want %s", errs, want)
		}
	}
}
