package geminirest

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/http"
	"net/url"
	"strings"

	"google.golang.org/genai"

	"voxgate/bridge/gemini/api"
	"voxgate/signaling"
	"voxgate/tools"
)

// backend is a server that runs models.
type backend interface {
	// startGeneration requests an answer. next returns the parts of the answer one by one, then io.EOF. If isStream is
	// false, the whole answer is one part. next fails when ctx ends. An error that the backend reports is a
	// [*backendError].
	startGeneration(ctx context.Context, model string, request requestBody, isStream bool) (next func() (object, error), err error)
	// callMethod runs any other method and returns the backend's response unchanged.
	callMethod(ctx context.Context, model, method string, request requestBody) (answer []byte, err error)
	// describeModel returns the description of a model, in Google's format.
	describeModel(ctx context.Context, model string) (object, error)
	// listModels returns the descriptions of the models, one page at a time. next is empty on the last page.
	listModels(ctx context.Context, page url.Values) (models []any, next string, err error)
}

// backendError is an error reported by a backend, in Google's format for the client.
type backendError struct {
	status     int
	body       object
	retryAfter string // value of the header Retry-After, or empty
}

func (b *backendError) Error() string {
	failure, _ := b.body["error"].(object)
	return fmt.Sprintf("refused with %d: %v", b.status, failure["message"])
}

// google forwards calls to the Gemini API, Vertex AI or the emulator. Clients' calls are forwarded without Google's SDK,
// because the SDK drops unknown fields.
type google struct {
	api    *api.Client
	client *http.Client
	sdk    func() (*genai.Client, error)
}

// streamContent requests an answer for the gateway's own use, and returns the parts of the answer.
func (g *google) streamContent(ctx context.Context, model string, request []byte) iter.Seq2[object, error] {
	return func(yield func(object, error) bool) {
		var body object
		err := errors.Join(checkModelName(model, "streamGenerateContent"), decodeObject(request, &body))
		sdk, failed := g.sdk()
		if err = cmp.Or(err, failed); err != nil {
			yield(nil, err)
			return
		}
		options := &genai.GenerateContentConfig{AutomaticContinuation: genai.Ptr(false), HTTPOptions: &genai.HTTPOptions{
			ExtrasRequestProvider: func(map[string]any) map[string]any { return body }, // unparsed, to keep parts that Google has signed
		}}
		for answer, err := range sdk.Models.GenerateContentStream(ctx, model, nil, options) {
			var event object
			if err == nil {
				answer.SDKHTTPResponse = nil
				err = decodeObject(tools.EncodeOrEmpty(answer), &event)
			}
			if !yield(event, err) {
				return
			}
		}
	}
}

func (g *google) startGeneration(ctx context.Context, model string, request requestBody, isStream bool) (func() (object, error), error) {
	if !isStream {
		text, err := g.callMethod(ctx, model, "generateContent", request)
		return singlePartIterator(text), err
	}
	from, err := g.sendRequest(ctx, http.MethodPost, model, "streamGenerateContent", "alt=sse", request)
	if err != nil {
		return nil, err
	}
	context.AfterFunc(ctx, func() { from.Close() })
	events := newEventReader(from, maxResponse)
	return func() (event object, err error) {
		text, err := events.nextEvent()
		if err == nil {
			err = decodeObject(text, &event)
		}
		return event, err
	}, nil
}

// singlePartIterator returns an iterator over a single part.
func singlePartIterator(text []byte) func() (object, error) {
	return func() (answer object, err error) {
		if text == nil {
			return nil, io.EOF
		}
		err = decodeObject(text, &answer)
		text = nil
		return answer, err
	}
}

func (g *google) callMethod(ctx context.Context, model, method string, request requestBody) ([]byte, error) {
	return g.readResponse(g.sendRequest(ctx, http.MethodPost, model, method, "", request))
}

func (g *google) readResponse(from io.ReadCloser, err error) ([]byte, error) {
	if err != nil {
		return nil, err
	}
	defer from.Close()
	return readAnswer(from, maxResponse)
}

func (g *google) describeModel(ctx context.Context, model string) (description object, err error) {
	text, err := g.readResponse(g.sendRequest(ctx, http.MethodGet, model, "", "", requestBody{}))
	if err == nil {
		err = decodeObject(text, &description)
	}
	return description, err
}

// modelLists lists the two names of the field with the list of models: that of the Gemini API and that of Vertex AI.
var modelLists = []string{"models", "publisherModels"}

func (g *google) listModels(ctx context.Context, query url.Values) (models []any, nextPageToken string, err error) {
	var answer object
	text, err := g.readResponse(g.sendRequest(ctx, http.MethodGet, "", "", query.Encode(), requestBody{}))
	if err == nil {
		err = decodeObject(text, &answer)
	}
	for _, name := range modelLists {
		some, _ := answer[name].([]any)
		models = append(models, some...)
	}
	nextPageToken, _ = answer["nextPageToken"].(string)
	return models, nextPageToken, err
}

// sendRequest sends a request and returns the body of a successful response.
func (g *google) sendRequest(ctx context.Context, httpMethod, model, method, query string, request requestBody) (io.ReadCloser, error) {
	if err := checkModelName(model, method); err != nil {
		return nil, err
	}
	r, secret, err := g.api.Request(ctx, httpMethod, model, method, query, nil)
	if err != nil {
		return nil, &backendError{http.StatusServiceUnavailable, signaling.GoogleError(http.StatusServiceUnavailable, err.Error(), 0), ""}
	}
	if httpMethod == http.MethodPost {
		request.attachTo(r)
		r.Header.Set("Content-Type", "application/json")
	}
	resp, err := g.client.Do(r)
	if err != nil {
		return nil, errors.New(secret.Hide(err.Error()))
	}
	if resp.StatusCode == http.StatusOK {
		return requireUncompressed(resp)
	}
	defer resp.Body.Close()
	g.api.HandleRefusal(secret, resp.StatusCode)
	text, _ := io.ReadAll(io.LimitReader(resp.Body, 64<<10))
	message := secret.Hide(string(text))                                                   // the backend may have sent the API key back
	message = strings.TrimSuffix(strings.TrimPrefix(strings.TrimSpace(message), "["), "]") // some errors come in an array
	var body object
	if json.Unmarshal([]byte(message), &body) != nil || body["error"] == nil {
		return nil, fmt.Errorf("the backend answered %d: %.200s", resp.StatusCode, message)
	}
	return nil, &backendError{resp.StatusCode, body, resp.Header.Get("Retry-After")}
}

// checkModelName rejects a name that would change the path of the request, because the request carries the gateway's
// API key.
func checkModelName(model, method string) error {
	if strings.Contains(model, "/") || model == "." || model == ".." || method == "" && strings.Contains(model, ":") {
		const message = "The model's name would be another path: it has a slash or a colon, or is made of dots."
		return &backendError{http.StatusBadRequest, signaling.GoogleError(http.StatusBadRequest, message, 0), ""}
	}
	return nil
}

// requireUncompressed returns the body of a response. It returns an error if the body is compressed, because the
// gateway has not asked for compression.
func requireUncompressed(resp *http.Response) (io.ReadCloser, error) {
	if encoding := resp.Header.Get("Content-Encoding"); encoding != "" && encoding != "identity" {
		resp.Body.Close()
		return nil, fmt.Errorf("the backend's answer has the content encoding %.20q, which was not asked for", encoding)
	}
	return resp.Body, nil
}
