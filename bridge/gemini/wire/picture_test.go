package wire_test

import (
	"bytes"
	"image"
	"image/jpeg"
	"image/png"
	"strings"
	"testing"

	"voxgate/bridge/gemini/wire"
)

func TestCheckPicture(t *testing.T) {
	encoded := func(kind string, width, height int) []byte {
		var b bytes.Buffer
		picture := image.NewGray(image.Rect(0, 0, width, height))
		var err error
		if kind == "jpeg" {
			err = jpeg.Encode(&b, picture, nil)
		} else {
			err = png.Encode(&b, picture)
		}
		if err != nil {
			t.Fatal(err)
		}
		return b.Bytes()
	}
	photo, drawing := encoded("jpeg", 640, 480), encoded("png", 10, 10)
	for _, c := range []struct {
		name, mimeType string
		data           []byte
		want           string // a piece of the error; "" for none
	}{
		{"JPEG", "image/jpeg", photo, ""},
		{"PNG", "image/png", drawing, ""},
		{"PNG called JPEG", "image/jpeg", drawing, "not an image of the type image/jpeg"},
		{"JPEG called PNG", "image/png", photo, "not an image of the type image/png"},
		{"nothing", "image/jpeg", nil, "not an image"},
		{"text", "image/png", []byte("hello"), "not an image"},
		{"a JPEG's beginning", "image/jpeg", photo[:4], "not an image"},
		{"a PNG's beginning", "image/png", drawing[:12], "not an image"},
		{"too wide", "image/png", encoded("png", 8193, 1), "8193 x 1 pixels"},
		{"GIF", "image/gif", []byte("GIF89a"), "not image/jpeg, image/png or image/webp"},
	} {
		err := wire.CheckPicture(c.mimeType, c.data)
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.name, err, c.want)
		}
	}
}

// FuzzPicture checks arbitrary headers. An accepted picture has a size within the limits.
func FuzzPicture(f *testing.F) {
	f.Add([]byte("\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR\x00\x00\x00\x01\x00\x00\x00\x01\x08\x02\x00\x00\x00"))
	f.Add([]byte("\xff\xd8\xff\xe0\x00\x10JFIF\x00\x01\x01\x00\x00\x01\x00\x01\x00\x00\xff\xc0\x00\x0b\x08\x00\x01\x00\x01\x01\x01\x11\x00"))
	f.Add([]byte("\xff\xd8\xff\xc4\x00\x02\xff\xff\xff"))
	f.Fuzz(func(t *testing.T, data []byte) {
		for _, kind := range []string{"image/jpeg", "image/png"} {
			if wire.CheckPicture(kind, data) != nil {
				continue
			}
			if c, format, err := image.DecodeConfig(bytes.NewReader(data)); err != nil || "image/"+format != kind || min(c.Width, c.Height) < 1 ||
				max(c.Width, c.Height) > 8192 {
				t.Errorf("%s is let through: %v, %s of %dx%d", kind, err, format, c.Width, c.Height)
			}
		}
	})
}
