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

// dialogue is a conversation in terms of the Realtime API. It gets the events of the client and of the engine, and
// returns messages to the client and commands to the engine. It is not safe for concurrent use.
type dialogue struct {
	clientRecord
	userSpeech userSpeech
	answer     modelAnswer

	selectAgent     func(prompt json.RawMessage) (bridge.SessionRequest, error) // returns a request with the prompt's agent
	config          json.RawMessage                                             // session in the engine's format, as last sent
	pendingUpdates  int                                                         // session updates that the engine has not confirmed
	newestUpdate    *sessionUpdate                                              // confirmed or not; nil before the first update
	delayedCommands []bridge.Command                                            // wait until all updates are confirmed; nil if none wait
	isModelReady    bool                                                        // the model was set up with no update pending; never reset
	turnModeActive  bool                                                        // the model uses the session's turn-taking mode

	pendingItems   []*item         // items of the client that were not sent to the model yet
	pendingResults []*item         // function results that were not sent to the model yet
	openCalls      map[string]bool // ids of the function calls without a result

	toolLosses []bridge.ToolLoss // losses that were not reported to the client yet
}

// sessionUpdate is the state of one session.update. It is the ReplyTo of a command to the engine. The engine returns it
// in the event that confirms or rejects the command.
type sessionUpdate struct {
	event    string         // id of the client's event
	previous session        // session before the update, restored if the engine rejects the update
	next     *sessionUpdate // the next update, which includes this one; nil for the newest
}

func newDialogue(model string, isCall bool, newID func(string) string) *dialogue {
	d := &dialogue{
		clientRecord: clientRecord{newID: newID, isCall: isCall, session: newSession(newID("sess"), model)}, openCalls: map[string]bool{},
	}
	d.userSpeech.clientRecord, d.answer.clientRecord = &d.clientRecord, &d.clientRecord
	return d
}

// handleEngineEvent reports an event of the engine to the client, and returns commands for the engine.
func (d *dialogue) handleEngineEvent(e bridge.Event) (commands []bridge.Command) {
	switch b := e.Body.(type) {
	case bridge.SetupComplete:
		d.finishUpdate(e.ReplyTo, nil)
		d.isModelReady = d.isModelReady || d.pendingUpdates == 0
		return d.releaseDelayedCommands()
	case bridge.SetupFailed:
		d.finishUpdate(e.ReplyTo, b.Err)
		return d.releaseDelayedCommands()
	case bridge.UserSpeaking:
		return d.onSpeech(b)
	case bridge.UserText:
		d.onTranscript(b)
	case bridge.Speaking:
		if commands, ok := d.answer.acceptOutput(); !ok {
			return commands
		}
		if d.answer.turn = b.Turn; d.answer.stage != stageAfterCalls {
			d.ensureOutputItem(b.Turn)
		}
	case bridge.AssistantText:
		if b.Final {
			return nil
		}
		if d.answer.isLateText(b.Turn) {
			d.answer.addLateText(b.Turn, b.Text)
			return nil
		}
		if commands, ok := d.answer.acceptOutput(); !ok {
			return commands
		}
		d.addText(b)
	case bridge.SilenceDetected:
		d.userSpeech.onIdleTimeout()
	case bridge.Usage:
		d.answer.usage.Turn = d.answer.usage.Turn.Plus(b.Turn)
	case bridge.TurnComplete:
		d.userSpeech.markAnswered()
		d.answer.onTurnComplete(b.Turn)
	case bridge.Interrupted:
		d.answer.onInterrupted(b)
	case bridge.ToolCall:
		d.ensureResponse()
		for _, c := range b.Calls {
			d.openCalls[c.ID] = true
		}
		d.answer.reportCalls(b)
	case bridge.ToolCallCancellation:
		for _, id := range b.IDs {
			delete(d.openCalls, id)
		}
	case bridge.StateChange:
		if b.Unanswered && d.answer.stage != stageSpeaking {
			d.answer.failResponse("no_answer", "The model did not answer.")
		}
	}
	return nil
}

// ensureResponse begins a response if none is in progress. This happens when the model begins to speak although the
// client has not sent a response.create.
func (d *dialogue) ensureResponse() {
	if !d.answer.isInProgress() {
		d.userSpeech.stopSpeech(d.userSpeech.received) // the model has detected the end of speech before the gateway has
		d.answer.startResponse(nil, nil)
	}
	d.userSpeech.markAnswered()
}

