package anthropic

import (
	"bytes"
	"encoding/json"
	"fmt"

	"github.com/clawbot/clawbot/model/internal/provider"
)

// detail reads the error of a response or of an event; zero if there is none.
func detail(body []byte) provider.Detail {
	var envelope struct {
		Error json.RawMessage `json:"error"`
	}
	if !bytes.Contains(body, []byte(`"error"`)) {
		return provider.Detail{}
	}
	if json.Unmarshal(body, &envelope) != nil || len(envelope.Error) == 0 || string(envelope.Error) == "null" {
		return provider.Detail{}
	}
	var e struct{ Type, Message string }
	if json.Unmarshal(envelope.Error, &e) != nil {
		return provider.Detail{Type: "error", Message: string(envelope.Error)}
	}
	d := provider.Detail{Type: e.Type, Message: e.Message}
	if d.Type == "" {
		d.Type = "error"
	}
	return d
}

func failure(err error) error { return fmt.Errorf("anthropic: %w", err) }
