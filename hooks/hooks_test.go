package hooks

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/clawbot/clawbot/agent"
)

var call = agent.HookCall{
	Session: "ses_1", Turn: "turn_1", Call: "c1", Tool: "shell", Args: `{"command":"ls","n":1.50}`,
	Origin: agent.Origin{Place: agent.Place{Channel: "slack", Workspace: "T1", Conversation: "C1", Thread: "1.0"}, Author: agent.Actor{Channel: "slack", Workspace: "T1", User: "ann"}},
}

// script is a program of a test.
func script(t *testing.T, text string) []string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "hook")
	if err := os.WriteFile(path, []byte("#!/bin/sh\n"+text), 0o755); err != nil {
		t.Fatal(err)
	}
	return []string{path}
}

func before(t *testing.T, h Hook) agent.BeforeHook {
	t.Helper()
	h.Name, h.When = "h", Before
	if errs := (Config{h}).Validate(); errs != nil {
		t.Fatal(errors.Join(errs...))
	}
	list, _ := New(Config{h})
	return list[0]
}

// What a hook may say, as a command and as an endpoint, and what counts as no answer.
//
// Rows: L32.
func TestAnswers(t *testing.T) {
	for name, c := range map[string]struct {
		says  string
		want  agent.HookReply
		fails string
	}{
		"continue":               {`{"decision":"continue"}`, agent.HookReply{}, ""},
		"cancel":                 {`{"decision":"cancel","reason":"no"}`, agent.HookReply{Cancel: true, Reason: "no"}, ""},
		"arguments":              {`{"decision":"rewrite","args":{"command":"ls -l"}}`, agent.HookReply{Args: `{"command":"ls -l"}`}, ""},
		"name":                   {` {"decision":"rewrite","tool":"list_dir"} `, agent.HookReply{Tool: "list_dir"}, ""},
		"nothing":                {``, agent.HookReply{}, "not understood"},
		"empty object":           {`{}`, agent.HookReply{}, "neither"},
		"another word":           {`{"decision":"allow"}`, agent.HookReply{}, "neither"},
		"a word too many":        {`{"decision":"continue","allow":true}`, agent.HookReply{}, "not understood"},
		"no JSON":                {`yes`, agent.HookReply{}, "not understood"},
		"more than JSON":         {`{"decision":"continue"} yes`, agent.HookReply{}, "goes on"},
		"rewrite to nothing":     {`{"decision":"rewrite"}`, agent.HookReply{}, "neither a tool nor arguments"},
		"continue and arguments": {`{"decision":"continue","args":{}}`, agent.HookReply{}, "rewrite"},
	} {
		t.Run(name, func(t *testing.T) {
			s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, c.says) }))
			defer s.Close()
			for _, h := range []Hook{{Command: script(t, "cat >/dev/null; printf '%s' '"+c.says+"'")}, {URL: s.URL}} {
				got, err := before(t, h).Before(t.Context(), call)
				switch {
				case c.fails == "" && (err != nil || got != c.want):
					t.Errorf("%+v, %v; want %+v", got, err, c.want)
				case c.fails != "" && (err == nil || !strings.Contains(err.Error(), c.fails)):
					t.Errorf("%+v, %v; want an error about %q", got, err, c.fails)
				}
			}
		})
	}
}

