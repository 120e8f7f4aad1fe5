package openai

import (
	"bytes"
	"cmp"
	"encoding/json"
	"slices"
	"time"

	"voxgate/bridge"
	"voxgate/media"
	"voxgate/tools"
)

// dialogue is a conversation in terms of the Realtime API: the person's speech (ear), the model's output (answer), and
// the record of both. Its inputs are the client's events and the engine's events; its outputs are messages to the
// client and commands to the engine. It is independent of sockets and of the engine. It is not safe for
// concurrent use.
type dialogue struct {
	record
	ear    ear
	answer answer

	agent   func(prompt json.RawMessage) (bridge.SessionRequest, error) // selects the agent of a session's prompt
	config  json.RawMessage                                             // the session's configuration, as the engine has it
	updates []change                                                    // session updates that the engine has not confirmed
	asked   []bridge.Command                                            // delayed until the engine has confirmed the session updates, or nil
	begun   bool                                                        // the model is listening
	ready   bool                                                        // it takes turns in the session's mode

	pending []*item         // created, and not yet sent to the model
	results []*item         // of functions, not yet sent to the model
	open    map[string]bool // ids of the calls without a result

	lost []bridge.ToolLoss // not yet reported to the client
}

// change is a session update that the engine has not confirmed.
type change struct {
	event string  // id of the client's event
	old   session // before the update
}

func newDialogue(model string, calls bool, newID func(string) string) *dialogue {
	d := &dialogue{record: record{newID: newID, calls: calls, session: newSession(newID("sess"), model)}, open: map[string]bool{}}
	d.ear.record, d.answer.record = &d.record, &d.record
	return d
}

// happen reports an event of the engine to the client, and returns commands for the engine.
func (d *dialogue) happen(body bridge.EventBody) (commands []bridge.Command) {
	switch b := body.(type) {
	case bridge.SetupComplete:
		if b.Update {
			d.updated(nil)
		}
		d.begun = d.begun || len(d.updates) == 0
		return d.caughtUp()
	case bridge.SetupFailed:
		d.updated(b.Err)
		return d.caughtUp()
	case bridge.UserSpeaking:
		return d.onSpeech(b)
	case bridge.UserText:
		d.onTranscript(b)
	case bridge.Speaking:
		if commands, ok := d.answer.wanted(); !ok {
			return commands
		}
		if d.answer.turn = b.Turn; d.answer.stage != called {
			d.speech(b.Turn)
		}
	case bridge.AssistantText:
		if b.Final {
			return nil
		}
		if d.answer.isLate(b.Turn) {
			d.answer.addLate(b.Turn, b.Text)
			return nil
		}
		if commands, ok := d.answer.wanted(); !ok {
			return commands
		}
		d.say(b)
	case bridge.SilenceDetected:
		d.ear.timeout()
	case bridge.Usage:
		d.answer.usage.Turn = d.answer.usage.Turn.Plus(b.Turn)
	case bridge.TurnComplete:
		d.ear.answered()
		d.answer.onTurnComplete(b.Turn)
	case bridge.Interrupted:
		d.answer.onInterrupted(b)
	case bridge.ToolCall:
		d.begin()
		for _, c := range b.Calls {
			d.open[c.ID] = true
		}
		d.answer.call(b)
	case bridge.ToolCallCancellation:
		for _, id := range b.IDs {
			delete(d.open, id)
		}
	case bridge.StateChange:
		if b.Unanswered && d.answer.stage != speaking {
			d.answer.breakOff("no_answer", "The model did not answer.")
		}
	}
	return nil
}

// begin begins a response for output that the model starts itself, if no response is in progress.
func (d *dialogue) begin() {
	if !d.answer.underWay() {
		d.ear.stop(d.ear.heard) // the model has detected the end of speech before our VAD
		d.answer.start(nil, nil)
	}
	d.ear.answered()
}

// speech returns the item for the current output.
func (d *dialogue) speech(turn int) *item {
	d.begin()
	return d.answer.speech(turn)
}

// say reports a piece of the model's text.
func (d *dialogue) say(b bridge.AssistantText) {
	if d.answer.stage == called {
		d.answer.left += b.Text
		return
	}
	d.answer.addText(d.speech(b.Turn), b.Text)
}

// voice reports a piece of the voice, encoded in the session's format, and its duration.
func (d *dialogue) voice(encoded []byte, lasts time.Duration) {
	if s := d.answer.stage; !d.calls && !d.answer.writes() && s != cutting && s != called {
		d.answer.addVoice(d.speech(0), encoded, lasts)
	}
}

