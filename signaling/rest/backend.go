package rest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"

	"voxgate/bridge/gemini/api"
	"voxgate/signaling"
)

// backend is a server that runs models.
type backend interface {
	// generate requests an answer. next returns its parts, a single one without streaming, and then io.EOF; it fails when ctx ends.
	// Errors that the backend itself reported are a [*refused].
	generate(ctx context.Context, model string, request upload, streams bool) (next func() (object, error), err error)
	// ask runs any other method and returns the backend's response unchanged.
	ask(ctx context.Context, model, method string, request upload) (answer []byte, err error)
	// describe returns the description of a model, in Google's format.
	describe(ctx context.Context, model string) (object, error)
	// list returns the descriptions of the models, one page at a time. next is empty on the last page.
	list(ctx context.Context, page url.Values) (models []any, next string, err error)
}

// refused is an error reported by a backend, in Google's format for the client.
type refused struct {
	status int
	body   object
	after  string // Retry-After, or empty
}

func (r *refused) Error() string {
	said, _ := r.body["error"].(object)
	return fmt.Sprintf("refused with %d: %v", r.status, said["message"])
}

// google forwards calls to the Gemini API, Vertex AI or the emulator.
type google struct {
	api    *api.Client
	client *http.Client
}

func (g *google) generate(ctx context.Context, model string, request upload, streams bool) (func() (object, error), error) {
	if !streams {
		text, err := g.ask(ctx, model, "generateContent", request)
		return once(text), err
	}
	from, err := g.send(ctx, http.MethodPost, model, "streamGenerateContent", "alt=sse", request)
	if err != nil {
		return nil, err
	}
	context.AfterFunc(ctx, func() { from.Close() })
	events := newEventReader(from, maxAnswer)
	return func() (event object, err error) {
		text, err := events.next()
		if err == nil {
			err = decode(text, &event)
		}
		return event, err
	}, nil
}

// once returns an iterator over a single part.
func once(text []byte) func() (object, error) {
	return func() (answer object, err error) {
		if text == nil {
			return nil, io.EOF
		}
		err = decode(text, &answer)
		text = nil
		return answer, err
	}
}

func (g *google) ask(ctx context.Context, model, method string, request upload) ([]byte, error) {
	return g.read(g.send(ctx, http.MethodPost, model, method, "", request))
}

func (g *google) read(from io.ReadCloser, err error) ([]byte, error) {
	if err != nil {
		return nil, err
	}
	defer from.Close()
	return readAnswer(from, maxAnswer)
}

func (g *google) describe(ctx context.Context, model string) (about object, err error) {
	text, err := g.read(g.send(ctx, http.MethodGet, model, "", "", upload{}))
	if err == nil {
		err = decode(text, &about)
	}
	return about, err
}

// modelLists holds the field names of the model list: of the Gemini API and of Vertex AI.
var modelLists = []string{"models", "publisherModels"}

func (g *google) list(ctx context.Context, page url.Values) (models []any, next string, err error) {
	var answer object
	text, err := g.read(g.send(ctx, http.MethodGet, "", "", page.Encode(), upload{}))
	if err == nil {
		err = decode(text, &answer)
	}
	for _, name := range modelLists {
		some, _ := answer[name].([]any)
		models = append(models, some...)
	}
	next, _ = answer["nextPageToken"].(string)
	return models, next, err
}

// send sends a request and returns the body of a successful response.
func (g *google) send(ctx context.Context, httpMethod, model, method, query string, request upload) (io.ReadCloser, error) {
	if strings.Contains(model, "/") || model == "." || model == ".." || method == "" && strings.Contains(model, ":") {
		// The request carries our key, so it must not reach another path than the client may use.
		const message = "The model's name would be another path: it has a slash or a colon, or is made of dots."
		return nil, &refused{http.StatusBadRequest, signaling.GoogleError(http.StatusBadRequest, message, 0), ""}
	}
	r, secret, err := g.api.Request(ctx, httpMethod, model, method, query, nil)
	if err != nil {
		return nil, &refused{http.StatusServiceUnavailable, signaling.GoogleError(http.StatusServiceUnavailable, err.Error(), 0), ""}
	}
	if httpMethod == http.MethodPost {
		request.on(r)
		r.Header.Set("Content-Type", "application/json")
	}
	resp, err := g.client.Do(r)
	if err != nil {
		return nil, errors.New(secret.Hide(err.Error()))
	}
	if resp.StatusCode == http.StatusOK {
		return plainBody(resp)
	}
	defer resp.Body.Close()
	g.api.HandleRefusal(secret, resp.StatusCode)
	text, _ := io.ReadAll(io.LimitReader(resp.Body, 64<<10))
	said := secret.Hide(string(text))                                                // the backend may have echoed our key
	said = strings.TrimSuffix(strings.TrimPrefix(strings.TrimSpace(said), "["), "]") // some errors come in an array
	var body object
	if json.Unmarshal([]byte(said), &body) != nil || body["error"] == nil {
		return nil, fmt.Errorf("the backend answered %d: %.200s", resp.StatusCode, said)
	}
	return nil, &refused{resp.StatusCode, body, resp.Header.Get("Retry-After")}
}

// plainBody returns the body of a response, or an error if it is compressed: we did not ask for that and cannot read it.
func plainBody(resp *http.Response) (io.ReadCloser, error) {
	if encoding := resp.Header.Get("Content-Encoding"); encoding != "" && encoding != "identity" {
		resp.Body.Close()
		return nil, fmt.Errorf("the backend's answer has the content encoding %.20q, which was not asked for", encoding)
	}
	return resp.Body, nil
}
