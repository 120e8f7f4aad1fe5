package openai

import (
	"encoding/base64"
	"encoding/json"
	"slices"
	"time"

	"voxgate/bridge"
)

const (
	statusCompleted = "completed"
	statusCancelled = "cancelled"
	statusFailed    = "failed"
)

// stage is the state of the model's answer.
type stage int

const (
	resting  stage = iota // no response is in progress
	awaited               // a response is in progress, without output so far
	optional              // like awaited, but the model may not answer
	speaking              // the response has output
	called                // function calls have ended the response; voice that is still played belongs to no response
	unwanted              // the response was cancelled before its first output: it is interrupted at its first output
	cutting               // the engine is about to interrupt the output
)

// answer follows the model's output and splits it into OpenAI's responses.
type answer struct {
	*record
	stage    stage
	response *response // the current or last one, or nil

	turn    int          // the newest turn with output
	ended   int          // the newest turn that the engine has ended
	calling bool         // a turn with a function call has not ended
	left    string       // text that belongs to no response
	playing string       // the response whose voice is played, or ""
	usage   bridge.Usage // not yet reported in a response: usage of a call or an interruption arrives after its response
}

// response is an OpenAI response, which is a part of an answer.
type response struct {
	id         string
	metadata   json.RawMessage
	modalities []string
	output     []*item
}

// underWay reports whether a response is in progress.
func (a *answer) underWay() bool {
	return a.stage == awaited || a.stage == optional || a.stage == speaking
}

// writes reports whether the model's output is text: in the response in progress, or else in the session.
func (a *answer) writes() bool {
	return a.session.writes() || a.underWay() && a.response.modalities[0] == asText
}

// leave changes the stage to resting if it is s.
func (a *answer) leave(s stage) {
	if a.stage == s {
		a.stage = resting
	}
}

// settle prepares for another answer, because the person speaks or the client requests one.
func (a *answer) settle() {
	a.leave(unwanted)
	a.leave(called)
	if a.stage == optional {
		a.end(statusCompleted, nil)
	}
}

// wanted reports whether output of an answer is for the client. If not, it returns commands for the engine.
func (a *answer) wanted() (commands []bridge.Command, ok bool) {
	switch a.stage {
	case cutting:
		return nil, false
	case unwanted:
		a.stage = cutting
		return []bridge.Command{bridge.Interrupt{}}, false
	}
	return nil, true
}

// start begins a response. Without modalities, those of the session apply.
func (a *answer) start(metadata json.RawMessage, modalities []string) {
	if len(modalities) == 0 {
		modalities = a.session.OutputModalities
	}
	a.response = &response{id: a.newID("resp"), metadata: metadata, modalities: modalities, output: []*item{}}
	a.stage = awaited
	a.emit("response.created", object{"response": a.asEvent("in_progress", nil)})
}

// speech returns the item for the output of the response in progress. The first call reports the item. turn 0 means the
// newest turn.
func (a *answer) speech(turn int) *item {
	if turn > 0 {
		a.turn = turn
	}
	if a.stage == speaking {
		return a.response.output[len(a.response.output)-1]
	}
	a.stage = speaking
	i := newMessage(a.newID("item"), roleAssistant, inProgress)
	i.Content, i.turn = []part{}, a.turn
	a.addOutput(i)
	a.emit("response.content_part.added", a.where(i, object{"part": a.contentPart("")}))
	if a.calls && a.playing == "" && !a.writes() {
		a.playing = a.response.id
		a.emit("output_audio_buffer.started", object{"response_id": a.playing})
	}
	if a.writes() {
		i.Content = append(i.Content, part{Type: outputText})
	} else {
		i.Content = append(i.Content, part{Type: outputAudio, Transcript: new(string)})
	}
	if left := a.left; left != "" {
		a.left = ""
		a.addText(i, left)
	}
	return i
}

// contentPart returns the content part of an answer for events.
func (a *answer) contentPart(text string) object {
	if a.writes() {
		return object{"type": "text", "text": text}
	}
	return object{"type": "audio", "transcript": text}
}

// addOutput reports an output item of the response in progress.
func (a *answer) addOutput(i *item) {
	r := a.response
	r.output = append(r.output, i)
	a.emit("response.output_item.added", object{"response_id": r.id, "output_index": len(r.output) - 1, "item": i})
	a.add(i, len(a.items))
}