// ensureOutputItem returns the item for the model's current output. If there is none, it begins an item, and also a
// response if necessary.
func (d *dialogue) ensureOutputItem(turn int) *item {
	d.ensureResponse()
	return d.answer.ensureOutputItem(turn)
}

// addText reports a piece of the model's text.
func (d *dialogue) addText(b bridge.AssistantText) {
	if d.answer.stage == stageAfterCalls {
		d.answer.heldText += b.Text
		return
	}
	d.answer.addText(d.ensureOutputItem(b.Turn), b.Text)
}

// addVoice reports a piece of the voice, encoded in the session's format.
func (d *dialogue) addVoice(encoded []byte, duration time.Duration) {
	if s := d.answer.stage; !d.isCall && !d.answer.isText() && s != stageInterrupting && s != stageAfterCalls {
		d.answer.addVoice(d.ensureOutputItem(0), encoded, duration)
	}
}

// onSpeech reports the start or end of the person's speech in the mode engineDetectsTurns. In other modes it ignores
// the event, which only repeats the marks that the dialogue itself has sent ([bridge.Activity]).
func (d *dialogue) onSpeech(b bridge.UserSpeaking) []bridge.Command {
	if d.session.turnMode() != engineDetectsTurns {
		return nil
	}
	if !b.Speaking {
		d.userSpeech.stopSpeech(b.At)
		d.markOverlapAnswered()
		return nil
	}
	d.answer.closePreviousAnswer()
	d.userSpeech.startSpeech(b.At)
	return d.takePrefillCommands()
}

func (d *dialogue) onTranscript(b bridge.UserText) {
	switch {
	case !b.Final:
		d.userSpeech.addTranscript(b.Text, false)
	case b.Turn != d.userSpeech.transcriptTurn:
		d.userSpeech.transcriptTurn = b.Turn
		d.userSpeech.addTranscript(b.Text, true)
		d.markOverlapAnswered()
	}
}

// markOverlapAnswered records that speech during an answer needs no answer of its own.
func (d *dialogue) markOverlapAnswered() {
	if d.answer.isInProgress() {
		d.userSpeech.markAnswered()
	}
}

// releaseDelayedCommands returns the commands that wait for session updates. It returns none before the engine has
// confirmed all updates.
func (d *dialogue) releaseDelayedCommands() (commands []bridge.Command) {
	if d.pendingUpdates == 0 {
		if !d.turnModeActive { // speech before the new mode is active does not wait for an answer
			d.userSpeech.speechStart = d.userSpeech.received
		}
		d.turnModeActive = true
		commands, d.delayedCommands = d.delayedCommands, nil
	}
	return commands
}

// finishUpdate handles the end of a session update. refused is nil if the engine has confirmed the update, or the error
// with which it has rejected it. Other values of replyTo than a *sessionUpdate are ignored, because this client has not
// requested such a change.
func (d *dialogue) finishUpdate(replyTo any, refused *bridge.Error) {
	update, ok := replyTo.(*sessionUpdate)
	if !ok {
		return
	}
	d.pendingUpdates--
	if refused == nil {
		return
	}
	if update.next != nil {
		update.next.previous = update.previous
	} else {
		d.session = update.previous
	}
	d.emitError(update.event, newError("session_update_failed", "session", "%s", inSession.Replace(refused.Message)))
	d.emitEvent("session.updated", object{"session": d.session})
	d.config = d.session.engineConfig()
}

// removeLostTools removes from the session the functions that could not be declared to the model, and stores the losses
// for reportToolLosses.
func (d *dialogue) removeLostTools(b bridge.ToolLosses) {
	for _, l := range b.Losses {
		if l.LeftOut {
			d.session.Tools = slices.DeleteFunc(slices.Clone(d.session.Tools), func(t tool) bool {
				return t.Type == function && t.Name == l.Function
			})
		}
	}
	d.config = d.session.engineConfig()
	if d.toolLosses = append(d.toolLosses, b.Losses...); len(d.toolLosses) > maxTools {
		d.toolLosses = d.toolLosses[len(d.toolLosses)-maxTools:]
	}
}

