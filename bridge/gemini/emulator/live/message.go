// Package live checks the messages of a client of the Live API as Google's servers do, and rejects them with Google's words. It
// covers the setup and later messages with all their fields, the features of each model, and the close codes. It does not depend
// on sessions.
package live

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"maps"
	"mime"
	"slices"
	"strconv"
	"strings"
)

// Message is a client's message after the setup. Exactly one field is set.
type Message struct {
	ClientContent *struct {
		Turns        []Content
		TurnComplete bool
	}
	RealtimeInput *RealtimeInput
	ToolResponse  *struct{ FunctionResponses []FunctionResponse }
	ContextUpdate *ContextUpdate
}

// ContextUpdate changes system instruction and tools of a session. Fields that are not set stay unchanged.
type ContextUpdate struct {
	SystemInstruction *Content
	Tools             *struct{ Tools []wireTool }
}

// RealtimeInput is audio, pictures and text that the client has not divided into turns.
type RealtimeInput struct {
	Audio, Video   *Blob
	MediaChunks    []Blob
	Text           string
	AudioStreamEnd bool
	ActivityStart  *struct{}
	ActivityEnd    *struct{}
}

// FunctionResponse is a result of a call.
type FunctionResponse struct {
	ID, Name     string
	Response     json.RawMessage
	Scheduling   string
	WillContinue bool
}

// Content is a turn.
type Content struct {
	Role  string
	Parts []struct {
		Text       string
		InlineData *Blob
	}
}

// Text returns the text of a turn.
func (c Content) Text() string {
	var texts []string
	for _, p := range c.Parts {
		switch {
		case p.Text != "":
			texts = append(texts, p.Text)
		case p.InlineData != nil:
			texts = append(texts, "("+p.InlineData.MIMEType+")")
		}
	}
	return strings.Join(texts, " ")
}

// checkAudio rejects a turn with audio of another sample rate than 16 kHz. Google reportedly closes the connection with
// 1008 for 24 kHz.
func (c Content) checkAudio() error {
	for _, p := range c.Parts {
		if p.InlineData == nil || !strings.HasPrefix(p.InlineData.MIMEType, "audio/pcm") {
			continue
		}
		if _, rate, err := p.InlineData.PCM(); err != nil || rate != 16000 {
			return &Closing{ClosePolicy, NotEnabled}
		}
	}
	return nil
}

// Blob is media data.
type Blob struct {
	MIMEType string `json:"mimeType"`
	Data     []byte `json:"data"`
}

// IsImage reports whether the blob is a picture.
func (b *Blob) IsImage() bool { return len(b.MIMEType) > 6 && b.MIMEType[:6] == "image/" }

// PCM returns the samples of an audio blob and their rate, which is 16 kHz by default. Google accepts raw PCM at any
// rate (ai.google.dev/gemini-api/docs/live-guide). Here the rate is limited by the emulator's resampler.
func (b *Blob) PCM() (pcm []int16, rate int, err error) {
	base, params, err := mime.ParseMediaType(b.MIMEType)
	if err != nil || !strings.HasPrefix(base, "audio/") {
		return nil, 0, newInvalidClosing("Invalid MIME type %q of audio.", b.MIMEType)
	}
	rate = 16000
	if text, given := params["rate"]; given {
		if rate, err = strconv.Atoi(text); err != nil || rate < 8000 || rate > 96000 {
			return nil, 0, newInvalidClosing("Invalid sample rate %q of audio.", text)
		}
	}
	if base != "audio/pcm" && base != "audio/l16" {
		return nil, 0, newInvalidClosing("Unsupported MIME type %q: Live takes audio/pcm.", b.MIMEType)
	}
	pcm = make([]int16, len(b.Data)/2)
	for i := range pcm {
		pcm[i] = int16(uint16(b.Data[2*i]) | uint16(b.Data[2*i+1])<<8)
	}
	return pcm, rate, nil
}

var audioPrefix = []byte(`{"realtimeInput":{"audio":{`)

