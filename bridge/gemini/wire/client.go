package wire

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"strconv"
)

// ClientMessage is a message to the server. Exactly one field must be set.
type ClientMessage struct {
	ClientContent *ClientContent `json:"clientContent,omitempty"`
	RealtimeInput *RealtimeInput `json:"realtimeInput,omitempty"`
	ToolResponse  *ToolResponse  `json:"toolResponse,omitempty"`
	ContextUpdate *ContextUpdate `json:"contextUpdate,omitempty"`
}

// ContextUpdate changes system instruction or tools of an open session. Not every model supports it. A nil field stays
// unchanged. Tools `{}` removes all tools.
type ContextUpdate struct {
	SystemInstruction json.RawMessage `json:"systemInstruction,omitempty"`
	Tools             json.RawMessage `json:"tools,omitempty"` // {"tools":[…]}
}

// ClientContent appends turns to the conversation. Current models stop speaking when they receive this message.
type ClientContent struct {
	Turns        []Content `json:"turns,omitempty"`
	TurnComplete bool      `json:"turnComplete,omitempty"` // true requests a response
}

// Content is one turn. Parts is a JSON array of Google's Part objects.
type Content struct {
	Role  string          `json:"role,omitempty"` // "user" or "model"; required by current models
	Parts json.RawMessage `json:"parts"`
}

// RealtimeInput is input that the client has not divided into turns: the server detects the end of the user's speech.
// Exactly one field must be set. Audio is not among the fields, because [AppendAudio] writes audio messages.
type RealtimeInput struct {
	Text           string
	Video          *Blob
	AudioStreamEnd bool // the microphone pauses; only with automatic activity detection
	ActivityStart  bool // the user starts speaking; only with automatic activity detection disabled
	ActivityEnd    bool
}

// MarshalJSON implements json.Marshaler. In JSON, activityStart and activityEnd are empty objects.
func (r RealtimeInput) MarshalJSON() ([]byte, error) {
	wire := struct {
		Text           string    `json:"text,omitempty"`
		Video          *Blob     `json:"video,omitempty"`
		AudioStreamEnd bool      `json:"audioStreamEnd,omitempty"`
		ActivityStart  *struct{} `json:"activityStart,omitempty"`
		ActivityEnd    *struct{} `json:"activityEnd,omitempty"`
	}{Text: r.Text, Video: r.Video, AudioStreamEnd: r.AudioStreamEnd}
	if r.ActivityStart {
		wire.ActivityStart = &struct{}{}
	}
	if r.ActivityEnd {
		wire.ActivityEnd = &struct{}{}
	}
	return json.Marshal(wire)
}

// Blob is media with its type, such as "image/jpeg".
type Blob struct {
	MIMEType string `json:"mimeType"`
	Data     []byte `json:"data"`
}

// ToolResponse contains the responses to function calls.
type ToolResponse struct {
	FunctionResponses []FunctionResponse `json:"functionResponses"`
}

// FunctionResponse is the response to the call with the same ID and Name. Response is a JSON object. It must not be
// empty, because gemini-3.8-live repeats the call again and again after {}.
type FunctionResponse struct {
	ID       string          `json:"id,omitempty"`
	Name     string          `json:"name,omitempty"`
	Response json.RawMessage `json:"response"`

	// Scheduling says when the model may speak about a NON_BLOCKING response: SILENT, WHEN_IDLE (default) or INTERRUPT.
	// Some models close the connection with 1007 if it is set.
	Scheduling string `json:"scheduling,omitempty"`

	// WillContinue means that further responses to this NON_BLOCKING call follow. Vertex AI does not have this field.
	WillContinue bool `json:"willContinue,omitempty"`
}

// Encode returns the message as JSON.
func (m ClientMessage) Encode() ([]byte, error) {
	set := 0
	for _, is := range []bool{m.ClientContent != nil, m.RealtimeInput != nil, m.ToolResponse != nil, m.ContextUpdate != nil} {
		if is {
			set++
		}
	}
	if set != 1 {
		return nil, errors.New("gemini: a client message must have exactly one field set")
	}
	return json.Marshal(m)
}

// AppendAudio appends a message with audio to frame: mono samples at rate Hz. It must not allocate, because it runs
// many times a second.
func AppendAudio(frame []byte, pcm []int16, rate int) []byte {
	var raw [192 * 2]byte // little endian; a multiple of three bytes, so that only the last chunk is padded
	frame = append(frame, `{"realtimeInput":{"audio":{"data":"`...)
	for len(pcm) > 0 {
		n := min(len(pcm), len(raw)/2)
		for i, s := range pcm[:n] {
			raw[2*i], raw[2*i+1] = byte(s), byte(uint16(s)>>8)
		}
		frame = base64.StdEncoding.AppendEncode(frame, raw[:2*n])
		pcm = pcm[n:]
	}
	frame = append(frame, `","mimeType":"audio/pcm;rate=`...)
	frame = strconv.AppendInt(frame, int64(rate), 10)
	return append(frame, `"}}}`...)
}
