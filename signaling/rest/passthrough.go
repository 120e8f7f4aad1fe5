package rest

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"voxgate/bridge/gemini/api"
	"voxgate/bridge/gemini/wire"
	"voxgate/signaling"
	"voxgate/signaling/access"
	"voxgate/tools"
)

// This file serves clients of OpenAI's chat completions, with the same routes to backends. Requests and responses are not translated,
// except for the model name (https://ai.google.dev/gemini-api/docs/openai, https://platform.openai.com/docs/api-reference/chat).

// chatDoors returns the endpoints: the paths of Google and of OpenAI.
func (d *Door) chatDoors() []signaling.Endpoint {
	return []signaling.Endpoint{
		{Pattern: "POST /v1beta/openai/chat/completions", Handler: http.HandlerFunc(d.chat)},
		{Pattern: "POST /v1/chat/completions", Handler: http.HandlerFunc(d.chat)},
		{Pattern: "GET /v1beta/openai/models", Handler: http.HandlerFunc(d.openAIModels)},
	}
}

// asksOpenAI reports whether a request is from a client of OpenAI's API: Google's clients send their key in another way.
func asksOpenAI(r *http.Request) bool {
	return strings.HasPrefix(r.Header.Get("Authorization"), "Bearer ") && r.Header.Get("X-Goog-Api-Key") == "" && !r.URL.Query().Has("key")
}

// openAIKinds maps HTTP statuses to OpenAI's error types: https://platform.openai.com/docs/guides/error-codes.
var openAIKinds = map[int]string{
	http.StatusUnauthorized: "authentication_error", http.StatusForbidden: "permission_error",
	http.StatusTooManyRequests: "rate_limit_error",
}

// refuseOpenAI is the refuser for clients of OpenAI's API.
func refuseOpenAI(w http.ResponseWriter, status int, message string, retry time.Duration) {
	if retry > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(access.RetrySeconds(retry)))
	}
	kind := "invalid_request_error"
	if status >= http.StatusInternalServerError {
		kind = "server_error"
	}
	reply(w, status, openAIError(message, cmp.Or(openAIKinds[status], kind), nil))
}

func openAIError(message, kind string, param any) object {
	return object{"error": object{"message": message, "type": kind, "param": param, "code": nil}}
}

// refuseField sends the error for a field of a request.
func (c *call) refuseField(name, format string, args ...any) {
	message := fmt.Sprintf("%s: %s", name, fmt.Sprintf(format, args...))
	reply(c.w, http.StatusBadRequest, openAIError(message, "invalid_request_error", name))
}

// openAIModels sends the list of all models, without paging.
func (d *Door) openAIModels(w http.ResponseWriter, r *http.Request) {
	c, ok := d.openAICall(w, r, "")
	if !ok {
		return
	}
	c.serve(r, func(ctx context.Context, r *http.Request, _ []byte) error {
		if err := c.open.Account.ConsumeToken(); err != nil {
			return c.failed(ctx, err)
		}
		list := []any{}
		for page := r.URL.Query(); ; {
			models, next, err := d.models(ctx, c.open, page)
			if err != nil {
				return c.failed(ctx, err)
			}
			for _, one := range models {
				about, _ := one.(object)
				name, _ := about["name"].(string)
				list = append(list, object{"id": strings.TrimPrefix(name, "models/"), "object": "model", "created": 0, "owned_by": "voxgate"})
			}
			if next == "" || len(list) > maxListed {
				return c.answer(tools.Encode(object{"object": "list", "data": list}))
			}
			page.Set("pageToken", next)
		}
	})
}

// maxListed ends the list without paging: once it has more models, no further page is fetched.
const maxListed = 1000

func (d *Door) openAICall(w http.ResponseWriter, r *http.Request, method string) (c *call, ok bool) {
	open, err := d.authorize(r, "")
	if err != nil {
		refuser(refuseOpenAI).forError(w, err)
		return nil, false
	}
	return &call{door: d, w: w, method: method, open: open, refuse: refuseOpenAI, openAI: true}, true
}

// chat handles a chat completions request.
func (d *Door) chat(w http.ResponseWriter, r *http.Request) {
	if c, ok := d.openAICall(w, r, "chat/completions"); ok {
		c.serve(r, c.runChat)
	}
}

// chatAsked holds the fields of a request that the gateway uses.
type chatAsked struct {
	Model         string          `json:"model"`
	Messages      json.RawMessage `json:"messages"`
	Stream        bool            `json:"stream"`
	N             int             `json:"n"`
	MaxTokens     *int            `json:"max_tokens"`
	MaxCompletion *int            `json:"max_completion_tokens"`
	StreamOptions struct {
		IncludeUsage bool `json:"include_usage"`
	} `json:"stream_options"`
}

