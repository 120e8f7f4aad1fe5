package traces

import (
	"encoding/json"
	"slices"
	"strings"
)

// server holds the fields of a server message that Kind uses.
type server struct {
	SetupComplete *struct{ SessionID string }
	ServerContent *struct {
		ModelTurn *struct {
			Parts []struct {
				Text           string
				Thought        bool
				InlineData     *struct{ MIMEType string }
				ExecutableCode json.RawMessage
			}
		}
		InputTranscription, OutputTranscription *struct {
			Text     string
			Finished bool
		}
		Interrupted, GenerationComplete, TurnComplete bool
		TurnCompleteReason, InteractionStatus         string
		GroundingMetadata                             json.RawMessage
	}
	ToolCall                *struct{ FunctionCalls []struct{ ID, Name string } }
	ToolCallCancellation    json.RawMessage
	UsageMetadata           *struct{ ResponseTokensDetails, CandidatesTokensDetails []any }
	GoAway                  *struct{ TimeLeft string }
	SessionResumptionUpdate *struct {
		NewHandle string
		Resumable bool
	}
	VoiceActivity *struct{ Type string }
}

// Kind returns the names of the parts of a server message, in a fixed order: "voice+transcript" or
// "turnComplete+usage".
func Kind(msg json.RawMessage) string {
	var m server
	if err := json.Unmarshal(msg, &m); err != nil {
		return "unreadable"
	}
	var parts []string
	add := func(name string, is bool) {
		if is && !slices.Contains(parts, name) {
			parts = append(parts, name)
		}
	}
	add("setupComplete", m.SetupComplete != nil)
	if c := m.ServerContent; c != nil {
		if c.ModelTurn != nil {
			for _, p := range c.ModelTurn.Parts {
				add("voice", p.InlineData != nil && strings.HasPrefix(p.InlineData.MIMEType, "audio/"))
				add("code", p.ExecutableCode != nil)
				add("thought", p.Thought)
				add("text", p.Text != "" && !p.Thought)
			}
		}
		if t := c.InputTranscription; t != nil {
			add("inputTranscription", true)
		}
		if t := c.OutputTranscription; t != nil {
			switch {
			case t.Text != "":
				add("transcript", true)
			case t.Finished:
				add("transcript finished", true)
			default:
				add("transcript begins", true)
			}
		}
		add("interrupted", c.Interrupted)
		add("generationComplete", c.GenerationComplete)
		add("turnComplete", c.TurnComplete)
		add(c.InteractionStatus, c.InteractionStatus != "")
		add(c.TurnCompleteReason, c.TurnCompleteReason != "")
		add("groundingMetadata", c.GroundingMetadata != nil)
		add("serverContent {}", len(parts) == 0 && m.VoiceActivity == nil)
	}
	add("toolCall", m.ToolCall != nil)
	add("toolCallCancellation", m.ToolCallCancellation != nil)
	add("usage", m.UsageMetadata != nil)
	add("goAway", m.GoAway != nil)
	if u := m.SessionResumptionUpdate; u != nil {
		add("handle", u.NewHandle != "")
		add("no handle", u.NewHandle == "")
	}
	if a := m.VoiceActivity; a != nil {
		add(a.Type, true)
		add("serverContent {}", m.ServerContent != nil && len(parts) == 1) // version 3.1 sends an empty serverContent together with other fields
	}
	if len(parts) == 0 {
		return "{}"
	}
	return strings.Join(parts, "+")
}
