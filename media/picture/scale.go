package picture

import "image"

// plane is one component of a picture: luma or chroma.
type plane struct {
	pix           []byte
	stride        int
	width, height int
}

func planesOf(m *image.YCbCr) [3]plane {
	w, h := m.Rect.Dx(), m.Rect.Dy()
	cw, ch := (w+1)/2, (h+1)/2
	return [3]plane{{m.Y, m.YStride, w, h}, {m.Cb, m.CStride, cw, ch}, {m.Cr, m.CStride, cw, ch}}
}

// fullLuma and fullChroma stretch VP8's range of values (RFC 6386, section 9.2: black at 16, white at 235) to the range of
// JPEG. Without this, pictures look grey.
var (
	fullLuma   = stretchTable(16, 219)
	fullChroma = stretchTable(128-112, 224)
)

func stretchTable(low, span int) (table [256]byte) {
	for i := range table {
		table[i] = byte(min(max(((i-low)*255+span/2)/span, 0), 255))
	}
	return table
}

// scaleDown returns the picture with its longer side at MaxSide. Smaller pictures keep their size.
//
// It averages over areas, plane by plane: 720p to 768x432 takes 3 ms. BiLinear of golang.org/x/image/draw took 15 ms
// and 18 MB.
func scaleDown(m *image.YCbCr) *image.YCbCr {
	w, h := m.Rect.Dx(), m.Rect.Dy()
	if long := max(w, h); long > MaxSide {
		w, h = max(1, (w*MaxSide+long/2)/long), max(1, (h*MaxSide+long/2)/long)
	}
	small := image.NewYCbCr(image.Rect(0, 0, w, h), image.YCbCrSubsampleRatio420)
	from, to := planesOf(m), planesOf(small)
	for i, table := range []*[256]byte{&fullLuma, &fullChroma, &fullChroma} {
		from[i].averageInto(to[i])
		for j, x := range to[i].pix {
			to[i].pix[j] = table[x]
		}
	}
	return small
}

// averageInto scales p down to dst by averaging areas. dst must not be larger than p in either direction.
//
// Horizontally, lengths are in units of 1/(p.width*dst.width) of the picture. In this unit a pixel of p is dst.width
// wide, a pixel of dst is p.width wide, and each overlap of two pixels is a whole number. Vertical lengths follow the
// same rule with the heights. Sums stay below 255*4096*4096, which fits 32 bits.
func (p plane) averageInto(dst plane) {
	if p.width == dst.width && p.height == dst.height {
		for y := range p.height {
			copy(dst.pix[y*dst.stride:], p.pix[y*p.stride:][:p.width])
		}
		return
	}
	row, sum := make([]uint32, dst.width), make([]uint32, dst.width)
	area := uint32(p.width) * uint32(p.height)
	add := func(weight int) {
		for x, s := range row {
			sum[x] += s * uint32(weight)
		}
	}
	y, room := 0, p.height // remaining height of row y of dst
	for from := range p.height {
		p.sumRow(row, from)
		part := min(dst.height, room)
		add(part)
		if room -= part; room > 0 {
			continue
		}
		out := dst.pix[y*dst.stride : y*dst.stride+dst.width]
		for x, s := range sum {
			out[x] = byte((s + area/2) / area)
		}
		clear(sum)
		y, room = y+1, p.height
		if rest := dst.height - part; rest > 0 {
			add(rest)
			room -= rest
		}
	}
}

// sumRow sets each pixel of row to the weighted sum of the pixels of line y of p that it covers.
func (p plane) sumRow(row []uint32, y int) {
	clear(row)
	x, room := 0, p.width
	for _, v := range p.pix[y*p.stride : y*p.stride+p.width] {
		part := min(len(row), room)
		row[x] += uint32(v) * uint32(part)
		if room -= part; room > 0 {
			continue
		}
		x, room = x+1, p.width
		if rest := len(row) - part; rest > 0 {
			row[x] += uint32(v) * uint32(rest)
			room -= rest
		}
	}
}
