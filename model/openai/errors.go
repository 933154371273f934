package openai

import (
	"bytes"
	"encoding/json"
	"fmt"

	"github.com/clawbot/clawbot/model/internal/provider"
)

// detail reads the error of a response or of a chunk; zero if there is none.
func detail(body []byte) provider.Detail {
	var envelope struct {
		Error json.RawMessage `json:"error"`
	}
	if !bytes.Contains(body, []byte(`"error"`)) {
		return provider.Detail{} // as nearly all chunks
	}
	if json.Unmarshal(body, &envelope) != nil || len(envelope.Error) == 0 || string(envelope.Error) == "null" {
		return provider.Detail{}
	}
	var e struct {
		Type, Message string
		Code          any // text, a number at some servers, or null
	}
	if json.Unmarshal(envelope.Error, &e) != nil {
		return provider.Detail{Type: "error", Message: string(envelope.Error)}
	}
	d := provider.Detail{Type: e.Type, Message: e.Message}
	if code, ok := e.Code.(string); ok && (code == "insufficient_quota" || d.Type == "") {
		d.Type = code
	}
	if d.Type == "" {
		d.Type = "error"
	}
	return d
}

func failure(err error) error { return fmt.Errorf("openai: %w", err) }
