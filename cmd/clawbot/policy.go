package main

import (
	"fmt"

	"github.com/clawbot/clawbot/store"
)

// policyCheck says whether the rules compile, and of which tools they say nothing.
// It needs no database. The error is a mistake in the settings.
func (a *app) policyCheck() error {
	policy, err := a.policy()
	if err != nil {
		return err
	}
	box, err := a.toolbox(new(store.DB)) // the list of tools is all that is looked at
	if err != nil {
		return err
	}
	r := &report{app: a}
	r.line("ok", "policy", "%d rules compile, version %s", len(a.Approval.Rules), policy.Hash()[:12])
	for _, n := range policy.Unmeetable() {
		r.line("warn", "policy", "%s", n)
	}
	instead := "its own default decides"
	if d := a.Approval.Default; d != nil {
		instead = fmt.Sprintf("the stricter of its own default and approval.default (%s) decides", *d)
	}
	for _, t := range box.Tools() {
		if !policy.Names(t.Name) && !a.Agent.Excludes(t.Name) {
			r.line("warn", "policy", "no rule names %s: %s", t.Name, instead)
		}
	}
	return nil
}
