package rest

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"

	openai "github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
	"github.com/openai/openai-go/v3/packages/param"
	"github.com/openai/openai-go/v3/shared"
)

// completions translates to a server of chat completions and back: https://platform.openai.com/docs/api-reference/chat.
type completions struct {
	client openai.Client
	model  string // what every model is called there; empty: the same
}

func newOpenAI(o OpenAI, client *http.Client) *completions {
	options := []option.RequestOption{option.WithBaseURL(o.URL), option.WithHTTPClient(client), option.WithMaxRetries(0)} // the client tries again
	if o.Key != "" {
		options = append(options, option.WithAPIKey(o.Key))
	} else {
		options = append(options, option.WithHeaderDel("Authorization"))
	}
	return &completions{openai.NewClient(options...), o.Model}
}

// generation is what of a request can be said in chat completions.
type generation struct {
	Contents          []turn       `json:"contents"`
	SystemInstruction *turn        `json:"systemInstruction"`
	Tools             []geminiTool `json:"tools"`
	ToolConfig        struct {
		FunctionCallingConfig struct {
			Mode                 string   `json:"mode"`
			AllowedFunctionNames []string `json:"allowedFunctionNames"`
		} `json:"functionCallingConfig"`
	} `json:"toolConfig"`
	GenerationConfig struct {
		Temperature        *float64        `json:"temperature"`
		TopP               *float64        `json:"topP"`
		MaxOutputTokens    *int64          `json:"maxOutputTokens"`
		StopSequences      []string        `json:"stopSequences"`
		Seed               *int64          `json:"seed"`
		ResponseMIMEType   string          `json:"responseMimeType"`
		ResponseSchema     json.RawMessage `json:"responseSchema"`
		ResponseJSONSchema json.RawMessage `json:"responseJsonSchema"`
	} `json:"generationConfig"`
}

type geminiTool struct {
	FunctionDeclarations []struct {
		Name                 string          `json:"name"`
		Description          string          `json:"description"`
		Parameters           json.RawMessage `json:"parameters"`
		ParametersJSONSchema json.RawMessage `json:"parametersJsonSchema"`
	} `json:"functionDeclarations"`
}

type turn struct {
	Role  string `json:"role"`
	Parts []struct {
		Text       *string `json:"text"`
		Thought    bool    `json:"thought"`
		InlineData *struct {
			MIMEType string `json:"mimeType"`
			Data     string `json:"data"`
		} `json:"inlineData"`
		FunctionCall *struct {
			ID   string          `json:"id"`
			Name string          `json:"name"`
			Args json.RawMessage `json:"args"`
		} `json:"functionCall"`
		FunctionResponse *struct {
			ID       string          `json:"id"`
			Name     string          `json:"name"`
			Response json.RawMessage `json:"response"`
		} `json:"functionResponse"`
	} `json:"parts"`
}

// text is all of its text but for thoughts.
func (t *turn) text() string {
	var texts []string
	for _, p := range t.Parts {
		if p.Text != nil && !p.Thought {
			texts = append(texts, *p.Text)
		}
	}
	return strings.Join(texts, "\n")
}

// invalid refuses a request that cannot be translated.
func invalid(format string, args ...any) error {
	return &refused{http.StatusBadRequest, errorObject(http.StatusBadRequest, fmt.Sprintf(format, args...), 0), ""}
}

// translate is a request in the words of chat completions.
func (c *completions) translate(model string, request []byte) (openai.ChatCompletionNewParams, error) {
	var g generation
	if err := json.Unmarshal(request, &g); err != nil {
		return openai.ChatCompletionNewParams{}, invalid("The request cannot be read: %v.", err)
	}
	if len(g.Contents) == 0 {
		return openai.ChatCompletionNewParams{}, invalid("contents is not specified.")
	}
	p := openai.ChatCompletionNewParams{Model: cmp.Or(c.model, model)}
	if g.SystemInstruction != nil {
		p.Messages = append(p.Messages, openai.SystemMessage(g.SystemInstruction.text()))
	}
	calls := &callIDs{}
	for i := range g.Contents {
		messages, err := g.Contents[i].messages(calls)
		if err != nil {
			return p, err
		}
		p.Messages = append(p.Messages, messages...)
	}
	config := g.GenerationConfig
	if config.Temperature != nil {
		p.Temperature = param.NewOpt(*config.Temperature)
	}
	if config.TopP != nil {
		p.TopP = param.NewOpt(*config.TopP)
	}
	if config.MaxOutputTokens != nil {
		p.MaxCompletionTokens = param.NewOpt(*config.MaxOutputTokens)
	}
	if config.Seed != nil {
		p.Seed = param.NewOpt(*config.Seed)
	}
	if len(config.StopSequences) > 0 {
		p.Stop = openai.ChatCompletionNewParamsStopUnion{OfStringArray: config.StopSequences}
	}
	if config.ResponseMIMEType == "application/json" {
		p.ResponseFormat = format(config.ResponseJSONSchema, config.ResponseSchema)
	}
	g.tools(&p)
	return p, nil
}

