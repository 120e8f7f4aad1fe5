package openai

import (
	"bytes"
	"cmp"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"voxgate/bridge"
	"voxgate/media"
)

// dialogue is a conversation as OpenAI has it: a session, items and responses. What a client sends and what happens in
// the engine go in; messages to the client and commands to the engine come out. It knows neither sockets nor the
// engine, and is for one goroutine at a time.
type dialogue struct {
	newID func(prefix string) string
	calls bool // it is a call: the voice has a track of its own, and events of it say when it is heard

	settings
	items   itemList
	pending []*item         // created, and the model does not have them yet
	results []*item         // of functions, that the model does not have yet
	open    map[string]bool // ids of the calls without a result
	active  *response
	ear     ear
	usage   *bridge.Usage // of a turn whose end is about to be reported
	progress

	out []message
}

// settings are what the client wants, and how far the engine has it.
type settings struct {
	session session
	config  json.RawMessage  // of the session, as the engine has it
	updates []change         // of the session, that the engine has not answered
	asked   []bridge.Command // that wait until the engine has the session as it is; nil: none
	begun   bool             // there is a model that listens
	ready   bool             // it takes turns as the session says
}

// progress is where the model's answer stands.
type progress struct {
	turn     int    // the newest of which something has come
	calling  bool   // a turn with a call is not over
	called   bool   // a call has ended the response; what is still heard of its voice belongs to none
	left     string // the text of that
	playing  string // the response whose voice is heard; empty: none
	unwanted bool   // what comes now was cancelled before it came
	cutting  bool   // the engine is about to cut off what is said
}

// message is a message to the client.
type message struct {
	data  []byte
	alone bool // to the connection that has asked
}

// change is one of the session that the engine has not answered.
type change struct {
	event string  // the id of the client's
	old   session // before it
}

// response is an answer of the model.
type response struct {
	id       string
	asked    bool // by the client
	metadata json.RawMessage
	output   []*item
	speech   *item // that is being said; nil: nothing was, yet
	idle     bool  // the model may have nothing to say
}

func newDialogue(model string, calls bool, newID func(string) string) *dialogue {
	return &dialogue{newID: newID, calls: calls, settings: settings{session: newSession(newID("sess"), model)}, open: map[string]bool{}}
}

// drain returns the messages to be sent.
func (d *dialogue) drain() []message {
	out := d.out
	d.out = nil
	return out
}

// emit sends an event. fields may be nil.
func (d *dialogue) emit(kind string, fields object) { d.put(kind, fields, false) }

func (d *dialogue) put(kind string, fields object, alone bool) {
	data := fmt.Appendf(nil, `{"type":%q,"event_id":%q`, kind, d.newID("event"))
	if len(fields) == 0 {
		data = append(data, '}')
	} else {
		data = append(append(data, ','), encode(fields)[1:]...)
	}
	d.out = append(d.out, message{data, alone})
}

// created reports the session, as the first event.
func (d *dialogue) created(alone bool) { d.put("session.created", object{"session": d.session}, alone) }

// fail reports an error; event is the id of the client's that it answers.
func (d *dialogue) fail(event string, err error) {
	e := apiError{Type: "server_error", Code: "server_error", Message: "Something went wrong in the gateway."}
	var own *apiError
	var engine *bridge.Error
	switch {
	case errors.As(err, &own):
		e = *own
		e.Type = cmp.Or(e.Type, "invalid_request_error")
	case errors.As(err, &engine):
		e = apiError{Type: "invalid_request_error", Code: string(engine.Code), Message: engine.Message}
	}
	e.EventID = event
	d.put("error", object{"error": e}, true)
}

// clientEvent is what a client sends. What is of one type alone stands raw.
type clientEvent struct {
	Type     string          `json:"type"`
	EventID  string          `json:"event_id"`
	Session  json.RawMessage `json:"session"`
	Item     json.RawMessage `json:"item"`
	Response json.RawMessage `json:"response"`
	Audio    []byte          `json:"audio"` // base64

	ItemID         string  `json:"item_id"`
	PreviousItemID *string `json:"previous_item_id"`
	ContentIndex   int     `json:"content_index"`
	AudioEndMS     int     `json:"audio_end_ms"`
	ResponseID     string  `json:"response_id"`
}

