package rtvi

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"voxgate/bridge"
)

// version is the supported version of RTVI, the one of @pipecat-ai/client-js 1.13.1.
const version = "2.1.0"

// label marks the messages of RTVI on the data channel.
const label = "rtvi-ai"

// object is a JSON object.
type object = map[string]any

// words translates the engine's events into RTVI messages. It sends nothing before the client is ready.
type words struct {
	setUp, ready bool
	outbox       [][]byte

	answering, speaking bool              // an answer is in progress; its voice is played
	segment             int               // of the answer's text, the newest
	unsaid              string            // text of an answer that was played and is not a whole sentence yet
	turn                int               // of the person, the newest
	ended               int               // the newest turn of the model that has ended
	asked, said         string            // the person's text in turn: interim, and final
	calls               map[string]string // pending calls of the client's functions, by id
}

// tell queues a message; a response has the id of its request.
func (w *words) tell(kind, id string, data any) {
	if !w.ready {
		return
	}
	message := object{"label": label, "type": kind, "data": data}
	if id != "" {
		message["id"] = id
	}
	if text, err := json.Marshal(message); err == nil { // data is always encodable
		w.outbox = append(w.outbox, text)
	}
}

// signal queues a message of the transport.
func (w *words) signal(kind string) {
	text, _ := json.Marshal(object{"type": "signalling", "message": object{"type": kind}})
	w.outbox = append(w.outbox, text)
}

// drain returns the messages that can be sent now.
func (w *words) drain() (messages [][]byte) {
	messages, w.outbox = w.outbox, nil
	return messages
}

// greet reports once that the bot is ready, when client and model are.
func (w *words) greet(client, model bool) {
	were := w.ready && w.setUp
	w.ready, w.setUp = w.ready || client, w.setUp || model
	if !were && w.ready && w.setUp {
		w.tell("bot-ready", "", object{"version": version, "about": object{"library": "voxgate"}})
	}
}

// happen reports an event of the engine.
func (w *words) happen(at time.Time, e bridge.EventBody) {
	switch b := e.(type) {
	case bridge.SetupComplete:
		w.greet(false, true)
	case bridge.ToolLosses:
		for _, l := range b.Losses {
			message := fmt.Sprintf("The function %q is not declared to the model as it should be: %s", l.Function, l.Reason)
			w.fail(&bridge.Error{Code: bridge.CodeBadConfig, Message: message}, false)
		}
	case bridge.UserSpeaking:
		w.tell(map[bool]string{true: "user-started-speaking", false: "user-stopped-speaking"}[b.Speaking], "", object{})
	case bridge.UserText:
		w.heard(at, b)
	case bridge.Thinking:
		if b.Thinking {
			w.answer()
		}
	case bridge.Speaking:
		w.answer()
		w.speaking = true
		w.tell("bot-tts-started", "", object{})
		w.tell("bot-started-speaking", "", object{})
	case bridge.AssistantText:
		w.answered(b)
	case bridge.TurnComplete:
		w.over(b.Turn)
	case bridge.Interrupted:
		w.over(b.Turn)
	case bridge.ToolCall:
		w.answer()
		for _, c := range b.Calls {
			w.calls[c.ID] = c.Name
			w.called(c.ID, c.Name, c.Args)
		}
	case bridge.ToolCallCancellation:
		for _, id := range b.IDs {
			w.returned(id, w.calls[id], nil, true)
			delete(w.calls, id)
		}
	case bridge.ToolStatus:
		w.toolStatus(b)
	case bridge.Latency:
		w.tell("metrics", "", object{"ttfb": []object{{"processor": "gemini", "value": b.Total().Seconds()}}})
	case bridge.Usage:
		w.tell("metrics", "", object{"tokens": []object{{
			"processor": "gemini", "prompt_tokens": b.Turn.Prompt, "completion_tokens": b.Turn.Response, "total_tokens": b.Turn.Total,
		}}})
	case bridge.ErrorEvent:
		w.fail(b.Err, false)
	}
}

