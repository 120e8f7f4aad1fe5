package live

import "regexp"

// endpointPath matches the Live API below any prefix: Google's own with its version and perhaps the method for ephemeral
// tokens, or Vertex's, which has a slash where the other has a dot.
var endpointPath = regexp.MustCompile(`/ws/google\.(?:ai\.generativelanguage\.(v1|v1beta|v1alpha)\.GenerativeService|` +
	`cloud\.aiplatform\.(v1|v1beta1)\.LlmBidiService)[./]BidiGenerateContent(Constrained)?$`)

// Endpoint is which of Google's APIs a client has come to.
type Endpoint struct {
	Version     string // "v1beta"
	Vertex      bool
	Constrained bool // for ephemeral tokens
}

// EndpointOf returns the endpoint at a path of a URL, if there is one.
func EndpointOf(urlPath string) (Endpoint, bool) {
	m := endpointPath.FindStringSubmatch(urlPath)
	if m == nil {
		return Endpoint{}, false
	}
	return Endpoint{Version: m[1] + m[2], Vertex: m[2] != "", Constrained: m[3] != ""}, true
}
