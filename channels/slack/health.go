package slack

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// health is what /readyz says about the channel. Adapter.mu guards it.
type health struct {
	problems map[string]string // by subject; a subject without a problem is absent
	up       map[int]bool      // Socket Mode connections by number
}

// Health reports whether messages can come in, and in words what there is to
// know. It may be ok and still name a problem, such as a missing scope.
func (a *Adapter) Health() (ok bool, detail string) {
	a.mu.RLock()
	defer a.mu.RUnlock()
	var says []string
	switch {
	case a.self.workspace == "":
		says = append(says, "not signed in")
	case a.now == nil:
		says = append(says, "not running")
	default:
		ok = true
		says = append(says, "workspace "+a.self.workspace)
	}
	if a.cfg.Secrets.AppToken != "" {
		up := 0
		for _, connected := range a.health.up {
			if connected {
				up++
			}
		}
		says = append(says, fmt.Sprintf("%d of %d connections", up, a.cfg.Connections))
		ok = ok && (up > 0 || a.cfg.Secrets.SigningSecret != "")
	}
	for _, subject := range slices.Sorted(maps.Keys(a.health.problems)) {
		says = append(says, a.health.problems[subject])
	}
	return ok, strings.Join(says, "; ")
}

// setProblem notes or, with "", clears what is wrong with a subject.
func (a *Adapter) setProblem(subject, text string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if text == "" {
		delete(a.health.problems, subject)
		return
	}
	if a.health.problems == nil {
		a.health.problems = map[string]string{}
	}
	a.health.problems[subject] = text
}

func (a *Adapter) setUp(connection int, up bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.health.up == nil {
		a.health.up = map[int]bool{}
	}
	a.health.up[connection] = up
}
