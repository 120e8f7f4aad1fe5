package api

import (
	"fmt"
	"io"
	"log/slog"
	"strings"
)

// Secret is a string that fmt, slog and encoding/json write as "[redacted]". string(s) returns the value.
type Secret string

const redacted = "[redacted]"

// String implements fmt.Stringer.
func (s Secret) String() string {
	if s == "" {
		return ""
	}
	return redacted
}

// Format implements fmt.Formatter, because %#v and unsuitable verbs such as %d would bypass String.
func (s Secret) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, s.String()) }

// LogValue implements slog.LogValuer.
func (s Secret) LogValue() slog.Value { return slog.StringValue(s.String()) }

// MarshalText implements encoding.TextMarshaler, which encoding/json uses, too.
func (s Secret) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// Hide removes the secret from a server's text, which may repeat it. The text may end within the secret.
func (s Secret) Hide(text string) string {
	const telling = 8 // a prefix of the secret of this length at the end of a text is not a coincidence
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
