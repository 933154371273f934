package slacktest

import "slices"

// userJSON is a user as users.info shows it.
func (s *Server) userJSON(u *User) object {
	o := object{
		"id": u.ID, "team_id": u.TeamID, "name": u.Name, "real_name": u.Name, "deleted": u.Deleted,
		"is_bot": u.IsBot, "is_app_user": false, "updated": s.opt.epoch, "tz": "Europe/London",
		"profile": object{"real_name": u.Name, "display_name": u.Name, "team": u.TeamID},
	}
	if u.TeamID != TeamID {
		o["is_stranger"] = u.Stranger
	}
	if u.Deleted { // Slack leaves the rest out
		return o
	}
	o["is_admin"], o["is_owner"], o["is_primary_owner"] = u.Admin, false, false
	o["is_restricted"], o["is_ultra_restricted"] = u.Restricted || u.UltraRestricted, u.UltraRestricted
	if u.Stranger {
		o["is_stranger"] = true
	}
	if u.ID == BotUserID {
		o["profile"].(object)["api_app_id"], o["profile"].(object)["bot_id"] = AppID, BotID
	}
	return o
}

// usersInfo answers users.info.
func (s *Server) usersInfo(a args) (object, error) {
	u := s.workspace.users[a.str("user")]
	if u == nil {
		return nil, refuse("user_not_found")
	}
	return object{"user": s.userJSON(u)}, nil
}

// botsInfo answers bots.info.
func (s *Server) botsInfo(a args) (object, error) {
	id := a.str("bot")
	bot := object{"id": BotID, "app_id": AppID, "user_id": BotUserID, "name": BotName}
	if app, ok := s.workspace.apps[id]; ok {
		bot = object{"id": app.BotID, "app_id": app.AppID, "user_id": app.UserID, "name": app.Name}
	} else if id != BotID {
		return nil, refuse("bot_not_found")
	}
	bot["deleted"], bot["updated"] = false, s.opt.epoch
	return object{"bot": bot}, nil
}

// usergroupsList answers usergroups.list.
func (s *Server) usergroupsList(a args) (object, error) {
	out := []object{}
	for _, g := range s.workspace.groups {
		o := object{
			"id": g.ID, "team_id": TeamID, "is_usergroup": true, "name": g.Handle, "handle": g.Handle,
			"user_count": len(g.Members), "date_delete": 0,
		}
		if a.isTrue("include_users") {
			o["users"] = g.Members
		}
		out = append(out, o)
	}
	slices.SortFunc(out, func(x, y object) int {
		if x.str("id") < y.str("id") {
			return -1
		}
		return 1
	})
	return object{"usergroups": out}, nil
}

// usergroupsUsersList answers usergroups.users.list.
func (s *Server) usergroupsUsersList(a args) (object, error) {
	g := s.workspace.groups[a.str("usergroup")]
	if g == nil {
		return nil, refuse("no_such_subteam")
	}
	return object{"users": append([]string{}, g.Members...)}, nil
}
