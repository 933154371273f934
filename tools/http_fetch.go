package tools

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"syscall"
	"time"
	"unicode/utf8"

	"github.com/clawbot/clawbot/agent"
)

// Limits of one fetch.
const (
	MaxBody      = 1 << 20
	MaxRedirects = 5
	fetchTimeout = 30 * time.Second
	maxURL       = 8192
	userAgent    = "clawbot (+https://github.com/clawbot/clawbot)"
)

// Resolver finds the addresses of a host; *net.Resolver is one. It is asked
// once for each connection, and only the addresses it returned are dialed.
type Resolver interface {
	LookupNetIP(ctx context.Context, network, host string) ([]netip.Addr, error)
}

func httpFetch(cfg HTTPFetch, resolver Resolver) agent.Tool {
	f := &fetcher{resolver: resolver, timeout: fetchTimeout}
	if resolver == nil {
		f.resolver = net.DefaultResolver
	}
	for _, entry := range cfg.AllowHosts {
		if r, err := parseHostRule(entry); err == nil { // Validate has refused others
			f.allowed = append(f.allowed, r)
		}
	}
	return agent.Tool{
		Name: "http_fetch",
		Description: "Fetch a web page or API by http or https, GET or HEAD, without cookies or credentials. " +
			"At most 1 MiB of text is returned. A redirect to another host is reported, not followed.",
		Schema: json.RawMessage(`{"type":"object","properties":{` +
			`"url":{"type":"string","description":"absolute http or https address","minLength":1,"maxLength":8192},` +
			`"method":{"type":"string","enum":["GET","HEAD"],"description":"GET if left out"}` +
			`},"required":["url"],"additionalProperties":false}`),
		Owner: Owner,
		Default: func(args map[string]any, _ agent.Origin) agent.Action {
			raw, _ := args["url"].(string)
			if u, err := parseURL(raw); err == nil && f.listed(u.Hostname(), portOf(u)) {
				return agent.Allow
			}
			return agent.Ask
		},
		Run: func(ctx context.Context, inv agent.Invocation) agent.Result {
			var args struct{ URL, Method string }
			if err := json.Unmarshal(inv.Args, &args); err != nil {
				return agent.Failed("the arguments are no JSON object with a url")
			}
			return f.fetch(ctx, args.Method, args.URL)
		},
	}
}

// fetcher fetches one address at a time; it keeps no connection and no cookie.
type fetcher struct {
	allowed  []hostRule
	resolver Resolver
	timeout  time.Duration
}

// errAddress: the host is at an address that is not public.
var errAddress = errors.New("its address is private, local or reserved; an admin can list the host in tools.http_fetch.allow_hosts")

