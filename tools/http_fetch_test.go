package tools

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/clawbot/clawbot/agent"
)

// names is a resolver with a fixed list; each name's answers are given one
// after the other, the last one for good.
type names struct {
	answers map[string][][]string
	asked   atomic.Int64
}

func (n *names) LookupNetIP(_ context.Context, _, host string) ([]netip.Addr, error) {
	n.asked.Add(1)
	list := n.answers[host]
	if len(list) == 0 {
		return nil, &net.DNSError{Err: "no such host", Name: host, IsNotFound: true}
	}
	if len(list) > 1 {
		n.answers[host] = list[1:]
	}
	var addrs []netip.Addr
	for _, s := range list[0] {
		addrs = append(addrs, netip.MustParseAddr(s))
	}
	return addrs, nil
}

// site is a real server that counts what reaches it.
type site struct {
	*httptest.Server
	hits atomic.Int64
	port string
}

func newSite(t *testing.T, h http.HandlerFunc) *site {
	s := &site{}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.hits.Add(1)
		h(w, r)
	}))
	t.Cleanup(s.Close)
	_, s.port, _ = net.SplitHostPort(s.Listener.Addr().String())
	return s
}

func fetchTool(allow []string, r Resolver) agent.Tool {
	return httpFetch(HTTPFetch{Enabled: true, AllowHosts: allow}, r)
}

func get(t *testing.T, tool agent.Tool, url string) agent.Result {
	t.Helper()
	return run(t, tool, map[string]any{"url": url}, asked)
}

func TestFetch(t *testing.T) {
	t.Setenv("HTTP_PROXY", "http://127.0.0.1:1")
	t.Setenv("http_proxy", "http://127.0.0.1:1")
	s := newSite(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("User-Agent") != userAgent || r.Header.Get("Cookie") != "" || r.Header.Get("Authorization") != "" {
			t.Errorf("headers %v", r.Header)
		}
		switch r.URL.Path {
		case "/text":
			http.SetCookie(w, &http.Cookie{Name: "a", Value: "b"})
			fmt.Fprint(w, "hello")
		case "/latin":
			w.Header().Set("Content-Type", "text/plain; charset=latin1")
			w.Write([]byte("caf\xe9"))
		case "/png":
			w.Header().Set("Content-Type", "image/png")
			w.Write([]byte("\x89PNG\r\n\x1a\n\x00"))
		case "/bin":
			w.Header().Set("Content-Type", "application/octet-stream")
			w.Write([]byte("\xff\xfe\xfd"))
		case "/big":
			w.Write(bytes.Repeat([]byte("x"), 5<<20))
		case "/bomb":
			w.Header().Set("Content-Encoding", "gzip")
			z := gzip.NewWriter(w)
			z.Write(make([]byte, 1000))
			z.Write(bytes.Repeat([]byte("b"), 100<<20))
			z.Close()
		case "/status":
			w.WriteHeader(http.StatusTeapot)
			fmt.Fprint(w, "short and stout")
		}
	})
	tool := fetchTool([]string{"127.0.0.1"}, nil)
	for path, want := range map[string]string{
		"/text":   "HTTP/1.1 200 OK\ncontent-type: text/plain; charset=utf-8\n\nhello",
		"/latin":  "caf\uFFFD",
		"/png":    "binary data, 9 bytes",
		"/bin":    "binary data, 3 bytes, not shown",
		"/big":    "[the first 1048576 of ",
		"/bomb":   "binary data", // NUL at the start; unpacking stops at the limit
		"/status": "HTTP/1.1 418 I'm a teapot\n",
	} {
		res := get(t, tool, s.URL+path)
		if !res.Success || !strings.Contains(res.Output, want) {
			t.Errorf("%s: %s, want %q", path, short(res.Output+res.Error, 300), want)
		}
	}
	res := run(t, tool, map[string]any{"url": s.URL + "/text", "method": "HEAD"}, asked)
	if !res.Success || strings.Contains(res.Output, "hello") {
		t.Errorf("HEAD: %+v", res)
	}
}