// reportToolLosses sends an error for each function that was not, or only partly, declared to the model. Then it sends
// session.updated.
func (d *dialogue) reportToolLosses() {
	if len(d.toolLosses) == 0 {
		return
	}
	for _, l := range d.toolLosses {
		code, format := "tool_changed", "The function %q is declared to the model only in part: %s"
		if l.LeftOut {
			code, format = "tool_not_declared", "The function %q is not declared to the model: %s."
		}
		d.emitError("", newError(code, "session.tools", format, clip(l.Function), inSession.Replace(l.Reason)))
	}
	d.toolLosses = nil
	d.emitEvent("session.updated", object{"session": d.session})
}

// handleClientEvent handles a client event other than audio. It returns commands for the engine, in order, or an error for the
// client.
func (d *dialogue) handleClientEvent(e clientEvent) ([]bridge.Command, error) {
	switch e.Type {
	case "session.update":
		return d.updateSession(e)
	case "input_audio_buffer.commit":
		return d.commitAudio()
	case "input_audio_buffer.clear":
		return d.clearAudio(), nil
	case "conversation.item.create":
		return nil, d.createItem(e)
	case "conversation.item.retrieve":
		i := d.findItem(e.ItemID)
		if i == nil {
			return nil, itemNotFound("item_retrieve_invalid_item_id", "item_id", e.ItemID)
		}
		d.queueEvent("conversation.item.retrieved", object{"item": i}, true)
		return nil, nil
	case "conversation.item.truncate":
		return d.truncateItem(e)
	case "conversation.item.delete":
		return nil, d.deleteItem(e.ItemID)
	case "response.create":
		return d.handleResponseCreate(e)
	case "response.cancel":
		return d.cancelResponse(e)
	case "output_audio_buffer.clear":
		if !d.isCall {
			break
		}
		if !d.answer.isInProgress() {
			return []bridge.Command{bridge.Interrupt{}}, nil // discard the rest of the voice, whose response has ended
		}
		return d.cancelResponse(e)
	}
	if e.Type == "transcription_session.update" {
		return nil, newBetaError("%s is not part of the GA API: send session.update.", e.Type)
	}
	return nil, newError("invalid_value", "type", "Events of the type %q are not supported.", clip(e.Type))
}

// maxUpdates limits the session updates that wait for the engine's confirmation.
const maxUpdates = 16

// updateSession changes the session. It reports the change to the client at once. If the engine rejects the change, the
// client gets an error later.
func (d *dialogue) updateSession(e clientEvent) ([]bridge.Command, error) {
	if len(e.Session) == 0 {
		return nil, missingField("session")
	}
	next, err := d.session.withChange(e.Session)
	if err != nil {
		return nil, err
	}
	var agent bridge.SessionRequest
	changed := promptText(d.session.Prompt) != promptText(next.Prompt)
	if changed {
		if agent, err = d.selectAgent(next.Prompt); err != nil {
			return nil, endError(err)
		}
	}
	if d.pendingUpdates >= maxUpdates {
		return nil, newError("rate_limit_exceeded", "session", "Too many session updates are waiting for the model.")
	}
	old := d.session
	next.Model = old.Model // cannot be changed, as at OpenAI
	for _, t := range next.Tools {
		if t.Type != function {
			d.emitError(e.EventID, newError("unsupported_tool", "session.tools", "Tools of type %q are not supported; functions are.", clip(t.Type)))
		}
	}
	d.session = next
	d.emitEvent("session.updated", object{"session": d.session})
	if old.turnMode() != next.turnMode() {
		d.userSpeech.resetState()
		d.turnModeActive = false
	}
	config := next.engineConfig()
	if bytes.Equal(config, d.config) && !changed { // a redundant update could cost a new connection
		return nil, nil
	}
	d.config = config
	update := &sessionUpdate{event: e.EventID, previous: old}
	if d.newestUpdate != nil {
		d.newestUpdate.next = update
	}
	d.newestUpdate = update
	d.pendingUpdates++
	command := bridge.UpdateConfig{Config: config, ReplyTo: update}
	if changed {
		command.Agent, command.Name = &agent.Agent, agent.Origin.Agent
	}
	return []bridge.Command{command}, nil
}

// itemNotFound returns the error for an unknown item id.
func itemNotFound(code, param, id string) error {
	return newError(code, param, "There is no item %q in the conversation.", clip(id))
}

// Limits of the items that wait for the model: their number, and their total size in bytes.
const (
	maxPending      = 64
	maxPendingBytes = 12 << 20
)

