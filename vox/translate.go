package vox

import (
	"encoding/json"
	"html"
	"slices"
	"strings"

	"voxgate/bridge"
	"voxgate/tools"
	"voxgate/tools/canvas"
	desk "voxgate/vox/assistant"
)

// translator converts the events of a conversation to messages for one client. The zero value is ready for a new
// conversation.
type translator struct {
	lastPhrase  turnProgress // role and turn of the newest phrase that was sent
	userTurn    turnProgress // the user's newest turn and the part of it that was sent
	voxTurn     turnProgress
	splitter    phraseSplitter // text of vox's turn that was heard, but not sent yet
	playingText string         // the newest piece of vox's turn, whose voice is playing

	isTextModel   bool // the model is a text model: there is no playback
	readySent     bool // the message "ready" was sent
	isResumed     bool // the conversation was resumed, and this client has received nothing of it yet
	state         stateFrame
	openQuestions map[string]bool // IDs of calls whose question is open
}

// turnProgress tracks a turn of one role and the part of it that was sent to the client.
type turnProgress struct {
	role   string
	number int
	sent   string
}

// translateEvent returns the messages for an event. It does not create the messages "ready" and "interrupted", which
// the caller's Notify sends itself.
func (t *translator) translateEvent(body bridge.EventBody) []serverMessage {
	switch b := body.(type) {
	case bridge.UserText:
		return t.translateUserText(b)
	case bridge.AssistantText:
		return t.translateAssistantText(b)
	case bridge.ToolStatus:
		return translateToolStatus(b)
	case bridge.ToolCall:
		return t.askQuestions(b.Calls)
	case bridge.ToolCallCancellation:
		return t.withdrawQuestions(b.IDs)
	case bridge.StateChange:
		return t.translateState(b)
	case bridge.TurnComplete:
		if t.isTextModel { // for a model with a voice, the end of playback is reported instead
			return []serverMessage{stateFrame{State: stateLive}}
		}
	case bridge.ErrorEvent:
		if b.Err.Code == bridge.CodeToolExecution || b.Err.Code == bridge.CodeToolNotFound {
			// This becomes only a log message, because the model has received the error. If the tool has run, the client
			// has received the status of the call.
			return []serverMessage{logFrame{Level: "warn", Message: b.Err.Message}}
		}
		return []serverMessage{newErrorFrame(b.Err)}
	case bridge.Latency:
		return []serverMessage{latency(b.Report())}
	case bridge.Usage:
		return []serverMessage{usage{b.Total.Prompt, b.Total.Response, b.Total.Cached, b.Dollars}}
	case bridge.Log:
		return []serverMessage{logFrame{b.Level, b.Message, b.Details["recording"]}}
	}
	return nil
}

// translateUserText handles a transcript of the user's speech. The last event of a turn has the complete text.
func (t *translator) translateUserText(b bridge.UserText) []serverMessage {
	if t.userTurn.number != b.Turn {
		t.userTurn = turnProgress{number: b.Turn}
	}
	more, ok := b.Text, true
	if b.Final {
		more, ok = strings.CutPrefix(strings.TrimLeft(b.Text, " "), strings.TrimLeft(t.userTurn.sent, " "))
	}
	if !ok || strings.TrimSpace(more) == "" {
		return nil
	}
	t.userTurn.sent += more
	return t.transcriptMessages(roleUser, b.Turn, more)
}

// translateAssistantText handles a transcript of vox's speech. A piece of text arrives when the voice with this text
// begins to play. It is assumed that the user has heard the piece when the next piece arrives.
func (t *translator) translateAssistantText(b bridge.AssistantText) []serverMessage {
	if t.voxTurn.number != b.Turn {
		t.voxTurn, t.splitter, t.playingText = turnProgress{number: b.Turn}, phraseSplitter{}, ""
	}
	var whole []string
	if b.Final {
		more, ok := strings.CutPrefix(b.Text, t.voxTurn.sent)
		if !ok { // the user has heard less than was sent
			return nil
		}
		t.splitter, t.playingText = phraseSplitter{}, ""
		whole = append(t.splitter.addText(more), t.splitter.takeRest()...)
	} else if t.isTextModel {
		whole = t.splitter.addText(b.Text)
	} else {
		whole = t.splitter.addText(t.playingText)
		t.playingText = b.Text
	}
	t.voxTurn.sent += strings.Join(whole, "")
	return t.transcriptMessages(roleVOX, b.Turn, whole...)
}

