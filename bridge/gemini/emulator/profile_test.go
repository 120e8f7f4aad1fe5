package emulator_test

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gorilla/websocket"
)

const (
	gemini38  = "gemini-3.8-live"
	extended  = "gemini-3.8-live-extended-thinking"
	gemini31  = "gemini-3.1-flash-live-preview"
	gemini25  = "gemini-2.5-flash-native-audio-preview-12-2025"
	vertex25  = "gemini-live-2.5-flash-native-audio"
	vertexOld = "gemini-live-2.5-flash"

	vertexPath = "/ws/google.cloud.aiplatform.v1beta1.LlmBidiService/BidiGenerateContent"
	alphaPath  = "/ws/google.ai.generativelanguage.v1alpha.GenerativeService.BidiGenerateContent"
)

// visit opens a session with a model and the rest of a setup, on Vertex if the path is.
func visit(t *testing.T, path, model, rest string) *raw {
	t.Helper()
	client := newPeer(t, silent)
	name, header := "models/"+model, http.Header(nil)
	if path == vertexPath {
		name, header = "projects/p/locations/us-central1/publishers/google/models/"+model, http.Header{"Authorization": {"Bearer token"}}
	}
	r := newRaw(t, client, path, header)
	r.write(fmt.Sprintf(`{"setup":{"model":%q%s}}`, name, rest))
	return r
}

// sessionID matches a setupComplete, which has an id on Vertex AI.
var sessionID = regexp.MustCompile(`^{\n  "setupComplete": {(\n    "sessionId": "[0-9a-f-]{36}"\n  )?}\n}\n$`)

// profileCase is a setup and the expected result.
type profileCase struct {
	path, model, rest string
	code              int // 0: accepted
	reason            string
}

func (c profileCase) run(t *testing.T) {
	t.Run(c.path[14:20]+" "+c.model+c.rest, func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			r := visit(t, c.path, c.model, c.rest)
			if c.code != 0 {
				r.closes(c.code, c.reason)
			} else if kind, data, err := r.ws.ReadMessage(); err != nil || kind != websocket.BinaryMessage ||
				!sessionID.Match(data) || sessionID.Match(data) && (c.path == vertexPath) != bytes.Contains(data, []byte("sessionId")) {
				t.Errorf("%d %s %v", kind, data, err)
			}
		})
	})
}

func TestModelsByBackend(t *testing.T) {
	const level = `,"generationConfig":{"thinkingConfig":{"thinkingLevel":"LOW"}}`
	for _, c := range []profileCase{
		{livePath, gemini38, "", 0, ""},
		{livePath, extended, level, 0, ""},
		{livePath, gemini31, "", 0, ""},
		{livePath, gemini25, "", 0, ""},
		{livePath, "gemini-2.5-flash-native-audio-latest", "", 0, ""},
		{livePath, "gemini-3.5-live-translate-preview", "", 0, ""},
		{livePath, vertex25, "", 1008, "models/" + vertex25 + " is not found for API version v1beta, or is not supported"},
		{livePath, vertexOld, "", 1008, "is not found for API version v1beta"},
		{livePath, "gemini-live-2.5-flash-preview", "", 1008, "is not found"},
		{vertexPath, gemini38, "", 0, ""},
		{vertexPath, vertex25, "", 0, ""},
		{vertexPath, vertexOld, "", 0, ""},
		{vertexPath, extended, level, 1008, "Publisher model was not found"},
		{vertexPath, gemini31, "", 1008, "Publisher model was not found"},
		{vertexPath, gemini25, "", 1008, "Publisher model was not found"},
	} {
		c.run(t)
	}
}