// A hook is told of the call, exactly, and afterwards of its result.
func TestQuestion(t *testing.T) {
	var got []string
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		doc, _ := io.ReadAll(r.Body)
		got = append(got, r.Method+" "+r.Header.Get("Content-Type")+" "+string(doc))
		io.WriteString(w, `{"decision":"continue"}`)
	}))
	defer s.Close()
	b, a := New(Config{{Name: "b", When: Before, URL: s.URL, Tools: []string{"SH*"}}, {Name: "a", When: After, URL: s.URL}, {Name: "o", When: Before, URL: s.URL, Tools: []string{"other"}}})
	for _, h := range b {
		if _, err := h.Before(t.Context(), call); err != nil {
			t.Fatal(err)
		}
	}
	if err := a[0].After(t.Context(), call, agent.HookResult{Status: agent.CallFailed, Error: "broken"}); err != nil {
		t.Fatal(err)
	}
	about := `"session_id":"ses_1","turn_id":"turn_1","tool_call_id":"c1","tool":"shell","args":{"command":"ls","n":1.50},` +
		`"origin":{"channel":"slack","workspace":"T1","conversation":"C1","thread":"1.0","author":"slack:T1/ann"}`
	want := []string{
		`POST application/json {"hook":"b","when":"before",` + about + `}`,
		`POST application/json {"hook":"a","when":"after",` + about + `,"outcome":"failed","output":"","error":"broken"}`,
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

// A command gets the document on its standard input and none of our secrets, and is
// killed at its time with what it has started.
func TestCommand(t *testing.T) {
	t.Setenv("OPENAI_API_KEY", "geheim-key")
	dir := t.TempDir()
	h := before(t, Hook{Command: script(t, `cat > "$1/in"; env > "$1/env"; echo '{"decision":"continue"}'`)})
	r := h.(runner)
	r.ask = command(append(script(t, `cat > "$1/in"; env > "$1/env"; echo noise >&2; echo '{"decision":"continue"}'`), dir))
	if _, err := r.Before(t.Context(), call); err != nil {
		t.Fatal(err)
	}
	in, err := os.ReadFile(filepath.Join(dir, "in"))
	var q map[string]any
	if err != nil || json.Unmarshal(in, &q) != nil || q["tool"] != "shell" {
		t.Errorf("it read %s, %v", in, err)
	}
	env, err := os.ReadFile(filepath.Join(dir, "env"))
	if err != nil || strings.Contains(string(env), "geheim") || !strings.Contains(string(env), "PATH=") {
		t.Errorf("its environment: %s, %v", env, err)
	}

	slow := 200 * time.Millisecond
	alive := filepath.Join(dir, "alive")
	r.ask, r.timeout = command(append(script(t, `(while :; do echo x >> "$1"; sleep 0.02; done) & wait`), alive)), slow
	began := time.Now()
	if _, err := r.Before(t.Context(), call); err == nil || !strings.Contains(err.Error(), "within 200ms") || time.Since(began) > 5*time.Second {
		t.Errorf("after %s: %v", time.Since(began), err)
	}
	size := func() int64 {
		st, err := os.Stat(alive)
		if err != nil {
			t.Fatal(err)
		}
		return st.Size()
	}
	stable := 0
	for last, deadline := size(), time.Now().Add(5*time.Second); stable < 10; stable++ {
		time.Sleep(30 * time.Millisecond)
		if now := size(); now != last {
			last, stable = now, -1
		}
		if time.Now().After(deadline) {
			t.Fatal("what it had started lives on")
		}
	}
	for name, argv := range map[string][]string{"no such program": {filepath.Join(dir, "none")}, "a failure": script(t, "echo '{\"decision\":\"continue\"}'; exit 3"), "too much": script(t, "yes | head -c 3000000")} {
		r.ask, r.timeout = command(argv), 5*time.Second
		if reply, err := r.Before(t.Context(), call); err == nil {
			t.Errorf("%s: %+v", name, reply)
		}
	}
}

// An endpoint that redirects, fails, hangs or is not there has not answered; errors
// hold nothing of the call.
func TestEndpoint(t *testing.T) {
	release := make(chan struct{})
	mux := http.NewServeMux()
	mux.HandleFunc("/ok", func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, `{"decision":"continue"}`) })
	mux.Handle("/away", http.RedirectHandler("/ok", http.StatusFound))
	mux.HandleFunc("/broken", func(w http.ResponseWriter, _ *http.Request) { http.Error(w, `{"decision":"continue"}`, 500) })
	mux.HandleFunc("/hangs", func(http.ResponseWriter, *http.Request) { <-release })
	mux.HandleFunc("/much", func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, strings.Repeat(" ", maxAnswer+1)) })
	s := httptest.NewServer(mux)
	defer s.Close()
	defer close(release)
	timeout := 300 * time.Millisecond
	for _, path := range []string{"/away", "/broken", "/hangs", "/much", "/none"} {
		_, err := before(t, Hook{URL: s.URL + path, Timeout: &timeout}).Before(t.Context(), call)
		if err == nil || strings.Contains(err.Error(), "command") {
			t.Errorf("%s: %v", path, err)
		}
	}
	if _, err := before(t, Hook{URL: "http://127.0.0.1:1/"}).Before(t.Context(), call); err == nil || !strings.Contains(err.Error(), "cannot be reached") {
		t.Errorf("nobody there: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := before(t, Hook{URL: s.URL + "/ok"}).Before(ctx, call); err == nil || !strings.Contains(err.Error(), "turn ended") {
		t.Errorf("after the turn: %v", err)
	}
}

func TestValidate(t *testing.T) {
	long, none := 2*time.Minute, time.Duration(0)
	got := Config{
		{Name: "ok", When: Before, Command: []string{"x"}},
		{Name: "ok", When: "during", URL: "ftp://x"},
		{Name: "a b", When: After, Command: []string{""}, Tools: []string{"", "ok*"}, Timeout: &long},
		{When: After, Command: []string{"x"}, URL: "https://h/", Timeout: &none},
		{Name: "p", When: After, URL: "https://user:secret@h/"},
	}.Validate()
	var paths []string
	for _, err := range got {
		var c *agent.ConfigError
		if !errors.As(err, &c) || strings.Contains(c.Msg, "secret") {
			t.Errorf("%v", err)
			continue
		}
		paths = append(paths, c.Path)
	}
	want := "hooks[1].name hooks[1].when hooks[1].url hooks[2].name hooks[2].tools[0] hooks[2].command[0] hooks[2].timeout hooks[3].name hooks[3].command hooks[3].timeout hooks[4].url"
	if strings.Join(paths, " ") != want {
		t.Errorf("got  %s\nwant %s", strings.Join(paths, " "), want)
	}
}

// The default that docs/lifecycle.md tells of.
//
// Rows: L124.
func TestDefaultIsAsDocumented(t *testing.T) {
	page, err := os.ReadFile("../docs/lifecycle.md")
	if err != nil || !strings.Contains(string(page), fmt.Sprintf("| `hooks[].timeout` | %s |\n", DefaultTimeout)) {
		t.Errorf("the page lacks %s, %v", DefaultTimeout, err)
	}
}
