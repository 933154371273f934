package agent

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode/utf8"
)

// MaxArgsDepth bounds the nesting of tool arguments and MaxArgsBytes their size.
const (
	MaxArgsDepth = 64
	MaxArgsBytes = 1 << 20
)

// Canonical returns the one form of a JSON object that is shown, hashed,
// approved and run: keys sorted by bytes, no white space, strings with the
// fewest escapes (as RFC 8785), numbers exactly as written, because rounding
// them to a float would run something else than was asked. Text that is no
// single object, repeats a key, is not valid UTF-8, or passes the limits above is refused.
func Canonical(raw string) (string, error) {
	if len(raw) > MaxArgsBytes {
		return "", fmt.Errorf("arguments have %d bytes, at most %d are allowed", len(raw), MaxArgsBytes)
	}
	return Recanonical(raw)
}

// Recanonical is Canonical for a copy of arguments, which may have become larger
// than arguments may be: masked, or as a database writes them.
func Recanonical(raw string) (string, error) {
	if !utf8.ValidString(raw) {
		return "", errors.New("arguments are not valid UTF-8")
	}
	dec := json.NewDecoder(strings.NewReader(raw))
	dec.UseNumber()
	var out bytes.Buffer
	tok, err := dec.Token()
	if err == io.EOF {
		return "", errors.New("arguments are empty, a JSON object is needed")
	}
	if err != nil {
		return "", fmt.Errorf("arguments are no JSON object: %w", err)
	}
	if tok != json.Delim('{') {
		return "", errors.New("arguments are no JSON object")
	}
	if err := canonicalValue(dec, tok, &out, 1); err != nil {
		return "", fmt.Errorf("arguments are no JSON object: %w", err)
	}
	if _, err := dec.Token(); err != io.EOF {
		return "", errors.New("arguments go on after the JSON object")
	}
	return out.String(), nil
}

func canonicalValue(dec *json.Decoder, tok json.Token, out *bytes.Buffer, depth int) error {
	if depth > MaxArgsDepth {
		return fmt.Errorf("nested deeper than %d", MaxArgsDepth)
	}
	switch v := tok.(type) {
	case json.Delim:
		if v == '{' {
			return canonicalObject(dec, out, depth)
		}
		return canonicalArray(dec, out, depth)
	case string:
		canonicalString(out, v)
	case json.Number:
		out.WriteString(v.String())
	case bool:
		fmt.Fprint(out, v)
	case nil:
		out.WriteString("null")
	}
	return nil
}

func canonicalObject(dec *json.Decoder, out *bytes.Buffer, depth int) error {
	members := map[string]string{}
	var keys []string
	for dec.More() {
		k, err := dec.Token()
		if err != nil {
			return err
		}
		key := k.(string) // the decoder accepts nothing else here
		if _, twice := members[key]; twice {
			return fmt.Errorf("key %q appears twice", key)
		}
		tok, err := dec.Token()
		if err != nil {
			return err
		}
		var value bytes.Buffer
		if err := canonicalValue(dec, tok, &value, depth+1); err != nil {
			return err
		}
		members[key] = value.String()
		keys = append(keys, key)
	}
	if _, err := dec.Token(); err != nil { // the closing brace
		return err
	}
	slices.Sort(keys)
	out.WriteByte('{')
	for i, key := range keys {
		if i > 0 {
			out.WriteByte(',')
		}
		canonicalString(out, key)
		out.WriteByte(':')
		out.WriteString(members[key])
	}
	out.WriteByte('}')
	return nil
}

func canonicalArray(dec *json.Decoder, out *bytes.Buffer, depth int) error {
	out.WriteByte('[')
	for first := true; dec.More(); first = false {
		if !first {
			out.WriteByte(',')
		}
		tok, err := dec.Token()
		if err != nil {
			return err
		}
		if err := canonicalValue(dec, tok, out, depth+1); err != nil {
			return err
		}
	}
	if _, err := dec.Token(); err != nil { // the closing bracket
		return err
	}
	out.WriteByte(']')
	return nil
}

func canonicalString(out *bytes.Buffer, s string) {
	const hexDigits = "0123456789abcdef"
	out.WriteByte('"')
	for _, r := range s {
		switch r {
		case '"', '\\':
			out.WriteByte('\\')
			out.WriteRune(r)
		case '\b':
			out.WriteString(`\b`)
		case '\f':
			out.WriteString(`\f`)
		case '\n':
			out.WriteString(`\n`)
		case '\r':
			out.WriteString(`\r`)
		case '\t':
			out.WriteString(`\t`)
		default:
			if r < 0x20 {
				out.WriteString(`\u00`)
				out.WriteByte(hexDigits[r>>4])
				out.WriteByte(hexDigits[r&15])
			} else {
				out.WriteRune(r)
			}
		}
	}
	out.WriteByte('"')
}

// SHA256 returns the lower-case hex hash of s.
func SHA256(s string) string {
	sum := sha256.Sum256([]byte(s))
	return hex.EncodeToString(sum[:])
}