// createItem adds an item to the conversation. It is sent to the model when a response is requested, or when the person
// begins to speak.
func (d *dialogue) createItem(e clientEvent) error {
	i, err := parseItem(e.Item)
	if err != nil {
		return err
	}
	at := len(d.items)
	switch previous := stringOrEmpty(e.PreviousItemID); previous {
	case "":
	case "root":
		at = 0
	default:
		if at = d.itemIndex(previous) + 1; at == 0 {
			return itemNotFound("item_create_invalid_previous_item_id", "previous_item_id", previous)
		}
	}
	if i.ID == "" {
		i.ID = d.newID("item")
	} else if d.findItem(i.ID) != nil {
		return newError("item_create_duplicate_item_id", "item.id", "An item with the id %q exists already.", clip(i.ID))
	}
	waiting := 0
	for _, p := range append([]*item{i}, d.pendingItems...) {
		text, pictures := p.textAndPictureSize()
		waiting += text + pictures
	}
	if len(d.pendingItems)+len(d.pendingResults) >= maxPending || waiting > maxPendingBytes {
		return newError("rate_limit_exceeded", "item", "Too many items are waiting for the model: send response.create.")
	}
	if i.Type == typeOutput && d.openCalls[i.CallID] {
		delete(d.openCalls, i.CallID)
		d.pendingResults = append(d.pendingResults, i)
	} else {
		d.pendingItems = append(d.pendingItems, i)
	}
	d.addItem(i, at)
	d.emitItemDone(i)
	return nil
}

// truncateItem cuts the record of an answer to the part that the person heard. The model itself still remembers the
// whole answer.
func (d *dialogue) truncateItem(e clientEvent) ([]bridge.Command, error) {
	i := d.findItem(e.ItemID)
	if i == nil || i.Role != roleAssistant {
		return nil, itemNotFound("item_truncate_invalid_item_id", "item_id", e.ItemID)
	}
	played := time.Duration(max(0, e.AudioEndMS)) * time.Millisecond
	if i.voiceDuration > 0 {
		played = min(played, i.voiceDuration)
	}
	if len(i.Content) > 0 && i.Content[0].Type == outputAudio {
		kept := ""
		for _, p := range i.textPieces {
			if p.voicePosition < played {
				kept += p.text
			}
		}
		i.Content[0].Transcript = &kept
	}
	d.emitEvent("conversation.item.truncated", object{"item_id": i.ID, "content_index": e.ContentIndex, "audio_end_ms": played.Milliseconds()})
	if i.turn == 0 || d.isCall { // in a call, the engine itself measures how much was played
		return nil, nil
	}
	return []bridge.Command{bridge.PlaybackPosition{Turn: i.turn, Played: played}}, nil
}

// deleteItem removes an item from the record. The model itself still remembers the item.
func (d *dialogue) deleteItem(id string) error {
	n := d.itemIndex(id)
	if n < 0 {
		return itemNotFound("item_delete_invalid_item_id", "item_id", id)
	}
	d.pendingItems = slices.DeleteFunc(d.pendingItems, func(p *item) bool { return p.ID == id })
	d.removeItem(n)
	d.emitEvent("conversation.item.deleted", object{"item_id": id})
	return nil
}

// defaultPrompt is the prompt if a response is requested without input and without instructions.
const defaultPrompt = "Begin the conversation."

