package rtc

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/pion/ice/v4"
	"github.com/pion/webrtc/v4"
	"golang.org/x/time/rate"

	"voxgate/media"
	"voxgate/media/g711"
	"voxgate/media/opus"
)

// maxSDP limits the size of an offer, in bytes. Chrome's offer with every codec and 20 candidates has 8 KiB.
const maxSDP = 32 << 10

// OfferRate and OfferBurst limit the offers of one client, including restarts of ICE. An offer costs 3 ms, a candidate or an
// audio packet 10 µs.
const (
	OfferRate  = rate.Limit(1) // per second
	OfferBurst = 10
)

// NewOfferLimiter returns a rate limiter for the offers of one client.
func NewOfferLimiter() *rate.Limiter { return rate.NewLimiter(OfferRate, OfferBurst) }

// defaultChannelMessage is the message limit of a peer that announces none, in bytes (RFC 8841 section 6.1).
const defaultChannelMessage = 64 << 10

// RefusedError reports why an offer or a candidate is rejected. Problem completes a sentence that begins with "the
// offer" or "the candidate", for example "has no media section".
type RefusedError struct {
	Problem string
	Err     error // the cause, for example an error from Pion; may be nil
}

func (e *RefusedError) Error() string { return e.Problem }

// Offer is a parsed SDP offer. It records which sections are accepted, and with which formats.
type Offer struct {
	// UnsupportedVideo lists the codecs of an offered video section if none of them is supported; else it is "".
	UnsupportedVideo string

	from       description
	sections   []section
	group      []string // mids of the accepted BUNDLE group in the offer's order; nil if the accepted section is in no group
	transport  transport
	mixed      bool   // the session has the attribute extmap-allow-mixed
	codec      *codec // codec of all audio sections; nil without an accepted audio section
	voice      bool   // we may send on an accepted audio section
	microphone bool   // the client may send on an accepted audio section
	channel    bool   // a section for data channels is accepted
	maxMessage int    // size of the longest message that the client accepts on the data channel, in bytes
}

// withoutText returns a copy of an answered offer with only the fields that are needed later. The 20 KB of the offer's
// text can then be freed.
func (o Offer) withoutText() Offer {
	o.from, o.sections, o.group, o.transport.candidates = description{}, nil, nil, nil
	o.transport.fingerprint, o.transport.ufrag, o.transport.pwd = strings.Clone(o.transport.fingerprint),
		strings.Clone(o.transport.ufrag), ""
	o.transport.setup = strings.Clone(o.transport.setup)
	return o
}

// transport is the client's side of the transport that all accepted sections share.
type transport struct {
	ufrag, pwd  string // ICE credentials; a new ufrag restarts ICE
	fingerprint string // fingerprint of the DTLS certificate; a different one means a new peer
	setup       string // "active", "passive" or "actpass"
	lite        bool   // ICE lite
	candidates  []string
}

// section is one media section of an offer.
type section struct {
	*mediaDescription
	mid       string
	hasMid    bool      // mid is from the offer; otherwise we assigned mid, and the answer omits it
	offered   bool      // the client offers the section: see isOffered
	accepted  bool      // the answer accepts the section
	client    direction // direction of the media from the client's view
	encodings []webrtc.RTPCodecParameters
}

// SendsAudio reports whether the client may send audio. ReceivesAudio reports whether the client receives audio.
func (o Offer) SendsAudio() bool    { return o.microphone }
func (o Offer) ReceivesAudio() bool { return o.voice }

// codec is a supported codec for audio.
type codec struct {
	name     string // encoding name as in a=rtpmap
	mimeType string
	new      func(opus.DecoderChoice) media.Codec
}

// codecs lists the supported codecs in order of preference.
var codecs = []codec{
	{"opus/48000/2", webrtc.MimeTypeOpus, func(c opus.DecoderChoice) media.Codec { return opus.Codec{Decoder: c} }},
	{"PCMU/8000", webrtc.MimeTypePCMU, func(opus.DecoderChoice) media.Codec { return g711.MuLaw }},
	{"PCMA/8000", webrtc.MimeTypePCMA, func(opus.DecoderChoice) media.Codec { return g711.ALaw }},
}