// readEvent reads what a client has sent. The id is there also with an error, if it can be read.
func readEvent(raw []byte) (e clientEvent, err error) {
	if err := json.Unmarshal(raw, &e); err != nil {
		var id struct {
			EventID string `json:"event_id"`
		}
		_ = json.Unmarshal(raw, &id)
		e.EventID = clip(id.EventID)
		var base base64.CorruptInputError
		switch {
		case errors.As(err, &base):
			return e, &apiError{Code: "invalid_value", Param: "audio", Message: "audio is no base64."}
		case !json.Valid(raw):
			return e, &apiError{Code: "invalid_json", Message: "We could not parse the JSON of your event."}
		}
		return e, wrongType(err, "")
	}
	if len(e.EventID) > 512 {
		return clientEvent{}, &apiError{Code: "invalid_value", Param: "event_id", Message: "event_id is too long: it may have 512 characters."}
	}
	if e.Type == "" {
		return e, &apiError{Code: "missing_required_parameter", Param: "type", Message: "type is missing."}
	}
	return e, nil
}

// take does what a client's event asks for, but for sound, and returns what the engine is to do, in order. An error is
// for the client.
func (d *dialogue) take(e clientEvent) ([]bridge.Command, error) {
	switch e.Type {
	case "session.update":
		return d.update(e)
	case "input_audio_buffer.commit":
		return d.commit()
	case "input_audio_buffer.clear":
		d.ear.committed = false
		d.emit("input_audio_buffer.cleared", nil)
		return nil, nil
	case "conversation.item.create":
		return nil, d.create(e)
	case "conversation.item.retrieve":
		i := d.items.find(e.ItemID)
		if i == nil {
			return nil, noItem("item_retrieve_invalid_item_id", e.ItemID)
		}
		d.put("conversation.item.retrieved", object{"item": i}, true)
		return nil, nil
	case "conversation.item.truncate":
		return d.truncate(e)
	case "conversation.item.delete":
		return nil, d.delete(e)
	case "response.create":
		return d.respond(e)
	case "response.cancel":
		return d.cancel(e)
	case "output_audio_buffer.clear":
		if !d.calls {
			break
		}
		if d.active == nil {
			return []bridge.Command{bridge.Interrupt{}}, nil // the rest of a voice whose response is over
		}
		return d.cancel(e)
	}
	return nil, &apiError{Code: "invalid_value", Param: "type", Message: fmt.Sprintf("%q is no event that is served here.", clip(e.Type))}
}

// maxUpdates bounds the changes of the session that wait for the engine's answer.
const maxUpdates = 16

// update changes the session. The client learns of it at once, and of a refusal by the engine later.
func (d *dialogue) update(e clientEvent) ([]bridge.Command, error) {
	if len(e.Session) == 0 {
		return nil, &apiError{Code: "missing_required_parameter", Param: "session", Message: "session is missing."}
	}
	next, err := d.session.updated(e.Session)
	if err != nil {
		return nil, err
	}
	if len(d.updates) >= maxUpdates {
		return nil, &apiError{Code: "rate_limit_exceeded", Param: "session", Message: "Too many changes of the session wait for the model."}
	}
	old := d.session
	next.Model = old.Model // stays, as at OpenAI
	for _, kind := range next.unserved() {
		d.fail(
			e.EventID,
			&apiError{
				Code:    "unsupported_tool",
				Param:   "session.tools",
				Message: fmt.Sprintf("Tools of type %q are not served; functions are.", kind),
			},
		)
	}
	d.session = next
	d.emit("session.updated", object{"session": d.session})
	if old.turns() != next.turns() {
		d.ear.mode()
		d.ready = false
	}
	config := next.config()
	if bytes.Equal(config, d.config) { // another one may cost another connection
		return nil, nil
	}
	d.config = config
	d.updates = append(d.updates, change{e.EventID, old})
	return []bridge.Command{bridge.UpdateConfig{Config: config}}, nil
}