// onSpeech follows the engine's speech detection. In the other modes the event echoes our own marks.
func (d *dialogue) onSpeech(b bridge.UserSpeaking) []bridge.Command {
	if d.session.turns() != modelsEar {
		return nil
	}
	if !b.Speaking {
		d.ear.stop(b.At)
		d.overlap()
		return nil
	}
	d.answer.settle()
	d.ear.start(b.At)
	return d.seeds()
}

func (d *dialogue) onTranscript(b bridge.UserText) {
	switch {
	case !b.Final:
		d.ear.transcript(b.Text, false)
	case b.Turn != d.ear.turn:
		d.ear.turn = b.Turn
		d.ear.transcript(b.Text, true)
		d.overlap()
	}
}

// overlap records that speech during an answer needs no answer of its own.
func (d *dialogue) overlap() {
	if d.answer.underWay() {
		d.ear.answered()
	}
}

// caughtUp returns the commands that were delayed by session updates, once the engine has confirmed all.
func (d *dialogue) caughtUp() (commands []bridge.Command) {
	if len(d.updates) == 0 {
		if !d.ready { // speech until then does not wait for an answer
			d.ear.since = d.ear.heard
		}
		d.ready = true
		commands, d.asked = d.asked, nil
	}
	return commands
}

// updated handles the engine's response to the oldest session update.
func (d *dialogue) updated(refused *bridge.Error) {
	if len(d.updates) == 0 {
		return
	}
	first := d.updates[0]
	d.updates = d.updates[1:]
	if refused == nil {
		return
	}
	if len(d.updates) > 0 { // later updates contain the rejected part
		d.updates[0].old = first.old
	} else {
		d.session = first.old
	}
	d.fail(first.event, refusal("session_update_failed", "session", "%s", inSession.Replace(refused.Message)))
	d.emit("session.updated", object{"session": d.session})
	d.config = d.session.config()
}

// loseTools removes the functions that the model does not have from the session.
func (d *dialogue) loseTools(b bridge.ToolLosses) {
	for _, l := range b.Losses {
		if l.LeftOut {
			d.session.Tools = slices.DeleteFunc(slices.Clone(d.session.Tools), func(t tool) bool {
				return t.Type == function && t.Name == l.Function
			})
		}
	}
	d.config = d.session.config()
	if d.lost = append(d.lost, b.Losses...); len(d.lost) > maxTools {
		d.lost = d.lost[len(d.lost)-maxTools:]
	}
}

// reportLosses sends an error for each function that the model lacks in part or altogether, and then the current
// session.
func (d *dialogue) reportLosses() {
	if len(d.lost) == 0 {
		return
	}
	for _, l := range d.lost {
		code, format := "tool_changed", "The function %q is declared to the model in part: %s"
		if l.LeftOut {
			code, format = "tool_not_declared", "The function %q is not declared to the model: %s."
		}
		d.fail("", refusal(code, "session.tools", format, clip(l.Function), inSession.Replace(l.Reason)))
	}
	d.lost = nil
	d.emit("session.updated", object{"session": d.session})
}

// take handles a client event other than audio. It returns commands for the engine, in order, or an error for the
// client.
func (d *dialogue) take(e clientEvent) ([]bridge.Command, error) {
	switch e.Type {
	case "session.update":
		return d.update(e)
	case "input_audio_buffer.commit":
		return d.commit()
	case "input_audio_buffer.clear":
		return d.clear(), nil
	case "conversation.item.create":
		return nil, d.create(e)
	case "conversation.item.retrieve":
		i := d.find(e.ItemID)
		if i == nil {
			return nil, noItem("item_retrieve_invalid_item_id", "item_id", e.ItemID)
		}
		d.put("conversation.item.retrieved", object{"item": i}, true)
		return nil, nil
	case "conversation.item.truncate":
		return d.truncate(e)
	case "conversation.item.delete":
		return nil, d.delete(e.ItemID)
	case "response.create":
		return d.respond(e)
	case "response.cancel":
		return d.cancel(e)
	case "output_audio_buffer.clear":
		if !d.calls {
			break
		}
		if !d.answer.underWay() {
			return []bridge.Command{bridge.Interrupt{}}, nil // discard the rest of the voice after its response
		}
		return d.cancel(e)
	}
	if e.Type == "transcription_session.update" {
		return nil, betaError("%s is not part of the GA API: send session.update.", e.Type)
	}
	return nil, refusal("invalid_value", "type", "%q is no event that is served here.", clip(e.Type))
}

