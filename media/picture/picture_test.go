package picture_test

import (
	"bytes"
	"encoding/binary"
	"image"
	"image/color"
	"image/jpeg"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/pion/rtp"
	"github.com/pion/rtp/codecs"

	"voxgate/media/picture"
)

// frames returns the frames of an IVF file in testdata.
func frames(t testing.TB, name string) [][]byte {
	t.Helper()
	b, err := os.ReadFile("testdata/" + name)
	if err != nil {
		t.Fatal(err)
	}
	var all [][]byte
	for b = b[32:]; len(b) > 0; {
		n := binary.LittleEndian.Uint32(b)
		all = append(all, b[12:12+n])
		b = b[12+n:]
	}
	return all
}

// mtu is small enough that even the smallest frame needs several packets.
const mtu = 120

// camera converts frames to packets.
type camera struct {
	payloader codecs.VP8Payloader
	next      rtp.Header
}

func newCamera(sequence uint16) *camera {
	return &camera{payloader: codecs.VP8Payloader{EnablePictureID: true}, next: rtp.Header{Version: 2, SequenceNumber: sequence}}
}

func (c *camera) packets(frame []byte) []*rtp.Packet {
	var all []*rtp.Packet
	c.next.Timestamp += 90000
	parts := c.payloader.Payload(mtu, frame)
	for i, part := range parts {
		h := c.next
		h.Marker = i == len(parts)-1
		all = append(all, &rtp.Packet{Header: h, Payload: part})
		c.next.SequenceNumber++
	}
	return all
}

// wall records the pictures that a viewer shows.
type wall struct {
	t       testing.TB
	viewer  *picture.Extractor
	now     time.Time
	shown   []image.Image
	bytes   []int
	changed []bool
	missing []uint16 // numbers that AddPacket returned for the newest packet
}

func newWall(t testing.TB) *wall {
	w := &wall{t: t, now: time.Unix(1e9, 0)}
	w.viewer = picture.NewExtractor(new(sync.Mutex), func(b []byte, changed bool) {
		m, err := jpeg.Decode(bytes.NewReader(b))
		if err != nil {
			t.Fatalf("not a JPEG: %v", err)
		}
		w.shown = append(w.shown, m)
		w.bytes = append(w.bytes, len(b))
		w.changed = append(w.changed, changed)
	})
	return w
}

func (w *wall) packets(all []*rtp.Packet) {
	for _, p := range all {
		w.missing = w.viewer.AddPacket(p, w.now)
		clear(p.Payload) // the payload belongs to the caller again
	}
}

// frame sends a frame to the viewer, one second after the frame before it.
func (w *wall) frame(c *camera, data []byte) {
	w.now = w.now.Add(time.Second)
	w.packets(c.packets(data))
}

func TestNoiseIsNotAChange(t *testing.T) {
	w, c := newWall(t), newCamera(65530)
	for _, f := range frames(t, "room.ivf") {
		w.frame(c, f)
	}
	for range 3 {
		w.frame(c, frames(t, "room.ivf")[3])
	}
	w.frame(c, frames(t, "room.ivf")[0])
	// In the third frame the hand moves. The fourth frame is only brighter.
	want := []bool{true, false, true, false, false, false, false, true}
	if !slices.Equal(w.changed, want) {
		t.Errorf("changed: %v, want %v", w.changed, want)
	}
	if size := w.shown[0].Bounds().Size(); size != image.Pt(320, 240) {
		t.Errorf("a small picture became %v", size)
	}
}

func TestSlidesAreScaled(t *testing.T) {
	w, c := newWall(t), newCamera(0)
	for _, f := range frames(t, "slides.ivf") {
		w.frame(c, f)
	}
	if !slices.Equal(w.changed, []bool{true, true}) {
		t.Fatalf("changed: %v", w.changed)
	}
	m := w.shown[1]
	if size := m.Bounds().Size(); size != image.Pt(768, 432) {
		t.Fatalf("1280x720 became %v", size)
	}
	for _, at := range []struct {
		x, y int
		want color.RGBA
	}{{400, 300, color.RGBA{255, 255, 255, 255}}, {700, 60, color.RGBA{255, 0, 0, 255}}, {700, 370, color.RGBA{0, 0, 255, 255}}} {
		r, g, b, _ := m.At(at.x, at.y).RGBA()
		for i, got := range []uint32{r >> 8, g >> 8, b >> 8} {
			want := []uint8{at.want.R, at.want.G, at.want.B}[i]
			if d := int(got) - int(want); d > 12 || d < -12 {
				t.Errorf("at %d,%d stands %d,%d,%d, want %v", at.x, at.y, r>>8, g>>8, b>>8, at.want)
				break
			}
		}
	}
	darkest := uint8(255)
	for x := 60; x < 360; x++ { // across the line of text
		for y := 120; y < 150; y++ {
			darkest = min(darkest, color.GrayModel.Convert(m.At(x, y)).(color.Gray).Y)
		}
	}
	if darkest > 60 {
		t.Errorf("the words are grey: %d", darkest)
	}
	if w.bytes[1] < 2000 || w.bytes[1] > 40_000 {
		t.Errorf("%d bytes", w.bytes[1])
	}
}

