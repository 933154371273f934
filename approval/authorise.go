package approval

import (
	"slices"

	"github.com/clawbot/clawbot/agent"
)

// Authorise reports whether p may decide a. It returns "" if so, else the reason
// in words for p. The zero Approvers admits nobody.
func Authorise(a agent.Approval, p agent.Person) string {
	who := p.Actor.String()
	listed := who != "" && slices.Contains(a.Approvers.Users, who)
	switch {
	case who == "":
		return "It is not known who you are, so you may not decide this."
	case p.Inactive:
		return "Your account is not active, so you may not decide this."
	case p.Bot:
		return "Bots may not decide this."
	case p.Actor.Local():
		if listed || a.Approvers.Local {
			return ""
		}
		return "The settings do not let the local console decide this (approvers.local)."
	case p.External && !listed:
		return "People of other organisations may not decide this."
	case p.Guest && !listed:
		return "Guests may not decide this."
	case p.Actor == a.Requester:
		if a.Approvers.Requester {
			return ""
		}
		return "You asked for this yourself, so another person has to decide."
	case listed, slices.ContainsFunc(groups(a.Approvers, p.Actor.Channel), func(g string) bool { return slices.Contains(p.Groups, g) }):
		return ""
	}
	return "You are not among the people who may decide this."
}

// groups returns the groups whose members may decide on a channel.
func groups(a agent.Approvers, channel agent.ChannelName) []string {
	switch channel {
	case "slack":
		return a.SlackGroups
	case "discord":
		return a.DiscordRoles
	}
	return nil
}
