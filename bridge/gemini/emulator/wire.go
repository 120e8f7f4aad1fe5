package emulator

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"mime"
	"slices"
	"strconv"
	"strings"

	"github.com/gorilla/websocket"
)

// Close codes that the Live API uses.
const (
	closeGoingAway = websocket.CloseGoingAway
	closeInvalid   = websocket.CloseInvalidFramePayloadData // 1007: the client's fault
	closePolicy    = websocket.ClosePolicyViolation         // 1008: no such model, session or operation
	closeInternal  = websocket.CloseInternalServerErr       // 1011
)

// closing is an error that ends a session with a close frame.
type closing struct {
	code   int
	reason string
}

func (c *closing) Error() string { return fmt.Sprintf("%d %s", c.code, c.reason) }

// frame returns the close frame's payload. RFC 6455, 5.5: a control frame carries 125 bytes, two of them the code.
func (c *closing) frame() []byte {
	reason := c.reason
	if len(reason) > 123 {
		reason = strings.ToValidUTF8(reason[:123], "")
	}
	return websocket.FormatCloseMessage(c.code, reason)
}

// clientMessage is a checked message after the setup.
type clientMessage struct {
	ClientContent *struct {
		Turns        []content
		TurnComplete bool
	}
	RealtimeInput *realtimeInput
	ToolResponse  *struct{ FunctionResponses []functionResponse }
	ContextUpdate *contextUpdate
}

type contextUpdate struct {
	SystemInstruction *content
	Tools             *struct{ Tools []wireTool }
}

type realtimeInput struct {
	Audio, Video   *blob
	MediaChunks    []blob
	Text           string
	AudioStreamEnd bool
	ActivityStart  *struct{}
	ActivityEnd    *struct{}
}

type content struct {
	Role  string
	Parts []struct {
		Text       string
		InlineData *blob
	}
}

// text is what was typed in a turn.
func (c content) text() string {
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

// checkAudio refuses audio in a turn that is not at 16 kHz.
func (c content) checkAudio() error {
	for _, p := range c.Parts {
		if p.InlineData == nil || !strings.HasPrefix(p.InlineData.MIMEType, "audio/pcm") {
			continue
		}
		if _, rate, err := p.InlineData.pcm(); err != nil || rate != 16000 {
			return &closing{closePolicy, notEnabled}
		}
	}
	return nil
}

type blob struct {
	MIMEType string `json:"mimeType"`
	Data     []byte `json:"data"`
}

// pcm returns the samples of an audio blob and their rate; without one in the type it is 16 kHz.
func (b *blob) pcm() ([]int16, int, error) {
	base, params, err := mime.ParseMediaType(b.MIMEType)
	if err != nil || !strings.HasPrefix(base, "audio/") {
		return nil, 0, invalid("Invalid MIME type %q of audio.", b.MIMEType)
	}
	rate := 16000
	if text, given := params["rate"]; given {
		if rate, err = strconv.Atoi(text); err != nil || rate < 8000 || rate > 96000 {
			return nil, 0, invalid("Invalid sample rate %q of audio.", text)
		}
	}
	if base != "audio/pcm" && base != "audio/l16" {
		return nil, 0, invalid("Unsupported MIME type %q: Live takes audio/pcm.", b.MIMEType)
	}
	pcm := make([]int16, len(b.Data)/2)
	for i := range pcm {
		pcm[i] = int16(uint16(b.Data[2*i]) | uint16(b.Data[2*i+1])<<8)
	}
	return pcm, rate, nil
}

var audioPrefix = []byte(`{"realtimeInput":{"audio":{`)

// decode reads a message after the setup. Audio, which is nearly all of what comes, takes a short way when it is
// written as Google's SDKs write it. A message of another protocol, as session.update of OpenAI's that Mastra sends, is no
// error: its names are returned instead.
func decode(data []byte) (m *clientMessage, foreign []string, err error) {
	if bytes.HasPrefix(data, audioPrefix) {
		var m struct {
			RealtimeInput struct {
				Audio *blob `json:"audio"`
			} `json:"realtimeInput"`
		}
		dec := json.NewDecoder(bytes.NewReader(data))
		dec.DisallowUnknownFields()
		if dec.Decode(&m) == nil && !dec.More() {
			return &clientMessage{RealtimeInput: &realtimeInput{Audio: m.RealtimeInput.Audio}}, nil, nil
		}
	}
	if foreign := foreignNames(data); foreign != nil {
		return nil, foreign, nil
	}
	tree, err := check(data, "Message", "")
	if err != nil {
		return nil, nil, invalid("%v", err)
	}
	if _, ok := tree["setup"]; ok {
		return nil, nil, invalid("Setup message must be the first and only the first message.")
	}
	if len(tree) != 1 {
		return nil, nil, invalid("Request contains an invalid argument: exactly one message type must be set.")
	}
	m = new(clientMessage)
	if err := remarshal(tree, m); err != nil {
		return nil, nil, newClosing(closeInvalid, "")
	}
	return m, nil, nil
}

// foreignNames returns the names in a message that has none of ours, else nil.
func foreignNames(data []byte) []string {
	var fields map[string]json.RawMessage
	if json.Unmarshal(data, &fields) != nil || len(fields) == 0 {
		return nil
	}
	for name := range fields {
		if types["Message"][camelPath(name)] != "" {
			return nil
		}
	}
	return slices.Sorted(maps.Keys(fields))
}

// decodeSetup reads the first message and returns the fields of its setup.
func decodeSetup(data []byte) (map[string]any, error) {
	tree, err := check(data, "Message", "")
	if err != nil {
		return nil, invalid("%v", err)
	}
	fields, ok := tree["setup"].(map[string]any)
	if !ok || len(tree) != 1 {
		return nil, invalid("The first message must be a setup message, and nothing else.")
	}
	return fields, nil
}

// object is a JSON object of a server message.
type object = map[string]any

// encode writes a message as Google does: indented, with a line feed at the end.
func encode(message object) []byte {
	data, err := json.MarshalIndent(message, "", "  ")
	if err != nil {
		panic("emulator: encode " + err.Error()) // made of maps, strings and numbers
	}
	return append(data, '\n')
}

// audioPart is a part of 24 kHz audio.
func audioPart(pcm []int16) object {
	raw := make([]byte, 0, 2*len(pcm))
	for _, s := range pcm {
		raw = append(raw, byte(s), byte(uint16(s)>>8))
	}
	return object{"inlineData": object{"mimeType": "audio/pcm;rate=24000", "data": base64.StdEncoding.EncodeToString(raw)}}
}

// isClosing reports whether an error is to be told to the client in a close frame.
func isClosing(err error) (*closing, bool) { return errors.AsType[*closing](err) }
