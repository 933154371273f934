package slacktest

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
)

// ViewAnswer is what a submission was answered.
type ViewAnswer struct {
	Action string            // "", errors, update, push or clear
	Errors map[string]string // by block_id
}

// Submit has the user of a modal fill it in and submit it. Keys of values are
// labels, block_ids or action_ids; a field that is not named keeps its initial
// value. As in Slack, a required field left empty, a text too long for its field
// and an option that is not offered cannot be submitted: that is an error, and so
// is an acknowledgement that does not come.
func (s *Server) Submit(user string, view View, values map[string]string, opts ...How) (ViewAnswer, error) {
	h := collect(opts)
	s.mu.Lock()
	payload, err := s.submission(user, view, values)
	s.mu.Unlock()
	if err != nil {
		return ViewAnswer{}, fmt.Errorf("submit %q: %w", view.Title, err)
	}
	body := encode(payload)
	if h.alter != nil {
		body = alterJSON(body, h.alter)
	}
	raw, err := s.interact(&delivery{kind: kindInteractive, body: body})
	if err != nil {
		return ViewAnswer{}, fmt.Errorf("submit %q: %w", view.Title, err)
	}
	return s.applyAnswer(view.ID, raw)
}

// submission builds the view_submission document.
func (s *Server) submission(user string, view View, values map[string]string) (object, error) {
	u := s.mustUser(user)
	v := s.view(view.ID)
	if v == nil || !v.Open {
		return nil, fmt.Errorf("the view is closed")
	}
	if v.User != u.ID {
		return nil, fmt.Errorf("only %s sees the view", v.User)
	}
	state := object{}
	used := map[string]bool{}
	for _, b := range v.document().list("blocks") {
		if b.str("type") != "input" {
			continue
		}
		e := b.obj("element")
		value := initialValue(e)
		for _, key := range []string{decode(b.obj("label").str("text")), b.str("block_id"), e.str("action_id")} {
			if given, ok := values[key]; ok {
				value, used[key] = given, true
			}
		}
		if err := checkInput(b, e, value); err != nil {
			return nil, err
		}
		state[b.str("block_id")] = object{e.str("action_id"): inputState(e, value)}
	}
	for key := range values {
		if !used[key] {
			return nil, fmt.Errorf("there is no field %q", key)
		}
	}
	p := s.interaction("view_submission", u, v.ID)
	shown := s.viewJSON(v)
	shown["state"] = object{"values": state}
	p["view"], p["response_urls"] = shown, []object{}
	return p, nil
}

// checkInput does what Slack's own form does before it submits.
func checkInput(b, e object, value string) error {
	label := b.obj("label").str("text")
	optional, _ := b["optional"].(bool)
	if value == "" {
		if !optional {
			return fmt.Errorf("the field %q is required", label)
		}
		return nil
	}
	if most, ok := e["max_length"].(float64); ok && length(value) > int(most) {
		return fmt.Errorf("the field %q takes at most %v characters", label, most)
	}
	if least, ok := e["min_length"].(float64); ok && length(value) < int(least) {
		return fmt.Errorf("the field %q takes at least %v characters", label, least)
	}
	if e.str("type") == "number_input" {
		if _, err := strconv.ParseFloat(value, 64); err != nil {
			return fmt.Errorf("the field %q takes a number", label)
		}
	}
	if e.has("options") {
		for _, v := range splitValues(e, value) {
			if option(e, v) == nil {
				return fmt.Errorf("the field %q has no option %q", label, v)
			}
		}
	}
	return nil
}

func splitValues(e object, value string) []string {
	if kind := e.str("type"); kind == "checkboxes" || kind == "multi_static_select" {
		return splitIDs(value)
	}
	return []string{value}
}

// option finds an option by its value or text.
func option(e object, value string) object {
	for _, o := range e.list("options") {
		if o.str("value") == value || decode(o.obj("text").str("text")) == value {
			return o
		}
	}
	return nil
}