// Encoding names of further formats, as in a=rtpmap.
const (
	redName = "red/48000/2"
	vp8Name = "VP8/90000"
)

// maxAccepted limits the accepted audio and video sections. Each of them needs a receiver.
const maxAccepted = 8

// ParseOffer parses an offer. It returns a [RefusedError] if the offer is not supported.
func ParseOffer(text string) (Offer, error) {
	bad := func(problem string) (Offer, error) { return Offer{}, &RefusedError{Problem: problem} }
	if text == "" {
		return bad("is missing or empty")
	}
	if len(text) > maxSDP {
		return bad(fmt.Sprintf("has %d bytes, more than %d", len(text), maxSDP))
	}
	d, err := parseDescription(strings.Clone(text)) // cloned, so that the parts that are kept do not retain the whole request
	switch {
	case err != nil:
		return bad("cannot be read: " + err.Error())
	case len(d.media) == 0:
		return bad("has no media section")
	}
	return negotiateOffer(d, nil)
}

// negotiateOffer decides how to answer an offer. current is the codec that the connection already uses, or nil. If the
// offer still has that codec, it stays in use.
func negotiateOffer(d description, current *codec) (Offer, error) {
	o := Offer{from: d, maxMessage: defaultChannelMessage, mixed: d.attributes.hasKey("extmap-allow-mixed")}
	groups := parseBundles(d)
	err := o.parseSections(d, groups)
	if err == nil {
		err = o.acceptSections(groups, current)
	}
	if err == nil {
		err = o.parseTransport(d)
	}
	if err != nil {
		return Offer{}, &RefusedError{Problem: err.Error()}
	}
	return o, nil
}

// parseBundles returns the mids of each BUNDLE group (RFC 9143 section 7).
func parseBundles(d description) (groups [][]string) {
	for _, value := range d.attributes.values("group") {
		if fields := strings.Fields(value); len(fields) > 0 && fields[0] == "BUNDLE" {
			groups = append(groups, fields[1:])
		}
	}
	return groups
}

// isOffered reports whether a client offers a section. A section with port 0 is withdrawn, unless it is in a BUNDLE
// group and has a=bundle-only (RFC 9143 section 6, RFC 8829 section 5.2.1).
func isOffered(m *mediaDescription, isBundled bool) bool {
	return m.port != 0 || isBundled && m.attributes.hasKey("bundle-only")
}

// parseSections parses the sections. A section without a direction or a mid gets a default.
func (o *Offer) parseSections(d description, groups [][]string) error {
	mids := map[string]bool{}
	for _, m := range d.media {
		if mid, _ := m.attributes.value("mid"); mid != "" {
			if strings.ContainsAny(mid, " \t") {
				return fmt.Errorf("has a media section with the mid %q, which is no token", clipText(mid))
			}
			if mids[mid] {
				return fmt.Errorf("has two media sections with the mid %q", clipText(mid))
			}
			mids[mid] = true
		}
	}
	byDefault, ok := d.attributes.direction() // direction of sections without one (RFC 8866 section 6.7)
	if !ok {
		byDefault = direction{true, true}
	}
	for i, m := range d.media {
		s := section{mediaDescription: m, client: byDefault}
		if s.mid, _ = m.attributes.value("mid"); s.mid != "" {
			s.hasMid = true
		} else {
			for s.mid = strconv.Itoa(i); mids[s.mid]; {
				s.mid = "x" + s.mid
			}
			mids[s.mid] = true
		}
		if d, ok := m.attributes.direction(); ok {
			s.client = d
		}
		s.offered = isOffered(m, slices.ContainsFunc(groups, func(mids []string) bool { return s.hasMid && slices.Contains(mids, s.mid) }))
		s.encodings = parseFormats(m)
		o.sections = append(o.sections, s)
	}
	return nil
}

