package rest

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

// completions is a backend with the chat completions API: https://platform.openai.com/docs/api-reference/chat. It translates Google's
// requests to that API, and the responses back.
type completions struct {
	url    string
	key    string
	model  string // the server's name for all models; empty means the requested name
	client *http.Client
}

func newOpenAI(o OpenAI, client *http.Client) *completions {
	return &completions{strings.TrimRight(o.URL, "/"), o.Key, o.Model, client}
}

// generation holds the fields of a GenerateContentRequest that chat completions support.
type generation struct {
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

// text returns the text of the parts without thoughts, joined by between.
func (t *turn) text(between string) string {
	var texts []string
	for _, p := range t.Parts {
		if p.Text != nil && !p.Thought {
			texts = append(texts, *p.Text)
		}
	}
	return strings.Join(texts, between)
}

// invalid returns the error for a request that cannot be translated.
func invalid(format string, args ...any) error {
	return &refused{http.StatusBadRequest, signaling.GoogleError(http.StatusBadRequest, fmt.Sprintf(format, args...), 0), ""}
}

// translate converts Google's request to a chat completions request.
func (c *completions) translate(model string, request []byte) (chatRequest, error) {
	var g generation
	if err := tools.ReadJSON(signaling.NormalizeGoogleJSON(request), &g); err != nil {
		return chatRequest{}, unreadable(err)
	}
	if len(g.Contents) == 0 {
		return chatRequest{}, invalid("contents is not specified.")
	}
	config := g.GenerationConfig
	q := chatRequest{
		Model: cmp.Or(c.model, model), Temperature: config.Temperature, TopP: config.TopP, MaxTokens: config.MaxOutputTokens,
		Stop: config.StopSequences, Seed: config.Seed,
	}
	if g.SystemInstruction != nil {
		q.Messages = append(q.Messages, chatMessage{Role: "system", Content: g.SystemInstruction.text("\n")})
	}
	calls := &callIDs{}
	for i := range g.Contents {
		messages, err := g.Contents[i].messages(calls, fmt.Sprintf("contents[%d]", i))
		if err != nil {
			return q, err
		}
		q.Messages = append(q.Messages, messages...)
	}
	if q.Messages = answered(q.Messages); len(q.Messages) == 0 || q.Messages[len(q.Messages)-1].Role == "system" {
		return q, invalid("contents has nothing that could be answered.")
	}
	if config.ResponseMIMEType == "application/json" {
		q.ResponseFormat = format(config.ResponseJSONSchema, config.ResponseSchema)
	}
	g.tools(&q)
	return q, nil
}

// format returns the response format for JSON, with the schema if there is one.
func format(jsonSchema, schema json.RawMessage) *chatFormat {
	if jsonSchema == nil {
		jsonSchema = standard(schema)
	}
	if jsonSchema == nil {
		return &chatFormat{Type: "json_object"}
	}
	return &chatFormat{Type: "json_schema", JSONSchema: &chatSchema{Name: "answer", Schema: jsonSchema}}
}

// standard converts Google's Schema to JSON Schema. It returns nil if it cannot read the schema.
func standard(schema json.RawMessage) json.RawMessage {
	if standard, err := tools.JSONSchema(schema); err == nil {
		return standard
	}
	return nil
}

func (g *generation) tools(q *chatRequest) {
	how := g.ToolConfig.FunctionCallingConfig
	for _, t := range g.Tools {
		for _, f := range t.FunctionDeclarations {
			if len(how.AllowedFunctionNames) > 0 && how.Mode != "AUTO" && !slices.Contains(how.AllowedFunctionNames, f.Name) {
				continue
			}
			schema := f.ParametersJSONSchema
			if schema == nil {
				schema = standard(f.Parameters)
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

// callIDs assigns ids to function calls without one, and the same ids to their responses, which have the same order.
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

// answer returns the id of the call for a response, or "" if there is no such call.
func (c *callIDs) answer(id, name string) string {
	for i, w := range c.waiting {
		if id == w.id || id == "" && name == w.name {
			c.waiting = append(c.waiting[:i], c.waiting[i+1:]...)
			return w.id
		}
	}
	return ""
}

// answered adds the missing responses after function calls, because servers reject a call that is not followed by one. A response that
// does not follow its call becomes a user message.
func answered(messages []chatMessage) (list []chatMessage) {
	for len(messages) > 0 {
		asks := messages[0]
		if asks.Role == "tool" { // not behind its call
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

// messages converts a turn to chat messages; each function response becomes a message of its own. at is the path of the turn for errors.
func (t *turn) messages(calls *callIDs, at string) (list []chatMessage, err error) {
	if t.Role == "model" { // its parts may be the chunks of a stream
		message := chatMessage{Role: "assistant"}
		if text := t.text(""); text != "" {
			message.Content = text
		}
		for _, p := range t.Parts {
			if f := p.FunctionCall; f != nil {
				message.ToolCalls = append(message.ToolCalls, chatCall{
					ID: calls.call(f.ID, f.Name), Type: "function", Function: chatCalled{f.Name, callArguments(cmp.Or(string(f.Args), "{}"))},
				})
			}
		}
		if message.Content == nil && message.ToolCalls == nil { // empty, or only thoughts: servers reject it
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
			if id := calls.answer(f.ID, f.Name); id != "" {
				list = append(list, chatMessage{Role: "tool", Content: said, ToolCallID: id})
			} else { // without a call: servers reject it as a response
				parts = append(parts, chatPart{Type: "text", Text: fmt.Sprintf("%s has answered: %s", f.Name, said)})
			}
		case p.FileData != nil:
			return nil, invalid("%s.parts[%d].fileData is a file at Google, which this model cannot read: send inlineData.", at, i)
		case p.InlineData != nil && strings.HasPrefix(p.InlineData.MIMEType, "image/"):
			parts = append(
				parts,
				chatPart{Type: "image_url", ImageURL: &chatImage{"data:" + p.InlineData.MIMEType + ";base64," + p.InlineData.Data}},
			)
		case p.InlineData != nil:
			return nil, invalid("%s.parts[%d].inlineData: %s cannot be shown to this model; images can.", at, i, p.InlineData.MIMEType)
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

// finishReasons maps finish reasons to Google's: https://ai.google.dev/api/generate-content#FinishReason.
var finishReasons = map[string]string{
	"stop": "STOP", "length": "MAX_TOKENS", "tool_calls": "STOP", "function_call": "STOP", "content_filter": "SAFETY",
	malformed: "MALFORMED_FUNCTION_CALL",
}

// piece returns a response, or a part of a stream, in Google's format.
func piece(parts []any, finish string, usage *chatUsage, model string) object {
	candidate := object{"content": object{"parts": parts, "role": "model"}}
	if finish != "" {
		candidate["finishReason"] = cmp.Or(finishReasons[finish], "OTHER")
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

// functionCalls converts calls to Google's format. If the arguments of one are not an object, it returns no parts, and the reason
// malformed.
func functionCalls(calls []chatCall, finish string) (parts []any, reason string) {
	parts = []any{}
	for _, call := range calls {
		var args object
		if f := call.Function; strings.TrimSpace(string(f.Arguments)) != "" && decode([]byte(f.Arguments), &args) != nil {
			return []any{}, malformed
		}
		parts = append(parts, object{"functionCall": object{"id": call.ID, "name": call.Function.Name, "args": args}})
	}
	return parts, finish
}

// malformed is our own finish reason, which chat completions do not have.
const malformed = "malformed"

// thought returns a part with a model's thoughts.
func thought(text string) object { return object{"text": text, "thought": true} }

func (c *completions) generate(ctx context.Context, model string, request upload, streams bool) (func() (object, error), error) {
	q, err := c.translate(model, request.text)
	if err != nil {
		return nil, err
	}
	if streams {
		q.Stream, q.StreamOptions = true, &chatStream{IncludeUsage: true}
	}
	from, err := c.send(ctx, http.MethodPost, "/chat/completions", q, request.sent)
	if err != nil {
		return nil, err
	}
	if streams {
		context.AfterFunc(ctx, func() { from.Close() })
		return c.stream(newEventReader(from, maxChat)), nil
	}
	defer from.Close()
	var answer chatAnswer
	if err := json.NewDecoder(io.LimitReader(from, maxChat)).Decode(&answer); err != nil {
		return nil, err
	}
	if answer.Error != nil {
		return nil, c.refusal(http.StatusBadGateway, answer.chatFailure, 0)
	}
	if len(answer.Choices) == 0 {
		return nil, errors.New("the backend has answered with no choice")
	}
	choice := answer.Choices[0]
	parts := []any{}
	if text := choice.Message.thoughts(); text != "" {
		parts = append(parts, thought(text))
	}
	if text := string(choice.Message.Content) + choice.Message.Refusal; text != "" {
		parts = append(parts, object{"text": text})
	}
	calls, finish := functionCalls(choice.Message.ToolCalls, choice.FinishReason)
	return once(tools.Encode(piece(append(parts, calls...), finish, answer.Usage, answer.Model))), nil
}

// send sends a request and returns the body of a successful response. sent is called once body is no longer needed; it may be nil.
func (c *completions) send(ctx context.Context, method, path string, body any, sent func()) (io.ReadCloser, error) {
	r, err := http.NewRequestWithContext(ctx, method, c.url+path, nil)
	if err != nil {
		return nil, err
	}
	if body != nil {
		text, err := json.Marshal(body)
		if err != nil {
			return nil, err
		}
		upload{text, sent}.on(r)
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
		return plainBody(resp)
	}
	defer resp.Body.Close()
	said, _ := io.ReadAll(io.LimitReader(resp.Body, 64<<10))
	var failure chatFailure
	if json.Unmarshal(said, &failure) != nil || failure.Error == nil { // some servers use another format
		var other struct{ Message, Detail string }
		if json.Unmarshal(said, &other) == nil {
			failure.Error = &chatError{cmp.Or(other.Message, other.Detail)}
		}
	}
	why := c.refusal(resp.StatusCode, failure, wire.RetryAfter(resp.Header, ""))
	why.after = resp.Header.Get("Retry-After")
	return nil, why
}

// refusal converts a failure to Google's format for the client. It hides our API key.
func (c *completions) refusal(status int, f chatFailure, retry time.Duration) *refused {
	message := http.StatusText(status)
	if f.Error != nil {
		message = cmp.Or(api.Secret(c.key).Hide(f.Error.Message), message)
	}
	return &refused{status: status, body: signaling.GoogleError(status, message, retry)}
}

// stream returns an iterator over the parts of a streamed answer. Function calls arrive in pieces and are sent whole, with the last part:
// Google has no partial calls.
func (c *completions) stream(events *eventReader) func() (object, error) {
	var calls []chatCall
	var finish, model string
	var usage *chatUsage
	over := false
	return func() (object, error) {
		for !over {
			text, err := events.next()
			if err == io.EOF || string(text) == "[DONE]" {
				over = true
				break
			}
			var chunk chatAnswer
			if err == nil {
				err = json.Unmarshal(text, &chunk)
			}
			if err == nil && chunk.Error != nil {
				err = c.refusal(http.StatusBadGateway, chunk.chatFailure, 0)
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
			if calls, err = gather(calls, choice.Delta.ToolCalls); err != nil {
				return nil, err
			}
			var parts []any
			if text := choice.Delta.thoughts(); text != "" {
				parts = append(parts, thought(text))
			}
			if text := string(choice.Delta.Content) + choice.Delta.Refusal; text != "" {
				parts = append(parts, object{"text": text})
			}
			if parts != nil {
				return piece(parts, "", nil, model), nil
			}
		}
		if events == nil {
			return nil, io.EOF
		}
		events = nil
		parts, finish := functionCalls(calls, cmp.Or(finish, "stop"))
		return piece(parts, finish, usage, model), nil
	}
}

// unreadable returns the error for a request whose JSON cannot be parsed.
func unreadable(err error) error {
	return invalid("The request cannot be read: %v.", tools.ExplainJSON(err, ""))
}

// oneOrMore is a list. A single object is accepted in place of a list of one, as ProtoJSON parsers do.
type oneOrMore[T any] []T

// UnmarshalJSON implements [json.Unmarshaler].
func (l *oneOrMore[T]) UnmarshalJSON(raw []byte) error {
	if raw[0] == '{' {
		*l = make([]T, 1)
		return json.Unmarshal(raw, &(*l)[0])
	}
	return json.Unmarshal(raw, (*[]T)(l))
}

// gather adds pieces of calls to their calls. Servers distinguish calls by the index, only by the id (Ollama gives all the index 0), or
// only by the position. A name that is repeated with each piece continues its call.
func gather(calls, pieces []chatCall) ([]chatCall, error) {
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
		if at < 0 || calls[at].endsBefore(p) {
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

// endsBefore reports whether a piece begins another call: it has another id, or a name after complete arguments.
func (c *chatCall) endsBefore(p chatCall) bool {
	if c.ID != "" && p.ID != "" {
		return c.ID != p.ID
	}
	arguments := strings.TrimSpace(string(c.Function.Arguments))
	whole := strings.HasPrefix(arguments, "{") && json.Valid([]byte(arguments))
	return p.Function.Name != "" && whole && (p.Function.Name != c.Function.Name || p.Function.Arguments != "")
}

// maxCalls limits the function calls of one answer.
const maxCalls = 128

// describe returns the same description for every model, because the server reports only names.
func (c *completions) describe(_ context.Context, model string) (object, error) {
	return object{
		"name": "models/" + model, "displayName": model, "version": "",
		"supportedGenerationMethods": []any{"generateContent", "streamGenerateContent", "embedContent", "batchEmbedContents"},
	}, nil
}

// list returns the server's models: https://platform.openai.com/docs/api-reference/models. It is empty if all names mean the same model.
func (c *completions) list(ctx context.Context, _ url.Values) (models []any, next string, err error) {
	if c.model != "" {
		return nil, "", nil
	}
	from, err := c.send(ctx, http.MethodGet, "/models", nil, nil)
	if err != nil {
		return nil, "", err
	}
	defer from.Close()
	var answer struct {
		Data []struct {
			ID string `json:"id"`
		} `json:"data"`
	}
	if err := json.NewDecoder(io.LimitReader(from, maxChat)).Decode(&answer); err != nil {
		return nil, "", err
	}
	for _, m := range answer.Data {
		about, _ := c.describe(ctx, m.ID)
		models = append(models, about)
	}
	return models, "", nil
}

// ask runs the methods for embeddings. It does not support countTokens.
func (c *completions) ask(ctx context.Context, model, method string, request upload) ([]byte, error) {
	var q struct {
		Content              turn `json:"content"`
		OutputDimensionality int  `json:"outputDimensionality"`
		Requests             []struct {
			Content              turn `json:"content"`
			OutputDimensionality int  `json:"outputDimensionality"`
		} `json:"requests"`
	}
	if method != "embedContent" && method != "batchEmbedContents" {
		return nil, &refused{
			http.StatusNotImplemented,
			signaling.GoogleError(http.StatusNotImplemented, "The server behind this model cannot do that.", 0),
			"",
		}
	}
	if err := tools.ReadJSON(signaling.NormalizeGoogleJSON(request.text), &q); err != nil {
		return nil, unreadable(err)
	}
	texts, dimensions := []string{q.Content.text("\n")}, q.OutputDimensionality
	if method == "batchEmbedContents" {
		texts = nil
		for _, r := range q.Requests {
			texts, dimensions = append(texts, r.Content.text("\n")), r.OutputDimensionality
		}
	}
	from, err := c.send(ctx, http.MethodPost, "/embeddings", chatEmbedding{cmp.Or(c.model, model), texts, dimensions}, request.sent)
	if err != nil {
		return nil, err
	}
	defer from.Close()
	var answer struct {
		Data []struct {
			Embedding json.RawMessage `json:"embedding"`
		} `json:"data"`
	}
	if err := json.NewDecoder(io.LimitReader(from, maxChat)).Decode(&answer); err != nil {
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
		return tools.Encode(object{"embedding": list[0]}), nil
	}
	return tools.Encode(object{"embeddings": list}), nil
}
