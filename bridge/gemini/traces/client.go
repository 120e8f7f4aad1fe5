package traces

import (
	"encoding/base64"
	"encoding/json"
	"strings"
	"time"
)

// Client is a message of the client. Its field names may be in camelCase or snake_case.
type Client struct {
	RealtimeInput *RealtimeInput
	ClientContent *struct {
		Turns []struct {
			Role  string
			Parts json.RawMessage
		}
		TurnComplete bool
	}
	ToolResponse *struct {
		FunctionResponses []struct {
			ID, Name     string
			Response     json.RawMessage
			Scheduling   string
			WillContinue bool
		}
	}
}

// RealtimeInput is audio, pictures and text that the client has not divided into turns.
type RealtimeInput struct {
	Audio          []Blob // the content of the fields audio and mediaChunks
	AudioStreamEnd bool
	ActivityStart  bool
	ActivityEnd    bool
}

// Blob is media data. Data is base64, or a placeholder for removed data (see [Sound]).
type Blob struct{ MIMEType, Data string }

// ParseClient parses a message of the client. Unknown fields are ignored.
func ParseClient(msg json.RawMessage) (Client, error) {
	var wire struct {
		Client
		RealtimeInput *struct {
			Audio                      *Blob
			MediaChunks                []Blob
			AudioStreamEnd             bool
			ActivityStart, ActivityEnd *struct{}
		}
	}
	snake := strings.NewReplacer(`"client_content"`, `"clientContent"`, `"tool_response"`, `"toolResponse"`,
		`"realtime_input"`, `"realtimeInput"`, `"function_responses"`, `"functionResponses"`)
	if err := json.Unmarshal([]byte(snake.Replace(string(msg))), &wire); err != nil {
		return Client{}, err
	}
	if in := wire.RealtimeInput; in != nil {
		wire.Client.RealtimeInput = &RealtimeInput{
			Audio: in.MediaChunks, AudioStreamEnd: in.AudioStreamEnd,
			ActivityStart: in.ActivityStart != nil, ActivityEnd: in.ActivityEnd != nil,
		}
		if in.Audio != nil {
			wire.Client.RealtimeInput.Audio = append(wire.Client.RealtimeInput.Audio, *in.Audio)
		}
	}
	return wire.Client, nil
}

// Answer is the part of a server message that a user hears or reads.
type Answer struct {
	Text         string
	Voice        time.Duration
	Interrupted  bool
	TurnComplete bool
}

// voiceRate is the sample rate of the model's voice, in Hz.
const voiceRate = 24000

// ParseAnswer extracts transcript, text and voice from a message of the server. An unreadable message yields a zero
// Answer.
func ParseAnswer(msg json.RawMessage) (a Answer) {
	var m struct {
		ServerContent struct {
			ModelTurn struct {
				Parts []struct {
					Text       string
					Thought    bool
					InlineData *Blob
				}
			}
			OutputTranscription       struct{ Text string }
			Interrupted, TurnComplete bool
		}
	}
	if json.Unmarshal(msg, &m) != nil {
		return Answer{}
	}
	c := m.ServerContent
	a = Answer{Text: c.OutputTranscription.Text, Interrupted: c.Interrupted, TurnComplete: c.TurnComplete}
	for _, p := range c.ModelTurn.Parts {
		switch {
		case p.InlineData != nil:
			n := base64.StdEncoding.DecodedLen(len(p.InlineData.Data))
			if s, ok := ParseSoundPlaceholder(p.InlineData.Data); ok {
				n = s.Bytes(voiceRate)
			}
			a.Voice += time.Duration(n/2) * time.Second / voiceRate
		case !p.Thought:
			a.Text += p.Text
		}
	}
	return a
}

// CallIDs returns the IDs of the function calls in a message of the server.
func CallIDs(msg json.RawMessage) (ids []string) {
	var m server
	if json.Unmarshal(msg, &m) == nil && m.ToolCall != nil {
		for _, c := range m.ToolCall.FunctionCalls {
			ids = append(ids, c.ID)
		}
	}
	return ids
}

// CallNames returns the names of the functions that a message of the server calls.
func CallNames(msg json.RawMessage) (names []string) {
	var m server
	if json.Unmarshal(msg, &m) == nil && m.ToolCall != nil {
		for _, c := range m.ToolCall.FunctionCalls {
			names = append(names, c.Name)
		}
	}
	return names
}
