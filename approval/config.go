package approval

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/clawbot/clawbot/agent"
)

// Config is the section `approval` of the settings file. DefaultConfig has the
// values that count where the file is silent; NewPolicy checks all of it.
type Config struct {
	// Timeout is how long people have to decide; then the call has expired and
	// does not run. Above zero. A rule may have its own.
	Timeout time.Duration `yaml:"timeout"`
	// Reminder is the waiting time after which the question is put again; zero
	// is never.
	Reminder time.Duration `yaml:"reminder"`
	// DenialPolicy says what becomes of a turn when a call of it was refused.
	DenialPolicy agent.AfterDenial `yaml:"denial_policy"`
	// Approvers may decide where a rule names nobody.
	Approvers Approvers `yaml:"approvers"`
	// Quorum is how many different people must say yes, 1 or more; one no is
	// always enough. A rule may have its own.
	Quorum int `yaml:"quorum"`
	// Default is what happens to a call that no rule matches: allow, deny or
	// ask. nil is "not in the file": the tool's own default decides alone. Where
	// it is set, the stricter of the two wins.
	Default *agent.Action `yaml:"default"`
	// Rules are asked by priority, then in the order of the file; the first that
	// matches decides.
	Rules []Rule `yaml:"rules"`

	// Warn is told of each call that was refused because the policy itself
	// failed on it. The text holds no arguments. nil is nobody; it is called
	// from Judge, on many goroutines at once.
	Warn func(rule, problem string) `yaml:"-" json:"-"`
}

// Rule decides about the calls of some tools.
type Rule struct {
	// Name is what the audit records; unique. An unnamed rule is called rule-N
	// by its place in the file, from 1.
	Name string `yaml:"name"`
	// Tools are globs over tool names: * is any text, ? one character, upper and
	// lower case are the same. Tools of MCP servers are named server__tool.
	Tools []string `yaml:"tools"`
	// When narrows the rule to calls for which the condition is true.
	When Condition `yaml:"when"`
	// Action is allow, deny, ask or ask_input.
	Action agent.Action `yaml:"action"`
	// Reason is told to the model and to people.
	Reason string `yaml:"reason"`
	// Priority puts a rule before all of lower priority, whatever the order in
	// the file; zero if not given.
	Priority int `yaml:"priority"`

	// The rest is for ask and ask_input alone.

	// Approvers replaces the general ones as a whole: what it does not name may
	// not decide. nil is the general ones.
	Approvers *Approvers `yaml:"approvers"`
	// Quorum and Timeout replace the general ones; nil is the general one.
	Quorum  *int           `yaml:"quorum"`
	Timeout *time.Duration `yaml:"timeout"`
	// TargetArg is the argument that takes the value which ask_input asks for,
	// and Prompt the question.
	TargetArg string `yaml:"target_arg"`
	Prompt    string `yaml:"prompt"`
	// Secret keeps the value from everything that is shown or recorded.
	Secret bool `yaml:"secret"`
}

// Approvers is who may decide. All of it empty is nobody.
type Approvers struct {
	// Users are people as agent.ParseActor reads them.
	Users []string `yaml:"users"`
	// SlackGroups are ids of Slack user groups.
	SlackGroups []string `yaml:"slack_groups"`
	// DiscordRoles are ids of Discord roles.
	DiscordRoles []string `yaml:"discord_roles"`
	// Requester lets the person who asked decide about the own call.
	Requester bool `yaml:"requester"`
	// Local lets whoever is at the terminal decide, and admins of the console.
	Local bool `yaml:"local"`
}

// Condition is a CEL expression of type bool over
//
//	args     map, the arguments of the call
//	tool     string, the tool's name
//	actor    string, who asked: "slack:T0001/U0001"
//	channel  string, the platform: "slack"
//	session  map of strings: workspace, conversation, thread, id
//
// The strings extension of CEL is there too (lowerAscii, split, …). Integers of
// the arguments stay integers, and numbers of all types compare with each other.
type Condition string

// UnmarshalText refuses a blank condition: a rule that lost its condition would
// match every call.
func (c *Condition) UnmarshalText(text []byte) error {
	if strings.TrimSpace(string(text)) == "" {
		return errors.New("the condition is blank; write a CEL expression or remove the key")
	}
	*c = Condition(text)
	return nil
}

// DefaultConfig returns the settings of an empty file: every tool's own default,
// and only who is at the terminal may decide.
func DefaultConfig() Config {
	return Config{
		Timeout:      5 * time.Minute,
		DenialPolicy: agent.DenialContinue,
		Approvers:    Approvers{Local: true},
		Quorum:       1,
	}
}

// validate returns every mistake but those that compiling the rules finds.
func (c Config) validate() []error {
	var errs configErrors
	if c.Timeout <= 0 {
		errs.add("approval.timeout", "%s leaves no time; write a duration above zero such as 5m", c.Timeout)
	}
	if c.Reminder < 0 {
		errs.add("approval.reminder", "%s is below zero; write 0s for none", c.Reminder)
	}
	switch c.DenialPolicy {
	case agent.DenialContinue, agent.DenialDegrade, agent.DenialFail:
	default:
		errs.add("approval.denial_policy", "%q is unknown; write continue, degrade or fail", c.DenialPolicy)
	}
	if c.Default != nil {
		switch *c.Default {
		case agent.Allow, agent.Ask, agent.Deny:
		default:
			errs.add("approval.default", "%q is unknown; write allow, deny or ask", *c.Default)
		}
	}
	c.Approvers.validate("approval.approvers", &errs)
	if c.Quorum < 1 {
		errs.add("approval.quorum", "%d is too few; write 1 or more", c.Quorum)
	}
	names := map[string]int{}
	for i, r := range c.Rules {
		r.validate(i, &errs)
		name := strings.ToLower(r.name(i))
		if first, twice := names[name]; twice {
			errs.add(rulePath(i)+".name", "%q is also the name of approval.rules[%d]; the audit needs different names", r.name(i), first)
			continue
		}
		names[name] = i
	}
	return errs
}

