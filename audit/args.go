package audit

import (
	"encoding/json"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/clawbot/clawbot/agent"
)

// plainNumber is a number that jsonb gives back as it was written. Exponents and
// negative zero are rewritten by it, and very long numbers are refused.
var plainNumber = regexp.MustCompile(`^-?\d{1,300}(\.\d{1,300})?$`)

// StableArgs returns a JSON object in a form that a jsonb column gives back with
// the same meaning, so that its canonical form, and with it the row's hash, can
// be recomputed: NUL characters become U+FFFD and unusual numbers become texts.
// It is for masked copies only; what runs is never touched.
func StableArgs(canonical string) (string, error) {
	dec := json.NewDecoder(strings.NewReader(canonical))
	dec.UseNumber()
	var v any
	if err := dec.Decode(&v); err != nil {
		return "", err
	}
	return agent.CanonicalOf(stable(v))
}

func stable(v any) any {
	switch v := v.(type) {
	case map[string]any:
		out := make(map[string]any, len(v))
		for _, k := range slices.Sorted(maps.Keys(v)) {
			key := agent.Clean(k)
			for _, taken := out[key]; taken; _, taken = out[key] { // two keys stay two
				key += "\uFFFD"
			}
			out[key] = stable(v[k])
		}
		return out
	case []any:
		for i, e := range v {
			v[i] = stable(e)
		}
		return v
	case string:
		return agent.Clean(v)
	case json.Number:
		n := v.String()
		if !plainNumber.MatchString(n) || strings.HasPrefix(n, "-0") && strings.Trim(n, "-0.") == "" {
			return n
		}
		return v
	}
	return v
}
