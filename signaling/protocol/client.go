package protocol

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"voxgate/bridge"
	"voxgate/tools"
)

const (
	// maxControl bounds a message without an image.
	maxControl = 1 << 20
	// maxImage bounds a picture; in base64 it is a third longer.
	maxImage = 8 << 20
	// maxLarge bounds a message with a picture.
	maxLarge = maxImage/3*4 + maxControl/4
	// maxCandidate bounds one candidate line, which has about 120 bytes.
	maxCandidate = 1 << 10
	// maxID bounds the id of a message, in bytes: room for a UUID and a word before it. The bridge keeps some hundreds.
	maxID = 128
)

// ClientMessage is a message of a client. Its methods read the payload, each that of one type; what is wrong with it is a
// [bridge.Error] that names the field.
type ClientMessage struct {
	Type    string          `json:"type"`
	ID      *string         `json:"id"` // nil: the client does not care whether it is acted on twice
	Payload json.RawMessage `json:"payload"`
}

// Parse reads a client's message but for its payload, and refuses one that is too long.
func Parse(raw []byte) (ClientMessage, error) {
	var m ClientMessage
	if err := json.Unmarshal(raw, &m); err != nil {
		return m, badJSON("", err)
	}
	if m.Type == "" {
		return m, BadField("type", "is missing")
	}
	if m.ID != nil && (*m.ID == "" || len(*m.ID) > maxID) {
		return m, BadField("id", fmt.Sprintf("has %d bytes; 1 to %d are served", len(*m.ID), maxID))
	}
	limit := maxControl
	switch m.Type {
	case TypeMessage, TypeRealtimeInput, TypeToolResponse:
		limit = maxLarge
	}
	if len(raw) > limit {
		return m, BadField("payload", fmt.Sprintf("is too long: %d bytes, %s may have %d", len(raw), m.Type, limit))
	}
	return m, nil
}

// decode reads a payload into v.
func (m ClientMessage) decode(v any) error {
	if len(m.Payload) == 0 || bytes.Equal(m.Payload, []byte("null")) {
		return BadField("payload", "is missing")
	}
	if err := json.Unmarshal(m.Payload, v); err != nil {
		return badJSON("payload", err)
	}
	return nil
}