// Parse parses a message after the setup. If the message is of another protocol, such as OpenAI's session.update, it
// returns the names of the message's fields in foreignFields, and no error.
func Parse(data []byte) (m *Message, foreignFields []string, err error) {
	// A fast path for audio in the form that Google's SDKs send.
	if bytes.HasPrefix(data, audioPrefix) {
		var m struct {
			RealtimeInput struct {
				Audio *Blob `json:"audio"`
			} `json:"realtimeInput"`
		}
		dec := json.NewDecoder(bytes.NewReader(data))
		dec.DisallowUnknownFields()
		if dec.Decode(&m) == nil && !dec.More() {
			return &Message{RealtimeInput: &RealtimeInput{Audio: m.RealtimeInput.Audio}}, nil, nil
		}
	}
	if foreign := foreignFieldNames(data); foreign != nil {
		return nil, foreign, nil
	}
	tree, err := decodeAndCheck(data, "Message", "")
	if err != nil {
		return nil, nil, err
	}
	if _, ok := tree["setup"]; ok {
		return nil, nil, newInvalidClosing("Setup message must be the first and only the first message.")
	}
	if len(tree) != 1 {
		return nil, nil, newInvalidClosing("Request contains an invalid argument: exactly one message type must be set.")
	}
	m = new(Message)
	if err := remarshal(tree, m); err != nil {
		return nil, nil, NewClosing(CloseInvalid, "")
	}
	return m, nil, nil
}

// foreignFieldNames returns the names of a message's fields if none of them is a field of the Live API, else nil.
func foreignFieldNames(data []byte) []string {
	var fields map[string]json.RawMessage
	if json.Unmarshal(data, &fields) != nil || len(fields) == 0 {
		return nil
	}
	for name := range fields {
		if types["Message"][toCamelCase(name)] != "" {
			return nil
		}
	}
	return slices.Sorted(maps.Keys(fields))
}

// ParseSetupMessage parses the first message of a client, and returns the fields of its setup.
func ParseSetupMessage(data []byte) (map[string]any, error) {
	tree, err := decodeAndCheck(data, "Message", "")
	if err != nil {
		return nil, err
	}
	fields, ok := tree["setup"].(map[string]any)
	if !ok || len(tree) != 1 {
		return nil, newInvalidClosing("The first message must be a setup message, and nothing else.")
	}
	return fields, nil
}

// Object is a JSON object of a server message.
type Object = map[string]any

// Encode encodes a message as Google does: indented, with a line feed at the end.
func Encode(message any) []byte {
	data, err := json.Marshal(message)
	if err != nil {
		panic("live: encode " + err.Error()) // unreachable, because messages consist of maps, strings and numbers
	}
	if nestingDepth(data) <= maxIndented {
		var indented bytes.Buffer
		_ = json.Indent(&indented, data, "", "  ") // cannot fail: data is valid JSON
		data = indented.Bytes()
	}
	return append(data, '\n')
}

// maxIndented is the nesting depth up to which messages are indented. Without this limit, the indentation of 20 KB of
// brackets would take 200 MB of spaces.
const maxIndented = 100

// nestingDepth returns the nesting depth of a JSON text.
func nestingDepth(data []byte) (most int) {
	level := 0
	eachByteOutsideStrings(data, func(c byte) {
		switch c {
		case '[', '{':
			level++
			most = max(most, level)
		case ']', '}':
			level--
		}
	})
	return most
}

// CountValues returns an upper bound of the number of values in a JSON text, without allocating.
// Callers check it before [Decode], which needs 50 bytes per value.
func CountValues(data []byte) int {
	values := 1
	eachByteOutsideStrings(data, func(c byte) {
		if c == ',' || c == '[' || c == '{' {
			values++
		}
	})
	return values
}

// eachByteOutsideStrings calls f for each byte of a JSON text outside its strings.
func eachByteOutsideStrings(data []byte, f func(byte)) {
	inString := false
	for i := 0; i < len(data); i++ {
		switch c := data[i]; {
		case inString && c == '\\':
			i++
		case c == '"':
			inString = !inString
		case !inString:
			f(c)
		}
	}
}

// AudioPart returns a part with 24 kHz audio.
func AudioPart(pcm []int16) Object {
	raw := make([]byte, 0, 2*len(pcm))
	for _, s := range pcm {
		raw = append(raw, byte(s), byte(uint16(s)>>8))
	}
	return Object{"inlineData": Object{"mimeType": "audio/pcm;rate=24000", "data": base64.StdEncoding.EncodeToString(raw)}}
}

// remarshal converts a JSON tree to a Go value, by encoding and decoding it.
func remarshal(tree, into any) error {
	data, err := json.Marshal(tree)
	if err != nil {
		return err
	}
	return json.Unmarshal(data, into)
}