// where adds the ids and indexes that locate an item in the response to the fields of an event.
func (a *answer) where(i *item, fields object) object {
	fields["response_id"], fields["item_id"], fields["content_index"] = a.response.id, i.ID, 0
	fields["output_index"] = slices.Index(a.response.output, i)
	return fields
}

// addText reports a piece of the model's text.
func (a *answer) addText(i *item, text string) {
	if p := &i.Content[0]; p.Type == outputText {
		p.Text += text
		a.emit("response.output_text.delta", a.where(i, object{"delta": text}))
	} else {
		i.pieces = append(i.pieces, piece{text, i.voice})
		all := *p.Transcript + text
		p.Transcript = &all
		a.emit("response.output_audio_transcript.delta", a.where(i, object{"delta": text}))
	}
}

// isLate reports whether a text belongs to a turn that has ended, after its response: no response begins for it.
func (a *answer) isLate(turn int) bool { return turn > 0 && turn <= a.ended && !a.underWay() }

// addLate adds a text to the item of a turn that has ended, for clients that retrieve the item.
func (a *answer) addLate(turn int, text string) {
	for _, i := range slices.Backward(a.items) {
		if i.turn != turn || len(i.Content) == 0 {
			continue
		}
		if p := &i.Content[0]; p.Type == outputText {
			p.Text += text
		} else if p.Transcript != nil {
			all := *p.Transcript + text
			p.Transcript = &all
		}
		return
	}
}

// longDelta limits the audio in a message, in samples, so that the message is shorter than 256 KiB.
const longDelta = bridge.VoiceRate

// addVoice reports a piece of the voice, encoded in the session's format, and its duration.
func (a *answer) addVoice(i *item, encoded []byte, lasts time.Duration) {
	i.voice += lasts
	for piece := range slices.Chunk(encoded, longDelta) {
		a.emit("response.output_audio.delta", a.where(i, object{"delta": base64.StdEncoding.EncodeToString(piece)}))
	}
}

// onTurnComplete ends the response of a turn with all of its output.
func (a *answer) onTurnComplete(turn int) {
	a.left = ""
	a.leave(called)
	switch {
	case a.stage == speaking:
		a.end(statusCompleted, nil)
	case !a.underWay():
	case a.calling: // the turn with the call; usually the model's reaction to the result follows
		a.stage = optional
	case turn > a.turn: // the turn had no output
		a.end(statusCompleted, nil)
	}
	a.calling = false
	a.turn, a.ended = max(a.turn, turn), max(a.ended, turn)
	a.voiceEnds("stopped")
}

// onInterrupted ends a response that was interrupted.
func (a *answer) onInterrupted(b bridge.Interrupted) {
	a.calling, a.left = false, ""
	a.ended = max(a.ended, b.Turn)
	a.leave(called)
	if b.By != bridge.ByConnectionLoss {
		a.voiceEnds("cleared")
		defer a.cutShort(b)
	}
	if a.stage != speaking { // the client has ended it
		return
	}
	switch b.By {
	case bridge.ByConnectionLoss:
		a.breakOff("connection_lost", "The connection to the model was lost.")
	case bridge.ByVoice, bridge.ByText:
		a.end(statusCancelled, object{"reason": "turn_detected"})
	default:
		a.cancel()
	}
}

// cutShort reports how much of an answer was heard in a WebRTC call. WebSocket clients report that themselves.
func (a *answer) cutShort(b bridge.Interrupted) {
	n := slices.IndexFunc(a.items, func(i *item) bool { return i.turn == b.Turn && b.Turn > 0 })
	if !a.calls || n < 0 {
		return
	}
	i := a.items[n]
	i.Content[0].Transcript = &b.PlayedText
	a.emit("conversation.item.truncated", object{"item_id": i.ID, "content_index": 0, "audio_end_ms": b.Played.Milliseconds()})
}

// voiceEnds reports that a call's voice has stopped or was cleared: the rest will not be played.
func (a *answer) voiceEnds(how string) {
	if a.playing != "" {
		a.emit("output_audio_buffer."+how, object{"response_id": a.playing})
		a.playing = ""
	}
}