// parseFormats returns the formats of an audio or video section. Static payload types need no rtpmap.
func parseFormats(m *mediaDescription) (formats []webrtc.RTPCodecParameters) {
	if m.kind != "audio" && m.kind != "video" {
		return nil
	}
	names := map[string]string{"0": "PCMU/8000", "8": "PCMA/8000", "9": "G722/8000"} // RFC 3551 section 6
	if m.kind == "video" {
		clear(names)
	}
	for _, value := range m.attributes.values("rtpmap") {
		if pt, name, ok := strings.Cut(value, " "); ok {
			names[pt] = normalizeEncoding(name)
		}
	}
	parameters := map[string]string{}
	for _, value := range m.attributes.values("fmtp") {
		if pt, line, ok := strings.Cut(value, " "); ok && parameters[pt] == "" {
			parameters[pt] = strings.TrimSpace(line)
		}
	}
	for _, pt := range m.formats {
		number, err := strconv.ParseUint(pt, 10, 7)
		if err != nil || names[pt] == "" {
			continue
		}
		f := webrtc.RTPCodecParameters{PayloadType: webrtc.PayloadType(number)}
		f.MimeType, f.SDPFmtpLine = m.kind+"/"+names[pt], parameters[pt]
		for _, value := range m.attributes.values("rtcp-fb") {
			if of, feedback, ok := strings.Cut(value, " "); ok && (of == pt || of == "*") {
				kind, parameter, _ := strings.Cut(strings.TrimSpace(feedback), " ")
				f.RTCPFeedback = append(f.RTCPFeedback, webrtc.RTCPFeedback{Type: kind, Parameter: parameter})
			}
		}
		formats = append(formats, f)
	}
	return formats
}

// normalizeEncoding returns an encoding name without "/1": one audio channel is the default (RFC 8866 section 6.6).
func normalizeEncoding(name string) string { return strings.TrimSuffix(strings.TrimSpace(name), "/1") }

// containsName reports whether a list contains an encoding name. It ignores case (RFC 8866 section 6.6).
func containsName(names []string, name string) bool {
	return slices.ContainsFunc(names, func(n string) bool { return strings.EqualFold(n, name) })
}

// findFormat returns the first format with a name.
func (s *section) findFormat(name string) (f webrtc.RTPCodecParameters, ok bool) {
	i := slices.IndexFunc(s.encodings, func(f webrtc.RTPCodecParameters) bool { return strings.EqualFold(f.MimeType, s.kind+"/"+name) })
	if i < 0 {
		return f, false
	}
	return s.encodings[i], true
}

// audioFormats returns the formats for the answer to an audio section: the codec c, and Opus with RED if offered. ok is
// false if c is not offered.
func (s *section) audioFormats(c *codec) (plain, red webrtc.RTPCodecParameters, hasRED, ok bool) {
	if plain, ok = s.findFormat(c.name); !ok {
		return plain, red, false, false
	}
	plain.MimeType = c.mimeType
	plain.ClockRate = 8000
	if c.mimeType == webrtc.MimeTypeOpus {
		plain.ClockRate, plain.Channels = 48000, 2
		if red, hasRED = s.findFormat(redName); hasRED {
			red.MimeType, red.ClockRate, red.Channels = mimeTypeRED, 48000, 2
		}
	}
	return plain, red, hasRED, true
}

// videoFormat returns the format for the answer to a video section.
func (s *section) videoFormat() (f webrtc.RTPCodecParameters, ok bool) {
	f, ok = s.findFormat(vp8Name)
	f.MimeType, f.ClockRate = webrtc.MimeTypeVP8, 90000
	return f, ok
}

// Protocol names in m= lines: of audio and video sections, all of them RTP over DTLS (RFC 8829 section 5.1.2), and of
// data channels (RFC 8841 section 4 and its drafts).
var (
	mediaProtocols = []string{
		"UDP/TLS/RTP/SAVPF", "UDP/TLS/RTP/SAVP", "TCP/TLS/RTP/SAVPF", "TCP/TLS/RTP/SAVP", "TCP/DTLS/RTP/SAVPF", "TCP/DTLS/RTP/SAVP",
		"RTP/SAVPF", "RTP/SAVP", "RTP/AVPF", "RTP/AVP",
	}
	channelProtocols = []string{"UDP/DTLS/SCTP", "TCP/DTLS/SCTP", "DTLS/SCTP"}
)