// format is the form of an answer in JSON, by a schema if there is one.
func format(jsonSchema, schema json.RawMessage) openai.ChatCompletionNewParamsResponseFormatUnion {
	if jsonSchema == nil {
		jsonSchema = lowerTypes(schema)
	}
	if jsonSchema == nil {
		return openai.ChatCompletionNewParamsResponseFormatUnion{OfJSONObject: &shared.ResponseFormatJSONObjectParam{}}
	}
	return openai.ChatCompletionNewParamsResponseFormatUnion{OfJSONSchema: &shared.ResponseFormatJSONSchemaParam{
		JSONSchema: shared.ResponseFormatJSONSchemaJSONSchemaParam{Name: "answer", Schema: jsonSchema},
	}}
}

// lowerTypes makes JSON Schema of Google's Schema, whose types are in upper case.
func lowerTypes(schema json.RawMessage) json.RawMessage {
	var v any
	if len(schema) == 0 || json.Unmarshal(schema, &v) != nil {
		return nil
	}
	var walk func(v any)
	walk = func(v any) {
		switch v := v.(type) {
		case object:
			if t, ok := v["type"].(string); ok {
				v["type"] = strings.ToLower(t)
			}
			for _, inner := range v {
				walk(inner)
			}
		case []any:
			for _, inner := range v {
				walk(inner)
			}
		}
	}
	walk(v)
	text, err := json.Marshal(v)
	if err != nil {
		return nil // what was read can be written
	}
	return text
}

func (g *generation) tools(p *openai.ChatCompletionNewParams) {
	for _, t := range g.Tools {
		for _, f := range t.FunctionDeclarations {
			schema := f.ParametersJSONSchema
			if schema == nil {
				schema = lowerTypes(f.Parameters)
			}
			function := shared.FunctionDefinitionParam{Name: f.Name}
			if f.Description != "" {
				function.Description = param.NewOpt(f.Description)
			}
			if schema != nil {
				_ = json.Unmarshal(schema, &function.Parameters) // one that is no object is none
			}
			p.Tools = append(p.Tools, openai.ChatCompletionFunctionTool(function))
		}
	}
	how := g.ToolConfig.FunctionCallingConfig
	switch {
	case len(p.Tools) == 0:
	case how.Mode == "NONE":
		p.ToolChoice.OfAuto = param.NewOpt("none")
	case how.Mode == "ANY" && len(how.AllowedFunctionNames) == 1:
		p.ToolChoice.OfFunctionToolChoice = &openai.ChatCompletionNamedToolChoiceParam{
			Function: openai.ChatCompletionNamedToolChoiceFunctionParam{Name: how.AllowedFunctionNames[0]},
		}
	case how.Mode == "ANY":
		p.ToolChoice.OfAuto = param.NewOpt("required")
	}
}

// callIDs gives calls without an id one, and their answers, which come in the same order, the same.
type callIDs struct {
	made    int
	waiting []struct{ id, name string }
}

func (c *callIDs) call(id, name string) string {
	if id == "" {
		c.made++
		id = fmt.Sprintf("call_%d", c.made)
	}
	c.waiting = append(c.waiting, struct{ id, name string }{id, name})
	return id
}

func (c *callIDs) answer(id, name string) string {
	for i, w := range c.waiting {
		if id == w.id || id == "" && name == w.name {
			c.waiting = append(c.waiting[:i], c.waiting[i+1:]...)
			return w.id
		}
	}
	return cmp.Or(id, name)
}