// noItem is the error for an id that is not known.
func noItem(code, id string) error {
	return &apiError{Code: code, Param: "item_id", Message: fmt.Sprintf("There is no item %q in the conversation.", clip(id))}
}

// Bounds of what waits for the model.
const (
	maxPending      = 64
	maxPendingBytes = 12 << 20
)

// create puts an item into the conversation. The model gets it with the next response, or before the person speaks.
func (d *dialogue) create(e clientEvent) error {
	i, err := readItem(e.Item)
	if err != nil {
		return err
	}
	at := len(d.items.items)
	switch previous := value(e.PreviousItemID); previous {
	case "":
	case "root":
		at = 0
	default:
		if at = d.items.index(previous) + 1; at == 0 {
			return &apiError{
				Code:    "item_create_invalid_previous_item_id",
				Param:   "previous_item_id",
				Message: fmt.Sprintf("There is no item %q in the conversation.", clip(previous)),
			}
		}
	}
	if i.ID == "" {
		i.ID = d.newID("item")
	} else if d.items.find(i.ID) != nil {
		return &apiError{
			Code:    "item_create_duplicate_item_id",
			Param:   "item.id",
			Message: fmt.Sprintf("There is an item %q already.", clip(i.ID)),
		}
	}
	bytes := i.size()
	for _, p := range d.pending {
		bytes += p.size()
	}
	if len(d.pending)+len(d.results) >= maxPending || bytes > maxPendingBytes {
		return &apiError{Code: "rate_limit_exceeded", Param: "item", Message: "Too many items wait for the model: ask for a response."}
	}
	if i.Type == typeOutput && d.open[i.CallID] {
		delete(d.open, i.CallID)
		d.results = append(d.results, i)
	} else {
		d.pending = append(d.pending, i)
	}
	d.addItem(i, at)
	d.emit("conversation.item.done", object{"item": i, "previous_item_id": d.before(i)})
	return nil
}

func (d *dialogue) addItem(i *item, at int) {
	d.emit("conversation.item.added", object{"previous_item_id": d.items.add(i, at), "item": i})
}

// before is the id of the item before one.
func (d *dialogue) before(i *item) *string {
	if n := d.items.index(i.ID); n > 0 {
		return &d.items.items[n-1].ID
	}
	return nil
}

