package rtc

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/pion/sdp/v3"
	"github.com/pion/webrtc/v4"
	"golang.org/x/time/rate"

	"voxgate/media"
	"voxgate/media/g711"
	"voxgate/media/opus"
)

// maxSDP bounds an offer, in bytes: Chrome's with every codec and 20 candidates has 8 KiB.
const maxSDP = 32 << 10

// OfferRate and OfferBurst bound the offers of one client, a second and at once, restarts of ICE among them: each costs 3 ms, a candidate
// or a packet of sound 10 µs.
const (
	OfferRate  = rate.Limit(1)
	OfferBurst = 10
)

// NewOfferLimiter returns what bounds the offers of a client.
func NewOfferLimiter() *rate.Limiter { return rate.NewLimiter(OfferRate, OfferBurst) }

// defaultChannelMessage is the limit of a peer that names none, in bytes (RFC 8841 section 6.1).
const defaultChannelMessage = 64 << 10

// RefusedError says why an offer or a candidate cannot be served. Problem goes on after the name of that: "has no media
// section".
type RefusedError struct {
	Problem string
	Err     error // what pion said; may be nil
}

func (e *RefusedError) Error() string { return e.Problem }

// Offer is what must be known of an SDP offer before pion sees it.
type Offer struct {
	// Unseen are the codecs of a video section that cannot be looked at, in words; "": there is none.
	Unseen string

	sdp         string
	fingerprint string // of its DTLS certificate: another one is another peer
	ufrag       string // of ICE; a new one restarts it
	codec       *codec // of the voice; nil: no audio section
	voice       bool   // an audio section on which we may send
	red         bool   // an audio section with RED
	microphone  bool   // an audio section on which the client may send
	channel     bool   // a section for data channels
	maxMessage  int    // bytes, of the data channel
}

// Speaks reports whether the client may send sound, Listens whether it takes any, and Talks whether both.
func (o Offer) Speaks() bool  { return o.codec != nil && o.microphone }
func (o Offer) Listens() bool { return o.codec != nil && o.voice }
func (o Offer) Talks() bool   { return o.Speaks() && o.Listens() }

// codec is what a voice may travel as.
type codec struct {
	name     string // in an rtpmap
	mimeType string
	new      func(opus.DecoderChoice) media.Codec
}

// codecs are the best first.
var codecs = []codec{
	{"opus/48000/2", webrtc.MimeTypeOpus, func(c opus.DecoderChoice) media.Codec { return opus.Codec{Decoder: c} }},
	{"PCMU/8000", webrtc.MimeTypePCMU, func(opus.DecoderChoice) media.Codec { return g711.MuLaw }},
	{"PCMA/8000", webrtc.MimeTypePCMA, func(opus.DecoderChoice) media.Codec { return g711.ALaw }},
}

// ParseOffer reads an offer. What cannot be served is refused with a [RefusedError].
func ParseOffer(text string) (Offer, error) {
	o := Offer{sdp: text, maxMessage: defaultChannelMessage}
	bad := func(problem string) (Offer, error) { return o, &RefusedError{Problem: problem} }
	if text == "" {
		return bad("is missing or empty")
	}
	if len(text) > maxSDP {
		return bad(fmt.Sprintf("has %d bytes, more than %d", len(text), maxSDP))
	}
	var d sdp.SessionDescription
	if err := d.UnmarshalString(text); err != nil {
		return bad("cannot be read: " + err.Error())
	}
	if len(d.MediaDescriptions) == 0 {
		return bad("has no media section")
	}
	fingerprint, _ := d.Attribute("fingerprint")
	ufrag, _ := d.Attribute("ice-ufrag")
	var audio []*sdp.MediaDescription
	for _, m := range d.MediaDescriptions {
		if f, ok := m.Attribute("fingerprint"); ok && fingerprint == "" {
			fingerprint = f
		}
		if u, ok := m.Attribute("ice-ufrag"); ok && ufrag == "" {
			ufrag = u
		}
		if codecs := unseen(m); codecs != "" {
			o.Unseen = codecs
		}
		switch {
		case m.MediaName.Media == "audio" && m.MediaName.Port.Value != 0:
			audio = append(audio, m)
		case m.MediaName.Media == "application":
			o.channel = true
			if s, ok := m.Attribute("max-message-size"); ok {
				if n, err := strconv.Atoi(s); err == nil {
					o.maxMessage = n
				}
				if o.maxMessage <= 0 || o.maxMessage > maxChannelMessage { // 0: any size
					o.maxMessage = maxChannelMessage
				}
			}
		}
	}
	o.fingerprint, o.ufrag = strings.Clone(fingerprint), strings.Clone(ufrag) // or they would keep all of the text
	if o.fingerprint == "" {
		return bad("has no DTLS fingerprint")
	}
	if problem := o.readAudio(audio); problem != "" {
		return bad(problem)
	}
	return o, nil
}

