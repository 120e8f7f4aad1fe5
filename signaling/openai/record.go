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

// record is the conversation from the client's point of view: its session, its items, and the queued events.
type record struct {
	newID func(prefix string) string
	calls bool // a WebRTC call: the voice has its own track, and events report its playback

	session session
	items   []*item // in order
	bytes   int     // of text in items, counted when each was added
	out     []message
}

// message is a message to the client.
type message struct {
	kind  string // the type of the event
	data  []byte
	alone bool // only for the connection that caused it
}

// drain returns the queued messages, and empties the queue.
func (r *record) drain() []message {
	out := r.out
	r.out = nil
	return out
}

// emit sends an event. fields may be nil.
func (r *record) emit(kind string, fields object) { r.put(kind, fields, false) }

func (r *record) put(kind string, fields object, alone bool) {
	rest := []byte("}")
	if len(fields) > 0 {
		rest = tools.Encode(fields)
		rest[0] = ','
	}
	data := fmt.Appendf(nil, `{"type":%q,"event_id":%q%s`, kind, r.newID("event"), rest)
	r.out = append(r.out, message{kind, data, alone})
}

// fail reports an error; event is the id of the client's event that caused it.
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

// add inserts an item at index at, and reports it; len(items) appends it.
func (r *record) add(i *item, at int) {
	r.items = slices.Insert(r.items, at, i)
	i.kept, _ = i.size() // an answer has no text yet; it grows by one turn of the model
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

// find returns the item with an id, or nil.
func (r *record) find(id string) *item {
	if n := r.index(id); n >= 0 {
		return r.items[n]
	}
	return nil
}

// before returns the id of the item before i. It is nil if i is the first item or was dropped.
func (r *record) before(i *item) *string {
	if n := r.index(i.ID); n > 0 {
		return &r.items[n-1].ID
	}
	return nil
}

// last returns the id of the newest item, or nil.
func (r *record) last() *string {
	if n := len(r.items); n > 0 {
		return &r.items[n-1].ID
	}
	return nil
}

// clientEvent is an event of a client. Fields that only one type of event has stay raw.
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

// readEvent reads a client event. With an error, the event still has its id if that can be read.
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