// TestModelFeatures checks what each model accepts and refuses.
func TestModelFeatures(t *testing.T) {
	thinking := func(text string) string { return `,"generationConfig":{"thinkingConfig":{` + text + `}}` }
	modality := func(text string) string { return `,"generationConfig":{"responseModalities":["` + text + `"]}` }
	function := func(behavior string) string {
		return `,"tools":[{"functionDeclarations":[{"name":"f","behavior":"` + behavior + `"}]}]`
	}
	takes := func(property string) string {
		return `,"tools":[{"functionDeclarations":[{"name":"f","parameters":{"type":"OBJECT","properties":{"a":` + property + `}}}]}]`
	}
	level := thinking(`"thinkingLevel":"LOW"`)
	const proactive, reactive = `,"proactivity":{"proactiveAudio":true}`, `,"proactivity":{"proactiveAudio":false}`
	const affective = `,"generationConfig":{"enableAffectiveDialog":true}`
	const signal, transparent = `,"explicitVadSignal":true`, `,"sessionResumption":{"transparent":true}`
	const avatar = `,"avatarConfig":{},"generationConfig":{"responseModalities":["VIDEO"]}`
	for _, c := range []profileCase{
		// How they answer.
		{livePath, gemini38, modality("TEXT"), 1007, "response modalities (TEXT)"},
		{livePath, gemini25, modality("TEXT"), 1007, "response modalities (TEXT)"},
		{livePath, gemini38, modality("IMAGE"), 1007, "response modalities (IMAGE)"},
		{livePath, gemini38, modality("SMELL"), 1007, "'setup.generation_config.response_modalities[0]'"},
		{livePath, gemini38, modality("audio"), 0, ""},
		{vertexPath, vertexOld, modality("TEXT"), 0, ""},
		{vertexPath, gemini38, avatar, 0, ""},
		{vertexPath, gemini38, modality("VIDEO"), 1007, "(VIDEO)"},
		{livePath, gemini38, avatar, 1007, ""},
		// Thinking.
		{livePath, gemini38, level, 1007, "Thinking level is not supported"},
		{livePath, extended, "", 1007, "Thinking level must be specified for this model"},
		{livePath, extended, thinking(`"thinkingLevel":"minimal"`), 1007, "MINIMAL is not supported"},
		{livePath, extended, thinking(`"thinkingLevel":"high"`), 0, ""},
		{livePath, extended, thinking(`"thinkingLevel":"LOW","thinkingBudget":5`), 1007, "cannot be used together"},
		{livePath, extended, thinking(`"thinkingBudget":5`), 1007, "Thinking level must be specified"},
		{livePath, gemini31, thinking(`"thinkingLevel":"MINIMAL"`), 0, ""},
		{livePath, gemini31, thinking(`"thinkingLevel":"EXTREME"`), 1007, "thinking_level"},
		{livePath, gemini31, thinking(`"thinkingBudget":5`), 0, ""},
		{livePath, gemini25, thinking(`"thinkingBudget":0`), 0, ""},
		{livePath, gemini25, level, 1007, "level is not supported"},
		// Functions.
		{livePath, gemini38, function("BLOCKING"), 0, ""},
		{livePath, gemini38, function("blocking"), 0, ""},
		{livePath, gemini38, function("SOMETIMES"), 1007, "'setup.tools[0].function_declarations[0].behavior'"},
		{livePath, extended, level + function("BLOCKING"), 1007, "Blocking function calls are not supported"},
		{livePath, gemini31, function("NON_BLOCKING"), 0, ""},
		{livePath, gemini25, function("NON_BLOCKING"), 0, ""},
		{livePath, gemini38, takes(`{"anyOf":[{"type":"STRING"},{"type":"ARRAY","items":{"type":"STRING"}}]}`), 0, ""},
		// as every MCP client sends it
		{livePath, gemini38, takes(`{"type":"object","properties":{"b":{"type":"array","items":{"type":"string"}}}}`), 0, ""},
		{livePath, gemini38, takes(`{"type":"thing"}`), 1007, "properties.a.type"},
		{livePath, gemini38, takes(`{"type":"object"}`), 1007, "properties[a].properties: should be non-empty"},
		{livePath, gemini38, takes(`{"type":"STRING","additionalProperties":false}`), 1007, `Unknown name "additionalProperties"`},
		{livePath, gemini38, takes(`{}`), 1007, "parameters.properties[a]: schema didn't specify"},
		{livePath, gemini38, takes(`{"type":"OBJECT"}`), 1007, "properties[a].properties: should be non-empty"},
		{livePath, gemini38, takes(`{"type":"ARRAY"}`), 1007, "properties[a].items: missing field"},
		{
			livePath, gemini38, takes(`{"anyOf":[{"type":"ARRAY","items":{"type":"OBJECT"}}]}`), 1007,
			"any_of[0].items.properties: should be non-empty",
		},
		// Proactive audio and affective dialog.
		{livePath, gemini25, proactive, 1007, `Unknown name "proactivity" at 'setup'`},
		{alphaPath, gemini25, proactive + affective, 0, ""},
		{vertexPath, vertex25, proactive, 0, ""},
		{alphaPath, gemini31, proactive, 1007, "Proactive audio is not supported"},
		{alphaPath, gemini31, affective, 1007, "Affective dialog is not supported"},
		{alphaPath, gemini38, proactive, 0, ""},
		{alphaPath, gemini38, reactive, 1007, "Proactive audio cannot be disabled"},
		{alphaPath, extended, level + reactive, 1007, "Proactive audio cannot be disabled"},
		{alphaPath, gemini38, affective, 0, ""}, // refused with the first message
		{livePath, gemini38, affective, 1007, `Unknown name "enableAffectiveDialog" at 'setup.generation_config'`},
		// What only one of the two has.
		{livePath, gemini38, signal, 1007, "invalid argument"},
		{livePath, gemini38, transparent, 1007, "invalid argument"},
		{vertexPath, gemini38, signal + transparent, 0, ""},
		{vertexPath, gemini38, `,"realtimeInputConfig":{"turnCoverage":"TURN_INCLUDES_AUDIO_ACTIVITY_AND_ALL_VIDEO"}`, 1007, "invalid argument"},
		{
			livePath, gemini38, `,"realtimeInputConfig":{"turnCoverage":"TURN_INCLUDES_EVERYTHING"}`, 1007,
			"'setup.realtime_input_config.turn_coverage'",
		},
	} {
		c.run(t)
	}
}

