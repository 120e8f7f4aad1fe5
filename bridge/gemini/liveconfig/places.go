package liveconfig

import (
	"bytes"
	"encoding/json"
	"strings"

	"voxgate/tools"
)

// textPlaces holds the places in a function's arguments where the model has to write JSON as text. nil means that there
// are no such places.
type textPlaces struct {
	isText     bool
	properties map[string]*textPlaces
	items      *textPlaces
}

// removeTextMarks removes every textMark from a translated schema, and returns the places of the marks.
func removeTextMarks(s map[string]any) (found *textPlaces) {
	if s[textMark] != nil {
		delete(s, textMark)
		found = &textPlaces{isText: true}
	}
	if properties, ok := s["properties"].(map[string]any); ok {
		for name, below := range properties {
			schema, _ := below.(map[string]any)
			if places := removeTextMarks(schema); places != nil {
				found = found.merge(&textPlaces{properties: map[string]*textPlaces{name: places}})
			}
		}
	}
	if items, ok := s["items"].(map[string]any); ok {
		if places := removeTextMarks(items); places != nil {
			found = found.merge(&textPlaces{items: places})
		}
	}
	if options, ok := s["anyOf"].([]any); ok {
		for _, below := range options {
			option, _ := below.(map[string]any)
			found = found.merge(removeTextMarks(option))
		}
	}
	return found
}

func (p *textPlaces) addProperty(name string, places *textPlaces) {
	if places == nil {
		return
	}
	if p.properties == nil {
		p.properties = map[string]*textPlaces{}
	}
	p.properties[name] = p.properties[name].merge(places)
}

// merge adds the places of an alternative schema for the same value, and returns the result. p and other may be nil.
func (p *textPlaces) merge(other *textPlaces) *textPlaces {
	switch {
	case p == nil:
		return other
	case other == nil:
		return p
	}
	p.isText = p.isText || other.isText
	for name, places := range other.properties {
		p.addProperty(name, places)
	}
	p.items = p.items.merge(other.items)
	return p
}

// decodeTexts returns a function's arguments in which the texts at these places are replaced by the JSON that they
// contain.
func (p *textPlaces) decodeTexts(args json.RawMessage) json.RawMessage {
	if p == nil {
		return args
	}
	tree, err := tools.Decode(args)
	if err != nil {
		return args // unchanged, because Function.Check reports the error
	}
	return tools.EncodeOrEmpty(p.decodeValue(tree))
}

func (p *textPlaces) decodeValue(value any) any {
	if p == nil {
		return value
	}
	switch v := value.(type) {
	case string:
		if p.isText {
			return decodeJSONText(v)
		}
	case []any:
		for i := range v {
			v[i] = p.items.decodeValue(v[i])
		}
	case map[string]any:
		for name, places := range p.properties {
			if below, given := v[name]; given {
				v[name] = places.decodeValue(below)
			}
		}
	}
	return value
}

// decodeJSONText decodes an object or list that the model has written as JSON in a text, with or without a Markdown
// code fence. Any other text is returned unchanged.
func decodeJSONText(text string) any {
	body := strings.TrimSpace(text)
	if fenced, ok := strings.CutPrefix(body, "```"); ok {
		body = strings.TrimSpace(strings.TrimSuffix(strings.TrimPrefix(fenced, "json"), "```"))
	}
	if body == "" || !bytes.ContainsAny([]byte(body[:1]), "{[") {
		return text
	}
	if value, err := tools.Decode([]byte(body)); err == nil {
		return value
	}
	return text
}