func TestPacketLoss(t *testing.T) {
	key := frames(t, "room.ivf")
	for _, c := range []struct {
		name   string
		damage func([]*rtp.Packet) []*rtp.Packet
		shown  int // pictures of the damaged frame and the next frame
		lost   uint64
	}{
		{"none", func(p []*rtp.Packet) []*rtp.Packet { return p }, 2, 0},
		{"first", func(p []*rtp.Packet) []*rtp.Packet { return p[1:] }, 1, 0},
		{"middle", func(p []*rtp.Packet) []*rtp.Packet { return slices.Delete(p, 1, 2) }, 1, 1},
		{"last", func(p []*rtp.Packet) []*rtp.Packet { return p[:len(p)-1] }, 1, 1},
		{"all but the first", func(p []*rtp.Packet) []*rtp.Packet { return p[:1] }, 1, 1},
		{"turned around", func(p []*rtp.Packet) []*rtp.Packet { slices.Reverse(p[1:]); return p }, 2, 0},
		{"doubled", func(p []*rtp.Packet) []*rtp.Packet {
			return append(p[:2:2], append([]*rtp.Packet{p[1].Clone()}, p[2:]...)...)
		}, 2, 0},
		{"padding within", func(p []*rtp.Packet) []*rtp.Packet {
			h := p[0].Header
			h.SequenceNumber = p[len(p)-1].SequenceNumber + 1
			return append(p, &rtp.Packet{Header: h})
		}, 2, 0},
	} {
		for _, sequence := range []uint16{0, 65533, 65535} {
			w, cam := newWall(t), newCamera(sequence)
			w.now = w.now.Add(time.Second)
			w.packets(c.damage(cam.packets(key[0])))
			w.frame(cam, key[2])
			if s := w.viewer.Stats(); len(w.shown) != c.shown || s.Incomplete != c.lost || s.Shown != uint64(c.shown) || s.Broken != 0 {
				t.Errorf("%s from %d: %d shown, %+v", c.name, sequence, len(w.shown), s)
			}
		}
	}
}

func TestMissingPacketsAreRequested(t *testing.T) {
	key := frames(t, "room.ivf")[0]
	for _, c := range []struct {
		name string
		lost []int
	}{{"none", nil}, {"one", []int{1}}, {"the last", []int{3}}, {"all but the first", []int{1, 2, 3}}} {
		w, cam := newWall(t), newCamera(65534)
		all := cam.packets(key)
		if len(all) != 4 {
			t.Fatalf("%d packets", len(all))
		}
		var came, late []*rtp.Packet
		var want []uint16
		for i, p := range all {
			if slices.Contains(c.lost, i) {
				late = append(late, p)
				want = append(want, p.SequenceNumber)
			} else {
				came = append(came, p)
			}
		}
		w.packets(came)
		if got := w.missing; got != nil {
			t.Errorf("%s: %v is missed before its time", c.name, got)
		}
		inter := slices.Concat([]byte{1}, key[1:200])
		for i := range 5 { // later frames of two packets each
			for j, p := range cam.packets(inter) {
				expect := want
				if j > 0 || i >= 3 {
					expect = nil // requested once per frame, three times in all
				}
				w.packets([]*rtp.Packet{p})
				if got := w.missing; !slices.Equal(got, expect) {
					t.Errorf("%s: %v is missing, want %v", c.name, got, expect)
				}
			}
		}
		w.packets(late)
		if len(w.shown) != 1 {
			t.Errorf("%s: %d pictures", c.name, len(w.shown))
		}
	}
}

func TestOnePicturePerSecond(t *testing.T) {
	key := frames(t, "room.ivf")[0]
	for _, c := range []struct {
		name  string
		every func(i int) time.Duration
		want  int // pictures in 30 s
		slack int
	}{
		{"five a second", func(int) time.Duration { return 200 * time.Millisecond }, 30, 1},
		{"a trembling second", func(i int) time.Duration { return time.Second + time.Duration(i%3-1)*50*time.Millisecond }, 30, 1},
		{"one in two seconds", func(int) time.Duration { return 2 * time.Second }, 15, 1},
	} {
		w, cam := newWall(t), newCamera(0)
		start := w.now
		for i := 0; w.now.Sub(start) < 30*time.Second; i++ {
			w.packets(cam.packets(key))
			w.now = w.now.Add(c.every(i))
		}
		if n := len(w.shown); n < c.want-c.slack || n > c.want+c.slack {
			t.Errorf("%s: %d pictures in 30 s", c.name, n)
		}
	}
}

