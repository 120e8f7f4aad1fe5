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

// stage is where the model's answer stands.
type stage int

const (
	resting  stage = iota // no response is under way
	awaited               // a response is under way, and nothing is said in it yet
	optional              // the same, and the model may have nothing to say
	speaking              // something is said in a response
	called                // functions have ended the response; what is still heard of its voice belongs to none
	unwanted              // the response was cancelled before it came: it is cut off when it comes
	cutting               // the engine is about to cut off what is said
)

// answer is what the model says.
type answer struct {
	*record
	stage    stage
	response *response // the one under way, or the last one; nil: there was none

	turn    int          // the newest of which something has come
	ended   int          // the newest that the engine has ended
	calling bool         // a turn with a call is not over
	left    string       // the text of what belongs to no response
	playing string       // the response whose voice is heard; empty: none
	usage   bridge.Usage // that no response was told of yet: that of a call or a cut comes after its response
}

// response is one of OpenAI's: a part of an answer.
type response struct {
	id         string
	metadata   json.RawMessage
	modalities []string
	output     []*item
}

// underWay reports whether there is a response that has not ended.
func (a *answer) underWay() bool {
	return a.stage == awaited || a.stage == optional || a.stage == speaking
}

// writes reports whether what the model says is for reading: in the session, or in the response under way.
func (a *answer) writes() bool {
	return a.session.writes() || a.underWay() && a.response.modalities[0] == asText
}

// leave goes on without a stage, if the answer is in it.
func (a *answer) leave(s stage) {
	if a.stage == s {
		a.stage = resting
	}
}

// settle makes way for another answer: the person speaks, or the client asks.
func (a *answer) settle() {
	a.leave(unwanted)
	a.leave(called)
	if a.stage == optional {
		a.end(statusCompleted, nil)
	}
}

// wanted reports whether what comes of an answer is for the client, and if not what the engine is to do.
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

// start begins a response. No modalities are the session's.
func (a *answer) start(metadata json.RawMessage, modalities []string) {
	if len(modalities) == 0 {
		modalities = a.session.OutputModalities
	}
	a.response = &response{id: a.newID("resp"), metadata: metadata, modalities: modalities, output: []*item{}}
	a.stage = awaited
	a.emit("response.created", object{"response": a.asEvent("in_progress", nil)})
}

// speech is the item of what is said in the response under way. The first time it is reported. turn 0 is the newest.
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

// contentPart is the part of an answer, as events of parts have it.
func (a *answer) contentPart(text string) object {
	if a.writes() {
		return object{"type": "text", "text": text}
	}
	return object{"type": "audio", "transcript": text}
}

// addOutput reports an item of the response under way.
func (a *answer) addOutput(i *item) {
	r := a.response
	r.output = append(r.output, i)
	a.emit("response.output_item.added", object{"response_id": r.id, "output_index": len(r.output) - 1, "item": i})
	a.add(i, len(a.items))
}

// where says in which part of which item of the response something is.
func (a *answer) where(i *item, fields object) object {
	fields["response_id"], fields["item_id"], fields["content_index"] = a.response.id, i.ID, 0
	fields["output_index"] = slices.Index(a.response.output, i)
	return fields
}

// addText reports a piece of what the model says.
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

// isLate reports whether a text belongs to a turn that has ended, and whose response is over: no response begins for it.
func (a *answer) isLate(turn int) bool { return turn > 0 && turn <= a.ended && !a.underWay() }

// addLate adds a text to the item of a turn that has ended, for a client that asks for the item.
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

// longDelta bounds the sound in a message, so that it has less than 256 KiB.
const longDelta = bridge.VoiceRate

// addVoice reports a piece of the voice, encoded in the format of the session, and how long it lasts.
func (a *answer) addVoice(i *item, encoded []byte, lasts time.Duration) {
	i.voice += lasts
	for piece := range slices.Chunk(encoded, longDelta) {
		a.emit("response.output_audio.delta", a.where(i, object{"delta": base64.StdEncoding.EncodeToString(piece)}))
	}
}

// onTurnComplete ends the response of a turn, with all that was said.
func (a *answer) onTurnComplete(turn int) {
	a.left = ""
	a.leave(called)
	switch {
	case a.stage == speaking:
		a.end(statusCompleted, nil)
	case !a.underWay():
	case a.calling: // the call's own turn; what the model makes of the result follows, as a rule
		a.stage = optional
	case turn > a.turn: // it has nothing to say
		a.end(statusCompleted, nil)
	}
	a.calling = false
	a.turn, a.ended = max(a.turn, turn), max(a.ended, turn)
	a.voiceEnds("stopped")
}

// onInterrupted ends a response that was cut off.
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

// cutShort reports how much was heard of an answer of a call. Other clients report that to us.
func (a *answer) cutShort(b bridge.Interrupted) {
	n := slices.IndexFunc(a.items, func(i *item) bool { return i.turn == b.Turn && b.Turn > 0 })
	if !a.calls || n < 0 {
		return
	}
	i := a.items[n]
	i.Content[0].Transcript = &b.PlayedText
	a.emit("conversation.item.truncated", object{"item_id": i.ID, "content_index": 0, "audio_end_ms": b.Played.Milliseconds()})
}

// voiceEnds reports that a call's voice has stopped, or was cleared: the rest of it will not be heard.
func (a *answer) voiceEnds(how string) {
	if a.playing != "" {
		a.emit("output_audio_buffer."+how, object{"response_id": a.playing})
		a.playing = ""
	}
}

// call reports functions that the client is to run. It ends the response: clients answer with the next.
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

// endSpeech reports that nothing more is said in the response.
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

// cancel ends the response under way as the client has asked, and breakOff because something went wrong.
func (a *answer) cancel() { a.end(statusCancelled, object{"reason": "client_cancelled"}) }

func (a *answer) breakOff(code, message string) {
	why := object{"type": "server_error", "code": code}
	if message != "" {
		why["message"] = message
	}
	a.end(statusFailed, object{"error": why})
}

// end ends the response under way. details say why, if it is not complete.
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

// asEvent is the response, as events have it.
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

// tokens are what was spent since the last response; nil: it is not known.
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