// messages are a turn in the words of chat completions: the answers of tools are messages of their own.
func (t *turn) messages(calls *callIDs) (list []openai.ChatCompletionMessageParamUnion, err error) {
	if t.Role == "model" {
		message := openai.ChatCompletionAssistantMessageParam{}
		if text := t.text(); text != "" {
			message.Content.OfString = param.NewOpt(text)
		}
		for _, p := range t.Parts {
			if f := p.FunctionCall; f != nil {
				message.ToolCalls = append(message.ToolCalls, openai.ChatCompletionMessageToolCallUnionParam{
					OfFunction: &openai.ChatCompletionMessageFunctionToolCallParam{
						ID:       calls.call(f.ID, f.Name),
						Function: openai.ChatCompletionMessageFunctionToolCallFunctionParam{Name: f.Name, Arguments: cmp.Or(string(f.Args), "{}")},
					},
				})
			}
		}
		return []openai.ChatCompletionMessageParamUnion{{OfAssistant: &message}}, nil
	}
	var parts []openai.ChatCompletionContentPartUnionParam
	for i, p := range t.Parts {
		switch {
		case p.FunctionResponse != nil:
			f := p.FunctionResponse
			list = append(list, openai.ToolMessage(cmp.Or(string(f.Response), "{}"), calls.answer(f.ID, f.Name)))
		case p.InlineData != nil && strings.HasPrefix(p.InlineData.MIMEType, "image/"):
			url := "data:" + p.InlineData.MIMEType + ";base64," + p.InlineData.Data
			parts = append(parts, openai.ImageContentPart(openai.ChatCompletionContentPartImageImageURLParam{URL: url}))
		case p.InlineData != nil:
			return nil, invalid("parts[%d].inlineData: %s cannot be shown to this model; images can.", i, p.InlineData.MIMEType)
		case p.Text != nil:
			parts = append(parts, openai.TextContentPart(*p.Text))
		}
	}
	if len(parts) == 1 && parts[0].OfText != nil {
		list = append(list, openai.UserMessage(parts[0].OfText.Text)) // the form that every server knows
	} else if len(parts) > 0 {
		list = append(list, openai.UserMessage(parts))
	}
	return list, nil
}

// finishReasons are Google's: https://ai.google.dev/api/generate-content#FinishReason.
var finishReasons = map[string]string{
	"stop": "STOP", "length": "MAX_TOKENS", "tool_calls": "STOP", "function_call": "STOP", "content_filter": "SAFETY",
}

// piece is an answer, or a piece of one, in Google's words.
func piece(parts []any, finish string, usage openai.CompletionUsage, model string) object {
	candidate := object{"content": object{"parts": parts, "role": "model"}}
	if finish != "" {
		candidate["finishReason"] = cmp.Or(finishReasons[finish], "OTHER")
	}
	answer := object{"candidates": []any{candidate}, "modelVersion": model}
	if usage.TotalTokens > 0 {
		thoughts := usage.CompletionTokensDetails.ReasoningTokens // are among those of the completion
		answer["usageMetadata"] = object{
			"promptTokenCount": int(usage.PromptTokens), "candidatesTokenCount": int(usage.CompletionTokens - thoughts), "thoughtsTokenCount": int(thoughts),
			"cachedContentTokenCount": int(usage.PromptTokensDetails.CachedTokens),
		}
	}
	return answer
}

// functionCall is a call in Google's words. Arguments that are no object are told as they are, for the client to refuse.
func functionCall(id, name, arguments string) object {
	var args object
	if decode([]byte(arguments), &args) != nil && strings.TrimSpace(arguments) != "" {
		args = object{"arguments": arguments}
	}
	return object{"functionCall": object{"id": id, "name": name, "args": args}}
}

func (c *completions) generate(ctx context.Context, model string, request []byte, streams bool) (func() (object, error), error) {
	p, err := c.translate(model, request)
	if err != nil {
		return nil, err
	}
	if streams {
		p.StreamOptions.IncludeUsage = param.NewOpt(true)
		return c.stream(ctx, p)
	}
	answer, err := c.client.Chat.Completions.New(ctx, p)
	if err != nil {
		return nil, refusedBy(err)
	}
	if len(answer.Choices) == 0 {
		return nil, errors.New("the backend has answered with no choice")
	}
	said := answer.Choices[0]
	parts := []any{}
	if text := said.Message.Content + said.Message.Refusal; text != "" {
		parts = append(parts, object{"text": text})
	}
	for _, call := range said.Message.ToolCalls {
		parts = append(parts, functionCall(call.ID, call.Function.Name, call.Function.Arguments))
	}
	return once(encode(piece(parts, said.FinishReason, answer.Usage, answer.Model))), nil
}