// call reports function calls to the client. It ends the response: clients answer with the next response.create.
func (a *answer) call(b bridge.ToolCall) {
	a.endSpeech(completed)
	for _, c := range b.Calls {
		i := newItem(a.newID("item"), typeCall, inProgress)
		i.CallID, i.Name, i.Arguments = c.ID, c.Name, new(string)
		a.addOutput(i)
		arguments := string(c.Args)
		at := a.where(i, object{"call_id": c.ID, "delta": arguments})
		delete(at, "content_index")
		a.emit("response.function_call_arguments.delta", at)
		delete(at, "delta")
		at["name"], at["arguments"] = c.Name, arguments
		a.emit("response.function_call_arguments.done", at)
		i.Arguments, i.Status = &arguments, completed
		a.endItem(i)
	}
	a.end(statusCompleted, nil)
	a.stage, a.calling = called, true
}

// endSpeech ends the output item of the response.
func (a *answer) endSpeech(status string) {
	if a.stage != speaking {
		return
	}
	i := a.speech(0)
	i.Status, a.stage = status, awaited
	text := i.said()
	if a.writes() {
		a.emit("response.output_text.done", a.where(i, object{"text": text}))
	} else {
		a.emit("response.output_audio.done", a.where(i, object{}))
		a.emit("response.output_audio_transcript.done", a.where(i, object{"transcript": text}))
	}
	a.emit("response.content_part.done", a.where(i, object{"part": a.contentPart(text)}))
	a.endItem(i)
}

// endItem reports that an item of the response is complete.
func (a *answer) endItem(i *item) {
	a.itemDone(i)
	r := a.response
	a.emit("response.output_item.done", object{"response_id": r.id, "output_index": slices.Index(r.output, i), "item": i})
}

// cancel ends the response in progress at the client's request, and breakOff because of a failure.
func (a *answer) cancel() { a.end(statusCancelled, object{"reason": "client_cancelled"}) }

func (a *answer) breakOff(code, message string) {
	why := object{"type": "server_error", "code": code}
	if message != "" {
		why["message"] = message
	}
	a.end(statusFailed, object{"error": why})
}

// end ends the response in progress. details hold the reason if the response is not complete.
func (a *answer) end(status string, details object) {
	if !a.underWay() {
		return
	}
	if status == statusCompleted {
		a.endSpeech(completed)
	} else {
		a.endSpeech(incomplete)
		details["type"] = status
	}
	a.stage = resting
	a.emit("response.done", object{"response": a.asEvent(status, details)})
	a.usage = bridge.Usage{}
}

// asEvent returns the response as it appears in events.
func (a *answer) asEvent(status string, details object) object {
	r, out := a.response, a.session.Audio.Output
	usage := object(nil)
	if !a.underWay() {
		usage = a.tokens()
	}
	return object{
		"object": "realtime.response", "id": r.id, "status": status, "status_details": details, "output": r.output,
		"conversation_id": "conv_" + a.session.ID, "output_modalities": r.modalities,
		"max_output_tokens": a.session.MaxOutputTokens,
		"audio":             object{"output": object{"format": out.Format, "voice": out.Voice}},
		"usage":             usage, "metadata": r.metadata,
	}
}

// tokens returns the usage since the last response, or nil if it is not known.
func (a *answer) tokens() object {
	t := a.usage.Turn
	if t.Total == 0 {
		return nil
	}
	in, out := t.Prompt+t.ToolUse, t.Response+t.Thoughts
	return object{
		"total_tokens": t.Total, "input_tokens": in, "output_tokens": out,
		"input_token_details": object{
			"text_tokens": t.PromptBy["TEXT"] + t.ToolUse, "audio_tokens": t.PromptBy["AUDIO"],
			"image_tokens":  t.PromptBy["IMAGE"] + t.PromptBy["VIDEO"],
			"cached_tokens": t.Cached, "cached_tokens_details": object{"text_tokens": t.Cached, "audio_tokens": 0, "image_tokens": 0},
		},
		"output_token_details": object{"text_tokens": t.ResponseBy["TEXT"] + t.Thoughts, "audio_tokens": t.ResponseBy["AUDIO"]},
	}
}
