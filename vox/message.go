package vox

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"time"
	"unicode"
	"unicode/utf8"

	"voxgate/bridge"
	"voxgate/tools"
	desk "voxgate/vox/assistant"
)

// Limits of client messages. PROTOCOL.md documents them.
const (
	maxText       = 128 << 10 // bytes of a text frame: twice a project's context
	maxSound      = 8192      // bytes of a binary frame
	maxContext    = 64 << 10  // bytes of a project's context
	maxTyped      = 20_000    // characters of a text
	maxTargets    = 32
	maxTargetName = 64 // characters of the name of a target
)

// Types of client messages.
const (
	typeStart   = "start"
	typeMute    = "mute"
	typeEnd     = "end"
	typeText    = "text"
	typeAnswer  = "answer"
	typeVersion = "version"

	typeInterrupt = "interrupt"
	typeTalk      = "talk"
)

// Error codes that only this endpoint uses.
const (
	codeTooLarge       bridge.Code = "too_large"
	codeNotStarted     bridge.Code = "not_started"
	codeAlreadyStarted bridge.Code = "already_started"
)

// clientMessage is a text frame of a client. Each message type uses some of the fields.
type clientMessage struct {
	Type           string          `json:"type"`
	Theme          string          `json:"theme"`
	Language       string          `json:"language"`
	ProjectContext json.RawMessage `json:"projectContext"`
	Token          string          `json:"token"`
	Model          string          `json:"model"`
	Targets        []string        `json:"targets"`
	Questions      bool            `json:"questions"`
	Resume         resume          `json:"resume"`
	PushToTalk     bool            `json:"pushToTalk"`
	Muted          *bool           `json:"muted"`
	Talking        *bool           `json:"talking"`
	Text           string          `json:"text"`
	ID             string          `json:"id"`
	Yes            *bool           `json:"yes"`
	Project        string          `json:"project"`
	App            string          `json:"app"`
	Version        int             `json:"version"`
}

// resume is the field with which a client requests resumption. It is true, or a resume token.
type resume struct {
	isRequested bool
	token       string
}

// UnmarshalJSON implements json.Unmarshaler.
func (r *resume) UnmarshalJSON(raw []byte) error {
	if json.Unmarshal(raw, &r.isRequested) == nil {
		return nil
	}
	if json.Unmarshal(raw, &r.token) != nil {
		return errors.New("resume must be true or a token")
	}
	r.isRequested = true
	return nil
}

func badMessage(format string, args ...any) error {
	return &bridge.Error{Code: bridge.CodeBadMessage, Message: fmt.Sprintf(format, args...)}
}

// parseMessage parses a text frame.
func parseMessage(raw []byte) (m clientMessage, err error) {
	raw = bytes.TrimSpace(raw)
	if len(raw) == 0 || raw[0] != '{' || !json.Valid(raw) {
		return m, badMessage("A text frame must be a JSON object.")
	}
	if err := json.Unmarshal(raw, &m); err != nil {
		if wrong, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
			return m, badMessage("%s cannot be a %s.", wrong.Field, wrong.Value)
		}
		return m, badMessage("The message cannot be read: %v.", tools.ExplainJSON(err, ""))
	}
	switch m.Type {
	case typeStart:
		return m, m.checkAndNormalizeStart()
	case typeMute:
		if m.Muted == nil {
			return m, badMessage("muted must be true or false.")
		}
	case typeTalk:
		if m.Talking == nil {
			return m, badMessage("talking must be true or false.")
		}
	case typeText:
		if n := utf8.RuneCountInString(m.Text); n == 0 || n > maxTyped {
			return m, badMessage("text has %d characters; it must have 1 to %d.", n, maxTyped)
		}
	case typeAnswer:
		if m.ID == "" || m.Yes == nil {
			return m, badMessage("An answer needs the fields id, a string, and yes, which is true or false.")
		}
	case typeVersion:
		if m.Version < 0 {
			return m, badMessage("version must be the number of a version, or 0 for the previous version.")
		}
	case typeEnd, typeInterrupt:
	default:
		return m, badMessage("Messages of the type %q are not supported.", tools.Truncate(m.Type, 40))
	}
	return m, nil
}

