package canvas

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

const (
	// MaxElements is the maximum number of elements of a canvas, including those in forms. A user would not look
	// through more.
	MaxElements = 200

	// MaxBytes is the maximum size of a canvas, as JSON for the client. It is enough for a small photo, and a data
	// channel transfers it in well under a second.
	MaxBytes = 256 << 10

	// maxInput is the maximum size, in bytes, of the JSON string that the model writes. JSON may take six bytes for one
	// ("\u003c"), and cleaning removes some, so it is larger than MaxBytes.
	maxInput = 8 * MaxBytes

	// maxText is the maximum length of a label, hint, title or alt, in characters. Longer texts are cut.
	maxText = 500

	// maxID is the maximum length of an ID, in characters. IDs become keys in the answer to the model.
	maxID = 64

	// maxURL is the maximum length of a URL, in bytes. It is so short because a signed URL must fit into a request line
	// of 8000 bytes (RFC 9110, 4.1).
	maxURL = 2048
)

// element is one element of a canvas. Its type determines which fields it has.
type element struct {
	Type     string    `json:"type"`
	ID       string    `json:"id,omitempty"`
	Value    *string   `json:"value,omitempty"` // HTML of a text element, or plain text of an input
	Src      string    `json:"src,omitempty"`
	Fetch    string    `json:"fetch,omitempty"` // address on the gateway of an https Src; added for the client
	Alt      string    `json:"alt,omitempty"`
	Label    string    `json:"label,omitempty"`
	Hint     string    `json:"hint,omitempty"`
	Kind     string    `json:"kind,omitempty"`
	Required bool      `json:"required,omitempty"`
	Action   string    `json:"action,omitempty"`
	Items    []string  `json:"items,omitzero"`
	Ordered  bool      `json:"ordered,omitempty"`
	Elements []element `json:"elements,omitzero"`

	at string // place in the schema, for errors; "" if already on the board
}

// sheet is a canvas as JSON.
type sheet struct {
	Type     string    `json:"type"`
	V        int       `json:"v,omitempty"`
	Elements []element `json:"elements"`
}

// kinds lists the types of inputs. The first type is the default.
var kinds = []string{"text", "multiline", "number", "date", "time", "email", "tel", "url"}

// formTypes are the element types that a form may contain.
var formTypes = []string{"text", "input", "button", "list", "image"}

// dismissButton is the type of an element that models add against their instructions. Such an element is ignored,
// because clients show a dismiss button on every canvas anyway.
const dismissButton = `"dismiss_button"`

// reservedIDs lists names that cannot be IDs of inputs, because they are keys of every answer, or have a special
// meaning in JavaScript.
var reservedIDs = []string{"action", "dismissed", "__proto__"}

