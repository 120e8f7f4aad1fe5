package mediastream

import (
	"bytes"
	"cmp"
	"encoding/base64"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"

	"voxgate/media"
	"voxgate/signaling"
	"voxgate/signaling/phone"
	"voxgate/tools"
)

// messageKind is the kind of a provider's message.
type messageKind int

const (
	kindIgnored messageKind = iota // a message that the gateway does not need
	kindStart
	kindSound
	kindDigit
	kindPlayed // the sound before a mark was played or dropped
	kindPause  // the provider accepts no more sound for now
	kindResume
	kindHold // the caller is on hold
	kindUnhold
	kindPing // keep-alive request
	kindStop
)

// message is a provider's message, independent of its format.
type message struct {
	kind  messageKind
	start startInfo
	sound []byte
	chunk int    // number of the message among those with sound, from 1; 0 if the provider sends none
	digit byte   // 0 to 9, *, #, A to D
	mark  string // name of the mark; empty stands for the newest mark
}

// startInfo holds the data of a start message.
type startInfo struct {
	isProbe bool   // connection test by the provider, without a call
	call    string // the provider's call ID
	party   phone.Party
	format  format
}

// command is a kind of message that we can send to a provider.
type command int

const (
	clearVoice command = iota // drop the sound that was not played yet
	putMark                   // report when all sound before the mark was played
	hangUp
	pressKeys
	acceptCall    // accept the call
	answerPing    // answer to kindPing
	confirmHangUp // answer to kindStop
	sendKeepAlive // shows that the connection is alive, even if the model says nothing
)

// dialect describes the message format of a provider. A path such as "start.callSid" names a field in nested objects of
// a message.
type dialect struct {
	fullNumbers bool   // numbers are in international format, without "+"
	probeCallID string // call ID of the provider's connection tests; empty if the provider has no such test

	binary      bool // sound comes in binary messages, otherwise in a [soundMessage]
	soundIsList bool // sound in JSON is a list of 16-bit numbers, otherwise base64
	plainText   bool // messages may be plain text: "DTMF_END digit:5"

	eventPath string                 // path of the type of a message, if it is not at "event" or "type"
	events    map[string]messageKind // kinds by message type; without a kindStart, the first message without a type begins the call

	call, stream, from, to, name string // paths in the start message
	attributes                   string // path of an object or a string in the start message: see parseAttributes
	encoding, rate               string
	key, mark                    string // paths in other messages
	format                       format // used if the start message names no format
	offersPath                   string // path of a list of formats in the start message: see [chooseOffer]
	packing                      packing

	// commands and voiceTemplate are templates of the messages that we send. Their placeholders:
	//   - {sound}: the audio in base64, or as a list of {count} numbers
	//   - {stream}, {encoding}, {rate}, {chosen}: values of the provider's start message
	//   - {what}: the name of a mark, or the keys that were pressed, in JSON
	//   - {seq}: the number of messages that we have sent
	//   - {theirs}: the field "seq" of the newest message that we have received
	commands      map[command]string
	voiceTemplate string
}

// packing controls how much sound we put into one message to the provider.
type packing struct {
	framesPerMessage int  // frames of 20 ms per message; 0 means 1
	padsLast         bool // messages are always full; the end of a sentence is padded
	sendsSilence     bool // silence is sent while the model does not speak, for each message received
}

// dialectCodec encodes and decodes the messages of one call. Only one goroutine may call parseProviderMessage. The
// first call of parseProviderMessage must return before any other method is called. Calls of encodeVoice must not
// overlap.
type dialectCodec struct {
	*dialect
	hasStarted     bool
	usesJSON       bool // the provider sends JSON, so our commands are JSON, even if plainText is set
	streamID       any
	encoding       string
	format         format
	prefix, suffix string // text before and after the sound in a message
	chosenOffer    any    // the format that we have chosen among those offered; nil if the dialect has no offers
	isStereo       bool   // sound has two channels, with the caller on the left
	leftChannel    []byte
	lastSeq        uint64
	peerSeq        atomic.Uint64
}

// parseProviderMessage parses a message. An error concerns only this message, so the call can continue.
func (c *dialectCodec) parseProviderMessage(data []byte, text bool) (message, error) {
	if !text {
		return c.parseBinary(data)
	}
	if !c.binary { // fast path for most messages
		var s soundMessage
		if json.Unmarshal(data, &s) == nil && (s.Event == soundEvent || s.EventType == soundEvent) {
			return c.parseSound(s)
		}
	}
	fields, err := c.parseFields(data)
	if err != nil {
		return message{}, err
	}
	event := cmp.Or(textAt(fields, "event"), textAt(fields, "type"), textAt(fields, c.eventPath))
	if n, err := strconv.ParseUint(textAt(fields, "seq"), 10, 64); err == nil {
		c.peerSeq.Store(n)
	}
	m := message{kind: c.events[event]}
	switch {
	case event == "" && c.hasStartEvent():
		return m, errors.New("message without a type")
	case c.hasStarted && m.kind == kindStart:
		m.kind = kindIgnored
	case !c.hasStarted && (m.kind == kindStart || event == "" && !c.hasStartEvent()):
		m.kind = kindStart
		m.start, err = c.parseStart(fields)
	case event == soundEvent && !c.binary:
		err = errBadSound
	case m.kind == kindDigit:
		m.digit, err = parseDigit(textAt(fields, c.key))
	case m.kind == kindPlayed:
		m.mark = textAt(fields, c.mark)
	}
	return m, err
}

