package bridge

import (
	"encoding/json"

	"voxgate/bridge/gemini/wire"
)

// fields is what the client gets of c at once, and what it gets when it is heard. A client that asked a speaking model for
// text reads the transcript as its answer.
func (s *Session) fields(c *wire.ServerContent) (now, heard json.RawMessage) {
	if c.OutputTranscription == "" {
		return c.Fields, nil
	}
	fields := map[string]json.RawMessage{}
	if err := json.Unmarshal(c.Fields, &fields); err != nil {
		return c.Fields, nil
	}
	heard = wrapField("outputTranscription", fields["outputTranscription"])
	delete(fields, "outputTranscription")
	if config := s.keeper.Config(); config.TextOnly || config.TextToo {
		text, err := json.Marshal(c.OutputTranscription)
		if err != nil {
			return c.Fields, nil // a string encodes
		}
		heard = wrapField("modelTurn", json.RawMessage(`{"role":"model","parts":[{"text":`+string(text)+`}]}`))
	}
	if len(fields) == 0 {
		return nil, heard
	}
	now, err := json.Marshal(fields)
	if err != nil {
		return c.Fields, nil
	}
	return now, heard
}

// textOfTurn is the text that the model wrote, and its thoughts. wrote is false if there are only thoughts.
func textOfTurn(fields json.RawMessage) (text, thoughts string, wrote bool) {
	var c struct {
		ModelTurn struct {
			Parts []struct {
				Text    string
				Thought bool
			}
		}
	}
	if json.Unmarshal(fields, &c) != nil {
		return "", "", false
	}
	for _, p := range c.ModelTurn.Parts {
		if p.Thought {
			thoughts += p.Text
			continue
		}
		text += p.Text
		wrote = true
	}
	return text, thoughts, wrote
}

// wrapField puts a field that Gemini sends beside serverContent into one, where clients look.
func wrapField(name string, value json.RawMessage) json.RawMessage {
	b, err := json.Marshal(map[string]json.RawMessage{name: value})
	if err != nil {
		return json.RawMessage(`{}`)
	}
	return b
}

// grounding is what a search has found. Google's terms want its suggestions shown as they come
// (https://ai.google.dev/gemini-api/docs/google-search, Search Suggestions), which is HTML of strangers: a page of its own.
func (s *Session) grounding(metadata json.RawMessage) Grounding {
	var m struct {
		SearchEntryPoint struct{ RenderedContent string }
	}
	g := Grounding{Metadata: metadata}
	if json.Unmarshal(metadata, &m) == nil && m.SearchEntryPoint.RenderedContent != "" && s.host.options.Chips != nil && s.open.Origin.Screen {
		g.Chips = s.host.options.Chips(m.SearchEntryPoint.RenderedContent)
	}
	return g
}