// isOldChannel reports whether a section for data channels has the form of the drafts of RFC 8841: "DTLS/SCTP 5000".
func (s *section) isOldChannel() bool { return s.proto == "DTLS/SCTP" }

// isUsable reports whether the section's kind is supported, and at least one of its formats.
func (s *section) isUsable(c *codec) bool {
	switch s.kind {
	case "audio":
		if c == nil {
			return false
		}
		_, ok := s.findFormat(c.name)
		return ok && slices.Contains(mediaProtocols, s.proto)
	case "video":
		_, ok := s.videoFormat()
		return ok && slices.Contains(mediaProtocols, s.proto)
	case "application":
		return slices.Contains(channelProtocols, s.proto) && (s.formats[0] == "webrtc-datachannel" || s.isOldChannel())
	}
	return false
}

// acceptSections accepts the supported sections that share one transport. That is the transport of the first supported
// audio section or, if there is none, of the first supported section. If this section is in no BUNDLE group, it is the
// only one accepted (RFC 9143 section 7.3).
func (o *Offer) acceptSections(groups [][]string, chosen *codec) error {
	var audio []string // names of all offered audio formats
	offered := false
	for i := range o.sections {
		s := &o.sections[i]
		offered = offered || s.offered
		if s.kind == "audio" && s.offered {
			audio = append(audio, encodingNames(s.encodings)...)
			if len(s.encodings) == 0 {
				audio = append(audio, "none")
			}
		}
		if s.kind == "video" && s.offered && s.client.sends {
			if _, ok := s.videoFormat(); !ok {
				o.UnsupportedVideo = cmp.Or(strings.Join(videoCodecNames(s.encodings), ", "), "nothing that has a name")
			}
		}
	}
	if !offered { // the client has stopped all sections
		return nil
	}
	for i := range codecs {
		if c := &codecs[i]; o.codec == nil && containsName(audio, c.name) || c == chosen && containsName(audio, c.name) {
			o.codec = c
		}
	}
	if o.codec == nil && len(audio) > 0 {
		return fmt.Errorf("offers no codec that is served here; Opus, PCMU and PCMA are, and the offer has %s", strings.Join(audio, ", "))
	}
	first := o.firstUsable("audio")
	if first < 0 {
		first = o.firstUsable("")
	}
	if first < 0 || o.codec != nil && o.sections[first].kind != "audio" {
		return errNothingServed
	}
	i := slices.IndexFunc(groups, func(mids []string) bool {
		return o.sections[first].hasMid && slices.Contains(mids, o.sections[first].mid)
	})
	if i >= 0 {
		o.group = groups[i]
	}
	o.acceptBundled(first)
	return nil
}

var errNothingServed = errors.New("has no supported media section: audio, VP8 video or data channel")

// firstUsable returns the index of the first usable section of a kind, or -1. If kind is empty, any kind counts.
func (o *Offer) firstUsable(kind string) int {
	return slices.IndexFunc(o.sections, func(s section) bool { return s.offered && (kind == "" || s.kind == kind) && s.isUsable(o.codec) })
}

// acceptBundled accepts the section with index first, and the usable sections that share its transport.
func (o *Offer) acceptBundled(first int) {
	media := 0
	types := map[webrtc.PayloadType]string{} // format by payload type, the same in all sections of a BUNDLE group (RFC 9143 section 10.1.2)
	for i := range o.sections {
		s := &o.sections[i]
		if !s.offered || !s.isUsable(o.codec) || i != first && !(s.hasMid && slices.Contains(o.group, s.mid)) {
			continue
		}
		switch s.kind {
		case "application":
			if o.channel {
				continue
			}
			o.channel = true
			if text, ok := s.attributes.value("max-message-size"); ok {
				if n, err := strconv.Atoi(text); err == nil {
					o.maxMessage = n
				}
				if o.maxMessage <= 0 || o.maxMessage > maxChannelMessage { // 0 means unlimited
					o.maxMessage = maxChannelMessage
				}
			}
		default:
			formats := o.answerFormats(s)
			if media == maxAccepted || slices.ContainsFunc(formats, func(f webrtc.RTPCodecParameters) bool {
				return types[f.PayloadType] != "" && types[f.PayloadType] != f.MimeType
			}) {
				continue
			}
			for _, f := range formats {
				types[f.PayloadType] = f.MimeType
			}
			media++
			if s.kind == "audio" {
				o.voice = o.voice || s.client.receives
				o.microphone = o.microphone || s.client.sends
			}
		}
		s.accepted = true
	}
}

