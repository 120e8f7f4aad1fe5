package wire

import (
	"bytes"
	"encoding/json"
	"errors"
	"slices"
	"strings"
)

// Parts are the parts of a turn that a client sends, or that the gateway writes. They go up as they came. The zero value has none.
type Parts struct {
	list  []json.RawMessage
	texts []string
	size  int
	other bool // one of them is a picture, or nothing that we know
}

var errParts = errors.New("the parts of a turn are an array")

// ParseParts reads an array of Google's Part. Its only error is that raw is no array: Google decides what a part may
// be.
func ParseParts(raw json.RawMessage) (p Parts, err error) {
	if err := json.Unmarshal(raw, &p.list); err != nil || p.list == nil {
		return Parts{}, errParts
	}
	for _, raw := range p.list {
		p.size += len(raw)
		var part struct {
			Text        string
			InlineData  *struct{ MIMEType string }
			InlineSnake json.RawMessage `json:"inline_data"` // as proto3 JSON may spell it
		}
		err := json.Unmarshal(raw, &part)
		p.other = p.other || err != nil || part.InlineData != nil || part.InlineSnake != nil
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

// TextPart is a text as the only part.
func TextPart(text string) Parts {
	raw := textPart(text)
	return Parts{list: []json.RawMessage{raw}, texts: []string{text}, size: len(raw)}
}

func textPart(text string) json.RawMessage {
	raw, err := json.Marshal(map[string]string{"text": text})
	if err != nil {
		return json.RawMessage("{}") // a string encodes
	}
	return raw
}

// With returns these parts and more. It changes neither.
func (p Parts) With(more Parts) Parts {
	return Parts{slices.Concat(p.list, more.list), slices.Concat(p.texts, more.texts), p.size + more.size, p.other || more.other}
}

// Len is how many there are.
func (p Parts) Len() int { return len(p.list) }

// Size is how many bytes of JSON they have.
func (p Parts) Size() int { return p.size }

// OnlyText reports whether each of them is text.
func (p Parts) OnlyText() bool { return !p.other }

// Text is what they say, with the type of each picture in its place.
func (p Parts) Text() string { return strings.Join(p.texts, " ") }

// JSON is the array that goes up.
func (p Parts) JSON() json.RawMessage {
	list := make([][]byte, len(p.list))
	for i, raw := range p.list {
		list[i] = raw
	}
	return slices.Concat([]byte("["), bytes.Join(list, []byte(",")), []byte("]"))
}

// TextTurn is a text of the model's as the server would have written it into serverContent.
func TextTurn(text string) json.RawMessage {
	return slices.Concat([]byte(`{"modelTurn":{"role":"model","parts":[`), textPart(text), []byte(`]}}`))
}
