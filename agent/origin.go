package agent

import (
	"fmt"
	"strings"
)

// ChannelName names a way in and out: "slack", "discord", "terminal", "cli",
// "web", "cron". It is what audit_log.channel and audit_log.backchannel hold.
type ChannelName string

// Place is where a conversation happens. Its four parts are the key of a
// session, so a thread is a session and nothing of one thread reaches another.
type Place struct {
	Channel      ChannelName // "slack"
	Workspace    string      // the installation, e.g. Slack team "T0001"
	Conversation string      // e.g. Slack channel "C0001"
	Thread       string      // e.g. ts of the thread's root; empty where there are no threads
}

// Origin is where a message came from and who wrote it. It comes from the
// authenticated event, is stored with the turn, and no model or tool can set it.
type Origin struct {
	Place
	Author     Actor
	AuthorName string // display name, untrusted text
	Ref        string // the platform's id of the message, e.g. Slack ts
}

// Actor is a person, written "slack:T0001/U0001", "discord:9001/42",
// "cli:NAME" or "web:NAME". The zero Actor is nobody.
type Actor struct {
	Channel   ChannelName
	Workspace string // empty for cli and web
	User      string
}

// String returns the form that settings and the audit use; "" for nobody.
func (a Actor) String() string {
	switch {
	case a == Actor{}:
		return ""
	case a.Workspace == "":
		return string(a.Channel) + ":" + a.User
	default:
		return string(a.Channel) + ":" + a.Workspace + "/" + a.User
	}
}

// Local reports whether the actor is whoever can use this machine or its
// console: no platform's directory knows such a person.
func (a Actor) Local() bool { return a.Channel == "cli" || a.Channel == "web" }

// ParseActor reads the form that String writes. The error says what to write.
func ParseActor(s string) (Actor, error) {
	channel, rest, ok := strings.Cut(s, ":")
	if !ok || channel == "" || rest == "" || strings.ContainsAny(s, " \t\r\n") {
		return Actor{}, fmt.Errorf("%q is no person: write slack:TEAM/USER, discord:GUILD/USER, cli:NAME or web:NAME", s)
	}
	a := Actor{Channel: ChannelName(channel), User: rest}
	switch a.Channel {
	case "slack", "discord":
		a.Workspace, a.User, ok = strings.Cut(rest, "/")
		if !ok || a.Workspace == "" || a.User == "" || strings.Contains(a.User, "/") {
			return Actor{}, fmt.Errorf("%q is no person: write %s:WORKSPACE/USER", s, channel)
		}
	case "cli", "web":
	default:
		return Actor{}, fmt.Errorf("%q names no channel: write slack, discord, cli or web before the colon", s)
	}
	return a, nil
}

// Person is what a channel's directory knows about an Actor at this moment.
type Person struct {
	Actor    Actor
	Name     string
	Bot      bool     // an app or bot user
	Guest    bool     // restricted to some channels
	External bool     // member of another organisation
	Inactive bool     // deactivated or unknown
	Groups   []string // those of the asked groups (Slack) or roles (Discord) the person is in
}
