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

// answerStage is the state of the model's answer.
type answerStage int

const (
	stageIdle         answerStage = iota // no response is in progress
	stageAwaited                         // a response is in progress; it has no output yet
	stageOptional                        // like stageAwaited, but the model may decide not to answer
	stageSpeaking                        // the response has output
	stageAfterCalls                      // function calls have ended the response; voice that is still played belongs to no response
	stageCancelled                       // the response was cancelled before its first output; when that output comes, it is interrupted
	stageInterrupting                    // the engine is about to interrupt the output
)

// modelAnswer follows the model's output and splits it into OpenAI's responses.
type modelAnswer struct {
	*clientRecord
	stage    answerStage
	response *response // the current response, or the last one that has ended; nil before the first

	turn            int          // number of the newest turn with output
	endedTurn       int          // number of the newest turn that the engine has ended
	hasOpenCall     bool         // a turn with a function call has not ended
	heldText        string       // text that came after a function call had ended the response; sent with the next response
	playingResponse string       // the response whose voice is played, or ""
	usage           bridge.Usage // usage that no response has reported; for calls and interruptions it arrives after the response
}

// response is an OpenAI response. A function call splits an answer of the model into several responses.
type response struct {
	id         string
	metadata   json.RawMessage
	modalities []string
	output     []*item
}

// isInProgress reports whether a response is in progress.
func (a *modelAnswer) isInProgress() bool {
	return a.stage == stageAwaited || a.stage == stageOptional || a.stage == stageSpeaking
}

// isText reports whether the client wants the model's output as text. The session or the response in progress
// determines this.
func (a *modelAnswer) isText() bool {
	return a.session.isText() || a.isInProgress() && a.response.modalities[0] == modalityText
}

// leaveStage changes the stage to stageIdle if it is s. Otherwise it does nothing.
func (a *modelAnswer) leaveStage(s answerStage) {
	if a.stage == s {
		a.stage = stageIdle
	}
}

// closePreviousAnswer is called before another answer, because the person speaks or the client requests an answer. A
// response without output, for which the model may decide not to answer (stageOptional), ends here, and the client is
// told.
func (a *modelAnswer) closePreviousAnswer() {
	a.leaveStage(stageCancelled)
	a.leaveStage(stageAfterCalls)
	if a.stage == stageOptional {
		a.endResponse(statusCompleted, nil)
	}
}

// acceptOutput is called for each output of the model. If the client has cancelled the answer, ok is false, and the
// output must be dropped. For the first dropped output, it also returns the command that interrupts the model.
func (a *modelAnswer) acceptOutput() (commands []bridge.Command, ok bool) {
	switch a.stage {
	case stageInterrupting:
		return nil, false
	case stageCancelled:
		a.stage = stageInterrupting
		return []bridge.Command{bridge.Interrupt{}}, false
	}
	return nil, true
}

// startResponse begins a response. If modalities is empty, the response has the session's modalities.
func (a *modelAnswer) startResponse(metadata json.RawMessage, modalities []string) {
	if len(modalities) == 0 {
		modalities = a.session.OutputModalities
	}
	a.response = &response{id: a.newID("resp"), metadata: metadata, modalities: modalities, output: []*item{}}
	a.stage = stageAwaited
	a.emitEvent("response.created", object{"response": a.responseFields("in_progress", nil)})
}

// ensureOutputItem returns the item for the output of the response in progress. The first call creates the item and
// announces it to the client. turn is the number of the model's turn; 0 means the newest turn.
func (a *modelAnswer) ensureOutputItem(turn int) *item {
	if turn > 0 {
		a.turn = turn
	}
	if a.stage == stageSpeaking {
		return a.response.output[len(a.response.output)-1]
	}
	a.stage = stageSpeaking
	i := newMessage(a.newID("item"), roleAssistant, inProgress)
	i.Content, i.turn = []part{}, a.turn
	a.addOutput(i)
	a.emitEvent("response.content_part.added", a.withItemFields(i, object{"part": a.contentPart("")}))
	if a.isCall && a.playingResponse == "" && !a.isText() {
		a.playingResponse = a.response.id
		a.emitEvent("output_audio_buffer.started", object{"response_id": a.playingResponse})
	}
	if a.isText() {
		i.Content = append(i.Content, part{Type: outputText})
	} else {
		i.Content = append(i.Content, part{Type: outputAudio, Transcript: new(string)})
	}
	if left := a.heldText; left != "" {
		a.heldText = ""
		a.addText(i, left)
	}
	return i
}