func TestVertexNames(t *testing.T) {
	for _, name := range []string{
		"models/gemini-3.8-live", "gemini-3.8-live", "publishers/google/models/gemini-3.8-live",
		"projects/p/locations/l/publishers/google/gemini-3.8-live", "projects/p/locations/l/publishers/meta/models/gemini-3.8-live",
	} {
		synctest.Test(t, func(t *testing.T) {
			r := newRaw(t, newPeer(t, silent), vertexPath, http.Header{"Authorization": {"Bearer token"}})
			r.write(`{"setup":{"model":"` + name + `"}}`)
			r.closes(1007, "Invalid resource name")
		})
	}
}

// TestMidSession sends what a model does not take once the session is open.
func TestMidSession(t *testing.T) {
	const turn = `{"clientContent":{"turns":[{"role":"%s","parts":[{"text":"x"}]}],"turnComplete":true}}`
	const update = `{"contextUpdate":{"systemInstruction":{"parts":[{"text":"x"}]}}}`
	const level = `,"generationConfig":{"thinkingConfig":{"thinkingLevel":"LOW"}}`
	for _, c := range []struct {
		path, model, rest, message string
		code                       int // 0: answered or accepted
		reason                     string
	}{
		{livePath, gemini31, "", fmt.Sprintf(turn, "user"), 1007, "invalid argument"},
		{livePath, gemini25, "", fmt.Sprintf(turn, ""), 0, ""},
		{livePath, gemini38, "", fmt.Sprintf(turn, ""), 1007, "valid role"},
		{livePath, gemini38, "", `{"realtimeInput":{"activityStart":{}}}`, 1007, "Explicit activity control is not supported"},
		{livePath, gemini38, "", fmt.Sprintf(turn, "system"), 1007, "valid role"},
		{
			vertexPath, gemini38, "",
			`{"clientContent":{"turns":[{"role":"system","parts":[{"text":"x"}]},{"role":"user","parts":[{"text":"x"}]}],"turnComplete":true}}`,
			0, "",
		},
		{livePath, gemini38, "", update, 0, ""},
		{livePath, extended, level, update, 0, ""},
		{livePath, gemini31, "", update, 1007, "invalid argument"},
		{livePath, gemini25, "", update, 1007, "invalid argument"},
		{livePath, gemini38, "", `{"contextUpdate":{"tools":{"tools":[{"functionDeclarations":[{"name":"f"}]}]}}}`, 0, ""},
		{
			livePath, gemini38, "", `{"contextUpdate":{"tools":{"tools":[{"functionDeclarations":[{"name":"f"},{"name":"f"}]}]}}}`, 1007,
			"Duplicate function declaration",
		},
		{
			livePath, extended, level, `{"toolResponse":{"functionResponses":[{"id":"x","response":{"a":1},"scheduling":"SILENT"}]}}`, 1007,
			"scheduling is not supported for this model",
		},
		{
			livePath, gemini38, "", `{"toolResponse":{"functionResponses":[{"id":"x","response":{"a":1},"scheduling":"SOON"}]}}`, 1007,
			"Invalid value at 'tool_response.function_responses[0].scheduling'",
		},
		{livePath, gemini31, "", `{"toolResponse":{"functionResponses":[{"id":"x","response":{"a":1},"scheduling":"silent"}]}}`, 0, ""},
		{livePath, gemini38, "", `{"realtimeInput":{"video":{"mimeType":"image/jpeg","data":"_-8"}}}`, 0, ""}, // base64 for URLs, not padded
		{
			livePath, gemini38, "", `{"realtimeInput":{"video":{"mimeType":"image/jpeg","data":"?"}}}`, 1007,
			"Invalid value at 'realtime_input.video.data'",
		},
		{
			vertexPath, gemini38, "", `{"toolResponse":{"functionResponses":[{"id":"x","response":{"a":1},"willContinue":true}]}}`, 1007,
			"invalid argument",
		},
		{alphaPath, gemini38, `,"generationConfig":{"enableAffectiveDialog":true}`, `{"realtimeInput":{"text":"x"}}`, 1007, "Affective dialog"},
		{livePath, gemini38, "", `{"type":"session.update","session":{"voice":"Puck"}}`, 0, ""}, // Mastra
	} {
		t.Run(c.model+" "+c.message, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := visit(t, c.path, c.model, c.rest)
				r.write(c.message)
				if c.code != 0 {
					r.closes(c.code, c.reason)
					return
				}
				r.write(`{"realtimeInput":{"text":"and now?"}}`)
				r.turn()
			})
		})
	}
}

