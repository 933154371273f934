package agent

import (
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"unicode"
)

// Mask is what stands in place of a secret. It keeps no character of it.
const Mask = "[masked]"

// secretWords name a secret when they are a word of a key.
var secretWords = []string{"authorization", "token", "apikey", "password", "passwd", "passphrase", "secret", "credential", "credentials", "cookie", "bearer"}

// tokenShapes are secrets by their form alone. The body of a private key is
// matched closely, so that nothing which follows it is hidden with it.
var tokenShapes = []*regexp.Regexp{
	regexp.MustCompile(`-----BEGIN [A-Z ]*PRIVATE KEY-----` +
		`(?:(?:\s|\\[nr])+[A-Za-z-]+: [A-Za-z0-9,.-]+)*` +
		`(?:(?:\s|\\[nr])*[A-Za-z0-9+/=]{16,})*(?:(?:\s|\\[nr])*[A-Za-z0-9+/=]+)?` +
		`(?:(?:\s|\\[nr])*-----END [A-Z ]*PRIVATE KEY-----)?`),
	regexp.MustCompile(`\bxox[abeoprs]-[A-Za-z0-9-]{8,}`),
	regexp.MustCompile(`\bxapp-[A-Za-z0-9-]{8,}`),
	regexp.MustCompile(`\bsk-[A-Za-z0-9_-]{16,}`),
	regexp.MustCompile(`\b(?:ghp|gho|ghu|ghs|ghr|github_pat|glpat)[_-][A-Za-z0-9_]{16,}`),
	regexp.MustCompile(`\b(?:AKIA|ASIA)[A-Z0-9]{16}\b`),
	regexp.MustCompile(`\beyJ[A-Za-z0-9_-]{8,}\.eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]*`),
}

// A secret in a text ends where a shell would see something else than a plain
// word begin: what is substituted, piped or redirected is never hidden from the
// one who has to approve it.
const (
	plain       = "(?:[^\\s\"'&,;`|<>(){}$]|\\$+[^\\s\"'&,;`|<>(){}$])"
	plainInAddr = "(?:[^\\s/@\"'&,;`|<>(){}$]|\\$+[^\\s/@\"'&,;`|<>(){}$])"
)

// namedShapes are secrets by what stands before them. Where a shape has a group,
// only the group is masked.
var namedShapes = []*regexp.Regexp{
	regexp.MustCompile(`(?i)\b(?:bearer|basic)\s+([A-Za-z0-9._~+/=-]{8,})`),
	regexp.MustCompile(`(?i)\b(?:[a-z0-9_-]*(?:password|passwd|passphrase|secret|token|api[_-]?key|credential|authorization|cookie))["']?\s*[=:]\s*["']?(?:(?:bearer|basic)\s+)?(` + plain + `{4,})`),
	regexp.MustCompile(`(?i)--?(?:password|passwd|passphrase|secret|token|api[_-]?key)[ =]["']?(` + plain + `{4,})`),
	regexp.MustCompile(`(?i)\b[a-z][a-z0-9+.-]*://[^\s/:@]*:(` + plainInAddr + `+)@`),
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
func (m *Masker) Text(s string) (string, int) {
	s, n := m.Certain(s)
	for _, re := range namedShapes {
		s = replaceShape(re, s, &n)
	}
	return s, n
}

// Certain is Text for answers of the model: it masks known values and tokens of
// well-known forms, and leaves alone what a word before it makes look like a secret,
// since honest answers are full of those.
func (m *Masker) Certain(s string) (string, int) {
	n := 0
	if m != nil {
		for _, k := range m.known {
			if c := strings.Count(s, k); c > 0 {
				s, n = strings.ReplaceAll(s, k, Mask), n+c
			}
		}
	}
	for _, re := range tokenShapes {
		s = replaceShape(re, s, &n)
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

// Object returns a canonical JSON object with secrets masked in its values, by
// key name and by shape, and how many were. It is an object again and has as many
// members, whatever was masked. Text that is no JSON object is treated as text.
func (m *Masker) Object(canonical string) (string, int) {
	dec := json.NewDecoder(strings.NewReader(canonical))
	dec.UseNumber()
	var v map[string]any
	if err := dec.Decode(&v); err != nil || v == nil {
		return m.Text(canonical)
	}
	n := 0
	out, err := CanonicalOf(m.value(false, v, &n))
	if err != nil {
		return allMasked, 1
	}
	return out, n
}

// allMasked stands for arguments that cannot be shown; it is an object, as they were.
const allMasked = `{"arguments":"` + Mask + `"}`

// value masks v; secret says that a key around it names a secret.
func (m *Masker) value(secret bool, v any, n *int) any {
	switch v := v.(type) {
	case map[string]any:
		out := make(map[string]any, len(v))
		for _, k := range slices.Sorted(maps.Keys(v)) {
			name, c := m.Text(k)
			*n += c
			shown := name
			for i := 2; ; i++ { // two keys that look the same masked are still two
				if _, taken := out[shown]; !taken {
					break
				}
				shown = fmt.Sprintf("%s (%d)", name, i)
			}
			out[shown] = m.value(secret || SecretKey(k), v[k], n)
		}
		return out
	case []any:
		out := make([]any, len(v))
		for i, e := range v {
			out[i] = m.value(secret, e, n)
		}
		return out
	case string:
		if secret && v != "" {
			*n++
			return Mask
		}
		s, c := m.Text(v)
		*n += c
		return s
	case json.Number:
		if secret {
			*n++
			return Mask
		}
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