func TestFetchDefaultActions(t *testing.T) {
	tool := fetchTool([]string{"docs.example", "*.wiki.example", "ports.example:8080", "127.0.0.1:9"}, nil)
	for u, want := range map[string]agent.Action{
		"https://docs.example/x":             agent.Allow,
		"https://DOCS.example./x":            agent.Allow,
		"http://docs.example:99/":            agent.Allow,
		"https://a.wiki.example/":            agent.Allow,
		"https://a.b.wiki.example/":          agent.Allow,
		"https://wiki.example/":              agent.Ask,
		"https://evilwiki.example/":          agent.Ask,
		"https://docs.example.evil.example/": agent.Ask,
		"https://xdocs.example/":             agent.Ask,
		"http://ports.example:8080/":         agent.Allow,
		"http://ports.example/":              agent.Ask,
		"http://127.0.0.1:9/":                agent.Allow,
		"http://[::ffff:127.0.0.1]:9/":       agent.Allow,
		"http://127.0.0.1/":                  agent.Ask,
		"https://docs.example@evil.example/": agent.Ask,
		"https://evil.example#docs.example":  agent.Ask,
		"https://evil.example\\docs.example": agent.Ask,
		"ftp://docs.example/":                agent.Ask,
		"":                                   agent.Ask,
	} {
		if got := tool.Default(map[string]any{"url": u}, asked); got != want {
			t.Errorf("%s: %s, want %s", u, got, want)
		}
	}
	if got := tool.Default(map[string]any{}, asked); got != agent.Ask {
		t.Errorf("no url: %s", got)
	}
}

// T17: no request reaches an address that is not public, whatever its spelling.
func TestT17PrivateAddressesAreRefused(t *testing.T) {
	s := newSite(t, func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, canary) })
	resolver := &names{answers: map[string][][]string{
		"localhost":         {{"127.0.0.1"}, {"::1"}},
		"localhost.":        {{"127.0.0.1"}},
		"app.localhost":     {{"127.0.0.1"}},
		"2130706433":        {{"127.0.0.1"}}, // what getaddrinfo makes of these
		"0x7f000001":        {{"127.0.0.1"}},
		"0x7f.1":            {{"127.0.0.1"}},
		"017700000001":      {{"127.0.0.1"}},
		"127.1":             {{"127.0.0.1"}},
		"0":                 {{"0.0.0.0"}},
		"inner.example":     {{"10.0.0.5"}},
		"meta.example":      {{"169.254.169.254"}},
		"mixed.example":     {{"2a00::1", "127.0.0.1"}},
		"127.0.0.1.nip.tld": {{"127.0.0.1"}},
		"mapped.example":    {{"::ffff:127.0.0.1"}},
	}}
	tool := fetchTool(nil, resolver)
	for _, host := range []string{
		"127.0.0.1", "127.1", "127.255.255.254", "2130706433", "0x7f000001", "0x7f.1", "017700000001", "0", "0.0.0.0",
		"localhost", "LOCALHOST", "localhost.", "app.localhost", "127.0.0.1.nip.tld",
		"[::1]", "[::]", "[::ffff:127.0.0.1]", "[::ffff:7f00:1]", "[0:0:0:0:0:ffff:7f00:1]", "[::127.0.0.1]",
		"[64:ff9b::7f00:1]", "[64:ff9b::a9fe:a9fe]", "[64:ff9b:1::1]", "[2002:7f00:1::]", "[2001:0:7f00:1::]", "[fd00:ec2::254]", "[fe80::1]",
		"[fe80::1%25lo]", "[::1%25lo]", "[fc00::1]", "[ff02::1]", "[2001:db8::1]", "[100::1]", "[fec0::1]",
		"10.0.0.1", "172.16.0.1", "172.31.255.255", "192.168.1.1", "169.254.169.254", "169.254.170.2", "100.64.0.1", "100.100.100.200",
		"192.0.0.192", "198.18.0.1", "192.0.2.1", "203.0.113.9", "224.0.0.1", "240.0.0.1", "255.255.255.255",
		"inner.example", "meta.example", "mixed.example", "mapped.example",
	} {
		res := get(t, tool, "http://"+host+":"+s.port+"/")
		if res.Success || strings.Contains(res.Error, canary) {
			t.Errorf("%s: %+v", host, res)
		}
		if strings.Contains(res.Error, "10.0.0.5") {
			t.Errorf("%s: the error shows an inner address: %s", host, res.Error)
		}
	}
	for _, host := range []string{"１２７.0.0.1", "loc\u00adalhost", "①②⑦.0.0.1", "127。0。0。1"} {
		if res := get(t, tool, "http://"+host+":"+s.port+"/"); res.Success || !strings.Contains(res.Error, "ASCII") {
			t.Errorf("%s: %+v", host, res)
		}
	}
	if n := s.hits.Load(); n != 0 {
		t.Errorf("%d requests arrived", n)
	}
	for _, ok := range []string{"8.8.8.8", "1.1.1.1", "2606:4700::1111", "::ffff:8.8.8.8"} {
		if !public(netip.MustParseAddr(ok)) {
			t.Errorf("%s counts as private", ok)
		}
	}
}

