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
	maxItems       = 256     // limit of the items in a clientRecord; the oldest are dropped
	maxRecordBytes = 4 << 20 // limit of their text in bytes; the oldest are dropped
	// maxItem limits an item without its pictures, in bytes.
	maxItem = 1 << 20
	// maxPicture limits the base64 text of a picture, in bytes. The text stands for 8 MiB of data, the limit of all
	// protocols.
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

	countedBytes int // size of this item's text in clientRecord.itemBytes

	// The following fields are set only in answers of the model.
	turn          int
	voiceDuration time.Duration // duration of the voice in this item
	textPieces    []textPiece   // the text, with the position of each piece in the voice
}

type textPiece struct {
	text          string
	voicePosition time.Duration
}

// part is a part of a message. Type determines which one of the other fields is used.
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

// MarshalJSON implements json.Marshaler. It writes an unknown transcript as null instead of omitting it, because
// clients require the field.
func (p part) MarshalJSON() ([]byte, error) {
	switch p.Type {
	case inputText, outputText:
		return tools.EncodeOrEmpty(struct {
			Type string `json:"type"`
			Text string `json:"text"`
		}{p.Type, p.Text}), nil
	case inputImage: // the client has the picture, so it is not sent back
		return tools.EncodeOrEmpty(map[string]string{"type": p.Type}), nil
	}
	return tools.EncodeOrEmpty(struct {
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

// joinText returns the text of a message.
func (i *item) joinText() string {
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

// takeEngineParts returns the content of the item as a list of parts for the engine. It deletes the item's pictures, to
// free memory.
func (i *item) takeEngineParts() (list []object) {
	switch i.Type {
	case typeCall:
		return []object{{"text": fmt.Sprintf("[called %s with %s]", i.Name, stringOrEmpty(i.Arguments))}}
	case typeOutput:
		return []object{{"text": fmt.Sprintf("[result of %s: %s]", i.CallID, stringOrEmpty(i.Output))}}
	}
	for n, p := range i.Content {
		switch {
		case p.Type == inputImage:
			kind, data, _ := parseDataURL(p.ImageURL)
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

// parseDataURL splits the data URL of a picture into media type and base64.
func parseDataURL(url string) (mimeType, data string, ok bool) {
	rest, ok := strings.CutPrefix(url, "data:")
	if !ok {
		return "", "", false
	}
	about, data, ok := strings.Cut(rest, ";base64,")
	mimeType, _, err := mime.ParseMediaType(about)
	isSupported := err == nil && slices.Contains([]string{"image/jpeg", "image/png", "image/webp"}, mimeType)
	return mimeType, data, ok && isSupported && data != "" && len(data) <= maxPicture
}

// parseItem parses and validates an item that a client creates. Its id may be empty.
func parseItem(raw json.RawMessage) (*item, error) {
	var input item
	if len(raw) == 0 {
		return nil, missingField("item")
	}
	if err := json.Unmarshal(raw, &input); err != nil {
		return nil, wrongType(err, "item")
	}
	if len(input.ID) > 512 {
		return nil, invalidValue("item.id", "is too long.")
	}
	size := len(raw)
	for _, p := range input.Content {
		size -= len(p.ImageURL)
	}
	if size > maxItem {
		return nil, newError("invalid_value", "item", "The item is too long: at most %d bytes are allowed in addition to its pictures.", maxItem)
	}
	i := newItem(input.ID, input.Type, completed)
	switch input.Type {
	case typeCall:
		if i.CallID, i.Name, i.Arguments = input.CallID, input.Name, input.Arguments; i.Arguments == nil {
			return nil, invalidValue("item.arguments", "is missing.")
		}
		return i, nil
	case typeOutput:
		i.CallID, i.Output = input.CallID, input.Output
		switch {
		case i.CallID == "":
			return nil, invalidValue("item.call_id", "is missing.")
		case i.Output == nil:
			return nil, invalidValue("item.output", "is missing.")
		}
		return i, nil
	case typeMessage:
	default:
		return nil, invalidValue("item.type", "%q is not supported; message, function_call and function_call_output are.", clip(input.Type))
	}
	if i.Role = input.Role; i.Role != roleUser && i.Role != roleAssistant && i.Role != roleSystem {
		return nil, invalidValue("item.role", "must be user, assistant or system.")
	}
	i.Content = []part{}
	for n, p := range input.Content {
		if err := p.normalizePart(i.Role, fmt.Sprintf("item.content[%d]", n)); err != nil {
			return nil, err
		}
		i.Content = append(i.Content, p)
	}
	return i, nil
}

// normalizePart returns an error if the part is invalid. It clears the fields that do not belong to the part's type.
// param is the path of the part.
func (p *part) normalizePart(role, param string) error {
	switch p.Type {
	case inputText, outputText:
	case "text": // the name before the GA API, which SDKs still send
		p.Type = map[bool]string{true: outputText, false: inputText}[role == roleAssistant]
	case inputImage:
		if _, _, ok := parseDataURL(p.ImageURL); !ok {
			return invalidValue(param+".image_url", "must be a base64 data URL of a JPEG, PNG or WebP picture of at most 8 MiB.")
		}
		*p = part{Type: p.Type, ImageURL: p.ImageURL}
		return nil
	case inputAudio, outputAudio:
		if p.Transcript == nil {
			return invalidValue(param+".transcript", "is missing: audio is accepted only by input_audio_buffer.append.")
		}
		*p = part{Type: p.Type, Transcript: p.Transcript}
		return nil
	default:
		return invalidValue(param+".type", "%q is not supported.", clip(p.Type))
	}
	*p = part{Type: p.Type, Text: p.Text}
	return nil
}

// textAndPictureSize returns the size of an item's text and of its pictures, in bytes. Pictures are kept only until the model
// receives them.
func (i *item) textAndPictureSize() (text, pictures int) {
	text = len(stringOrEmpty(i.Arguments)) + len(stringOrEmpty(i.Output))
	for _, p := range i.Content {
		text += len(p.Text) + len(stringOrEmpty(p.Transcript))
		pictures += len(p.ImageURL)
	}
	return text, pictures
}
