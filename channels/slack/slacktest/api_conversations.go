package slacktest

import (
	"slices"
	"strconv"
	"strings"
)

// channelJSON is a conversation as conversations.info shows it.
func (s *Server) channelJSON(c *Channel) object {
	o := object{
		"id": c.ID, "is_channel": c.Kind == Public, "is_group": c.Kind == Private, "is_im": c.Kind == IM,
		"is_mpim": c.Kind == MPIM, "is_private": c.Kind != Public, "is_archived": c.Archived,
		"is_member": c.has(BotUserID), "is_ext_shared": c.ExtShared, "is_org_shared": c.OrgShared,
		"is_pending_ext_shared": c.PendingExtShared, "is_shared": c.ExtShared || c.OrgShared,
		"context_team_id": TeamID, "created": s.opt.epoch, "num_members": len(c.Members),
	}
	if c.Name != "" {
		o["name"], o["name_normalized"] = c.Name, c.Name
	}
	if c.Kind == IM {
		for _, id := range c.Members {
			if id != BotUserID {
				o["user"] = id
			}
		}
	}
	if len(c.ConnectedTeams) > 0 {
		o["connected_team_ids"] = c.ConnectedTeams
	}
	return o
}

// conversationsInfo answers conversations.info.
func (s *Server) conversationsInfo(a args) (object, error) {
	c, err := s.visible(a.str("channel"))
	if err != nil {
		return nil, err
	}
	return object{"channel": s.channelJSON(c)}, nil
}

// conversationsMembers answers conversations.members.
func (s *Server) conversationsMembers(a args) (object, error) {
	c, err := s.visible(a.str("channel"))
	if err != nil {
		return nil, err
	}
	page, next := paginate(c.Members, a, 100)
	return object{"members": page, "response_metadata": object{"next_cursor": next}}, nil
}

// conversationsOpen answers conversations.open.
func (s *Server) conversationsOpen(a args) (object, error) {
	if id := a.str("channel"); id != "" {
		c, err := s.reachable(id)
		if err != nil {
			return nil, err
		}
		return object{"channel": object{"id": c.ID}}, nil
	}
	users := splitIDs(a.str("users"))
	if len(users) == 0 {
		return nil, refuse("users_list_not_supplied")
	}
	if len(users) > 8 {
		return nil, refuse("too_many_users")
	}
	for i, id := range users {
		users[i] = strings.TrimSpace(id)
		u := s.workspace.users[users[i]]
		switch {
		case u == nil:
			return nil, refuse("user_not_found")
		case u.Deleted:
			return nil, refuse("user_disabled")
		}
	}
	c := s.openDM(users)
	reply := object{"id": c.ID}
	if a.isTrue("return_im") {
		reply = s.channelJSON(c)
	}
	return object{"channel": reply}, nil
}

// conversationsHistory answers conversations.history, newest first.
func (s *Server) conversationsHistory(a args) (object, error) {
	c, err := s.reachable(a.str("channel"))
	if err != nil {
		return nil, err
	}
	var found []*Message
	for _, m := range s.workspace.messages[c.ID] {
		if m.EphemeralTo == "" && !m.Deleted && (m.ThreadTS == "" || m.Broadcast) && inRange(m.TS, a) {
			found = append(found, m)
		}
	}
	slices.Reverse(found)
	return s.messagePage(found, a), nil
}

// conversationsReplies answers conversations.replies, root first.
func (s *Server) conversationsReplies(a args) (object, error) {
	c, err := s.reachable(a.str("channel"))
	if err != nil {
		return nil, err
	}
	root := s.find(c.ID, a.str("ts"))
	if root == nil || root.EphemeralTo != "" {
		return nil, refuse("thread_not_found")
	}
	if root.ThreadTS != "" { // Slack answers a reply's ts with that reply alone
		return s.messagePage([]*Message{root}, a), nil
	}
	var found []*Message
	for _, m := range s.inThread(c.ID, root.TS) {
		if m == root || inRange(m.TS, a) {
			found = append(found, m)
		}
	}
	return s.messagePage(found, a), nil
}

// inRange applies oldest, latest and inclusive.
func inRange(ts string, a args) bool {
	oldest, latest, inclusive := a.str("oldest"), a.str("latest"), a.isTrue("inclusive")
	if oldest != "" && (ts < oldest || ts == oldest && !inclusive) {
		return false
	}
	if latest != "" && (ts > latest || ts == latest && !inclusive) {
		return false
	}
	return true
}

func (s *Server) messagePage(found []*Message, a args) object {
	page, next := paginate(found, a, 100)
	out := make([]object, len(page))
	for i, m := range page {
		out[i] = s.messageJSON(m, a.isTrue("include_all_metadata"))
	}
	return object{"messages": out, "has_more": next != "", "response_metadata": object{"next_cursor": next}}
}

// paginate cuts the page out of all that cursor and limit ask for.
func paginate[T any](all []T, a args, limit int) (page []T, next string) {
	if n, err := strconv.Atoi(a.str("limit")); err == nil && n > 0 {
		limit = min(n, 1000)
	}
	start, _ := strconv.Atoi(a.str("cursor"))
	start = max(0, min(start, len(all)))
	end := min(start+limit, len(all))
	if end < len(all) {
		next = strconv.Itoa(end)
	}
	return append([]T{}, all[start:end]...), next
}

// reactionsAdd answers reactions.add.
func (s *Server) reactionsAdd(a args) (object, error) {
	m, r, err := s.reaction(a)
	if err != nil {
		return nil, err
	}
	if slices.Contains(r.Users, BotUserID) {
		return nil, refuse("already_reacted")
	}
	r.Users = append(slices.Clone(r.Users), BotUserID)
	s.setReaction(m, r)
	return object{}, nil
}

// reactionsRemove answers reactions.remove.
func (s *Server) reactionsRemove(a args) (object, error) {
	m, r, err := s.reaction(a)
	if err != nil {
		return nil, err
	}
	i := slices.Index(r.Users, BotUserID)
	if i < 0 {
		return nil, refuse("no_reaction")
	}
	r.Users = slices.Delete(slices.Clone(r.Users), i, i+1)
	s.setReaction(m, r)
	return object{}, nil
}

// reaction finds the message and the state of the reaction a call is about.
func (s *Server) reaction(a args) (*Message, Reaction, error) {
	c, err := s.reachable(a.str("channel"))
	if err != nil {
		return nil, Reaction{}, err
	}
	if c.Archived {
		return nil, Reaction{}, refuse("is_archived")
	}
	name := a.str("name")
	if name == "" || strings.ContainsAny(name, ": ") {
		return nil, Reaction{}, refuse("invalid_name")
	}
	m := s.find(c.ID, a.str("timestamp"))
	if m == nil || m.EphemeralTo != "" {
		return nil, Reaction{}, refuse("message_not_found")
	}
	for _, r := range m.Reactions {
		if r.Name == name {
			return m, r, nil
		}
	}
	return m, Reaction{Name: name}, nil
}

// setReaction replaces the reaction of that name; one without users goes.
func (s *Server) setReaction(m *Message, r Reaction) {
	m.Reactions = slices.DeleteFunc(slices.Clone(m.Reactions), func(x Reaction) bool { return x.Name == r.Name })
	if len(r.Users) > 0 {
		m.Reactions = append(m.Reactions, r)
	}
	s.notify()
}
