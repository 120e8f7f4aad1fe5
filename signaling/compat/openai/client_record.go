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

// clientRecord is the conversation from the client's point of view: its session, its items, and the queued events.
type clientRecord struct {
	newID  func(prefix string) string
	isCall bool // WebRTC: the voice uses an audio track, and output_audio_buffer events report its playback

	session   session
	items     []*item // oldest first
	itemBytes int     // bytes of text in items, counted when each item was added
	out       []message
}

// message is a message to the client.
type message struct {
	eventType  string // the type of the event
	data       []byte
	onlySender bool // sent only to the connection whose event caused the message
}

// drainEvents returns the queued messages, and empties the queue.
func (r *clientRecord) drainEvents() []message {
	out := r.out
	r.out = nil
	return out
}

// emitEvent sends an event. fields may be nil.
func (r *clientRecord) emitEvent(kind string, fields object) { r.queueEvent(kind, fields, false) }

func (r *clientRecord) queueEvent(kind string, fields object, onlySender bool) {
	encoded := []byte("}")
	if len(fields) > 0 {
		encoded = tools.EncodeOrEmpty(fields)
		encoded[0] = ','
	}
	data := fmt.Appendf(nil, `{"type":%q,"event_id":%q%s`, kind, r.newID("event"), encoded)
	r.out = append(r.out, message{kind, data, onlySender})
}

// emitError reports an error; eventID is the id of the client's event that caused it.
func (r *clientRecord) emitError(eventID string, err error) {
	e := apiError{Type: "server_error", Code: "server_error", Message: "Something went wrong in the gateway."}
	var realtimeErr *apiError
	var engineErr *bridge.Error
	switch {
	case errors.As(err, &realtimeErr):
		e = *realtimeErr
		e.Type = cmp.Or(e.Type, "invalid_request_error")
	case errors.As(err, &engineErr):
		e = apiError{Type: "invalid_request_error", Code: string(engineErr.Code), Message: engineErr.Message}
	}
	e.EventID = eventID
	r.queueEvent("error", object{"error": e}, true)
}

// addItem inserts an item at an index, and reports it to the client. At the index len(items), the item is appended. If
// the record is full, addItem drops the oldest items.
func (r *clientRecord) addItem(i *item, index int) {
	r.items = slices.Insert(r.items, index, i)
	i.countedBytes, _ = i.textAndPictureSize() // a spoken answer has no text yet; the text of its turn comes later, and is not counted
	r.itemBytes += i.countedBytes
	for len(r.items) > maxItems || r.itemBytes > maxRecordBytes && len(r.items) > 1 {
		r.removeItem(0)
	}
	r.emitEvent("conversation.item.added", object{"previous_item_id": r.previousItemID(i), "item": i})
}

func (r *clientRecord) removeItem(index int) {
	r.itemBytes -= r.items[index].countedBytes
	r.items = slices.Delete(r.items, index, index+1)
}

// emitItemDone reports that an item is complete.
func (r *clientRecord) emitItemDone(i *item) {
	r.emitEvent("conversation.item.done", object{"item": i, "previous_item_id": r.previousItemID(i)})
}

func (r *clientRecord) itemIndex(id string) int {
	return slices.IndexFunc(r.items, func(i *item) bool { return i.ID == id })
}

// findItem returns the item with an id, or nil.
func (r *clientRecord) findItem(id string) *item {
	if n := r.itemIndex(id); n >= 0 {
		return r.items[n]
	}
	return nil
}

// previousItemID returns the id of the item before i. It is nil if i is the first item or was dropped.
func (r *clientRecord) previousItemID(i *item) *string {
	if n := r.itemIndex(i.ID); n > 0 {
		return &r.items[n-1].ID
	}
	return nil
}

// lastItemID returns the id of the newest item, or nil.
func (r *clientRecord) lastItemID() *string {
	if n := len(r.items); n > 0 {
		return &r.items[n-1].ID
	}
	return nil
}

// clientEvent is an event of a client. Fields that occur in only one type of event are still unparsed JSON.
type clientEvent struct {
	Type     string          `json:"type"`
	EventID  string          `json:"event_id"`
	Session  json.RawMessage `json:"session"`
	Item     json.RawMessage `json:"item"`
	Response json.RawMessage `json:"response"`
	Audio    base64Audio     `json:"audio"`

	ItemID         string  `json:"item_id"`
	PreviousItemID *string `json:"previous_item_id"`
	ContentIndex   int     `json:"content_index"`
	AudioEndMS     int     `json:"audio_end_ms"`
	ResponseID     string  `json:"response_id"`
}

// parseEvent parses a client event. If it returns an error, e has the ID of the event nevertheless, unless the ID is
// unreadable.
func parseEvent(raw []byte) (e clientEvent, err error) {
	if err := json.Unmarshal(raw, &e); err != nil {
		var id struct {
			EventID string `json:"event_id"`
		}
		_ = json.Unmarshal(raw, &id)
		e.EventID = clip(id.EventID)
		var base base64.CorruptInputError
		switch {
		case errors.As(err, &base):
			return e, newError("invalid_value", "audio", "audio is not base64.")
		case !json.Valid(raw):
			return e, newError("invalid_json", "", "We could not parse the JSON of your event.")
		}
		return e, wrongType(err, "")
	}
	if len(e.EventID) > 512 {
		return clientEvent{}, newError("invalid_value", "event_id", "event_id is too long: at most 512 characters are allowed.")
	}
	if e.Type == "" {
		return e, missingField("type")
	}
	return e, nil
}
