package openai

import (
	"encoding/json"
	"fmt"
	"mime"
	"slices"
	"strings"
	"time"

	"voxgate/tools"
)

const (
	// maxItems limits the items that the record keeps; the oldest are dropped. maxKept limits their text, in bytes.
	maxItems = 256
	maxKept  = 4 << 20
	// maxItem limits an item without its pictures, in bytes.
	maxItem = 1 << 20
	// maxPicture limits a picture, in bytes of base64: 8 MiB, the same for all protocols.
	maxPicture = 11 << 20
)

// Types of items, and roles of messages.
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

// item is an item of the conversation in OpenAI's format.
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

	kept int // bytes that the record counts for it

	// For spoken answers: the turn, the duration of the voice that was sent, and the position of each piece of text in
	// it.
	turn   int
	voice  time.Duration
	pieces []piece
}

type piece struct {
	text string
	at   time.Duration
}

// part is a part of a message. Its type selects exactly one of the other fields.
type part struct {
	Type       string  `json:"type"`
	Text       string  `json:"text"`
	Transcript *string `json:"transcript"`
	ImageURL   string  `json:"image_url"`
}

const (
	inputText   = "input_text"
	inputAudio  = "input_audio"
	inputImage  = "input_image"
	outputText  = "output_text"
	outputAudio = "output_audio"
)

// MarshalJSON implements json.Marshaler. A transcript that is not known yet is null, because clients require the field.
func (p part) MarshalJSON() ([]byte, error) {
	switch p.Type {
	case inputText, outputText:
		return tools.Encode(struct {
			Type string `json:"type"`
			Text string `json:"text"`
		}{p.Type, p.Text}), nil
	case inputImage: // without the picture, which the client has
		return tools.Encode(map[string]string{"type": p.Type}), nil
	}
	return tools.Encode(struct {
		Type       string  `json:"type"`
		Transcript *string `json:"transcript"`
	}{p.Type, p.Transcript}), nil
}

func newItem(id, kind, status string) *item {
	return &item{ID: id, Object: "realtime.item", Type: kind, Status: status}
}

// newMessage returns a message item with a role.
func newMessage(id, role, status string, content ...part) *item {
	i := newItem(id, typeMessage, status)
	i.Role, i.Content = role, content
	return i
}

// said returns the text of a message.
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

// parts returns the item as an array of the engine's parts. It drops the pictures of the item, which are not needed
// again.
func (i *item) parts() (list []object) {
	switch i.Type {
	case typeCall:
		return []object{{"text": fmt.Sprintf("[called %s with %s]", i.Name, value(i.Arguments))}}
	case typeOutput:
		return []object{{"text": fmt.Sprintf("[result of %s: %s]", i.CallID, value(i.Output))}}
	}
	for n, p := range i.Content {
		switch {
		case p.Type == inputImage:
			kind, data, _ := picture(p.ImageURL)
			i.Content[n].ImageURL = ""
			list = append(list, object{"inlineData": object{"mimeType": kind, "data": data}})
		case p.Transcript != nil && *p.Transcript != "":
			list = append(list, object{"text": *p.Transcript})
		case p.Text != "":
			list = append(list, object{"text": p.Text})
		}
	}
	return list
}

// picture splits the data URL of a picture into media type and base64.
func picture(url string) (mimeType, data string, ok bool) {
	rest, ok := strings.CutPrefix(url, "data:")
	if !ok {
		return "", "", false
	}
	about, data, ok := strings.Cut(rest, ";base64,")
	mimeType, _, err := mime.ParseMediaType(about)
	known := err == nil && slices.Contains([]string{"image/jpeg", "image/png", "image/webp"}, mimeType)
	return mimeType, data, ok && known && data != "" && len(data) <= maxPicture
}

// readItem reads an item that a client creates. Its id may be empty.
func readItem(raw json.RawMessage) (*item, error) {
	var given item
	if len(raw) == 0 {
		return nil, missing("item")
	}
	if err := json.Unmarshal(raw, &given); err != nil {
		return nil, wrongType(err, "item")
	}
	if len(given.ID) > 512 {
		return nil, invalid("item.id", "is too long.")
	}
	size := len(raw)
	for _, p := range given.Content {
		size -= len(p.ImageURL)
	}
	if size > maxItem {
		return nil, refusal("invalid_value", "item", "The item is too long: without its pictures it may have %d bytes.", maxItem)
	}
	i := newItem(given.ID, given.Type, completed)
	switch given.Type {
	case typeCall:
		if i.CallID, i.Name, i.Arguments = given.CallID, given.Name, given.Arguments; i.Arguments == nil {
			return nil, invalid("item.arguments", "is missing.")
		}
		return i, nil
	case typeOutput:
		i.CallID, i.Output = given.CallID, given.Output
		switch {
		case i.CallID == "":
			return nil, invalid("item.call_id", "is missing.")
		case i.Output == nil:
			return nil, invalid("item.output", "is missing.")
		}
		return i, nil
	case typeMessage:
	default:
		return nil, invalid("item.type", "%q is not served; message, function_call and function_call_output are.", clip(given.Type))
	}
	if i.Role = given.Role; i.Role != roleUser && i.Role != roleAssistant && i.Role != roleSystem {
		return nil, invalid("item.role", "must be user, assistant or system.")
	}
	i.Content = []part{}
	for n, p := range given.Content {
		if err := p.check(i.Role, fmt.Sprintf("item.content[%d]", n)); err != nil {
			return nil, err
		}
		i.Content = append(i.Content, p)
	}
	return i, nil
}

// check rejects an invalid part, and clears the fields that do not belong to its type. param is the part's path.
func (p *part) check(role, param string) error {
	switch p.Type {
	case inputText, outputText:
	case "text": // the name before the GA API, which SDKs still send
		p.Type = map[bool]string{true: outputText, false: inputText}[role == roleAssistant]
	case inputImage:
		if _, _, ok := picture(p.ImageURL); !ok {
			return invalid(param+".image_url", "must be a data URL of a JPEG, PNG or WebP in base64, of 8 MiB at most.")
		}
		*p = part{Type: p.Type, ImageURL: p.ImageURL}
		return nil
	case inputAudio, outputAudio:
		if p.Transcript == nil {
			return invalid(param+".transcript", "is missing: sound is taken by input_audio_buffer.append alone.")
		}
		*p = part{Type: p.Type, Transcript: p.Transcript}
		return nil
	default:
		return invalid(param+".type", "%q is not served.", clip(p.Type))
	}
	*p = part{Type: p.Type, Text: p.Text}
	return nil
}

// size returns the size of an item's text and of its pictures, in bytes. Pictures are kept only until the model
// receives them.
func (i *item) size() (text, pictures int) {
	text = len(value(i.Arguments)) + len(value(i.Output))
	for _, p := range i.Content {
		text += len(p.Text) + len(value(p.Transcript))
		pictures += len(p.ImageURL)
	}
	return text, pictures
}
