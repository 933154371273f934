package providertest

import (
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/clawbot/clawbot/agent"
	"github.com/clawbot/clawbot/model/modeltest"
)

func errorKinds(t *testing.T, p Provider) {
	srv := modeltest.Start(t)
	m := p.model(t, srv, Options{MaxRetries: -1})
	srv.Reply(modeltest.Status(404).Message("model test:\n\x1b[31mnot\u202efound\x00 " + strings.Repeat("é😀", 500)))
	_, err := m.Complete(t.Context(), ask("x"))
	if !strings.Contains(err.Error(), "status 404 not_found_error: model test: [31mnotfound") {
		t.Errorf("the error does not say why: %v", err)
	}
	checkText(t, err)
	srv.Reply(modeltest.HTML(503))
	if _, err := m.Complete(t.Context(), ask("x")); err == nil || strings.Contains(err.Error(), "<h1>") {
		t.Error(err)
	}
}

func checkText(t *testing.T, err error) {
	t.Helper()
	text := err.Error()
	if n := utf8.RuneCountInString(text); n > 300 || !utf8.ValidString(text) || strings.ContainsFunc(text, unicode.IsControl) {
		t.Errorf("%d characters: %q", n, text)
	}
}

func leaks(t *testing.T, p Provider) {
	for _, key := range []string{"sk-proj-s3cr/t+KEY0123456789abcdef", "s3cr/t+KEY 0123456789abcdef="} {
		leaksOf(t, p, key)
	}
}

func leaksOf(t *testing.T, p Provider, key string) {
	echo := strings.Join([]string{
		"your key", key, "(\"" + key + "\")", "Bearer " + key, url.QueryEscape(key), url.PathEscape(key),
		strings.ReplaceAll(url.QueryEscape(key), "+", "%20"), base64.StdEncoding.EncodeToString([]byte(key)),
		"sk-proj-*****cdef", "https://user:hunter2@example.com/?k=" + key,
	}, " ")
	quoted := fmt.Sprintf("%q", echo)
	late := fmt.Sprintf("%q", strings.Repeat("x", 160)+echo)
	var status int
	var body string
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		io.WriteString(w, body)
	}))
	t.Cleanup(srv.Close)
	m := p.New(t, Options{URL: strings.Replace(srv.URL, "http://", "http://user:hunter2@", 1), Key: key, MaxRetries: -1, HTTPClient: client(t)})
	type answer struct {
		status int
		body   string
	}
	var answers []answer
	for _, code := range []int{200, 302, 400, 401, 403, 404, 418, 429, 500} {
		for _, body := range []string{
			echo, quoted,
			`{"error":` + quoted + `}`,
			`{"error":{"type":` + quoted + `,"code":` + quoted + `}}`,
			`{"error":{"type":"some_error","message":` + quoted + `}}`,
			`{"error":{"type":"some_error","message":` + late + `}}`,
		} {
			answers = append(answers, answer{code, body})
		}
	}
	for _, a := range answers {
		status, body = a.status, a.body
		_, err := m.Complete(t.Context(), ask("x"))
		if err == nil {
			t.Fatal("no error")
		}
		checkText(t, err)
		for _, secret := range []string{"s3cr", "cdef", "hunter2", "KEY", base64.StdEncoding.EncodeToString([]byte(key))[:20]} {
			for _, text := range []string{err.Error(), fmt.Sprintf("%+v", err), fmt.Sprintf("%#v", errors.Unwrap(err))} {
				if strings.Contains(text, secret) {
					t.Errorf("%q is in %s", secret, text)
				}
			}
		}
	}
}

// The key would go along with a redirect.
func redirect(t *testing.T, p Provider) {
	thief := modeltest.Start(t)
	srv := modeltest.Start(t)
	srv.Reply(modeltest.JSON(307, "").Header("Location", thief.URL()+"/v1/messages"))
	if _, err := p.model(t, srv, Options{}).Complete(t.Context(), ask("x")); !errors.Is(err, agent.ErrModelUnavailable) {
		t.Error(err)
	}
	if len(thief.Requests()) != 0 {
		t.Error("the redirect was followed")
	}
}

func down(t *testing.T, p Provider) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := listener.Addr().String()
	listener.Close()
	m := p.New(t, Options{URL: "http://user:hunter2@" + address, Key: "k", MaxRetries: -1, HTTPClient: client(t)})
	_, err = m.Complete(t.Context(), ask("x"))
	if !errors.Is(err, agent.ErrModelUnavailable) || !strings.Contains(err.Error(), "connection refused") || strings.Contains(err.Error(), "hunter2") {
		t.Error(err)
	}
}
