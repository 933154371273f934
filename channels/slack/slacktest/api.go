package slacktest

import (
	"encoding/json"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"
)

// Call is one request to the Web API.
type Call struct {
	Method string
	Args   map[string]string // as sent, without the token; JSON as text
	At     time.Time
	Error  string // what it was answered; "" for ok
	Fault  string // the injected fault it met, if any
}

// Calls lists the requests to a method so far, oldest first; all of them for "".
func (s *Server) Calls(method string) []Call {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []Call
	for _, c := range s.calls {
		if method == "" || c.Method == method {
			out = append(out, c)
		}
	}
	return out
}

// method is a row in the table of what the Web API can do.
type method struct {
	// scope is the bot scope it needs; "*:read" stands for channels:read,
	// groups:read, im:read or mpim:read, by the channel argument. Several are
	// separated by "|": any one is enough.
	scope string
	tier  tier
	app   bool // takes the app token, in the header
	json  bool // takes a JSON body; methods that only read do not
	run   func(s *Server, a args) (object, error)
}

// webMethods is the Web API. Handlers run with s.mu held.
func webMethods() map[string]method {
	return map[string]method{
		"auth.test":             {tier: special, json: true, run: (*Server).authTest},
		"apps.connections.open": {tier: tier3, app: true, json: true, run: (*Server).connectionsOpen},

		"chat.postMessage":   {scope: "chat:write", tier: perChannel, json: true, run: (*Server).chatPostMessage},
		"chat.update":        {scope: "chat:write", tier: tier3, json: true, run: (*Server).chatUpdate},
		"chat.postEphemeral": {scope: "chat:write", tier: tier4, json: true, run: (*Server).chatPostEphemeral},
		"chat.delete":        {scope: "chat:write", tier: tier3, json: true, run: (*Server).chatDelete},
		"chat.getPermalink":  {tier: special, run: (*Server).chatGetPermalink},

		"reactions.add":    {scope: "reactions:write", tier: tier3, json: true, run: (*Server).reactionsAdd},
		"reactions.remove": {scope: "reactions:write", tier: tier3, json: true, run: (*Server).reactionsRemove},

		"conversations.info":    {scope: "*:read", tier: tier3, run: (*Server).conversationsInfo},
		"conversations.members": {scope: "*:read", tier: tier4, run: (*Server).conversationsMembers},
		"conversations.open":    {scope: "im:write|mpim:write", tier: tier3, json: true, run: (*Server).conversationsOpen},
		"conversations.history": {scope: "*:history", tier: tier3, run: (*Server).conversationsHistory},
		"conversations.replies": {scope: "*:history", tier: tier3, run: (*Server).conversationsReplies},

		"users.info":            {scope: "users:read", tier: tier4, run: (*Server).usersInfo},
		"bots.info":             {scope: "users:read", tier: tier3, run: (*Server).botsInfo},
		"usergroups.list":       {scope: "usergroups:read", tier: tier2, run: (*Server).usergroupsList},
		"usergroups.users.list": {scope: "usergroups:read", tier: tier2, run: (*Server).usergroupsUsersList},

		"views.open":    {tier: tier4, json: true, run: (*Server).viewsOpen},
		"views.push":    {tier: tier4, json: true, run: (*Server).viewsPush},
		"views.update":  {tier: tier4, json: true, run: (*Server).viewsUpdate},
		"views.publish": {tier: tier4, json: true, run: (*Server).viewsPublish},

		"files.getUploadURLExternal":   {scope: "files:write", tier: tier4, run: (*Server).filesGetUploadURL},
		"files.completeUploadExternal": {scope: "files:write", tier: tier4, json: true, run: (*Server).filesCompleteUpload},
		"files.info":                   {scope: "files:read", tier: tier4, run: (*Server).filesInfo},

		"assistant.threads.setStatus": {scope: "assistant:write|chat:write", tier: special, json: true, run: (*Server).assistantSetStatus},
	}
}

// apiError is an answer with ok:false.
type apiError struct {
	code string
	more object // further fields of the answer
}

// Error is Slack's error code.
func (e *apiError) Error() string { return e.code }

func refuse(code string) error { return &apiError{code: code} }

// args are the arguments of a call. A value is text; where Slack wants JSON
// (blocks, view, metadata) the text is JSON.
type args map[string]string

func (a args) str(key string) string { return a[key] }

func (a args) raw(key string) json.RawMessage {
	if a[key] == "" || a[key] == "null" {
		return nil
	}
	return json.RawMessage(a[key])
}

// isFalse says whether a flag was sent and is off.
func (a args) isFalse(key string) bool { return a[key] == "false" || a[key] == "0" }

func (a args) isTrue(key string) bool { return a[key] == "true" || a[key] == "1" }

