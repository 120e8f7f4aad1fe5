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

// version is the supported version of RTVI, the same as in @pipecat-ai/client-js 1.13.1.
const version = "2.1.0"

// label marks the messages of RTVI on the data channel.
const label = "rtvi-ai"

// object is a JSON object.
type object = map[string]any

// eventWriter translates the events of the conversation into RTVI messages. It drops RTVI messages until the client is
// ready.
type eventWriter struct {
	modelReady, clientReady bool
	queue                   [][]byte

	answering, speaking    bool              // answering: an answer is in progress; speaking: its voice is being played
	segment                int               // number of the newest segment of the answer's text
	partialSentence        string            // played text of the answer's unfinished sentence
	turn                   int               // number of the person's newest turn
	endedTurn              int               // the newest turn of the model that has ended
	interimText, finalText string            // the person's text in the newest turn: interimText is not final yet
	pendingCalls           map[string]string // pending calls of the client's functions, by id
}

// queueMessage queues a message. A response must have the ID of its request.
func (w *eventWriter) queueMessage(kind, id string, data any) {
	if !w.clientReady {
		return
	}
	message := object{"label": label, "type": kind, "data": data}
	if id != "" {
		message["id"] = id
	}
	if text, err := json.Marshal(message); err == nil { // data is always encodable
		w.queue = append(w.queue, text)
	}
}

// queueTransportMessage queues a message of the transport.
func (w *eventWriter) queueTransportMessage(kind string) {
	text, _ := json.Marshal(object{"type": "signalling", "message": object{"type": kind}})
	w.queue = append(w.queue, text)
}

// drainQueue returns the messages that can be sent now.
func (w *eventWriter) drainQueue() (messages [][]byte) {
	messages, w.queue = w.queue, nil
	return messages
}

// markReady records that the client or the model is ready. When both are ready, it reports to the client that the bot
// is ready.
func (w *eventWriter) markReady(isClientReady, isModelReady bool) {
	were := w.clientReady && w.modelReady
	w.clientReady, w.modelReady = w.clientReady || isClientReady, w.modelReady || isModelReady
	if !were && w.clientReady && w.modelReady {
		w.queueMessage("bot-ready", "", object{"version": version, "about": object{"library": "voxgate"}})
	}
}

// handleEvent reports an event of the conversation to the client.
func (w *eventWriter) handleEvent(at time.Time, e bridge.EventBody) {
	switch b := e.(type) {
	case bridge.SetupComplete:
		w.markReady(false, true)
	case bridge.ToolLosses:
		for _, l := range b.Losses {
			message := fmt.Sprintf("The function %q is declared to the model only in part, or not at all: %s", l.Function, l.Reason)
			w.reportError(&bridge.Error{Code: bridge.CodeBadConfig, Message: message}, false)
		}
	case bridge.UserSpeaking:
		w.queueMessage(map[bool]string{true: "user-started-speaking", false: "user-stopped-speaking"}[b.Speaking], "", object{})
	case bridge.UserText:
		w.reportUserText(at, b)
	case bridge.Thinking:
		if b.Thinking {
			w.beginAnswer()
		}
	case bridge.Speaking:
		w.beginAnswer()
		w.speaking = true
		w.queueMessage("bot-tts-started", "", object{})
		w.queueMessage("bot-started-speaking", "", object{})
	case bridge.AssistantText:
		w.reportAnswerText(b)
	case bridge.TurnComplete:
		w.endAnswer(b.Turn)
	case bridge.Interrupted:
		w.endAnswer(b.Turn)
	case bridge.ToolCall:
		w.beginAnswer()
		for _, c := range b.Calls {
			w.pendingCalls[c.ID] = c.Name
			w.reportCall(c.ID, c.Name, c.Args)
		}
	case bridge.ToolCallCancellation:
		for _, id := range b.IDs {
			w.reportCallEnd(id, w.pendingCalls[id], nil, true)
			delete(w.pendingCalls, id)
		}
	case bridge.ToolStatus:
		w.reportToolStatus(b)
	case bridge.Latency:
		w.queueMessage("metrics", "", object{"ttfb": []object{{"processor": "gemini", "value": b.Total().Seconds()}}})
	case bridge.Usage:
		w.queueMessage("metrics", "", object{"tokens": []object{{
			"processor": "gemini", "prompt_tokens": b.Turn.Prompt, "completion_tokens": b.Turn.Response, "total_tokens": b.Turn.Total,
		}}})
	case bridge.ErrorEvent:
		w.reportError(b.Err, false)
	}
}

