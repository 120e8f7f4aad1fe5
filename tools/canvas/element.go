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
	// MaxElements is how many elements a canvas has at most, those in forms counted: more than a person looks through.
	MaxElements = 200

	// MaxBytes is how long a canvas is at most, as JSON with what is added for the client: a data channel carries it in well
	// under a second, and a small photo fits in.
	MaxBytes = 256 << 10

	// maxInput bounds what is looked at before it is cleaned. A clean canvas stays below it, also as a string in JSON, where
	// six bytes may stand for one.
	maxInput = 8 * MaxBytes

	// maxText is the length of a label, hint, title or alt in characters; what is more is cut off.
	maxText = 500

	// maxID is the length of an id in characters. Ids are the keys of the answer to the model.
	maxID = 64

	// maxURL is the length of a URL in bytes. Signed, it must fit into a request line, for which 8000 are safe: RFC 9110, 4.1.
	maxURL = 2048
)

// element is one element of a canvas. Its type says which fields it has.
type element struct {
	Type     string    `json:"type"`
	ID       string    `json:"id,omitempty"`
	Value    *string   `json:"value,omitempty"` // text: HTML; input: plain
	Src      string    `json:"src,omitempty"`
	Fetch    string    `json:"fetch,omitempty"` // of an https Src; added when it goes to the client
	Alt      string    `json:"alt,omitempty"`
	Label    string    `json:"label,omitempty"`
	Hint     string    `json:"hint,omitempty"`
	Kind     string    `json:"kind,omitempty"`
	Required bool      `json:"required,omitempty"`
	Action   string    `json:"action,omitempty"`
	Items    []string  `json:"items,omitzero"`
	Ordered  bool      `json:"ordered,omitempty"`
	Elements []element `json:"elements,omitzero"`

	at string // its place, for errors; "": it is on the board already
}

// sheet is a canvas as JSON.
type sheet struct {
	Type     string    `json:"type"`
	V        int       `json:"v,omitempty"`
	Elements []element `json:"elements"`
}

// kinds are what an input may be for; the first is the default.
var kinds = []string{"text", "multiline", "number", "date", "time", "email", "tel", "url"}

// inForm are the types that a form may have.
var inForm = []string{"text", "input", "button", "list", "image"}

// dismissButton is the type of an element that models add although they are told not to: a canvas has such a button anyway.
const dismissButton = `"dismiss_button"`

// answerKeys cannot be ids of inputs: the answer has them by itself, or JavaScript does.
var answerKeys = []string{"action", "dismissed", "__proto__"}