// hasStartEvent reports whether the dialect has a message type that begins a call.
func (c *dialectCodec) hasStartEvent() bool {
	for _, what := range c.events {
		if what == kindStart {
			return true
		}
	}
	return false
}

// parseFields parses a text message.
func (c *dialectCodec) parseFields(data []byte) (map[string]any, error) {
	if c.plainText && !bytes.HasPrefix(bytes.TrimSpace(data), []byte("{")) {
		words := strings.Fields(string(data))
		if len(words) == 0 {
			return nil, errors.New("empty message")
		}
		fields := map[string]any{"event": words[0]}
		for _, w := range words[1:] {
			if name, value, ok := strings.Cut(w, ":"); ok {
				fields[name] = value
			}
		}
		return fields, nil
	}
	value, err := tools.Decode(data)
	fields, ok := value.(map[string]any)
	if err != nil || !ok {
		return nil, errors.New("message is not a JSON object")
	}
	if !c.hasStarted { // set only before the start of the call, because other goroutines read usesJSON after it
		c.usesJSON = true
	}
	return fields, nil
}

func (c *dialectCodec) parseBinary(data []byte) (message, error) {
	switch {
	case !c.binary:
		return message{}, errors.New("binary message in a format with sound as text")
	case c.hasStarted && c.isStereo:
		c.leftChannel = c.leftChannel[:0]
		for i := 0; i < len(data); i += 2 {
			c.leftChannel = append(c.leftChannel, data[i])
		}
		return message{kind: kindSound, sound: c.leftChannel}, nil
	case c.hasStarted:
		return message{kind: kindSound, sound: data}, nil
	case c.hasStartEvent():
		return message{}, errSoundEarly
	}
	s, err := c.parseStart(nil) // the stream has no start message, so it begins with sound
	return message{kind: kindStart, start: s}, err
}

// parseStart parses the start message, and sets the formats of the call's messages.
func (c *dialectCodec) parseStart(fields map[string]any) (s startInfo, err error) {
	rate, err := parseRate(textAt(fields, c.rate))
	if err != nil {
		return s, err
	}
	c.encoding = textAt(fields, c.dialect.encoding)
	if c.format, err = parseFormat(c.encoding, rate, c.dialect.format); err != nil {
		return s, err
	}
	if c.offersPath != "" {
		if c.chosenOffer, c.isStereo, err = chooseOffer(valueAt(fields, c.offersPath)); err != nil {
			return s, err
		}
	}
	c.hasStarted, c.streamID = true, textAt(fields, c.dialect.stream)
	c.prefix, c.suffix, _ = strings.Cut(c.fillTemplate(c.dialect.voiceTemplate, ""), "{sound}")
	s = startInfo{
		call: textAt(fields, c.call), format: c.format,
		party: c.newParty(textAt(fields, c.from), textAt(fields, c.to), textAt(fields, c.name)),
	}
	s.isProbe = c.probeCallID != "" && s.call == c.probeCallID
	s.party.Attributes = c.parseAttributes(fields)
	return s, nil
}

// chooseOffer selects one of the audio formats that AudioHook offers. It prefers the caller alone. Otherwise it selects
// stereo, where the agent is on the right channel
// (https://developer.genesys.cloud/devapps/audiohook/session-walkthrough).
func chooseOffer(offers any) (chosen any, isStereo bool, err error) {
	list, _ := offers.([]any)
	for _, one := range list {
		fields, _ := one.(map[string]any)
		channels, _ := fields["channels"].([]any)
		if textAt(fields, "format") != "PCMU" || textAt(fields, "rate") != "8000" || len(channels) == 0 || channels[0] != "external" {
			continue
		}
		if len(channels) == 1 {
			return one, false, nil
		}
		chosen, isStereo = one, len(channels) == 2
	}
	if !isStereo {
		return nil, false, errors.New("the caller's sound is not offered as PCMU")
	}
	return chosen, true, nil
}

