package signaling

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"voxgate/bridge"
	"voxgate/signaling/access"
	"voxgate/tools"
)

// googleStatuses maps HTTP statuses to Google's names: https://cloud.google.com/apis/design/errors#handling_errors.
var googleStatuses = map[int]string{
	http.StatusBadRequest:            "INVALID_ARGUMENT",
	http.StatusUnauthorized:          "UNAUTHENTICATED",
	http.StatusForbidden:             "PERMISSION_DENIED",
	http.StatusNotFound:              "NOT_FOUND",
	http.StatusRequestTimeout:        "DEADLINE_EXCEEDED",
	http.StatusRequestEntityTooLarge: "INVALID_ARGUMENT",
	http.StatusTooManyRequests:       "RESOURCE_EXHAUSTED",
	http.StatusInternalServerError:   "INTERNAL",
	http.StatusBadGateway:            "UNAVAILABLE",
	http.StatusServiceUnavailable:    "UNAVAILABLE",
	http.StatusNotImplemented:        "UNIMPLEMENTED",
	http.StatusGatewayTimeout:        "DEADLINE_EXCEEDED",
}

// GoogleError returns the body of an error of Google's HTTP APIs. If retry is above 0, the body contains it as
// RetryInfo, because the Gemini CLI respects that.
func GoogleError(status int, message string, retry time.Duration) map[string]any {
	details := []any{}
	if retry > 0 {
		details = append(details, map[string]any{
			"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": strconv.Itoa(access.RetrySeconds(retry)) + "s",
		})
	}
	return map[string]any{"error": map[string]any{
		"code": status, "message": message, "status": cmp.Or(googleStatuses[status], "UNKNOWN"), "details": details,
	}}
}

// errorReadTime limits how long a client may take to read an error. It replaces the HTTP server's write deadline, which
// may have passed while the gateway waited for a backend.
const errorReadTime = 30 * time.Second

// WriteGoogleError answers a request with an error in Google's format.
func WriteGoogleError(w http.ResponseWriter, status int, message string, retry time.Duration) {
	if retry > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(access.RetrySeconds(retry)))
	}
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(errorReadTime))
	w.Header().Set("Content-Type", "application/json; charset=UTF-8")
	w.WriteHeader(status)
	body, _ := json.Marshal(GoogleError(status, message, retry)) // no error: the body has only strings and a number
	_, _ = w.Write(body)
}

// WriteGoogleErrorFor answers a request with an error of the gateway, converted by [HTTPError].
func WriteGoogleErrorFor(w http.ResponseWriter, err error) {
	status, message, retry := HTTPError(err)
	WriteGoogleError(w, status, message, retry)
}

// HTTPError returns the HTTP status, message and retry delay for an error. The message is that of the error only for a
// [bridge.Error]. Other errors get a general message, because theirs are not meant for clients.
func HTTPError(err error) (status int, message string, retry time.Duration) {
	e := bridge.AsError(err)
	status = access.RefusalStatusOrZero(e)
	switch {
	case status != 0:
	case e.Code == bridge.CodeBadMessage:
		status = http.StatusBadRequest
	default:
		status = http.StatusInternalServerError
	}
	var own *bridge.Error
	if !errors.As(err, &own) {
		return status, "Something went wrong in the gateway.", e.Retry
	}
	return status, e.Message, e.Retry
}

// NormalizeGoogleJSON converts the field names in a message to camelCase, and its base64 to the standard alphabet. It
// is needed because Google's SDK for Python sends snake_case names and URL-safe base64, which proto3 JSON allows as
// well.
func NormalizeGoogleJSON(raw json.RawMessage) json.RawMessage {
	if !bytes.ContainsAny(raw, "_-") {
		return raw
	}
	in := json.NewDecoder(bytes.NewReader(raw))
	in.UseNumber()
	var tree any
	if in.Decode(&tree) != nil || in.More() {
		return raw // rejected by the parser
	}
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if e.Encode(normalizeTree(tree)) != nil {
		return raw
	}
	return b.Bytes()
}

// userNamedFields lists fields whose content is not changed, because users have chosen the names in it.
var userNamedFields = []string{"args", "default", "enum", "example", "labels", "parametersJsonSchema", "response", "responseJsonSchema"}

var standardBase64 = strings.NewReplacer("-", "+", "_", "/")

func normalizeTree(tree any) any {
	switch v := tree.(type) {
	case []any:
		for i := range v {
			v[i] = normalizeTree(v[i])
		}
	case map[string]any:
		named := make(map[string]any, len(v))
		for name, value := range v {
			name = tools.ToCamelCase(name)
			properties, ok := value.(map[string]any)
			switch {
			case (name == "properties" || name == "$defs" || name == "definitions") && ok: // its keys are names that the user has chosen
				for property, schema := range properties {
					properties[property] = normalizeTree(schema)
				}
			case !slices.Contains(userNamedFields, name):
				value = normalizeTree(value)
			}
			named[name] = value
		}
		if data, ok := named["data"].(string); ok && named["mimeType"] != nil {
			data = strings.TrimRight(standardBase64.Replace(data), "=")
			named["data"] = data + strings.Repeat("=", -len(data)&3)
		}
		return named
	}
	return tree
}