// T17: a listed host opens that host and port, not others at the same address.
func TestT17ListedHostOpensItselfAlone(t *testing.T) {
	s := newSite(t, func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, "fine") })
	other := newSite(t, func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, canary) })
	resolver := &names{answers: map[string][][]string{"inner.example": {{"127.0.0.1"}}, "evil.example": {{"127.0.0.1"}}}}
	tool := fetchTool([]string{"inner.example:" + s.port, "127.0.0.1:" + s.port}, resolver)
	for _, host := range []string{"inner.example", "127.0.0.1", "INNER.example."} {
		resolver.answers["inner.example."] = [][]string{{"127.0.0.1"}}
		resolver.answers["INNER.example."] = [][]string{{"127.0.0.1"}}
		if res := get(t, tool, "http://"+host+":"+s.port+"/"); !res.Success {
			t.Errorf("%s: %+v", host, res)
		}
	}
	for _, u := range []string{"http://evil.example:" + s.port, "http://inner.example:" + other.port, "http://127.0.0.1:" + other.port} {
		if res := get(t, tool, u); res.Success {
			t.Errorf("%s: %+v", u, res)
		}
	}
	if n := other.hits.Load(); n != 0 {
		t.Errorf("%d requests arrived at the other port", n)
	}
}

// T17: the name is looked up once per connection, so its owner cannot show a
// public address to the check and an inner one to the dialer.
func TestT17Rebinding(t *testing.T) {
	s := newSite(t, func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, canary) })
	resolver := &names{answers: map[string][][]string{"rebind.example": {{"2a00::1"}, {"127.0.0.1"}}}}
	f := &fetcher{resolver: resolver, timeout: 500 * time.Millisecond}
	if res := f.fetch(t.Context(), "GET", "http://rebind.example:"+s.port+"/"); res.Success {
		t.Errorf("%+v", res)
	}
	if n := resolver.asked.Load(); n != 1 {
		t.Errorf("%d look-ups, want 1", n)
	}
	if res := f.fetch(t.Context(), "GET", "http://rebind.example:"+s.port+"/"); res.Success || !strings.Contains(res.Error, "private") {
		t.Errorf("second: %+v", res)
	}
	if n := s.hits.Load(); n != 0 {
		t.Errorf("%d requests arrived", n)
	}
}

// T17: each hop is judged again, and what was approved is one host.
func TestT17Redirects(t *testing.T) {
	inner := newSite(t, func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, canary) })
	friend := newSite(t, func(w http.ResponseWriter, r *http.Request) {
		if ref := r.Header.Get("Referer"); ref != "" {
			t.Errorf("referer %s", ref)
		}
		fmt.Fprint(w, "friend")
	})
	start := newSite(t, func(w http.ResponseWriter, r *http.Request) {
		to := r.URL.Query().Get("to")
		if to == "loop" {
			to = r.URL.String()
		}
		if to == "" {
			fmt.Fprint(w, "arrived")
			return
		}
		w.Header().Set("Location", to)
		w.WriteHeader(http.StatusFound)
		fmt.Fprint(w, "body of the redirect")
	})
	resolver := &names{answers: map[string][][]string{"start.example": {{"127.0.0.1"}}, "friend.example": {{"127.0.0.1"}}, "evil.example": {{"127.0.0.1"}}}}
	tool := fetchTool([]string{"start.example:" + start.port, "friend.example:" + friend.port}, resolver)
	base := "http://start.example:" + start.port
	for to, want := range map[string]string{
		"/end": "url: " + base + "/end",
		base:   "arrived",
		"http://friend.example:" + friend.port + "/":        "friend",
		"http://127.0.0.1:" + inner.port + "/secret":        "not followed: a redirect to another host, http://127.0.0.1:" + inner.port + "/secret",
		"http://evil.example:" + inner.port + "/":           "not followed",
		"http://start.example:" + inner.port + "/":          "not followed",
		"//evil.example:" + inner.port + "/":                "not followed",
		"https://start.example:" + start.port + "/":         "", // listed; the server speaks no TLS
		"http://user:pw@start.example:" + start.port + "/":  "an address that is not fetched",
		"file:///etc/passwd":                                "an address that is not fetched",
		"gopher://127.0.0.1:" + inner.port + "/":            "an address that is not fetched",
		"loop":                                              "more than 5 redirects",
		"http://[::ffff:127.0.0.1]:" + inner.port + "/":     "not followed",
		"http://friend.example:" + inner.port + "/":         "not followed",
		"http://friend.example.:" + inner.port + "/?x=\x7f": "",
	} {
		before := start.hits.Load()
		res := get(t, tool, base+"/?to="+url.QueryEscape(to))
		if got := res.Output + res.Error; !strings.Contains(got, want) || strings.Contains(got, canary) || strings.Contains(got, "body of") {
			t.Errorf("%s: %q, want %q", to, short(got, 300), want)
		}
		if n := start.hits.Load() - before; n > MaxRedirects+1 {
			t.Errorf("%s: %d requests", to, n)
		}
	}
	if n := inner.hits.Load(); n != 0 {
		t.Errorf("%d requests arrived inside", n)
	}
}

