package protocol

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"voxgate/bridge"
	"voxgate/bridge/gemini/wire"
	"voxgate/tools"
)

const (
	// MaxControl limits a message without an image, in bytes.
	MaxControl = 1 << 20
	// maxHead is the length of the beginning, in bytes, that must contain the type if a message is longer than
	// MaxControl.
	maxHead = 64 << 10
	// maxImage limits an image, in bytes. Base64 makes it a third longer.
	maxImage = 8 << 20
	// maxLarge limits a message with an image, in bytes.
	maxLarge = maxImage/3*4 + MaxControl/4
	// maxCandidate limits a candidate line, in bytes. Typical lines have about 120.
	maxCandidate = 1 << 10
	// maxAnswers limits the tool responses in one message: twice the calls that can be open. A client may also answer
	// calls that were just cancelled.
	maxAnswers = 64
	// maxID limits the ID of a message, in bytes: enough for a UUID with a prefix. The bridge remembers some hundreds of IDs.
	maxID = 128
)

// ClientMessage is a message of a client. Each method parses the payload of one message type. Errors are a [bridge.Error] that names the
// field.
type ClientMessage struct {
	Type    string
	ID      *string         // for detecting duplicates; nil if not used
	Payload json.RawMessage // part of the parsed text, not validated yet

	length int // of the whole message, in bytes
}

// mayBeLarge reports whether messages of this type may contain images.
func mayBeLarge(kind string) bool {
	return kind == TypeMessage || kind == TypeRealtimeInput || kind == TypeToolResponse
}

// ReadMessage reads the text of a client's message from r, for [voxgate/signaling.SocketOptions]. It blocks as long as
// r does. It rejects a message that is too long for its type. Only a type with images may exceed 1 MiB.
func ReadMessage(r io.Reader, _ bool) ([]byte, error) {
	var text bytes.Buffer
	text.Grow(2 << 10) // room for 20 ms of audio
	if _, err := text.ReadFrom(io.LimitReader(r, MaxControl+1)); err != nil {
		return nil, err
	}
	if text.Len() <= MaxControl {
		return text.Bytes(), nil
	}
	if err := checkLong(text.Bytes()); err != nil {
		return nil, err
	}
	if _, err := text.ReadFrom(io.LimitReader(r, maxLarge+1-int64(text.Len()))); err != nil {
		return nil, err
	}
	if text.Len() > maxLarge {
		return nil, tooLong(typeIn(text.Bytes()[:maxHead]), maxLarge)
	}
	return text.Bytes(), nil
}

// checkLong returns an error unless a message of this type may be longer than 1 MiB. text may be only the beginning of
// the message: the type must be in its first maxHead bytes.
func checkLong(text []byte) error {
	switch kind := typeIn(text[:min(maxHead, len(text))]); {
	case kind == "":
		return BadField("type", fmt.Sprintf("must be in the first %d bytes of a message of more than %d bytes", maxHead, MaxControl))
	case !mayBeLarge(kind):
		return tooLong(kind, MaxControl)
	}
	return nil
}

// typeIn returns the message type from the beginning of a message, or "".
func typeIn(head []byte) (kind string) {
	_ = wire.EachField(head, func(name, value []byte) error { // always fails at the end, because head is incomplete
		if string(name) == "type" && kind == "" {
			_ = json.Unmarshal(value, &kind) // kind stays empty if the value is not a string
		}
		return nil
	})
	return kind
}

// ParseMessage parses a client's message except its payload, and rejects a message that is too long. The result refers to raw.
func ParseMessage(raw []byte) (ClientMessage, error) {
	m := ClientMessage{length: len(raw)}
	if _, err := readFields(raw, "", map[string]any{"type": &m.Type, "id": &m.ID, "payload": &m.Payload}); err != nil {
		return m, err
	}
	if m.Type == "" {
		return m, BadField("type", "is missing")
	}
	if m.ID != nil && (*m.ID == "" || len(*m.ID) > maxID) {
		return m, BadField("id", fmt.Sprintf("has %d bytes; 1 to %d are allowed", len(*m.ID), maxID))
	}
	switch {
	case !mayBeLarge(m.Type):
		return m, m.checkLength(0)
	case len(raw) > maxLarge:
		return m, tooLong(m.Type, maxLarge)
	}
	return m, nil // the limit also depends on the size of its media, checked later
}

// checkLength returns an error if the message without its media is longer than MaxControl. media is the length of the
// media in the message, in bytes.
func (m ClientMessage) checkLength(media int) error {
	if m.length-media > MaxControl {
		return tooLong(m.Type, MaxControl)
	}
	return nil
}

func tooLong(kind string, limit int) error {
	without := ""
	if mayBeLarge(kind) && limit < maxLarge {
		without = " without its pictures"
	}
	return BadField("payload", fmt.Sprintf("is too long: %s may have at most %d bytes%s", ClipText(kind), limit, without))
}

