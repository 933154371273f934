package agent

import (
	"encoding/json"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestMaskText(t *testing.T) {
	m := NewMasker("hunter2-canary", "hunter2-canary-longer", "short")
	for _, c := range []struct {
		in, want string
		n        int
	}{
		{"nothing to hide", "nothing to hide", 0},
		{"x hunter2-canary y", "x [masked] y", 1},
		{"x hunter2-canary-longer y", "x [masked] y", 1},
		{"short words are left alone", "short words are left alone", 0},
		{"Authorization: Bearer abcdefghijkl", "Authorization: Bearer [masked]", 1},
		{"curl -H 'Authorization: Basic dXNlcjpwYXNz'", "curl -H 'Authorization: Basic [masked]'", 1},
		{"password=hunter22 other", "password=[masked] other", 1},
		{`{"api_key": "abcd1234"}`, `{"api_key": "[masked]"}`, 1},
		{"DB_PASSWORD=hunter22; MY_TOKEN='abcdefgh'", "DB_PASSWORD=[masked]; MY_TOKEN='[masked]'", 2},
		{"mysql --password hunter22 -u root", "mysql --password [masked] -u root", 1},
		{"xoxb-1234567890-abc and xapp-1-A111-222-abc", "[masked] and [masked]", 2},
		{"sk-abcdefghijklmnopqrst", "[masked]", 1},
		{"ghp_abcdefghijklmnopqrstuvwxyz0123456789", "[masked]", 1},
		{"AKIAIOSFODNN7EXAMPLE", "[masked]", 1},
		{"eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.abc-_", "[masked]", 1},
		{"max_tokens: 4096 tokens", "max_tokens: 4096 tokens", 0},
		{"the password is wrong", "the password is wrong", 0},
		{"password=[masked]", "password=[masked]", 0},
	} {
		if got, n := m.Text(c.in); got != c.want || n != c.n {
			t.Errorf("Text(%q) = %q, %d, want %q, %d", c.in, got, n, c.want, c.n)
		}
	}
	// No mask is no reason to break down, and finds secrets by form.
	var none *Masker
	if got, n := none.Text("xoxb-1234567890-abc"); got != Mask || n != 1 {
		t.Errorf("without a masker: %q, %d", got, n)
	}
}

// What runs must not hide behind what looks like a secret: commands after, or in
// place of one, stay visible.
func TestMaskHidesNoCommand(t *testing.T) {
	m := NewMasker()
	for _, in := range []string{
		"password=$(EVIL)", "token=`EVIL`", "secret=x;EVIL", "api_key=abcd|EVIL", "password=abcd>EVIL", "token=${EVIL}", "password=abcd&EVIL",
		"--password=$(EVIL) x", "curl http://u:$(EVIL)@host/", "Authorization: Bearer $(EVIL)",
		"-----BEGIN PRIVATE KEY-----\nEVIL is more than one line of a key", "echo '-----BEGIN PRIVATE KEY-----'; EVIL",
		"-----BEGIN PRIVATE KEY-----; EVIL\n-----END PRIVATE KEY-----", "password=abcd $(EVIL)", "token: abcd && EVIL",
	} {
		got, _ := m.Text(in)
		if !strings.Contains(got, "EVIL") && !strings.HasPrefix(in, "-----BEGIN PRIVATE KEY-----\nEVIL") {
			t.Errorf("%q is shown as %q", in, got)
		}
		if strings.HasPrefix(in, "-----BEGIN PRIVATE KEY-----\nEVIL") && !strings.Contains(got, "is more than one line") {
			t.Errorf("%q is shown as %q", in, got)
		}
	}
}

func TestMaskedObjects(t *testing.T) {
	m := NewMasker("hunter2-canary")
	for _, c := range []struct {
		in, want string
		n        int
	}{
		{`{"x":1}`, `{"x":1}`, 0},
		{`{"password":"a","x":"b"}`, `{"password":"[masked]","x":"b"}`, 1},
		{`{"accessToken":123,"secret":true,"cookie":null,"apikey":""}`, `{"accessToken":"[masked]","apikey":"","cookie":null,"secret":true}`, 1},
		{`{"headers":{"Set-Cookie":["a","b"]}}`, `{"headers":{"Set-Cookie":["[masked]","[masked]"]}}`, 2},
		{`{"credentials":{"user":"u","value":"v"}}`, `{"credentials":{"user":"[masked]","value":"[masked]"}}`, 2},
		{`{"max_tokens":5,"monkey":"x","keyboard":"y"}`, `{"max_tokens":5,"monkey":"x","keyboard":"y"}`, 0},
		{`{"x":"say hunter2-canary"}`, `{"x":"say [masked]"}`, 1},
		{`{"xoxb-1111111111":"a","xoxb-2222222222":"b"}`, `{"[masked]":"a","[masked] (2)":"b"}`, 2},
		{`{"n":1e999999,"m":-0.0,"big":12345678901234567890.10}`, `{"big":12345678901234567890.10,"m":-0.0,"n":1e999999}`, 0},
		{`{"x":"<&>é😀\u0000"}`, `{"x":"<&>é😀\u0000"}`, 0},
	} {
		want, err := Canonical(c.want)
		if err != nil {
			t.Fatal(err)
		}
		in, err := Canonical(c.in)
		if err != nil {
			t.Fatal(err)
		}
		if got, n := m.Object(in); got != want || n != c.n {
			t.Errorf("Object(%s) = %s, %d, want %s, %d", in, got, n, want, c.n)
		}
	}
	// Masking makes it longer than arguments may be: it is an object still.
	in, err := Canonical(`{"token":[` + strings.Repeat("1,", 300_000) + `1]}`)
	if err != nil {
		t.Fatal(err)
	}
	if got, n := m.Object(in); n != 300_001 || !json.Valid([]byte(got)) || got[0] != '{' {
		t.Errorf("a long one: %d masked, %s", n, Bound(got, 100))
	}
}

// A known secret is nowhere in what is shown, wherever it stands.
func TestKnownSecretsNeverShow(t *testing.T) {
	const canary = "c4n4ry-value"
	m := NewMasker(canary)
	rapid.Check(t, func(t *rapid.T) {
		part := rapid.OneOf(rapid.Just(canary), rapid.String())
		value := rapid.Map(rapid.SliceOfN(part, 0, 4), func(p []string) string { return strings.Join(p, "") })
		object := rapid.MapOfN(value, rapid.SliceOfN(value, 0, 3), 0, 4).Draw(t, "object")
		args, err := CanonicalOf(object)
		if err != nil {
			t.Fatal(err)
		}
		shown, n := m.Object(args)
		if strings.Contains(shown, canary) {
			t.Fatalf("%s is shown as %s", args, shown)
		}
		if strings.Contains(args, canary) != (n > 0) && n == 0 {
			t.Fatalf("%s: %d masked", args, n)
		}
	})
}