// contentPart returns the content part of an answer in the format of content_part events. The format of parts in items
// is different.
func (a *modelAnswer) contentPart(text string) object {
	if a.isText() {
		return object{"type": "text", "text": text}
	}
	return object{"type": "audio", "transcript": text}
}

// addOutput reports an output item of the response in progress.
func (a *modelAnswer) addOutput(i *item) {
	r := a.response
	r.output = append(r.output, i)
	a.emitEvent("response.output_item.added", object{"response_id": r.id, "output_index": len(r.output) - 1, "item": i})
	a.addItem(i, len(a.items))
}

// withItemFields adds fields to an event that say which item of the response it is about: IDs and indexes.
func (a *modelAnswer) withItemFields(i *item, fields object) object {
	fields["response_id"], fields["item_id"], fields["content_index"] = a.response.id, i.ID, 0
	fields["output_index"] = slices.Index(a.response.output, i)
	return fields
}

// addText reports a piece of the model's text.
func (a *modelAnswer) addText(i *item, text string) {
	if p := &i.Content[0]; p.Type == outputText {
		p.Text += text
		a.emitEvent("response.output_text.delta", a.withItemFields(i, object{"delta": text}))
	} else {
		i.textPieces = append(i.textPieces, textPiece{text, i.voiceDuration})
		all := *p.Transcript + text
		p.Transcript = &all
		a.emitEvent("response.output_audio_transcript.delta", a.withItemFields(i, object{"delta": text}))
	}
}

// isLateText reports whether a text belongs to a turn whose response has already ended. Such a text must not begin a
// new response.
func (a *modelAnswer) isLateText(turn int) bool {
	return turn > 0 && turn <= a.endedTurn && !a.isInProgress()
}

