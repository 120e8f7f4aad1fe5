package emulator

import (
	"cmp"
	"fmt"
	"net/http"
	"regexp"
	"strings"

	"voxgate/bridge/gemini/emulator/live"
)

// modelPath matches three kinds of REST paths, after any prefix: the list of models, a model, and a method of a model.
var modelPath = regexp.MustCompile(
	`/(?:v1|v1beta|v1alpha|v1beta1)/(?:(?:projects/[^/]+/locations/[^/]+/)?publishers/google/)?models(?:/([^/:]*)(?::(\w+))?)?$`,
)

// models is the list of models that the emulator sends to clients. The emulator also accepts all other models whose
// names begin with "gemini-".
var models = []string{"gemini-3.8-live", "gemini-3.8-flash", "gemini-3.5-flash-lite", "gemini-embedding-001"}

// serveREST handles a REST request. path is the request's path without double slashes.
func (e *Emulator) serveREST(w http.ResponseWriter, r *http.Request, path string) {
	m, method := modelPath.FindStringSubmatch(path), http.MethodGet
	if m != nil && m[2] != "" {
		method = http.MethodPost
	}
	if m == nil || r.Method != method {
		newNotFoundError("Requested entity was not found.").write(w)
		return
	}
	model, call := m[1], m[2]
	refused := checkCredentials(r, live.Endpoint{})
	switch {
	case refused != nil:
		refused.write(w)
	case model == "":
		all := []live.Object{}
		for _, m := range models {
			all = append(all, modelInfo(m))
		}
		writeJSON(w, http.StatusOK, live.Object{"models": all})
	case !strings.HasPrefix(model, "gemini-"):
		newNotFoundError("models/" + model + " is not found for API version v1beta.").write(w)
	case call != "":
		e.handleModelMethod(w, r, model, call)
	default:
		writeJSON(w, http.StatusOK, modelInfo(model))
	}
}

func modelInfo(model string) live.Object {
	methods := []string{"generateContent", "countTokens"}
	switch {
	case strings.Contains(model, "live"):
		methods = []string{"bidiGenerateContent"}
	case strings.Contains(model, "embedding"):
		methods = []string{"embedContent"}
	}
	return live.Object{
		"name": "models/" + model, "displayName": model, "version": "001",
		"inputTokenLimit": 131072, "outputTokenLimit": 65536, "supportedGenerationMethods": methods,
	}
}

// checkCredentials checks the credentials of a request. It looks in all the places where clients put them.
func checkCredentials(r *http.Request, endpoint live.Endpoint) *apiError {
	key := cmp.Or(r.Header.Get("X-Goog-Api-Key"), r.URL.Query().Get("key"))
	bearer := parseAuthorization(r, "Bearer ")
	access := cmp.Or(r.URL.Query().Get("access_token"), parseAuthorization(r, "Token "), bearer)
	switch {
	case strings.HasPrefix(key, "invalid"):
		return &apiError{http.StatusBadRequest, "INVALID_ARGUMENT", "API key not valid. Please pass a valid API key."}
	case strings.HasPrefix(key, "expired"):
		return &apiError{http.StatusBadRequest, "INVALID_ARGUMENT", "API key expired. Please renew the API key."}
	case strings.HasPrefix(access, "invalid"), strings.HasPrefix(access, "expired"), endpoint.Vertex && bearer == "",
		endpoint.Constrained && !strings.HasPrefix(access, "auth_tokens/"):
		return refusals[http.StatusUnauthorized]
	}
	return nil
}

// parseAuthorization returns the credentials in an Authorization header with this scheme, or "".
func parseAuthorization(r *http.Request, scheme string) string {
	value, ok := strings.CutPrefix(r.Header.Get("Authorization"), scheme)
	if !ok {
		return ""
	}
	return value
}

func writeJSON(w http.ResponseWriter, code int, body live.Object) {
	w.Header().Set("Content-Type", "application/json; charset=UTF-8")
	w.WriteHeader(code)
	_, _ = w.Write(live.Encode(body))
}

// apiError is an error of Google's REST API.
type apiError struct {
	Code    int // HTTP status
	Status  string
	Message string
}

// write sends the error as a response.
func (e *apiError) write(w http.ResponseWriter) {
	details := []live.Object{}
	if e.Code == http.StatusTooManyRequests { // https://cloud.google.com/apis/design/errors#error_details
		details = append(details, live.Object{"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "7s"})
	}
	writeJSON(w, e.Code, live.Object{"error": live.Object{
		"code": e.Code, "message": e.Message, "status": e.Status, "details": details,
	}})
}

// refusals maps HTTP statuses to Google's responses to a handshake.
var refusals = map[int]*apiError{
	http.StatusUnauthorized: {
		http.StatusUnauthorized, "UNAUTHENTICATED",
		"Request had invalid authentication credentials. Expected OAuth 2 access token, login cookie or other valid authentication credential.",
	},
	http.StatusForbidden:          {http.StatusForbidden, "PERMISSION_DENIED", "The caller does not have permission."},
	http.StatusTooManyRequests:    {http.StatusTooManyRequests, "RESOURCE_EXHAUSTED", live.QuotaExceeded},
	http.StatusServiceUnavailable: {http.StatusServiceUnavailable, "UNAVAILABLE", "The service is currently unavailable."},
}

func newNotFoundError(message string) *apiError {
	return &apiError{http.StatusNotFound, "NOT_FOUND", message}
}

func newInvalidError(format string, args ...any) *apiError {
	return &apiError{http.StatusBadRequest, "INVALID_ARGUMENT", fmt.Sprintf(format, args...)}
}