// Nothing of the address becomes a header or a second request, and answers
// cannot forge lines above the body.
func TestHeaderInjection(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	var seen atomic.Value
	seen.Store("")
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			buf := make([]byte, 4096)
			n, _ := c.Read(buf)
			seen.Store(seen.Load().(string) + string(buf[:n]))
			fmt.Fprint(c, "HTTP/1.1 200 \x1b[31mOK\x07\r\nContent-Type: text/plain\x01\x1b\r\nContent-Length: 2\r\n\r\nhi")
			c.Close()
		}
	}()
	tool := fetchTool([]string{"127.0.0.1"}, nil)
	base := "http://" + l.Addr().String()
	for _, path := range []string{"/a\r\nX-Evil: 1", "/a%0d%0aX-Evil:%201", "/ HTTP/1.1\r\nX-Evil: 1\r\n\r\n", "/\nX-Evil: 1", "/?q=\r\nX-Evil: 1"} {
		res := get(t, tool, base+path)
		if strings.ContainsAny(res.Output, "\x1b\x07\x01") {
			t.Errorf("%q: %q", path, res.Output)
		}
	}
	if s := seen.Load().(string); strings.Contains(s, "\nX-Evil") {
		t.Errorf("injected: %q", s)
	}
}

func TestFetchRefusesAndFails(t *testing.T) {
	tool := fetchTool(nil, &names{})
	for u, want := range map[string]string{
		"ftp://a.example/":                    "must begin with http",
		"file:///etc/passwd":                  "must begin with http",
		"javascript:alert(1)":                 "must begin with http",
		"a.example":                           "must begin with http",
		"http:///x":                           "names no host",
		"http:a.example":                      "names no host",
		"http://u:p@a.example/":               "user name or password",
		"http://a.example:port/":              "cannot be read",
		"http://nowhere.example/":             "no such host",
		"http://a b.example/":                 "cannot be read",
		"http://" + strings.Repeat("a", 9000): "longer than",
	} {
		res := tool.Run(t.Context(), agent.Invocation{Args: fmt.Appendf(nil, `{"url":%q}`, u)})
		if res.Success || !strings.Contains(res.Error, want) {
			t.Errorf("%s: %+v, want %q", short(u, 50), res, want)
		}
	}
	if res := run(t, tool, map[string]any{"url": "http://a.example", "method": "POST"}, asked); res.Success {
		t.Error("POST")
	}
}

// T16: a slow sender ends at the time limit, a cancelled turn at once.
func TestT16SlowSender(t *testing.T) {
	release := make(chan struct{})
	s := newSite(t, func(w http.ResponseWriter, r *http.Request) {
		w.Write([]byte("x"))
		w.(http.Flusher).Flush()
		select {
		case <-release:
		case <-r.Context().Done():
		}
	})
	defer close(release)
	rule, _ := parseHostRule("127.0.0.1")
	f := &fetcher{allowed: []hostRule{rule}, resolver: &names{}, timeout: 200 * time.Millisecond}
	if res := f.fetch(t.Context(), "GET", s.URL); res.Success || !strings.Contains(res.Error, "no complete answer within 200ms") {
		t.Errorf("%+v", res)
	}
	f.timeout = time.Minute
	ctx, cancel := context.WithCancelCause(t.Context())
	time.AfterFunc(100*time.Millisecond, func() { cancel(errors.New("turn cancelled")) })
	began := time.Now()
	if res := f.fetch(ctx, "GET", s.URL); res.Success || time.Since(began) > 10*time.Second {
		t.Errorf("%+v after %v", res, time.Since(began))
	}
}
