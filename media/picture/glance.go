package picture

import "image"

// grid is the number of cells of a thumbnail in each direction. A cell is large enough that noise averages out within
// it. A hand in front of a camera covers a dozen cells.
const grid = 32

// thumbnail is a picture reduced for comparison: the brightness of its cells.
type thumbnail struct {
	size  image.Point // size of the picture
	cells [grid * grid]byte
}

// A cell has changed if its brightness differs by more than cellChange of 255 levels. A picture has changed if at least
// changeCells of its cells have changed.
//
// Measured on drawn scenes at all qualities of the encoder, in 640x480. The worst noise (10 levels) and the coarsest
// key frames (1 KB) change a cell by at most 7 levels. Changed cells:
//
//   - a hand of 60x90 pixels that moves by its width: 36
//   - a hand of 36x54 pixels: 15 to 17
//   - a head that sways by 4 pixels: 0 to 29
//   - on a screen of 1080p: a new slide 31, a line of small print 6, a word 5, the pointer 2
const (
	cellChange  = 12
	changeCells = 4
)

func newThumbnail(m *image.YCbCr) thumbnail {
	g := thumbnail{size: m.Rect.Size()}
	y := planesOf(m)[0]
	w, h := min(grid, y.width), min(grid, y.height)
	y.averageInto(plane{g.cells[:], grid, w, h})
	return g
}

// differsFrom reports whether t shows something other than old. It ignores a camera's change of exposure.
func (t thumbnail) differsFrom(old thumbnail) bool {
	return t.size != old.size || t.countChangedCells(old) >= changeCells
}

// countChangedCells counts the cells that have changed.
func (t thumbnail) countChangedCells(old thumbnail) int {
	shift := 0
	for i, c := range t.cells {
		shift += int(c) - int(old.cells[i])
	}
	shift /= len(t.cells)
	if shift > cellChange || shift < -cellChange {
		return len(t.cells) // a light was switched on or off
	}
	n := 0
	for i, c := range t.cells {
		if d := int(c) - int(old.cells[i]) - shift; d > cellChange || d < -cellChange {
			n++
		}
	}
	return n
}
