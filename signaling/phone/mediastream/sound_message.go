package mediastream

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"strconv"
	"strings"

	"voxgate/media"
)

// soundMessage is a JSON message with sound, in any dialect: Bandwidth's sound is in the field payload, Ozonetel's in
// data, and that of the others in media.
type soundMessage struct {
	Event     looseText    `json:"event"`
	EventType looseText    `json:"eventType"` // Bandwidth uses this field, track and payload
	Track     looseText    `json:"track"`
	Payload   encodedSound `json:"payload"`
	Media     struct {
		Track   looseText    `json:"track"`
		Chunk   looseCount   `json:"chunk"`
		Payload encodedSound `json:"payload"`
	} `json:"media"`
	Data json.RawMessage `json:"data"` // Ozonetel uses this field
}

// samplesMessage is the field "data" of Ozonetel's messages.
type samplesMessage struct {
	Samples []int16 `json:"samples"`
	Rate    int     `json:"sampleRate"`
}

// looseText decodes any JSON value without an error. It is empty if the value is not a string. So a field of the wrong
// type does not prevent decoding the sound.
type looseText string

// UnmarshalJSON implements [json.Unmarshaler].
func (l *looseText) UnmarshalJSON(b []byte) error {
	*l = ""
	if inner, ok := unquoteSimple(b); ok {
		*l = looseText(inner)
		return nil
	}
	var text string
	if json.Unmarshal(b, &text) == nil {
		*l = looseText(text)
	}
	return nil
}

// looseCount is a number, or a string that holds a number. Other values become 0.
type looseCount int

// UnmarshalJSON implements [json.Unmarshaler].
func (l *looseCount) UnmarshalJSON(b []byte) error {
	n, err := strconv.Atoi(strings.TrimSpace(strings.Trim(string(b), `"`)))
	if *l = looseCount(n); err != nil {
		*l = 0
	}
	return nil
}

// encodedSound decodes base64 in any alphabet, with or without padding and line breaks.
type encodedSound struct {
	data      []byte
	isInvalid bool // the value is not valid base64
}

// UnmarshalJSON implements [json.Unmarshaler].
func (s *encodedSound) UnmarshalJSON(b []byte) (err error) {
	if inner, ok := unquoteSimple(b); ok {
		s.data = make([]byte, base64.StdEncoding.DecodedLen(len(inner)))
		n, err := base64.StdEncoding.Decode(s.data, inner)
		if s.data, s.isInvalid = s.data[:n], false; err == nil {
			return nil
		}
	}
	var text string
	if err = json.Unmarshal(b, &text); err == nil {
		s.data, err = media.DecodeBase64(text)
	}
	s.isInvalid = err != nil
	return nil
}

// unquoteSimple returns the content of a JSON string. ok is false if the string contains escapes, or b is not a string.
func unquoteSimple(b []byte) (inner []byte, ok bool) {
	if len(b) < 2 || b[0] != '"' || bytes.IndexByte(b, '\\') >= 0 {
		return nil, false
	}
	return b[1 : len(b)-1], true
}