func (r Rule) validate(i int, errs *configErrors) {
	path := rulePath(i)
	if utf8.RuneCountInString(r.Name) > 100 || strings.ContainsFunc(r.Name, notShown) {
		errs.add(path+".name", "it is shown on cards and in the audit; write at most 100 characters, all of them visible")
	}
	if len(r.Tools) == 0 {
		errs.add(path+".tools", `it names no tool; write globs such as ["shell"] or ["*"]`)
	}
	for j, glob := range r.Tools {
		if glob == "" || strings.ContainsFunc(glob, notInGlob) {
			errs.add(fmt.Sprintf("%s.tools[%d]", path, j), "%q matches no tool name; write letters, digits, _ and -, with * for any text and ? for one character", glob)
		}
	}
	switch r.Action {
	case agent.Allow, agent.Deny:
		for _, key := range r.askingKeys() {
			errs.add(path+"."+key, "it has no effect with action %s, which asks nobody; remove it or write action: ask", r.Action)
		}
		r.refuseInput(path, errs)
	case agent.Ask:
		r.refuseInput(path, errs)
	case agent.AskInput:
		if strings.TrimSpace(r.TargetArg) == "" {
			errs.add(path+".target_arg", "action ask_input needs the argument that takes the answer; write target_arg: NAME")
		}
		if r.Quorum != nil && *r.Quorum > 1 {
			errs.add(path+".quorum", "action ask_input takes the value of one person; write quorum: 1")
		}
	case "":
		errs.add(path+".action", "it is missing; write action: allow, deny, ask or ask_input")
	default:
		errs.add(path+".action", "%q is unknown; write allow, deny, ask or ask_input", r.Action)
	}
	if r.Approvers != nil {
		r.Approvers.validate(path+".approvers", errs)
	}
	if r.Quorum != nil && *r.Quorum < 1 {
		errs.add(path+".quorum", "%d is too few; write 1 or more", *r.Quorum)
	}
	if r.Timeout != nil && *r.Timeout <= 0 {
		errs.add(path+".timeout", "%s leaves no time; write a duration above zero such as 5m", *r.Timeout)
	}
}

// askingKeys names the keys that are set and mean something only where people
// are asked.
func (r Rule) askingKeys() []string {
	var keys []string
	if r.Approvers != nil {
		keys = append(keys, "approvers")
	}
	if r.Quorum != nil {
		keys = append(keys, "quorum")
	}
	if r.Timeout != nil {
		keys = append(keys, "timeout")
	}
	return keys
}

func (r Rule) refuseInput(path string, errs *configErrors) {
	if r.TargetArg != "" {
		errs.add(path+".target_arg", "it has no effect with action %s; remove it or write action: ask_input", r.Action)
	}
	if r.Secret {
		errs.add(path+".secret", "it has no effect with action %s; remove it or write action: ask_input", r.Action)
	}
	if r.Prompt != "" {
		errs.add(path+".prompt", "it has no effect with action %s; remove it or write action: ask_input", r.Action)
	}
}

// name returns the rule's name, or the one it gets by its place.
func (r Rule) name(i int) string {
	if r.Name != "" {
		return r.Name
	}
	return fmt.Sprintf("rule-%d", i+1)
}

func (a Approvers) validate(path string, errs *configErrors) {
	for i, user := range a.Users {
		if _, err := agent.ParseActor(user); err != nil {
			errs.add(fmt.Sprintf("%s.users[%d]", path, i), "%v", err)
		}
	}
	ids := func(key string, list []string) {
		for i, id := range list {
			if id == "" || strings.ContainsFunc(id, func(r rune) bool { return unicode.IsSpace(r) || notShown(r) || r == '*' }) {
				errs.add(fmt.Sprintf("%s.%s[%d]", path, key, i), "%q is no id; write the id that the platform shows", id)
			}
		}
	}
	ids("slack_groups", a.SlackGroups)
	ids("discord_roles", a.DiscordRoles)
}

// copy returns the approvers with lists of their own, so that nobody writes into
// those of the policy.
func (a Approvers) copy() agent.Approvers {
	a.Users = slices.Clone(a.Users)
	a.SlackGroups = slices.Clone(a.SlackGroups)
	a.DiscordRoles = slices.Clone(a.DiscordRoles)
	return agent.Approvers(a)
}

// most returns how many different people the approvers can be at most;
// unbounded if groups, roles or the local machine are among them.
func (a Approvers) most() (people int, bounded bool) {
	if len(a.SlackGroups) > 0 || len(a.DiscordRoles) > 0 || a.Local {
		return 0, false
	}
	users := slices.Clone(a.Users)
	slices.Sort(users)
	people = len(slices.Compact(users))
	if a.Requester {
		people++ // somebody who is not on the list may have asked
	}
	return people, true
}

// configErrors collects mistakes.
type configErrors []error

func (e *configErrors) add(path, format string, args ...any) {
	*e = append(*e, &agent.ConfigError{Path: path, Msg: fmt.Sprintf(format, args...)})
}

func rulePath(i int) string { return fmt.Sprintf("approval.rules[%d]", i) }

// notInGlob: tool names have these characters only, so anything else in a glob
// is a rule that never matches.
func notInGlob(r rune) bool {
	return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' ||
		r == '_' || r == '-' || r == '*' || r == '?')
}

func notShown(r rune) bool { return !unicode.IsPrint(r) }