// DecodePayload parses the payload into v.
func (m ClientMessage) DecodePayload(v any) error {
	if len(m.Payload) == 0 {
		return BadField("payload", "is missing")
	}
	if err := json.Unmarshal(m.Payload, v); err != nil {
		return badJSON("payload", err)
	}
	return nil
}

// readFields parses an object whose path in the message is at. The map into has a pointer for the value of each known
// field; null leaves the value unchanged. A *json.RawMessage gets a part of raw that is not validated, which is faster.
// The result others lists the paths of all unknown fields.
func readFields(raw json.RawMessage, at string, into map[string]any) (others []string, err error) {
	path := func(name []byte) string { return strings.TrimPrefix(at+"."+string(name), ".") }
	var bad error
	err = wire.EachField(raw, func(name, value []byte) error {
		target, known := into[string(name)]
		switch later, ok := target.(*json.RawMessage); {
		case !known:
			others = append(others, ClipText(path(name)))
		case string(value) == "null":
		case ok:
			*later = value
		default:
			if err := json.Unmarshal(value, target); err != nil {
				bad = badJSON(path(name), err)
			}
		}
		return bad
	})
	switch {
	case bad != nil:
		return nil, bad
	case err != nil: // encoding/json produces the error text
		var object map[string]json.RawMessage
		return nil, badJSON(at, cmp.Or(json.Unmarshal(raw, &object), err))
	}
	return others, nil
}

// readElements splits an array into its elements, which are not validated. A nil raw counts as an empty array. Errors
// name the array's path, the parameter at.
func readElements(raw json.RawMessage, at string) (elements []json.RawMessage, err error) {
	if raw == nil {
		return nil, nil
	}
	err = wire.EachElement(raw, func(value []byte) error {
		elements = append(elements, value)
		return nil
	})
	if err != nil {
		return nil, badJSON(at, cmp.Or(json.Unmarshal(raw, &elements), err))
	}
	return elements, nil
}

// BadField returns the error for a field of a client's message. Its text is the path of the field, a space, and problem.
func BadField(field, problem string) *bridge.Error {
	return &bridge.Error{Code: bridge.CodeBadMessage, Field: field, Message: field + " " + problem}
}

// badJSON converts a JSON error to a [bridge.Error] that names the field.
func badJSON(path string, err error) *bridge.Error {
	var wrongType *json.UnmarshalTypeError
	var syntax *json.SyntaxError
	switch {
	case errors.As(err, &wrongType):
		field := strings.Trim(path+"."+wrongType.Field, ".")
		if field == "" {
			return &bridge.Error{Code: bridge.CodeBadMessage, Message: "The message must be an object, but it is of type " + wrongType.Value + "."}
		}
		return BadField(field, "has the wrong type: "+wrongType.Value)
	case errors.As(err, &syntax):
		return &bridge.Error{Code: bridge.CodeBadMessage, Message: fmt.Sprintf("The message is not JSON: %v at byte %d.", err, syntax.Offset)}
	}
	return &bridge.Error{Code: bridge.CodeBadMessage, Message: fmt.Sprintf("The message is not JSON: %v.", tools.ExplainJSON(err, ""))}
}

// ParseConnect parses CONNECT_GEMINI. It returns the session request, without its origin, and the access token, or "".
func (m ClientMessage) ParseConnect() (open bridge.SessionRequest, token string, err error) {
	var p struct {
		Agent         string          `json:"agent"`
		InitialConfig json.RawMessage `json:"initialConfig"`
		Resumable     bool            `json:"resumable"`
		ResumeToken   string          `json:"resumeToken"`
		LastEvent     uint64          `json:"lastEvent"`
		Token         string          `json:"token"`
	}
	if len(m.Payload) > 0 {
		if err := m.DecodePayload(&p); err != nil {
			return bridge.SessionRequest{}, "", err
		}
	}
	if len(p.InitialConfig) == 0 {
		p.InitialConfig = []byte("{}") // all settings have defaults
	}
	return bridge.SessionRequest{
		Origin: bridge.Origin{Agent: p.Agent}, Config: p.InitialConfig,
		Resumable: p.Resumable, ResumeToken: p.ResumeToken, LastEvent: p.LastEvent,
	}, p.Token, nil
}

// maxNamedFields limits the number of fields named in a warning.
const maxNamedFields = 8