var (
	chatFields    = []string{"model", "messages", "stream", "stream_options", "n", "max_tokens", "max_completion_tokens"}
	messageFields = []string{"role", "content"}
)

// ambiguous returns a field name that two parsers could interpret differently: a known name in another case, which Go and others ignore,
// or a duplicate. It returns "" if there is none, or if the value is not an object.
func ambiguous(text json.RawMessage, known []string) string {
	in := json.NewDecoder(bytes.NewReader(text))
	if start, _ := in.Token(); start != json.Delim('{') {
		return ""
	}
	seen := make([]bool, len(known))
	for in.More() {
		token, err := in.Token()
		var value json.RawMessage
		if err != nil || in.Decode(&value) != nil {
			return ""
		}
		name, _ := token.(string)
		i := slices.IndexFunc(known, func(k string) bool { return strings.EqualFold(k, name) })
		switch {
		case i < 0:
			continue
		case seen[i] || name != known[i]:
			return name
		}
		seen[i] = true
	}
	return ""
}

// readChat parses a request. If that fails, it sends the error and returns false.
func (c *call) readChat(body []byte) (asked chatAsked, ok bool) {
	const twice = "Its name must come once, and in small letters."
	if name := ambiguous(body, chatFields); name != "" {
		c.refuseField(name, twice)
		return asked, false
	}
	asked.N = 1
	var wrong *json.UnmarshalTypeError
	if err := json.Unmarshal(body, &asked); errors.As(err, &wrong) && wrong.Field != "" {
		c.refuseField(wrong.Field, "It cannot be a %s.", wrong.Value)
		return asked, false
	} else if err != nil || asked.Model == "" {
		c.refuse(c.w, http.StatusBadRequest, "The request must be a JSON object with a model.", 0)
		return asked, false
	}
	var messages []json.RawMessage
	_ = json.Unmarshal(asked.Messages, &messages) // what is no list is refused by the backend
	for i, m := range messages {
		if name := ambiguous(m, messageFields); name != "" {
			c.refuseField(fmt.Sprintf("messages[%d].%s", i, name), twice)
			return asked, false
		}
	}
	for name, limit := range map[string]*int{"max_tokens": asked.MaxTokens, "max_completion_tokens": asked.MaxCompletion} {
		if limit != nil && *limit < 1 {
			c.refuseField(name, "It must be above 0.")
			return asked, false
		}
	}
	if asked.N < 1 || asked.N > maxAnswers {
		c.refuseField("n", "It must be from 1 to %d.", maxAnswers)
		return asked, false
	}
	return asked, true
}

func (c *call) runChat(ctx context.Context, r *http.Request, body []byte) error {
	asked, ok := c.readChat(body)
	if !ok {
		return nil
	}
	c.model = strings.TrimPrefix(strings.TrimPrefix(asked.Model, "models/"), "google/")
	if !grants(c.open, c.model) {
		c.refuse(c.w, http.StatusForbidden, fmt.Sprintf("This token does not grant the model %s.", c.model), 0)
		return nil
	}
	b, limited, err := newBill(c.door.Host, c.open.Account, c.open.MaxDollars(), c.model)
	if err != nil {
		return c.failed(ctx, err)
	}
	if b.question = len(body) / bytesPerToken; limited {
		output := 0
		for _, limit := range []*int{asked.MaxTokens, asked.MaxCompletion} {
			if limit != nil {
				output = max(output, *limit)
			}
		}
		b, body, err = b.reserve(c.open.Account, body, true, asked.N, output, func(fields object, limit int) {
			remove(fields, "maxTokens")
			remove(fields, "maxCompletionTokens")
			fields["max_completion_tokens"] = limit
		})
		if err != nil {
			return c.failed(ctx, err)
		}
	}
	c.bill = b
	done := false
	defer func() { b.pay(ctx, done) }()
	to := c.door.backend(c.model)
	body, err = changed(body, func(fields object) { c.settle(fields, to, asked.Stream) })
	if err != nil {
		return c.failed(ctx, err)
	}
	if err := c.open.Account.ConsumeToken(); err != nil {
		return c.failed(ctx, err)
	}
	from, secret, err := to.chat(ctx, upload{body, func() { r.Body.Close() }})
	if err != nil {
		return c.failed(ctx, err)
	}
	defer from.Body.Close()
	context.AfterFunc(ctx, func() { from.Body.Close() })
	if kind, _, _ := mime.ParseMediaType(from.Header.Get("Content-Type")); kind == "text/event-stream" {
		done, err = c.chatStream(ctx, from.Body, secret, asked.StreamOptions.IncludeUsage || !asked.Stream)
		return err
	}
	text, err := readAnswer(from.Body, maxChat)
	if err != nil {
		return c.failed(ctx, err)
	}
	done = true
	b.noteChat(text)
	return c.answer([]byte(secret.Hide(string(text))))
}

