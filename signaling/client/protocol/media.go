package protocol

import (
	"bytes"
	"encoding/json"
	"fmt"
	"mime"
	"strconv"
	"strings"

	"voxgate/bridge"
	"voxgate/bridge/gemini/wire"
	"voxgate/media"
)

// blob holds media in a client's message.
type blob struct {
	MIMEType string `json:"mimeType"`
	Data     string `json:"data"`
}

// encodedLength returns the encoded length of the data, in bytes. b may be nil.
func (b *blob) encodedLength() int {
	if b == nil {
		return 0
	}
	return len(b.Data)
}

// decodeData returns the data and the media type, in lower case and without parameters.
func (b blob) decodeData(field string) (mediaType string, data []byte, err error) {
	mediaType, _, err = mime.ParseMediaType(b.MIMEType)
	if err != nil {
		return "", nil, BadField(field+".mimeType", fmt.Sprintf("%q is not a media type", ClipText(b.MIMEType)))
	}
	if b.Data == "" {
		return "", nil, BadField(field+".data", "is missing or empty")
	}
	data, err = media.DecodeBase64(b.Data)
	if err != nil {
		return "", nil, BadField(field+".data", "is not base64: "+err.Error())
	}
	if len(data) > maxImage {
		return "", nil, BadField(field+".data", fmt.Sprintf("has %d bytes, more than %d", len(data), maxImage))
	}
	return mediaType, data, nil
}

// decodePicture returns the data and the media type of an image. It rejects types other than those of [wire.IsPicture],
// and data that is not an image of the type.
func (b blob) decodePicture(field string) (mediaType string, data []byte, err error) {
	mediaType, data, err = b.decodeData(field)
	if err != nil {
		return "", nil, err
	}
	if !wire.IsPicture(mediaType) {
		return "", nil, BadField(field+".mimeType", fmt.Sprintf("%q is not image/jpeg, image/png or image/webp", ClipText(mediaType)))
	}
	if err := wire.CheckPicture(mediaType, data); err != nil {
		return "", nil, BadField(field+".data", err.Error())
	}
	return mediaType, data, nil
}

// checkTypedMedia validates media in a typed turn: an image, or audio at Google's rate. Google closes with 1008 for other
// rates (measured, @memberjunction/ai-gemini).
func (b blob) checkTypedMedia(field string) error {
	if !strings.HasPrefix(strings.ToLower(b.MIMEType), "audio/") {
		_, _, err := b.decodePicture(field)
		return err
	}
	_, rate, err := b.decodePCM(field, &media.SampleReader{})
	if err == nil && rate != defaultRate {
		err = BadField(field+".mimeType", fmt.Sprintf("has a rate of %d; audio in a typed turn must have %d", rate, defaultRate))
	}
	return err
}

// defaultRate is the sample rate in Hz of audio/pcm without a rate parameter. It is that of the Live API.
const defaultRate = 16000

// decodePCM returns the audio of a blob and its rate in Hz. The audio may be empty. stream keeps a sample that the blob
// cuts in two, and completes it with the next blob.
func (b blob) decodePCM(field string, stream *media.SampleReader) (pcm []int16, rate int, err error) {
	mediaType, data := "audio/pcm", []byte(nil)
	if b.Data != "" {
		if mediaType, data, err = b.decodeData(field); err != nil {
			return nil, 0, err
		}
	}
	if mediaType != "audio/pcm" && mediaType != "audio/l16" && mediaType != "audio/x-l16" {
		return nil, 0, BadField(field+".mimeType", fmt.Sprintf("%q is not audio/pcm", ClipText(mediaType)))
	}
	rate = defaultRate
	_, params, _ := mime.ParseMediaType(b.MIMEType) // cannot fail: decodeData has parsed it
	if r, ok := params["rate"]; ok {
		if rate, err = strconv.Atoi(r); err != nil || rate < 8000 || rate > 48000 {
			return nil, 0, BadField(field+".mimeType", fmt.Sprintf("has a rate of %q; it must be 8000 to 48000", ClipText(r)))
		}
	}
	return stream.Append(nil, data), rate, nil
}

// RealtimeInput is the content of a SEND_REALTIME_INPUT.
type RealtimeInput struct {
	Commands   []bridge.Command // text and activity marks, in order
	Pauses     bool             // the marks include activityEnd or audioStreamEnd, after which the microphone is silent
	Deprecated bool             // sent as chunks or mediaChunks
	PCM        []int16          // nil without audio
	Rate       int              // of PCM in Hz, 8000 to 48000
	MediaType  string           // media type of Picture: JPEG or PNG
	Picture    []byte           // nil without an image
}