// heard reports what the person has said: interim text of the turn, and then the final text.
func (w *words) heard(at time.Time, b bridge.UserText) {
	if b.Turn != w.turn {
		w.turn, w.asked, w.said = b.Turn, "", ""
	}
	w.asked += b.Text
	text := w.asked
	if b.Final { // the whole turn, including parts that were final before
		text = strings.TrimPrefix(b.Text, w.said)
		w.asked, w.said = "", b.Text
	}
	if text = strings.TrimSpace(text); text == "" {
		return
	}
	w.tell("user-transcription", "", object{"text": text, "final": b.Final, "timestamp": at.UTC().Format(time.RFC3339Nano), "user_id": ""})
	if b.Final {
		w.tell("user-llm-text", "", object{"text": text})
	}
}

// answer reports that the model has begun to answer.
func (w *words) answer() {
	if !w.answering {
		w.answering = true
		w.tell("bot-llm-started", "", object{})
	}
}

// answered reports what was played of an answer, in pieces and by sentence.
func (w *words) answered(b bridge.AssistantText) {
	late := b.Turn > 0 && b.Turn <= w.ended && !w.answering // text of a turn that has ended
	switch {
	case b.Final && !late:
		w.tell("bot-transcription", "", object{"text": strings.TrimSpace(b.Text)})
		return
	case b.Final:
		return
	case late:
		defer w.over(b.Turn)
	default:
		w.answer()
	}
	w.tell("bot-llm-text", "", object{"text": b.Text})
	w.tell("bot-tts-text", "", object{"text": b.Text})
	w.unsaid += b.Text
	if end := sentences(w.unsaid); end > 0 {
		w.output(w.unsaid[:end])
		w.unsaid = w.unsaid[end:]
	}
}

// sentences returns the length of the complete sentences in a text. A full stop ends a sentence only before a space, so
// not in "1.5".
func sentences(text string) (end int) {
	var before rune
	for i, r := range text {
		switch {
		case strings.ContainsRune(".!?", before) && unicode.IsSpace(r):
			end = i
		case strings.ContainsRune("。！？\n", r):
			end = i + utf8.RuneLen(r)
		}
		before = r
	}
	return end
}

// output reports a segment of an answer that was played.
func (w *words) output(text string) {
	if text = strings.TrimSpace(text); text == "" {
		return
	}
	w.segment++
	segment := func(status string) object {
		return object{"text": text, "aggregated_by": "sentence", "segment_id": w.segment, "will_be_spoken": true, "spoken_status": status}
	}
	w.tell("bot-output", "", segment("new"))
	done := segment("completed")
	done["spoken_progress"] = object{"accumulated_text": text, "remaining_text": ""}
	w.tell("bot-output", "", done)
}

// over reports that an answer has ended or was interrupted.
func (w *words) over(turn int) {
	w.ended = max(w.ended, turn)
	w.output(w.unsaid)
	w.unsaid = ""
	if w.speaking {
		w.tell("bot-tts-stopped", "", object{})
		w.tell("bot-stopped-speaking", "", object{})
	}
	if w.answering {
		w.tell("bot-llm-stopped", "", object{})
	}
	w.answering, w.speaking = false, false
}

// toolStatus reports a tool that runs in the gateway. Its arguments and results are not sent.
func (w *words) toolStatus(b bridge.ToolStatus) {
	if b.Status == bridge.StatusRunning {
		w.called(b.ID, b.Name, nil)
		return
	}
	var why json.RawMessage
	if b.Message != "" {
		why, _ = json.Marshal(object{"error": b.Message}) // a text
	}
	w.returned(b.ID, b.Name, why, b.Status == bridge.StatusCancelled)
}

// called reports a function call, which a client with a handler for that name executes.
func (w *words) called(id, name string, args json.RawMessage) {
	if len(args) == 0 {
		args = json.RawMessage("{}")
	}
	w.tell("llm-function-call-started", "", object{"function_name": name})
	w.tell("llm-function-call-in-progress", "", object{"function_name": name, "tool_call_id": id, "arguments": args})
}

// returned reports that a function has ended.
func (w *words) returned(id, name string, result json.RawMessage, cancelled bool) {
	data := object{"function_name": name, "tool_call_id": id, "cancelled": cancelled}
	if len(result) > 0 {
		data["result"] = result
	}
	w.tell("llm-function-call-stopped", "", data)
}

// fail reports an error.
func (w *words) fail(err error, fatal bool) {
	message := bridge.AsError(err).Message
	w.tell("error", "", object{"error": message, "message": message, "fatal": fatal})
}