// settle sets the fields that the client cannot choose: the backend's name of the model, the prompt that a grant requires, and for a
// stream the request for its usage.
func (c *call) settle(fields object, to backend, streams bool) {
	fields["model"] = to.nameOf(c.model)
	if streams {
		fields["stream_options"] = object{"include_usage": true}
	}
	prompt := c.open.FixedAgent().Prompt
	if prompt == "" {
		return
	}
	raw, _ := fields["messages"].(json.RawMessage)
	var messages []json.RawMessage
	_ = json.Unmarshal(raw, &messages) // what is no list is refused by the backend
	kept := []any{object{"role": "system", "content": prompt}}
	for _, m := range messages {
		var role struct{ Role string }
		if json.Unmarshal(m, &role); role.Role != "system" && role.Role != "developer" {
			kept = append(kept, m)
		}
	}
	fields["messages"] = kept
}

// chatStream forwards the events of a stream. done reports whether it was complete. An event that only has the usage is sent only if usage
// is set, because the client requested it.
func (c *call) chatStream(ctx context.Context, from io.Reader, secret api.Secret, usage bool) (done bool, err error) {
	c.w.Header().Set("X-Accel-Buffering", "no") // otherwise nginx buffers the response
	c.w.Header().Set("Content-Type", "text/event-stream")
	write := func(text []byte) error {
		_ = c.control.SetWriteDeadline(time.Now().Add(writeTime))
		if _, err := fmt.Fprintf(c.w, "data: %s\n\n", text); err != nil {
			return err
		}
		return c.control.Flush()
	}
	for events := newEventReader(from, maxChat); ; {
		text, err := events.next()
		c.watch.Reset(silence)
		if done = string(text) == "[DONE]"; done || err == io.EOF {
			return done, write([]byte("[DONE]"))
		}
		if err != nil {
			broken := tools.Encode(openAIError("The backend's answer broke off.", "server_error", nil))
			return false, errors.Join(err, context.Cause(ctx), write(broken))
		}
		if c.bill.noteChat(text) || usage {
			if err := write([]byte(secret.Hide(string(text)))); err != nil {
				return false, err
			}
		}
	}
}

// noteChat records the text and the reported usage of a response or of a chunk. It returns false if the text has only the usage. Each field
// is parsed separately: one of another type than OpenAI's must not hide the cost.
func (b *bill) noteChat(text []byte) (says bool) {
	var answer object
	if decode(text, &answer) != nil {
		b.said += len(text)
		return true
	}
	choices, _ := answer["choices"].([]any)
	for _, one := range choices {
		choice, _ := one.(object)
		for _, where := range []string{"message", "delta"} {
			said, _ := choice[where].(object)
			thoughts := max(length(said["reasoning_content"]), length(said["reasoning"])) // one text under two names
			b.said += thoughts + length(said["content"]) + length(said["refusal"]) + length(said["tool_calls"])
		}
	}
	usage, there := answer["usage"].(object)
	in, out := number(usage["prompt_tokens"]), number(usage["completion_tokens"])
	if total := max(number(usage["total_tokens"]), in+out); total > b.reported.Total { // at Google only the total includes the thoughts
		b.reported = wire.Tokens{Prompt: in, Response: out, Total: total}
	}
	return len(choices) > 0 || !there
}

// length returns the length of all text in a part of an answer, in bytes, without ids and types.
func length(part any) (bytes int) {
	switch part := part.(type) {
	case string:
		return len(part)
	case []any:
		for _, inner := range part {
			bytes += length(inner)
		}
	case object:
		for name, inner := range part {
			if name != "id" && name != "type" {
				bytes += length(inner)
			}
		}
	}
	return bytes
}

func (c *completions) nameOf(model string) string { return cmp.Or(c.model, model) }

func (c *completions) chat(ctx context.Context, request upload) (*http.Response, api.Secret, error) {
	resp, err := c.do(ctx, http.MethodPost, "/chat/completions", json.RawMessage(request.text), request.sent)
	return resp, api.Secret(c.key), err
}

// nameOf implements backend. Vertex AI serves models of other vendors at the same address, so it needs the vendor's name.
func (g *google) nameOf(model string) string {
	if g.api.Vertex != nil {
		return "google/" + model
	}
	return model
}

func (g *google) chat(ctx context.Context, request upload) (*http.Response, api.Secret, error) {
	r, secret, err := g.api.ChatRequest(ctx)
	resp, err := g.do(r, secret, err, request)
	return resp, secret, err
}