// serveAPI answers /api/METHOD. It takes s.mu itself.
func (s *Server) serveAPI(w http.ResponseWriter, r *http.Request) {
	name := strings.TrimPrefix(r.URL.Path, "/api/")
	m, known := s.methods[name]
	a, err := readArgs(r, !known || m.json)
	header, hasHeader := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	token := header
	if !hasHeader {
		token = a["token"]
	}
	delete(a, "token")
	if err != nil {
		s.answer(w, object{"ok": false, "error": "invalid_json"})
		return
	}

	s.mu.Lock()
	at := len(s.calls)
	s.calls = append(s.calls, Call{Method: name, Args: a, At: time.Now()})
	call := s.calls[at]
	fault := s.takeFault(call)
	if fault != nil {
		s.calls[at].Fault = fault.name
		s.notify()
	}
	s.mu.Unlock()
	if fault != nil && fault.before != nil && fault.before(s, w, r) {
		return
	}

	s.mu.Lock()
	reply, err := s.perform(name, m, known, a, token, hasHeader)
	failure, _ := err.(*apiError)
	if failure != nil {
		reply = object{"ok": false, "error": failure.code}
		for k, v := range failure.more {
			reply[k] = v
		}
		s.calls[at].Error = failure.code
	} else {
		reply["ok"] = true
	}
	scopes := s.scopeList()
	s.notify()
	s.mu.Unlock()

	if fault != nil && fault.after != nil && fault.after(s, w, r) {
		return
	}
	if known && !m.app {
		w.Header().Set("X-OAuth-Scopes", scopes)
		if m.scope != "" {
			w.Header().Set("X-Accepted-OAuth-Scopes", m.scope)
		}
	}
	if failure != nil && failure.code == "ratelimited" {
		w.Header().Set("Retry-After", fmt.Sprint(failure.more["retry_after"]))
		w.WriteHeader(http.StatusTooManyRequests)
	}
	s.answer(w, reply)
}

// answer writes a JSON answer. It needs no lock.
func (s *Server) answer(w http.ResponseWriter, reply object) {
	w.Header().Set("Content-Type", "application/json; charset=utf-8")
	_, _ = w.Write(encode(reply))
}

// perform checks token, scope and rate, and runs the method.
func (s *Server) perform(name string, m method, known bool, a args, token string, inHeader bool) (object, error) {
	if token == "" || (m.app && !inHeader) {
		return nil, refuse("not_authed")
	}
	switch token {
	case s.BotToken, s.AppToken:
	default:
		return nil, refuse("invalid_auth")
	}
	if !known {
		s.violate(name, "", "unknown method")
		return nil, refuse("unknown_method")
	}
	if m.app != (token == s.AppToken) {
		return nil, refuse("not_allowed_token_type")
	}
	if err := s.checkScope(m.scope, a); err != nil {
		return nil, err
	}
	if err := s.checkRate(name, m.tier, a); err != nil {
		return nil, err
	}
	return m.run(s, a)
}

// readArgs collects arguments from the address and the body. Values of a JSON
// body become text; a body is read as JSON only where the method takes it.
func readArgs(r *http.Request, takesJSON bool) (args, error) {
	a := args{}
	addForm := func(v url.Values) {
		for key := range v {
			if key != "token" || r.Method == http.MethodPost {
				a[key] = v.Get(key)
			}
		}
	}
	query := r.URL.Query()
	query.Del("token") // Slack takes no token in the address
	addForm(query)
	if r.Method != http.MethodPost {
		return a, nil
	}
	kind, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if kind != "application/json" {
		if err := r.ParseMultipartForm(1 << 20); err != nil && err != http.ErrNotMultipart {
			return a, err
		}
		addForm(r.PostForm)
		return a, nil
	}
	body, err := io.ReadAll(io.LimitReader(r.Body, 1<<24))
	if err != nil || !takesJSON || len(body) == 0 {
		return a, err
	}
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(body, &fields); err != nil {
		return a, err
	}
	for key, value := range fields {
		var text string
		if json.Unmarshal(value, &text) != nil {
			text = string(value)
		}
		if key != "token" { // with a JSON body the token belongs in the header
			a[key] = text
		}
	}
	return a, nil
}

// authTest answers auth.test.
func (s *Server) authTest(args) (object, error) {
	return object{
		"url": "https://example.slack.com/", "team": "Example", "team_id": TeamID,
		"user": BotName, "user_id": BotUserID, "bot_id": BotID, "is_enterprise_install": false,
	}, nil
}

// assistantSetStatus answers assistant.threads.setStatus.
func (s *Server) assistantSetStatus(a args) (object, error) {
	c, err := s.reachable(a.str("channel_id"))
	if err != nil {
		return nil, err
	}
	if s.find(c.ID, a.str("thread_ts")) == nil {
		return nil, refuse("invalid_thread_ts")
	}
	if messages := a.str("loading_messages"); messages != "" {
		n := strings.Count(messages, ",") + 1
		if list := []string(nil); json.Unmarshal([]byte(messages), &list) == nil {
			n = len(list)
		}
		if n > maxLoadingStatus {
			return nil, refuse("invalid_arguments")
		}
	}
	s.statuses[c.ID+"/"+a.str("thread_ts")] = a.str("status")
	return object{}, nil
}

// Status is what the app last set with assistant.threads.setStatus for a thread;
// "" once the app has posted there.
func (s *Server) Status(channel, threadTS string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.statuses[channel+"/"+threadTS]
}

// reachable is a channel that the bot can see and is in.
func (s *Server) reachable(id string) (*Channel, error) {
	c := s.workspace.channels[id]
	if c == nil || (c.Kind != Public && !c.has(BotUserID)) {
		return nil, refuse("channel_not_found")
	}
	if !c.has(BotUserID) {
		return nil, refuse("not_in_channel")
	}
	return c, nil
}

// visible is a channel that the bot can see, be it in it or not.
func (s *Server) visible(id string) (*Channel, error) {
	c, err := s.reachable(id)
	if err != nil && err.Error() == "not_in_channel" {
		return s.workspace.channels[id], nil
	}
	return c, err
}

// splitIDs reads a comma-separated list of ids.
func splitIDs(s string) []string {
	return slices.DeleteFunc(strings.Split(s, ","), func(id string) bool { return strings.TrimSpace(id) == "" })
}
