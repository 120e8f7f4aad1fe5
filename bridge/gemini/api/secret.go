package api

import (
	"fmt"
	"io"
	"log/slog"
	"strings"
)

// Secret is a string that does not print: fmt, slog and encoding/json show "[redacted]" in its place.
// Convert it with string(s) where the value itself is needed.
type Secret string

const redacted = "[redacted]"

// String implements fmt.Stringer.
func (s Secret) String() string {
	if s == "" {
		return ""
	}
	return redacted
}

// Format implements fmt.Formatter: %#v, and a verb that does not fit, as %d, would print the value past String.
func (s Secret) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, s.String()) }

// LogValue implements slog.LogValuer.
func (s Secret) LogValue() slog.Value { return slog.StringValue(s.String()) }

// MarshalText implements encoding.TextMarshaler, which encoding/json asks as well.
func (s Secret) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// Hide removes the secret from a text of the peer's, which may have echoed it, perhaps truncated.
func (s Secret) Hide(text string) string {
	const telling = 8 // this much of a key at the end of a text is no coincidence
	if s == "" {
		return text
	}
	text = strings.ReplaceAll(text, string(s), redacted)
	for n := len(s) - 1; n >= telling; n-- {
		if cut, found := strings.CutSuffix(text, string(s[:n])); found {
			return cut + redacted
		}
	}
	return text
}