// answerFormats returns the formats for the answer to a section, the preferred one first.
func (o *Offer) answerFormats(s *section) (formats []webrtc.RTPCodecParameters) {
	if s.kind == "video" {
		f, _ := s.videoFormat()
		return []webrtc.RTPCodecParameters{f}
	}
	plain, red, hasRED, _ := s.audioFormats(o.codec)
	if hasRED {
		formats = append(formats, red)
	}
	return append(formats, plain)
}

// transportSection returns the section that carries the transport: the first accepted one of the BUNDLE group (RFC 9143
// section 7.3.1), or nil.
func (o *Offer) transportSection() *section {
	for _, mid := range o.bundledMids() {
		i := slices.IndexFunc(o.sections, func(s section) bool { return s.mid == mid })
		return &o.sections[i]
	}
	return nil
}

// bundledMids returns the mids of the accepted sections. The first is the tag, whose section carries the transport.
func (o *Offer) bundledMids() (mids []string) {
	for _, mid := range o.group {
		if s := o.sectionByMid(mid); s != nil && s.hasMid && !slices.Contains(mids, mid) {
			mids = append(mids, mid)
		}
	}
	if o.group == nil {
		if i := slices.IndexFunc(o.sections, func(s section) bool { return s.accepted }); i >= 0 {
			mids = append(mids, o.sections[i].mid)
		}
	}
	return mids
}

// parseTransport parses the client's transport attributes. Only one section of a BUNDLE group must have them (RFC 8829
// section 5.2.1), so it searches several places.
func (o *Offer) parseTransport(d description) error {
	places := []attributes{d.attributes}
	tag := o.transportSection()
	if tag != nil {
		places = []attributes{tag.attributes, d.attributes}
	}
	if len(o.group) > 0 { // the first section of the group in the offer; its attributes count even if we reject it
		if i := slices.IndexFunc(o.sections, func(s section) bool { return s.hasMid && s.mid == o.group[0] }); i >= 0 {
			places = append(places, o.sections[i].attributes)
		}
	}
	for _, m := range d.media {
		places = append(places, m.attributes)
	}
	t := &o.transport
	for _, a := range places {
		if ufrag, _ := a.value("ice-ufrag"); ufrag != "" && t.ufrag == "" {
			t.ufrag = ufrag
			t.pwd, _ = a.value("ice-pwd")
		}
		if setup, _ := a.value("setup"); setup != "" && t.setup == "" {
			t.setup = strings.ToLower(setup)
		}
		if t.fingerprint == "" {
			t.fingerprint = strongestFingerprint(a.values("fingerprint"))
		}
	}
	if t.setup != "active" && t.setup != "passive" {
		t.setup = "actpass"
	}
	t.lite = d.attributes.hasKey("ice-lite")
	switch {
	case tag == nil: // the client has stopped all sections
	case t.fingerprint == "":
		return errors.New("has no DTLS fingerprint")
	case t.ufrag == "" || t.pwd == "":
		return errors.New("has no ice-ufrag and ice-pwd")
	}
	t.candidates = o.parseCandidates(d)
	return nil
}

// answerSetup returns our DTLS role as a value of a=setup (RFC 8842 section 5.3). If the client offers "actpass", we
// are active, unless the client has ICE lite.
func (t transport) answerSetup() string {
	if t.setup == "active" || t.setup == "actpass" && t.lite {
		return "passive"
	}
	return "active"
}

