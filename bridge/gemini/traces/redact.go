package traces

import (
	"bytes"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
)

// Redactor removes keys, tokens, handles, project names and sound from messages. The same secret always gets the same
// replacement, so that a reader can tell equal handles from different ones. The zero value is ready to use. It is not
// safe for concurrent use.
type Redactor struct {
	// Numbers makes the Redactor also remove numbers of six or more digits, which may be project numbers.
	Numbers bool

	names map[string]string // replacement of each secret
}

// secretFields lists the fields whose strings are redacted.
var secretFields = []string{"newHandle", "handle", "sessionId", "voiceConsentSignature", "thoughtSignature"}

// keys matches Google's keys and tokens. projects matches the prefix of full model names on Vertex AI.
var (
	keys     = regexp.MustCompile(`AIza[\w-]{10,}|ya29\.[\w.-]+|auth_tokens/[\w-]+`)
	projects = regexp.MustCompile(`projects/[^/"]+/(locations/[^/"]+/)?`)
	numbers  = regexp.MustCompile(`\d{6,}`)
)

// RedactText returns a text without secrets.
func (r *Redactor) RedactText(text string) string {
	text = projects.ReplaceAllString(keys.ReplaceAllString(text, "<key>"), "projects/P/locations/L/")
	if r.Numbers {
		text = numbers.ReplaceAllString(text, "<number>")
	}
	return text
}

// RedactMessage returns a message without secrets. Sound is replaced by a placeholder with its length in base64
// characters.
func (r *Redactor) RedactMessage(frame []byte) json.RawMessage {
	var tree any
	dec := json.NewDecoder(bytes.NewReader(frame))
	dec.UseNumber()
	if dec.Decode(&tree) != nil {
		tree = fmt.Sprintf("<%d bytes that are not JSON>", len(frame))
	}
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	_ = enc.Encode(r.redactValue("", tree)) // cannot fail: decoded values can be encoded
	return bytes.TrimSpace(b.Bytes())
}

// redactValue returns the value of a field without secrets.
func (r *Redactor) redactValue(name string, value any) any {
	switch v := value.(type) {
	case map[string]any:
		for inner, field := range v {
			v[inner] = r.redactValue(inner, field)
		}
	case []any:
		for i, element := range v {
			v[i] = r.redactValue(name, element)
		}
	case string:
		switch {
		case name == "data" && len(v) > len("AAA="): // one sample, with which Google begins turns, is not replaced
			return fmt.Sprintf("<%d chars>", len(v))
		case slices.Contains(secretFields, name) && v != "":
			return r.replacementFor(name, v)
		}
		return r.RedactText(v)
	}
	return value
}

// replacementFor returns the replacement for a secret in a field.
func (r *Redactor) replacementFor(field, secret string) string {
	if r.names == nil {
		r.names = map[string]string{}
	}
	if r.names[secret] == "" {
		r.names[secret] = fmt.Sprintf("<%s %d>", field, len(r.names)+1)
	}
	return r.names[secret]
}