// handleResponseCreate handles response.create. The model must then answer function results, speech or text. If there
// are none, it speaks first.
func (d *dialogue) handleResponseCreate(e clientEvent) ([]bridge.Command, error) {
	var responseRequest struct {
		Conversation     string            `json:"conversation"`
		Input            []json.RawMessage `json:"input"`
		Instructions     string            `json:"instructions"`
		Metadata         json.RawMessage   `json:"metadata"`
		OutputModalities []string          `json:"output_modalities"`
	}
	if len(e.Response) > 0 {
		var fields map[string]json.RawMessage
		if err := cmp.Or(json.Unmarshal(e.Response, &fields), json.Unmarshal(e.Response, &responseRequest)); err != nil {
			return nil, wrongType(err, "response")
		}
		if err := rejectBetaFields(fields, "response."); err != nil {
			return nil, err
		}
	}
	switch {
	case responseRequest.Conversation != "" && responseRequest.Conversation != "auto":
		return nil, newError("unsupported", "response.conversation", "Responses outside of the conversation are not supported.")
	case len(responseRequest.Input) > 0:
		return nil, newError("unsupported", "response.input", "A response with its own input is not supported: create items.")
	case len(responseRequest.Metadata) > 64<<10:
		return nil, invalidValue("response.metadata", "is too long.")
	}
	if modalities := responseRequest.OutputModalities; len(modalities) > 0 {
		if err := checkModalities("response", modalities); err != nil {
			return nil, err
		}
		if modalities[0] == modalityAudio && d.session.isText() {
			return nil, newError("unsupported", "response.output_modalities", "This session has only text: request audio by session.update.")
		}
	}
	if d.answer.closePreviousAnswer(); d.answer.isInProgress() {
		return nil, newError(
			"conversation_already_has_active_response", "",
			"Conversation already has an active response in progress: %s. Wait until the response is finished before creating a new one.",
			d.answer.response.id,
		)
	}
	commands := d.startResponse(responseRequest.Instructions, responseRequest.Metadata, responseRequest.OutputModalities)
	// The commands wait until the engine has confirmed the session update. Function results do not wait, because the
	// engine may need them before it can make the new connection for the update.
	if d.pendingUpdates > 0 && len(commands) > 0 && !hasToolResults(commands) {
		d.delayedCommands, commands = commands, nil
	}
	return commands, nil
}

// startResponse begins a response, and returns the commands that request it from the model.
func (d *dialogue) startResponse(instructions string, metadata json.RawMessage, modalities []string) []bridge.Command {
	speech := d.userSpeech.state
	d.userSpeech.state = nothingToAnswer
	d.answer.startResponse(metadata, modalities)
	commands := d.takeToolResults()
	last := len(d.pendingItems)
	for last > 0 && d.pendingItems[last-1].Role == roleUser {
		last--
	}
	if speech == speechCommitted {
		commands = append(commands, d.takePrefillCommands()...)
		if !d.userSpeech.activityOpen { // the engine has buffered the speech
			commands = append(commands, bridge.ActivityStart)
		}
		d.userSpeech.activityOpen = false
		return append(commands, bridge.ActivityEnd)
	}
	typed := d.pendingItems[last:]
	d.pendingItems = d.pendingItems[:last]
	commands = append(commands, d.takePrefillCommands()...)
	switch {
	case len(typed) > 0:
		var parts []object
		if instructions != "" {
			parts = append(parts, object{"text": instructions})
		}
		for _, i := range typed {
			parts = append(parts, i.takeEngineParts()...)
		}
		return append(commands, bridge.Message{Parts: tools.EncodeOrEmpty(parts), TurnComplete: true})
	case hasToolResults(commands), speech == answerExpected && instructions == "":
		return commands
	}
	return append(commands, bridge.Prompt{Instruction: cmp.Or(instructions, defaultPrompt)})
}

// hasToolResults reports whether the commands send results of functions. The model answers them without a request.
func hasToolResults(commands []bridge.Command) bool {
	if len(commands) == 0 {
		return false
	}
	_, ok := commands[0].(bridge.ToolResponse)
	return ok
}

// hasDelayedCommands reports whether takeDelayedCommands has commands, which must be sent after maxDelay at the latest.
func (d *dialogue) hasDelayedCommands() bool { return len(d.pendingResults)+len(d.delayedCommands) > 0 }

func (d *dialogue) takeDelayedCommands() []bridge.Command {
	commands := append(d.takeToolResults(), d.delayedCommands...)
	d.delayedCommands = nil
	return commands
}

// takeToolResults empties pendingResults, and returns the commands that send these function results to the model.
func (d *dialogue) takeToolResults() (commands []bridge.Command) {
	for _, i := range d.pendingResults {
		result := json.RawMessage(stringOrEmpty(i.Output))
		var fields map[string]json.RawMessage
		if json.Unmarshal(result, &fields) != nil || fields == nil {
			result = tools.EncodeOrEmpty(object{"result": *i.Output})
		}
		commands = append(commands, bridge.ToolResponse{ID: i.CallID, Response: result})
	}
	d.pendingResults = nil
	d.answer.leaveStage(stageAfterCalls)
	return commands
}

