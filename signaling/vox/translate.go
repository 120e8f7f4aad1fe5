package vox

import (
	"encoding/json"
	"html"
	"slices"
	"strings"

	"voxgate/bridge"
	"voxgate/tools"
	"voxgate/tools/canvas"
	desk "voxgate/tools/vox"
)

// translator converts the events of a conversation to messages for one client, independent of both. The zero value is ready for a new
// conversation.
type translator struct {
	last   turnOf // of the newest phrase
	user   turnOf // the user's newest turn and the part of it that was sent
	vox    turnOf
	rest   phrases // the heard text of vox's turn, not sent yet
	coming string  // the newest text of vox's turn, whose voice is playing

	writes bool // the model is a text model, so there is no playback to wait for
	begun  bool // ready was sent
	back   bool // another client had this conversation before, and this one has received nothing yet
	state  stateFrame
	asked  map[string]bool // open questions
}

// turnOf tracks a turn of one role and the part of it that was sent to the client.
type turnOf struct {
	role   string
	number int
	sent   string
}

// translate returns the messages for an event. Other code sends ready and interrupted.
func (t *translator) translate(body bridge.EventBody) []serverMessage {
	switch b := body.(type) {
	case bridge.UserText:
		return t.heard(b)
	case bridge.AssistantText:
		return t.said(b)
	case bridge.ToolStatus:
		return statusOf(b)
	case bridge.ToolCall:
		return t.ask(b.Calls)
	case bridge.ToolCallCancellation:
		return t.withdraw(b.IDs)
	case bridge.StateChange:
		return t.stands(b)
	case bridge.TurnComplete:
		if t.writes { // with a voice, the end of playback is reported instead
			return []serverMessage{stateFrame{State: stateLive}}
		}
	case bridge.ErrorEvent:
		if b.Err.Code == bridge.CodeToolExecution || b.Err.Code == bridge.CodeToolNotFound {
			// The model already knows, and the user sees the tool call, if any.
			return []serverMessage{logFrame{Level: "warn", Message: b.Err.Message}}
		}
		return []serverMessage{errorOf(b.Err)}
	case bridge.Log:
		return []serverMessage{logFrame{b.Level, b.Message, b.Details["recording"]}}
	}
	return nil
}

// heard handles a transcript of the user's speech. The last report of a turn is complete.
func (t *translator) heard(b bridge.UserText) []serverMessage {
	if t.user.number != b.Turn {
		t.user = turnOf{number: b.Turn}
	}
	more, ok := b.Text, true
	if b.Final {
		more, ok = strings.CutPrefix(strings.TrimLeft(b.Text, " "), strings.TrimLeft(t.user.sent, " "))
	}
	if !ok || strings.TrimSpace(more) == "" {
		return nil
	}
	t.user.sent += more
	return t.phrases(roleUser, b.Turn, more)
}

// said handles a transcript of vox's speech. A piece arrives when its voice begins to play; it counts as heard when the next one arrives.
func (t *translator) said(b bridge.AssistantText) []serverMessage {
	if t.vox.number != b.Turn {
		t.vox, t.rest, t.coming = turnOf{number: b.Turn}, phrases{}, ""
	}
	var whole []string
	if b.Final {
		more, ok := strings.CutPrefix(b.Text, t.vox.sent)
		if !ok { // less was heard than was sent
			return nil
		}
		t.rest, t.coming = phrases{}, ""
		whole = append(t.rest.add(more), t.rest.end()...)
	} else if t.writes {
		whole = t.rest.add(b.Text)
	} else {
		whole = t.rest.add(t.coming)
		t.coming = b.Text
	}
	t.vox.sent += strings.Join(whole, "")
	return t.phrases(roleVOX, b.Turn, whole...)
}

// phrases returns the messages for the next phrases of a turn.
func (t *translator) phrases(role string, turn int, texts ...string) (list []serverMessage) {
	for _, text := range texts {
		m := transcript{Role: role, Text: text}
		if t.last.role != role || t.last.number != turn {
			m.NewTurn = t.last.role == role || t.back
			m.Text = strings.TrimLeft(text, " \n")
			t.last, t.back = turnOf{role: role, number: turn}, false
		}
		list = append(list, m)
	}
	return list
}

// statusOf reports the state of a tool. Arguments and results of the operator's own tools are not shown to the client.
func statusOf(b bridge.ToolStatus) []serverMessage {
	args, result := argsOf(b.Args), b.Result
	if !slices.Contains(desk.Names, b.Name) {
		args = nothing
		if b.Status == bridge.StatusDone {
			result = nothing
		}
	}
	switch b.Status {
	case bridge.StatusRunning:
		return []serverMessage{toolCall{b.ID, b.Name, b.Title, args}}
	case bridge.StatusCancelled:
		result = cancelled
	}
	return []serverMessage{toolResult{b.ID, b.Name, result}}
}

var nothing = json.RawMessage(`{}`)

// argsOf returns the arguments of a call. The model may omit them.
func argsOf(args json.RawMessage) json.RawMessage {
	if len(args) == 0 {
		return nothing
	}
	return args
}

// cancelled is the result of a cancelled call.
var cancelled = json.RawMessage(`{"error":"the call was cancelled"}`)

// ask returns the messages with the questions of tools to the user.
func (t *translator) ask(calls []tools.Call) (list []serverMessage) {
	for _, c := range calls {
		if text, ok := yesOrNo(c); ok {
			if t.asked == nil {
				t.asked = map[string]bool{}
			}
			t.asked[c.ID] = true
			list = append(list, question{ID: c.ID, Text: text})
		}
	}
	return list
}

func (t *translator) withdraw(ids []string) (list []serverMessage) {
	for _, id := range ids {
		if t.asked[id] {
			delete(t.asked, id)
			list = append(list, question{ID: id, Withdrawn: true})
		}
	}
	return list
}

func isCanvas(c tools.Call) bool { return c.Name == canvas.Show }

// yesOrNo returns the text of a canvas that only asks for confirmation, as [tools.Confirm] builds it.
func yesOrNo(c tools.Call) (text string, ok bool) {
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

// Answers to a question, in the format of a canvas.
var (
	agreed    = json.RawMessage(`{"action":"submit"}`)
	dismissed = json.RawMessage(`{"dismissed":true}`)
)

func answerTo(yes bool) json.RawMessage {
	if yes {
		return agreed
	}
	return dismissed
}

// stands reports the state of the conversation, if it has changed for the client.
func (t *translator) stands(b bridge.StateChange) []serverMessage {
	s := stateFrame{State: stateLive, Message: b.Message}
	switch b.State {
	case bridge.StateResuming, bridge.StateReseeding:
		s.State = stateReconnecting
	case bridge.StateDialing, bridge.StateSetup:
		s.State = stateReconnecting
		if !t.begun {
			s.State = stateWaiting
		}
		if !t.begun && b.Message == "" {
			return nil // ready follows
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
