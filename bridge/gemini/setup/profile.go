package setup

import (
	"bytes"
	"encoding/json"
	"maps"
	"strings"
	"time"

	"voxgate/bridge/gemini/wire"
	"voxgate/tools"
)

// Profile is what a model can do in an open session; bridge acts on it.
type Profile struct {
	// Name is the row of the table.
	Name string

	// ContextUpdate says whether system instruction and tools can change in place.
	ContextUpdate bool

	// Seeds says whether a fresh session can get an earlier conversation.
	Seeds bool

	// Appends says whether turns can be added in mid-session without asking for an answer.
	Appends bool

	// Forgets is set where a handle that comes on a resumed connection may stand for the turns of that connection alone.
	Forgets bool

	// ForgetsLong is set where a session that is resumed with a long system instruction has forgotten the conversation: see
	// [Config.IsLong].
	ForgetsLong bool

	// EndSilence is how much silence the model must hear behind a speech to find its end, where the sound stops; 0:
	// audioStreamEnd is enough for it.
	EndSilence time.Duration

	// AnswersAfterTurn is set where an answer to a call that does not block is dropped if it comes before the end of the turn that
	// has called.
	AnswersAfterTurn bool

	// GoesOn models take up an answer again that an empty turn of the client has interrupted.
	GoesOn bool

	// MarksNoSpeech models write "<no speech>" into the transcript of a turn in which they say nothing.
	MarksNoSpeech bool

	// Proactive models may hear speech and decide not to answer it.
	Proactive bool

	// Slow models think for many seconds before they answer, and are at rest at interactionStatus IDLE, not at
	// turnComplete.
	Slow bool

	// Writes is set for a model that is none of the Live API's: package writer lets it take part in a conversation.
	Writes bool
}

// longInstruction is how many bytes a long system instruction has: the 200 tokens that were reported (cookbook #1197), at four bytes each.
const longInstruction = 800

// IsLong reports whether the system instruction is so long that a model that ForgetsLong forgets the conversation at a resume.
func (c Config) IsLong() bool {
	return c.setup["systemInstruction"] != nil && len(tools.Encode(c.setup["systemInstruction"])) > longInstruction
}

// Speaks reports whether the model answers in voice.
func (c Config) Speaks() bool {
	modalities, _ := get(c.setup, "generationConfig.responseModalities").([]any)
	return !c.Profile.Writes && len(modalities) > 0 && modalities[0] == "AUDIO"
}

// EndSilence is how much silence must go up behind a speech of which no more sound comes; 0: audioStreamEnd is enough.
func (c Config) EndSilence() time.Duration {
	if c.Options.Manual || c.Profile.EndSilence == 0 {
		return 0
	}
	return max(c.Profile.EndSilence, c.Options.EndPause+time.Second) // the same margin as without a silence of the client's
}

// Findings are what a server was found to do otherwise than the table assumes of its model. nil fields: as the table says.
type Findings struct {
	Forgets      *bool // see [Profile]
	ForgetsLong  *bool // likewise
	NeedsSilence *bool // audioStreamEnd does not end a turn: see Profile.EndSilence
}

// apply changes a profile as was found.
func (f Findings) apply(p *Profile) {
	if f.Forgets != nil {
		p.Forgets = *f.Forgets
	}
	if f.ForgetsLong != nil {
		p.ForgetsLong = *f.ForgetsLong
	}
	switch {
	case f.NeedsSilence == nil:
	case *f.NeedsSilence:
		p.EndSilence = endSilence
	default:
		p.EndSilence = 0
	}
}

// Typed returns a typed turn in the form that the model takes in mid-session. Parts is a JSON array of Part.
//
// A model that takes no clientContent then gets images as video frames and after them the text as realtime text. It may
// answer an incomplete turn, since realtime text has no such mark, and parts of other kinds are left out.
func (c Config) Typed(parts json.RawMessage, complete bool) []wire.ClientMessage {
	if c.Profile.Appends || !c.Profile.Seeds {
		content := &wire.ClientContent{TurnComplete: complete}
		if trimmed := bytes.TrimSpace(parts); len(trimmed) > 0 && !bytes.Equal(trimmed, []byte("null")) && !emptyArray(trimmed) {
			content.Turns = []wire.Content{{Role: "user", Parts: parts}}
		} else if !complete {
			return nil
		}
		return []wire.ClientMessage{{ClientContent: content}}
	}
	var list []map[string]any
	if json.Unmarshal(parts, &list) != nil {
		return nil
	}
	var messages []wire.ClientMessage
	var text []string
	for _, part := range list {
		part = camelKeys(part)
		if said, ok := part["text"].(string); ok && said != "" {
			text = append(text, said)
		}
		if data, ok := part["inlineData"].(map[string]any); ok {
			if frame := imageBlob(camelKeys(data)); frame != nil {
				messages = append(messages, wire.ClientMessage{RealtimeInput: &wire.RealtimeInput{Video: frame}})
			}
		}
	}
	if len(text) > 0 {
		messages = append(messages, wire.ClientMessage{RealtimeInput: &wire.RealtimeInput{Text: strings.Join(text, "\n")}})
	}
	return messages
}

func emptyArray(trimmed []byte) bool {
	return trimmed[0] == '[' && len(bytes.TrimSpace(trimmed[1:])) == 1
}

// imageBlob returns the image in an inlineData object, or nil.
func imageBlob(data map[string]any) *wire.Blob {
	mime, _ := data["mimeType"].(string)
	encoded, _ := data["data"].(string)
	image, err := wire.AppendBase64(nil, []byte(encoded))
	if err != nil || len(image) == 0 || !strings.HasPrefix(strings.ToLower(mime), "image/") {
		return nil
	}
	return &wire.Blob{MIMEType: mime, Data: image}
}

// InPlace returns the message that changes an open session of c into one of next. It is false if that needs a new
// connection; nil and true if nothing has to be said. The caller goes on with next either way: what is ours alone, as
// Options.MaxDuration, may differ.
//
// A system instruction can be replaced and not be taken away: a contextUpdate changes only the fields it has
// (https://ai.google.dev/api/live, LiveClientContextUpdate).
func (c Config) InPlace(next Config) (*wire.ContextUpdate, bool) {
	if c.Options.Resumption != next.Options.Resumption {
		return nil, false
	}
	was, will := maps.Clone(c.setup), maps.Clone(next.setup)
	instruction, update := differs(was, will, "systemInstruction"), &wire.ContextUpdate{}
	functions := differs(was, will, "tools")
	delete(was, "systemInstruction")
	delete(will, "systemInstruction")
	delete(was, "tools")
	delete(will, "tools")
	switch {
	case !bytes.Equal(tools.Encode(was), tools.Encode(will)):
		return nil, false
	case !instruction && !functions:
		return nil, true
	case !c.Profile.ContextUpdate:
		return nil, false
	}
	if instruction {
		if next.setup["systemInstruction"] == nil {
			return nil, false
		}
		update.SystemInstruction = tools.Encode(next.setup["systemInstruction"])
	}
	if functions {
		update.Tools = json.RawMessage(`{}`)
		if next.setup["tools"] != nil {
			update.Tools = tools.Encode(map[string]any{"tools": next.setup["tools"]})
		}
	}
	return update, true
}

func differs(a, b map[string]any, name string) bool {
	return !bytes.Equal(tools.Encode(a[name]), tools.Encode(b[name]))
}
