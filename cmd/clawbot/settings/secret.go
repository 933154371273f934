package settings

import (
	"fmt"
	"io"
	"log/slog"
)

// Secret is a text that no print, log or encoding shows. The zero Secret is
// "not set".
type Secret struct {
	// A pointer, because fmt looks into unexported fields of a printed struct
	// without asking for their methods; it stops at pointers.
	text *string
}

const (
	hiddenSecret = "[secret]"
	noSecret     = "[not set]"
)

// NewSecret returns a Secret that holds text.
func NewSecret(text string) Secret { return Secret{&text} }

// Reveal returns the text, "" if not set. Call it where the text is handed over
// to what needs it and nowhere else.
func (s Secret) Reveal() string {
	if s.text == nil {
		return ""
	}
	return *s.text
}

// Set reports whether there is a text.
func (s Secret) Set() bool { return s.text != nil }

// Equal reports whether both hold the same text, or none.
func (s Secret) Equal(other Secret) bool {
	return s.Set() == other.Set() && s.Reveal() == other.Reveal()
}

// String returns a placeholder.
func (s Secret) String() string {
	if s.Set() {
		return hiddenSecret
	}
	return noSecret
}

// GoString returns the placeholder.
func (s Secret) GoString() string { return s.String() }

// Format writes the placeholder, whatever the verb.
func (s Secret) Format(f fmt.State, _ rune) { io.WriteString(f, s.String()) }

// MarshalText returns the placeholder; JSON, YAML and XML use it.
func (s Secret) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// LogValue returns the placeholder.
func (s Secret) LogValue() slog.Value { return slog.StringValue(s.String()) }

// UnmarshalText takes the text over.
func (s *Secret) UnmarshalText(text []byte) error {
	*s = NewSecret(string(text))
	return nil
}
