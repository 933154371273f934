package slack

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	slackgo "github.com/slack-go/slack"

	"github.com/clawbot/clawbot/agent"
)

// cacheFor is how long an answer about a person or group is believed. A person
// who is deactivated can act for so long.
const cacheFor = time.Minute

// cacheMost bounds each cache.
const cacheMost = 10_000

// Person looks up what Slack knows about an actor at this moment, and which of
// the user groups the person is in. Answers are at most a minute old. Somebody
// of another workspace is External without being asked about. A failed look-up
// is an error: the caller must refuse.
func (a *Adapter) Person(ctx context.Context, who agent.Actor, groups []string) (agent.Person, error) {
	return a.people.person(ctx, who, groups)
}

type directory struct {
	api *slackgo.Client
	now func() time.Time

	mu     sync.Mutex
	home   identity
	users  map[string]entry[slackgo.User]
	groups map[string]entry[[]string]
}

type entry[T any] struct {
	value T
	at    time.Time
}

func newDirectory(api *slackgo.Client, now func() time.Time) *directory {
	return &directory{api: api, now: now, users: map[string]entry[slackgo.User]{}, groups: map[string]entry[[]string]{}}
}

func (d *directory) setHome(id identity) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.home = id
}

func (d *directory) person(ctx context.Context, who agent.Actor, groups []string) (agent.Person, error) {
	d.mu.Lock()
	home := d.home
	d.mu.Unlock()
	switch {
	case home.workspace == "":
		return agent.Person{}, errors.New("look up person: not signed in to Slack yet")
	case who.Channel != Name || who.User == "":
		return agent.Person{}, fmt.Errorf("look up person: %q is nobody on Slack", who)
	case who.Workspace != home.workspace:
		return agent.Person{Actor: who, External: true}, nil
	}
	u, err := cached(d, d.users, who.User, func() (slackgo.User, error) {
		u, err := d.api.GetUserInfoContext(ctx, who.User)
		switch {
		case errorCode(err) == "user_not_found" || errorCode(err) == "user_not_visible":
			return slackgo.User{ID: who.User, Deleted: true, TeamID: home.workspace}, nil
		case err != nil:
			return slackgo.User{}, err
		case u == nil || u.ID != who.User: // slack-go takes {} for success
			return slackgo.User{}, errors.New("the answer is about nobody")
		}
		return *u, nil
	})
	if err != nil {
		return agent.Person{}, fmt.Errorf("look up person: users.info: %w", err)
	}
	p := agent.Person{
		Actor:    who,
		Name:     displayName(u),
		Bot:      u.IsBot || u.IsWorkflowBot || u.IsConnectorBot,
		Guest:    u.IsRestricted || u.IsUltraRestricted,
		External: u.IsStranger || !home.member(u),
		Inactive: u.Deleted,
	}
	for _, g := range groups {
		members, err := cached(d, d.groups, g, func() ([]string, error) { return d.api.GetUserGroupMembersContext(ctx, g) })
		if err != nil {
			return agent.Person{}, fmt.Errorf("look up user group %s: usergroups.users.list: %w", g, err)
		}
		if slices.Contains(members, who.User) {
			p.Groups = append(p.Groups, g)
		}
	}
	return p, nil
}

// member reports whether a user belongs to the installed workspace or organisation.
// Slack marks strangers by is_stranger and names the team of all others; where it
// names none, the event's own word on the author's team, which came before, stands.
func (id identity) member(u slackgo.User) bool {
	if id.enterprise {
		return u.Enterprise.EnterpriseID == id.workspace
	}
	return u.TeamID == "" || u.TeamID == id.workspace
}

func displayName(u slackgo.User) string {
	for _, name := range []string{u.Profile.DisplayName, u.RealName, u.Profile.RealName, u.Name} {
		if name != "" {
			return name
		}
	}
	return u.ID
}

// cached returns the answer in the cache if it is young enough, else asks.
// Errors are not kept. The lock is not held while asking.
func cached[T any](d *directory, cache map[string]entry[T], key string, ask func() (T, error)) (T, error) {
	d.mu.Lock()
	e, ok := cache[key]
	d.mu.Unlock()
	if age := d.now().Sub(e.at); ok && age >= 0 && age < cacheFor {
		return e.value, nil
	}
	at := d.now() // of asking, so that a slow answer is not believed longer
	v, err := ask()
	if err != nil {
		return v, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(cache) >= cacheMost {
		clear(cache)
	}
	cache[key] = entry[T]{v, at}
	return v, nil
}