// TestAudioDuringABlockingCall: audio during a blocking call closes the session, unless it was already on its way.
func TestAudioDuringABlockingCall(t *testing.T) {
	audio := `{"realtimeInput":{"audio":{"mimeType":"audio/pcm","data":"` + base64.StdEncoding.EncodeToString(make([]byte, 640)) + `"}}}`
	for _, c := range []struct {
		path, model, behavior string
		closes                bool
	}{
		{livePath, gemini31, "UNSPECIFIED", true},
		{livePath, gemini31, "NON_BLOCKING", true}, // a behavior that this model does not support
		{livePath, gemini25, "BLOCKING", true},
		{livePath, gemini25, "NON_BLOCKING", false},
		{vertexPath, vertexOld, "UNSPECIFIED", true},
		{livePath, gemini38, "UNSPECIFIED", false},
		{livePath, gemini38, "BLOCKING", false},
	} {
		t.Run(c.model+" "+c.behavior, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := visit(t, c.path, c.model, `,"tools":[{"functionDeclarations":[{"name":"f","behavior":"`+c.behavior+`"}]}]`)
				r.write(`{"realtimeInput":{"text":"/tool f"}}`)
				for said := ""; !strings.Contains(said, "toolCall"); {
					_, data, err := r.ws.ReadMessage()
					if err != nil {
						t.Fatal(err)
					}
					said = string(data)
				}
				r.write(audio) // may have been on its way when the call was sent
				time.Sleep(time.Second)
				r.write(audio)
				if c.closes {
					r.closes(1008, "Operation is not implemented, or supported, or enabled.")
					return
				}
				r.write(`{"realtimeInput":{"text":"and now?"}}`)
				r.turn()
			})
		})
	}
}

// TestOnePartPerEvent: messages of the old models have either a piece of the voice or a transcript.
func TestOnePartPerEvent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := visit(t, livePath, gemini25, `,"outputAudioTranscription":{}`)
		r.write(`{"realtimeInput":{"text":"a text that takes several events to be spoken"}}`)
		for {
			_, data, err := r.ws.ReadMessage()
			if err != nil {
				t.Fatal(err)
			}
			said := string(data)
			if strings.Count(said, `"inlineData"`)+strings.Count(said, `"outputTranscription"`) > 1 {
				t.Errorf("%.200s", said)
			}
			if strings.Contains(said, "turnComplete") {
				return
			}
		}
	})
}

func TestVertexWire(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := visit(t, vertexPath, gemini38, "")
		r.write(`{"realtimeInput":{"text":"hello"}}`)
		said := r.turn()
		if !strings.Contains(said, `"candidatesTokenCount"`) || !strings.Contains(said, `"candidatesTokensDetails"`) ||
			strings.Contains(said, "responseToken") {
			t.Errorf("the usage is spelled as on the Gemini API: %s", said)
		}
	})
}

// TestIdle checks the messages with which gemini-3.8-live-extended-thinking reports that a turn is not finished yet.
func TestIdle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := visit(
			t,
			livePath,
			extended,
			`,"generationConfig":{"thinkingConfig":{"thinkingLevel":"LOW"}},"tools":[{"functionDeclarations":[{"name":"f"}]}]`,
		)
		r.write(`{"realtimeInput":{"text":"hello"}}`)
		if said := r.turn(); !strings.Contains(said, `"interactionStatus": "IDLE"`) {
			t.Error(said)
		}
		r.write(`{"realtimeInput":{"text":"/tool f"}}`)
		if said := r.turn(); !strings.Contains(said, `"interactionStatus": "IN_PROGRESS"`) {
			t.Error(said)
		}
	})
}