// takePrefillCommands empties pendingItems, and returns commands that add these items without requesting an answer.
func (d *dialogue) takePrefillCommands() []bridge.Command {
	var turns []bridge.PrefillTurn
	for _, i := range d.pendingItems {
		if parts := i.takeEngineParts(); len(parts) > 0 {
			turns = append(turns, bridge.PrefillTurn{Model: i.Role == roleAssistant || i.Type == typeCall, Parts: tools.EncodeOrEmpty(parts)})
		}
	}
	d.pendingItems = nil
	if len(turns) == 0 {
		return nil
	}
	return []bridge.Command{bridge.PrefillTurns{Turns: turns}}
}

// cancelResponse ends the response in progress.
func (d *dialogue) cancelResponse(e clientEvent) ([]bridge.Command, error) {
	a := &d.answer
	if !a.isInProgress() || e.ResponseID != "" && e.ResponseID != a.response.id {
		return nil, newError("response_cancel_not_active", "", "Cancellation failed: no active response found.")
	}
	if d.delayedCommands != nil { // the request was not sent to the model yet
		d.delayedCommands = nil
		a.cancelResponse()
		return nil, nil
	}
	next := stageCancelled
	if a.stage == stageSpeaking {
		next = stageInterrupting
	}
	a.reportVoiceEnd("cleared")
	a.cancelResponse()
	a.stage = next
	return []bridge.Command{bridge.Interrupt{}}, nil
}

// onCommandDone is called after the engine has accepted a command, or rejected it with err. eventID is the ID of the
// client's event that caused the command, or "".
func (d *dialogue) onCommandDone(eventID string, c bridge.Command, err error) {
	switch c := c.(type) {
	case bridge.Interrupt:
		d.answer.leaveStage(stageInterrupting)
	case bridge.UpdateConfig: // an event of the engine reports whether it was applied
	case bridge.PrefillTurns:
		// A model that accepts no history continues without these turns. The client gets no error, because some clients
		// end their session at any error.
	case bridge.Activity:
		if err != nil && c == bridge.ActivityStart {
			d.userSpeech.activityOpen = false
		}
	case bridge.ToolResponse: // rejected if the call was cancelled; the client gets no error
	default:
		if err != nil {
			d.answer.failResponse("server_error", "")
			d.emitError(eventID, err)
		}
	}
}

// receiveAudio counts the client's audio. In the mode gatewayDetectsTurns it also detects speech in the audio. The
// caller must send the returned commands to the engine before the audio.
func (d *dialogue) receiveAudio(pcm []int16, rate int) (commands []bridge.Command) {
	e := &d.userSpeech
	e.received += media.Duration(len(pcm), rate)
	if d.session.turnMode() != gatewayDetectsTurns || !d.turnModeActive {
		return nil
	}
	e.detectSpeech(pcm, rate, d.answer.closePreviousAnswer)
	if e.activityOpen || e.itemID == "" && e.state != speechCommitted {
		return nil
	}
	e.activityOpen = true
	return append(d.takePrefillCommands(), bridge.ActivityStart)
}

// clearAudio discards audio that was not committed. In the mode engineDetectsTurns this has no effect on the model,
// which has already received the audio.
func (d *dialogue) clearAudio() (commands []bridge.Command) {
	if turns := d.session.turnMode(); turns == clientMarksTurns || turns == gatewayDetectsTurns && !d.userSpeech.activityOpen {
		commands = append(commands, bridge.ActivityDrop)
	}
	if d.userSpeech.itemID == "" {
		d.userSpeech.speechStart = d.userSpeech.received
	}
	d.emitEvent("input_audio_buffer.cleared", nil)
	return commands
}

// minCommit is the minimum duration of audio for a commit.
const minCommit = 100 * time.Millisecond

// commitAudio ends the person's turn on input_audio_buffer.commit.
func (d *dialogue) commitAudio() ([]bridge.Command, error) {
	e := &d.userSpeech
	switch turns := d.session.turnMode(); {
	case turns == clientMarksTurns && d.turnModeActive && e.received-e.speechStart >= minCommit:
		e.commitSpeech(d.newID("item"), e.received)
		return []bridge.Command{bridge.ActivityKeep}, nil
	case turns == gatewayDetectsTurns && e.itemID != "":
		e.vad.EndSpeech()
		e.stopSpeech(e.received)
		return nil, nil
	case turns == engineDetectsTurns && e.itemID != "":
		return []bridge.Command{bridge.AudioStreamEnd}, nil // UserSpeaking reports the end
	}
	return nil, newError("input_audio_buffer_commit_empty", "",
		"Error committing input audio buffer: buffer too small. Expected at least 100ms of audio.")
}