// ParseTurn parses SEND_MESSAGE, a typed turn. The warning names ignored fields, at most maxNamedFields, for the
// client's developer, or is "".
func (m ClientMessage) ParseTurn() (turn bridge.Message, warning string, err error) {
	var p struct {
		Parts        []json.RawMessage `json:"parts"`
		TurnComplete *bool             `json:"turnComplete"`
	}
	if err := m.DecodePayload(&p); err != nil {
		return turn, "", err
	}
	turn.TurnComplete = p.TurnComplete == nil || *p.TurnComplete
	switch {
	case p.Parts == nil:
		return turn, "", BadField("payload.parts", "is missing")
	case len(p.Parts) == 0 && !turn.TurnComplete:
		return turn, "", BadField("payload.parts", "is empty")
	}
	parts := make([]part, 0, len(p.Parts))
	var dropped []string
	media := 0
	for i, raw := range p.Parts {
		read, others, err := readPart(raw, fmt.Sprintf("payload.parts[%d]", i))
		if err != nil {
			return turn, "", err
		}
		for _, one := range read {
			media += one.InlineData.encodedLength()
		}
		parts, dropped = append(parts, read...), append(dropped, others...)
	}
	turn.Parts = tools.Encode(parts)
	if len(dropped) > 0 {
		names := strings.Join(dropped[:min(len(dropped), maxNamedFields)], ", ")
		warning = fmt.Sprintf("Dropped from a typed turn, which may have only text and inlineData: %s.", names)
	}
	return turn, warning, m.checkLength(media)
}

// part holds the fields of Google's Part that a user can type or show. Other fields come from the model, have their own
// message, or are not supported.
type part struct {
	Text       *string `json:"text,omitempty"`
	InlineData *blob   `json:"inlineData,omitempty"`
}

// readPart parses an element of parts, whose path is at. Text and data become two parts: Google accepts only one of them
// in a part. others lists the paths of ignored fields. Google would close the connection (1007) for unknown fields and
// wrong types.
func readPart(raw json.RawMessage, at string) (parts []part, others []string, err error) {
	var text *string
	var data json.RawMessage
	others, err = readFields(raw, at, map[string]any{"text": &text, "inlineData": &data, "inline_data": &data})
	if err != nil {
		return nil, nil, err
	}
	if text != nil {
		parts = append(parts, part{Text: text})
	}
	if data != nil {
		at += ".inlineData"
		var b blob
		more, err := readFields(data, at, map[string]any{"mimeType": &b.MIMEType, "mime_type": &b.MIMEType, "data": &b.Data})
		if err == nil {
			err = b.checkTyped(at)
		}
		if err != nil {
			return nil, nil, err
		}
		parts, others = append(parts, part{InlineData: &b}), append(others, more...)
	}
	if parts == nil {
		return nil, nil, BadField(at, "has neither text nor inlineData")
	}
	return parts, others, nil
}

// ParseToolResponses parses SEND_TOOL_RESPONSE into a flat list. It does not validate the results: the session discards
// a late response unread.
func (m ClientMessage) ParseToolResponses() ([]bridge.ToolResponse, error) {
	if len(m.Payload) == 0 {
		return nil, BadField("payload", "is missing")
	}
	var toolResponse, responses, parts json.RawMessage
	at := "payload.toolResponse"
	if _, err := readFields(m.Payload, "payload", map[string]any{"toolResponse": &toolResponse}); err != nil {
		return nil, err
	}
	if toolResponse == nil {
		return nil, BadField(at, "is missing")
	}
	if _, err := readFields(toolResponse, at, map[string]any{"functionResponses": &responses, "parts": &parts}); err != nil {
		return nil, err
	}
	at += ".functionResponses"
	if responses == nil && parts != nil { // the old nested form
		responses, at = parts, "payload.toolResponse.parts"
	}
	list, err := readElements(responses, at)
	switch {
	case err != nil:
		return nil, err
	case len(list) == 0:
		return nil, BadField("payload.toolResponse.functionResponses", "is missing or empty")
	case len(list) > maxAnswers: // checked before parsing the elements
		return nil, tooManyAnswers(at, len(list))
	}
	var answers []bridge.ToolResponse
	media := 0
	for i, raw := range list {
		read, n, err := readAnswer(raw, fmt.Sprintf("%s[%d]", at, i), bridge.ToolResponse{}, maxNesting)
		if err != nil {
			return nil, err
		}
		answers = append(answers, read...)
		media += n
	}
	if len(answers) > maxAnswers {
		return nil, tooManyAnswers(at, len(answers))
	}
	return answers, m.checkLength(media)
}

func tooManyAnswers(at string, n int) error {
	return BadField(at, fmt.Sprintf("has %d answers; at most %d are allowed in a message", n, maxAnswers))
}

// maxNesting limits the nesting around a response: a functionResponse, a Content, and a functionResponse in it.
const maxNesting = 3