// parseAttributes returns the attributes in the start message. Most providers send a JSON object. Plivo sends a string
// that contains an object. A string that contains no object becomes one attribute.
func (c *dialectCodec) parseAttributes(fields map[string]any) (attributes phone.Attributes) {
	value := valueAt(fields, c.attributes)
	if s, ok := value.(string); ok {
		inside, err := tools.Decode([]byte(s))
		if err != nil {
			attributes.Add(c.attributes[strings.LastIndex(c.attributes, ".")+1:], s)
		}
		value = inside
	}
	object, _ := value.(map[string]any)
	for _, name := range slices.Sorted(maps.Keys(object)) {
		attributes.Add(name, formatText(object[name]))
	}
	return attributes
}

var (
	errSoundEarly = errors.New("sound before the start message")
	errBadSound   = errors.New("invalid sound")
)

// soundEvent is the event name of a message with sound.
const soundEvent = "media"

func (c *dialectCodec) parseSound(s soundMessage) (m message, err error) {
	if !c.hasStarted {
		return m, errSoundEarly
	}
	if strings.HasPrefix(string(cmp.Or(s.Media.Track, s.Track)), "outbound") {
		return m, nil // the model's voice, sent back to us
	}
	encoded := s.Media.Payload
	switch {
	case s.EventType != "":
		encoded = s.Payload
	case c.soundIsList:
		var list samplesMessage
		if err := json.Unmarshal(s.Data, &list); err != nil {
			return m, errBadSound
		}
		if list.Rate != c.format.rate { // Ozonetel's first message has another rate and must be ignored
			return m, nil
		}
		encoded = encodedSound{data: media.AppendBytes(nil, list.Samples)}
	}
	if encoded.isInvalid {
		return m, errBadSound
	}
	m.kind, m.sound, m.chunk = kindSound, encoded.data, int(s.Media.Chunk)
	return m, nil
}

// encodeVoice builds a message with encoded sound. It does not keep the slice sound.
func (c *dialectCodec) encodeVoice(sound []byte) signaling.Outgoing {
	if c.binary {
		return signaling.Outgoing{Data: bytes.Clone(sound)}
	}
	if c.soundIsList {
		b := []byte(c.prefix)
		pcm := media.AppendSamples(nil, sound)
		for i, x := range pcm {
			if i > 0 {
				b = append(b, ',')
			}
			b = strconv.AppendInt(b, int64(x), 10)
		}
		return signaling.Outgoing{Data: append(b, strings.Replace(c.suffix, "{count}", strconv.Itoa(len(pcm)), 1)...), Text: true}
	}
	b := make([]byte, 0, len(c.prefix)+base64.StdEncoding.EncodedLen(len(sound))+len(c.suffix))
	b = base64.StdEncoding.AppendEncode(append(b, c.prefix...), sound)
	return signaling.Outgoing{Data: append(b, c.suffix...), Text: true}
}

// buildCommand builds the message for a command. argument is the name of a mark, or keys. ok is false if the provider
// does not support the command. Commands must be sent in the order in which they were built.
func (c *dialectCodec) buildCommand(kind command, argument string) (m signaling.Outgoing, ok bool) {
	text, ok := c.dialect.commands[kind]
	if !ok {
		return signaling.Outgoing{}, false
	}
	if c.plainText && c.usesJSON {
		text = `{"command":"` + text + `"}`
	}
	return signaling.Outgoing{Data: []byte(c.fillTemplate(text, argument)), Text: true}, true
}

// fillTemplate replaces the placeholders in a template.
func (c *dialectCodec) fillTemplate(text, argument string) string {
	if strings.Contains(text, "{seq}") {
		c.lastSeq++
	}
	return strings.NewReplacer(
		"{stream}", quoteJSON(c.streamID), "{encoding}", quoteJSON(c.encoding), "{rate}", strconv.Itoa(c.format.rate),
		"{what}", quoteJSON(argument), "{chosen}", quoteJSON(c.chosenOffer),
		"{seq}", strconv.FormatUint(c.lastSeq, 10), "{theirs}", strconv.FormatUint(c.peerSeq.Load(), 10),
	).Replace(text)
}

// quoteJSON encodes a value as JSON.
func quoteJSON(v any) string { return string(tools.EncodeOrEmpty(v)) }

// textAt returns the text at a path of a JSON object. See [formatText].
func textAt(fields map[string]any, path string) string { return formatText(valueAt(fields, path)) }

// formatText returns a string or number as text, and "" for other values.
func formatText(value any) string {
	switch v := value.(type) {
	case string:
		return v
	case json.Number:
		return v.String()
	}
	return ""
}

// valueAt returns the value at a path, or nil.
func valueAt(fields map[string]any, path string) any {
	for {
		name, rest, deeper := strings.Cut(path, ".")
		if !deeper {
			return fields[name]
		}
		fields, _ = fields[name].(map[string]any)
		path = rest
	}
}

func parseDigit(key string) (digit byte, err error) {
	if len(key) != 1 || !strings.Contains("0123456789*#ABCD", key) {
		return 0, errors.New("not a telephone key") // the error does not contain the key, which may be part of a secret
	}
	return key[0], nil
}
