package geminirest

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"voxgate/bridge/gemini/api"
	"voxgate/bridge/gemini/wire"
	"voxgate/signaling"
	"voxgate/tools"
)

// chatBackend is a backend with the chat completions API: https://platform.openai.com/docs/api-reference/chat. It
// translates requests from Google's format, and responses to it.
type chatBackend struct {
	url    string
	key    string
	model  string // the server's name for all models; empty means the requested name
	client *http.Client
}

func newChatBackend(o OpenAI, client *http.Client) *chatBackend {
	return &chatBackend{strings.TrimRight(o.URL, "/"), o.Key, o.Model, client}
}

// generateRequest holds the fields of a GenerateContentRequest that chat completions support.
type generateRequest struct {
	Contents          oneOrMore[turn] `json:"contents"`
	SystemInstruction *turn           `json:"systemInstruction"`
	Tools             []geminiTool    `json:"tools"`
	ToolConfig        struct {
		FunctionCallingConfig struct {
			Mode                 string   `json:"mode"`
			AllowedFunctionNames []string `json:"allowedFunctionNames"`
		} `json:"functionCallingConfig"`
	} `json:"toolConfig"`
	GenerationConfig struct {
		Temperature        *float64        `json:"temperature"`
		TopP               *float64        `json:"topP"`
		MaxOutputTokens    *int            `json:"maxOutputTokens"`
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
	Role  string              `json:"role"`
	Parts oneOrMore[turnPart] `json:"parts"`
}

// turnPart is a part of a turn.
type turnPart struct {
	Text       *string `json:"text"`
	Thought    bool    `json:"thought"`
	FileData   *object `json:"fileData"`
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
}

// joinTextWithoutThoughts joins the texts of the parts by separator. It leaves out parts with thoughts.
func (t *turn) joinTextWithoutThoughts(separator string) string {
	var texts []string
	for _, p := range t.Parts {
		if p.Text != nil && !p.Thought {
			texts = append(texts, *p.Text)
		}
	}
	return strings.Join(texts, separator)
}

// badRequest returns the error for a request that cannot be translated.
func badRequest(format string, args ...any) error {
	return &backendError{http.StatusBadRequest, signaling.GoogleError(http.StatusBadRequest, fmt.Sprintf(format, args...), 0), ""}
}

// translateRequest converts Google's request to a chat completions request.
func (c *chatBackend) translateRequest(model string, request []byte) (chatRequest, error) {
	var g generateRequest
	if err := tools.ReadLenientJSON(signaling.NormalizeGoogleJSON(request), &g); err != nil {
		return chatRequest{}, unreadableRequest(err)
	}
	if len(g.Contents) == 0 {
		return chatRequest{}, badRequest("contents is not specified.")
	}
	config := g.GenerationConfig
	q := chatRequest{
		Model: cmp.Or(c.model, model), Temperature: config.Temperature, TopP: config.TopP, MaxTokens: config.MaxOutputTokens,
		Stop: config.StopSequences, Seed: config.Seed,
	}
	if g.SystemInstruction != nil {
		q.Messages = append(q.Messages, chatMessage{Role: "system", Content: g.SystemInstruction.joinTextWithoutThoughts("\n")})
	}
	calls := &callIDs{}
	for i := range g.Contents {
		messages, err := g.Contents[i].toChatMessages(calls, fmt.Sprintf("contents[%d]", i))
		if err != nil {
			return q, err
		}
		q.Messages = append(q.Messages, messages...)
	}
	if q.Messages = addMissingResponses(q.Messages); len(q.Messages) == 0 || q.Messages[len(q.Messages)-1].Role == "system" {
		return q, badRequest("contents has nothing that could be answered.")
	}
	if config.ResponseMIMEType == "application/json" {
		q.ResponseFormat = jsonResponseFormat(config.ResponseJSONSchema, config.ResponseSchema)
	}
	g.addTools(&q)
	return q, nil
}

// jsonResponseFormat returns the response format for JSON, with the schema if the request has one.
func jsonResponseFormat(jsonSchema, schema json.RawMessage) *chatFormat {
	if jsonSchema == nil {
		jsonSchema = toJSONSchema(schema)
	}
	if jsonSchema == nil {
		return &chatFormat{Type: "json_object"}
	}
	return &chatFormat{Type: "json_schema", JSONSchema: &chatSchema{Name: "answer", Schema: jsonSchema}}
}

// toJSONSchema converts Google's Schema to JSON Schema. It returns nil if it cannot read the schema.
func toJSONSchema(schema json.RawMessage) json.RawMessage {
	if standard, err := tools.ToJSONSchema(schema); err == nil {
		return standard
	}
	return nil
}

func (g *generateRequest) addTools(q *chatRequest) {
	how := g.ToolConfig.FunctionCallingConfig
	for _, t := range g.Tools {
		for _, f := range t.FunctionDeclarations {
			if len(how.AllowedFunctionNames) > 0 && how.Mode != "AUTO" && !slices.Contains(how.AllowedFunctionNames, f.Name) {
				continue
			}
			schema := f.ParametersJSONSchema
			if schema == nil {
				schema = toJSONSchema(f.Parameters)
			}
			if len(schema) == 0 { // several servers reject a function without parameters
				schema = json.RawMessage(`{"type":"object","properties":{}}`)
			}
			q.Tools = append(q.Tools, chatTool{"function", chatFunction{Name: f.Name, Description: f.Description, Parameters: schema}})
		}
	}
	switch {
	case len(q.Tools) == 0:
	case how.Mode == "NONE":
		q.ToolChoice = "none"
	case how.Mode == "ANY" && len(q.Tools) == 1 && len(how.AllowedFunctionNames) > 0:
		q.ToolChoice = chatTool{"function", chatFunction{Name: q.Tools[0].Function.Name}}
	case how.Mode == "ANY":
		q.ToolChoice = "required"
	}
}

// callIDs assigns IDs to function calls without an ID, and to their responses. A response without an ID belongs to the
// first pending call with the same function name.
type callIDs struct {
	count   int
	pending []struct{ id, name string }
}

// assignID returns the ID of a function call, or a new ID if the call has none. The call is pending until
// takeMatchingCall returns its ID.
func (c *callIDs) assignID(id, name string) string {
	if id == "" {
		c.count++
		id = fmt.Sprintf("call_%d", c.count)
	}
	c.pending = append(c.pending, struct{ id, name string }{id, name})
	return id
}

// takeMatchingCall finds the pending call that a response answers. It removes the call from the list and returns its
// ID, or "" if no call matches.
func (c *callIDs) takeMatchingCall(id, name string) (callID string) {
	for i, w := range c.pending {
		if id == w.id || id == "" && name == w.name {
			c.pending = append(c.pending[:i], c.pending[i+1:]...)
			return w.id
		}
	}
	return ""
}

// addMissingResponses adds a response after each function call without a response, because servers reject such calls.
// If a response does not follow its call, it becomes a user message.
func addMissingResponses(messages []chatMessage) (list []chatMessage) {
	for len(messages) > 0 {
		asks := messages[0]
		if asks.Role == "tool" { // this response does not follow its call
			asks = chatMessage{Role: "user", Content: fmt.Sprintf("A function has answered: %v", asks.Content)}
		}
		list, messages = append(list, asks), messages[1:]
		got := map[string]bool{}
		for len(asks.ToolCalls) > 0 && len(messages) > 0 && messages[0].Role == "tool" {
			got[messages[0].ToolCallID] = true
			list, messages = append(list, messages[0]), messages[1:]
		}
		for _, call := range asks.ToolCalls {
			if !got[call.ID] {
				list = append(list, chatMessage{Role: "tool", Content: `{"error":"There is no answer."}`, ToolCallID: call.ID})
			}
		}
	}
	return list
}

// toChatMessages converts a turn to chat messages. Each function response becomes a separate message. path is the path
// of the turn, for errors.
func (t *turn) toChatMessages(calls *callIDs, path string) (list []chatMessage, err error) {
	if t.Role == "model" { // joined without spaces, because the parts may be the chunks of a stream
		message := chatMessage{Role: "assistant"}
		if text := t.joinTextWithoutThoughts(""); text != "" {
			message.Content = text
		}
		for _, p := range t.Parts {
			if f := p.FunctionCall; f != nil {
				message.ToolCalls = append(message.ToolCalls, chatCall{
					ID: calls.assignID(f.ID, f.Name), Type: "function", Function: chatFunctionCall{f.Name, callArguments(cmp.Or(string(f.Args), "{}"))},
				})
			}
		}
		if message.Content == nil && message.ToolCalls == nil { // servers reject an empty message; thoughts are not sent
			return nil, nil
		}
		return []chatMessage{message}, nil
	}
	var parts []chatPart
	for i, p := range t.Parts {
		switch {
		case p.FunctionResponse != nil:
			f := p.FunctionResponse
			said := cmp.Or(string(f.Response), "{}")
			if id := calls.takeMatchingCall(f.ID, f.Name); id != "" {
				list = append(list, chatMessage{Role: "tool", Content: said, ToolCallID: id})
			} else { // servers would reject a response without a call
				parts = append(parts, chatPart{Type: "text", Text: fmt.Sprintf("%s has answered: %s", f.Name, said)})
			}
		case p.FileData != nil:
			return nil, badRequest("%s.parts[%d].fileData is a file at Google, which this model cannot read: send inlineData.", path, i)
		case p.InlineData != nil && strings.HasPrefix(p.InlineData.MIMEType, "image/"):
			parts = append(
				parts,
				chatPart{Type: "image_url", ImageURL: &chatImage{"data:" + p.InlineData.MIMEType + ";base64," + p.InlineData.Data}},
			)
		case p.InlineData != nil:
			return nil, badRequest("%s.parts[%d].inlineData: %s cannot be shown to this model; images can.", path, i, p.InlineData.MIMEType)
		case p.Text != nil:
			parts = append(parts, chatPart{Type: "text", Text: *p.Text})
		}
	}
	if len(parts) == 1 && parts[0].Type == "text" {
		list = append(list, chatMessage{Role: "user", Content: parts[0].Text}) // the form that every server supports
	} else if len(parts) > 0 {
		list = append(list, chatMessage{Role: "user", Content: parts})
	}
	return list, nil
}

// finishReasons maps the finish reasons of chat completions to Google's:
// https://ai.google.dev/api/generate-content#FinishReason.
var finishReasons = map[string]string{
	"stop": "STOP", "length": "MAX_TOKENS", "tool_calls": "STOP", "function_call": "STOP", "content_filter": "SAFETY",
	malformedCall: "MALFORMED_FUNCTION_CALL",
}

// buildResponse returns a response, or a part of a stream, in Google's format.
func buildResponse(parts []any, finishReason string, usage *chatUsage, model string) object {
	candidate := object{"content": object{"parts": parts, "role": "model"}}
	if finishReason != "" {
		candidate["finishReason"] = cmp.Or(finishReasons[finishReason], "OTHER")
	}
	answer := object{"candidates": []any{candidate}, "modelVersion": model}
	if usage != nil {
		thoughts := usage.Reasoning // included in the completion tokens
		answer["usageMetadata"] = object{
			"promptTokenCount": usage.Prompt, "candidatesTokenCount": max(0, usage.Completion-thoughts), "thoughtsTokenCount": thoughts,
			"cachedContentTokenCount": usage.Cached,
		}
	}
	return answer
}

// toFunctionCalls converts calls to Google's format. If the arguments of a call are not an object, it returns no parts,
// and the reason malformedCall.
func toFunctionCalls(calls []chatCall, finish string) (parts []any, reason string) {
	parts = []any{}
	for _, call := range calls {
		var args object
		if f := call.Function; strings.TrimSpace(string(f.Arguments)) != "" && decodeObject([]byte(f.Arguments), &args) != nil {
			return []any{}, malformedCall
		}
		parts = append(parts, object{"functionCall": object{"id": call.ID, "name": call.Function.Name, "args": args}})
	}
	return parts, finish
}

// malformedCall is the finish reason for a function call whose arguments are not a JSON object. Chat completions define
// no finish reason for this.
const malformedCall = "malformed"

// thoughtPart returns a part with a model's thoughts.
func thoughtPart(text string) object { return object{"text": text, "thought": true} }

func (c *chatBackend) startGeneration(
	ctx context.Context, model string, request requestBody, isStream bool,
) (next func() (object, error), err error) {
	q, err := c.translateRequest(model, request.text)
	if err != nil {
		return nil, err
	}
	if isStream {
		q.Stream, q.StreamOptions = true, &chatStream{IncludeUsage: true}
	}
	from, err := c.sendRequest(ctx, http.MethodPost, "/chat/completions", q, request.onSent)
	if err != nil {
		return nil, err
	}
	if isStream {
		context.AfterFunc(ctx, func() { from.Close() })
		return c.streamParts(newEventReader(from, maxChatResponse)), nil
	}
	defer from.Close()
	var answer chatResponse
	if err := json.NewDecoder(io.LimitReader(from, maxChatResponse)).Decode(&answer); err != nil {
		return nil, err
	}
	if answer.Error != nil {
		return nil, c.newBackendError(http.StatusBadGateway, answer.chatErrorResponse, 0)
	}
	if len(answer.Choices) == 0 {
		return nil, errors.New("the backend has answered with no choice")
	}
	choice := answer.Choices[0]
	parts := []any{}
	if text := choice.Message.thoughtText(); text != "" {
		parts = append(parts, thoughtPart(text))
	}
	if text := string(choice.Message.Content) + choice.Message.Refusal; text != "" {
		parts = append(parts, object{"text": text})
	}
	calls, finish := toFunctionCalls(choice.Message.ToolCalls, choice.FinishReason)
	return singlePartIterator(tools.EncodeOrEmpty(buildResponse(append(parts, calls...), finish, answer.Usage, answer.Model))), nil
}

// sendRequest sends a request and returns the body of a successful response. onSent is called once the body has been sent; it may be nil.
func (c *chatBackend) sendRequest(ctx context.Context, method, path string, body any, onSent func()) (io.ReadCloser, error) {
	r, err := http.NewRequestWithContext(ctx, method, c.url+path, nil)
	if err != nil {
		return nil, err
	}
	if body != nil {
		text, err := json.Marshal(body)
		if err != nil {
			return nil, err
		}
		requestBody{text, onSent}.attachTo(r)
		r.Header.Set("Content-Type", "application/json")
	}
	if c.key != "" {
		r.Header.Set("Authorization", "Bearer "+c.key)
	}
	resp, err := c.client.Do(r)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode == http.StatusOK {
		return requireUncompressed(resp)
	}
	defer resp.Body.Close()
	text, _ := io.ReadAll(io.LimitReader(resp.Body, 64<<10))
	var failure chatErrorResponse
	if json.Unmarshal(text, &failure) != nil || failure.Error == nil { // some servers use another format
		var other struct{ Message, Detail string }
		if json.Unmarshal(text, &other) == nil {
			failure.Error = &chatError{cmp.Or(other.Message, other.Detail)}
		}
	}
	why := c.newBackendError(resp.StatusCode, failure, wire.RetryAfter(resp.Header, ""))
	why.retryAfter = resp.Header.Get("Retry-After")
	return nil, why
}

// newBackendError converts a failure to Google's format for the client. It hides the gateway's API key.
func (c *chatBackend) newBackendError(status int, f chatErrorResponse, retry time.Duration) *backendError {
	message := http.StatusText(status)
	if f.Error != nil {
		message = cmp.Or(api.Secret(c.key).Hide(f.Error.Message), message)
	}
	return &backendError{status: status, body: signaling.GoogleError(status, message, retry)}
}

// streamParts returns an iterator over the parts of a streamed answer. All function calls are in the last part, because
// Google's format has no partial calls.
func (c *chatBackend) streamParts(events *eventReader) func() (object, error) {
	var calls []chatCall
	var finish, model string
	var usage *chatUsage
	isComplete := false
	return func() (object, error) {
		for !isComplete {
			text, err := events.nextEvent()
			if err == io.EOF || string(text) == "[DONE]" {
				isComplete = true
				break
			}
			var chunk chatResponse
			if err == nil {
				err = json.Unmarshal(text, &chunk)
			}
			if err == nil && chunk.Error != nil {
				err = c.newBackendError(http.StatusBadGateway, chunk.chatErrorResponse, 0)
			}
			if err != nil {
				return nil, err
			}
			usage, model = cmp.Or(chunk.Usage, usage), cmp.Or(chunk.Model, model)
			if len(chunk.Choices) == 0 {
				continue
			}
			choice := chunk.Choices[0]
			finish = cmp.Or(choice.FinishReason, finish)
			if calls, err = mergeCallPieces(calls, choice.Delta.ToolCalls); err != nil {
				return nil, err
			}
			var parts []any
			if text := choice.Delta.thoughtText(); text != "" {
				parts = append(parts, thoughtPart(text))
			}
			if text := string(choice.Delta.Content) + choice.Delta.Refusal; text != "" {
				parts = append(parts, object{"text": text})
			}
			if parts != nil {
				return buildResponse(parts, "", nil, model), nil
			}
		}
		if events == nil {
			return nil, io.EOF
		}
		events = nil
		parts, finish := toFunctionCalls(calls, cmp.Or(finish, "stop"))
		return buildResponse(parts, finish, usage, model), nil
	}
}

// unreadableRequest returns the error for a request whose JSON cannot be parsed.
func unreadableRequest(err error) error {
	return badRequest("The request cannot be read: %v.", tools.ExplainJSON(err, ""))
}

// oneOrMore is a list. In JSON it may also be a single object instead of a list with one element, as ProtoJSON parsers
// accept it.
type oneOrMore[T any] []T

// UnmarshalJSON implements [json.Unmarshaler].
func (o *oneOrMore[T]) UnmarshalJSON(raw []byte) error {
	if raw[0] == '{' {
		*o = make([]T, 1)
		return json.Unmarshal(raw, &(*o)[0])
	}
	return json.Unmarshal(raw, (*[]T)(o))
}

// mergeCallPieces adds streamed pieces of function calls to the calls. Servers mark the pieces of one call by index, by
// ID (Ollama gives all calls the index 0), or only by their order. Some servers repeat the function name in each piece.
func mergeCallPieces(calls, pieces []chatCall) ([]chatCall, error) {
	for _, p := range pieces {
		at := len(calls) - 1
		switch {
		case p.Index == nil:
		case *p.Index < 0 || *p.Index >= maxCalls:
			return nil, fmt.Errorf("a call has the index %d", *p.Index)
		default:
			at = -1
			for i, c := range slices.Backward(calls) {
				if c.Index != nil && *c.Index == *p.Index {
					at = i
					break
				}
			}
		}
		if at < 0 || calls[at].isCompleteBefore(p) {
			if len(calls) == maxCalls {
				return nil, fmt.Errorf("there are more than %d calls", maxCalls)
			}
			calls, at = append(calls, chatCall{Index: p.Index}), len(calls)
		}
		c := &calls[at]
		c.ID = cmp.Or(c.ID, p.ID)
		if c.Function.Name != p.Function.Name {
			c.Function.Name += p.Function.Name
		}
		c.Function.Arguments += p.Function.Arguments
	}
	return calls, nil
}

// isCompleteBefore reports whether the call is complete because the piece begins another call. The piece then has
// another ID, or it has a name and the call's arguments are complete.
func (c *chatCall) isCompleteBefore(p chatCall) bool {
	if c.ID != "" && p.ID != "" {
		return c.ID != p.ID
	}
	arguments := strings.TrimSpace(string(c.Function.Arguments))
	whole := strings.HasPrefix(arguments, "{") && json.Valid([]byte(arguments))
	return p.Function.Name != "" && whole && (p.Function.Name != c.Function.Name || p.Function.Arguments != "")
}

// maxCalls limits the function calls of one answer.
const maxCalls = 128

// describeModel returns the same description for every model, because the server reports only names.
func (c *chatBackend) describeModel(_ context.Context, model string) (object, error) {
	return object{
		"name": "models/" + model, "displayName": model, "version": "",
		"supportedGenerationMethods": []any{"generateContent", "streamGenerateContent", "embedContent", "batchEmbedContents"},
	}, nil
}

// listModels returns the server's models: https://platform.openai.com/docs/api-reference/models. The list is empty if
// the route has a fixed model, because that model serves every requested name.
func (c *chatBackend) listModels(ctx context.Context, _ url.Values) (models []any, nextPageToken string, err error) {
	if c.model != "" {
		return nil, "", nil
	}
	from, err := c.sendRequest(ctx, http.MethodGet, "/models", nil, nil)
	if err != nil {
		return nil, "", err
	}
	defer from.Close()
	var answer struct {
		Data []struct {
			ID string `json:"id"`
		} `json:"data"`
	}
	if err := json.NewDecoder(io.LimitReader(from, maxChatResponse)).Decode(&answer); err != nil {
		return nil, "", err
	}
	for _, m := range answer.Data {
		about, _ := c.describeModel(ctx, m.ID)
		models = append(models, about)
	}
	return models, "", nil
}

// callMethod runs the methods for embeddings. It does not support countTokens.
func (c *chatBackend) callMethod(ctx context.Context, model, method string, request requestBody) ([]byte, error) {
	var q struct {
		Content              turn `json:"content"`
		OutputDimensionality int  `json:"outputDimensionality"`
		Requests             []struct {
			Content              turn `json:"content"`
			OutputDimensionality int  `json:"outputDimensionality"`
		} `json:"requests"`
	}
	if method != "embedContent" && method != "batchEmbedContents" {
		return nil, &backendError{
			http.StatusNotImplemented,
			signaling.GoogleError(http.StatusNotImplemented, "The server behind this model cannot do that.", 0),
			"",
		}
	}
	if err := tools.ReadLenientJSON(signaling.NormalizeGoogleJSON(request.text), &q); err != nil {
		return nil, unreadableRequest(err)
	}
	texts, dimensions := []string{q.Content.joinTextWithoutThoughts("\n")}, q.OutputDimensionality
	if method == "batchEmbedContents" {
		texts = nil
		for _, r := range q.Requests {
			texts, dimensions = append(texts, r.Content.joinTextWithoutThoughts("\n")), r.OutputDimensionality
		}
	}
	from, err := c.sendRequest(ctx, http.MethodPost, "/embeddings", chatEmbedding{cmp.Or(c.model, model), texts, dimensions}, request.onSent)
	if err != nil {
		return nil, err
	}
	defer from.Close()
	var answer struct {
		Data []struct {
			Embedding json.RawMessage `json:"embedding"`
		} `json:"data"`
	}
	if err := json.NewDecoder(io.LimitReader(from, maxChatResponse)).Decode(&answer); err != nil {
		return nil, err
	}
	list := []any{}
	for _, e := range answer.Data {
		list = append(list, object{"values": e.Embedding})
	}
	switch {
	case len(list) != len(texts):
		return nil, fmt.Errorf("the backend has answered %d texts with %d embeddings", len(texts), len(list))
	case method == "embedContent":
		return tools.EncodeOrEmpty(object{"embedding": list[0]}), nil
	}
	return tools.EncodeOrEmpty(object{"embeddings": list}), nil
}
