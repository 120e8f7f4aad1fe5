package canvas

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"voxgate/tools"
)

// maxReferences bounds the references from tool results that a board remembers. A conversation is never about so many
// pictures.
const maxReferences = 64

// Board holds a conversation's canvas. Its methods may be called concurrently.
type Board struct {
	sign func(url string) string // see NewBoard; nil if the gateway fetches no media

	mu         sync.Mutex
	created    bool
	elements   []element
	references []string // newest last
}

// NewBoard returns an empty board. sign returns the address on the gateway for a URL (see [Fetcher.SignURL]). If sign
// is nil, the gateway does not fetch URLs for clients.
func NewBoard(sign func(url string) string) *Board { return &Board{sign: sign} }

// HandleCall handles a call of a canvas tool. args is {"schema":"…"}. It returns the arguments for the client,
// {"schema":"<JSON string>"}, without content that is not allowed. isInteractive means that the model must wait for the
// user's answer. An error is for the model, and leaves the board unchanged.
func (b *Board) HandleCall(toolName string, args json.RawMessage) (clean json.RawMessage, isInteractive bool, err error) {
	if !IsCanvasTool(toolName) {
		return nil, false, fmt.Errorf("%s is not a canvas tool", toolName)
	}
	var canvasArguments struct {
		Schema *json.RawMessage `json:"schema"`
	}
	if err := json.Unmarshal(args, &canvasArguments); err != nil {
		return nil, false, errors.New("the arguments must be an object")
	}
	if canvasArguments.Schema == nil {
		return nil, false, errors.New("schema is missing")
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	s, err := readSheet(*canvasArguments.Schema, b.isKnownReference)
	if err != nil {
		return nil, false, err
	}
	if err := b.checkElements(s.Elements); err != nil {
		return nil, false, err
	}
	all := s.Elements
	if toolName == Append {
		if !b.created {
			return nil, false, errors.New("there is no canvas to append to: call " + Create + " first")
		}
		if all, err = b.mergeAppended(s.Elements); err != nil {
			return nil, false, err
		}
	}
	b.created, b.elements = true, withoutSchemaPlaces(all)
	return b.encodeForClient(s), hasInputOrButton(s.Elements), nil
}

// BuildQuestion returns the arguments with which a client shows a question of a tool. canvas has the same form as
// "schema" in HandleCall, and must have an input or a button. The board does not change.
func (b *Board) BuildQuestion(canvas json.RawMessage) (args json.RawMessage, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	s, err := readSheet(canvas, b.isKnownReference)
	if err != nil {
		return nil, err
	}
	if err := b.checkElements(s.Elements); err != nil {
		return nil, err
	}
	if !hasInputOrButton(s.Elements) {
		return nil, errors.New("a question must have an input or a button")
	}
	return b.encodeForClient(s), nil
}

// AddReferences remembers the references to images, audio and video in the result of a tool. A canvas may use only
// remembered references.
func (b *Board) AddReferences(result json.RawMessage) {
	b.mu.Lock()
	defer b.mu.Unlock()
	tokens := json.NewDecoder(bytes.NewReader(result))
	for {
		token, err := tokens.Token()
		if err != nil { // the end of the result, or not JSON
			return
		}
		text, ok := token.(string)
		if !ok || !reference.MatchString(text) {
			continue
		}
		b.references = slices.DeleteFunc(b.references, func(known string) bool { return known == text })
		b.references = append(b.references, text)
		if len(b.references) > maxReferences {
			b.references = slices.Delete(b.references, 0, 1)
		}
	}
}

func (b *Board) isKnownReference(reference string) bool {
	return slices.Contains(b.references, reference)
}

// encodeForClient returns s as arguments for a client, with its URLs signed.
func (b *Board) encodeForClient(s *sheet) json.RawMessage {
	s.Elements = b.signURLs(s.Elements)
	return tools.EncodeOrEmpty(map[string]string{"schema": string(tools.EncodeOrEmpty(s))})
}

// signURLs returns a copy of elements. In the copy, each https URL also has a signed address on the gateway, from which
// the client fetches it.
func (b *Board) signURLs(elements []element) []element {
	if elements = slices.Clone(elements); b.sign == nil {
		return elements
	}
	for i := range elements {
		e := &elements[i]
		if strings.HasPrefix(e.Src, "https://") {
			e.Fetch = b.sign(e.Src)
		}
		if e.Elements != nil {
			e.Elements = b.signURLs(e.Elements)
		}
	}
	return elements
}

// mergeAppended returns the elements of the board after an append. If an added element has the ID of an existing
// element, it replaces that element, even inside a form.
func (b *Board) mergeAppended(added []element) ([]element, error) {
	all := withoutSchemaPlaces(b.elements)
	for _, e := range added {
		place, form := findElement(all, e.ID)
		switch {
		case place == nil:
			all = append(all, e)
		case form && !slices.Contains(formTypes, e.Type):
			return nil, fmt.Errorf("%s replaces an element of a form, which cannot have a %s", e.at, e.Type)
		default:
			*place = e
		}
	}
	return all, b.checkElements(all)
}

// findElement returns a pointer to the element with an ID, or nil. isInForm is true if the element is inside a form.
func findElement(elements []element, id string) (place *element, isInForm bool) {
	if id == "" {
		return nil, false
	}
	for i := range elements {
		if elements[i].ID == id {
			return &elements[i], false
		}
		if place, _ := findElement(elements[i].Elements, id); place != nil {
			return place, true
		}
	}
	return nil, false
}

// withoutSchemaPlaces returns a copy of elements for storing on a board. The copy does not have the elements' places in
// a schema, which are needed only for errors.
func withoutSchemaPlaces(elements []element) []element {
	elements = slices.Clone(elements)
	for i := range elements {
		elements[i].at = ""
		if elements[i].Elements != nil {
			elements[i].Elements = withoutSchemaPlaces(elements[i].Elements)
		}
	}
	return elements
}

// checkElements returns an error if the canvas as a whole is invalid, for example because an ID occurs twice.
func (b *Board) checkElements(elements []element) error {
	count, places := 0, make(map[string]string)
	var walk func([]element) error
	walk = func(elements []element) error {
		for i := range elements {
			e := &elements[i]
			count++
			if place, twice := places[e.ID]; twice {
				at := cmp.Or(e.at, place) // the place of the new element, which the model must change
				return fmt.Errorf("%s.id is %q, which another element of the canvas has", at, e.ID)
			}
			if e.ID != "" {
				places[e.ID] = e.at
			}
			if err := walk(e.Elements); err != nil {
				return err
			}
		}
		return nil
	}
	if err := walk(elements); err != nil {
		return err
	}
	if count > MaxElements {
		return fmt.Errorf("the canvas would have %d elements, and it has %d at most", count, MaxElements)
	}
	if size := len(tools.EncodeOrEmpty(sheet{Type: "canvas", V: 1, Elements: b.signURLs(elements)})); size > MaxBytes {
		return fmt.Errorf("the canvas would have %d bytes, and it has %d at most", size, MaxBytes)
	}
	return nil
}

// hasInputOrButton reports whether the user can answer with an input or a button.
func hasInputOrButton(elements []element) bool {
	return slices.ContainsFunc(elements, func(e element) bool {
		return e.Type == "input" || e.Type == "button" || hasInputOrButton(e.Elements)
	})
}