// truncate cuts an answer to what was heard of it, as far as we keep it; the model's own memory keeps all.
func (d *dialogue) truncate(e clientEvent) ([]bridge.Command, error) {
	i := d.items.find(e.ItemID)
	if i == nil || i.Role != roleAssistant {
		return nil, noItem("item_truncate_invalid_item_id", e.ItemID)
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
	if i.turn == 0 || d.calls { // of a call the engine knows better
		return nil, nil
	}
	return []bridge.Command{bridge.Heard{Turn: i.turn, Played: heard}}, nil
}

// delete forgets an item, as far as we keep it.
func (d *dialogue) delete(e clientEvent) error {
	n := d.items.index(e.ItemID)
	if n < 0 {
		return noItem("item_delete_invalid_item_id", e.ItemID)
	}
	for at, p := range d.pending {
		if p.ID == e.ItemID {
			d.pending = append(d.pending[:at:at], d.pending[at+1:]...)
			break
		}
	}
	d.items.delete(n)
	d.emit("conversation.item.deleted", object{"item_id": e.ItemID})
	return nil
}

// begin is the prompt for a model that has nothing to answer, and no instruction.
const begin = "Begin the conversation."

// respond has the model answer: the results of its calls, what was said, what was typed, or nothing.
func (d *dialogue) respond(e clientEvent) ([]bridge.Command, error) {
	var asked struct {
		Conversation string            `json:"conversation"`
		Input        []json.RawMessage `json:"input"`
		Instructions string            `json:"instructions"`
		Metadata     json.RawMessage   `json:"metadata"`
	}
	if len(e.Response) > 0 {
		if err := json.Unmarshal(e.Response, &asked); err != nil {
			return nil, wrongType(err, "response")
		}
	}
	d.endIdle()
	switch {
	case asked.Conversation != "" && asked.Conversation != "auto":
		return nil, &apiError{
			Code:    "unsupported",
			Param:   "response.conversation",
			Message: "Responses outside of the conversation are not served.",
		}
	case len(asked.Input) > 0:
		return nil, &apiError{
			Code:    "unsupported",
			Param:   "response.input",
			Message: "A response with an input of its own is not served: create items.",
		}
	case len(asked.Metadata) > 64<<10:
		return nil, &apiError{Code: "invalid_value", Param: "response.metadata", Message: "response.metadata is too long."}
	case d.active != nil:
		return nil, &apiError{
			Code: "conversation_already_has_active_response",
			Message: fmt.Sprintf(
				"Conversation already has an active response in progress: %s. Wait until the response is finished before creating a new one.",
				d.active.id,
			),
		}
	}
	return d.afterUpdates(d.ask(asked.Instructions, asked.Metadata)), nil
}

// afterUpdates returns commands if the engine has the session as it is now: what a client asks for after a change of
// the session comes after it. Else they wait, but for the results of calls, for which another connection would wait.
func (d *dialogue) afterUpdates(commands []bridge.Command) []bridge.Command {
	if len(d.updates) == 0 || len(commands) == 0 || answers(commands) {
		return commands
	}
	d.asked = commands
	return nil
}

// ask begins a response, and returns the command that asks the model for it.
func (d *dialogue) ask(instructions string, metadata json.RawMessage) []bridge.Command {
	said, due := d.ear.committed, d.ear.due
	d.ear.committed, d.ear.due = false, false
	d.start(true, metadata)
	commands := d.takeResults()
	last := len(d.pending)
	for last > 0 && d.pending[last-1].Role == roleUser {
		last--
	}
	typed := d.pending[last:]
	if said && d.ear.open {
		typed = nil
	}
	d.pending = d.pending[:len(d.pending)-len(typed)]
	commands = append(commands, d.seeds()...)
	switch {
	case said && d.ear.open:
		d.ear.open = false
		return append(commands, bridge.ActivityEnd)
	case len(typed) > 0:
		var parts []object
		if instructions != "" {
			parts = append(parts, object{"text": instructions})
		}
		for _, i := range typed {
			parts = append(parts, i.parts()...)
		}
		return append(commands, bridge.Message{Parts: encode(parts), TurnComplete: true})
	case answers(commands), due && instructions == "":
		return commands
	}
	return append(commands, bridge.Respond{Instruction: cmp.Or(instructions, begin)})
}

// answers reports whether the model gets the results of calls, which it answers.
func answers(commands []bridge.Command) bool {
	if len(commands) == 0 {
		return false
	}
	_, ok := commands[0].(bridge.ToolResponse)
	return ok
}

// takeLate are what has waited long enough.
func (d *dialogue) takeLate() []bridge.Command {
	commands := append(d.takeResults(), d.asked...)
	d.asked = nil
	return commands
}

// takeResults are the results that the model does not have yet.
func (d *dialogue) takeResults() (commands []bridge.Command) {
	for _, i := range d.results {
		result := json.RawMessage(value(i.Output))
		var fields map[string]json.RawMessage
		if json.Unmarshal(result, &fields) != nil || fields == nil {
			result = encode(object{"result": *i.Output})
		}
		commands = append(commands, bridge.ToolResponse{ID: i.CallID, Response: result})
	}
	d.results, d.called = nil, false
	return commands
}

// seeds give the model the items that it is not to answer.
func (d *dialogue) seeds() []bridge.Command {
	var turns []bridge.SeedTurn
	for _, i := range d.pending {
		if parts := i.parts(); len(parts) > 0 {
			turns = append(turns, bridge.SeedTurn{Model: i.Role == roleAssistant || i.Type == typeCall, Parts: encode(parts)})
		}
	}
	d.pending = nil
	if len(turns) == 0 {
		return nil
	}
	return []bridge.Command{bridge.Seed{Turns: turns}}
}

// cancel ends the active response.
func (d *dialogue) cancel(e clientEvent) ([]bridge.Command, error) {
	if d.active == nil || e.ResponseID != "" && e.ResponseID != d.active.id {
		return nil, &apiError{Code: "response_cancel_not_active", Message: "Cancellation failed: no active response found."}
	}
	if d.asked != nil { // the model was not asked yet
		d.asked = nil
		d.end(statusCancelled, "client_cancelled", nil)
		return nil, nil
	}
	d.unwanted = d.active.speech == nil
	d.clearVoice()
	d.end(statusCancelled, "client_cancelled", nil)
	d.cutting = true
	return []bridge.Command{bridge.Interrupt{}}, nil
}

// done is called when the engine has taken a command, or has not.
func (d *dialogue) done(event string, c bridge.Command, err error) {
	switch c := c.(type) {
	case bridge.Interrupt:
		d.cutting = false
	case bridge.UpdateConfig: // answered by an event
	case bridge.Seed:
		// A model that takes no history goes on without it: an error would end some clients.
	case bridge.Activity:
		if err != nil && c == bridge.ActivityStart {
			d.ear.open = false
		}
	case bridge.ToolResponse: // a call that was cancelled wants none
	default:
		if err != nil {
			d.end(statusFailed, "", err)
			d.fail(event, err)
		}
	}
}

// sound counts what was heard, and finds speech where the model does not. Its commands come before the sound.
func (d *dialogue) sound(pcm []int16, rate int) (commands []bridge.Command) {
	d.ear.heard += media.Duration(len(pcm), rate)
	turns := d.session.turns()
	if turns == modelsEar || !d.ready {
		return nil
	}
	if turns == ownEar {
		d.listen(pcm, rate)
	}
	if d.ear.open || turns == ownEar && d.ear.item == "" && !d.ear.committed {
		return nil
	}
	d.ear.open = true
	if turns == pushToTalk {
		d.ear.since = d.ear.heard - media.Duration(len(pcm), rate)
	}
	return append(d.seeds(), bridge.ActivityStart)
}

// listen finds speech in sound.
func (d *dialogue) listen(pcm []int16, rate int) {
	e := &d.ear
	e.vad.Onset, e.vad.Hangover = onset, max(hangover, time.Duration(d.session.Audio.Input.TurnDetection.silence())*time.Millisecond)
	e.rest = append(e.rest, pcm...)
	rest, heard := e.rest, e.heard
	for frame := rate / 50; len(rest) >= frame; rest = rest[frame:] {
		e.heard = heard - media.Duration(len(rest)-frame, rate)
		switch speaks := e.vad.Hear(rest[:frame], rate); {
		case speaks && e.item == "":
			d.speechStarted()
		case !speaks && e.item != "":
			d.speechStopped()
		}
	}
	e.rest, e.heard = append(e.rest[:0], rest...), heard
}

// commit ends what the client has said by hand.
func (d *dialogue) commit() ([]bridge.Command, error) {
	switch heard := d.ear.heard - d.ear.since; {
	case d.session.turns() == pushToTalk && d.ear.open && heard >= leastCommit:
		d.commitSpeech(d.newID("item"))
		return nil, nil
	case d.session.turns() == ownEar && d.ear.item != "":
		d.ear.vad.End()
		d.speechStopped()
		return nil, nil
	case d.session.turns() == modelsEar && d.ear.item != "":
		return []bridge.Command{bridge.AudioStreamEnd}, nil // UserSpeaking reports it
	}
	return nil, &apiError{
		Code:    "input_audio_buffer_commit_empty",
		Message: "Error committing input audio buffer: buffer too small. Expected at least 100ms of audio.",
	}
}

// leastCommit is the least that may be committed.
const leastCommit = 100 * time.Millisecond

// longDelta bounds the sound in a message, so that it has less than 256 KiB.
const longDelta = bridge.VoiceRate

// voice reports a piece of the voice, encoded in the format of the session, and how long it lasts.
func (d *dialogue) voice(encoded []byte, lasts time.Duration) {
	if d.cutting || d.calls || d.called {
		return
	}
	i := d.speech(0)
	i.voice += lasts
	for len(encoded) > 0 {
		n := min(len(encoded), longDelta)
		d.emit("response.output_audio.delta", d.where(i, object{"delta": base64.StdEncoding.EncodeToString(encoded[:n])}))
		encoded = encoded[n:]
	}
}
