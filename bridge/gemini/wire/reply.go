package wire

import "encoding/json"

// Reply is a model's answer to a REST call, as it comes in pieces. The zero value is ready.
type Reply struct {
	Tokens Tokens // so far, as the newest piece reports them
	ended  string // as the API has it; empty: nothing was said of it, which some models forget
}

// ReplyPart is what is read of a Part.
type ReplyPart struct {
	Text         string
	Thought      bool
	FunctionCall *FunctionCall // its ID is "" if the model gave none
}

// UnfinishedError is the end of an answer that is not the model's own: the API's word for why, as "SAFETY".
type UnfinishedError struct{ Reason string }

func (e *UnfinishedError) Error() string { return "the answer is not finished: " + e.Reason }

// Add reads the next GenerateContentResponse, and returns its parts as they came: they may be signed. An error is a [*FrameError].
func (r *Reply) Add(raw json.RawMessage) (parts []json.RawMessage, err error) {
	var piece struct {
		Candidates []struct {
			Content      struct{ Parts []json.RawMessage }
			FinishReason string
		}
		PromptFeedback struct{ BlockReason string }
		UsageMetadata  json.RawMessage
	}
	if err := unmarshal("a GenerateContentResponse", raw, &piece); err != nil {
		return nil, err
	}
	if reason := piece.PromptFeedback.BlockReason; reason != "" {
		r.ended = reason
	}
	if t, err := ParseTokens(piece.UsageMetadata); err == nil && t.Total >= r.Tokens.Total {
		r.Tokens = t
	}
	if len(piece.Candidates) == 0 {
		return nil, nil
	}
	if reason := piece.Candidates[0].FinishReason; reason != "" {
		r.ended = reason
	}
	return piece.Candidates[0].Content.Parts, nil
}

// AddText is Add, but returns the text alone, without thoughts.
func (r *Reply) AddText(raw json.RawMessage) (text string, err error) {
	parts, err := r.Add(raw)
	for _, raw := range parts {
		if p := ReadPart(raw); !p.Thought {
			text += p.Text
		}
	}
	return text, err
}

// End is nil if the model has come to its own end, as far as is known, and else an [*UnfinishedError].
func (r *Reply) End() error {
	if r.ended != "" && r.ended != "STOP" {
		return &UnfinishedError{r.ended}
	}
	return nil
}

// ReadPart reads a part. What cannot be read says nothing.
func ReadPart(raw json.RawMessage) (p ReplyPart) {
	if unmarshal("part", raw, &p) != nil {
		return ReplyPart{}
	}
	return p
}
