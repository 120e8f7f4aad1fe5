package rest

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"strings"
	"time"

	"voxgate/signaling"
)

// This is for clients of OpenAI's chat completions: the same routes, and what goes through them is not translated but for the name of the
// model (https://ai.google.dev/gemini-api/docs/openai, https://platform.openai.com/docs/api-reference/chat).

// chatDoors are the addresses: Google's, and OpenAI's own.
func (d *Door) chatDoors() []signaling.Door {
	return []signaling.Door{
		{Pattern: "POST /v1beta/openai/chat/completions", Handler: http.HandlerFunc(d.chat)},
		{Pattern: "POST /v1/chat/completions", Handler: http.HandlerFunc(d.chat)},
		{Pattern: "GET /v1beta/openai/models", Handler: http.HandlerFunc(d.openAIModels)},
	}
}

// asksOpenAI reports whether a request is one of OpenAI's clients: Google's show their key in another way.
func asksOpenAI(r *http.Request) bool {
	return strings.HasPrefix(r.Header.Get("Authorization"), "Bearer ") && r.Header.Get("X-Goog-Api-Key") == "" && !r.URL.Query().Has("key")
}

// openAIKinds are OpenAI's names for errors: https://platform.openai.com/docs/guides/error-codes.
var openAIKinds = map[int]string{
	http.StatusUnauthorized: "authentication_error", http.StatusForbidden: "permission_error",
	http.StatusTooManyRequests: "rate_limit_error",
}

// refuseOpenAI is the refuser for OpenAI's clients.
func refuseOpenAI(w http.ResponseWriter, status int, message string, retry time.Duration) {
	if retry > 0 {
		w.Header().Set("Retry-After", fmt.Sprintf("%.0f", math.Ceil(retry.Seconds())))
	}
	kind := "invalid_request_error"
	if status >= http.StatusInternalServerError {
		kind = "server_error"
	}
	reply(w, status, openAIError(message, cmp.Or(openAIKinds[status], kind)))
}

func openAIError(message, kind string) object {
	return object{"error": object{"message": message, "type": kind, "param": nil, "code": nil}}
}

// openAIModels answers with the list of models, all at once.
func (d *Door) openAIModels(w http.ResponseWriter, r *http.Request) {
	c, ok := d.openAICall(w, r, "")
	if !ok {
		return
	}
	c.serve(r, func(ctx context.Context, r *http.Request, _ []byte) error {
		list := []any{}
		for page := r.URL.Query(); ; {
			models, next, err := d.models(ctx, c.open.Grant, page)
			if err != nil {
				return c.failed(ctx, err)
			}
			for _, one := range models {
				about, _ := one.(object)
				name, _ := about["name"].(string)
				list = append(list, object{"id": strings.TrimPrefix(name, "models/"), "object": "model", "created": 0, "owned_by": "voxgate"})
			}
			if next == "" || len(list) > maxListed {
				return c.answer(encode(object{"object": "list", "data": list}))
			}
			page.Set("pageToken", next)
		}
	})
}

// maxListed bounds the models of a list that is not by the page.
const maxListed = 1000

func (d *Door) openAICall(w http.ResponseWriter, r *http.Request, method string) (c *call, ok bool) {
	open, err := d.authorize(r, "")
	if err != nil {
		refuser(refuseOpenAI).forError(w, err)
		return nil, false
	}
	return &call{door: d, w: w, method: method, open: open, refuse: refuseOpenAI, openAI: true}, true
}

// chat runs one call of chat completions.
func (d *Door) chat(w http.ResponseWriter, r *http.Request) {
	if c, ok := d.openAICall(w, r, "chat/completions"); ok {
		c.serve(r, c.runChat)
	}
}

// chatAsked is what is read of a request.
type chatAsked struct {
	Model         string `json:"model"`
	Stream        bool   `json:"stream"`
	N             int    `json:"n"`
	MaxTokens     int    `json:"max_tokens"`
	MaxCompletion int    `json:"max_completion_tokens"`
	StreamOptions struct {
		IncludeUsage bool `json:"include_usage"`
	} `json:"stream_options"`
}

