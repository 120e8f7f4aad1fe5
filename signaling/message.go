package signaling

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"mime"
	"strconv"
	"strings"

	"voxgate/bridge"
)

// The types of the messages that clients send. PROTOCOL.md says what is in them.
const (
	typeConnect       = "CONNECT_GEMINI"
	typeMessage       = "SEND_MESSAGE"
	typeRealtimeInput = "SEND_REALTIME_INPUT"
	typeToolResponse  = "SEND_TOOL_RESPONSE"
	typeUpdateConfig  = "UPDATE_CONFIG"
	typeGetContext    = "GET_CONTEXT"
	typeClearContext  = "CLEAR_CONTEXT"
	typeDisconnect    = "DISCONNECT_GEMINI"
	typeOffer         = "WEBRTC_OFFER"
	typeCandidate     = "WEBRTC_ICE_CANDIDATE" // both ways
	typePiece         = "PIECE"                // both ways
)

// The types of the messages that clients get, besides typeCandidate and typePiece.
const (
	typeConnected        = "GEMINI_CONNECTED"
	typeDisconnected     = "GEMINI_DISCONNECTED"
	typeError            = "GEMINI_ERROR"
	typeContent          = "CONTENT_MESSAGE"
	typeToolCall         = "TOOL_CALL"
	typeToolCancellation = "TOOL_CALL_CANCELLATION"
	typeSetupComplete    = "SETUP_COMPLETE"
	typeInterrupted      = "INTERRUPTED"
	typeTurnComplete     = "TURN_COMPLETE"
	typeAudioChunk       = "AUDIO_CHUNK"
	typeAnswer           = "WEBRTC_ANSWER"
	typeLog              = "LOG_MESSAGE"
	typeSpeaking         = "ASSISTANT_SPEAKING"
	typeUserSpeaking     = "USER_SPEAKING"
	typeState            = "SESSION_STATE"
	typeContext          = "CONTEXT"
	typeGrounding        = "groundingMetadata"
)

// protocolVersion is told in GEMINI_CONNECTED; it changes when a client written for the one before would no longer work.
const protocolVersion = 1

const (
	// maxControl bounds a message without an image.
	maxControl = 1 << 20
	// maxImage bounds a picture; in base64 it is a third longer.
	maxImage = 8 << 20
	// maxLarge bounds a message with a picture.
	maxLarge = maxImage/3*4 + maxControl/4
	// maxRead is where reading stops: no client needs it, and a socket that got this far is closed.
	maxRead = 16 << 20
	// maxSDP bounds an offer: Chrome's with every codec and 20 candidates has 8 KiB.
	maxSDP = 32 << 10
	// maxCandidate bounds one candidate line, which has about 120 bytes.
	maxCandidate = 1 << 10
	// maxID bounds the id of a message, in bytes: room for a UUID and a word before it. The bridge keeps some hundreds.
	maxID = 128
)

// envelope is the form of every message.
type envelope struct {
	Type    string          `json:"type"`
	ID      *string         `json:"id"` // nil: the client does not care whether it is acted on twice
	Payload json.RawMessage `json:"payload"`
}

// parseEnvelope reads a client's message.
func parseEnvelope(raw []byte) (envelope, error) {
	var e envelope
	if err := json.Unmarshal(raw, &e); err != nil {
		return e, badJSON("", err)
	}
	if e.Type == "" {
		return e, badField("type", "is missing")
	}
	if e.ID != nil && (*e.ID == "" || len(*e.ID) > maxID) {
		return e, badField("id", fmt.Sprintf("has %d bytes; 1 to %d are served", len(*e.ID), maxID))
	}
	limit := maxControl
	switch e.Type {
	case typeMessage, typeRealtimeInput, typeToolResponse:
		limit = maxLarge
	}
	if len(raw) > limit {
		return e, badField("payload", fmt.Sprintf("is too long: %d bytes, %s may have %d", len(raw), e.Type, limit))
	}
	return e, nil
}

// decode reads a payload into v.
func (e envelope) decode(v any) error {
	if len(e.Payload) == 0 || bytes.Equal(e.Payload, []byte("null")) {
		return badField("payload", "is missing")
	}
	if err := json.Unmarshal(e.Payload, v); err != nil {
		return badJSON("payload", err)
	}
	return nil
}

// badField is the error for a field of a client's message.
func badField(field, problem string) *bridge.Error {
	return &bridge.Error{Code: bridge.CodeBadMessage, Field: field, Message: field + " " + problem}
}

