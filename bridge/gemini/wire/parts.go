package wire

import (
	"bytes"
	"encoding/json"
	"errors"
	"slices"
	"strings"
)

// Parts holds the parts of a turn from a client or the gateway. They are forwarded to Google unchanged. The zero value
// is empty.
type Parts struct {
	list     []json.RawMessage
	texts    []string
	size     int
	hasOther bool // at least one part is a picture or of an unknown kind
}

var errParts = errors.New("the parts of a turn are an array")

// ParseParts parses an array of Google's Part objects. It fails only if raw is not an array, because Google checks the
// content of parts.
func ParseParts(raw json.RawMessage) (p Parts, err error) {
	if err := json.Unmarshal(raw, &p.list); err != nil || p.list == nil {
		return Parts{}, errParts
	}
	for _, raw := range p.list {
		p.size += len(raw)
		var part struct {
			Text        string
			InlineData  *struct{ MIMEType string }
			InlineSnake json.RawMessage `json:"inline_data"` // inlineData in snake_case, which proto3 JSON accepts
		}
		err := json.Unmarshal(raw, &part)
		p.hasOther = p.hasOther || err != nil || part.InlineData != nil || part.InlineSnake != nil
		switch {
		case err != nil:
		case part.Text != "":
			p.texts = append(p.texts, part.Text)
		case part.InlineData != nil:
			p.texts = append(p.texts, "("+part.InlineData.MIMEType+")")
		}
	}
	return p, nil
}

// TextPart returns Parts with a single part, a text.
func TextPart(text string) Parts {
	raw := textPart(text)
	return Parts{list: []json.RawMessage{raw}, texts: []string{text}, size: len(raw)}
}

func textPart(text string) json.RawMessage {
	raw, err := json.Marshal(map[string]string{"text": text})
	if err != nil {
		return json.RawMessage("{}") // unreachable, because a string can always be encoded
	}
	return raw
}

// Concat returns these parts followed by the parts of other. It changes neither list.
func (p Parts) Concat(other Parts) Parts {
	return Parts{slices.Concat(p.list, other.list), slices.Concat(p.texts, other.texts), p.size + other.size, p.hasOther || other.hasOther}
}

// Len returns the number of parts.
func (p Parts) Len() int { return len(p.list) }

// Size returns the size of the parts as JSON, in bytes.
func (p Parts) Size() int { return p.size }

// OnlyText reports whether all parts are text.
func (p Parts) OnlyText() bool { return !p.hasOther }

// Text returns the texts of the parts, separated by spaces. For a picture, it contains the media type.
func (p Parts) Text() string { return strings.Join(p.texts, " ") }

// JSON returns the array of parts in the form that is sent to Google.
func (p Parts) JSON() json.RawMessage {
	list := make([][]byte, len(p.list))
	for i, raw := range p.list {
		list[i] = raw
	}
	return slices.Concat([]byte("["), bytes.Join(list, []byte(",")), []byte("]"))
}

// ServerTextContent returns a serverContent in which the model says a text.
func ServerTextContent(text string) json.RawMessage {
	return slices.Concat([]byte(`{"modelTurn":{"role":"model","parts":[`), textPart(text), []byte(`]}}`))
}
