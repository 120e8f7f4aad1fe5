package openai

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"

	"voxgate/tools"

	"github.com/gorilla/websocket"
)

// The beta of the Realtime API, which many programs still use, has a flat session and other names for some events:
// https://platform.openai.com/docs/guides/realtime, "Beta to GA migration". A client gets it if it sends the header or the
// subprotocol of the beta, or a secret of the beta's endpoint. For all others its fields are an error.

// isBeta reports whether a request selects the beta.
func isBeta(r *http.Request) bool {
	return strings.Contains(r.Header.Get("OpenAI-Beta"), "realtime=v1") ||
		slices.Contains(websocket.Subprotocols(r), "openai-beta.realtime-v1")
}

// fromBeta moves the fields of the beta to their current places. It returns anything but an object unchanged.
func fromBeta(raw json.RawMessage) json.RawMessage {
	var fields map[string]json.RawMessage
	if json.Unmarshal(raw, &fields) != nil || unknown(fields, "") == nil {
		return raw
	}
	sides := map[string]object{}
	for _, m := range moved {
		value, ok := fields[m[0]]
		if !ok {
			continue
		}
		delete(fields, m[0])
		switch to := m[len(m)-1]; to {
		case "format":
			for name, kind := range map[string]string{"pcm16": formatPCM, "g711_ulaw": formatMuLaw, "g711_alaw": formatALaw} {
				if string(value) == `"`+name+`"` {
					value = tools.Encode(format{Type: kind})
				}
			}
		case "output_modalities":
			if strings.Contains(string(value), `"`+asAudio+`"`) { // audio always includes the transcript
				value = json.RawMessage(`["` + asAudio + `"]`)
			}
		}
		if len(m) == 2 {
			fields[m[1]] = value
			continue
		}
		if sides[m[2]] == nil {
			sides[m[2]] = object{}
		}
		sides[m[2]][m[3]] = value
	}
	if len(sides) > 0 {
		fields["audio"] = tools.Encode(sides)
	}
	return tools.Encode(fields)
}

// The beta's names of events, and of content parts.
var (
	betaEvents = strings.NewReplacer(
		"response.output_audio", "response.audio", "response.output_text", "response.text",
		"conversation.item.added", "conversation.item.created",
	)
	betaParts = strings.NewReplacer(`"type":"output_audio"`, `"type":"audio"`, `"type":"output_text"`, `"type":"text"`)
)

// toBeta returns the type and the fields of an event in the beta; the type is "" if the beta has no such event.
func toBeta(kind string, fields []byte) (string, []byte) {
	switch {
	case kind == "conversation.item.done":
		return "", nil
	case !strings.HasSuffix(kind, ".delta"): // deltas are long, and have no parts
		fields = []byte(betaParts.Replace(string(fields)))
	}
	return betaEvents.Replace(kind), fields
}
