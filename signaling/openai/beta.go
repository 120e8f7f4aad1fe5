package openai

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"

	"voxgate/tools"

	"github.com/gorilla/websocket"
)

// The beta of the Realtime API, which many programs still speak, has a flat session and other names of some events:
// https://platform.openai.com/docs/guides/realtime, "Beta to GA migration". It is served to clients that ask for it, by the
// header or the subprotocol of the beta, or by a secret of its endpoint. To others its fields are unknown.

// isBeta reports whether a request asks for the beta.
func isBeta(r *http.Request) bool {
	return strings.Contains(r.Header.Get("OpenAI-Beta"), "realtime=v1") ||
		slices.Contains(websocket.Subprotocols(r), "openai-beta.realtime-v1")
}

// fromBeta moves the fields of the beta to where they are now. What is no object stays as it is.
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
			if strings.Contains(string(value), `"`+asAudio+`"`) { // with the transcript, which comes anyway
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

// The beta's names of events, and of the parts of answers.
var (
	betaEvents = strings.NewReplacer(
		"response.output_audio", "response.audio", "response.output_text", "response.text",
		"conversation.item.added", "conversation.item.created",
	)
	betaParts = strings.NewReplacer(`"type":"output_audio"`, `"type":"audio"`, `"type":"output_text"`, `"type":"text"`)
)

// toBeta is an event as the beta has it; "": it has none.
func toBeta(kind string, fields []byte) (string, []byte) {
	switch {
	case kind == "conversation.item.done":
		return "", nil
	case !strings.HasSuffix(kind, ".delta"): // which are long, and have no parts
		fields = []byte(betaParts.Replace(string(fields)))
	}
	return betaEvents.Replace(kind), fields
}
