package slacktest

import (
	"fmt"
	"slices"
)

// User is a person or a bot, in this workspace or in another one.
type User struct {
	ID              string
	Name            string // what people see, such as "Ana"
	TeamID          string // home workspace; "" is TeamID. Another one is Slack Connect
	IsBot           bool
	Admin           bool
	Restricted      bool // multi-channel guest
	UltraRestricted bool // single-channel guest
	Stranger        bool // of another workspace and in no channel with us
	Deleted         bool // deactivated
}

// Group is a user group such as @admins.
type Group struct {
	ID      string
	Handle  string
	Members []string
}

// Kind says what sort of conversation a channel is. Its values are those of
// channel_type in events.
type Kind string

// The kinds of conversation.
const (
	Public  Kind = "channel"
	Private Kind = "group"
	IM      Kind = "im"
	MPIM    Kind = "mpim"
)

// Channel is a conversation. The bot is in it when Members names [BotUserID].
type Channel struct {
	ID               string
	Name             string
	Kind             Kind // "" is Public
	Members          []string
	Archived         bool
	ExtShared        bool     // Slack Connect
	PendingExtShared bool     // invited to Slack Connect
	OrgShared        bool     // shared within an Enterprise Grid
	ConnectedTeams   []string // other workspaces in the channel
}

func (c *Channel) has(user string) bool { return slices.Contains(c.Members, user) }

// title is how people call the conversation.
func (c *Channel) title() string {
	if c.Name == "" {
		return c.ID
	}
	return "#" + c.Name
}

// workspace is what exists in the fake: people, groups, channels, messages.
type workspace struct {
	users    map[string]*User
	groups   map[string]*Group
	channels map[string]*Channel
	messages map[string][]*Message // by channel, in order of ts, ephemerals included
	files    map[string]*File
	apps     map[string]App // other apps that have spoken, by bot id
}

func newWorkspace() workspace {
	w := workspace{
		users:    map[string]*User{},
		groups:   map[string]*Group{},
		channels: map[string]*Channel{},
		messages: map[string][]*Message{},
		files:    map[string]*File{},
		apps:     map[string]App{},
	}
	for _, u := range []User{
		{ID: BotUserID, Name: BotName, TeamID: TeamID, IsBot: true},
		{ID: "U0001", Name: "Ana", TeamID: TeamID},
		{ID: "U0002", Name: "Ben", TeamID: TeamID},
		{ID: "U0003", Name: "Cleo", TeamID: TeamID},
	} {
		w.users[u.ID] = &u
	}
	w.channels["C0001"] = &Channel{
		ID: "C0001", Name: "general", Kind: Public,
		Members: []string{BotUserID, "U0001", "U0002", "U0003"},
	}
	return w
}

// AddUser adds a user, or replaces the one with the same id, and returns the
// id. It joins no channel.
func (s *Server) AddUser(u User) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if u.ID == "" {
		u.ID = s.id("U1")
	}
	if u.Name == "" {
		u.Name = u.ID
	}
	if u.TeamID == "" {
		u.TeamID = TeamID
	}
	s.workspace.users[u.ID] = &u
	s.notify()
	return u.ID
}

// AddGroup adds a user group, or replaces the one with the same id, and
// returns the id.
func (s *Server) AddGroup(g Group) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if g.ID == "" {
		g.ID = s.id("S1")
	}
	if g.Handle == "" {
		g.Handle = g.ID
	}
	s.workspace.groups[g.ID] = &g
	s.notify()
	return g.ID
}

// AddChannel adds a channel, or replaces the one with the same id, and returns
// the id. Messages in it stay.
func (s *Server) AddChannel(c Channel) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c.ID == "" {
		c.ID = s.id("C1")
	}
	if c.Kind == "" {
		c.Kind = Public
	}
	if c.Name == "" && (c.Kind == Public || c.Kind == Private) {
		c.Name = c.ID
	}
	c.Members = slices.Clone(c.Members)
	for _, id := range c.Members {
		s.mustUser(id)
	}
	s.workspace.channels[c.ID] = &c
	s.notify()
	return c.ID
}

// DM returns the id of the direct conversation of the bot with a user and
// opens it first if need be.
func (s *Server) DM(user string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mustUser(user)
	return s.openDM([]string{user}).ID
}

// openDM finds or makes the conversation of the bot with these users.
func (s *Server) openDM(users []string) *Channel {
	kind, prefix := IM, "D1"
	if len(users) > 1 {
		kind, prefix = MPIM, "C2" // ids of group conversations may begin with C
	}
	members := append([]string{BotUserID}, users...)
	slices.Sort(members)
	for _, c := range s.workspace.channels {
		have := slices.Clone(c.Members)
		slices.Sort(have)
		if c.Kind == kind && slices.Equal(have, members) {
			return c
		}
	}
	c := &Channel{ID: s.id(prefix), Kind: kind, Members: members}
	if kind == MPIM {
		c.Name = "mpdm-" + c.ID
	}
	s.workspace.channels[c.ID] = c
	s.notify()
	return c
}

// SetMember adds a user to a channel or takes the user out, without a message.
func (s *Server) SetMember(channel, user string, in bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.mustChannel(channel)
	s.mustUser(user)
	c.Members = slices.DeleteFunc(slices.Clone(c.Members), func(id string) bool { return id == user })
	if in {
		c.Members = append(c.Members, user)
	}
	s.notify()
}

// mustUser panics on an unknown id: the test is wrong.
func (s *Server) mustUser(id string) *User {
	u := s.workspace.users[id]
	if u == nil {
		panic(fmt.Sprintf("slacktest: there is no user %q: add it with AddUser", id))
	}
	return u
}

// mustChannel panics on an unknown id: the test is wrong.
func (s *Server) mustChannel(id string) *Channel {
	c := s.workspace.channels[id]
	if c == nil {
		panic(fmt.Sprintf("slacktest: there is no channel %q: add it with AddChannel or DM", id))
	}
	return c
}

// name is how people see a user, a group or a channel.
func (s *Server) name(id string) string {
	w := &s.workspace
	if u := w.users[id]; u != nil {
		return u.Name
	}
	if g := w.groups[id]; g != nil {
		return g.Handle
	}
	if c := w.channels[id]; c != nil {
		return c.Name
	}
	if a, ok := w.apps[id]; ok {
		return a.Name
	}
	return id
}
