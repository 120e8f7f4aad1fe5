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

// maxReferences bounds the references from tool results that a board remembers. No conversation is about so many pictures.
const maxReferences = 64

// Board holds a conversation's canvas. Its methods may be called concurrently.
type Board struct {
	sign func(url string) string // see NewBoard; nil if the gateway fetches no media

	mu         sync.Mutex
	created    bool
	elements   []element
	references []string // newest last
}

// NewBoard returns an empty board. sign maps an internet URL to its address on the gateway (see [Fetcher.Sign]). If
// sign is nil, URLs have no such address.
func NewBoard(sign func(url string) string) *Board { return &Board{sign: sign} }

// Put handles a call of a canvas tool with args, {"schema":"…"}. It returns the allowed part for the client:
// {"schema":"<JSON string>"}. interactive means that the user's answer must be awaited. An error is for the model, and
// changes nothing.
func (b *Board) Put(name string, args json.RawMessage) (clean json.RawMessage, interactive bool, err error) {
	if !IsCanvas(name) {
		return nil, false, fmt.Errorf("%s is not a canvas tool", name)
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
	s, err := readSheet(*canvasArguments.Schema, b.isKnown)
	if err != nil {
		return nil, false, err
	}
	if err := b.check(s.Elements); err != nil {
		return nil, false, err
	}
	all := s.Elements
	if name == Append {
		if !b.created {
			return nil, false, errors.New("there is no canvas to append to: call " + Create + " first")
		}
		if all, err = b.merge(s.Elements); err != nil {
			return nil, false, err
		}
	}
	b.created, b.elements = true, withoutPlaces(all)
	return b.encode(s), isInteractive(s.Elements), nil
}

// BuildQuestion returns the arguments with which a client shows the question of a tool. The parameter canvas has the form
// of "schema" in Put, and must have an input or a button. The board does not change.
func (b *Board) BuildQuestion(canvas json.RawMessage) (args json.RawMessage, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	s, err := readSheet(canvas, b.isKnown)
	if err != nil {
		return nil, err
	}
	if err := b.check(s.Elements); err != nil {
		return nil, err
	}
	if !isInteractive(s.Elements) {
		return nil, errors.New("a question must have an input or a button")
	}
	return b.encode(s), nil
}

// AddReferences remembers the references to images, audio and video in a tool's result. Only these may be shown.
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

func (b *Board) isKnown(reference string) bool { return slices.Contains(b.references, reference) }

// encode returns s as arguments for a client, with its URLs signed.
func (b *Board) encode(s *sheet) json.RawMessage {
	s.Elements = b.signURLs(s.Elements)
	return tools.Encode(map[string]string{"schema": string(tools.Encode(s))})
}

// signURLs returns a copy of elements, with a signed gateway address for each URL that the gateway is to fetch.
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

// merge returns the elements of the board after an append. An added element with the ID of an existing one replaces the existing one,
// even in a form.
func (b *Board) merge(added []element) ([]element, error) {
	all := withoutPlaces(b.elements)
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
	return all, b.check(all)
}

// findElement returns a pointer to the element with an ID, or nil. form is true if the element is inside a form.
func findElement(elements []element, id string) (place *element, form bool) {
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

// withoutPlaces returns a copy of elements as stored on a board, without their places in a schema.
func withoutPlaces(elements []element) []element {
	elements = slices.Clone(elements)
	for i := range elements {
		elements[i].at = ""
		if elements[i].Elements != nil {
			elements[i].Elements = withoutPlaces(elements[i].Elements)
		}
	}
	return elements
}

// check returns an error if a canvas as a whole is invalid.
func (b *Board) check(elements []element) error {
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
	if size := len(tools.Encode(sheet{Type: "canvas", V: 1, Elements: b.signURLs(elements)})); size > MaxBytes {
		return fmt.Errorf("the canvas would have %d bytes, and it has %d at most", size, MaxBytes)
	}
	return nil
}

// isInteractive reports whether the user can answer.
func isInteractive(elements []element) bool {
	return slices.ContainsFunc(elements, func(e element) bool {
		return e.Type == "input" || e.Type == "button" || isInteractive(e.Elements)
	})
}
