package slacktest

import (
	"encoding/json"
	"io"
	"net/http"
	"time"
)

// A response_url works this often and this long.
const (
	responseUses = 5
	responseLife = 30 * time.Minute
)

// responseURL is the address for answers to one interaction.
type responseURL struct {
	channel, thread string
	user            string
	original        *Message // nil for a slash command
	uses            int
	at              time.Time
}

func (s *Server) newResponseURL(r responseURL) string {
	r.at = time.Now()
	path := "/actions/" + TeamID + "/" + s.id("R")
	s.answers[path] = &r
	return s.url(path)
}

// serveResponseURL takes an answer to an interaction. It takes s.mu itself.
func (s *Server) serveResponseURL(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(io.LimitReader(r.Body, 1<<20))
	s.mu.Lock()
	defer s.mu.Unlock()
	var sent struct {
		Text            string          `json:"text"`
		Blocks          json.RawMessage `json:"blocks"`
		Attachments     json.RawMessage `json:"attachments"`
		ResponseType    string          `json:"response_type"`
		ReplaceOriginal bool            `json:"replace_original"`
		DeleteOriginal  bool            `json:"delete_original"`
		ThreadTS        string          `json:"thread_ts"`
	}
	a := s.answers[r.URL.Path]
	at := len(s.calls)
	s.calls = append(s.calls, Call{Method: "response_url", Args: args{"body": string(body)}, At: time.Now()})
	fail := func(status int, code string) {
		s.calls[at].Error = code
		w.WriteHeader(status)
		s.answer(w, object{"ok": false, "error": code})
	}
	switch {
	case a == nil:
		fail(http.StatusNotFound, "no_active_hooks")
		return
	case a.uses >= responseUses:
		fail(http.StatusNotFound, "used_url")
		return
	case time.Since(a.at) > responseLife:
		fail(http.StatusNotFound, "expired_url")
		return
	case json.Unmarshal(body, &sent) != nil:
		fail(http.StatusBadRequest, "invalid_payload")
		return
	}
	in := args{"text": sent.Text, "blocks": string(sent.Blocks), "attachments": string(sent.Attachments), "parse": "none"}
	if err := s.answerInteraction(a, in, sent.ThreadTS, sent.ResponseType, sent.ReplaceOriginal, sent.DeleteOriginal); err != nil {
		fail(http.StatusInternalServerError, err.Error())
		return
	}
	a.uses++
	s.notify()
	s.answer(w, object{"ok": true})
}

// answerInteraction posts, replaces or deletes by way of a response_url.
func (s *Server) answerInteraction(r *responseURL, in args, thread, kind string, replace, del bool) error {
	if del {
		if r.original != nil {
			s.remove(r.original)
		}
		return nil
	}
	m := &Message{Channel: r.channel, User: BotUserID, BotID: BotID, AppID: AppID}
	if err := s.compose(m, in); err != nil {
		return err
	}
	if replace && r.original != nil {
		before := s.messageJSON(r.original, true)
		r.original.edit(m.Text, m.Blocks)
		s.inspect("response_url", r.original, in)
		if r.original.EphemeralTo == "" {
			s.deliverChanged(r.original, before)
		}
		return nil
	}
	if thread == "" {
		thread = r.thread
	}
	m.ThreadTS = thread
	if kind != "in_channel" {
		m.EphemeralTo = r.user
	}
	s.add(m)
	s.inspect("response_url", m, in)
	if m.EphemeralTo == "" {
		s.deliverOwnPost(m)
	}
	return nil
}
