package settings

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"
)

const canary = "xoxb-canary-5f2c"

// However a secret is printed, alone or inside of something, it does not show.
func TestSecretNeverShows(t *testing.T) {
	s := NewSecret(canary)
	type open struct{ Token Secret }
	type closed struct{ token Secret } // fmt does not ask unexported fields for methods
	values := map[string]any{
		"value": s, "pointer": &s, "in a struct": open{s}, "in a pointer": &open{s}, "unexported": closed{s},
		"in a list": []Secret{s}, "in a map": map[string]Secret{"a": s}, "deep": []any{map[string]any{"a": closed{s}}},
		"settings": Settings{Env: Env{SlackBotToken: s}},
	}
	for name, v := range values {
		var out bytes.Buffer
		for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%X", "%d", "%t", "%c", "%p", "%T", "%100s"} {
			fmt.Fprintf(&out, verb+"\n", v)
		}
		fmt.Fprintln(&out, v)
		fmt.Fprintln(&out, fmt.Errorf("%v", v))
		slog.New(slog.NewTextHandler(&out, nil)).Info("x", "v", v)
		slog.New(slog.NewJSONHandler(&out, nil)).Info("x", "v", v)
		if b, err := json.Marshal(v); err == nil {
			out.Write(b)
		}
		if b, err := yaml.Marshal(v); err == nil {
			out.Write(b)
		}
		for _, form := range []string{canary, fmt.Sprintf("%x", canary), fmt.Sprintf("%X", canary), fmt.Sprintf("%d", []byte(canary))} {
			if strings.Contains(out.String(), form) {
				t.Errorf("%s: the secret shows:\n%s", name, out.String())
			}
		}
	}
	if b, _ := json.Marshal(open{s}); string(b) != `{"Token":"[secret]"}` {
		t.Errorf("as JSON: %s", b)
	}
	if got := fmt.Sprint(s, Secret{}); got != "[secret] [not set]" {
		t.Errorf("printed: %s", got)
	}
	if s.Reveal() != canary || (Secret{}).Reveal() != "" || !s.Set() || (Secret{}).Set() {
		t.Error("the secret is lost")
	}
	if !s.Equal(NewSecret(canary)) || s.Equal(NewSecret("x")) || s.Equal(Secret{}) || NewSecret("").Equal(Secret{}) {
		t.Error("Equal is wrong")
	}
}
