package slacktest

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"path"
	"strconv"
	"strings"
)

// File is a file in the workspace.
type File struct {
	ID       string
	Name     string
	Title    string
	Mimetype string
	User     string
	Content  []byte
	URL      string // private address, which wants the bot token
	Channel  string // where it was shared
	TS       string // message that shares it

	length    int  // announced on upload
	uploaded  bool // bytes have arrived
	completed bool
}

// File returns a file by id.
func (s *Server) File(id string) (File, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f := s.workspace.files[id]
	if f == nil {
		return File{}, false
	}
	return *f, true
}

// newFile registers a file.
func (s *Server) newFile(f File) *File {
	f.ID = s.id("F")
	if f.Title == "" {
		f.Title = f.Name
	}
	if f.Mimetype == "" {
		f.Mimetype = "text/plain"
	}
	f.URL = s.url("/files-pri/" + TeamID + "-" + f.ID + "/download/" + path.Base(f.Name))
	s.workspace.files[f.ID] = &f
	return &f
}

// fileJSON is a file as events and files.info show it.
func (s *Server) fileJSON(f *File) object {
	o := object{
		"id": f.ID, "name": f.Name, "title": f.Title, "mimetype": f.Mimetype, "user": f.User, "user_team": TeamID,
		"size": len(f.Content), "mode": "hosted", "is_external": false, "is_public": true, "created": s.opt.epoch,
		"filetype": strings.TrimPrefix(path.Ext(f.Name), "."), "file_access": "visible",
		"url_private": f.URL, "url_private_download": f.URL,
	}
	if f.Channel != "" {
		o["channels"] = []string{f.Channel}
		o["shares"] = object{"public": object{f.Channel: []object{{"ts": f.TS}}}}
	}
	return o
}

// filesGetUploadURL answers files.getUploadURLExternal.
func (s *Server) filesGetUploadURL(a args) (object, error) {
	n, err := strconv.Atoi(a.str("length"))
	if a.str("filename") == "" || err != nil || n <= 0 {
		return nil, refuse("invalid_arguments")
	}
	f := s.newFile(File{Name: a.str("filename"), User: BotUserID})
	f.length = n
	at := "/upload/v1/" + s.id("ticket")
	s.uploads[at] = f
	return object{"upload_url": s.url(at), "file_id": f.ID}, nil
}

// serveUpload takes the bytes of a file. It takes s.mu itself.
func (s *Server) serveUpload(w http.ResponseWriter, r *http.Request) {
	var content []byte
	var err error
	part, _, partErr := r.FormFile("file")
	if partErr == nil {
		content, err = io.ReadAll(part)
		_ = part.Close()
	} else {
		content, err = io.ReadAll(r.Body)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	f := s.uploads[r.URL.Path]
	switch {
	case err != nil:
		http.Error(w, "unreadable", http.StatusBadRequest)
	case f == nil || f.uploaded:
		http.Error(w, "no such upload", http.StatusNotFound)
	case len(content) != f.length:
		s.violate("upload", f.ID, "%d bytes announced, %d sent", f.length, len(content))
		http.Error(w, "length mismatch", http.StatusBadRequest)
	default:
		f.Content, f.uploaded = content, true
		s.notify()
		_, _ = fmt.Fprintf(w, "OK - %d", len(content))
	}
}

// filesCompleteUpload answers files.completeUploadExternal.
func (s *Server) filesCompleteUpload(a args) (object, error) {
	var want []struct{ ID, Title string }
	if json.Unmarshal(a.raw("files"), &want) != nil || len(want) == 0 {
		return nil, refuse("invalid_arguments")
	}
	if a.str("channels") != "" {
		return nil, refuse("invalid_arguments") // one channel, by channel_id
	}
	var files []*File
	for _, x := range want {
		f := s.workspace.files[x.ID]
		if f == nil || !f.uploaded || f.completed {
			return nil, refuse("file_not_found")
		}
		if x.Title != "" {
			f.Title = x.Title
		}
		files = append(files, f)
	}
	if id := a.str("channel_id"); id != "" {
		c, err := s.writable(id)
		if err != nil {
			return nil, err
		}
		m := &Message{Channel: c.ID, User: BotUserID, BotID: BotID, AppID: AppID, Text: a.str("initial_comment")}
		if blocks, err := parseBlocks(a.raw("blocks")); err != nil {
			return nil, err
		} else if len(blocks) > 0 {
			m.Blocks = s.fillIDs(blocks)
		}
		if err := s.setThread(m, "files.completeUploadExternal", a.str("thread_ts")); err != nil {
			return nil, err
		}
		m.TS = s.ts()
		for _, f := range files {
			f.Channel, f.TS = c.ID, m.TS
			m.Files = append(m.Files, *f)
		}
		s.add(m)
		s.inspect("files.completeUploadExternal", m, a)
		s.deliverOwnPost(m)
	}
	out := []object{}
	for _, f := range files {
		f.completed = true
		out = append(out, object{"id": f.ID, "title": f.Title})
	}
	return object{"files": out}, nil
}

// filesInfo answers files.info.
func (s *Server) filesInfo(a args) (object, error) {
	f := s.workspace.files[a.str("file")]
	if f == nil {
		return nil, refuse("file_not_found")
	}
	return object{"file": s.fileJSON(f), "comments": []object{}}, nil
}

// serveDownload gives out a file to who may read it and a sign-in page, with
// status 200, to everybody else. It takes s.mu itself.
func (s *Server) serveDownload(w http.ResponseWriter, r *http.Request) {
	rest := strings.TrimPrefix(r.URL.Path, "/files-pri/"+TeamID+"-")
	id, _, _ := strings.Cut(rest, "/")
	s.mu.Lock()
	f := s.workspace.files[id]
	allowed := r.Header.Get("Authorization") == "Bearer "+s.BotToken && s.scopes["files:read"]
	var content []byte
	var mimetype string
	if f != nil {
		content, mimetype = f.Content, f.Mimetype
	}
	s.mu.Unlock()
	switch {
	case !allowed:
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		_, _ = io.WriteString(w, "<!DOCTYPE html><html><head><title>Sign in | Slack</title></head><body>Sign in to Example</body></html>")
	case f == nil:
		http.NotFound(w, r)
	default:
		w.Header().Set("Content-Type", mimetype)
		_, _ = w.Write(content)
	}
}
