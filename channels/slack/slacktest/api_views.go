package slacktest

import (
	"encoding/json"
	"slices"
	"time"
)

// View is a modal that a person has open, or a home tab.
type View struct {
	ID              string
	Type            string // "modal" or "home"
	CallbackID      string
	ExternalID      string
	PrivateMetadata string
	Title           string
	Submit          string // label of the submit button, "" if there is none
	User            string // who sees it
	Open            bool
	Hash            string
	Root, Previous  string // ids of the views below it in the stack
	Document        json.RawMessage
	Inputs          []Input
	Errors          map[string]string // what the last submission was answered, by block_id
}

// Input is a field of a modal.
type Input struct {
	Label    string
	BlockID  string
	ActionID string
	Type     string // such as plain_text_input
	Initial  string
	Optional bool
}

// Views lists every view that was opened, oldest first, as it is now.
func (s *Server) Views() []View {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := make([]View, len(s.views))
	for i, v := range s.views {
		out[i] = *v
	}
	return out
}

// trigger is a trigger_id that a person's action gave out.
type trigger struct {
	user string
	from string // view the action was in, for views.push
	at   time.Time
	used bool
}

func (s *Server) newTrigger(user, view string) string {
	id := s.id("trigger-")
	s.triggers[id] = &trigger{user: user, from: view, at: time.Now()}
	return id
}

// useTrigger exchanges a trigger_id, which works once and not for long.
func (s *Server) useTrigger(id string) (*trigger, error) {
	t := s.triggers[id]
	switch {
	case t == nil:
		return nil, refuse("invalid_trigger_id")
	case t.used:
		return nil, refuse("exchanged_trigger_id")
	case time.Since(t.at) > s.opt.triggerLife:
		return nil, refuse("expired_trigger_id")
	}
	t.used = true
	return t, nil
}

// viewsOpen answers views.open.
func (s *Server) viewsOpen(a args) (object, error) {
	doc, err := s.readView(a, "modal")
	if err != nil {
		return nil, err
	}
	t, err := s.useTrigger(a.str("trigger_id"))
	if err != nil {
		return nil, err
	}
	v := &View{ID: s.id("V"), User: t.user, Open: true}
	v.Root = v.ID
	s.views = append(s.views, v)
	s.showView(v, doc)
	return object{"view": s.viewJSON(v)}, nil
}

// viewsPush answers views.push.
func (s *Server) viewsPush(a args) (object, error) {
	doc, err := s.readView(a, "modal")
	if err != nil {
		return nil, err
	}
	t, err := s.useTrigger(a.str("trigger_id"))
	if err != nil {
		return nil, err
	}
	below := s.view(t.from)
	if below == nil || !below.Open {
		return nil, refuse("not_found")
	}
	v, err := s.push(below, doc)
	if err != nil {
		return nil, err
	}
	return object{"view": s.viewJSON(v)}, nil
}

// push opens a view on top of another one.
func (s *Server) push(below *View, doc object) (*View, error) {
	depth := 0
	for _, v := range s.views {
		if v.Open && v.Root == below.Root {
			depth++
		}
	}
	if depth >= 3 {
		return nil, refuse("push_limit_reached")
	}
	v := &View{ID: s.id("V"), User: below.User, Open: true, Root: below.Root, Previous: below.ID}
	s.views = append(s.views, v)
	s.showView(v, doc)
	return v, nil
}

// viewsUpdate answers views.update.
func (s *Server) viewsUpdate(a args) (object, error) {
	doc, err := s.readView(a, "modal")
	if err != nil {
		return nil, err
	}
	v := s.view(a.str("view_id"))
	if id := a.str("external_id"); id != "" {
		for _, w := range s.views {
			if w.ExternalID == id {
				v = w
			}
		}
	}
	if v == nil || !v.Open {
		return nil, refuse("not_found")
	}
	if h := a.str("hash"); h != "" && h != v.Hash {
		return nil, refuse("hash_conflict")
	}
	s.showView(v, doc)
	return object{"view": s.viewJSON(v)}, nil
}

