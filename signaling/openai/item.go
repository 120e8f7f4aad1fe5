package openai

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"
)

const (
	// maxItems is how many items of a conversation are kept; the oldest are forgotten. maxKept bounds their text, in
	// bytes.
	maxItems = 256
	maxKept  = 4 << 20
	// maxItem bounds an item but for its pictures, in bytes.
	maxItem = 1 << 20
	// maxPicture bounds a picture, in bytes of base64: 8 MiB, as at every door.
	maxPicture = 11 << 20
)

// The types of items, and the roles of messages.
const (
	typeMessage = "message"
	typeCall    = "function_call"
	typeOutput  = "function_call_output"

	roleUser      = "user"
	roleAssistant = "assistant"
	roleSystem    = "system"
)

const (
	inProgress = "in_progress"
	completed  = "completed"
	incomplete = "incomplete"
)

// item is a part of the conversation, as OpenAI has it.
type item struct {
	ID      string `json:"id"`
	Object  string `json:"object"`
	Type    string `json:"type"`
	Status  string `json:"status"`
	Role    string `json:"role,omitempty"`
	Content []part `json:"content,omitzero"`

	CallID    string  `json:"call_id,omitempty"`
	Name      string  `json:"name,omitempty"`
	Arguments *string `json:"arguments,omitempty"`
	Output    *string `json:"output,omitempty"`

	// Of answers that were spoken: the turn, how much of its voice was sent, and where in it each piece of text stands.
	turn   int
	voice  time.Duration
	pieces []piece
}

type piece struct {
	text string
	at   time.Duration
}

// part is a part of a message. Exactly one of its fields belongs to its type.
type part struct {
	Type       string
	Text       string
	Transcript *string
	ImageURL   string
}

const (
	inputText   = "input_text"
	inputAudio  = "input_audio"
	inputImage  = "input_image"
	outputText  = "output_text"
	outputAudio = "output_audio"
)

// MarshalJSON implements json.Marshaler. A transcript that is not known yet is null: clients want the field to be
// there.
func (p part) MarshalJSON() ([]byte, error) {
	switch p.Type {
	case inputText, outputText:
		return encode(struct {
			Type string `json:"type"`
			Text string `json:"text"`
		}{p.Type, p.Text}), nil
	case inputImage: // without the picture, which the client has
		return encode(map[string]string{"type": p.Type}), nil
	}
	return encode(struct {
		Type       string  `json:"type"`
		Transcript *string `json:"transcript"`
	}{p.Type, p.Transcript}), nil
}

// said is the text of a message.
func (i *item) said() string {
	var texts []string
	for _, p := range i.Content {
		switch {
		case p.Transcript != nil:
			texts = append(texts, *p.Transcript)
		case p.Text != "":
			texts = append(texts, p.Text)
		}
	}
	return strings.Join(texts, "\n")
}

// parts are the item as the model gets it: an array of the engine's parts.
func (i *item) parts() (list []object) {
	switch i.Type {
	case typeCall:
		return []object{{"text": fmt.Sprintf("[called %s with %s]", i.Name, value(i.Arguments))}}
	case typeOutput:
		return []object{{"text": fmt.Sprintf("[result of %s: %s]", i.CallID, value(i.Output))}}
	}
	for _, p := range i.Content {
		switch {
		case p.Type == inputImage:
			kind, data, _ := picture(p.ImageURL)
			list = append(list, object{"inlineData": object{"mimeType": kind, "data": data}})
		case p.Transcript != nil && *p.Transcript != "":
			list = append(list, object{"text": *p.Transcript})
		case p.Text != "":
			list = append(list, object{"text": p.Text})
		}
	}
	return list
}

// picture takes a data URL of a picture apart.
func picture(url string) (mimeType, data string, ok bool) {
	rest, ok := strings.CutPrefix(url, "data:")
	if !ok {
		return "", "", false
	}
	mimeType, data, ok = strings.Cut(rest, ";base64,")
	return mimeType, data, ok && slices.Contains([]string{"image/jpeg", "image/png", "image/webp"}, mimeType) && data != "" &&
		len(data) <= maxPicture
}

