package wire

import "encoding/json"

// Reply collects a model's response to a REST call, which arrives in chunks. The zero value is ready to use.
type Reply struct {
	Tokens       Tokens // tokens so far, from the newest chunk
	finishReason string // the API's finish reason; empty if missing, as with some models
}

// ReplyPart is the decoded content of a Part.
type ReplyPart struct {
	Text         string
	Thought      bool
	FunctionCall *FunctionCall // its ID may be ""
}

// UnfinishedError means that a response was cut off. Reason is the API's finish reason, such as "SAFETY".
type UnfinishedError struct{ Reason string }

func (e *UnfinishedError) Error() string { return "the answer is not finished: " + e.Reason }

// AddChunk adds the next GenerateContentResponse and returns its parts. The parts are not decoded, because a thought
// signature in them must stay unchanged. The error is a [*FrameError].
func (r *Reply) AddChunk(raw json.RawMessage) (parts []json.RawMessage, err error) {
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
		r.finishReason = reason
	}
	if t, err := ParseTokens(piece.UsageMetadata); err == nil && t.Total >= r.Tokens.Total {
		r.Tokens = t
	}
	if len(piece.Candidates) == 0 {
		return nil, nil
	}
	if reason := piece.Candidates[0].FinishReason; reason != "" {
		r.finishReason = reason
	}
	return piece.Candidates[0].Content.Parts, nil
}

// AddText is like AddChunk, but returns only the text of the chunk, without thoughts.
func (r *Reply) AddText(raw json.RawMessage) (text string, err error) {
	parts, err := r.AddChunk(raw)
	for _, raw := range parts {
		if p := ReadPart(raw); !p.Thought {
			text += p.Text
		}
	}
	return text, err
}

// CheckComplete returns an [*UnfinishedError] if the model's finish reason says that the response was cut off. It
// returns nil if the model has sent no finish reason.
func (r *Reply) CheckComplete() error {
	if r.finishReason != "" && r.finishReason != "STOP" {
		return &UnfinishedError{r.finishReason}
	}
	return nil
}

// ReadPart decodes a part. An unreadable part yields a zero ReplyPart.
func ReadPart(raw json.RawMessage) (p ReplyPart) {
	if unmarshal("part", raw, &p) != nil {
		return ReplyPart{}
	}
	return p
}