// strongestFingerprint returns the fingerprint with the strongest known hash (RFC 8122 section 5), or "".
func strongestFingerprint(fingerprints []string) string {
	for _, hash := range []string{"sha-256", "sha-384", "sha-512", "sha-224", "sha-1", ""} {
		for _, f := range fingerprints {
			fields := strings.Fields(f)
			if len(fields) == 2 && (hash == "" || strings.EqualFold(fields[0], hash)) {
				return strings.ToLower(fields[0]) + " " + fields[1]
			}
		}
	}
	return ""
}

// parseCandidates returns the candidates of the transport, limited to MaxCandidates.
func (o *Offer) parseCandidates(d description) (candidates []string) {
	places := []attributes{d.attributes}
	for i := range o.sections {
		s := &o.sections[i]
		ufrag, _ := s.attributes.value("ice-ufrag")
		if s == o.transportSection() || ufrag == o.transport.ufrag && (s.accepted || len(o.group) > 0 && slices.Contains(o.group, s.mid)) {
			places = append(places, s.attributes)
		}
	}
	for _, a := range places {
		for _, line := range a.values("candidate") {
			if len(candidates) == MaxCandidates {
				return candidates
			}
			if _, err := ice.UnmarshalCandidate(line); err == nil && !slices.Contains(candidates, line) {
				candidates = append(candidates, line)
			}
		}
	}
	return candidates
}

// encodingNames returns the encoding names of formats, for example "opus/48000/2".
func encodingNames(formats []webrtc.RTPCodecParameters) (list []string) {
	for _, f := range formats {
		_, name, _ := strings.Cut(f.MimeType, "/")
		list = append(list, name)
	}
	return list
}

// videoCodecNames returns the video codecs among formats, without retransmission and error correction formats.
func videoCodecNames(formats []webrtc.RTPCodecParameters) (list []string) {
	for _, name := range encodingNames(formats) {
		switch codec, _, _ := strings.Cut(name, "/"); strings.ToLower(codec) {
		case "rtx", "red", "ulpfec", "flexfec-03":
		default:
			list = append(list, codec)
		}
	}
	return list
}

// IsStopped reports whether the client has stopped all sections.
func (o Offer) IsStopped() bool { return o.transportSection() == nil }

// voiceSection returns the mid of the section for the model's voice, or "". The section currentMid stays in use if it
// still receives audio. Otherwise the first audio section that receives is chosen.
func (o *Offer) voiceSection(currentMid string) (mid string) {
	for _, s := range o.sections {
		if s.accepted && s.kind == "audio" && s.client.receives && (mid == "" || s.mid == currentMid) {
			mid = s.mid
		}
	}
	return mid
}

// sectionByMid returns the accepted section with a mid, or nil.
func (o *Offer) sectionByMid(mid string) *section {
	i := slices.IndexFunc(o.sections, func(s section) bool { return s.accepted && s.mid == mid })
	if i < 0 {
		return nil
	}
	return &o.sections[i]
}

// buildPionOffer returns the offer for Pion: the accepted sections, in one BUNDLE group. If nothing that Pion needs has
// changed, the text is identical to that of the previous offer. voiceMid is the mid of the only section for which Pion
// may create a sender.
//
// Pion cannot resume a stopped section, so the directions in this offer never stop a section. buildClientAnswer sets
// the actual directions. The SSRCs of audio are left out, because a sender may change its SSRC (RFC 3550 section 8.2),
// and Pion would then drop its packets.
func (o *Offer) buildPionOffer(voiceMid, setup string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "v=0\r\no=- 1 1 IN IP4 127.0.0.1\r\ns=-\r\nt=0 0\r\na=group:BUNDLE %s\r\n", strings.Join(o.bundledMids(), " "))
	fmt.Fprintf(&b, "a=fingerprint:%s\r\na=ice-ufrag:%s\r\na=ice-pwd:%s\r\n", o.transport.fingerprint, o.transport.ufrag, o.transport.pwd)
	if o.transport.lite {
		b.WriteString("a=ice-lite\r\n")
	}
	if o.mixed {
		b.WriteString("a=extmap-allow-mixed\r\n")
	}
	extensions := map[string]string{} // id of each extension by URI
	for i := range o.sections {
		s := &o.sections[i]
		if !s.accepted {
			continue
		}
		m := mediaDescription{kind: s.kind, port: 9, proto: "UDP/TLS/RTP/SAVPF"}
		m.attributes = attributes{{"mid", s.mid}, {"setup", setup}}
		if s.kind == "application" {
			m.proto, m.formats = "UDP/DTLS/SCTP", []string{"webrtc-datachannel"}
			m.attributes = append(m.attributes, attribute{"sctp-port", "5000"}, attribute{"max-message-size", strconv.Itoa(o.maxMessage)})
		} else {
			o.addPionMedia(&m, s, voiceMid, extensions)
		}
		m.write(&b)
	}
	return b.String()
}