// readAnswer parses an element of functionResponses, with missing fields from outer. The element may wrap a response,
// or contain a Content with responses (clients before 2024-06); wrapped limits these levels. media is the length of the
// encoded images, in bytes.
func readAnswer(
	raw json.RawMessage,
	at string,
	outer bridge.ToolResponse,
	wrapped int,
) (answers []bridge.ToolResponse, media int, err error) {
	a := outer
	var nested, parts json.RawMessage
	_, err = readFields(raw, at, map[string]any{
		"id": &a.ID, "name": &a.Name, "response": &a.Response, "scheduling": &a.Scheduling, "willContinue": &a.WillContinue,
		"parts": &parts, "functionResponse": &nested,
	})
	switch {
	case err != nil:
		return nil, 0, err
	case nested != nil && wrapped > 0:
		return readAnswer(nested, at+".functionResponse", a, wrapped-1)
	}
	if inner := answersInContent(a.Response); inner != nil && wrapped > 0 {
		if len(inner) > maxAnswers {
			return nil, 0, tooManyAnswers(at+".response.parts", len(inner))
		}
		a.Response = nil
		for i, raw := range inner {
			read, n, err := readAnswer(raw, fmt.Sprintf("%s.response.parts[%d]", at, i), a, wrapped-1)
			if err != nil {
				return nil, 0, err
			}
			answers, media = append(answers, read...), media+n
		}
		return answers, media, nil
	}
	if a.ID == "" && a.Name == "" {
		return nil, 0, BadField(at+".id", "is missing")
	}
	switch a.Scheduling {
	case "", tools.WhenIdle, tools.Interrupt, tools.Silent:
	default:
		return nil, 0, BadField(at+".scheduling", "must be WHEN_IDLE, INTERRUPT or SILENT")
	}
	if len(a.Response) > 0 && len(a.Response) <= tools.MaxResult && !json.Valid(a.Response) { // longer ones are not forwarded
		return nil, 0, BadField(at+".response", "is not JSON")
	}
	a.Response = bytes.Clone(a.Response) // kept in case the model repeats the call; without a copy, it would keep the images in memory
	a.Parts, media, err = picturesOf(parts, at+".parts")
	return []bridge.ToolResponse{a}, media, err
}

// answersInContent returns the parts of a response of the form {role, parts: [{functionResponse}]}, or nil.
func answersInContent(response json.RawMessage) []json.RawMessage {
	if len(response) == 0 || response[0] != '{' {
		return nil
	}
	var role, parts json.RawMessage
	others, err := readFields(response, "", map[string]any{"role": &role, "parts": &parts})
	if err != nil || len(others) > 0 {
		return nil
	}
	list, err := readElements(parts, "")
	if err != nil {
		return nil
	}
	for _, p := range list {
		var answer json.RawMessage
		if _, err := readFields(p, "", map[string]any{"functionResponse": &answer}); err != nil || answer == nil {
			return nil
		}
	}
	return list
}

// picturesOf validates the images that a tool returns: Parts with inlineData. It returns them without other fields, or
// nil without images. media is the length of the encoded images, in bytes.
func picturesOf(raw json.RawMessage, at string) (pictures json.RawMessage, media int, err error) {
	if raw == nil {
		return nil, 0, nil
	}
	var parts []part
	if json.Unmarshal(raw, &parts) != nil {
		return nil, 0, BadField(at, "must be an array of {inlineData: {mimeType, data}}")
	}
	if len(parts) == 0 {
		return nil, 0, nil
	}
	for i, p := range parts {
		field := fmt.Sprintf("%s[%d].inlineData", at, i)
		if p.InlineData == nil {
			return nil, 0, BadField(field, "is missing")
		}
		if _, _, err := p.InlineData.decodePicture(field); err != nil {
			return nil, 0, err
		}
		parts[i].Text = nil // drop all other fields
		media += p.InlineData.encodedLength()
	}
	return tools.Encode(parts), media, nil
}

// ParseOffer returns the SDP of WEBRTC_OFFER.
func (m ClientMessage) ParseOffer() (sdp string, err error) {
	var p struct {
		SDP string `json:"sdp"`
	}
	err = m.DecodePayload(&p)
	return p.SDP, err
}

type candidatePayload struct {
	Candidate     *string `json:"candidate"`
	SDPMid        *string `json:"sdpMid"`
	SDPMLineIndex *uint16 `json:"sdpMLineIndex"`
}

// ParseCandidate returns the candidate line of WEBRTC_ICE_CANDIDATE, or "" at the end. It ignores sdpMid and
// sdpMLineIndex: all sections are bundled.
func (m ClientMessage) ParseCandidate() (line string, err error) {
	var p candidatePayload
	if err := m.DecodePayload(&p); err != nil || p.Candidate == nil {
		return "", err
	}
	if len(*p.Candidate) > maxCandidate {
		return "", &bridge.Error{Code: bridge.CodeBadOffer, Field: "payload.candidate", Message: "payload.candidate is too long"}
	}
	return *p.Candidate, nil
}

// ClipText shortens untrusted text to 64 bytes, for logs and error messages.
func ClipText(s string) string { return tools.Truncate(s, 64) }
