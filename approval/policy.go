package approval

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"cel.dev/cel-go/cel"

	"github.com/clawbot/clawbot/agent"
)

// Policy is the compiled section `approval` of the settings. It never changes
// and can be used by many goroutines at once.
//
// The rules are asked by priority, then in the order of the file; the first
// that names the tool and whose condition holds decides. If none does, the
// tool's own default decides, or the stricter of it and approval.default. All
// that goes wrong on the way refuses the call, with source system.
type Policy struct {
	rules    []rule // in the order in which they are asked
	fallback *agent.Action
	general  terms
	hash     string
	warn     func(rule, problem string)
}

// rule is a Rule ready to be asked.
type rule struct {
	name   string
	globs  []string // lower case
	when   cel.Program
	action agent.Action
	reason string
	terms  terms // action ask and ask_input
	target string
	prompt string
	secret bool
}

// terms are who decides, and how.
type terms struct {
	approvers agent.Approvers
	quorum    int
	timeout   time.Duration
	// where the settings say who and how many
	approversPath, quorumPath string
}

// NewPolicy checks the settings and compiles their rules. It returns either a
// policy or every mistake, each an *agent.ConfigError.
func NewPolicy(c Config) (*Policy, []error) {
	errs := configErrors(c.validate())
	env, err := conditionEnv()
	if err != nil {
		return nil, append(errs, fmt.Errorf("declare the variables of conditions: %w", err))
	}
	p := &Policy{
		general: terms{
			c.Approvers.copy(), c.Quorum, c.Timeout,
			"approval.approvers", "approval.quorum",
		},
		warn: c.Warn,
	}
	if c.Default != nil {
		p.fallback = new(*c.Default)
	}
	compiled := make([]rule, len(c.Rules))
	order := make([]int, len(c.Rules)) // in which they are asked
	for i, r := range c.Rules {
		compiled[i] = compileRule(env, i, r, p.general, &errs)
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(c.Rules[b].Priority, c.Rules[a].Priority) })
	for _, i := range order {
		p.rules = append(p.rules, compiled[i])
	}
	p.checkTerms(&errs)
	if len(errs) > 0 {
		return nil, errs
	}
	if p.hash, err = hashRules(c, order); err != nil {
		return nil, []error{fmt.Errorf("hash the rules: %w", err)}
	}
	return p, nil
}

func compileRule(env *cel.Env, i int, r Rule, general terms, errs *configErrors) rule {
	out := rule{
		name: r.name(i), action: r.Action, reason: strings.TrimSpace(r.Reason),
		terms: general, target: r.TargetArg, prompt: r.Prompt, secret: r.Secret,
	}
	for _, glob := range r.Tools {
		out.globs = append(out.globs, strings.ToLower(glob))
	}
	if r.When != "" {
		program, msgs := r.When.compile(env)
		for _, msg := range msgs {
			errs.add(rulePath(i)+".when", "%s", msg)
		}
		out.when = program
	}
	if r.Approvers != nil {
		out.terms.approvers = r.Approvers.copy()
		out.terms.approversPath = rulePath(i) + ".approvers"
		out.terms.quorumPath = out.terms.approversPath // a general quorum may be too high for them
	}
	if r.Action == agent.AskInput {
		out.terms.quorum = 1 // of one person comes one value
	}
	if r.Quorum != nil {
		out.terms.quorum = *r.Quorum
		out.terms.quorumPath = rulePath(i) + ".quorum"
	}
	if r.Timeout != nil {
		out.terms.timeout = *r.Timeout
	}
	return out
}

// checkTerms finds questions that nobody could answer. A mistake in the general
// terms is told once, however many rules use them.
func (p *Policy) checkTerms(errs *configErrors) {
	told := map[string]bool{}
	for _, a := range p.Asking() {
		if a.Approvers.Empty() && !told[a.ApproversPath] {
			told[a.ApproversPath] = true
			errs.add(a.ApproversPath, "nobody may decide what is asked; write at least one of users, slack_groups, discord_roles, requester: true, local: true")
		}
	}
}

// Unmeetable returns a notice for each question whose quorum is above the number
// of people who can decide it: its calls can be denied or expire, never run. That
// is safe, so it is no mistake that keeps clawbot from starting.
func (p *Policy) Unmeetable() []string {
	var out []string
	for _, a := range p.Asking() {
		most, bounded := Approvers(a.Approvers).most()
		notice := fmt.Sprintf("%s: %d people must agree but at most %d can decide, so these calls never run; write a quorum of at most %d or name more approvers",
			a.QuorumPath, a.Quorum, most, most)
		if bounded && a.Quorum > most && !slices.Contains(out, notice) {
			out = append(out, notice)
		}
	}
	return out
}

// Asking is one place of the policy that may put a question to people.
type Asking struct {
	Rule      string // empty for calls that no rule matches
	Approvers agent.Approvers
	Quorum    int
	// Where the settings say so, as "approval.rules[2].approvers" or, for what a
	// rule does not say itself, "approval.approvers".
	ApproversPath string
	QuorumPath    string
}