func TestOnlyKeyFrames(t *testing.T) {
	key := frames(t, "room.ivf")[0]
	inter := slices.Clone(key)
	inter[0] |= 1
	w, c := newWall(t), newCamera(0)
	w.frame(c, inter)
	w.frame(c, key[:3])
	if s := w.viewer.Stats(); s != (picture.Stats{}) {
		t.Errorf("%+v", s)
	}
}

// resized returns a copy of the frame with another size in its header.
func resized(frame []byte, width, height int) []byte {
	f := slices.Clone(frame)
	binary.LittleEndian.PutUint16(f[6:], uint16(width))
	binary.LittleEndian.PutUint16(f[8:], uint16(height))
	return f
}

func TestInvalidSizes(t *testing.T) {
	key := frames(t, "room.ivf")[0]
	for _, size := range []image.Point{{0, 0}, {2, 2}, {320, 8}, {16383, 16383}, {4097, 100}, {4096, 4096}} {
		w, c := newWall(t), newCamera(0)
		w.frame(c, resized(key, size.X, size.Y))
		if s := w.viewer.Stats(); len(w.shown) != 0 || s.Broken != 1 {
			t.Errorf("%v: %+v", size, s)
		}
		w.frame(c, key)
		if len(w.shown) != 1 {
			t.Errorf("after %v no picture is shown", size)
		}
	}
}

func TestSizeChange(t *testing.T) {
	w, c := newWall(t), newCamera(0)
	slide, room := frames(t, "slides.ivf")[0], frames(t, "room.ivf")[0]
	for _, f := range [][]byte{slide, room, slide} {
		w.frame(c, f)
	}
	if !slices.Equal(w.changed, []bool{true, true, true}) || w.shown[1].Bounds().Size() != image.Pt(320, 240) {
		t.Errorf("%v, %v", w.changed, w.shown[1].Bounds())
	}
}

func TestFrameSizeLimit(t *testing.T) {
	key := frames(t, "room.ivf")[0]
	w, c := newWall(t), newCamera(0)
	w.frame(c, append(slices.Clone(key), make([]byte, 2<<20)...))
	if s := w.viewer.Stats(); s.Incomplete != 1 || s.Shown != 0 {
		t.Errorf("%+v", s)
	}
	w.frame(c, key)
	if len(w.shown) != 1 {
		t.Error("after it no picture is shown")
	}
}

func FuzzVP8(f *testing.F) {
	for _, name := range []string{"room.ivf", "slides.ivf"} {
		for _, frame := range frames(f, name) {
			f.Add(frame, uint16(mtu))
		}
	}
	key := frames(f, "room.ivf")[0]
	f.Add(resized(key, 16383, 16383), uint16(30))
	f.Add(resized(key, 4096, 2304), uint16(1000))
	f.Add(resized(key, 17, 33), uint16(1000))
	f.Add(key[:40], uint16(20))
	f.Fuzz(func(t *testing.T, data []byte, cut uint16) {
		if w, h := announced(data); w*h > 1<<18 && w*h <= 4096*2304 {
			t.Skip("large pictures go the same way, only slower")
		}
		v := picture.NewExtractor(new(sync.Mutex), func(b []byte, _ bool) {
			if m, err := jpeg.DecodeConfig(bytes.NewReader(b)); err != nil || max(m.Width, m.Height) > picture.MaxSide {
				t.Errorf("%dx%d, %v", m.Width, m.Height, err)
			}
		})
		// The viewer gets the frame in packets, and then pieces of the same bytes as payloads of their own.
		now := time.Unix(1e9, 0)
		c := newCamera(65534)
		parts := c.payloader.Payload(max(cut, 10), data)
		for i, part := range parts {
			c.next.Marker = i == len(parts)-1
			v.AddPacket(&rtp.Packet{Header: c.next, Payload: part}, now)
			c.next.SequenceNumber++
		}
		for rest := data; len(rest) > 0; {
			n := min(len(rest), int(cut)%1200+1)
			c.next.Marker = len(rest) == n
			v.AddPacket(&rtp.Packet{Header: c.next, Payload: rest[:n]}, now.Add(time.Minute))
			c.next.SequenceNumber++
			rest = rest[n:]
		}
	})
}

func announced(data []byte) (width, height int) {
	if len(data) < 10 {
		return 0, 0
	}
	return int(binary.LittleEndian.Uint16(data[6:])) & 0x3fff, int(binary.LittleEndian.Uint16(data[8:])) & 0x3fff
}