var (
	plainName = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9_-]{0,63}$`)
	reference = regexp.MustCompile(`^(photo|image|audio|video):[A-Za-z0-9._-]{1,64}$`)
	dataURL   = regexp.MustCompile(`^data:(image/(?:png|jpeg|gif|webp)|(?:audio|video)/[a-z0-9.+-]{1,64});base64,`)
)

// reader reads a canvas and keeps the first error.
type reader struct {
	isKnown func(reference string) bool // reports whether a tool has returned a reference
	err     error
}

// recordError records an error at a place of the schema.
func (r *reader) recordError(place, format string, args ...any) {
	if r.err == nil {
		r.err = fmt.Errorf(place+format, args...)
	}
}

// readSheet parses a schema: a canvas, an element, or an array of elements as JSON. The schema may also be a string
// that contains such JSON.
func readSheet(schema json.RawMessage, known func(reference string) bool) (*sheet, error) {
	const at = "schema"
	if len(schema) > maxInput {
		return nil, fmt.Errorf("%s has %d bytes, and a canvas has %d at most", at, len(schema), MaxBytes)
	}
	schema = bytes.TrimSpace(schema)
	if len(schema) > 0 && schema[0] == '"' {
		var text string
		if err := json.Unmarshal(schema, &text); err != nil {
			return nil, explainSyntaxError(err)
		}
		schema = bytes.TrimSpace([]byte(text))
	}
	r := &reader{isKnown: known}
	s := &sheet{Type: "canvas"}
	if len(schema) > 0 && schema[0] == '[' {
		var list []json.RawMessage
		if err := json.Unmarshal(schema, &list); err != nil {
			return nil, explainSyntaxError(err)
		}
		s.Elements = r.readElements(list, at, false)
		return s, r.err
	}
	f := fields{reader: r, at: at}
	if err := json.Unmarshal(schema, &f.raw); err != nil || f.raw == nil {
		return nil, explainSyntaxError(err)
	}
	kind := f.readString("type")
	if v, ok := f.getField("v"); ok {
		if string(v) != "1" {
			r.recordError(at, ".v must be 1, which is the only version there is")
		}
		s.V = 1
	}
	if _, has := f.getField("elements"); kind == "canvas" || kind == "" && has {
		s.Elements = f.readElementList(false)
	} else {
		s.Elements = []element{f.readElement(false)}
	}
	return s, r.err
}

func explainSyntaxError(err error) error {
	if syntax, ok := errors.AsType[*json.SyntaxError](err); ok {
		return fmt.Errorf("schema must be valid JSON with double quotes: %w, at byte %d", err, syntax.Offset)
	}
	return errors.New(`schema must be a canvas: {"type":"canvas","elements":[…]}`)
}

func (r *reader) readElements(list []json.RawMessage, place string, isInForm bool) []element {
	if len(list) > MaxElements {
		r.recordError(place, " has %d elements, and a canvas has %d at most", len(list), MaxElements)
		return nil
	}
	all := make([]element, 0, len(list))
	for i, raw := range list {
		f := fields{reader: r, at: fmt.Sprintf("%s[%d]", place, i)}
		if json.Unmarshal(raw, &f.raw) != nil || f.raw == nil {
			r.recordError(f.at, " must be an element: an object with a type")
			return nil
		}
		if string(f.raw["type"]) != dismissButton {
			all = append(all, f.readElement(isInForm))
		}
	}
	return all
}

// fields holds the fields of an element or a canvas, by name.
type fields struct {
	*reader
	at  string // place in the schema
	raw map[string]json.RawMessage
}

// getField returns a field. It treats null as a missing field.
func (f fields) getField(name string) (raw json.RawMessage, ok bool) {
	raw, ok = f.raw[name]
	if !ok || string(raw) == "null" {
		return nil, false
	}
	return raw, true
}

// readString returns a string field, or "" if it is missing.
func (f fields) readString(name string) (text string) {
	if raw, ok := f.getField(name); ok && json.Unmarshal(raw, &text) != nil {
		f.recordError(f.at, ".%s must be a string", name)
	}
	return text
}

// readPlainText returns a string field that clients show as plain text.
func (f fields) readPlainText(name string) string {
	text := f.readString(name)
	if utf8.RuneCountInString(text) > maxText {
		text = string([]rune(text)[:maxText])
	}
	return text
}

func (f fields) readBool(name string) (flag bool) {
	if raw, ok := f.getField(name); ok && json.Unmarshal(raw, &flag) != nil {
		f.recordError(f.at, ".%s must be true or false", name)
	}
	return flag
}

// readElementList reads the elements of a canvas or a form.
func (f fields) readElementList(isInForm bool) []element {
	at := f.at + ".elements"
	var list []json.RawMessage
	if raw, _ := f.getField("elements"); json.Unmarshal(raw, &list) != nil {
		f.recordError(at, " must be an array of elements")
	}
	return f.readElements(list, at, isInForm)
}

// readElement reads an element. Fields that its type does not have are ignored.
func (f fields) readElement(isInForm bool) element {
	e := element{at: f.at, Type: f.readString("type")}
	if isInForm && !slices.Contains(formTypes, e.Type) {
		f.recordError(f.at, ".type must be one of %s, in a form", strings.Join(formTypes, ", "))
		return e
	}
	e.ID = f.readID(e.Type == "input")
	switch e.Type {
	case "text":
		f.readText(&e)
	case "image", "audio", "video":
		f.readMedia(&e)
	case "input":
		f.readInput(&e)
	case "button":
		f.readButton(&e)
	case "list":
		f.readItems(&e)
	case "form":
		e.Label, e.Elements = f.readPlainText("label"), f.readElementList(true)
	default:
		f.recordError(f.at, ".type must be one of text, image, input, button, list, form, audio, video")
	}
	return e
}

func (f fields) readID(isRequired bool) string {
	id := f.readString("id")
	if _, ok := f.getField("id"); !ok && !isRequired {
		return ""
	}
	if id == "" || utf8.RuneCountInString(id) > maxID || strings.ContainsFunc(id, unicode.IsControl) {
		f.recordError(f.at, ".id must be 1 to %d characters", maxID)
	}
	if isRequired && slices.Contains(reservedIDs, id) {
		f.recordError(f.at, ".id must not be %s, which the answer has already", id)
	}
	return id
}

func (f fields) readText(e *element) {
	if _, ok := f.getField("value"); !ok {
		f.recordError(f.at, ".value is missing")
	}
	clean, err := cleanHTML(f.readString("value"))
	if err != nil {
		f.recordError(f.at, ".value %w", err)
	}
	e.Value = &clean
}

// readMedia reads an image, audio or video element.
func (f fields) readMedia(e *element) {
	e.Src = f.readString("src")
	if e.Type == "image" {
		e.Alt = f.readPlainText("alt")
	}
	switch {
	case f.isValidSource(e.Type, e.Src):
	case reference.MatchString(e.Src):
		f.recordError(f.at, ".src must be an %s that a tool has returned, and none has returned %s", e.Type, e.Src)
	default:
		formats := map[string]string{"image": "image/(png, jpeg, gif or webp)", "audio": "audio/…", "video": "video/…"}
		f.recordError(f.at, ".src must be an https URL, data:%s;base64,… or a reference that a tool has returned", formats[e.Type])
	}
}

// isValidSource reports whether src is allowed for an element of type kind.
func (r *reader) isValidSource(kind, src string) bool {
	if reference.MatchString(src) {
		of, _, _ := strings.Cut(src, ":")
		return (of == kind || of == "photo" && kind == "image") && r.isKnown(src)
	}
	if data := dataURL.FindStringSubmatch(src); data != nil {
		_, err := base64.StdEncoding.Strict().DecodeString(src[len(data[0]):])
		return err == nil && !strings.ContainsAny(src, "\r\n") && strings.HasPrefix(data[1], kind+"/")
	}
	return isFetchableURL(src)
}

// isFetchableURL reports whether src is a URL that the gateway may fetch.
func isFetchableURL(src string) bool {
	u, err := url.Parse(src)
	return err == nil && len(src) <= maxURL && strings.HasPrefix(src, "https://") && u.Hostname() != "" && u.User == nil &&
		strings.IndexFunc(src, func(c rune) bool { return unicode.IsControl(c) || unicode.IsSpace(c) }) < 0
}

func (f fields) readInput(e *element) {
	e.Label, e.Hint, e.Kind, e.Required = f.readPlainText("label"), f.readPlainText("hint"), f.readString("kind"), f.readBool("required")
	if e.Kind != "" && !slices.Contains(kinds, e.Kind) {
		f.recordError(f.at, ".kind must be one of %s", strings.Join(kinds, ", "))
	}
	raw, ok := f.getField("value")
	if !ok {
		return
	}
	// The number is kept as text, because JavaScript would round it.
	var number json.Number
	value := ""
	if raw[0] != '"' && json.Unmarshal(raw, &number) == nil {
		value = number.String()
	} else {
		value = f.readString("value")
	}
	e.Value = &value
}

func (f fields) readButton(e *element) {
	e.Label, e.Action = f.readPlainText("label"), f.readString("action")
	if e.Label == "" {
		f.recordError(f.at, ".label is missing")
	}
	if !plainName.MatchString(e.Action) {
		f.recordError(f.at, ".action must be submit, dismiss or a plain name")
	}
}

func (f fields) readItems(e *element) {
	var items []*string
	if raw, _ := f.getField("items"); json.Unmarshal(raw, &items) != nil || slices.Contains(items, nil) {
		f.recordError(f.at, ".items must be an array of strings")
		return
	}
	if len(items) > MaxElements {
		f.recordError(f.at, ".items has %d entries, and a list has %d at most", len(items), MaxElements)
		return
	}
	e.Items = make([]string, 0, len(items))
	for i, item := range items {
		clean, err := cleanHTML(*item)
		if err != nil {
			f.recordError(f.at, ".items[%d] %w", i, err)
		}
		e.Items = append(e.Items, clean)
	}
	e.Ordered = f.readBool("ordered")
}
