package openai

import (
	"encoding/json"
	"slices"
	"strings"
	"time"

	"voxgate/bridge"
	"voxgate/media/vad"
)

const (
	statusCompleted = "completed"
	statusCancelled = "cancelled"
	statusFailed    = "failed"
)

// ear is the state of the person's speech.
type ear struct {
	heard     time.Duration // in all
	since     time.Duration // of heard, when what is said now began
	item      string        // of the speech that is under way; empty: none is
	spoken    *item         // the newest that was committed; nil: none was
	written   bool          // the client has its transcript
	text      string        // of a transcript that came before its item
	whole     bool          // of all of it
	turn      int           // of the newest whole transcript
	committed bool          // the client may ask for an answer to what was said
	due       bool          // the model answers what was said by itself
	open      bool          // the model knows, by a mark of ours, that somebody speaks
	vad       vad.Detector
	rest      []int16 // less than a frame of sound
}

// What it takes to begin and to end a speech, as in the engine's own ear.
const (
	onset    = 60 * time.Millisecond
	hangover = 240 * time.Millisecond
	// leastQuestion is how much speech a model answers.
	leastQuestion = 300 * time.Millisecond
)

// mode starts hearing anew, for another mode of taking turns.
func (e *ear) mode() { e.item, e.committed, e.due, e.open, e.rest = "", false, false, false, nil }

// speechStarted reports that the person speaks.
func (d *dialogue) speechStarted() {
	d.unwanted, d.called = false, false
	d.endIdle()
	d.ear.item = d.newID("item")
	padding := time.Duration(d.session.Audio.Input.TurnDetection.padding()) * time.Millisecond
	d.ear.since = max(0, d.ear.heard-onset-padding)
	d.emit("input_audio_buffer.speech_started", object{"item_id": d.ear.item, "audio_start_ms": d.ear.since.Milliseconds()})
}

// speechStopped reports that the person has stopped, and makes an item of what was said.
func (d *dialogue) speechStopped() {
	if d.ear.item == "" {
		return
	}
	id := d.ear.item
	d.ear.item = ""
	d.emit("input_audio_buffer.speech_stopped", object{"item_id": id, "audio_end_ms": d.ear.heard.Milliseconds()})
	d.commitSpeech(id)
}

// endIdle ends a response to which nothing has come.
func (d *dialogue) endIdle() {
	if r := d.active; r != nil && r.idle && r.speech == nil {
		d.end(statusCompleted, "", nil)
	}
}

// commitSpeech makes an item of what was said.
func (d *dialogue) commitSpeech(id string) {
	i := &item{ID: id, Object: "realtime.item", Type: typeMessage, Status: completed, Role: roleUser, Content: []part{{Type: inputAudio}}}
	i.voice = d.ear.heard - d.ear.since
	d.emit("input_audio_buffer.committed", object{"item_id": id, "previous_item_id": d.items.last()})
	d.addItem(i, len(d.items.items))
	d.emit("conversation.item.done", object{"item": i, "previous_item_id": d.before(i)})
	d.ear.spoken, d.ear.written, d.ear.since = i, false, d.ear.heard
	d.ear.committed = d.session.turns() != modelsEar
	d.ear.due = !d.ear.committed && i.voice >= leastQuestion && d.active == nil
	text, whole := d.ear.text, d.ear.whole
	d.ear.text, d.ear.whole = "", false
	if text != "" {
		d.transcript(text, whole)
	}
}

// transcript reports the transcript of what was said: the next piece, or all of it.
func (d *dialogue) transcript(text string, whole bool) {
	if d.ear.spoken == nil || d.ear.item != "" || d.ear.written {
		if !whole {
			d.ear.text += text
			return
		}
		d.ear.text, d.ear.whole = text, true
		if d.ear.item != "" {
			d.speechStopped()
		} else { // nothing was heard here, and the model has understood something
			d.commitSpeech(d.newID("item"))
		}
		return
	}
	i := d.ear.spoken
	where := object{"item_id": i.ID, "content_index": 0}
	if !whole {
		if d.session.Audio.Input.Transcription != nil {
			where["delta"] = text
			d.emit("conversation.item.input_audio_transcription.delta", where)
		}
		return
	}
	d.ear.written = true
	i.Content[0].Transcript = &text
	if d.session.Audio.Input.Transcription != nil {
		where["transcript"] = text
		where["usage"] = object{"type": "duration", "seconds": float64(i.voice.Milliseconds()) / 1000}
		d.emit("conversation.item.input_audio_transcription.completed", where)
	}
}