// addPionMedia adds the formats and attributes of an audio or video section to Pion's offer. The model's voice is sent
// only in the section voiceMid.
func (o *Offer) addPionMedia(m *mediaDescription, s *section, voiceMid string, extensions map[string]string) {
	d := direction{sends: true, receives: s.mid == voiceMid}
	m.attributes = append(m.attributes, attribute{key: d.String()}, attribute{key: "rtcp-mux"})
	for _, f := range o.answerFormats(s) {
		pt := strconv.Itoa(int(f.PayloadType))
		m.formats = append(m.formats, pt)
		_, name, _ := strings.Cut(f.MimeType, "/")
		rtpmap := fmt.Sprintf("%s %s/%d", pt, name, f.ClockRate)
		if f.Channels > 1 {
			rtpmap += fmt.Sprintf("/%d", f.Channels)
		}
		m.attributes = append(m.attributes, attribute{"rtpmap", rtpmap})
		if f.SDPFmtpLine != "" {
			m.attributes = append(m.attributes, attribute{"fmtp", pt + " " + f.SDPFmtpLine})
		}
		for _, feedback := range f.RTCPFeedback {
			m.attributes = append(m.attributes, attribute{"rtcp-fb", strings.TrimSpace(pt + " " + feedback.Type + " " + feedback.Parameter)})
		}
	}
	for _, value := range s.attributes.values("extmap") {
		fields := strings.Fields(value)
		if len(fields) != 2 || !isExtensionNumber(fields[0]) || extensions[fields[1]] != "" && extensions[fields[1]] != fields[0] {
			continue
		}
		extensions[fields[1]] = fields[0]
		m.attributes = append(m.attributes, attribute{"extmap", value})
	}
	if s.kind == "video" && s.client.sends && !s.attributes.hasKey("simulcast") {
		m.attributes = append(m.attributes, s.videoSource()...)
	}
}

// isExtensionNumber reports whether the first field of an extmap is an ID of a one-byte header (RFC 8285) without a
// direction. Without a direction, the extension applies to both.
func isExtensionNumber(text string) bool {
	n, err := strconv.Atoi(text)
	return err == nil && n >= 1 && n <= 14
}

// videoSource returns the attributes of the SSRC of a video section, including those of its retransmissions. If the
// section has several SSRCs (old simulcast), it returns nil, because Pion would mistake them for Plan B.
func (s *section) videoSource() (list attributes) {
	primary, repair := map[string]bool{}, map[string]bool{}
	for _, value := range s.attributes.values("ssrc-group") {
		fields := strings.Fields(value)
		if len(fields) == 3 && fields[0] == "FID" {
			repair[fields[2]] = true
			list = append(list, attribute{"ssrc-group", strings.Join(fields, " ")})
		}
	}
	for _, value := range s.attributes.values("ssrc") {
		ssrc, _, _ := strings.Cut(value, " ")
		if _, err := strconv.ParseUint(ssrc, 10, 32); err != nil {
			return nil
		}
		if !repair[ssrc] {
			primary[ssrc] = true
		}
		list = append(list, attribute{"ssrc", value})
	}
	if len(primary) != 1 {
		return nil
	}
	return list
}
