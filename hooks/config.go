package hooks

import (
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/clawbot/clawbot/agent"
)

// When a hook runs.
const (
	Before = "before"
	After  = "after"
)

// DefaultTimeout is how long a hook may take where it says nothing, and MaxTimeout the
// most that it may say: a turn waits for it.
const (
	DefaultTimeout = 5 * time.Second
	MaxTimeout     = time.Minute
)

// Config is the section `hooks` of the settings file, in the order in which hooks run.
type Config []Hook

// Hook is one command or endpoint.
type Hook struct {
	// Name is told where the hook cancels or fails; unique.
	Name string `yaml:"name"`
	// When is before or after.
	When string `yaml:"when"`
	// Tools are globs over tool names as in approval.rules; empty is all.
	Tools []string `yaml:"tools"`
	// Command is a program and its arguments, run without a shell. URL is an address
	// that takes a POST. One of the two.
	Command []string `yaml:"command"`
	URL     string   `yaml:"url"`
	// Timeout is how long it may take; nil is DefaultTimeout.
	Timeout *time.Duration `yaml:"timeout"`
}

// Validate returns every mistake, each an *agent.ConfigError.
func (c Config) Validate() []error {
	var errs []error
	for i, h := range c {
		wrong := func(key, format string, args ...any) {
			errs = append(errs, &agent.ConfigError{Path: fmt.Sprintf("hooks[%d].%s", i, key), Msg: fmt.Sprintf(format, args...)})
		}
		if h.Name == "" || len(h.Name) > 64 || strings.ContainsFunc(h.Name, func(r rune) bool { return r <= ' ' || r > '~' }) {
			wrong("name", "%q is no name for a hook; write 1 to 64 letters, digits and signs without spaces", h.Name)
		}
		if first := slices.IndexFunc(c, func(o Hook) bool { return o.Name == h.Name }); h.Name != "" && first < i {
			wrong("name", "%q is also the name of hooks[%d]; write different names", h.Name, first)
		}
		if h.When != Before && h.When != After {
			wrong("when", "%q is unknown; write before or after", h.When)
		}
		for j, glob := range h.Tools {
			if glob == "" || strings.ContainsFunc(glob, func(r rune) bool { return r <= ' ' || r > '~' }) {
				wrong(fmt.Sprintf("tools[%d]", j), "%q matches no tool name; write letters, digits, _ and -, with * for any text and ? for one character", glob)
			}
		}
		switch {
		case (len(h.Command) == 0) == (h.URL == ""):
			wrong("command", `one of the two is needed; write command: ["PROGRAM", "ARGUMENT"] or url: "https://HOST/PATH"`)
		case h.URL != "":
			if u, err := url.Parse(h.URL); err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.User != nil {
				wrong("url", "it is no address of an endpoint; write http:// or https:// and a host, without a password")
			}
		case h.Command[0] == "":
			wrong("command[0]", "the program is blank; write its path")
		}
		if h.Timeout != nil && (*h.Timeout <= 0 || *h.Timeout > MaxTimeout) {
			wrong("timeout", "%s is out of range; write a duration above zero and at most %s", *h.Timeout, MaxTimeout)
		}
	}
	return errs
}