// addLateText adds a text to the item of a turn that has ended, for clients that retrieve the item.
func (a *modelAnswer) addLateText(turn int, text string) {
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

// maxDeltaBytes limits the encoded audio in a message, in bytes, so that the message is shorter than 256 KiB.
const maxDeltaBytes = bridge.VoiceRate

// addVoice reports a piece of the voice, encoded in the session's format.
func (a *modelAnswer) addVoice(i *item, encoded []byte, duration time.Duration) {
	i.voiceDuration += duration
	for piece := range slices.Chunk(encoded, maxDeltaBytes) {
		a.emitEvent("response.output_audio.delta", a.withItemFields(i, object{"delta": base64.StdEncoding.EncodeToString(piece)}))
	}
}

// onTurnComplete ends the response when the model has completed a turn.
func (a *modelAnswer) onTurnComplete(turn int) {
	a.heldText = ""
	a.leaveStage(stageAfterCalls)
	switch {
	case a.stage == stageSpeaking:
		a.endResponse(statusCompleted, nil)
	case !a.isInProgress():
	case a.hasOpenCall: // the turn with the call has ended; usually the model's reaction to the result follows
		a.stage = stageOptional
	case turn > a.turn: // the turn had no output
		a.endResponse(statusCompleted, nil)
	}
	a.hasOpenCall = false
	a.turn, a.endedTurn = max(a.turn, turn), max(a.endedTurn, turn)
	a.reportVoiceEnd("stopped")
}

// onInterrupted ends a response that was interrupted.
func (a *modelAnswer) onInterrupted(b bridge.Interrupted) {
	a.hasOpenCall, a.heldText = false, ""
	a.endedTurn = max(a.endedTurn, b.Turn)
	a.leaveStage(stageAfterCalls)
	if b.By != bridge.ByConnectionLoss {
		a.reportVoiceEnd("cleared")
		defer a.reportHeardPart(b)
	}
	if a.stage != stageSpeaking { // the client has already ended the response
		return
	}
	switch b.By {
	case bridge.ByConnectionLoss:
		a.failResponse("connection_lost", "The connection to the model was lost.")
	case bridge.ByVoice, bridge.ByText:
		a.endResponse(statusCancelled, object{"reason": "turn_detected"})
	default:
		a.cancelResponse()
	}
}

// reportHeardPart reports how much of an answer the person has heard in a WebRTC call. In WebSocket calls, the client
// itself reports this.
func (a *modelAnswer) reportHeardPart(b bridge.Interrupted) {
	n := slices.IndexFunc(a.items, func(i *item) bool { return i.turn == b.Turn && b.Turn > 0 })
	if !a.isCall || n < 0 {
		return
	}
	i := a.items[n]
	i.Content[0].Transcript = &b.PlayedText
	a.emitEvent("conversation.item.truncated", object{"item_id": i.ID, "content_index": 0, "audio_end_ms": b.Played.Milliseconds()})
}

// reportVoiceEnd reports the end of the voice in a WebRTC call. result is "stopped", or "cleared" if a part of the
// voice was not played.
func (a *modelAnswer) reportVoiceEnd(result string) {
	if a.playingResponse != "" {
		a.emitEvent("output_audio_buffer."+result, object{"response_id": a.playingResponse})
		a.playingResponse = ""
	}
}

// reportCalls reports function calls to the client. It ends the response, because clients send response.create after
// the results.
func (a *modelAnswer) reportCalls(b bridge.ToolCall) {
	a.endSpeechItem(completed)
	for _, c := range b.Calls {
		i := newItem(a.newID("item"), typeCall, inProgress)
		i.CallID, i.Name, i.Arguments = c.ID, c.Name, new(string)
		a.addOutput(i)
		arguments := string(c.Args)
		at := a.withItemFields(i, object{"call_id": c.ID, "delta": arguments})
		delete(at, "content_index")
		a.emitEvent("response.function_call_arguments.delta", at)
		delete(at, "delta")
		at["name"], at["arguments"] = c.Name, arguments
		a.emitEvent("response.function_call_arguments.done", at)
		i.Arguments, i.Status = &arguments, completed
		a.endItem(i)
	}
	a.endResponse(statusCompleted, nil)
	a.stage, a.hasOpenCall = stageAfterCalls, true
}

// endSpeechItem ends the output item of the response.
func (a *modelAnswer) endSpeechItem(status string) {
	if a.stage != stageSpeaking {
		return
	}
	i := a.ensureOutputItem(0)
	i.Status, a.stage = status, stageAwaited
	text := i.joinText()
	if a.isText() {
		a.emitEvent("response.output_text.done", a.withItemFields(i, object{"text": text}))
	} else {
		a.emitEvent("response.output_audio.done", a.withItemFields(i, object{}))
		a.emitEvent("response.output_audio_transcript.done", a.withItemFields(i, object{"transcript": text}))
	}
	a.emitEvent("response.content_part.done", a.withItemFields(i, object{"part": a.contentPart(text)}))
	a.endItem(i)
}

// endItem reports that an item of the response is complete.
func (a *modelAnswer) endItem(i *item) {
	a.emitItemDone(i)
	r := a.response
	a.emitEvent("response.output_item.done", object{"response_id": r.id, "output_index": slices.Index(r.output, i), "item": i})
}

// cancelResponse ends the response in progress because the client has cancelled it. failResponse ends it because of a
// failure.
func (a *modelAnswer) cancelResponse() {
	a.endResponse(statusCancelled, object{"reason": "client_cancelled"})
}

func (a *modelAnswer) failResponse(code, message string) {
	why := object{"type": "server_error", "code": code}
	if message != "" {
		why["message"] = message
	}
	a.endResponse(statusFailed, object{"error": why})
}

// endResponse ends the response in progress. details contains the reason if the response is incomplete.
func (a *modelAnswer) endResponse(status string, details object) {
	if !a.isInProgress() {
		return
	}
	if status == statusCompleted {
		a.endSpeechItem(completed)
	} else {
		a.endSpeechItem(incomplete)
		details["type"] = status
	}
	a.stage = stageIdle
	a.emitEvent("response.done", object{"response": a.responseFields(status, details)})
	a.usage = bridge.Usage{}
}

// responseFields returns the response as it appears in events.
func (a *modelAnswer) responseFields(status string, details object) object {
	r, out := a.response, a.session.Audio.Output
	usage := object(nil)
	if !a.isInProgress() {
		usage = a.usageFields()
	}
	return object{
		"object": "realtime.response", "id": r.id, "status": status, "status_details": details, "output": r.output,
		"conversation_id": "conv_" + a.session.ID, "output_modalities": r.modalities,
		"max_output_tokens": a.session.MaxOutputTokens,
		"audio":             object{"output": object{"format": out.Format, "voice": out.Voice}},
		"usage":             usage, "metadata": r.metadata,
	}
}

// usageFields returns the usage since the last response, or nil if the usage is unknown.
func (a *modelAnswer) usageFields() object {
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
