package wire

import (
	"bytes"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"mime"
	"slices"
	"strconv"
	"strings"
	"time"

	"voxgate/tools"
)

// Decoder decodes the server's messages. It owns the audio of the last decoded message.
type Decoder struct {
	pcm        []int16
	halfSample byte // first byte of a sample that the next chunk completes; valid if hasHalf is set
	hasHalf    bool

	// These fields hold the last audio-only message. Such messages come many times a second, and decoding them must not allocate.
	audioMessage ServerMessage // its Content is audioContent
	audioContent ServerContent // only Audio and AudioRate are set

	// These fields cache the last MIME type and its sample rate, because usually all messages have the same type.
	mimeType string
	mimeRate int
}

// NewDecoder returns the decoder of a connection.
func NewDecoder() *Decoder {
	d := &Decoder{}
	d.audioMessage.Content = &d.audioContent
	return d
}

// Decode decodes one message. The error is a *FrameError or a *ServerError. Decode does not retain data. The next call
// overwrites the Audio of the message. If the message has only audio, the next call overwrites the whole message. The
// caller may keep all other data.
func (d *Decoder) Decode(data []byte) (*ServerMessage, error) {
	d.pcm = d.pcm[:0]
	var (
		m       ServerMessage // m and c are on the stack: decoding audio must not allocate
		c       ServerContent
		content []byte
		beside  object
	)
	err := EachField(data, func(name, value []byte) error {
		if name = camelName(name); string(name) == "serverContent" {
			content = value // decoded after the other fields, because usageMetadata is copied into it
			return nil
		}
		return m.decodeField(string(name), value, &beside)
	})
	switch {
	case err != nil:
	case content != nil:
		err = d.decodeContent(&m, &c, content)
	case m.Usage != nil:
		err = beside.addField([]byte("usageMetadata"), m.Usage)
	}
	m.Beside = beside.finish()
	switch err.(type) {
	case nil:
	case *ServerError, *FrameError:
		return nil, err
	default:
		return nil, &FrameError{Problem: err.Error()}
	}
	for i := range m.ToolCalls {
		if m.ToolCalls[i].ID == "" {
			m.ToolCalls[i].ID = "call-" + rand.Text()
		}
	}
	if content != nil && c.Fields == nil && c.Transcript == nil && m.Empty() {
		d.audioContent.Audio, d.audioContent.AudioRate = c.Audio, c.AudioRate
		return &d.audioMessage, nil
	}
	whole := m
	if content != nil {
		own := c
		whole.Content = &own
	}
	return &whole, nil
}

// decodeField decodes one field other than serverContent. Unknown fields and voiceActivity are added to
// otherFields.
func (m *ServerMessage) decodeField(name string, value []byte, otherFields *object) error {
	if string(value) == "null" { // null is the same as an absent field
		return nil
	}
	switch name {
	case "setupComplete":
		m.SetupComplete = true
		return EachField(value, func(name, value []byte) error {
			if string(name) == "sessionId" {
				m.SessionID = stringOrEmpty(value)
			}
			_, err := compact(value)
			return err
		})
	case "toolCall":
		return m.decodeToolCall(value)
	case "toolCallCancellation":
		var cancel struct{ IDs []string }
		if err := unmarshal(name, value, &cancel); err != nil {
			return err
		}
		m.Cancelled = append(m.Cancelled, cancel.IDs...)
	case "usageMetadata":
		if err := storeCompact(&m.Usage, value); err != nil {
			return err
		}
		if t, err := ParseTokens(m.Usage); err == nil && m.Usage != nil {
			m.Tokens = &t
		}
	case "goAway":
		var away struct{ TimeLeft json.RawMessage }
		if err := unmarshal(name, value, &away); err != nil {
			return err
		}
		left := parseTimeLeft(away.TimeLeft)
		m.GoAway = &left
	case "sessionResumptionUpdate":
		var update struct {
			NewHandle string
			Resumable bool
			Last      json.RawMessage `json:"lastConsumedClientMessageIndex"` // proto3 JSON encodes 64-bit integers as strings
		}
		if err := unmarshal(name, value, &update); err != nil {
			return err
		}
		covered, err := strconv.ParseInt(strings.Trim(string(update.Last), `"`), 10, 64)
		if err != nil {
			covered = 0 // 0 means unknown
		}
		m.Resumption = &Resumption{Handle: update.NewHandle, Resumable: update.Resumable, Covered: covered}
	case "voiceActivity":
		if err := storeCompact(&m.VoiceActivity, value); err != nil || m.VoiceActivity == nil {
			return err
		}
		return otherFields.addField([]byte(name), m.VoiceActivity)
	case "error":
		var said struct {
			Code            int
			Status, Message string
			Details         json.RawMessage
		}
		if err := unmarshal(name, value, &said); err != nil {
			return err
		}
		return &ServerError{
			Code: said.Code, Status: said.Status, Message: said.Message, Retry: retryDelay(string(said.Details) + " " + said.Message),
		}
	default:
		return otherFields.addField([]byte(name), value)
	}
	return nil
}