func (f *fetcher) fetch(ctx context.Context, method, raw string) agent.Result {
	u, err := parseURL(raw)
	if err != nil {
		return agent.Failed(clean("cannot fetch: " + err.Error()))
	}
	switch method {
	case "":
		method = http.MethodGet
	case http.MethodGet, http.MethodHead:
	default:
		return agent.Failed("cannot fetch: method must be GET or HEAD")
	}
	ctx, cancel := context.WithTimeout(ctx, f.timeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, u.String(), nil)
	if err != nil {
		return agent.Failed("cannot fetch: the address cannot be read")
	}
	req.Header.Set("User-Agent", userAgent)
	req.Header.Set("Accept", "text/*, application/json, */*;q=0.5")

	elsewhere := ""
	transport := &http.Transport{
		Proxy:                  nil, // never from the environment
		DialContext:            f.dial,
		DisableKeepAlives:      true,
		TLSHandshakeTimeout:    10 * time.Second,
		MaxResponseHeaderBytes: 64 << 10,
	}
	defer transport.CloseIdleConnections()
	client := &http.Client{
		Transport: transport,
		CheckRedirect: func(next *http.Request, via []*http.Request) error {
			if len(via) > MaxRedirects {
				return fmt.Errorf("more than %d redirects", MaxRedirects)
			}
			next.Header.Del("Referer") // may carry what the query holds
			if _, err := parseURL(next.URL.String()); err != nil {
				return fmt.Errorf("redirected to an address that is not fetched: %w", err)
			}
			if !sameHost(u, next.URL) && !f.listed(next.URL.Hostname(), portOf(next.URL)) {
				elsewhere = next.URL.String()
				return http.ErrUseLastResponse
			}
			return nil
		},
	}
	resp, err := client.Do(req)
	if err != nil {
		return agent.Failed(short(fmt.Sprintf("cannot fetch %s: %s", u.Redacted(), f.reason(err)), 1000))
	}
	defer resp.Body.Close()

	var out strings.Builder
	fmt.Fprintf(&out, "%s %s\n", resp.Proto, name(short(resp.Status, 200)))
	if elsewhere != "" {
		fmt.Fprintf(&out, "[not followed: a redirect to another host, %s; call http_fetch with that address if it is wanted]\n", name(short(elsewhere, 2000)))
		return agent.Succeeded(clean(out.String()))
	}
	if final := resp.Request.URL.String(); final != u.String() {
		fmt.Fprintf(&out, "url: %s\n", name(short(final, 2000)))
	}
	contentType := resp.Header.Get("Content-Type")
	fmt.Fprintf(&out, "content-type: %s\n", name(short(contentType, 200)))
	if method == http.MethodHead {
		return agent.Succeeded(clean(out.String()))
	}
	data, err := io.ReadAll(io.LimitReader(resp.Body, MaxBody+1))
	if err != nil {
		return agent.Failed(short(fmt.Sprintf("cannot read the answer of %s: %s", u.Redacted(), f.reason(err)), 1000))
	}
	total := int64(len(data))
	if len(data) > MaxBody {
		total = max(resp.ContentLength, -1) // -1: not said
	}
	text, notes := "", ""
	if !textual(contentType) && !utf8.Valid(wholeRunes(data)) {
		notes = fmt.Sprintf("binary data, %s, not shown", size(total))
	} else {
		text, notes = describe(data, MaxBody, total)
	}
	if notes != "" {
		fmt.Fprintf(&out, "[%s]\n", notes)
	}
	return agent.Succeeded(clean(out.String()) + "\n" + text)
}

// dial connects to a host. The name is looked up here and the very addresses
// that were checked are dialed, so that a second lookup cannot give another
// answer. One address that is not public refuses the host altogether.
func (f *fetcher) dial(ctx context.Context, network, address string) (net.Conn, error) {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	open := f.listed(host, port)
	var addrs []netip.Addr
	if addr, err := netip.ParseAddr(host); err == nil {
		addrs = []netip.Addr{addr}
	} else if addrs, err = f.resolver.LookupNetIP(ctx, "ip", host); err != nil {
		return nil, err
	}
	if !open && slices.ContainsFunc(addrs, func(a netip.Addr) bool { return !public(a) }) {
		return nil, errAddress
	}
	dialer := net.Dialer{
		Timeout: 10 * time.Second,
		Control: func(_, address string, _ syscall.RawConn) error {
			ap, err := netip.ParseAddrPort(address)
			if err != nil || !open && !public(ap.Addr()) {
				return errAddress
			}
			return nil
		},
	}
	err = fmt.Errorf("%s has no address", host)
	for _, addr := range addrs {
		var conn net.Conn
		if conn, err = dialer.DialContext(ctx, "tcp", net.JoinHostPort(addr.Unmap().String(), port)); err == nil {
			return conn, nil
		}
	}
	return nil, err
}

// listed reports whether a host and port are in allow_hosts.
func (f *fetcher) listed(host, port string) bool {
	host = strings.TrimSuffix(strings.ToLower(host), ".")
	if addr, err := netip.ParseAddr(host); err == nil {
		host = addr.Unmap().String()
	}
	for _, r := range f.allowed {
		if r.port != "" && r.port != port {
			continue
		}
		if !r.wild && host == r.host || r.wild && strings.HasSuffix(host, "."+r.host) {
			return true
		}
	}
	return false
}