func (c *call) runChat(ctx context.Context, r *http.Request, body []byte) error {
	var asked chatAsked
	if err := json.Unmarshal(body, &asked); err != nil || asked.Model == "" {
		c.refuse(c.w, http.StatusBadRequest, "The request must be a JSON object with a model.", 0)
		return nil
	}
	c.model = strings.TrimPrefix(strings.TrimPrefix(asked.Model, "models/"), "google/")
	if !grants(c.open.Grant, c.model) {
		c.refuse(c.w, http.StatusForbidden, fmt.Sprintf("This token does not grant the model %s.", c.model), 0)
		return nil
	}
	b := &bill{question: len(body) / bytesPerToken}
	if _, most := c.open.Account.Spend(0); most > 0 {
		output := cmp.Or(max(asked.MaxCompletion, asked.MaxTokens), maxOutput)
		var err error
		b, body, err = b.reserve(c.open.Account, body, true, min(max(1, asked.N), 8), min(output, maxOutput), func(fields object, limit int) {
			remove(fields, "maxTokens")
			remove(fields, "maxCompletionTokens")
			fields["max_completion_tokens"] = limit
		})
		if err != nil {
			c.refuse.forError(c.w, err)
			return nil
		}
	}
	c.bill = b
	done := false
	defer func() { b.pay(ctx, done) }()
	to := c.door.backend(c.model)
	body, err := changed(body, func(fields object) { c.settle(fields, to, asked.Stream) })
	if err != nil {
		c.refuse.forError(c.w, err)
		return nil
	}
	from, err := to.chat(ctx, upload{body, func() { r.Body.Close() }})
	if err != nil {
		return c.failed(ctx, err)
	}
	defer from.Close()
	if asked.Stream {
		context.AfterFunc(ctx, func() { from.Close() })
		return c.chatStream(ctx, from, asked.StreamOptions.IncludeUsage)
	}
	text, err := io.ReadAll(io.LimitReader(from, maxAnswer))
	if err != nil {
		return c.failed(ctx, err)
	}
	done = true
	b.noteChat(text)
	return c.answer(text)
}

// settle puts into a request what is not the client's choice: the model's name there, the prompt that a grant fixes, and that a stream
// tells what it has cost.
func (c *call) settle(fields object, to backend, streams bool) {
	fields["model"] = to.nameOf(c.model)
	if streams {
		fields["stream_options"] = object{"include_usage": true}
	}
	if c.open.Grant == nil || c.open.Grant.Agent.Prompt == "" {
		return
	}
	raw, _ := fields["messages"].(json.RawMessage)
	var messages []json.RawMessage
	_ = json.Unmarshal(raw, &messages) // what is no list is refused by the backend
	kept := []any{object{"role": "system", "content": c.open.Grant.Agent.Prompt}}
	for _, m := range messages {
		var role struct{ Role string }
		if json.Unmarshal(m, &role); role.Role != "system" && role.Role != "developer" {
			kept = append(kept, m)
		}
	}
	fields["messages"] = kept
}

// chatStream passes on the events of a stream. The last one has the usage, which is for those alone that have asked for it.
func (c *call) chatStream(ctx context.Context, from io.Reader, usage bool) error {
	c.w.Header().Set("X-Accel-Buffering", "no") // nginx would keep it
	c.w.Header().Set("Content-Type", "text/event-stream")
	write := func(text []byte) error {
		_ = c.control.SetWriteDeadline(time.Now().Add(writeTime))
		if _, err := fmt.Fprintf(c.w, "data: %s\n\n", text); err != nil {
			return err
		}
		return c.control.Flush()
	}
	for events := linesOf(from); ; {
		text, err := readEvent(events)
		c.watch.Reset(silence)
		if err == io.EOF || string(text) == "[DONE]" {
			return write([]byte("[DONE]"))
		}
		if err != nil {
			return errors.Join(err, context.Cause(ctx), write(encode(openAIError("The backend's answer broke off.", "server_error"))))
		}
		if c.bill.noteChat(text) || usage {
			if err := write(text); err != nil {
				return err
			}
		}
	}
}

// noteChat notes what an answer, or a piece of one, says and costs, and reports false if it says nothing but what it has cost.
func (b *bill) noteChat(text []byte) (says bool) {
	var answer chatAnswer
	if json.Unmarshal(text, &answer) != nil {
		return true
	}
	for _, choice := range answer.Choices {
		b.said += len(choice.Message.Content) + len(choice.Delta.Content)
	}
	if answer.Usage != nil {
		b.reported = max(b.reported, answer.Usage.Prompt+answer.Usage.Completion)
	}
	return len(answer.Choices) > 0 || answer.Usage == nil
}

func (c *completions) nameOf(model string) string { return cmp.Or(c.model, model) }

func (c *completions) chat(ctx context.Context, request upload) (io.ReadCloser, error) {
	return c.send(ctx, http.MethodPost, "/chat/completions", json.RawMessage(request.text), request.sent)
}

// nameOf implements backend. Vertex AI serves other makers' models at the same address.
func (g *google) nameOf(model string) string {
	if g.api.Vertex != nil {
		return "google/" + model
	}
	return model
}

func (g *google) chat(ctx context.Context, request upload) (io.ReadCloser, error) {
	r, secret, err := g.api.ChatRequest(ctx)
	return g.do(r, secret, err, request)
}
