package agent

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
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
	return canonical(raw, MaxArgsDepth)
}

// Recanonical brings an object back to the form of Canonical that had it once and
// was rewritten since: by masking, which can make it longer, or by a jsonb column, which
// puts blanks in. So the limits do not hold for it.
func Recanonical(raw string) (string, error) { return canonical(raw, 100*MaxArgsDepth) }

func canonical(raw string, maxDepth int) (string, error) {
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
	if err := canonicalValue(dec, tok, &out, maxDepth); err != nil {
		if err == io.EOF {
			err = io.ErrUnexpectedEOF
		}
		return "", fmt.Errorf("arguments are no JSON object: %w", err)
	}
	if _, err := dec.Token(); err != io.EOF {
		return "", errors.New("arguments go on after the JSON object")
	}
	return out.String(), nil
}

// CanonicalOf returns the canonical form of a value that encodes to a JSON
// object, without the limits on size and depth, which are for what comes from outside.
func CanonicalOf(v any) (string, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return "", err
	}
	return Recanonical(strings.TrimSuffix(b.String(), "\n"))
}

// canonicalValue writes the value that tok begins; at most levels may be nested
// in each other from here.
func canonicalValue(dec *json.Decoder, tok json.Token, out *bytes.Buffer, levels int) error {
	if levels < 1 {
		return errTooDeep
	}
	switch v := tok.(type) {
	case json.Delim:
		if v == '{' {
			return canonicalObject(dec, out, levels)
		}
		return canonicalArray(dec, out, levels)
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

var errTooDeep = fmt.Errorf("nested deeper than %d", MaxArgsDepth)

func canonicalObject(dec *json.Decoder, out *bytes.Buffer, levels int) error {
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
		if err := canonicalValue(dec, tok, &value, levels-1); err != nil {
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

func canonicalArray(dec *json.Decoder, out *bytes.Buffer, levels int) error {
	out.WriteByte('[')
	for first := true; dec.More(); first = false {
		if !first {
			out.WriteByte(',')
		}
		tok, err := dec.Token()
		if err != nil {
			return err
		}
		if err := canonicalValue(dec, tok, out, levels-1); err != nil {
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

// HashParts hashes texts together. Each goes in with its length, so that no text
// can move from one part into another.
func HashParts(parts ...string) [sha256.Size]byte {
	h := sha256.New()
	for _, part := range parts {
		var n [8]byte
		binary.BigEndian.PutUint64(n[:], uint64(len(part)))
		h.Write(n[:])
		h.Write([]byte(part))
	}
	return [sha256.Size]byte(h.Sum(nil))
}
