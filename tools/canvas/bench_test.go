package canvas_test

import (
	"strings"
	"testing"

	"voxgate/tools/canvas"
)

// BenchmarkPut is what it costs to look at a canvas: a usual one, and the longest.
func BenchmarkPut(b *testing.B) {
	for name, schema := range map[string]string{
		"usual": `{"type":"canvas","elements":[{"type":"text","value":"<h2>Pizza</h2>Which one do you <b>want</b>?"},{"type":"image","src":"https://example.com/a.jpg"},` +
			`{"type":"input","id":"name","label":"Your name"},{"type":"button","label":"Order","action":"submit"}]}`,
		"longest": `{"type":"text","value":"` + strings.Repeat("<p>Some <b>bold</b> text. </p>", 8000) + `"}`,
	} {
		b.Run(name, func(b *testing.B) {
			board := canvas.NewBoard(func(url string) string { return url })
			call := args(schema)
			b.ReportAllocs()
			for b.Loop() {
				if _, _, err := board.Put(canvas.Create, call); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
