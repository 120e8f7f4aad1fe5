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
	// MaxControl bounds a message without an image.
	MaxControl = 1 << 20
	// maxHead is where the type of a longer message must stand, at the latest.
	maxHead = 64 << 10
	// maxImage bounds a picture; in base64 it is a third longer.
	maxImage = 8 << 20
	// maxLarge bounds a message with a picture.
	maxLarge = maxImage/3*4 + MaxControl/4
	// maxCandidate bounds one candidate line, which has about 120 bytes.
	maxCandidate = 1 << 10
	// maxAnswers bounds the answers in one message: twice as many calls as can be open at once, so that a client may also answer some
	// that have been cancelled meanwhile.
	maxAnswers = 64
	// maxID bounds the id of a message, in bytes: room for a UUID and a word before it. The bridge keeps some hundreds.
	maxID = 128
)

// ClientMessage is a message of a client. Its methods read the payload, each that of one type; what is wrong with it is a
// [bridge.Error] that names the field.
type ClientMessage struct {
	Type    string
	ID      *string         // nil: the client does not care whether it is acted on twice
	Payload json.RawMessage // a part of what was parsed, and not checked yet

	length int // of the whole message, in bytes
}

// mayBeLarge reports whether messages of a type may have pictures.
func mayBeLarge(kind string) bool {
	return kind == TypeMessage || kind == TypeRealtimeInput || kind == TypeToolResponse
}

// Read reads the text of a client's message from r, and of one that is too long for its type no more than 1 MiB: that is refused. It
// blocks as long as r does. It is for [voxgate/signaling.SocketOptions].
func Read(r io.Reader, _ bool) ([]byte, error) {
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

// checkLong checks by the beginning of a message that it may have more than 1 MiB.
func checkLong(text []byte) error {
	switch kind := typeIn(text[:min(maxHead, len(text))]); {
	case kind == "":
		return BadField("type", fmt.Sprintf("is not in the first %d bytes of a message of more than %d", maxHead, MaxControl))
	case !mayBeLarge(kind):
		return tooLong(kind, MaxControl)
	}
	return nil
}

// typeIn finds the type in the beginning of a message; "": it is not there.
func typeIn(head []byte) (kind string) {
	_ = wire.EachField(head, func(name, value []byte) error { // it ends with an error, as the head ends in the midst
		if string(name) == "type" && kind == "" {
			_ = json.Unmarshal(value, &kind) // what is no string is none
		}
		return nil
	})
	return kind
}

// Parse reads a client's message but for its payload, and refuses one that is too long. It keeps raw.
func Parse(raw []byte) (ClientMessage, error) {
	m := ClientMessage{length: len(raw)}
	if _, err := readFields(raw, "", map[string]any{"type": &m.Type, "id": &m.ID, "payload": &m.Payload}); err != nil {
		return m, err
	}
	if m.Type == "" {
		return m, BadField("type", "is missing")
	}
	if m.ID != nil && (*m.ID == "" || len(*m.ID) > maxID) {
		return m, BadField("id", fmt.Sprintf("has %d bytes; 1 to %d are served", len(*m.ID), maxID))
	}
	switch {
	case !mayBeLarge(m.Type):
		return m, m.checkLength(0)
	case len(raw) > maxLarge:
		return m, tooLong(m.Type, maxLarge)
	}
	return m, nil // the rest of the limit depends on what of it is media
}

// checkLength refuses a message that is too long without its media, which have so many bytes of it.
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
	return BadField("payload", fmt.Sprintf("is too long: %s may have %d bytes%s", Clip(kind), limit, without))
}

// Decode reads a payload into v.
func (m ClientMessage) Decode(v any) error {
	if len(m.Payload) == 0 {
		return BadField("payload", "is missing")
	}
	if err := json.Unmarshal(m.Payload, v); err != nil {
		return badJSON("payload", err)
	}
	return nil
}

// readFields reads the fields of an object that are in into, by their names; null is nothing. A value for a *json.RawMessage
// is a part of raw and not looked at, which costs less by far than to read it. It returns the paths of the other fields.
func readFields(raw json.RawMessage, at string, into map[string]any) (others []string, err error) {
	path := func(name []byte) string { return strings.TrimPrefix(at+"."+string(name), ".") }
	var bad error
	err = wire.EachField(raw, func(name, value []byte) error {
		target, known := into[string(name)]
		switch later, ok := target.(*json.RawMessage); {
		case !known:
			others = append(others, Clip(path(name)))
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
	case err != nil: // encoding/json says what is wrong
		var object map[string]json.RawMessage
		return nil, badJSON(at, cmp.Or(json.Unmarshal(raw, &object), err))
	}
	return others, nil
}

// readElements reads an array; a null is nothing.
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
			return &bridge.Error{Code: bridge.CodeBadMessage, Message: "The message is no object but of type " + wrongType.Value + "."}
		}
		return BadField(field, "has the wrong type: "+wrongType.Value)
	case errors.As(err, &syntax):
		return &bridge.Error{Code: bridge.CodeBadMessage, Message: fmt.Sprintf("The message is not JSON: %v at byte %d.", err, syntax.Offset)}
	}
	return &bridge.Error{Code: bridge.CodeBadMessage, Message: fmt.Sprintf("The message is not JSON: %v.", tools.ExplainJSON(err, ""))}
}

