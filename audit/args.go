package audit

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"

	"github.com/clawbot/clawbot/agent"
)

// plainNumber reports whether jsonb gives a number back as it was written.
// Exponents and negative zero are rewritten by it, and very long numbers are refused.
func plainNumber(n string) bool {
	whole, fraction, _ := strings.Cut(strings.TrimPrefix(n, "-"), ".")
	if n[0] == '-' && strings.Trim(whole+fraction, "0") == "" {
		return false
	}
	return len(whole) <= 300 && len(fraction) <= 300 && !strings.ContainsAny(n, "eE")
}

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
		if !plainNumber(v.String()) {
			return v.String()
		}
	}
	return v
}