// decodeToolCall decodes {"functionCalls":[…]} and also {"name":…,"args":…,"id":…}.
func (m *ServerMessage) decodeToolCall(value []byte) error {
	var call struct {
		FunctionCalls []FunctionCall
		FunctionCall
	}
	if err := unmarshal("toolCall", value, &call); err != nil {
		return err
	}
	if call.Name != "" {
		call.FunctionCalls = append(call.FunctionCalls, call.FunctionCall)
	}
	for _, f := range call.FunctionCalls {
		if err := m.addCall(f); err != nil {
			return err
		}
	}
	return nil
}

func (m *ServerMessage) addCall(f FunctionCall) error {
	if args := bytes.TrimSpace(f.Args); len(args) == 0 || string(args) == "null" {
		f.Args = json.RawMessage("{}")
	} else if args[0] != '{' {
		return &FrameError{Problem: "the args of a function call are not an object"}
	}
	args, err := compact(f.Args)
	if err != nil {
		return err
	}
	f.Args = args
	m.ToolCalls = append(m.ToolCalls, f)
	return nil
}

// decodeContent decodes serverContent. It extracts the fields that the gateway uses, and collects the other fields for
// the client.
func (d *Decoder) decodeContent(m *ServerMessage, c *ServerContent, data []byte) error {
	var rest, transcript object
	err := EachField(data, func(name, value []byte) error {
		var err error
		name = camelName(name)
		switch string(name) {
		case "modelTurn":
			value, err = d.decodeModelTurn(m, c, value)
		case "interrupted":
			c.Interrupted, value, err = readFlag("interrupted", value)
		case "turnComplete":
			c.TurnComplete, value, err = readFlag("turnComplete", value)
		case "generationComplete":
			c.GenerationComplete, value, err = readFlag("generationComplete", value)
		case "turnCompleteReason":
			c.EndReason = stringOrEmpty(value)
		case "interactionStatus":
			c.Interaction = stringOrEmpty(value)
		case "groundingMetadata":
			err = c.setGrounding(value)
		case "inputTranscription":
			err = appendTranscription(&c.InputTranscription, value)
		case "outputTranscription":
			if err := appendTranscription(&c.OutputTranscription, value); err != nil {
				return err
			}
			return transcript.addField(name, value) // kept in order, with the mark for the end of the transcript
		}
		if err != nil || value == nil {
			return err
		}
		return rest.addField(name, value)
	})
	if err != nil {
		return err
	}
	if m.Usage != nil {
		if err := rest.addField([]byte("usageMetadata"), m.Usage); err != nil {
			return err
		}
	}
	if len(d.pcm) > 0 {
		c.Audio = d.pcm
	}
	c.Fields, c.Transcript = rest.finish(), transcript.finish()
	return nil
}

// decodeModelTurn extracts audio and function calls from a model turn. It returns the turn without them, or nil if
// nothing is left.
func (d *Decoder) decodeModelTurn(m *ServerMessage, c *ServerContent, data []byte) ([]byte, error) {
	var kept [][]byte
	err := EachField(data, func(name, value []byte) error {
		if string(name) != "parts" {
			return nil
		}
		return eachPart(value, func(part []byte) error {
			taken, err := d.decodePart(m, c, part)
			if !taken {
				kept = append(kept, part)
			}
			return err
		})
	})
	if err != nil || kept == nil {
		return nil, err
	}
	var turn object
	err = EachField(data, func(name, value []byte) error {
		if string(name) == "parts" {
			value = slices.Concat([]byte("["), bytes.Join(kept, []byte(",")), []byte("]"))
		}
		return turn.addField(name, value)
	})
	return turn.finish(), err
}