// stream gathers the arguments of calls, which come in pieces, until all is said: Google has no half calls.
func (c *completions) stream(ctx context.Context, p openai.ChatCompletionNewParams) (func() (object, error), error) {
	from := c.client.Chat.Completions.NewStreaming(ctx, p)
	if err := from.Err(); err != nil {
		return nil, refusedBy(err)
	}
	context.AfterFunc(ctx, func() { from.Close() })
	var calls []struct{ id, name, arguments string }
	var finish string
	var usage openai.CompletionUsage
	over := false
	return func() (object, error) {
		for !over && from.Next() {
			chunk := from.Current()
			if chunk.Usage.TotalTokens > 0 {
				usage = chunk.Usage
			}
			if len(chunk.Choices) == 0 {
				continue
			}
			said := chunk.Choices[0]
			finish = cmp.Or(said.FinishReason, finish)
			for _, call := range said.Delta.ToolCalls {
				for int(call.Index) >= len(calls) && len(calls) < maxCalls {
					calls = append(calls, struct{ id, name, arguments string }{})
				}
				if call.Index < 0 || int(call.Index) >= len(calls) {
					return nil, fmt.Errorf("a call has the index %d", call.Index)
				}
				at := &calls[call.Index]
				at.id, at.name, at.arguments = cmp.Or(at.id, call.ID), at.name+call.Function.Name, at.arguments+call.Function.Arguments
			}
			if text := said.Delta.Content + said.Delta.Refusal; text != "" {
				return piece([]any{object{"text": text}}, "", openai.CompletionUsage{}, chunk.Model), nil
			}
		}
		if over {
			return nil, io.EOF
		}
		if err := from.Err(); err != nil {
			return nil, refusedBy(err)
		}
		over = true
		parts := []any{}
		for _, call := range calls {
			parts = append(parts, functionCall(call.id, call.name, call.arguments))
		}
		return piece(parts, cmp.Or(finish, "stop"), usage, string(p.Model)), nil
	}, nil
}

// maxCalls bounds the calls of one answer.
const maxCalls = 128

// refusedBy is an error of the server in Google's shape.
func refusedBy(err error) error {
	var said *openai.Error
	if !errors.As(err, &said) || said.StatusCode == 0 {
		return err
	}
	after := ""
	if said.Response != nil {
		after = said.Response.Header.Get("Retry-After")
	}
	return &refused{said.StatusCode, errorObject(said.StatusCode, cmp.Or(said.Message, http.StatusText(said.StatusCode)), 0), after}
}

// ask serves embeddings; there is nothing that counts tokens, and models are what the file says.
func (c *completions) ask(ctx context.Context, _, model, method string, request []byte) ([]byte, error) {
	var q struct {
		Content              turn  `json:"content"`
		OutputDimensionality int64 `json:"outputDimensionality"`
		Requests             []struct {
			Content              turn  `json:"content"`
			OutputDimensionality int64 `json:"outputDimensionality"`
		} `json:"requests"`
	}
	if method != "embedContent" && method != "batchEmbedContents" {
		return nil, &refused{http.StatusNotImplemented, errorObject(http.StatusNotImplemented, "The server behind this model cannot do that.", 0), ""}
	}
	if err := json.Unmarshal(request, &q); err != nil {
		return nil, invalid("The request cannot be read: %v.", err)
	}
	texts, dimensions := []string{q.Content.text()}, q.OutputDimensionality
	if method == "batchEmbedContents" {
		texts = nil
		for _, r := range q.Requests {
			texts, dimensions = append(texts, r.Content.text()), r.OutputDimensionality
		}
	}
	p := openai.EmbeddingNewParams{Model: cmp.Or(c.model, model), Input: openai.EmbeddingNewParamsInputUnion{OfArrayOfStrings: texts}}
	if dimensions > 0 {
		p.Dimensions = param.NewOpt(dimensions)
	}
	answer, err := c.client.Embeddings.New(ctx, p)
	if err != nil {
		return nil, refusedBy(err)
	}
	list := []any{}
	for _, e := range answer.Data {
		list = append(list, object{"values": e.Embedding})
	}
	switch {
	case len(list) != len(texts):
		return nil, fmt.Errorf("the backend has answered %d texts with %d embeddings", len(texts), len(list))
	case method == "embedContent":
		return encode(object{"embedding": list[0]}), nil
	}
	return encode(object{"embeddings": list}), nil
}
