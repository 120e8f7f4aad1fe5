package openai

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"

	"github.com/gorilla/websocket"
)

// The beta of the Realtime API is not supported; OpenAI does not support it any more, either. Its clients get an error
// that names the necessary change: https://platform.openai.com/docs/guides/realtime, "Beta to GA migration".

// betaSubprotocol selects the beta in the list of WebSocket subprotocols.
const betaSubprotocol = "openai-beta.realtime-v1"

// newBetaError returns the error for a client of the beta. The code and the first sentence are OpenAI's.
func newBetaError(format string, args ...any) error {
	return newError("beta_api_shape_disabled", "", "The Realtime Beta API is no longer supported. "+format, args...)
}

// rejectBeta returns an error if the headers of a request select the beta.
func rejectBeta(r *http.Request) error {
	switch {
	case strings.Contains(r.Header.Get("OpenAI-Beta"), "realtime=v1"):
		return newBetaError("Send no header OpenAI-Beta, and use the GA API.")
	case slices.Contains(websocket.Subprotocols(r), betaSubprotocol):
		return newBetaError("Send no subprotocol %s, and use the GA API.", betaSubprotocol)
	}
	return nil
}

// rejectBetaPath rejects a request to a path that only the beta has.
func rejectBetaPath(_ http.ResponseWriter, r *http.Request) error {
	if strings.HasSuffix(r.URL.Path, "/sessions") {
		return newBetaError("Create client secrets with POST /v1/realtime/client_secrets, in the format of the GA API.")
	}
	return newBetaError("Send the offer to /v1/realtime/calls, and use the GA API.")
}

// betaFields lists the fields of a session that only the beta has, each followed by its path in the GA API.
var betaFields = [][]string{
	{"input_audio_format", "audio", "input", "format"},
	{"input_audio_noise_reduction", "audio", "input", "noise_reduction"},
	{"input_audio_transcription", "audio", "input", "transcription"},
	{"max_response_output_tokens", "max_output_tokens"},
	{"modalities", "output_modalities"},
	{"output_audio_format", "audio", "output", "format"},
	{"speed", "audio", "output", "speed"},
	{"turn_detection", "audio", "input", "turn_detection"},
	{"voice", "audio", "output", "voice"},
}

// rejectBetaFields returns an error for the first field that only the beta has, or nil. param is the path of fields.
func rejectBetaFields(fields map[string]json.RawMessage, param string) error {
	for _, m := range betaFields {
		if fields[m[0]] != nil {
			return newError("unknown_parameter", param+m[0], "Unknown parameter: '%s'. It is %s now.", param+m[0], strings.Join(m[1:], "."))
		}
	}
	return nil
}