// viewsPublish answers views.publish.
func (s *Server) viewsPublish(a args) (object, error) {
	doc, err := s.readView(a, "home")
	if err != nil {
		return nil, err
	}
	user := a.str("user_id")
	if s.workspace.users[user] == nil {
		return nil, refuse("user_not_found")
	}
	i := slices.IndexFunc(s.views, func(v *View) bool { return v.Type == "home" && v.User == user })
	if i < 0 {
		i = len(s.views)
		s.views = append(s.views, &View{ID: s.id("V"), User: user, Open: true})
	}
	v := s.views[i]
	if h := a.str("hash"); h != "" && h != v.Hash {
		return nil, refuse("hash_conflict")
	}
	v.Root = v.ID
	s.showView(v, doc)
	return object{"view": s.viewJSON(v)}, nil
}

// view finds a view by id, or nil.
func (s *Server) view(id string) *View {
	for _, v := range s.views {
		if v.ID == id {
			return v
		}
	}
	return nil
}

// readView reads and validates the view argument.
func (s *Server) readView(a args, kind string) (object, error) {
	var doc object
	if json.Unmarshal(a.raw("view"), &doc) != nil || doc == nil {
		return nil, refuse("invalid_arguments")
	}
	if doc.str("type") != kind {
		return nil, invalidView("[ERROR] must be " + kind + " [json-pointer:/view/type]")
	}
	if err := checkView(doc); err != nil {
		return nil, err
	}
	if len(a.str("view")) > 250_000 {
		return nil, refuse("view_too_large")
	}
	if id := doc.str("external_id"); id != "" {
		for _, v := range s.views {
			if v.Open && v.ExternalID == id && v.ID != a.str("view_id") && a.str("external_id") != id {
				return nil, refuse("duplicate_external_id")
			}
		}
	}
	return doc, nil
}

// showView puts a document into a view.
func (s *Server) showView(v *View, doc object) {
	blocks := doc.list("blocks")
	s.fillIDs(blocks)
	v.Type = doc.str("type")
	v.CallbackID = doc.str("callback_id")
	v.ExternalID = doc.str("external_id")
	v.PrivateMetadata = doc.str("private_metadata")
	v.Title = decode(doc.obj("title").str("text"))
	v.Submit = decode(doc.obj("submit").str("text"))
	v.Hash = s.id("hash-")
	v.Document = encode(doc)
	v.Errors = nil
	v.Inputs = nil
	for _, b := range blocks {
		if b.str("type") != "input" {
			continue
		}
		e := b.obj("element")
		optional, _ := b["optional"].(bool)
		v.Inputs = append(v.Inputs, Input{
			Label:    decode(b.obj("label").str("text")),
			BlockID:  b.str("block_id"),
			ActionID: e.str("action_id"),
			Type:     e.str("type"),
			Initial:  initialValue(e),
			Optional: optional,
		})
	}
	s.notify()
}

// initialValue is what a field holds before a person types.
func initialValue(e object) string {
	if o := e.obj("initial_option"); o != nil {
		return o.str("value")
	}
	for _, key := range []string{
		"initial_value", "initial_user", "initial_channel", "initial_conversation", "initial_date", "initial_time",
	} {
		if v := e.str(key); v != "" {
			return v
		}
	}
	return ""
}

// document is the view as the app made it.
func (v *View) document() object {
	var doc object
	_ = json.Unmarshal(v.Document, &doc)
	return doc
}

// viewJSON is a view as Slack shows it to the app.
func (s *Server) viewJSON(v *View) object {
	o := v.document()
	o["id"], o["team_id"], o["app_id"], o["bot_id"] = v.ID, TeamID, AppID, BotID
	o["app_installed_team_id"], o["hash"] = TeamID, v.Hash
	o["root_view_id"], o["previous_view_id"] = v.Root, nil
	if v.Previous != "" {
		o["previous_view_id"] = v.Previous
	}
	for _, key := range []string{"private_metadata", "callback_id", "external_id"} {
		if !o.has(key) {
			o[key] = ""
		}
	}
	o["state"] = object{"values": object{}}
	return o
}
