package rest

import (
	"cmp"
	"encoding/json"
)

// What of chat completions is said and read here: https://platform.openai.com/docs/api-reference/chat. OpenAI's own module has all of
// it, and takes two minutes to compile.

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

// chatCall is a call of a tool, or in a stream a piece of the one with this index.
type chatCall struct {
	Index    *int       `json:"index,omitempty"`
	ID       string     `json:"id,omitempty"`
	Type     string     `json:"type,omitempty"`
	Function chatCalled `json:"function"`
}

type chatCalled struct {
	Name      string        `json:"name,omitempty"`
	Arguments callArguments `json:"arguments"`
}

// callArguments are the arguments of a call as JSON text. Some servers send the object itself.
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

// chatContent is the text of a message, which some servers send as a list of parts.
type chatContent string

// UnmarshalJSON implements [json.Unmarshaler].
func (c *chatContent) UnmarshalJSON(raw []byte) error {
	if raw[0] != '[' {
		return json.Unmarshal(raw, (*string)(c))
	}
	var parts []struct {
		Text string `json:"text"`
	}
	err := json.Unmarshal(raw, &parts)
	for _, p := range parts {
		*c += chatContent(p.Text)
	}
	return err
}

// chatError is what has gone wrong: OpenAI's object, or a text alone.
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

// chatAnswer is an answer, or a piece of a stream.
type chatAnswer struct {
	chatFailure
	Model   string       `json:"model"`
	Choices []chatChoice `json:"choices"`
	Usage   *chatUsage   `json:"usage"`
}

// chatFailure is what has gone wrong, also in the middle of a stream.
type chatFailure struct {
	Error *chatError `json:"error"`
}

type chatChoice struct {
	Message      chatSaid `json:"message"`
	Delta        chatSaid `json:"delta"` // in a stream
	FinishReason string   `json:"finish_reason"`
}

type chatSaid struct {
	Content          chatContent `json:"content"`
	Refusal          string      `json:"refusal"`
	ReasoningContent string      `json:"reasoning_content"` // DeepSeek's, vLLM's, llama.cpp's
	Reasoning        string      `json:"reasoning"`         // OpenRouter's, Ollama's
	ToolCalls        []chatCall  `json:"tool_calls"`
}

// thoughts are what the model thinks, under either name.
func (c *chatSaid) thoughts() string { return cmp.Or(c.ReasoningContent, c.Reasoning) }

type chatUsage struct {
	Prompt        int `json:"prompt_tokens"`
	Completion    int `json:"completion_tokens"`
	PromptDetails struct {
		Cached int `json:"cached_tokens"`
	} `json:"prompt_tokens_details"`
	CompletionDetails struct {
		Reasoning int `json:"reasoning_tokens"`
	} `json:"completion_tokens_details"`
}

type chatEmbedding struct {
	Model      string   `json:"model"`
	Input      []string `json:"input"`
	Dimensions int      `json:"dimensions,omitempty"`
}