// happen reports an event to the client, and returns what the engine is to do about it.
func (d *dialogue) happen(body bridge.Body) (commands []bridge.Command) {
	switch b := body.(type) {
	case bridge.SetupComplete:
		if b.Update {
			d.answered(nil)
		}
		d.begun = d.begun || len(d.updates) == 0
		return d.caughtUp()
	case bridge.SetupFailed:
		d.answered(b.Err)
		return d.caughtUp()
	case bridge.UserSpeaking:
		return d.onSpeech(b.Speaking)
	case bridge.UserText:
		switch {
		case !b.Final:
			d.transcript(b.Text, false)
		case b.Turn != d.ear.turn:
			d.ear.turn = b.Turn
			d.transcript(b.Text, true)
		}
	case bridge.Speaking:
		if commands, ok := d.wanted(); !ok {
			return commands
		}
		if d.turn = b.Turn; !d.called {
			d.speech(b.Turn)
		}
	case bridge.AssistantText:
		if b.Final {
			return nil
		}
		if commands, ok := d.wanted(); !ok {
			return commands
		}
		d.say(b)
	case bridge.Usage:
		d.usage = &b
	case bridge.TurnComplete:
		d.onTurnComplete(b.Turn)
	case bridge.Interrupted:
		d.onInterrupted(b)
	case bridge.ToolCall:
		d.call(b)
	case bridge.ToolCallCancellation:
		for _, id := range b.IDs {
			delete(d.open, id)
		}
	case bridge.StateChange:
		if b.Unanswered && d.active != nil && d.active.speech == nil {
			d.end(statusFailed, "", &apiError{Type: "server_error", Code: "no_answer", Message: "The model did not answer."})
		}
	}
	return nil
}

// caughtUp returns the commands that have waited for changes of the session, if the engine has taken all.
func (d *dialogue) caughtUp() (commands []bridge.Command) {
	if len(d.updates) == 0 {
		d.ready = true
		commands, d.asked = d.asked, nil
	}
	return commands
}

// inSession takes from the names of a config's fields where the engine has found it.
var inSession = strings.NewReplacer("payload.", "", "initialConfig.", "")

// answered is the engine's answer to the oldest change of the session.
func (d *dialogue) answered(refused *bridge.Error) {
	if len(d.updates) == 0 {
		return
	}
	first := d.updates[0]
	d.updates = d.updates[1:]
	if refused == nil {
		return
	}
	if len(d.updates) > 0 { // what came later has the refused part in it
		d.updates[0].old = first.old
	} else {
		d.session = first.old
	}
	d.fail(first.event, &apiError{Code: "session_update_failed", Message: inSession.Replace(refused.Message), Param: "session"})
	d.emit("session.updated", object{"session": d.session})
	d.config = d.session.config()
}

// onSpeech follows the engine's ear. In the other modes the event echoes our own marks.
func (d *dialogue) onSpeech(speaking bool) []bridge.Command {
	if d.session.turns() != modelsEar {
		return nil
	}
	if !speaking {
		d.speechStopped()
		return nil
	}
	d.speechStarted()
	return d.seeds()
}

// wanted reports whether what comes of an answer is for the client, and if not what the engine is to do.
func (d *dialogue) wanted() (commands []bridge.Command, ok bool) {
	switch {
	case d.cutting:
		return nil, false
	case d.unwanted && d.active == nil:
		d.unwanted, d.cutting = false, true
		return []bridge.Command{bridge.Interrupt{}}, false
	}
	return nil, true
}

// start begins a response.
func (d *dialogue) start(asked bool, metadata json.RawMessage) {
	d.active = &response{id: d.newID("resp"), asked: asked, metadata: metadata}
	d.unwanted, d.called, d.usage = false, false, nil
	d.emit("response.created", object{"response": d.response("in_progress", nil)})
}