// modelName matches the names of models, including those of other vendors' servers.
var modelName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._/:@-]{0,199}$`)

// languageTag matches BCP 47 tags such as "de-DE".
var languageTag = regexp.MustCompile(`^[A-Za-z]{2,3}(-[A-Za-z0-9]{2,8}){0,3}$`)

// checkAndNormalizeStart validates a start message. It treats a project context that is null as missing.
func (m *clientMessage) checkAndNormalizeStart() error {
	if context := m.ProjectContext; string(context) == "null" {
		m.ProjectContext = nil
	} else if len(context) > maxContext {
		return badMessage("projectContext has %d bytes; at most %d are allowed.", len(context), maxContext)
	} else if len(context) > 0 && context[0] != '{' {
		return badMessage("projectContext must be an object, or null.")
	}
	if m.Language != "" && !languageTag.MatchString(m.Language) {
		return badMessage("language must be a language tag such as de-DE.")
	}
	if m.Model != "" && !modelName.MatchString(m.Model) {
		return badMessage("model must be the name of a model.")
	}
	if len(m.Targets) > maxTargets {
		return badMessage("targets has %d entries; at most %d are allowed.", len(m.Targets), maxTargets)
	}
	for i, name := range m.Targets {
		if n := utf8.RuneCountInString(name); n == 0 || n > maxTargetName || slices.ContainsFunc([]rune(name), unicode.IsControl) {
			return badMessage("targets[%d] must be a name of 1 to %d characters.", i, maxTargetName)
		}
	}
	return nil
}

// serverMessage is a message to the client.
type serverMessage interface{ kind() string }

// The messages to the client. PROTOCOL.md describes them.
type (
	readyFrame struct {
		SessionID string `json:"sessionId"`
		Theme     string `json:"theme"`
		Model     string `json:"model"`
		Mode      string `json:"mode"`
		Resumed   bool   `json:"resumed"`
		Resume    string `json:"resume,omitempty"`
		Recording bool   `json:"recording"`
		Project   string `json:"project,omitempty"`
		AppModel  string `json:"appModel,omitempty"` // the text model that writes apps, if it costs money
	}
	transcript struct {
		Role    string `json:"role"`
		Text    string `json:"text"`
		NewTurn bool   `json:"newTurn,omitempty"`
	}
	toolCall struct {
		ID    string          `json:"id"`
		Name  string          `json:"name"`
		Title string          `json:"title,omitempty"`
		Args  json.RawMessage `json:"args"`
	}
	toolResult struct {
		ID   string          `json:"id"`
		Name string          `json:"name"`
		Data json.RawMessage `json:"data"`
	}
	uiAction   desk.Action
	errorFrame struct {
		Message      string      `json:"message"`
		Code         bridge.Code `json:"code"`
		RetryAfterMs int64       `json:"retryAfterMs,omitempty"`
	}
	sessionEnd struct {
		Reason  string `json:"reason"`
		Message string `json:"message,omitempty"`
	}
	interruptedFrame struct{}
	stateFrame       struct {
		State   string `json:"state"`
		Message string `json:"message,omitempty"`
	}
	logFrame struct {
		Level     string `json:"level"`
		Message   string `json:"message"`
		Recording any    `json:"recording,omitempty"` // whether the conversation is recorded from now on; nil if unchanged
	}
	question struct {
		ID        string `json:"id"`
		Text      string `json:"text,omitempty"`
		Withdrawn bool   `json:"withdrawn,omitempty"`
	}
	latency bridge.LatencyReport
	// usage holds the tokens of the conversation so far, and their cost in US dollars. The cost is nil if it is
	// unknown.
	usage struct {
		Input   int      `json:"inputTokens"`
		Output  int      `json:"outputTokens"`
		Cached  int      `json:"cachedTokens,omitempty"`
		Dollars *float64 `json:"dollars,omitempty"`
	}
)

func (readyFrame) kind() string       { return "ready" }
func (transcript) kind() string       { return "transcript" }
func (toolCall) kind() string         { return "tool_call" }
func (toolResult) kind() string       { return "tool_result" }
func (uiAction) kind() string         { return "ui_action" }
func (errorFrame) kind() string       { return "error" }
func (sessionEnd) kind() string       { return "session_end" }
func (interruptedFrame) kind() string { return "interrupted" }
func (stateFrame) kind() string       { return "state" }
func (logFrame) kind() string         { return "log" }
func (question) kind() string         { return "question" }
func (latency) kind() string          { return "latency" }
func (usage) kind() string            { return "usage" }

// Values of mode, role, reason and state.
const (
	modeLive = "live"
	modeText = "text"

	roleUser = "user"
	roleVOX  = "vox"

	endUser    = "user"
	endTimeout = "timeout"
	endError   = "error"

	stateWaiting      = "waiting"
	stateReconnecting = "reconnecting"
	stateLive         = "live"
)

// encodeMessage encodes a message. The type comes first, then the fields.
func encodeMessage(m serverMessage) []byte {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(m); err != nil {
		// Encoding fails only if a tool has returned invalid JSON.
		return encodeMessage(errorFrame{Message: "A message to the client could not be encoded.", Code: bridge.CodeUnknown})
	}
	fields := bytes.TrimSuffix(bytes.TrimSpace(b.Bytes()), []byte("}"))[1:]
	text := fmt.Appendf(nil, `{"type":%q`, m.kind())
	if len(fields) > 0 {
		text = append(append(text, ','), fields...)
	}
	return append(text, '}')
}

// newErrorFrame converts an error to the message that the client gets.
func newErrorFrame(err error) errorFrame {
	e := bridge.AsError(err)
	return errorFrame{Message: e.Message, Code: e.Code, RetryAfterMs: int64(e.Retry / time.Millisecond)}
}