// readAudio chooses the codec and reads the sections that have it. It returns what is wrong with them, or "".
func (o *Offer) readAudio(sections []*sdp.MediaDescription) (problem string) {
	var offered []string
	for _, m := range sections {
		offered = append(offered, codecNames(m)...)
	}
	for i := range codecs {
		if o.codec == nil && has(offered, codecs[i].name) {
			o.codec = &codecs[i]
		}
	}
	if o.codec == nil && len(sections) > 0 {
		return "offers no codec that is served here; Opus, PCMU and PCMA are, and the offer has " + strings.Join(offered, ", ")
	}
	for _, m := range sections {
		names := codecNames(m)
		if !has(names, o.codec.name) {
			continue
		}
		_, inactive := m.Attribute("inactive")
		_, sendonly := m.Attribute("sendonly")
		_, recvonly := m.Attribute("recvonly")
		o.red = o.red || has(names, "red/48000/2") && o.codec.mimeType == webrtc.MimeTypeOpus
		o.voice = o.voice || !inactive && !sendonly
		o.microphone = o.microphone || !inactive && !recvonly
	}
	return ""
}

// codecNames are the encodings of a media section, as "opus/48000/2"; static payload types without a name count, too.
func codecNames(m *sdp.MediaDescription) []string {
	static := map[string]string{"0": "PCMU/8000", "8": "PCMA/8000", "9": "G722/8000"} // RFC 3551 section 6
	names := map[string]string{}
	for _, a := range m.Attributes {
		if a.Key == "rtpmap" {
			if pt, name, ok := strings.Cut(a.Value, " "); ok {
				names[pt] = name
			}
		}
	}
	var list []string
	for _, pt := range m.MediaName.Formats {
		name := names[pt]
		if name == "" {
			name = static[pt]
		}
		if name != "" {
			list = append(list, name)
		}
	}
	return list
}

func has(names []string, name string) bool {
	return slices.ContainsFunc(names, func(n string) bool { return strings.EqualFold(n, name) })
}

// withoutSSRC leaves out which SSRCs an offer's audio has: pion drops what comes by others, and a sender may take another one at
// any time (RFC 3550, section 8.2; a telephone exchange does when it plays music on hold).
func withoutSSRC(text string) string {
	var b strings.Builder
	audio := false
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, "m=") {
			audio = strings.HasPrefix(line, "m=audio ")
		}
		if !audio || !strings.HasPrefix(line, "a=ssrc") {
			b.WriteString(line)
		}
	}
	return b.String()
}

// wireAnswer makes of pion's answer the one that is sent: no video goes to the client, and refused sections get what pion
// leaves out and aiortc insists on (allowed by RFC 8829 section 5.3.1): the offer's mid and the transport of the first
// section that was accepted.
func wireAnswer(answer, offer string) string {
	var a, o sdp.SessionDescription
	if a.UnmarshalString(answer) != nil || o.UnmarshalString(offer) != nil || len(a.MediaDescriptions) != len(o.MediaDescriptions) {
		return answer
	}
	var transport []sdp.Attribute
	for _, m := range a.MediaDescriptions {
		if m.MediaName.Port.Value == 0 {
			continue
		}
		for _, key := range []string{"ice-ufrag", "ice-pwd", "setup", "rtcp-mux"} {
			if v, ok := m.Attribute(key); ok {
				transport = append(transport, sdp.Attribute{Key: key, Value: v})
			}
		}
		break
	}
	for i, m := range a.MediaDescriptions {
		switch {
		case m.MediaName.Port.Value == 0:
			if mid, ok := o.MediaDescriptions[i].Attribute("mid"); ok {
				m.Attributes = append(m.Attributes, sdp.Attribute{Key: "mid", Value: mid})
			}
			m.Attributes = append(append(m.Attributes, transport...), sdp.Attribute{Key: "inactive"})
		case m.MediaName.Media == "video":
			answerVideo(m)
		case m.MediaName.Media == "audio":
			answerAudio(m, o.MediaDescriptions[i])
		}
	}
	b, err := a.Marshal()
	if err != nil {
		return answer
	}
	return string(b)
}

// answerAudio has sound go only where the offer lets it (RFC 3264, section 6.1): pion answers "sendonly" with "sendrecv", which a browser
// refuses.
func answerAudio(answer, offer *sdp.MediaDescription) {
	one := func(m *sdp.MediaDescription) (sends, takes bool) {
		_, inactive := m.Attribute("inactive")
		_, sendonly := m.Attribute("sendonly")
		_, recvonly := m.Attribute("recvonly")
		return !inactive && !recvonly, !inactive && !sendonly
	}
	theyGive, theyTake := one(offer)
	weGive, weTake := one(answer)
	direction := map[[2]bool]string{
		{true, true}: "sendrecv", {true, false}: "sendonly", {false, true}: "recvonly", {false, false}: "inactive",
	}[[2]bool{weGive && theyTake, weTake && theyGive}]
	for i, a := range answer.Attributes {
		switch a.Key {
		case "sendrecv", "sendonly", "recvonly", "inactive":
			answer.Attributes[i].Key = direction
		}
	}
}

// firstMid is the media section that carries the transport: all are bundled into the first one that is accepted.
func firstMid(text string) string {
	var d sdp.SessionDescription
	if err := d.UnmarshalString(text); err != nil {
		return ""
	}
	for _, m := range d.MediaDescriptions {
		if mid, ok := m.Attribute("mid"); ok && m.MediaName.Port.Value != 0 {
			return mid
		}
	}
	return ""
}
