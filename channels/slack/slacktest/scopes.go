package slacktest

import (
	"slices"
	"strings"
)

// scopePrefix is how scopes name a kind of conversation.
func scopePrefix(k Kind) string {
	switch k {
	case Public:
		return "channels"
	case Private:
		return "groups"
	}
	return string(k)
}

// allScopes is everything the app could need, granted at first.
func allScopes() map[string]bool {
	out := map[string]bool{}
	for _, scope := range []string{
		"app_mentions:read", "chat:write",
		"channels:history", "groups:history", "im:history", "mpim:history",
		"channels:read", "groups:read", "im:read", "mpim:read",
		"im:write", "mpim:write", "users:read", "usergroups:read", "reactions:write",
		"files:read", "files:write", "commands", "assistant:write",
	} {
		out[scope] = true
	}
	return out
}

// SetScopes replaces the granted bot scopes. Methods and events that need
// another one are refused and not delivered.
func (s *Server) SetScopes(scopes ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.scopes = map[string]bool{}
	for _, scope := range scopes {
		s.scopes[scope] = true
	}
}

// RevokeScopes takes granted bot scopes away.
func (s *Server) RevokeScopes(scopes ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, scope := range scopes {
		delete(s.scopes, scope)
	}
}

// scopeList is the granted scopes as Slack writes them.
func (s *Server) scopeList() string {
	var out []string
	for scope := range s.scopes {
		out = append(out, scope)
	}
	slices.Sort(out)
	return strings.Join(out, ",")
}

// checkScope refuses a call whose scope was not granted.
func (s *Server) checkScope(needed string, a args) error {
	if needed == "" {
		return nil
	}
	alternatives := strings.Split(needed, "|")
	if kind, ok := strings.CutPrefix(needed, "*:"); ok {
		c := s.workspace.channels[a.str("channel")]
		if c == nil {
			return nil // the method itself answers channel_not_found
		}
		alternatives = []string{scopePrefix(c.Kind) + ":" + kind}
	}
	for _, scope := range alternatives {
		if s.scopes[scope] {
			return nil
		}
	}
	return &apiError{code: "missing_scope", more: object{"needed": alternatives[0], "provided": s.scopeList()}}
}