// speech is the item of what is said now. The first time it is reported. turn 0 is the newest.
func (d *dialogue) speech(turn int) *item {
	if turn > 0 {
		d.turn = turn
	}
	if d.active == nil {
		d.speechStopped() // the model is sooner than our ear
		d.start(false, nil)
	}
	d.ear.due = false
	if d.active.speech != nil {
		return d.active.speech
	}
	i := &item{
		ID:      d.newID("item"),
		Object:  "realtime.item",
		Type:    typeMessage,
		Status:  inProgress,
		Role:    roleAssistant,
		Content: []part{},
		turn:    d.turn,
	}
	d.active.speech = i
	d.addOutput(i)
	d.emit("response.content_part.added", d.where(i, object{"part": d.contentPart("")}))
	if d.calls && d.playing == "" && !d.session.writes() {
		d.playing = d.active.id
		d.emit("output_audio_buffer.started", object{"response_id": d.playing})
	}
	empty := ""
	if d.session.writes() {
		i.Content = append(i.Content, part{Type: outputText})
	} else {
		i.Content = append(i.Content, part{Type: outputAudio, Transcript: &empty})
	}
	if left := d.left; left != "" {
		d.left = ""
		d.addText(i, left)
	}
	return i
}

// contentPart is the part of an answer, as events of parts have it.
func (d *dialogue) contentPart(text string) object {
	if d.session.writes() {
		return object{"type": "text", "text": text}
	}
	return object{"type": "audio", "transcript": text}
}

// addOutput reports an item of the active response.
func (d *dialogue) addOutput(i *item) {
	d.active.output = append(d.active.output, i)
	d.emit("response.output_item.added", object{"response_id": d.active.id, "output_index": len(d.active.output) - 1, "item": i})
	d.addItem(i, len(d.items.items))
}

// where says in which part of which item of the active response something is.
func (d *dialogue) where(i *item, fields object) object {
	fields["response_id"], fields["item_id"], fields["content_index"] = d.active.id, i.ID, 0
	fields["output_index"] = slices.Index(d.active.output, i)
	return fields
}

// say reports a piece of what the model says.
func (d *dialogue) say(b bridge.AssistantText) {
	if d.called {
		d.left += b.Text
		return
	}
	d.addText(d.speech(b.Turn), b.Text)
}

func (d *dialogue) addText(i *item, text string) {
	if p := &i.Content[0]; p.Type == outputText {
		p.Text += text
		d.emit("response.output_text.delta", d.where(i, object{"delta": text}))
	} else {
		i.pieces = append(i.pieces, piece{text, i.voice})
		all := *p.Transcript + text
		p.Transcript = &all
		d.emit("response.output_audio_transcript.delta", d.where(i, object{"delta": text}))
	}
}

// onTurnComplete ends the response of a turn, with all that was said.
func (d *dialogue) onTurnComplete(turn int) {
	d.called, d.left = false, ""
	d.ear.due = false
	if r := d.active; r != nil {
		switch {
		case r.speech != nil:
			d.end(statusCompleted, "", nil)
		case d.calling: // the call's own turn; what the model makes of the result follows, as a rule
			r.idle = true
		case turn > d.turn: // it has nothing to say
			d.end(statusCompleted, "", nil)
		}
	}
	d.calling = false
	d.turn = max(d.turn, turn)
	if d.playing != "" {
		d.emit("output_audio_buffer.stopped", object{"response_id": d.playing})
		d.playing = ""
	}
}

// onInterrupted ends a response that was cut off.
func (d *dialogue) onInterrupted(b bridge.Interrupted) {
	d.called, d.calling, d.left = false, false, ""
	if b.By != bridge.ByLink {
		d.clearVoice()
		defer d.cutShort(b)
	}
	if d.active == nil || d.active.speech == nil || d.cutting { // the client has ended it
		return
	}
	switch b.By {
	case bridge.ByLink:
		d.end(statusFailed, "", &apiError{Type: "server_error", Code: "connection_lost", Message: "The connection to the model was lost."})
	case bridge.ByVoice, bridge.ByText:
		d.end(statusCancelled, "turn_detected", nil)
	default:
		d.end(statusCancelled, "client_cancelled", nil)
	}
}