// decodePart extracts PCM or a function call from a part. For other parts it returns false, after it has recorded the
// model's text in the part.
func (d *Decoder) decodePart(m *ServerMessage, c *ServerContent, data []byte) (isExtracted bool, err error) {
	wrote, thought := "", false
	err = EachField(data, func(name, value []byte) error {
		switch string(camelName(name)) {
		case "inlineData":
			took, err := d.decodeInlineData(c, value)
			isExtracted = isExtracted || took
			return err
		case "functionCall":
			var f FunctionCall
			if err := unmarshal("functionCall", value, &f); err != nil {
				return err
			}
			isExtracted = true
			return m.addCall(f)
		case "text":
			wrote = stringOrEmpty(value)
		case "thought":
			thought = string(value) == "true"
		}
		return nil
	})
	switch {
	case isExtracted:
	case thought:
		c.HasThought, c.Thoughts = true, c.Thoughts+wrote
	default:
		c.HasText, c.Text = true, c.Text+wrote
	}
	return isExtracted, err
}

// stringOrEmpty decodes a JSON string, or returns "" for another type.
func stringOrEmpty(value []byte) (s string) {
	if json.Unmarshal(value, &s) != nil {
		return "" // an error is ignored, because the client gets the value unchanged
	}
	return s
}

// setGrounding stores the metadata of a web search, and extracts Google's search suggestions.
func (c *ServerContent) setGrounding(value []byte) error {
	var found struct {
		SearchEntryPoint struct{ RenderedContent string }
	}
	if json.Unmarshal(value, &found) == nil {
		c.Suggestions = found.SearchEntryPoint.RenderedContent
	}
	return storeCompact(&c.Grounding, value)
}

// decodeInlineData appends a PCM blob to the audio of c. isExtracted is false for blobs of other types, which are
// passed to the client.
func (d *Decoder) decodeInlineData(c *ServerContent, data []byte) (isExtracted bool, err error) {
	var mimeType, body []byte
	err = EachField(data, func(name, value []byte) error {
		var err error
		switch string(camelName(name)) {
		case "mimeType":
			mimeType, err = unquote(value)
		case "data":
			body = value
		}
		return err
	})
	if err != nil || !d.parsePCMType(mimeType) || body == nil {
		return false, err
	}
	if c.AudioRate != 0 && c.AudioRate != d.mimeRate {
		return false, &FrameError{Problem: "audio of two rates in one message"}
	}
	c.AudioRate = d.mimeRate
	encoded, err := unquote(body)
	if err != nil {
		return false, err
	}
	var raw []byte
	select {
	case raw = <-rawBuffers:
	default:
	}
	raw = raw[:0]
	if d.hasHalf {
		raw = append(raw, d.halfSample)
	}
	if raw, err = AppendDecodedBase64(raw, encoded); err != nil {
		return false, &FrameError{Problem: "audio is not base64 of 16-bit samples"}
	}
	if d.hasHalf = len(raw)%2 != 0; d.hasHalf {
		d.halfSample = raw[len(raw)-1]
	}
	n := len(d.pcm)
	d.pcm = slices.Grow(d.pcm, len(raw)/2)[:n+len(raw)/2]
	for i := range len(raw) / 2 {
		d.pcm[n+i] = int16(uint16(raw[2*i]) | uint16(raw[2*i+1])<<8)
	}
	if cap(raw) <= maxRaw {
		select {
		case rawBuffers <- raw:
		default:
		}
	}
	return true, nil
}

// AppendDecodedBase64 decodes encoded and appends the result to raw. Like Google, it accepts both alphabets of RFC
// 4648, white space and missing padding.
func AppendDecodedBase64(raw, encoded []byte) ([]byte, error) {
	before := len(raw)
	raw, err := base64.StdEncoding.AppendDecode(raw, encoded)
	if err == nil {
		return raw, nil
	}
	standard := bytes.Map(func(r rune) rune {
		switch r {
		case '-':
			return '+'
		case '_':
			return '/'
		case ' ', '\t', '\r', '\n', '=':
			return -1
		}
		return r
	}, encoded)
	return base64.RawStdEncoding.AppendDecode(raw[:before], standard)
}

// maxRaw is the size of the largest buffer that is kept, in bytes: 1.4 s of audio at 24 kHz.
const maxRaw = 64 << 10

// rawBuffers holds buffers for audio while it is decoded, so that no connection keeps a buffer. It is not a sync.Pool,
// because under the race detector a sync.Pool drops entries, and tests that count allocations would fail.
var rawBuffers = make(chan []byte, 16)