// badJSON names the place where JSON went wrong.
func badJSON(path string, err error) *bridge.Error {
	var wrongType *json.UnmarshalTypeError
	var syntax *json.SyntaxError
	switch {
	case errors.As(err, &wrongType):
		field := strings.Trim(path+"."+wrongType.Field, ".")
		if field == "" {
			return &bridge.Error{Code: bridge.CodeBadMessage, Message: "The message is " + article(wrongType.Value) + ", not an object."}
		}
		return badField(field, fmt.Sprintf("is %s, not %s", article(wrongType.Value), article(jsonName(wrongType))))
	case errors.As(err, &syntax):
		return &bridge.Error{Code: bridge.CodeBadMessage, Message: fmt.Sprintf("The message is not JSON: %v at byte %d.", err, syntax.Offset)}
	}
	return &bridge.Error{Code: bridge.CodeBadMessage, Message: fmt.Sprintf("The message is not JSON: %v.", err)}
}

func article(noun string) string {
	if strings.ContainsAny(noun[:1], "aeiou") {
		return "an " + noun
	}
	return "a " + noun
}

// jsonName is what JSON calls the Go type that was expected.
func jsonName(e *json.UnmarshalTypeError) string {
	switch k := e.Type.Kind().String(); {
	case k == "struct" || k == "map":
		return "object"
	case k == "slice" || k == "array":
		return "array"
	case k == "bool":
		return "boolean"
	case strings.HasPrefix(k, "int") || strings.HasPrefix(k, "uint") || strings.HasPrefix(k, "float"):
		return "number"
	default:
		return k
	}
}

type connectPayload struct {
	InitialConfig json.RawMessage `json:"initialConfig"`
	Resumable     bool            `json:"resumable"`
	ResumeToken   string          `json:"resumeToken"`
}

type messagePayload struct {
	Parts        []json.RawMessage `json:"parts"`
	TurnComplete *bool             `json:"turnComplete"`
}

// command checks a typed turn.
func (p messagePayload) command() (bridge.Command, error) {
	if len(p.Parts) == 0 {
		return nil, badField("payload.parts", "is missing or empty")
	}
	for i, raw := range p.Parts {
		field := fmt.Sprintf("payload.parts[%d]", i)
		var part struct {
			Text       *string `json:"text"`
			InlineData *blob   `json:"inlineData"`
		}
		if err := json.Unmarshal(raw, &part); err != nil {
			return nil, badJSON(field, err)
		}
		if raw = bytes.TrimSpace(raw); raw[0] != '{' || bytes.Equal(raw, []byte("{}")) {
			return nil, badField(field, "is empty or not an object")
		}
		if part.InlineData != nil {
			if _, _, err := part.InlineData.decode(field + ".inlineData"); err != nil {
				return nil, err
			}
		}
	}
	parts, err := json.Marshal(p.Parts)
	if err != nil {
		return nil, badJSON("payload.parts", err)
	}
	return bridge.Message{Parts: parts, TurnComplete: p.TurnComplete == nil || *p.TurnComplete}, nil
}

// blob is media in a client's message.
type blob struct {
	MIMEType string `json:"mimeType"`
	Data     string `json:"data"`
}

// decode returns the media type, in lower case and without parameters, and the data.
func (b blob) decode(field string) (mediaType string, data []byte, err error) {
	mediaType, _, err = mime.ParseMediaType(b.MIMEType)
	if err != nil {
		return "", nil, badField(field+".mimeType", fmt.Sprintf("%q is not a media type", clip(b.MIMEType)))
	}
	if b.Data == "" {
		return "", nil, badField(field+".data", "is missing or empty")
	}
	data, err = base64.StdEncoding.DecodeString(b.Data)
	if err != nil {
		return "", nil, badField(field+".data", "is not base64: "+err.Error())
	}
	if len(data) > maxImage {
		return "", nil, badField(field+".data", fmt.Sprintf("has %d bytes, more than %d", len(data), maxImage))
	}
	return mediaType, data, nil
}

// defaultRate is the rate of audio/pcm that does not name one: the Live API's own.
const defaultRate = 16000

// pcm returns the audio of a blob and its rate in Hz.
func (b blob) pcm(field string) (pcm []int16, rate int, err error) {
	mediaType, data, err := b.decode(field)
	if err != nil {
		return nil, 0, err
	}
	if mediaType != "audio/pcm" {
		return nil, 0, badField(field+".mimeType", fmt.Sprintf("%q is not audio/pcm", clip(mediaType)))
	}
	if len(data)%2 != 0 {
		return nil, 0, badField(field+".data", "has an odd number of bytes; PCM is 16 bits a sample")
	}
	rate = defaultRate
	_, params, _ := mime.ParseMediaType(b.MIMEType) // decode has read it
	if r, ok := params["rate"]; ok {
		if rate, err = strconv.Atoi(r); err != nil || rate < 8000 || rate > 48000 {
			return nil, 0, badField(field+".mimeType", fmt.Sprintf("has a rate of %q; 8000 to 48000 is served", clip(r)))
		}
	}
	pcm = make([]int16, len(data)/2)
	for i := range pcm {
		pcm[i] = int16(uint16(data[2*i]) | uint16(data[2*i+1])<<8)
	}
	return pcm, rate, nil
}

