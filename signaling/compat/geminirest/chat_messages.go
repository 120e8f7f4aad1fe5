package geminirest

import (
	"cmp"
	"encoding/json"
	"strings"

	"voxgate/tools"
)

// This file declares the parts of the chat completions API that this package uses
// (https://platform.openai.com/docs/api-reference/chat). OpenAI's own Go module is not used, because it takes two
// minutes to compile.

type chatRequest struct {
	Model          string        `json:"model"`
	Messages       []chatMessage `json:"messages"`
	Tools          []chatTool    `json:"tools,omitempty"`
	ToolChoice     any           `json:"tool_choice,omitempty"` // none, required, or a chatTool
	ResponseFormat *chatFormat   `json:"response_format,omitempty"`
	Temperature    *float64      `json:"temperature,omitempty"`
	TopP           *float64      `json:"top_p,omitempty"`
	MaxTokens      *int          `json:"max_completion_tokens,omitempty"`
	Stop           []string      `json:"stop,omitempty"`
	Seed           *int64        `json:"seed,omitempty"`
	Stream         bool          `json:"stream,omitempty"`
	StreamOptions  *chatStream   `json:"stream_options,omitempty"`
}

type chatStream struct {
	IncludeUsage bool `json:"include_usage"`
}

type chatMessage struct {
	Role       string     `json:"role"`
	Content    any        `json:"content,omitempty"` // a string, or a []chatPart
	ToolCalls  []chatCall `json:"tool_calls,omitempty"`
	ToolCallID string     `json:"tool_call_id,omitempty"`
}

type chatPart struct {
	Type     string     `json:"type"` // text or image_url
	Text     string     `json:"text,omitempty"`
	ImageURL *chatImage `json:"image_url,omitempty"`
}

type chatImage struct {
	URL string `json:"url"`
}

// chatCall is a tool call. In a stream, it is a piece of the call whose index is Index.
type chatCall struct {
	Index    *callIndex       `json:"index,omitempty"`
	ID       string           `json:"id,omitempty"`
	Type     string           `json:"type,omitempty"`
	Function chatFunctionCall `json:"function"`
}

type chatFunctionCall struct {
	Name      string        `json:"name,omitempty"`
	Arguments callArguments `json:"arguments"`
}

// callIndex is the position of a call in the list of calls. Some servers send it as a string.
type callIndex int

// UnmarshalJSON implements [json.Unmarshaler].
func (i *callIndex) UnmarshalJSON(raw []byte) error {
	value, err := tools.Decode(raw)
	*i = callIndex(toInt(value))
	return err
}

// callArguments are the arguments of a call as JSON text. Some servers send the JSON object instead of a text.
type callArguments string

// UnmarshalJSON implements [json.Unmarshaler].
func (a *callArguments) UnmarshalJSON(raw []byte) error {
	switch raw[0] {
	case '"':
		return json.Unmarshal(raw, (*string)(a))
	case 'n':
		return nil
	}
	*a = callArguments(raw)
	return nil
}

// chatContent is the text of a message. Some servers send a part instead, or a list of parts and strings.
type chatContent string

// UnmarshalJSON implements [json.Unmarshaler].
func (c *chatContent) UnmarshalJSON(raw []byte) error {
	value, err := tools.Decode(raw)
	*c = chatContent(extractText(value))
	return err
}

// extractText returns the text of a string, a part, or a list of these.
func extractText(value any) string {
	switch v := value.(type) {
	case string:
		return v
	case object:
		return extractText(cmp.Or[any](v["text"], v["content"], v["value"]))
	case []any:
		var b strings.Builder
		for _, part := range v {
			b.WriteString(extractText(part))
		}
		return b.String()
	}
	return ""
}

// chatError is an error of a server. In JSON it is OpenAI's object, or only a string.
type chatError struct{ Message string }

// UnmarshalJSON implements [json.Unmarshaler].
func (e *chatError) UnmarshalJSON(raw []byte) error {
	if raw[0] == '"' {
		return json.Unmarshal(raw, &e.Message)
	}
	var fields struct {
		Message string `json:"message"`
	}
	err := json.Unmarshal(raw, &fields)
	e.Message = fields.Message
	return err
}

type chatTool struct {
	Type     string       `json:"type"` // function
	Function chatFunction `json:"function"`
}

type chatFunction struct {
	Name        string          `json:"name"`
	Description string          `json:"description,omitempty"`
	Parameters  json.RawMessage `json:"parameters,omitempty"`
}

type chatFormat struct {
	Type       string      `json:"type"` // json_object or json_schema
	JSONSchema *chatSchema `json:"json_schema,omitempty"`
}

type chatSchema struct {
	Name   string          `json:"name"`
	Schema json.RawMessage `json:"schema"`
}

// chatResponse is a response, or a chunk of a stream.
type chatResponse struct {
	chatErrorResponse
	Model   string       `json:"model"`
	Choices []chatChoice `json:"choices"`
	Usage   *chatUsage   `json:"usage"`
}

// chatErrorResponse holds the error of a response or of a chunk of a stream.
type chatErrorResponse struct {
	Error *chatError `json:"error"`
}

type chatChoice struct {
	Message      chatOutput `json:"message"`
	Delta        chatOutput `json:"delta"` // in place of Message in a stream
	FinishReason string     `json:"finish_reason"`
}

type chatOutput struct {
	Content          chatContent `json:"content"`
	Refusal          string      `json:"refusal"`
	ReasoningContent string      `json:"reasoning_content"` // DeepSeek's, vLLM's, llama.cpp's
	Reasoning        string      `json:"reasoning"`         // OpenRouter's, Ollama's
	ToolCalls        []chatCall  `json:"tool_calls"`
}

// thoughtText returns the model's thoughts, from either field.
func (c *chatOutput) thoughtText() string { return cmp.Or(c.ReasoningContent, c.Reasoning) }

// chatUsage holds the token counts of a response. Because servers also send decimals, strings or null, an invalid count
// becomes 0 and never causes an error.
type chatUsage struct {
	Prompt, Completion, Cached, Reasoning int
}

// UnmarshalJSON implements [json.Unmarshaler].
func (u *chatUsage) UnmarshalJSON(raw []byte) error {
	value, err := tools.Decode(raw)
	fields, _ := value.(object)
	details := func(name string) object { inner, _ := fields[name].(object); return inner }
	*u = chatUsage{
		Prompt: max(0, toInt(fields["prompt_tokens"])), Completion: max(0, toInt(fields["completion_tokens"])),
		Cached:    max(0, toInt(details("prompt_tokens_details")["cached_tokens"])),
		Reasoning: max(0, toInt(details("completion_tokens_details")["reasoning_tokens"])),
	}
	return err
}

type chatEmbedding struct {
	Model      string   `json:"model"`
	Input      []string `json:"input"`
	Dimensions int      `json:"dimensions,omitempty"`
}
