package bridge

import (
	"bytes"
	"encoding/json"
	"slices"

	"voxgate/bridge/gemini/wire"
)

// SetFrame gives the model a picture to look at. The newest wins, and not more than one a second is sent. changed is false
// if it shows what the one before did: then it is sent only while the person speaks.
func (s *Session) SetFrame(mimeType string, data []byte, changed bool) {
	s.up.Picture(wire.Blob{MIMEType: mimeType, Data: data}, changed)
}

// ClearFrame forgets the picture that SetFrame gave: what it showed is no longer to be seen.
func (s *Session) ClearFrame() { s.up.Blind() }

// pictureFor is what the person shows, to go with a typed turn, unless that has a picture of its own or nothing: the model
// looks at a stream of pictures only while it hears somebody.
func (s *Session) pictureFor(parts json.RawMessage) *wire.Blob {
	var list []map[string]json.RawMessage
	if json.Unmarshal(parts, &list) != nil || len(list) == 0 {
		return nil // only the end of what was typed before
	}
	for _, p := range list {
		if p["inlineData"] != nil || p["inline_data"] != nil {
			return nil
		}
	}
	return s.up.Seen()
}

// withPicture is the parts of a turn with its picture. They are joined when they are sent, by the link's writer: a turn that
// waits shares its picture, and the loop does not wait for megabytes of base64.
func withPicture(parts json.RawMessage, picture *wire.Blob) json.RawMessage {
	parts = bytes.TrimSpace(parts)
	if picture == nil || !bytes.HasSuffix(parts, []byte("]")) {
		return parts
	}
	inline, err := json.Marshal(map[string]*wire.Blob{"inlineData": picture})
	if err != nil {
		return parts
	}
	return slices.Concat(parts[:len(parts)-1], []byte(","), inline, []byte("]")) // a turn without parts has no picture
}
