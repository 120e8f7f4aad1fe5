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
	// maxHead is a length in bytes. If a message is longer than MaxControl, its type must be within the first maxHead
	// bytes.
	maxHead = 64 << 10
	// maxImage limits an image, in bytes. Base64 makes it a third longer.
	maxImage = 8 << 20
	// maxLarge limits a message with an image, in bytes.
	maxLarge = maxImage/3*4 + MaxControl/4
	// maxCandidate limits a candidate line, in bytes. Typical lines have about 120.
	maxCandidate = 1 << 10
	// maxAnswers limits the tool responses in one message. It is twice the number of calls that can be open, because a
	// client may also answer calls that were just cancelled.
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
	if err := checkLargeType(text.Bytes()); err != nil {
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

// checkLargeType returns an error unless the type of a message permits more than 1 MiB. text may be only the beginning
// of the message, because the type must be within the first maxHead bytes.
func checkLargeType(text []byte) error {
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
	if _, err := parseFields(raw, "", map[string]any{"type": &m.Type, "id": &m.ID, "payload": &m.Payload}); err != nil {
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

// checkLength returns an error if the message without its media is longer than MaxControl. mediaBytes is the length of
// the media in the message.
func (m ClientMessage) checkLength(mediaBytes int) error {
	if m.length-mediaBytes > MaxControl {
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

// parseFields parses an object. parentPath is the path of the object in the message. targets maps each known field to a
// pointer for its value. null leaves a value unchanged. A *json.RawMessage is set to a part of raw without validation,
// which is faster. unknownPaths lists the paths of all unknown fields.
func parseFields(raw json.RawMessage, parentPath string, targets map[string]any) (unknownPaths []string, err error) {
	path := func(name []byte) string { return strings.TrimPrefix(parentPath+"."+string(name), ".") }
	var bad error
	err = wire.EachField(raw, func(name, value []byte) error {
		target, known := targets[string(name)]
		switch later, ok := target.(*json.RawMessage); {
		case !known:
			unknownPaths = append(unknownPaths, ClipText(path(name)))
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
		return nil, badJSON(parentPath, cmp.Or(json.Unmarshal(raw, &object), err))
	}
	return unknownPaths, nil
}

// splitArray splits an array into its elements, which are not validated. A nil raw counts as an empty array. path is the
// array's path, for errors.
func splitArray(raw json.RawMessage, path string) (elements []json.RawMessage, err error) {
	if raw == nil {
		return nil, nil
	}
	err = wire.EachElement(raw, func(value []byte) error {
		elements = append(elements, value)
		return nil
	})
	if err != nil {
		return nil, badJSON(path, cmp.Or(json.Unmarshal(raw, &elements), err))
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

// ParseConnect parses CONNECT_GEMINI. It returns the session request without its origin. token is the access token, or
// "".
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

// ParseTurn parses SEND_MESSAGE, a typed turn. warning tells the client's developer which fields were ignored. It names
// at most maxNamedFields, and is "" if no field was ignored.
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
		read, others, err := parsePart(raw, fmt.Sprintf("payload.parts[%d]", i))
		if err != nil {
			return turn, "", err
		}
		for _, one := range read {
			media += one.InlineData.encodedLength()
		}
		parts, dropped = append(parts, read...), append(dropped, others...)
	}
	turn.Parts = tools.EncodeOrEmpty(parts)
	if len(dropped) > 0 {
		names := strings.Join(dropped[:min(len(dropped), maxNamedFields)], ", ")
		warning = fmt.Sprintf("Dropped from a typed turn, which may have only text and inlineData: %s.", names)
	}
	return turn, warning, m.checkLength(media)
}

// part holds the fields of Google's Part that a user can type or show. The other fields of Part come from the model,
// are sent in other messages, or are not supported.
type part struct {
	Text       *string `json:"text,omitempty"`
	InlineData *blob   `json:"inlineData,omitempty"`
}

// parsePart parses an element of parts. An element with text and data becomes two parts, because Google accepts only
// one of them in a part. ignoredPaths lists the paths of ignored fields. Unknown fields and wrong types must not be
// forwarded, because Google would close the connection (1007).
func parsePart(raw json.RawMessage, path string) (parts []part, ignoredPaths []string, err error) {
	var text *string
	var data json.RawMessage
	ignoredPaths, err = parseFields(raw, path, map[string]any{"text": &text, "inlineData": &data, "inline_data": &data})
	if err != nil {
		return nil, nil, err
	}
	if text != nil {
		parts = append(parts, part{Text: text})
	}
	if data != nil {
		path += ".inlineData"
		var b blob
		more, err := parseFields(data, path, map[string]any{"mimeType": &b.MIMEType, "mime_type": &b.MIMEType, "data": &b.Data})
		if err == nil {
			err = b.checkTypedMedia(path)
		}
		if err != nil {
			return nil, nil, err
		}
		parts, ignoredPaths = append(parts, part{InlineData: &b}), append(ignoredPaths, more...)
	}
	if parts == nil {
		return nil, nil, BadField(path, "has neither text nor inlineData")
	}
	return parts, ignoredPaths, nil
}

// ParseToolResponses parses SEND_TOOL_RESPONSE into a flat list. It does not validate the results, because the session
// may discard a late response without reading it.
func (m ClientMessage) ParseToolResponses() ([]bridge.ToolResponse, error) {
	if len(m.Payload) == 0 {
		return nil, BadField("payload", "is missing")
	}
	var toolResponse, responses, parts json.RawMessage
	at := "payload.toolResponse"
	if _, err := parseFields(m.Payload, "payload", map[string]any{"toolResponse": &toolResponse}); err != nil {
		return nil, err
	}
	if toolResponse == nil {
		return nil, BadField(at, "is missing")
	}
	if _, err := parseFields(toolResponse, at, map[string]any{"functionResponses": &responses, "parts": &parts}); err != nil {
		return nil, err
	}
	at += ".functionResponses"
	if responses == nil && parts != nil { // the old nested form
		responses, at = parts, "payload.toolResponse.parts"
	}
	list, err := splitArray(responses, at)
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
		read, n, err := parseToolResponse(raw, fmt.Sprintf("%s[%d]", at, i), bridge.ToolResponse{}, maxNesting)
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

func tooManyAnswers(path string, n int) error {
	return BadField(path, fmt.Sprintf("has %d answers; at most %d are allowed in a message", n, maxAnswers))
}

// maxNesting limits the objects around a response. There may be three: a functionResponse, a Content, and another
// functionResponse in the Content.
const maxNesting = 3

// parseToolResponse parses an element of functionResponses. Fields that are missing in the element are taken from
// outer. The element may contain another functionResponse, or a Content with responses (clients before 2024-06);
// levelsLeft limits this nesting. media is the length of the encoded images, in bytes.
func parseToolResponse(
	raw json.RawMessage,
	path string,
	outer bridge.ToolResponse,
	levelsLeft int,
) (answers []bridge.ToolResponse, media int, err error) {
	a := outer
	var nested, parts json.RawMessage
	_, err = parseFields(raw, path, map[string]any{
		"id": &a.ID, "name": &a.Name, "response": &a.Response, "scheduling": &a.Scheduling, "willContinue": &a.WillContinue,
		"parts": &parts, "functionResponse": &nested,
	})
	switch {
	case err != nil:
		return nil, 0, err
	case nested != nil && levelsLeft > 0:
		return parseToolResponse(nested, path+".functionResponse", a, levelsLeft-1)
	}
	if inner := answersInContent(a.Response); inner != nil && levelsLeft > 0 {
		if len(inner) > maxAnswers {
			return nil, 0, tooManyAnswers(path+".response.parts", len(inner))
		}
		a.Response = nil
		for i, raw := range inner {
			read, n, err := parseToolResponse(raw, fmt.Sprintf("%s.response.parts[%d]", path, i), a, levelsLeft-1)
			if err != nil {
				return nil, 0, err
			}
			answers, media = append(answers, read...), media+n
		}
		return answers, media, nil
	}
	if a.ID == "" && a.Name == "" {
		return nil, 0, BadField(path+".id", "is missing")
	}
	switch a.Scheduling {
	case "", tools.WhenIdle, tools.Interrupt, tools.Silent:
	default:
		return nil, 0, BadField(path+".scheduling", "must be WHEN_IDLE, INTERRUPT or SILENT")
	}
	if len(a.Response) > 0 && len(a.Response) <= tools.MaxResult && !json.Valid(a.Response) { // longer ones are not forwarded
		return nil, 0, BadField(path+".response", "is not JSON")
	}
	a.Response = bytes.Clone(a.Response) // kept in case the model repeats the call; without a copy, it would keep the images in memory
	a.Parts, media, err = validatePictures(parts, path+".parts")
	return []bridge.ToolResponse{a}, media, err
}

// answersInContent returns the parts of a response that has the form {role, parts: [{functionResponse}]}. For other
// responses it returns nil.
func answersInContent(response json.RawMessage) []json.RawMessage {
	if len(response) == 0 || response[0] != '{' {
		return nil
	}
	var role, parts json.RawMessage
	others, err := parseFields(response, "", map[string]any{"role": &role, "parts": &parts})
	if err != nil || len(others) > 0 {
		return nil
	}
	list, err := splitArray(parts, "")
	if err != nil {
		return nil
	}
	for _, p := range list {
		var answer json.RawMessage
		if _, err := parseFields(p, "", map[string]any{"functionResponse": &answer}); err != nil || answer == nil {
			return nil
		}
	}
	return list
}

// validatePictures validates the images that a tool returns, as Parts with inlineData. pictures has only these fields
// of the Parts, and is nil if raw has no images. encodedBytes is the length of the encoded images.
func validatePictures(raw json.RawMessage, path string) (pictures json.RawMessage, encodedBytes int, err error) {
	if raw == nil {
		return nil, 0, nil
	}
	var parts []part
	if json.Unmarshal(raw, &parts) != nil {
		return nil, 0, BadField(path, "must be an array of {inlineData: {mimeType, data}}")
	}
	if len(parts) == 0 {
		return nil, 0, nil
	}
	for i, p := range parts {
		field := fmt.Sprintf("%s[%d].inlineData", path, i)
		if p.InlineData == nil {
			return nil, 0, BadField(field, "is missing")
		}
		if _, _, err := p.InlineData.decodePicture(field); err != nil {
			return nil, 0, err
		}
		parts[i].Text = nil // drop all other fields
		encodedBytes += p.InlineData.encodedLength()
	}
	return tools.EncodeOrEmpty(parts), encodedBytes, nil
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

// ParseCandidate returns the candidate line of WEBRTC_ICE_CANDIDATE, or "" if no more candidates follow. It ignores
// sdpMid and sdpMLineIndex, because all sections are bundled.
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