// reportUserText reports what the person has said: first interim texts of the turn, and then the final text.
func (w *eventWriter) reportUserText(at time.Time, b bridge.UserText) {
	if b.Turn != w.turn {
		w.turn, w.interimText, w.finalText = b.Turn, "", ""
	}
	w.interimText += b.Text
	text := w.interimText
	if b.Final { // b.Text is the text of the whole turn, including parts that were sent as final before
		text = strings.TrimPrefix(b.Text, w.finalText)
		w.interimText, w.finalText = "", b.Text
	}
	if text = strings.TrimSpace(text); text == "" {
		return
	}
	w.queueMessage("user-transcription", "", object{
		"text": text, "final": b.Final, "timestamp": at.UTC().Format(time.RFC3339Nano), "user_id": "",
	})
	if b.Final {
		w.queueMessage("user-llm-text", "", object{"text": text})
	}
}

// beginAnswer reports that the model has begun to answer.
func (w *eventWriter) beginAnswer() {
	if !w.answering {
		w.answering = true
		w.queueMessage("bot-llm-started", "", object{})
	}
}

// reportAnswerText reports the part of an answer that was played: the pieces of text, and each complete sentence.
func (w *eventWriter) reportAnswerText(b bridge.AssistantText) {
	isLate := b.Turn > 0 && b.Turn <= w.endedTurn && !w.answering // text of a turn that has ended
	switch {
	case b.Final && !isLate:
		w.queueMessage("bot-transcription", "", object{"text": strings.TrimSpace(b.Text)})
		return
	case b.Final:
		return
	case isLate:
		defer w.endAnswer(b.Turn)
	default:
		w.beginAnswer()
	}
	w.queueMessage("bot-llm-text", "", object{"text": b.Text})
	w.queueMessage("bot-tts-text", "", object{"text": b.Text})
	w.partialSentence += b.Text
	if end := completeSentencesLength(w.partialSentence); end > 0 {
		w.reportSegment(w.partialSentence[:end])
		w.partialSentence = w.partialSentence[end:]
	}
}

// completeSentencesLength returns the length of the complete sentences in a text. A full stop ends a sentence only if
// white space follows, because "1.5" is not the end of a sentence.
func completeSentencesLength(text string) (end int) {
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

// reportSegment reports a segment of an answer that was played.
func (w *eventWriter) reportSegment(text string) {
	if text = strings.TrimSpace(text); text == "" {
		return
	}
	w.segment++
	segment := func(status string) object {
		return object{"text": text, "aggregated_by": "sentence", "segment_id": w.segment, "will_be_spoken": true, "spoken_status": status}
	}
	w.queueMessage("bot-output", "", segment("new"))
	done := segment("completed")
	done["spoken_progress"] = object{"accumulated_text": text, "remaining_text": ""}
	w.queueMessage("bot-output", "", done)
}

// endAnswer reports that an answer has ended or was interrupted.
func (w *eventWriter) endAnswer(turn int) {
	w.endedTurn = max(w.endedTurn, turn)
	w.reportSegment(w.partialSentence)
	w.partialSentence = ""
	if w.speaking {
		w.queueMessage("bot-tts-stopped", "", object{})
		w.queueMessage("bot-stopped-speaking", "", object{})
	}
	if w.answering {
		w.queueMessage("bot-llm-stopped", "", object{})
	}
	w.answering, w.speaking = false, false
}

// reportToolStatus reports a tool that runs in the gateway. Its arguments and results are not sent.
func (w *eventWriter) reportToolStatus(b bridge.ToolStatus) {
	if b.Status == bridge.StatusRunning {
		w.reportCall(b.ID, b.Name, nil)
		return
	}
	var why json.RawMessage
	if b.Message != "" {
		why, _ = json.Marshal(object{"error": b.Message}) // a string can always be encoded
	}
	w.reportCallEnd(b.ID, b.Name, why, b.Status == bridge.StatusCancelled)
}

// reportCall reports a function call. The client executes it if it has a handler for the function's name.
func (w *eventWriter) reportCall(id, name string, args json.RawMessage) {
	if len(args) == 0 {
		args = json.RawMessage("{}")
	}
	w.queueMessage("llm-function-call-started", "", object{"function_name": name})
	w.queueMessage("llm-function-call-in-progress", "", object{"function_name": name, "tool_call_id": id, "arguments": args})
}

// reportCallEnd reports that a function has ended.
func (w *eventWriter) reportCallEnd(id, name string, result json.RawMessage, isCancelled bool) {
	data := object{"function_name": name, "tool_call_id": id, "cancelled": isCancelled}
	if len(result) > 0 {
		data["result"] = result
	}
	w.queueMessage("llm-function-call-stopped", "", data)
}

// reportError reports an error.
func (w *eventWriter) reportError(err error, isFatal bool) {
	message := bridge.AsError(err).Message
	w.queueMessage("error", "", object{"error": message, "message": message, "fatal": isFatal})
}