// cutShort reports how much was heard of an answer of a call. Other clients report that to us.
func (d *dialogue) cutShort(b bridge.Interrupted) {
	n := slices.IndexFunc(d.items.items, func(i *item) bool { return i.turn == b.Turn && b.Turn > 0 })
	if !d.calls || n < 0 {
		return
	}
	i := d.items.items[n]
	i.Content[0].Transcript = &b.Heard
	d.emit("conversation.item.truncated", object{"item_id": i.ID, "content_index": 0, "audio_end_ms": b.Played.Milliseconds()})
}

// clearVoice reports that what is left of a call's voice will not be heard.
func (d *dialogue) clearVoice() {
	if d.playing != "" {
		d.emit("output_audio_buffer.cleared", object{"response_id": d.playing})
		d.playing = ""
	}
}

// call reports functions that the client is to run. It ends the response: clients answer with the next.
func (d *dialogue) call(b bridge.ToolCall) {
	d.unwanted = false
	if d.active == nil {
		d.speechStopped()
		d.start(false, nil)
	}
	d.ear.due = false
	d.endSpeech(completed)
	for _, c := range b.Calls {
		none, arguments := "", string(c.Args)
		i := &item{ID: d.newID("item"), Object: "realtime.item", Type: typeCall, Status: inProgress, CallID: c.ID, Name: c.Name, Arguments: &none}
		d.addOutput(i)
		at := object{"response_id": d.active.id, "item_id": i.ID, "output_index": len(d.active.output) - 1, "call_id": c.ID, "delta": arguments}
		d.emit("response.function_call_arguments.delta", at)
		delete(at, "delta")
		at["name"], at["arguments"] = c.Name, arguments
		d.emit("response.function_call_arguments.done", at)
		i.Arguments, i.Status = &arguments, completed
		d.open[c.ID] = true
		d.endItem(i)
	}
	d.end(statusCompleted, "", nil)
	d.called, d.calling = true, true
}

// endSpeech reports that nothing more is said in the active response.
func (d *dialogue) endSpeech(status string) {
	i := d.active.speech
	if i == nil || i.Status != inProgress {
		return
	}
	i.Status = status
	text := i.said()
	if d.session.writes() {
		d.emit("response.output_text.done", d.where(i, object{"text": text}))
	} else {
		d.emit("response.output_audio.done", d.where(i, object{}))
		d.emit("response.output_audio_transcript.done", d.where(i, object{"transcript": text}))
	}
	d.emit("response.content_part.done", d.where(i, object{"part": d.contentPart(text)}))
	d.endItem(i)
}

// endItem reports that an item of the active response is complete.
func (d *dialogue) endItem(i *item) {
	d.emit("conversation.item.done", object{"item": i, "previous_item_id": d.before(i)})
	d.emit("response.output_item.done", object{"response_id": d.active.id, "output_index": slices.Index(d.active.output, i), "item": i})
}

// end ends the active response. reason is why it was cancelled, err why it has failed.
func (d *dialogue) end(status, reason string, err error) {
	if d.active == nil {
		return
	}
	itemStatus, details := incomplete, any(nil)
	switch status {
	case statusCompleted:
		itemStatus = completed
	case statusCancelled:
		details = object{"type": status, "reason": reason}
	case statusFailed:
		why := object{"type": "server_error", "code": "server_error"}
		if e, ok := err.(*apiError); ok {
			why = object{"type": e.Type, "code": e.Code, "message": e.Message}
		}
		details = object{"type": status, "error": why}
	}
	d.endSpeech(itemStatus)
	d.emit("response.done", object{"response": d.response(status, details)})
	d.active, d.usage = nil, nil
}

// response is the active response, as events have it.
func (d *dialogue) response(status string, details any) object {
	r := d.active
	output := r.output
	if output == nil {
		output = []*item{}
	}
	return object{
		"object": "realtime.response", "id": r.id, "status": status, "status_details": details, "output": output,
		"conversation_id": "conv_" + d.session.ID, "output_modalities": d.session.OutputModalities,
		"max_output_tokens": d.session.MaxOutputTokens,
		"audio":             object{"output": object{"format": d.session.Audio.Output.Format, "voice": d.session.Audio.Output.Voice}},
		"usage":             d.tokens(), "metadata": r.metadata,
	}
}

// tokens are what a turn has cost; nil: it is not known.
func (d *dialogue) tokens() any {
	if d.usage == nil {
		return nil
	}
	t := d.usage.Turn
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
