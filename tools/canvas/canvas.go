// Package canvas implements the canvas that a model shows to a user: the model's tools for it, the validation of its
// content, and the delivery of pages and images in it.
package canvas

import "voxgate/tools"

// The names of the canvas tools.
const (
	Create = "create_canvas_tool"
	Append = "append_to_canvas_tool"
	Show   = "show_canvas_tool"
)

// IsCanvasTool reports whether a tool of this name is a canvas tool.
func IsCanvasTool(name string) bool { return name == Create || name == Append || name == Show }

// Declarations returns the declarations of the canvas tools. The model does not wait for their results if it can avoid
// that, because a user may type for minutes.
func Declarations() []tools.Declaration {
	return []tools.Declaration{
		newDeclaration(Create, "Showing canvas…", `Creates a new scrollable canvas overlay (destroying any previous canvas). `+
			`Use this to start a new UI sheet for the user. `+schemaRule+` describing the initial elements to display. `+
			elementTypes+` Call this before using append_to_canvas_tool.`,
			`{"type":"canvas","elements":[{"type":"text","value":"Hello <b>World</b>!"}]}`),
		newDeclaration(Append, "Adding to the canvas…", `Appends new elements to the current canvas overlay (previously created with `+
			`create_canvas_tool). Use this to add more UI elements below the existing ones. `+schemaRule+
			` describing the elements to append. `+elementTypes+` An element whose id is on the canvas replaces that one. `+
			`Do not use this if a canvas has not been created yet.`,
			`{"type":"canvas","elements":[{"type":"text","value":"Another <i>message</i>."}]}`),
		newDeclaration(Show, "Showing canvas…", `Displays a vertical sheet/canvas overlay with any combination of UI elements in the `+
			`order specified by the schema. `+schemaRule+`. `+elementTypes+` A button's action is submit, dismiss or a plain name. `+
			`Returns the user's input as a map of the inputs' ids and the pressed button's action, or an acknowledgment. `+
			`A "Hide" button is always there: do not add one.`,
			`{"type":"canvas","elements":[{"type":"text","value":"Some <b>bold</b> text."},`+
				`{"type":"input","label":"Your name","id":"name","hint":"Enter name..."},`+
				`{"type":"button","label":"Submit","action":"submit"}]}`),
	}
}

const (
	schemaRule = `The 'schema' argument MUST be a JSON string (all keys and string values use double quotes)`

	elementTypes = `Supported element types: text (supports HTML like '<b>bold</b>', '<i>italic</i>'), image, input, button, ` +
		`list (items), form (elements), audio, video.`
)

func newDeclaration(name, title, description, example string) tools.Declaration {
	parameters := tools.EncodeOrEmpty(map[string]any{
		"type":     "object",
		"required": []string{"schema"},
		"properties": map[string]any{"schema": map[string]string{
			"type": "string", "description": "What to show, as a JSON string, e.g., " + example,
		}},
	})
	return tools.Declaration{
		Name: name, Title: title, Description: description, Parameters: parameters,
		Behavior: tools.NonBlocking, Timeout: tools.PersonTimeout,
	}
}