// reason says why a fetch failed, without the address of an inner network.
func (f *fetcher) reason(err error) string {
	var dns *net.DNSError
	var op *net.OpError
	var urlErr *url.Error
	switch {
	case errors.Is(err, errAddress):
		return errAddress.Error()
	case errors.Is(err, context.DeadlineExceeded):
		return fmt.Sprintf("no complete answer within %v", f.timeout)
	case errors.Is(err, context.Canceled):
		return "stopped"
	case errors.As(err, &dns):
		if dns.IsNotFound {
			return "there is no such host"
		}
		return "the host cannot be looked up"
	case errors.As(err, &op):
		return op.Op + ": " + op.Err.Error()
	case errors.As(err, &urlErr):
		return urlErr.Err.Error()
	}
	return err.Error()
}

// parseURL takes absolute http and https addresses without credentials.
func parseURL(raw string) (*url.URL, error) {
	if len(raw) > maxURL {
		return nil, fmt.Errorf("the address is longer than %d bytes", maxURL)
	}
	u, err := url.Parse(raw)
	if err != nil {
		return nil, errors.New("the address cannot be read")
	}
	host := u.Hostname()
	switch {
	case u.Scheme != "http" && u.Scheme != "https":
		return nil, errors.New("the address must begin with http:// or https://")
	case u.User != nil:
		return nil, errors.New("the address must not hold a user name or password")
	case host == "" || u.Opaque != "":
		return nil, errors.New("the address names no host")
	}
	for _, r := range host {
		if r <= ' ' || r >= 0x7f {
			return nil, errors.New("the host must be written in ASCII (punycode, xn--…)")
		}
		if strings.ContainsRune(`\%/?#@`, r) {
			return nil, errors.New("the host cannot be read")
		}
	}
	return u, nil
}

func portOf(u *url.URL) string {
	switch {
	case u.Port() != "":
		return u.Port()
	case u.Scheme == "https":
		return "443"
	}
	return "80"
}

// sameHost reports whether a redirect stays with what was approved: same host,
// same port, never from https to http; from http to https with the usual ports.
func sameHost(from, to *url.URL) bool {
	if !strings.EqualFold(from.Hostname(), to.Hostname()) {
		return false
	}
	if from.Scheme == to.Scheme {
		return portOf(from) == portOf(to)
	}
	return from.Scheme == "http" && portOf(from) == "80" && portOf(to) == "443"
}

// public reports whether an address is one of the public internet. IPv6 is by
// list of what is allowed, 2000::/3 without its special parts, so that mapped,
// translated (64:ff9b::/96) and unique local addresses are out.
func public(addr netip.Addr) bool {
	if !addr.IsValid() || addr.Zone() != "" {
		return false
	}
	addr = addr.Unmap()
	if !addr.IsGlobalUnicast() || addr.IsPrivate() {
		return false
	}
	if addr.Is6() && !netip.MustParsePrefix("2000::/3").Contains(addr) {
		return false
	}
	for _, special := range []string{ // IANA special-purpose address registries
		"0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12",
		"192.0.0.0/24", "192.0.2.0/24", "192.31.196.0/24", "192.52.193.0/24", "192.88.99.0/24", "192.168.0.0/16",
		"192.175.48.0/24", "198.18.0.0/15", "198.51.100.0/24", "203.0.113.0/24", "224.0.0.0/4", "240.0.0.0/4",
		"2001::/23", "2001:db8::/32", "2002::/16", "2620:4f:8000::/48", "3fff::/20",
	} {
		if netip.MustParsePrefix(special).Contains(addr) {
			return false
		}
	}
	return true
}

func textual(contentType string) bool {
	media, _, err := mime.ParseMediaType(contentType)
	if err != nil {
		return contentType == ""
	}
	for _, part := range []string{"json", "xml", "javascript", "yaml", "x-www-form-urlencoded"} {
		if strings.Contains(media, part) {
			return true
		}
	}
	return strings.HasPrefix(media, "text/")
}