// maxUpdates limits the session updates that wait for the engine's confirmation.
const maxUpdates = 16

// update changes the session. The change is reported to the client at once, a rejection by the engine later.
func (d *dialogue) update(e clientEvent) ([]bridge.Command, error) {
	if len(e.Session) == 0 {
		return nil, missing("session")
	}
	next, err := d.session.updated(e.Session)
	if err != nil {
		return nil, err
	}
	var agent bridge.SessionRequest
	changed := prompted(d.session.Prompt) != prompted(next.Prompt)
	if changed {
		if agent, err = d.agent(next.Prompt); err != nil {
			return nil, ending(err)
		}
	}
	if len(d.updates) >= maxUpdates {
		return nil, refusal("rate_limit_exceeded", "session", "Too many changes of the session wait for the model.")
	}
	old := d.session
	next.Model = old.Model // cannot be changed, as at OpenAI
	for _, t := range next.Tools {
		if t.Type != function {
			d.fail(e.EventID, refusal("unsupported_tool", "session.tools", "Tools of type %q are not served; functions are.", clip(t.Type)))
		}
	}
	d.session = next
	d.emit("session.updated", object{"session": d.session})
	if old.turns() != next.turns() {
		d.ear.reset()
		d.ready = false
	}
	config := next.config()
	if bytes.Equal(config, d.config) && !changed { // a redundant update could cost a new connection
		return nil, nil
	}
	d.config = config
	d.updates = append(d.updates, change{e.EventID, old})
	update := bridge.UpdateConfig{Config: config}
	if changed {
		update.Agent, update.Name = &agent.Agent, agent.Origin.Agent
	}
	return []bridge.Command{update}, nil
}

// noItem returns the error for an unknown item id.
func noItem(code, param, id string) error {
	return refusal(code, param, "There is no item %q in the conversation.", clip(id))
}

// Limits of the items that wait for the model.
const (
	maxPending      = 64
	maxPendingBytes = 12 << 20
)

// create adds an item to the conversation. The model receives it with the next response, or before the person speaks.
func (d *dialogue) create(e clientEvent) error {
	i, err := readItem(e.Item)
	if err != nil {
		return err
	}
	at := len(d.items)
	switch previous := value(e.PreviousItemID); previous {
	case "":
	case "root":
		at = 0
	default:
		if at = d.index(previous) + 1; at == 0 {
			return noItem("item_create_invalid_previous_item_id", "previous_item_id", previous)
		}
	}
	if i.ID == "" {
		i.ID = d.newID("item")
	} else if d.find(i.ID) != nil {
		return refusal("item_create_duplicate_item_id", "item.id", "There is an item %q already.", clip(i.ID))
	}
	waiting := 0
	for _, p := range append([]*item{i}, d.pending...) {
		text, pictures := p.size()
		waiting += text + pictures
	}
	if len(d.pending)+len(d.results) >= maxPending || waiting > maxPendingBytes {
		return refusal("rate_limit_exceeded", "item", "Too many items wait for the model: ask for a response.")
	}
	if i.Type == typeOutput && d.open[i.CallID] {
		delete(d.open, i.CallID)
		d.results = append(d.results, i)
	} else {
		d.pending = append(d.pending, i)
	}
	d.add(i, at)
	d.itemDone(i)
	return nil
}

// truncate cuts the record of an answer to the part that was heard. The model's own memory keeps all of it.
func (d *dialogue) truncate(e clientEvent) ([]bridge.Command, error) {
	i := d.find(e.ItemID)
	if i == nil || i.Role != roleAssistant {
		return nil, noItem("item_truncate_invalid_item_id", "item_id", e.ItemID)
	}
	heard := time.Duration(max(0, e.AudioEndMS)) * time.Millisecond
	if i.voice > 0 {
		heard = min(heard, i.voice)
	}
	if len(i.Content) > 0 && i.Content[0].Type == outputAudio {
		kept := ""
		for _, p := range i.pieces {
			if p.at < heard {
				kept += p.text
			}
		}
		i.Content[0].Transcript = &kept
	}
	d.emit("conversation.item.truncated", object{"item_id": i.ID, "content_index": e.ContentIndex, "audio_end_ms": heard.Milliseconds()})
	if i.turn == 0 || d.calls { // in a call the engine knows better how much was played
		return nil, nil
	}
	return []bridge.Command{bridge.PlaybackPosition{Turn: i.turn, Played: heard}}, nil
}