// parsePCMType reports whether a MIME type means raw 16-bit audio. If so, it sets mimeRate to the sample rate.
func (d *Decoder) parsePCMType(mimeType []byte) (isPCM bool) {
	if d.mimeRate != 0 && string(mimeType) == d.mimeType {
		return true
	}
	base, params, err := mime.ParseMediaType(string(mimeType))
	if err != nil || base != "audio/pcm" && base != "audio/l16" && base != "audio/x-l16" {
		return false
	}
	rate := OutputRate
	if said := params["rate"]; said != "" {
		if rate, err = strconv.Atoi(said); err != nil || rate < 8000 || rate > 192000 {
			return false
		}
	}
	d.mimeType, d.mimeRate = string(mimeType), rate
	return true
}

// appendTranscription appends the text of {"text":…}.
func appendTranscription(into *string, value []byte) error {
	var t struct{ Text string }
	if err := unmarshal("transcription", value, &t); err != nil {
		return err
	}
	*into += t.Text
	return nil
}

// parseTimeLeft parses the duration in a goAway: a string, seconds, or an object with seconds. An invalid duration
// becomes 0.
func parseTimeLeft(raw json.RawMessage) time.Duration {
	var object struct{ Seconds json.RawMessage }
	if json.Unmarshal(raw, &object) == nil && object.Seconds != nil {
		raw = object.Seconds
	}
	duration, _ := parseDuration(strings.Trim(string(raw), `"`))
	return max(duration, 0)
}

// unmarshal decodes a value. It also accepts snake_case names and the other forms of proto3 JSON. name is the name of
// the field in its error.
func unmarshal(name string, value []byte, into any) error {
	if !hasSnakeName(value) && json.Unmarshal(value, into) == nil {
		return nil
	}
	if err := tools.ReadLenientJSON(value, into); err != nil {
		return &FrameError{Problem: tools.ExplainJSON(err, name).Error()}
	}
	return nil
}

// camelName converts a field name from snake_case to camelCase. The server may send either, because proto3 JSON accepts
// both.
func camelName(name []byte) []byte {
	if bytes.IndexByte(name, '_') < 0 {
		return name
	}
	return []byte(tools.ToCamelCase(string(name)))
}

// hasSnakeName reports whether a value is an object with a field name in snake_case.
func hasSnakeName(value []byte) (isSnake bool) {
	if len(value) == 0 || value[0] != '{' || bytes.IndexByte(value, '_') < 0 {
		return false
	}
	_ = EachField(value, func(name, _ []byte) error { // an error is ignored: decoding the value reports it
		isSnake = isSnake || bytes.IndexByte(name, '_') >= 0
		return nil
	})
	return isSnake
}

// eachPart calls f for every element of an array. A single object counts as an array with this element.
func eachPart(value []byte, f func(part []byte) error) error {
	if len(value) > 0 && value[0] == '{' {
		return f(value)
	}
	return EachElement(value, f)
}

// readFlag decodes true or false. text is the value for clients, or nil for null.
func readFlag(name string, value []byte) (flag bool, text []byte, err error) {
	switch string(value) {
	case "true", "false":
		return string(value) == "true", value, nil
	case "null":
		return false, nil, nil
	}
	err = unmarshal(name, value, &flag)
	return flag, strconv.AppendBool(nil, flag), err
}

// storeCompact stores a copy of value without white space, unless value is null. It fails if value is not valid JSON.
func storeCompact(into *json.RawMessage, value []byte) error {
	raw, err := compact(value)
	if err != nil {
		return err
	}
	if string(raw) != "null" {
		*into = raw
	}
	return nil
}

// compact returns a copy of value without white space. It fails if value is not valid JSON.
func compact(value []byte) (json.RawMessage, error) {
	var b bytes.Buffer
	if err := json.Compact(&b, value); err != nil {
		return nil, errSyntax
	}
	return b.Bytes(), nil
}

// object builds a compact JSON object. It allocates nothing until a field is added.
type object struct{ b *bytes.Buffer }

func (o *object) addField(name, value []byte) error {
	if o.b == nil {
		o.b = &bytes.Buffer{}
		o.b.WriteByte('{')
	} else {
		o.b.WriteByte(',')
	}
	quoted, err := json.Marshal(string(name))
	if err != nil {
		return err
	}
	o.b.Write(quoted)
	o.b.WriteByte(':')
	if err := json.Compact(o.b, value); err != nil {
		return errSyntax
	}
	return nil
}

// finish returns the finished object, or nil if no field was added.
func (o *object) finish() []byte {
	if o.b == nil {
		return nil
	}
	o.b.WriteByte('}')
	return o.b.Bytes()
}