var (
	plainName = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9_-]{0,63}$`)
	reference = regexp.MustCompile(`^(photo|image|audio|video):[A-Za-z0-9._-]{1,64}$`)
	dataURL   = regexp.MustCompile(`^data:(image/(?:png|jpeg|gif|webp)|(?:audio|video)/[a-z0-9.+-]{1,64});base64,`)
)

// reader reads canvases. Known tells whether a tool has returned a reference.
type reader struct{ known func(reference string) bool }

// read returns the canvas that schema describes: JSON of a canvas, an element, an array of elements, or a string of such.
func (r reader) read(schema json.RawMessage) (*sheet, error) {
	const at = "schema"
	if len(schema) > maxInput {
		return nil, fmt.Errorf("%s has %d bytes, and a canvas has %d at most", at, len(schema), MaxBytes)
	}
	schema = bytes.TrimSpace(schema)
	if len(schema) > 0 && schema[0] == '"' {
		var text string
		if err := json.Unmarshal(schema, &text); err != nil {
			return nil, notJSON(err)
		}
		schema = bytes.TrimSpace([]byte(text))
	}
	var list []json.RawMessage
	if len(schema) > 0 && schema[0] == '[' {
		if err := json.Unmarshal(schema, &list); err != nil {
			return nil, notJSON(err)
		}
		elements, err := r.elements(list, at, false)
		return &sheet{Type: "canvas", Elements: elements}, err
	}
	var f fields
	if err := json.Unmarshal(schema, &f); err != nil {
		return nil, notJSON(err)
	}
	if f == nil {
		return nil, fmt.Errorf("%s must be a canvas: {\"type\":\"canvas\",\"elements\":[…]}", at)
	}
	return r.sheet(f, at)
}

func notJSON(err error) error {
	if syntax, ok := errors.AsType[*json.SyntaxError](err); ok {
		return fmt.Errorf("schema must be valid JSON with double quotes: %w, at byte %d", err, syntax.Offset)
	}
	return errors.New(`schema must be a canvas: {"type":"canvas","elements":[…]}`)
}

func (r reader) sheet(f fields, at string) (*sheet, error) {
	kind, err := f.text(at, "type")
	if err != nil {
		return nil, err
	}
	s := &sheet{Type: "canvas"}
	if v, ok := f.given("v"); ok {
		if string(v) != "1" {
			return nil, fmt.Errorf("%s.v must be 1, which is the only version there is", at)
		}
		s.V = 1
	}
	if _, has := f.given("elements"); kind == "canvas" || kind == "" && has {
		s.Elements, err = r.list(f, at, false)
		return s, err
	}
	e, err := r.element(f, at, false)
	s.Elements = []element{e}
	return s, err
}

// list reads the elements of a canvas or a form.
func (r reader) list(f fields, at string, form bool) ([]element, error) {
	at += ".elements"
	var list []json.RawMessage
	if raw, _ := f.given("elements"); json.Unmarshal(raw, &list) != nil {
		return nil, fmt.Errorf("%s must be an array of elements", at)
	}
	return r.elements(list, at, form)
}

func (r reader) elements(list []json.RawMessage, at string, form bool) ([]element, error) {
	if len(list) > MaxElements {
		return nil, fmt.Errorf("%s has %d elements, and a canvas has %d at most", at, len(list), MaxElements)
	}
	all := make([]element, 0, len(list))
	for i, raw := range list {
		at := fmt.Sprintf("%s[%d]", at, i)
		var f fields
		if json.Unmarshal(raw, &f) != nil || f == nil {
			return nil, fmt.Errorf("%s must be an element: an object with a type", at)
		}
		if string(f["type"]) == dismissButton {
			continue
		}
		e, err := r.element(f, at, form)
		if err != nil {
			return nil, err
		}
		all = append(all, e)
	}
	return all, nil
}

// element reads one element. Fields that its type does not have are left out.
func (r reader) element(f fields, at string, form bool) (element, error) {
	e := element{at: at}
	var err error
	if e.Type, err = f.text(at, "type"); err != nil {
		return e, err
	}
	if form && !slices.Contains(inForm, e.Type) {
		return e, fmt.Errorf("%s.type must be one of %s, in a form", at, strings.Join(inForm, ", "))
	}
	if e.ID, err = f.id(at, e.Type == "input"); err != nil {
		return e, err
	}
	switch e.Type {
	case "text":
		err = f.html(at, &e)
	case "image", "audio", "video":
		err = r.media(f, at, &e)
	case "input":
		err = f.input(at, &e)
	case "button":
		err = f.button(at, &e)
	case "list":
		err = f.items(at, &e)
	case "form":
		if e.Label, err = f.plain(at, "label"); err == nil {
			e.Elements, err = r.list(f, at, true)
		}
	default:
		err = fmt.Errorf("%s.type must be one of text, image, input, button, list, form, audio, video", at)
	}
	return e, err
}

// media reads an image, a sound or a film.
func (r reader) media(f fields, at string, e *element) error {
	var err error
	if e.Src, err = f.text(at, "src"); err != nil {
		return err
	}
	if e.Type == "image" {
		if e.Alt, err = f.plain(at, "alt"); err != nil {
			return err
		}
	}
	if r.source(e.Type, e.Src) {
		return nil
	}
	if reference.MatchString(e.Src) {
		return fmt.Errorf("%s.src must be an %s that a tool has returned, and none has returned %s", at, e.Type, e.Src)
	}
	formats := map[string]string{"image": "image/(png, jpeg, gif or webp)", "audio": "audio/…", "video": "video/…"}
	return fmt.Errorf("%s.src must be an https URL, data:%s;base64,… or a reference that a tool has returned", at, formats[e.Type])
}

// source tells whether src may be that of an element of type kind.
func (r reader) source(kind, src string) bool {
	if reference.MatchString(src) {
		of, _, _ := strings.Cut(src, ":")
		return (of == kind || of == "photo" && kind == "image") && r.known(src)
	}
	if data := dataURL.FindStringSubmatch(src); data != nil {
		_, err := base64.StdEncoding.Strict().DecodeString(src[len(data[0]):])
		return err == nil && !strings.ContainsAny(src, "\r\n") && strings.HasPrefix(data[1], kind+"/")
	}
	return isRemote(src)
}

// isRemote tells whether src is a URL that the gateway may fetch.
func isRemote(src string) bool {
	u, err := url.Parse(src)
	return err == nil && len(src) <= maxURL && strings.HasPrefix(src, "https://") && u.Hostname() != "" && u.User == nil &&
		strings.IndexFunc(src, func(c rune) bool { return unicode.IsControl(c) || unicode.IsSpace(c) }) < 0
}

// fields are what an element has, by name.
type fields map[string]json.RawMessage

// given returns a field. One that is null was not given.
func (f fields) given(name string) (json.RawMessage, bool) {
	raw, ok := f[name]
	if !ok || string(raw) == "null" {
		return nil, false
	}
	return raw, true
}

// text reads a string; "" if there is none.
func (f fields) text(at, name string) (string, error) {
	raw, ok := f.given(name)
	if !ok {
		return "", nil
	}
	var text string
	if json.Unmarshal(raw, &text) != nil {
		return "", fmt.Errorf("%s.%s must be a string", at, name)
	}
	return text, nil
}

// plain reads a string that is shown as it stands.
func (f fields) plain(at, name string) (string, error) {
	text, err := f.text(at, name)
	if utf8.RuneCountInString(text) > maxText {
		text = string([]rune(text)[:maxText])
	}
	return text, err
}

func (f fields) flag(at, name string) (bool, error) {
	raw, ok := f.given(name)
	if !ok {
		return false, nil
	}
	var flag bool
	if json.Unmarshal(raw, &flag) != nil {
		return false, fmt.Errorf("%s.%s must be true or false", at, name)
	}
	return flag, nil
}

func (f fields) id(at string, needed bool) (string, error) {
	id, err := f.text(at, "id")
	if err != nil {
		return "", err
	}
	if _, ok := f.given("id"); !ok && !needed {
		return "", nil
	}
	if id == "" || utf8.RuneCountInString(id) > maxID || strings.ContainsFunc(id, unicode.IsControl) {
		return "", fmt.Errorf("%s.id must be 1 to %d characters", at, maxID)
	}
	if needed && slices.Contains(answerKeys, id) {
		return "", fmt.Errorf("%s.id must not be %s, which the answer has already", at, id)
	}
	return id, nil
}

func (f fields) html(at string, e *element) error {
	if _, ok := f.given("value"); !ok {
		return fmt.Errorf("%s.value is missing", at)
	}
	text, err := f.text(at, "value")
	if err != nil {
		return err
	}
	clean, err := cleanHTML(text)
	if err != nil {
		return fmt.Errorf("%s.value %w", at, err)
	}
	e.Value = &clean
	return nil
}

func (f fields) input(at string, e *element) error {
	var err error
	if e.Label, err = f.plain(at, "label"); err != nil {
		return err
	}
	if e.Hint, err = f.plain(at, "hint"); err != nil {
		return err
	}
	if e.Kind, err = f.text(at, "kind"); err != nil {
		return err
	}
	if e.Kind != "" && !slices.Contains(kinds, e.Kind) {
		return fmt.Errorf("%s.kind must be one of %s", at, strings.Join(kinds, ", "))
	}
	if e.Required, err = f.flag(at, "required"); err != nil {
		return err
	}
	raw, ok := f.given("value")
	if !ok {
		return nil
	}
	// A number stays in the digits it came in: JavaScript would round it.
	var number json.Number
	if raw[0] != '"' && json.Unmarshal(raw, &number) == nil {
		value := number.String()
		e.Value = &value
		return nil
	}
	value, err := f.text(at, "value")
	e.Value = &value
	return err
}

func (f fields) button(at string, e *element) error {
	var err error
	if e.Label, err = f.plain(at, "label"); err != nil {
		return err
	}
	if e.Label == "" {
		return fmt.Errorf("%s.label is missing", at)
	}
	if e.Action, err = f.text(at, "action"); err != nil {
		return err
	}
	if !plainName.MatchString(e.Action) {
		return fmt.Errorf("%s.action must be submit, dismiss or a plain name", at)
	}
	return nil
}

func (f fields) items(at string, e *element) error {
	var items []*string
	if raw, _ := f.given("items"); json.Unmarshal(raw, &items) != nil || slices.Contains(items, nil) {
		return fmt.Errorf("%s.items must be an array of strings", at)
	}
	if len(items) > MaxElements {
		return fmt.Errorf("%s.items has %d entries, and a list has %d at most", at, len(items), MaxElements)
	}
	e.Items = make([]string, 0, len(items))
	for i, item := range items {
		clean, err := cleanHTML(*item)
		if err != nil {
			return fmt.Errorf("%s.items[%d] %w", at, i, err)
		}
		e.Items = append(e.Items, clean)
	}
	var err error
	e.Ordered, err = f.flag(at, "ordered")
	return err
}