// Asking lists the places that may put a question to people, in the order in
// which they are asked. What stands behind a rule for every call is left out,
// as it never gets to ask.
func (p *Policy) Asking() []Asking {
	var out []Asking
	for _, r := range p.rules {
		if r.action == agent.Ask || r.action == agent.AskInput {
			out = append(out, Asking{r.name, r.terms.approvers, r.terms.quorum, r.terms.approversPath, r.terms.quorumPath})
		}
		if r.when == nil && slices.ContainsFunc(r.globs, matchesAll) {
			return out
		}
	}
	if p.fallback == nil || *p.fallback != agent.Deny {
		g := p.general
		out = append(out, Asking{"", g.approvers, g.quorum, g.approversPath, g.quorumPath})
	}
	return out
}

// Names reports whether a rule names the tool. Of others the tool's own default and
// approval.default decide.
func (p *Policy) Names(tool string) bool {
	tool = strings.ToLower(tool)
	return slices.ContainsFunc(p.rules, func(r rule) bool { return r.names(tool) })
}

// names reports whether the rule is about a tool, whose name is in lower case.
func (r rule) names(tool string) bool {
	return slices.ContainsFunc(r.globs, func(g string) bool { return agent.MatchGlob(g, tool) })
}

// Hash identifies the rules: equal hashes decide alike. `clawbot doctor` shows
// it, so that two machines can be compared.
func (p *Policy) Hash() string { return p.hash }

// hashRules hashes what decides, with the rules in the order in which they are asked.
func hashRules(c Config, order []int) (string, error) {
	rules := make([]Rule, len(order))
	for i, at := range order {
		rules[i] = c.Rules[at]
		rules[i].Name = rules[i].name(at)
	}
	b, err := json.Marshal(struct {
		Timeout      time.Duration
		DenialPolicy agent.AfterDenial
		Approvers    Approvers
		Quorum       int
		Default      *agent.Action
		Rules        []Rule
	}{c.Timeout, c.DenialPolicy, c.Approvers, c.Quorum, c.Default, rules})
	return agent.SHA256(string(b)), err
}

// Judge decides about one call. It looks at nothing but the policy and the
// question.
func (p *Policy) Judge(q agent.Question) (j agent.Judgement) {
	defer func() {
		if recover() != nil { // the panic's own text may hold arguments
			j = p.fault("", "the policy failed on this call")
		}
	}()
	args, err := decodeArgs(q.Args)
	if err != nil {
		return p.fault("", "the policy cannot read the arguments")
	}
	name := strings.ToLower(q.Tool.Name)
	vars := variables(q, args)
	for _, r := range p.rules {
		if !r.names(name) {
			continue
		}
		if r.when != nil {
			yes, problem := holds(r.when, vars)
			if problem != "" {
				return p.fault(r.name, fmt.Sprintf("the condition of rule %s cannot be evaluated: %s", r.name, problem))
			}
			if !yes {
				continue
			}
		}
		return r.judgement()
	}
	return p.judgeByDefault(q, args)
}

func (r rule) judgement() agent.Judgement {
	j := agent.Judgement{Action: r.action, Rule: r.name, Reason: r.reason, Source: agent.SourcePolicy}
	if j.Reason == "" {
		j.Reason = fmt.Sprintf("rule %s says %s", r.name, r.action)
	}
	if r.action == agent.Ask || r.action == agent.AskInput {
		r.terms.apply(&j)
		j.Prompt, j.TargetArg, j.Secret = r.prompt, r.target, r.secret
	}
	return j
}

// judgeByDefault decides where no rule does.
func (p *Policy) judgeByDefault(q agent.Question, args map[string]any) agent.Judgement {
	own := agent.Ask
	if q.Tool.Default != nil {
		own = q.Tool.Default(args, q.Origin)
	}
	j := agent.Judgement{Action: own, Source: agent.SourcePolicy}
	j.Reason = fmt.Sprintf("no rule matches and the tool's default is %s", own)
	if p.fallback != nil && strictness(*p.fallback) > strictness(own) {
		j.Action = *p.fallback
		j.Reason = fmt.Sprintf("no rule matches and approval.default is %s", *p.fallback)
	}
	switch j.Action {
	case agent.Allow, agent.Deny:
	case agent.Ask:
		p.general.apply(&j)
	default: // ask_input needs a rule with a target; other words are no action
		return p.fault("", "the tool's default is no action")
	}
	return j
}

func (t terms) apply(j *agent.Judgement) {
	j.Approvers, j.Quorum, j.Timeout = Approvers(t.approvers).copy(), t.quorum, t.timeout
}

// fault refuses a call on which the policy itself failed.
func (p *Policy) fault(rule, reason string) agent.Judgement {
	if p.warn != nil {
		p.warn(rule, reason)
	}
	return agent.Judgement{Action: agent.Deny, Rule: rule, Reason: reason, Source: agent.SourceSystem}
}

// strictness orders the actions; a word that is none is the strictest.
func strictness(a agent.Action) int {
	switch a {
	case agent.Allow:
		return 0
	case agent.Ask:
		return 1
	case agent.AskInput:
		return 2
	case agent.Deny:
		return 3
	}
	return 4
}

// matchesAll reports whether a pattern matches every name.
func matchesAll(glob string) bool { return glob != "" && strings.Trim(glob, "*") == "" }
