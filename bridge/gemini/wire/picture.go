package wire

import (
	"bytes"
	"errors"
	"fmt"
	"image"
	"image/jpeg"
	"image/png"
)

// maxPictureSide is the maximum width and height of a picture, in pixels. It is enough for 48 megapixels, where the
// longer side has 8,064. More is useless, because the model scales pictures to 768 pixels
// (https://ai.google.dev/gemini-api/docs/live-guide).
const maxPictureSide = 8192

// IsPicture reports whether the models accept pictures of a media type, which must be in lower case and without
// parameters.
func IsPicture(mediaType string) bool {
	return mediaType == "image/jpeg" || mediaType == "image/png" || mediaType == "image/webp"
}

// CheckPicture validates the header of a picture of a type that [IsPicture] accepts, in a few microseconds. Google does
// not document how models react to unreadable pictures. The error is for the client. Its text continues a sentence that
// begins with the name of the field.
func CheckPicture(mimeType string, data []byte) error {
	var size image.Config
	var err error
	switch mimeType {
	case "image/jpeg":
		size, err = jpeg.DecodeConfig(bytes.NewReader(data))
	case "image/png":
		size, err = png.DecodeConfig(bytes.NewReader(data))
	case "image/webp":
		if len(data) < 12 || string(data[:4]) != "RIFF" || string(data[8:12]) != "WEBP" {
			return fmt.Errorf("is not an image of the type %s", mimeType)
		}
		return nil
	default:
		return fmt.Errorf("is %.64q, not image/jpeg, image/png or image/webp", mimeType)
	}
	switch {
	case err != nil:
		return fmt.Errorf("is not an image of the type %s", mimeType)
	case size.Width < 1 || size.Height < 1:
		return errors.New("is a picture without a size")
	case max(size.Width, size.Height) > maxPictureSide:
		return fmt.Errorf("is a picture of %d x %d pixels; a side has %d at most", size.Width, size.Height, maxPictureSide)
	}
	return nil
}