// delete removes an item from the record. The model's own memory keeps it.
func (d *dialogue) delete(id string) error {
	n := d.index(id)
	if n < 0 {
		return noItem("item_delete_invalid_item_id", "item_id", id)
	}
	d.pending = slices.DeleteFunc(d.pending, func(p *item) bool { return p.ID == id })
	d.remove(n)
	d.emit("conversation.item.deleted", object{"item_id": id})
	return nil
}

// begin is the prompt if a response is requested without input and without instructions.
const begin = "Begin the conversation."

// respond requests an answer from the model: to results of functions, to speech, to text, or to nothing.
func (d *dialogue) respond(e clientEvent) ([]bridge.Command, error) {
	var asked struct {
		Conversation     string            `json:"conversation"`
		Input            []json.RawMessage `json:"input"`
		Instructions     string            `json:"instructions"`
		Metadata         json.RawMessage   `json:"metadata"`
		OutputModalities []string          `json:"output_modalities"`
	}
	if len(e.Response) > 0 {
		var fields map[string]json.RawMessage
		if err := cmp.Or(json.Unmarshal(e.Response, &fields), json.Unmarshal(e.Response, &asked)); err != nil {
			return nil, wrongType(err, "response")
		}
		if err := unknown(fields, "response."); err != nil {
			return nil, err
		}
	}
	switch {
	case asked.Conversation != "" && asked.Conversation != "auto":
		return nil, refusal("unsupported", "response.conversation", "Responses outside of the conversation are not served.")
	case len(asked.Input) > 0:
		return nil, refusal("unsupported", "response.input", "A response with an input of its own is not served: create items.")
	case len(asked.Metadata) > 64<<10:
		return nil, invalid("response.metadata", "is too long.")
	}
	if modalities := asked.OutputModalities; len(modalities) > 0 {
		if err := checkModalities("response", modalities); err != nil {
			return nil, err
		}
		if modalities[0] == asAudio && d.session.writes() {
			return nil, refusal("unsupported", "response.output_modalities", "A session of text has no voice: change the session.")
		}
	}
	if d.answer.settle(); d.answer.underWay() {
		return nil, refusal(
			"conversation_already_has_active_response", "",
			"Conversation already has an active response in progress: %s. Wait until the response is finished before creating a new one.",
			d.answer.response.id,
		)
	}
	commands := d.ask(asked.Instructions, asked.Metadata, asked.OutputModalities)
	// What a client requests after a session update is delayed until the engine has confirmed the update. Results of
	// functions are not delayed: a new connection would wait for them.
	if len(d.updates) > 0 && len(commands) > 0 && !answers(commands) {
		d.asked, commands = commands, nil
	}
	return commands, nil
}

// ask begins a response, and returns the commands that request it from the model.
func (d *dialogue) ask(instructions string, metadata json.RawMessage, modalities []string) []bridge.Command {
	said := d.ear.question
	d.ear.question = noQuestion
	d.answer.start(metadata, modalities)
	commands := d.takeResults()
	last := len(d.pending)
	for last > 0 && d.pending[last-1].Role == roleUser {
		last--
	}
	if said == committed {
		commands = append(commands, d.seeds()...)
		if !d.ear.open { // the engine has buffered the speech
			commands = append(commands, bridge.ActivityStart)
		}
		d.ear.open = false
		return append(commands, bridge.ActivityEnd)
	}
	typed := d.pending[last:]
	d.pending = d.pending[:last]
	commands = append(commands, d.seeds()...)
	switch {
	case len(typed) > 0:
		var parts []object
		if instructions != "" {
			parts = append(parts, object{"text": instructions})
		}
		for _, i := range typed {
			parts = append(parts, i.parts()...)
		}
		return append(commands, bridge.Message{Parts: tools.Encode(parts), TurnComplete: true})
	case answers(commands), said == due && instructions == "":
		return commands
	}
	return append(commands, bridge.Prompt{Instruction: cmp.Or(instructions, begin)})
}

// answers reports whether the commands send results of functions, which the model answers.
func answers(commands []bridge.Command) bool {
	if len(commands) == 0 {
		return false
	}
	_, ok := commands[0].(bridge.ToolResponse)
	return ok
}

// waits reports whether commands are delayed that must be sent soon; takeLate returns them.
func (d *dialogue) waits() bool { return len(d.results)+len(d.asked) > 0 }

func (d *dialogue) takeLate() []bridge.Command {
	commands := append(d.takeResults(), d.asked...)
	d.asked = nil
	return commands
}

