package openai

import (
	"cmp"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"voxgate/bridge"
	"voxgate/tools"
)

// record is the conversation as the client has it: its session, its items, and the events by which it hears of them.
type record struct {
	newID func(prefix string) string
	calls bool // it is a call: the voice has a track of its own, and events of it say when it is heard
	beta  bool // the client speaks the beta

	session session
	items   []*item // in order
	bytes   int     // of text that they had when they were added
	out     []message
}

// message is a message to the client.
type message struct {
	kind  string // as of the general availability, for clients of the beta, too
	data  []byte
	alone bool // to the connection that has asked
}

// drain returns the messages to be sent.
func (r *record) drain() []message {
	out := r.out
	r.out = nil
	return out
}

// emit sends an event. fields may be nil.
func (r *record) emit(kind string, fields object) { r.put(kind, fields, false) }

func (r *record) put(kind string, fields object, alone bool) {
	own, rest := kind, []byte("}")
	if len(fields) > 0 {
		rest = tools.Encode(fields)
		rest[0] = ','
	}
	if r.beta {
		if kind, rest = toBeta(kind, rest); kind == "" {
			return
		}
	}
	data := fmt.Appendf(nil, `{"type":%q,"event_id":%q%s`, kind, r.newID("event"), rest)
	r.out = append(r.out, message{own, data, alone})
}

// fail reports an error; event is the id of the client's that it answers.
func (r *record) fail(event string, err error) {
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
	r.put("error", object{"error": e}, true)
}

// add puts an item at its place, the end is len(items), and reports it.
func (r *record) add(i *item, at int) {
	r.items = slices.Insert(r.items, at, i)
	i.kept, _ = i.size() // an answer has none yet, and grows to what a model says in a turn
	r.bytes += i.kept
	for len(r.items) > maxItems || r.bytes > maxKept && len(r.items) > 1 {
		r.remove(0)
	}
	r.emit("conversation.item.added", object{"previous_item_id": r.before(i), "item": i})
}

func (r *record) remove(n int) {
	r.bytes -= r.items[n].kept
	r.items = slices.Delete(r.items, n, n+1)
}

// itemDone reports that an item is complete.
func (r *record) itemDone(i *item) {
	r.emit("conversation.item.done", object{"item": i, "previous_item_id": r.before(i)})
}

func (r *record) index(id string) int {
	return slices.IndexFunc(r.items, func(i *item) bool { return i.ID == id })
}

// find is the item of an id; nil: there is none.
func (r *record) find(id string) *item {
	if n := r.index(id); n >= 0 {
		return r.items[n]
	}
	return nil
}

// before is the id of the item before one; nil: it is the first, or forgotten.
func (r *record) before(i *item) *string {
	if n := r.index(i.ID); n > 0 {
		return &r.items[n-1].ID
	}
	return nil
}

// last is the id of the newest item; nil: there is none.
func (r *record) last() *string {
	if n := len(r.items); n > 0 {
		return &r.items[n-1].ID
	}
	return nil
}

// clientEvent is what a client sends. What is of one type alone stands raw.
type clientEvent struct {
	Type     string          `json:"type"`
	EventID  string          `json:"event_id"`
	Session  json.RawMessage `json:"session"`
	Item     json.RawMessage `json:"item"`
	Response json.RawMessage `json:"response"`
	Audio    encodedSound    `json:"audio"`

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
			return e, refusal("invalid_value", "audio", "audio is no base64.")
		case !json.Valid(raw):
			return e, refusal("invalid_json", "", "We could not parse the JSON of your event.")
		}
		return e, wrongType(err, "")
	}
	if len(e.EventID) > 512 {
		return clientEvent{}, refusal("invalid_value", "event_id", "event_id is too long: it may have 512 characters.")
	}
	if e.Type == "" {
		return e, missing("type")
	}
	return e, nil
}
