package agent

import (
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Mask is what stands in place of a secret. It keeps no character of it.
const Mask = "[masked]"

// secretWords name a secret when they are a word of a key.
var secretWords = []string{"authorization", "token", "apikey", "password", "passwd", "passphrase", "secret", "credential", "credentials", "cookie", "bearer"}

// secretShape finds secrets in text. Where the pattern has a group, only the group
// is masked.
type secretShape struct {
	pattern *regexp.Regexp
	// signs are the lower-case words one of which is in every text that the
	// pattern matches; looking for them first spares most texts the pattern.
	signs []string
	// certain: a token of a well-known form, whatever stands before it.
	certain bool
}

// secretValue is what may stand behind the name of a secret. It ends where a shell
// would begin something new, and no pattern reaches over a line's end: what can
// run must never hide behind a mask.
const secretValue = "[^\\s\"'&,;|$`()<>]"

// secretName is how such a name is written.
const secretName = `(?:password|passwd|passphrase|secret|token|api[_-]?key|credential|authorization|cookie)`

var nameSigns = []string{"password", "passwd", "passphrase", "secret", "token", "apikey", "api_key", "api-key", "credential", "authorization", "cookie"}

// secretShapes are tried in this order.
var secretShapes = []secretShape{
	{regexp.MustCompile(`-----BEGIN [A-Z ]*PRIVATE KEY-----(?:\s|\\[nr])*` +
		`(?:(?:Proc-Type|DEK-Info): [A-Za-z0-9,-]*(?:\s|\\[nr])*)*` +
		`(?:[A-Za-z0-9+/=]{40,}(?:\s|\\[nr])*)*` +
		`(?:[A-Za-z0-9+/=]*(?:\s|\\[nr])*-----END [A-Z ]*PRIVATE KEY-----)?`), []string{"private key-----"}, true},
	{regexp.MustCompile(`(?i)\b(?:bearer|basic)[ \t]+([A-Za-z0-9._~+/=-]{8,})`), []string{"bearer", "basic"}, false},
	// A shell reads "TOKEN= word" as a command, so white space may follow a = only
	// where it comes before it too.
	{regexp.MustCompile(`(?i)\b[a-z0-9_-]*` + secretName + `["']?(?:[ \t]*:[ \t]*|[ \t]+=[ \t]*|=)["']?(?:(?:bearer|basic)[ \t]+)?(` + secretValue + `{4,})`), nameSigns, false},
	// Without -secret, which is a row of options to a shell: the next word runs.
	{regexp.MustCompile(`(?i)(?:--` + secretName + `|\B-(?:password|passwd|passphrase|token|api[_-]?key))[ \t]+["']?(` + secretValue + `{4,})`), nameSigns, false},
	{regexp.MustCompile(`\bxox[abeoprs]-[A-Za-z0-9-]{8,}`), []string{"xox"}, true},
	{regexp.MustCompile(`\bxapp-[A-Za-z0-9-]{8,}`), []string{"xapp-"}, true},
	{regexp.MustCompile(`\bsk-[A-Za-z0-9_-]{16,}`), []string{"sk-"}, true},
	{regexp.MustCompile(`\b(?:ghp|gho|ghu|ghs|ghr|github_pat|glpat)[_-][A-Za-z0-9_]{16,}`), []string{"ghp", "gho", "ghu", "ghs", "ghr", "github_pat", "glpat"}, true},
	{regexp.MustCompile(`\b(?:AKIA|ASIA)[A-Z0-9]{16}\b`), []string{"akia", "asia"}, true},
	{regexp.MustCompile(`\beyJ[A-Za-z0-9_-]{8,}\.eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]*`), []string{"eyj"}, true},
	// The password of an address. It ends before ? and #, behind which an @ is no
	// part of the host.
	{regexp.MustCompile(`(?i)\b[a-z][a-z0-9+.-]*://[^\s/:@?#]*:([^\s/@?#"'&;|$` + "`" + `()<>\\]+)@`), []string{"://"}, false},
}

// Masker hides secrets in what is shown and recorded. What runs never passes it.
// The zero Masker finds secrets by key name and by shape.
type Masker struct {
	known []string
}

// NewMasker also hides the given values wherever they appear, e.g. the process's
// own tokens. Values shorter than six characters are ignored, since they would
// damage honest text.
func NewMasker(known ...string) *Masker {
	m := &Masker{}
	for _, k := range known {
		if len(k) >= 6 {
			m.known = append(m.known, k)
		}
	}
	// Longest first, so that a value which contains another is masked whole.
	slices.SortFunc(m.known, func(a, b string) int { return len(b) - len(a) })
	return m
}

// Text returns s with secrets masked, and how many were.
func (m *Masker) Text(s string) (string, int) { return m.shapes(s, false) }

// Certain is Text for answers of the model: it masks known values and tokens of
// well-known forms, and leaves alone what a word before it makes look like a secret,
// since honest answers are full of those.
func (m *Masker) Certain(s string) (string, int) { return m.shapes(s, true) }

func (m *Masker) shapes(s string, certain bool) (string, int) {
	s, n := m.Known(s)
	lower := strings.ToLower(s)
	for _, shape := range secretShapes {
		if (shape.certain || !certain) && slices.ContainsFunc(shape.signs, func(sign string) bool { return strings.Contains(lower, sign) }) {
			s = replaceShape(shape.pattern, s, &n)
		}
	}
	return s, n
}

// maskedAround is how much of a long text is masked beside what is kept of it.
// It is more than any secret that has a shape.
const maskedAround = 16_384

// Bounded is Bound of the masked text. Masking comes first, because a secret that
// is cut in two is not recognised any more; of a long text only what is near to
// what stays is masked.
func (m *Masker) Bounded(s string, limit int) string {
	if limit > 0 && len(s) > 2*maskedAround+4*limit {
		head, _ := m.Text(s[:runeStart(s, maskedAround+2*limit)])
		tail, _ := m.Text(s[runeStart(s, len(s)-maskedAround-2*limit):])
		n := utf8.RuneCountInString(s)
		front, back := limit-limit/3, limit/3
		return fmt.Sprintf("%s\n[… %d characters left out …]\n%s",
			head[:runeOffset(head, front)], max(0, n-front-back), tail[runeOffset(tail, max(0, utf8.RuneCountInString(tail)-back)):])
	}
	s, _ = m.Text(s)
	return Bound(s, limit)
}

// runeStart moves i back to where a character begins.
func runeStart(s string, i int) int {
	for i > 0 && i < len(s) && !utf8.RuneStart(s[i]) {
		i--
	}
	return i
}

// Known returns s with the given values masked, those that NewMasker got, and how
// many were.
func (m *Masker) Known(s string) (string, int) {
	n := 0
	if m == nil {
		return s, n
	}
	for _, k := range m.known {
		if c := strings.Count(s, k); c > 0 {
			s, n = strings.ReplaceAll(s, k, Mask), n+c
		}
	}
	return s, n
}

func replaceShape(re *regexp.Regexp, s string, n *int) string {
	found := re.FindAllStringSubmatchIndex(s, -1)
	if found == nil {
		return s
	}
	var out strings.Builder
	last := 0
	for _, f := range found {
		from, to := f[0], f[1]
		if len(f) > 2 && f[2] >= 0 {
			from, to = f[2], f[3]
		}
		if from < last || s[from:to] == Mask {
			continue
		}
		out.WriteString(s[last:from])
		out.WriteString(Mask)
		last = to
		*n++
	}
	out.WriteString(s[last:])
	return out.String()
}

// maskedObject stands for an object that cannot be shown.
const maskedObject = `{"…":"` + Mask + `"}`

// Object returns a canonical JSON object with secrets masked in its values, by
// key name and by shape, and how many were. Text that is no JSON object is
// treated as text.
func (m *Masker) Object(canonical string) (string, int) {
	dec := json.NewDecoder(strings.NewReader(canonical))
	dec.UseNumber()
	var v map[string]any
	if err := dec.Decode(&v); err != nil {
		return m.Text(canonical)
	}
	n := 0
	out, err := CanonicalOf(m.value("", v, &n)) // masked it may be larger than arguments may be
	if err != nil {
		return maskedObject, 1
	}
	return out, n
}

// Call is Object for the arguments of a call of which one, if secret is not empty,
// is shown to nobody whatever its name.
func (m *Masker) Call(canonical, secret string) (string, int) {
	if secret == "" {
		return m.Object(canonical)
	}
	var members map[string]json.RawMessage
	if err := json.Unmarshal([]byte(canonical), &members); err != nil {
		return maskedObject, 1
	}
	hidden := 0
	if _, there := members[secret]; there {
		members[secret], hidden = json.RawMessage(`"`+Mask+`"`), 1
	}
	out, err := CanonicalOf(members)
	if err != nil {
		return maskedObject, 1
	}
	out, n := m.Object(out)
	if hidden == 1 && SecretKey(secret) {
		hidden = 0 // counted by its name
	}
	return out, n + hidden
}

// With is a masker that hides one more value, which a person called secret. Codes are
// short, so it takes four characters; shorter ones would damage honest text.
func (m *Masker) With(value string) *Masker {
	with := &Masker{}
	if m != nil {
		with.known = slices.Clone(m.known)
	}
	if len(value) >= 4 {
		with.known = append(with.known, value)
	}
	return with
}

func (m *Masker) value(key string, v any, n *int) any {
	switch v := v.(type) {
	case map[string]any:
		out := make(map[string]any, len(v))
		for _, k := range slices.Sorted(maps.Keys(v)) {
			shown, c := m.Text(k)
			*n += c
			for base, i := shown, 2; ; i++ { // two keys may look the same now
				if _, there := out[shown]; !there {
					break
				}
				shown = fmt.Sprintf("%s (%d)", base, i)
			}
			under := k
			if SecretKey(key) { // everything below a secret's name is the secret
				under = key
			}
			out[shown] = m.value(under, v[k], n)
		}
		return out
	case []any:
		out := make([]any, len(v))
		for i, e := range v {
			out[i] = m.value(key, e, n)
		}
		return out
	case string:
		if SecretKey(key) && v != "" {
			*n++
			return Mask
		}
		s, c := m.Text(v)
		*n += c
		return s
	case json.Number:
		if SecretKey(key) {
			*n++
			return Mask
		}
		return v
	}
	return v
}

// SecretKey reports whether a key names a secret: one of its words does
// ("api_key", "accessToken", "Set-Cookie"), not merely some letters of it
// ("max_tokens").
func SecretKey(key string) bool {
	var words []string
	word := []rune{}
	flush := func() {
		if len(word) > 0 {
			words = append(words, strings.ToLower(string(word)))
			word = word[:0]
		}
	}
	lower := false
	for _, r := range key {
		switch {
		case !unicode.IsLetter(r) && !unicode.IsDigit(r):
			flush()
		case unicode.IsUpper(r) && lower:
			flush()
			word = append(word, r)
		default:
			word = append(word, r)
		}
		lower = unicode.IsLower(r)
	}
	flush()
	for i, w := range words {
		if slices.Contains(secretWords, w) {
			return true
		}
		if w == "key" && i > 0 && (words[i-1] == "api" || words[i-1] == "private" || words[i-1] == "access" || words[i-1] == "signing") {
			return true
		}
	}
	return false
}
