package emulator

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strings"

	"voxgate/bridge/gemini/emulator/live"
)

// restPath matches the REST API below any prefix: a version, then tokens, or models with a method after a colon, or
// after a slash as some write it. Vertex has its models below projects and locations.
var restPath = regexp.MustCompile(`/(?:v1|v1beta|v1alpha|v1beta1)/(?:(auth_tokens)|` +
	`(?:projects/[^/]+/locations/[^/]+/)?(?:publishers/[^/]+/)?models(?:/([^/:]+)(?:[:/]([A-Za-z]+))?)?)/?$`)

// restModels are listed besides the live ones.
var restModels = []string{"gemini-3.8-flash", "gemini-3.5-flash-lite"}

// restAPI serves the REST API. The zero value is ready.
type restAPI struct {
	tokens tokenStore
}

// bodyLimit is what a client may send at once; Google's own limit is not published.
const bodyLimit = 16 << 20

// serve answers a request of any prefix of a path, which is that of the request without double slashes.
func (a *restAPI) serve(w http.ResponseWriter, r *http.Request, path string) {
	m := restPath.FindStringSubmatch(path)
	if m == nil {
		notFound("Requested entity was not found.").write(w)
		return
	}
	if _, refused := a.admit(r, live.Endpoint{}); refused != nil {
		refused.write(w)
		return
	}
	tokens, model, method := m[1] != "", m[2], m[3]
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, bodyLimit))
	if err != nil {
		badRequest("Request payload size exceeds the limit.").write(w)
		return
	}
	switch {
	case tokens && r.Method == http.MethodPost:
		minted, refused := a.tokens.mint(body)
		if refused != nil {
			refused.write(w)
			return
		}
		writeJSON(w, http.StatusOK, minted)
	case r.Method == http.MethodGet && !tokens && model == "":
		var list []live.Object
		for _, name := range append(live.Models(), restModels...) {
			list = append(list, modelInfo(name))
		}
		writeJSON(w, http.StatusOK, live.Object{"models": list})
	case r.Method == http.MethodGet && model != "" && method == "":
		if !strings.HasPrefix(model, "gemini-") {
			notFound("models/" + model + " is not found for API version v1beta.").write(w)
			return
		}
		writeJSON(w, http.StatusOK, modelInfo(model))
	case r.Method == http.MethodPost && method != "":
		generate(w, r, model, method, body)
	default:
		notFound("Requested entity was not found.").write(w)
	}
}

func modelInfo(name string) live.Object {
	methods := []string{"bidiGenerateContent"}
	if strings.Contains(name, "flash") && !strings.Contains(name, "live") {
		methods = []string{"generateContent", "countTokens"}
	}
	return live.Object{
		"name": "models/" + name, "displayName": name, "version": "001",
		"inputTokenLimit": 131072, "outputTokenLimit": 65536, "supportedGenerationMethods": methods,
	}
}

// generate answers with what it was asked.
func generate(w http.ResponseWriter, r *http.Request, model, method string, body []byte) {
	var ask struct{ Contents []live.Content }
	// Only these fields matter here, and the REST API has many more; unknown ones pass.
	if err := json.Unmarshal(body, &ask); err != nil {
		badRequest("Invalid JSON payload received.").write(w)
		return
	}
	if len(ask.Contents) == 0 {
		badRequest("* GenerateContentRequest.contents: contents is not specified").write(w)
		return
	}
	said, tokens := "", 0
	for _, c := range ask.Contents {
		tokens += len(c.Text())/4 + 1
		if c.Role != "model" {
			said = c.Text()
		}
	}
	answer := "You said: " + said
	switch method {
	case "countTokens":
		writeJSON(w, http.StatusOK, live.Object{"totalTokens": tokens})
	case "generateContent":
		writeJSON(w, http.StatusOK, piece(model, answer, tokens, true))
	case "streamGenerateContent":
		stream(w, r, model, strings.SplitAfter(answer, " "), tokens)
	default:
		notFound("Method not found.").write(w)
	}
}

// piece is a GenerateContentResponse.
func piece(model, text string, prompt int, last bool) live.Object {
	candidate := live.Object{"content": live.Object{"role": "model", "parts": []live.Object{{"text": text}}}, "index": 0}
	if last {
		candidate["finishReason"] = "STOP"
	}
	out := len(text)/4 + 1
	return live.Object{
		"candidates": []live.Object{candidate}, "modelVersion": model,
		"usageMetadata": live.Object{"promptTokenCount": prompt, "candidatesTokenCount": out, "totalTokenCount": prompt + out},
	}
}

// stream writes server-sent events if asked to, else one JSON array, piece by piece.
func stream(w http.ResponseWriter, r *http.Request, model string, words []string, tokens int) {
	sse := r.URL.Query().Get("alt") == "sse"
	before, between, after := "[", ",\n", "]"
	if w.Header().Set("Content-Type", "application/json; charset=UTF-8"); sse {
		w.Header().Set("Content-Type", "text/event-stream")
		before, between, after = "data: ", "\r\n\r\ndata: ", "\r\n\r\n"
	}
	flush := http.NewResponseController(w)
	for i, word := range words {
		data, err := json.Marshal(piece(model, word, tokens, i == len(words)-1))
		if err != nil {
			return
		}
		if _, err := fmt.Fprintf(w, "%s%s", before, data); err != nil {
			return
		}
		before = between
		_ = flush.Flush()
	}
	_, _ = io.WriteString(w, after)
}

func writeJSON(w http.ResponseWriter, code int, body any) {
	data, err := json.MarshalIndent(body, "", "  ")
	if err != nil {
		http.Error(w, "internal error", http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json; charset=UTF-8")
	w.WriteHeader(code)
	_, _ = w.Write(append(data, '\n'))
}

// apiError is an error as Google's REST API words it.
type apiError struct {
	Code    int // HTTP status
	Status  string
	Message string
}

// write answers a request with it.
func (e *apiError) write(w http.ResponseWriter) {
	writeJSON(w, e.Code, map[string]any{"error": map[string]any{
		"code": e.Code, "message": e.Message, "status": e.Status, "details": []any{},
	}})
}

var refusals = map[int]*apiError{
	http.StatusUnauthorized:       {http.StatusUnauthorized, "UNAUTHENTICATED", "Request had invalid authentication credentials. Expected OAuth 2 access token, login cookie or other valid authentication credential."},
	http.StatusForbidden:          {http.StatusForbidden, "PERMISSION_DENIED", "The caller does not have permission."},
	http.StatusTooManyRequests:    {http.StatusTooManyRequests, "RESOURCE_EXHAUSTED", live.QuotaExceeded},
	http.StatusServiceUnavailable: {http.StatusServiceUnavailable, "UNAVAILABLE", "The service is currently unavailable."},
}

// refusal returns Google's answer of this HTTP status to a handshake: 401, 403, 429 or 503, nil for any other.
func refusal(status int) *apiError { return refusals[status] }

func badRequest(message string) *apiError {
	return &apiError{http.StatusBadRequest, "INVALID_ARGUMENT", message}
}

func notFound(message string) *apiError {
	return &apiError{http.StatusNotFound, "NOT_FOUND", message}
}