// Open reads CONNECT_GEMINI: what the conversation shall be, and the token for it; "" if there is none. Where it comes from is not
// in it.
func (m ClientMessage) Open() (open bridge.SessionRequest, token string, err error) {
	var p struct {
		Agent         string          `json:"agent"`
		InitialConfig json.RawMessage `json:"initialConfig"`
		Resumable     bool            `json:"resumable"`
		ResumeToken   string          `json:"resumeToken"`
		LastEvent     uint64          `json:"lastEvent"`
		Token         string          `json:"token"`
	}
	if len(m.Payload) > 0 {
		if err := m.Decode(&p); err != nil {
			return bridge.SessionRequest{}, "", err
		}
	}
	if len(p.InitialConfig) == 0 {
		p.InitialConfig = []byte("{}") // everything has a default
	}
	return bridge.SessionRequest{
		Origin: bridge.Origin{Agent: p.Agent}, Config: p.InitialConfig,
		Resumable: p.Resumable, ResumeToken: p.ResumeToken, LastEvent: p.LastEvent,
	}, p.Token, nil
}

// maxNamed bounds the fields that a warning names.
const maxNamed = 8

// Turn reads SEND_MESSAGE: a typed turn. The warning is for the client's developer and names what was dropped, the first few;
// "" if nothing was.
func (m ClientMessage) Turn() (turn bridge.Message, warning string, err error) {
	var p struct {
		Parts        []json.RawMessage `json:"parts"`
		TurnComplete *bool             `json:"turnComplete"`
	}
	if err := m.Decode(&p); err != nil {
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
			media += one.InlineData.length()
		}
		parts, dropped = append(parts, read...), append(dropped, others...)
	}
	turn.Parts = tools.Encode(parts)
	if len(dropped) > 0 {
		names := strings.Join(dropped[:min(len(dropped), maxNamed)], ", ")
		warning = fmt.Sprintf("Dropped from a typed turn, which has text and inlineData alone: %s.", names)
	}
	return turn, warning, m.checkLength(media)
}

// part is what of Google's Part a person can type or show. The rest is the model's own (thought, functionCall,
// executableCode), has messages of its own (functionResponse), or is not for the Live API (fileData).
type part struct {
	Text       *string `json:"text,omitempty"`
	InlineData *blob   `json:"inlineData,omitempty"`
}

// readPart reads an element of parts, which is one part, or two if it has both text and data: Google takes one of them. For an
// unknown field or a value of a wrong type Google would close the connection (1007).
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

// ToolResponses reads SEND_TOOL_RESPONSE: the answers, flat. The results are not looked at: most of what is long is an answer
// that is no longer awaited.
func (m ClientMessage) ToolResponses() ([]bridge.ToolResponse, error) {
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
	case len(list) > maxAnswers: // before any is read
		return nil, tooManyAnswers(at, len(list))
	}
	var answers []bridge.ToolResponse
	media := 0
	for i, raw := range list {
		read, n, err := readAnswer(raw, fmt.Sprintf("%s[%d]", at, i), bridge.ToolResponse{}, maxWrapped)
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
	return BadField(at, fmt.Sprintf("has %d answers; a message may have %d", n, maxAnswers))
}

// maxWrapped bounds what may be around an answer: a functionResponse, a Content, and a functionResponse in that.
const maxWrapped = 3

// readAnswer reads an element of functionResponses: an answer; or {functionResponse: answer}; or an answer whose response is a
// Content around the real ones, as clients from before 2024-06 send it. What they do not say themselves outer does. It also
// returns how many bytes of it are pictures.
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
	if len(a.Response) > 0 && len(a.Response) <= tools.MaxResult && !json.Valid(a.Response) { // a longer one is not passed on
		return nil, 0, BadField(at+".response", "is not JSON")
	}
	a.Response = bytes.Clone(a.Response) // kept for as long as the model may ask again, and the message may have pictures
	a.Parts, media, err = picturesOf(parts, at+".parts")
	return []bridge.ToolResponse{a}, media, err
}

// answersInContent returns the parts of a response that is a Content of function responses, {role, parts:
// [{functionResponse}]}; nil if it is anything else.
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

// picturesOf checks the pictures that a tool shows the model, Parts with inlineData, and says how many bytes of the message
// they are. Nil if there are none.
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
		if _, _, err := p.InlineData.picture(field); err != nil {
			return nil, 0, err
		}
		parts[i].Text = nil // nor anything else that may stand there
		media += p.InlineData.length()
	}
	return tools.Encode(parts), media, nil
}

// Config reads UPDATE_CONFIG: the LiveConfig, as it is.
func (m ClientMessage) Config() (config json.RawMessage, err error) {
	err = m.Decode(&config)
	return config, err
}

// PauseRecording reads a PAUSE_RECORDING.
func (m ClientMessage) PauseRecording() (bridge.PauseRecording, error) {
	var p struct {
		Paused *bool `json:"paused"`
	}
	if err := m.Decode(&p); err != nil {
		return bridge.PauseRecording{}, err
	}
	if p.Paused == nil {
		return bridge.PauseRecording{}, BadField("payload.paused", "must be true or false")
	}
	return bridge.PauseRecording{On: *p.Paused}, nil
}

// Offer reads WEBRTC_OFFER: the SDP.
func (m ClientMessage) Offer() (sdp string, err error) {
	var p struct {
		SDP string `json:"sdp"`
	}
	err = m.Decode(&p)
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
	if err := m.Decode(&p); err != nil || p.Candidate == nil {
		return "", err
	}
	if len(*p.Candidate) > maxCandidate {
		return "", &bridge.Error{Code: bridge.CodeBadOffer, Field: "payload.candidate", Message: "payload.candidate is too long"}
	}
	return *p.Candidate, nil
}

// Clip shortens a stranger's text, to 64 bytes, for a log or an error message.
func Clip(s string) string { return tools.Truncate(s, 64) }
