package emulator

import (
	"cmp"
	"net/http"
	"regexp"
	"strings"

	"voxgate/bridge/gemini/emulator/live"
)

// modelPath matches what describes a model, below any prefix. It is how the gateway finds out whether its credentials are good.
var modelPath = regexp.MustCompile(`/(?:v1|v1beta|v1alpha|v1beta1)/(?:publishers/google/)?models/([^/:]+)$`)

// serveREST answers a request for a path, which is that of the request without double slashes.
func serveREST(w http.ResponseWriter, r *http.Request, path string) {
	m, call := modelPath.FindStringSubmatch(path), methodPath.FindStringSubmatch(path)
	listed := listPath.MatchString(path)
	if (m == nil && !listed || r.Method != http.MethodGet) && (call == nil || r.Method != http.MethodPost) {
		notFound("Requested entity was not found.").write(w)
		return
	}
	if refused := admit(r, live.Endpoint{}); refused != nil {
		refused.write(w)
		return
	}
	if listed {
		list(w)
		return
	}
	if call != nil {
		m = call
	}
	if !strings.HasPrefix(m[1], "gemini-") {
		notFound("models/" + m[1] + " is not found for API version v1beta.").write(w)
		return
	}
	if call != nil {
		generate(w, r, call[1], call[2])
		return
	}
	writeJSON(w, http.StatusOK, describe(m[1]))
}

// admit checks the credentials of a request in all the places where clients put them.
func admit(r *http.Request, to live.Endpoint) *apiError {
	key := cmp.Or(r.Header.Get("X-Goog-Api-Key"), r.URL.Query().Get("key"))
	bearer := authorization(r, "Bearer ")
	access := cmp.Or(r.URL.Query().Get("access_token"), authorization(r, "Token "), bearer)
	switch {
	case strings.HasPrefix(key, "invalid"):
		return &apiError{http.StatusBadRequest, "INVALID_ARGUMENT", "API key not valid. Please pass a valid API key."}
	case strings.HasPrefix(access, "invalid"), strings.HasPrefix(access, "expired"), to.Vertex && bearer == "",
		to.Constrained && !strings.HasPrefix(access, "auth_tokens/"):
		return refusals[http.StatusUnauthorized]
	}
	return nil
}

// authorization returns the credentials of an Authorization header of this scheme, or "".
func authorization(r *http.Request, scheme string) string {
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

// apiError is an error as Google's REST API words it.
type apiError struct {
	Code    int // HTTP status
	Status  string
	Message string
}

// write answers a request with it.
func (e *apiError) write(w http.ResponseWriter) {
	details := []live.Object{}
	if e.Code == http.StatusTooManyRequests { // https://cloud.google.com/apis/design/errors#error_details
		details = append(details, live.Object{"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "7s"})
	}
	writeJSON(w, e.Code, live.Object{"error": live.Object{
		"code": e.Code, "message": e.Message, "status": e.Status, "details": details,
	}})
}

// refusals are Google's answers to a handshake, by their HTTP status.
var refusals = map[int]*apiError{
	http.StatusUnauthorized:       {http.StatusUnauthorized, "UNAUTHENTICATED", "Request had invalid authentication credentials. Expected OAuth 2 access token, login cookie or other valid authentication credential."},
	http.StatusForbidden:          {http.StatusForbidden, "PERMISSION_DENIED", "The caller does not have permission."},
	http.StatusTooManyRequests:    {http.StatusTooManyRequests, "RESOURCE_EXHAUSTED", live.QuotaExceeded},
	http.StatusServiceUnavailable: {http.StatusServiceUnavailable, "UNAVAILABLE", "The service is currently unavailable."},
}

func notFound(message string) *apiError {
	return &apiError{http.StatusNotFound, "NOT_FOUND", message}
}