// takeResults returns the results that the model does not have yet, as commands.
func (d *dialogue) takeResults() (commands []bridge.Command) {
	for _, i := range d.results {
		result := json.RawMessage(value(i.Output))
		var fields map[string]json.RawMessage
		if json.Unmarshal(result, &fields) != nil || fields == nil {
			result = tools.Encode(object{"result": *i.Output})
		}
		commands = append(commands, bridge.ToolResponse{ID: i.CallID, Response: result})
	}
	d.results = nil
	d.answer.leave(called)
	return commands
}

// seeds returns commands that add the pending items without requesting an answer.
func (d *dialogue) seeds() []bridge.Command {
	var turns []bridge.PrefillTurn
	for _, i := range d.pending {
		if parts := i.parts(); len(parts) > 0 {
			turns = append(turns, bridge.PrefillTurn{Model: i.Role == roleAssistant || i.Type == typeCall, Parts: tools.Encode(parts)})
		}
	}
	d.pending = nil
	if len(turns) == 0 {
		return nil
	}
	return []bridge.Command{bridge.PrefillTurns{Turns: turns}}
}

// cancel ends the response in progress.
func (d *dialogue) cancel(e clientEvent) ([]bridge.Command, error) {
	a := &d.answer
	if !a.underWay() || e.ResponseID != "" && e.ResponseID != a.response.id {
		return nil, refusal("response_cancel_not_active", "", "Cancellation failed: no active response found.")
	}
	if d.asked != nil { // the model has not been asked yet
		d.asked = nil
		a.cancel()
		return nil, nil
	}
	next := unwanted
	if a.stage == speaking {
		next = cutting
	}
	a.voiceEnds("cleared")
	a.cancel()
	a.stage = next
	return []bridge.Command{bridge.Interrupt{}}, nil
}

// done is called after the engine has accepted a command, or rejected it with err.
func (d *dialogue) done(event string, c bridge.Command, err error) {
	switch c := c.(type) {
	case bridge.Interrupt:
		d.answer.leave(cutting)
	case bridge.UpdateConfig: // an event reports the outcome
	case bridge.PrefillTurns:
		// A model that accepts no history continues without it: an error would end some clients.
	case bridge.Activity:
		if err != nil && c == bridge.ActivityStart {
			d.ear.open = false
		}
	case bridge.ToolResponse: // a cancelled call needs no result
	default:
		if err != nil {
			d.answer.breakOff("server_error", "")
			d.fail(event, err)
		}
	}
}

// sound counts the received audio, and detects speech where the model does not. Send its commands before the audio.
func (d *dialogue) sound(pcm []int16, rate int) (commands []bridge.Command) {
	e := &d.ear
	e.heard += media.Duration(len(pcm), rate)
	if d.session.turns() != ownEar || !d.ready {
		return nil
	}
	e.listen(pcm, rate, d.answer.settle)
	if e.open || e.item == "" && e.question != committed {
		return nil
	}
	e.open = true
	return append(d.seeds(), bridge.ActivityStart)
}

// clear discards audio that was not committed. In the mode modelsEar, the model has already heard it.
func (d *dialogue) clear() (commands []bridge.Command) {
	if turns := d.session.turns(); turns == pushToTalk || turns == ownEar && !d.ear.open {
		commands = append(commands, bridge.ActivityDrop)
	}
	if d.ear.item == "" {
		d.ear.since = d.ear.heard
	}
	d.emit("input_audio_buffer.cleared", nil)
	return commands
}

// leastCommit is the minimum duration of audio for a commit.
const leastCommit = 100 * time.Millisecond

// commit ends the person's turn on input_audio_buffer.commit.
func (d *dialogue) commit() ([]bridge.Command, error) {
	e := &d.ear
	switch turns := d.session.turns(); {
	case turns == pushToTalk && d.ready && e.heard-e.since >= leastCommit:
		e.commit(d.newID("item"), e.heard)
		return []bridge.Command{bridge.ActivityKeep}, nil
	case turns == ownEar && e.item != "":
		e.vad.EndSpeech()
		e.stop(e.heard)
		return nil, nil
	case turns == modelsEar && e.item != "":
		return []bridge.Command{bridge.AudioStreamEnd}, nil // UserSpeaking reports the end
	}
	return nil, refusal("input_audio_buffer_commit_empty", "",
		"Error committing input audio buffer: buffer too small. Expected at least 100ms of audio.")
}