type realtimePayload struct {
	Text           *string         `json:"text"`
	Audio          *blob           `json:"audio"`
	Video          *blob           `json:"video"`
	ActivityStart  bool            `json:"activityStart"`
	ActivityEnd    bool            `json:"activityEnd"`
	AudioStreamEnd bool            `json:"audioStreamEnd"`
	Chunks         json.RawMessage `json:"chunks"`
	MediaChunks    json.RawMessage `json:"mediaChunks"`
}

// modernise reads the deprecated chunks: the first one counts, as it always did. It reports whether there were any.
func (p *realtimePayload) modernise() (bool, error) {
	raw, field := p.Chunks, "payload.chunks"
	if raw == nil {
		raw, field = p.MediaChunks, "payload.mediaChunks"
	}
	raw = bytes.TrimSpace(raw)
	if len(raw) == 0 || bytes.Equal(raw, []byte("null")) {
		return false, nil
	}
	if raw[0] == '[' {
		var chunks []json.RawMessage
		if err := json.Unmarshal(raw, &chunks); err != nil {
			return true, badJSON(field, err)
		}
		if len(chunks) == 0 {
			return true, badField(field, "is empty")
		}
		raw, field = chunks[0], field+"[0]"
	}
	var b blob
	if err := json.Unmarshal(raw, &b); err != nil {
		return true, badJSON(field, err)
	}
	switch {
	case strings.HasPrefix(b.MIMEType, "image/"):
		p.Video = &b
	case strings.HasPrefix(b.MIMEType, "audio/"):
		p.Audio = &b
	default:
		return true, badField(field+".mimeType", fmt.Sprintf("%q is neither audio/pcm nor an image", clip(b.MIMEType)))
	}
	return true, nil
}

type toolResponsePayload struct {
	ToolResponse *struct {
		FunctionResponses []functionResponse `json:"functionResponses"`
		Parts             []functionResponse `json:"parts"` // the old nested form: Parts with a functionResponse
	} `json:"toolResponse"`
}

type functionResponse struct {
	ID       string            `json:"id"`
	Name     string            `json:"name"`
	Response json.RawMessage   `json:"response"`
	Nested   *functionResponse `json:"functionResponse"`
}

// commands returns the answers, flat.
func (p toolResponsePayload) commands() ([]bridge.ToolResponse, error) {
	if p.ToolResponse == nil {
		return nil, badField("payload.toolResponse", "is missing")
	}
	list, field := p.ToolResponse.FunctionResponses, "payload.toolResponse.functionResponses"
	if list == nil {
		list, field = p.ToolResponse.Parts, "payload.toolResponse.parts"
	}
	if len(list) == 0 {
		return nil, badField("payload.toolResponse.functionResponses", "is missing or empty")
	}
	commands := make([]bridge.ToolResponse, 0, len(list))
	for i, r := range list {
		at := fmt.Sprintf("%s[%d]", field, i)
		if r.Nested != nil {
			r, at = *r.Nested, at+".functionResponse"
		}
		if r.ID == "" && r.Name == "" {
			return nil, badField(at+".id", "is missing")
		}
		if len(r.Response) == 0 {
			return nil, badField(at+".response", "is missing")
		}
		commands = append(commands, bridge.ToolResponse{ID: r.ID, Name: r.Name, Response: r.Response})
	}
	return commands, nil
}

type offerPayload struct {
	SDP string `json:"sdp"`
}

type candidatePayload struct {
	Candidate     *string `json:"candidate"`
	SDPMid        *string `json:"sdpMid"`
	SDPMLineIndex *uint16 `json:"sdpMLineIndex"`
}

// clip shortens a client's text for an error message.
func clip(s string) string {
	if len(s) > 64 {
		return strings.ToValidUTF8(s[:64], "") + "…"
	}
	return s
}

// encode returns a message of the gateway; seq numbers events and is 0 for others.
func encode(kind string, payload []byte, seq uint64) []byte {
	b := make([]byte, 0, len(payload)+len(kind)+48)
	b = append(b, `{"type":"`...)
	b = append(b, kind...)
	b = append(b, '"')
	if len(payload) > 0 {
		b = append(b, `,"payload":`...)
		b = append(b, payload...)
	}
	if seq > 0 {
		b = append(b, `,"seq":`...)
		b = strconv.AppendUint(b, seq, 10)
	}
	return append(b, '}')
}

// marshal encodes a payload without escaping HTML: the model's text arrives as it was sent.
func marshal(payload any) []byte {
	if payload == nil {
		return nil
	}
	var buf bytes.Buffer
	e := json.NewEncoder(&buf)
	e.SetEscapeHTML(false)
	if err := e.Encode(payload); err != nil {
		return nil // only our own types come here, and they encode
	}
	return bytes.TrimSuffix(buf.Bytes(), []byte("\n"))
}