// readItem reads an item that a client creates. Its id may be empty.
func readItem(raw json.RawMessage) (*item, error) {
	var given struct {
		ID, Type, Role, Name string
		CallID               string `json:"call_id"`
		Arguments, Output    *string
		Content              []struct {
			Type, Text string
			Transcript *string
			ImageURL   string `json:"image_url"`
		}
	}
	wrong := func(param, problem string) (*item, error) {
		return nil, &apiError{Code: "invalid_value", Param: "item." + param, Message: "item." + param + " " + problem}
	}
	if len(raw) == 0 {
		return nil, &apiError{Code: "missing_required_parameter", Param: "item", Message: "item is missing."}
	}
	if err := json.Unmarshal(raw, &given); err != nil {
		return nil, wrongType(err, "item")
	}
	if len(given.ID) > 512 {
		return wrong("id", "is too long.")
	}
	size := len(raw)
	for _, c := range given.Content {
		size -= len(c.ImageURL)
	}
	if size > maxItem {
		return nil, &apiError{
			Code:    "invalid_value",
			Param:   "item",
			Message: fmt.Sprintf("The item is too long: without its pictures it may have %d bytes.", maxItem),
		}
	}
	i := &item{ID: given.ID, Object: "realtime.item", Type: given.Type, Status: completed}
	switch given.Type {
	case typeCall:
		i.CallID, i.Name, i.Arguments = given.CallID, given.Name, given.Arguments
		if i.Arguments == nil {
			return wrong("arguments", "is missing.")
		}
		return i, nil
	case typeOutput:
		i.CallID, i.Output = given.CallID, given.Output
		switch {
		case i.CallID == "":
			return wrong("call_id", "is missing.")
		case i.Output == nil:
			return wrong("output", "is missing.")
		}
		return i, nil
	case typeMessage:
	default:
		return wrong("type", fmt.Sprintf("%q is not served; message, function_call and function_call_output are.", clip(given.Type)))
	}
	if i.Role = given.Role; i.Role != roleUser && i.Role != roleAssistant && i.Role != roleSystem {
		return wrong("role", "must be user, assistant or system.")
	}
	i.Content = []part{}
	for n, c := range given.Content {
		at := fmt.Sprintf("content[%d]", n)
		p := part{Type: c.Type}
		switch c.Type {
		case inputText, outputText, "text": // the last is the beta's, which SDKs still send
			p.Text = c.Text
			if p.Type == "text" {
				p.Type = map[bool]string{true: outputText, false: inputText}[i.Role == roleAssistant]
			}
		case inputImage:
			if p.ImageURL = c.ImageURL; !isPicture(c.ImageURL) {
				return wrong(at+".image_url", "must be a data URL of a JPEG, PNG or WebP in base64, of 8 MiB at most.")
			}
		case inputAudio, outputAudio:
			if p.Transcript = c.Transcript; p.Transcript == nil {
				return wrong(at+".transcript", "is missing: sound is taken by input_audio_buffer.append alone.")
			}
		default:
			return wrong(at+".type", fmt.Sprintf("%q is not served.", clip(c.Type)))
		}
		i.Content = append(i.Content, p)
	}
	return i, nil
}

func isPicture(url string) bool {
	_, _, ok := picture(url)
	return ok
}

// itemList keeps the items of a conversation, in order.
type itemList struct {
	items []*item
	bytes int
}

func (l *itemList) find(id string) *item {
	if n := l.index(id); n >= 0 {
		return l.items[n]
	}
	return nil
}

func (l *itemList) index(id string) int {
	return slices.IndexFunc(l.items, func(i *item) bool { return i.ID == id })
}

// add puts an item at its place, the end is len(items), and returns the id of the one before it.
func (l *itemList) add(i *item, at int) (previous *string) {
	l.items = slices.Insert(l.items, at, i)
	l.bytes += i.size()
	for len(l.items) > maxItems || l.bytes > maxKept && len(l.items) > 1 {
		l.bytes -= l.items[0].size()
		l.items = slices.Delete(l.items, 0, 1)
		at--
	}
	if at > 0 {
		return &l.items[at-1].ID
	}
	return nil
}

func (l *itemList) last() *string {
	if n := len(l.items); n > 0 {
		return &l.items[n-1].ID
	}
	return nil
}

func (l *itemList) delete(n int) {
	l.bytes -= l.items[n].size()
	l.items = slices.Delete(l.items, n, n+1)
}

// size is what an item takes when it is created, in bytes.
func (i *item) size() int {
	n := len(value(i.Arguments)) + len(value(i.Output))
	for _, p := range i.Content {
		if p.Type != outputAudio { // which grows, to what a model says in a turn
			n += len(p.Text) + len(p.ImageURL)
		}
	}
	return n
}