// inputState is a field's value as view.state shows it.
func inputState(e object, value string) object {
	o := object{"type": e.str("type")}
	var v any = value
	if value == "" {
		v = nil
	}
	switch e.str("type") {
	case "static_select", "radio_buttons":
		o["selected_option"] = option(e, value)
	case "checkboxes", "multi_static_select":
		picked := []object{}
		for _, x := range splitValues(e, value) {
			picked = append(picked, option(e, x))
		}
		o["selected_options"] = picked
	case "users_select":
		o["selected_user"] = v
	case "channels_select":
		o["selected_channel"] = v
	case "conversations_select":
		o["selected_conversation"] = v
	case "datepicker":
		o["selected_date"] = v
	case "timepicker":
		o["selected_time"] = v
	default:
		o["value"] = v
	}
	return o
}

// applyAnswer does to the modal what the acknowledgement says. It takes s.mu
// itself.
func (s *Server) applyAnswer(id string, raw json.RawMessage) (ViewAnswer, error) {
	var sent struct {
		Action string            `json:"response_action"`
		Errors map[string]string `json:"errors"`
		View   object            `json:"view"`
	}
	if raw != nil && json.Unmarshal(raw, &sent) != nil {
		return ViewAnswer{}, fmt.Errorf("submit: unreadable answer %.100s", raw)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	defer s.notify()
	v := s.view(id)
	answer := ViewAnswer{Action: sent.Action, Errors: sent.Errors}
	switch sent.Action {
	case "":
		v.Open = false
	case "clear":
		for _, w := range s.views {
			if w.Root == v.Root {
				w.Open = false
			}
		}
	case "errors":
		for block := range sent.Errors {
			if !slices.ContainsFunc(v.Inputs, func(in Input) bool { return in.BlockID == block }) {
				return answer, fmt.Errorf("submit: an error for %q, which is no input", block)
			}
		}
		if len(sent.Errors) == 0 {
			return answer, fmt.Errorf("submit: response_action errors without errors")
		}
		v.Errors = sent.Errors
	case "update", "push":
		if err := checkView(sent.View); err != nil {
			return answer, fmt.Errorf("submit: view refused: %w", err)
		}
		if sent.Action == "update" {
			s.showView(v, sent.View)
		} else if _, err := s.push(v, sent.View); err != nil {
			return answer, fmt.Errorf("submit: view refused: %w", err)
		}
	default:
		return answer, fmt.Errorf("submit: unknown response_action %q", sent.Action)
	}
	return answer, nil
}

// CloseView has a user dismiss a modal; the app hears of it if it asked to.
func (s *Server) CloseView(user string, view View) error {
	s.mu.Lock()
	u := s.mustUser(user)
	v := s.view(view.ID)
	if v == nil || !v.Open || v.User != u.ID {
		s.mu.Unlock()
		return fmt.Errorf("close %q: not open for %s", view.Title, user)
	}
	v.Open = false
	wanted, _ := v.document()["notify_on_close"].(bool)
	p := s.interaction("view_closed", u, "")
	delete(p, "trigger_id")
	p["view"], p["is_cleared"] = s.viewJSON(v), false
	s.notify()
	s.mu.Unlock()
	if !wanted {
		return nil
	}
	return s.clicked(p, how{})
}

// ClickInView has a user click a button inside a modal or home tab.
func (s *Server) ClickInView(user string, view View, button string, opts ...How) error {
	h := collect(opts)
	s.mu.Lock()
	p, err := s.viewClick(user, view, button, h)
	s.mu.Unlock()
	if err != nil {
		return fmt.Errorf("click %q: %w", button, err)
	}
	return s.clicked(p, h)
}

func (s *Server) viewClick(user string, view View, button string, h how) (object, error) {
	u := s.mustUser(user)
	v := s.view(view.ID)
	if v == nil || !v.Open || v.User != u.ID {
		return nil, fmt.Errorf("the view is not open for %s", user)
	}
	e, err := findButton(v.document().list("blocks"), button, h.inBlock)
	if err != nil {
		return nil, err
	}
	p := s.interaction("block_actions", u, v.ID)
	p["container"] = object{"type": "view", "view_id": v.ID}
	p["view"] = s.viewJSON(v)
	p["actions"] = []object{s.actionJSON(e)}
	return p, nil
}