// BadField is the error for a field of a client's message.
func BadField(field, problem string) *bridge.Error {
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
		return BadField(field, fmt.Sprintf("is %s, not %s", article(wrongType.Value), article(jsonName(wrongType))))
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

// Open reads CONNECT_GEMINI: what the conversation shall be. Where it comes from is not in it.
func (m ClientMessage) Open() (bridge.Open, error) {
	var p struct {
		InitialConfig json.RawMessage `json:"initialConfig"`
		Resumable     bool            `json:"resumable"`
		ResumeToken   string          `json:"resumeToken"`
		LastEvent     uint64          `json:"lastEvent"`
	}
	if len(m.Payload) > 0 {
		if err := m.decode(&p); err != nil {
			return bridge.Open{}, err
		}
	}
	if len(p.InitialConfig) == 0 {
		p.InitialConfig = []byte("{}") // everything has a default
	}
	return bridge.Open{Config: p.InitialConfig, Resumable: p.Resumable, ResumeToken: p.ResumeToken, LastEvent: p.LastEvent}, nil
}

// Turn reads SEND_MESSAGE: a typed turn.
func (m ClientMessage) Turn() (bridge.Command, error) {
	var p struct {
		Parts        []json.RawMessage `json:"parts"`
		TurnComplete *bool             `json:"turnComplete"`
	}
	if err := m.decode(&p); err != nil {
		return nil, err
	}
	if len(p.Parts) == 0 {
		return nil, BadField("payload.parts", "is missing or empty")
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
			return nil, BadField(field, "is empty or not an object")
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

type functionResponse struct {
	ID       string            `json:"id"`
	Name     string            `json:"name"`
	Response json.RawMessage   `json:"response"`
	Nested   *functionResponse `json:"functionResponse"`

	Scheduling   string          `json:"scheduling"`
	WillContinue bool            `json:"willContinue"`
	Parts        json.RawMessage `json:"parts"`
}

// ToolResponses reads SEND_TOOL_RESPONSE: the answers, flat.
func (m ClientMessage) ToolResponses() ([]bridge.ToolResponse, error) {
	var p struct {
		ToolResponse *struct {
			FunctionResponses []functionResponse `json:"functionResponses"`
			Parts             []functionResponse `json:"parts"` // the old nested form: Parts with a functionResponse
		} `json:"toolResponse"`
	}
	if err := m.decode(&p); err != nil {
		return nil, err
	}
	if p.ToolResponse == nil {
		return nil, BadField("payload.toolResponse", "is missing")
	}
	list, field := p.ToolResponse.FunctionResponses, "payload.toolResponse.functionResponses"
	if list == nil {
		list, field = p.ToolResponse.Parts, "payload.toolResponse.parts"
	}
	if len(list) == 0 {
		return nil, BadField("payload.toolResponse.functionResponses", "is missing or empty")
	}
	commands := make([]bridge.ToolResponse, 0, len(list))
	for i, r := range list {
		at := fmt.Sprintf("%s[%d]", field, i)
		if r.Nested != nil {
			r, at = *r.Nested, at+".functionResponse"
		}
		if r.ID == "" && r.Name == "" {
			return nil, BadField(at+".id", "is missing")
		}
		if len(r.Response) == 0 {
			return nil, BadField(at+".response", "is missing")
		}
		switch r.Scheduling {
		case "", "WHEN_IDLE", "INTERRUPT", "SILENT":
		default:
			return nil, BadField(at+".scheduling", "must be WHEN_IDLE, INTERRUPT or SILENT")
		}
		parts, err := picturesOf(r.Parts, at+".parts")
		if err != nil {
			return nil, err
		}
		commands = append(commands, bridge.ToolResponse{
			ID: r.ID, Name: r.Name, Response: r.Response, Scheduling: tools.Scheduling(r.Scheduling), WillContinue: r.WillContinue, Parts: parts,
		})
	}
	return commands, nil
}

// picturesOf checks the pictures that a tool shows the model: Parts with inlineData. Nil if there are none.
func picturesOf(raw json.RawMessage, at string) (json.RawMessage, error) {
	if len(raw) == 0 || bytes.Equal(raw, []byte("null")) {
		return nil, nil
	}
	var parts []struct {
		InlineData *blob `json:"inlineData"`
	}
	if json.Unmarshal(raw, &parts) != nil {
		return nil, BadField(at, "must be an array of {inlineData: {mimeType, data}}")
	}
	if len(parts) == 0 {
		return nil, nil
	}
	for i, p := range parts {
		field := fmt.Sprintf("%s[%d].inlineData", at, i)
		if p.InlineData == nil {
			return nil, BadField(field, "is missing")
		}
		if _, _, err := p.InlineData.picture(field); err != nil {
			return nil, err
		}
	}
	return marshal(parts), nil // and nothing else that may stand there
}

// Config reads UPDATE_CONFIG: the LiveConfig, as it is.
func (m ClientMessage) Config() (json.RawMessage, error) {
	if len(m.Payload) == 0 {
		return nil, BadField("payload", "is missing")
	}
	return m.Payload, nil
}

type descriptionPayload struct {
	SDP string `json:"sdp"`
}

// Offer reads WEBRTC_OFFER: the SDP.
func (m ClientMessage) Offer() (sdp string, err error) {
	var p descriptionPayload
	err = m.decode(&p)
	return p.SDP, err
}

type candidatePayload struct {
	Candidate     *string `json:"candidate"`
	SDPMid        *string `json:"sdpMid"`
	SDPMLineIndex *uint16 `json:"sdpMLineIndex"`
}

// Candidate reads WEBRTC_ICE_CANDIDATE: the candidate line, "" for no more. Its place is not wanted: all sections are
// bundled, and clients that give none of it must work, too.
func (m ClientMessage) Candidate() (line string, err error) {
	var p candidatePayload
	if err := m.decode(&p); err != nil || p.Candidate == nil {
		return "", err
	}
	if len(*p.Candidate) > maxCandidate {
		return "", &bridge.Error{Code: bridge.CodeBadOffer, Field: "payload.candidate", Message: "payload.candidate is too long"}
	}
	return *p.Candidate, nil
}

// Clip shortens a client's text, to 64 bytes, for an error message.
func Clip(s string) string {
	if len(s) > 64 {
		return strings.ToValidUTF8(s[:64], "") + "…"
	}
	return s
}