// transcriptMessages returns the messages for the next phrases of a turn.
func (t *translator) transcriptMessages(role string, turn int, texts ...string) (list []serverMessage) {
	for _, text := range texts {
		m := transcript{Role: role, Text: text}
		if t.lastPhrase.role != role || t.lastPhrase.number != turn {
			m.NewTurn = t.lastPhrase.role == role || t.isResumed
			m.Text = strings.TrimLeft(text, " \n")
			t.lastPhrase, t.isResumed = turnProgress{role: role, number: turn}, false
		}
		list = append(list, m)
	}
	return list
}

// translateToolStatus reports the state of a tool to the client. The client does not get the arguments and results of
// the operator's own tools.
func translateToolStatus(b bridge.ToolStatus) []serverMessage {
	args, result := argsOrEmpty(b.Args), b.Result
	if !slices.Contains(desk.Names, b.Name) {
		args = emptyObject
		if b.Status == bridge.StatusDone {
			result = emptyObject
		}
	}
	switch b.Status {
	case bridge.StatusRunning:
		return []serverMessage{toolCall{b.ID, b.Name, b.Title, args}}
	case bridge.StatusCancelled:
		result = cancelledResult
	}
	return []serverMessage{toolResult{b.ID, b.Name, result}}
}

var emptyObject = json.RawMessage(`{}`)

// argsOrEmpty returns the arguments of a call, or an empty object if the model has omitted them.
func argsOrEmpty(args json.RawMessage) json.RawMessage {
	if len(args) == 0 {
		return emptyObject
	}
	return args
}

// cancelledResult is the result of a cancelled call.
var cancelledResult = json.RawMessage(`{"error":"the call was cancelled"}`)

// askQuestions returns messages that ask the user the questions of tools.
func (t *translator) askQuestions(calls []tools.Call) (list []serverMessage) {
	for _, c := range calls {
		if text, ok := confirmationText(c); ok {
			if t.openQuestions == nil {
				t.openQuestions = map[string]bool{}
			}
			t.openQuestions[c.ID] = true
			list = append(list, question{ID: c.ID, Text: text})
		}
	}
	return list
}

func (t *translator) withdrawQuestions(ids []string) (list []serverMessage) {
	for _, id := range ids {
		if t.openQuestions[id] {
			delete(t.openQuestions, id)
			list = append(list, question{ID: id, Withdrawn: true})
		}
	}
	return list
}

func isCanvas(c tools.Call) bool { return c.Name == canvas.Show }

// confirmationText returns the text of a canvas that only asks for confirmation. [tools.Confirm] builds such canvases.
// ok is false for other canvases.
func confirmationText(c tools.Call) (text string, ok bool) {
	var args struct{ Schema string }
	if !isCanvas(c) || json.Unmarshal(c.Args, &args) != nil {
		return "", false
	}
	var all struct {
		Elements []struct{ Type, Value, Action string }
	}
	if json.Unmarshal([]byte(args.Schema), &all) != nil {
		return "", false
	}
	var texts []string
	var yes, no bool
	for _, e := range all.Elements {
		switch {
		case e.Type == "text":
			texts = append(texts, html.UnescapeString(e.Value))
		case e.Type == "button" && e.Action == "submit":
			yes = true
		case e.Type == "button" && e.Action == "dismiss":
			no = true
		default:
			return "", false
		}
	}
	return strings.Join(texts, "\n"), yes && no && texts != nil
}

// The answers Yes and No to a question of VOX, in the form in which a client with canvases sends them.
var (
	confirmAnswer = json.RawMessage(`{"action":"submit"}`)
	dismissAnswer = json.RawMessage(`{"dismissed":true}`)
)

func answerJSON(yes bool) json.RawMessage {
	if yes {
		return confirmAnswer
	}
	return dismissAnswer
}

// translateState reports the state of the conversation to the client. It reports nothing if the client's view of the
// state has not changed.
func (t *translator) translateState(b bridge.StateChange) []serverMessage {
	s := stateFrame{State: stateLive, Message: b.Message}
	switch b.State {
	case bridge.StateResuming, bridge.StateReseeding:
		s.State = stateReconnecting
	case bridge.StateDialing, bridge.StateSetup:
		s.State = stateReconnecting
		if !t.readySent {
			s.State = stateWaiting
		}
		if !t.readySent && b.Message == "" {
			return nil // the message "ready" follows
		}
	default:
		if b.Message != "" {
			s.State = stateWaiting
		}
	}
	if s == t.state || t.state.State == "" && s.State == stateLive {
		return nil
	}
	t.state = s
	return []serverMessage{s}
}