// ParseRealtimeInput parses SEND_REALTIME_INPUT. stream joins the pieces of the client's audio. Unusable audio is a
// [bridge.CodeInvalidAudioFormat].
func (m ClientMessage) ParseRealtimeInput(stream *media.SampleReader) (RealtimeInput, error) {
	var p realtimePayload
	if err := m.DecodePayload(&p); err != nil {
		return RealtimeInput{}, err
	}
	old, err := p.convertDeprecated()
	if err != nil {
		return RealtimeInput{}, err
	}
	if err := m.checkLength(p.Video.encodedLength()); err != nil {
		return RealtimeInput{}, err
	}
	in := RealtimeInput{Pauses: bool(p.ActivityEnd || p.AudioStreamEnd), Deprecated: old}
	if p.Audio != nil {
		if p.Audio.Data == "" && !bytes.Contains(m.Payload, []byte(`"data"`)) { // data may be empty, but not missing
			bad := *BadField("payload.audio.data", "is missing")
			bad.Code = bridge.CodeInvalidAudioFormat
			return RealtimeInput{}, &bad
		}
		if in.PCM, in.Rate, err = p.Audio.decodePCM("payload.audio", stream); err != nil {
			bad := *bridge.AsError(err)
			bad.Code = bridge.CodeInvalidAudioFormat
			return RealtimeInput{}, &bad
		}
	}
	if p.Video != nil {
		if in.MediaType, in.Picture, err = p.Video.decodePicture("payload.video"); err != nil {
			return RealtimeInput{}, err
		}
	}
	if p.Text != nil {
		in.Commands = append(in.Commands, bridge.Text{Text: *p.Text})
	}
	if p.ActivityStart {
		in.Commands = append(in.Commands, bridge.ActivityStart)
	}
	if p.ActivityEnd {
		in.Commands = append(in.Commands, bridge.ActivityEnd)
	}
	if p.AudioStreamEnd {
		in.Commands = append(in.Commands, bridge.AudioStreamEnd)
	}
	if in.Pauses {
		stream.Reset()
	}
	if p.Audio == nil && !old && in.Picture == nil && len(in.Commands) == 0 {
		return RealtimeInput{}, BadField("payload", "has neither text, audio, video nor a mark")
	}
	return in, nil
}

type realtimePayload struct {
	Text           *string         `json:"text"`
	Audio          *blob           `json:"audio"`
	Video          *blob           `json:"video"`
	ActivityStart  activityFlag    `json:"activityStart"`
	ActivityEnd    activityFlag    `json:"activityEnd"`
	AudioStreamEnd activityFlag    `json:"audioStreamEnd"`
	Chunks         json.RawMessage `json:"chunks"`
	MediaChunks    json.RawMessage `json:"mediaChunks"`
}

// activityFlag accepts true or an object, because Google uses {} for two of the three activity marks.
type activityFlag bool

// UnmarshalJSON implements [json.Unmarshaler].
func (a *activityFlag) UnmarshalJSON(raw []byte) error {
	if raw[0] == '{' {
		*a = true
		return nil
	}
	return json.Unmarshal(raw, (*bool)(a))
}

// convertDeprecated converts the deprecated chunks or mediaChunks to audio or an image. Only the first chunk is used.
// isDeprecated reports whether the payload has one of the deprecated fields.
func (p *realtimePayload) convertDeprecated() (isDeprecated bool, err error) {
	raw, field := p.Chunks, "payload.chunks"
	if raw == nil {
		raw, field = p.MediaChunks, "payload.mediaChunks"
	}
	raw = bytes.TrimSpace(raw)
	if len(raw) == 0 || bytes.Equal(raw, []byte("null")) {
		return false, nil
	}
	if raw[0] == '[' {
		var chunks []json.RawMessage
		if err := json.Unmarshal(raw, &chunks); err != nil {
			return true, badJSON(field, err)
		}
		if len(chunks) == 0 {
			return true, BadField(field, "is empty")
		}
		raw, field = chunks[0], field+"[0]"
	}
	var b blob
	if err := json.Unmarshal(raw, &b); err != nil {
		return true, badJSON(field, err)
	}
	switch {
	case strings.HasPrefix(strings.ToLower(b.MIMEType), "image/"):
		p.Video = &b
	case strings.HasPrefix(strings.ToLower(b.MIMEType), "audio/"), b.Data == "":
		p.Audio = &b
	default:
		return true, BadField(field+".mimeType", fmt.Sprintf("%q is neither audio/pcm nor an image", ClipText(b.MIMEType)))
	}
	return true, nil
}
