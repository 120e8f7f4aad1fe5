package media

import (
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/pion/srtp/v3"

	"voxgate/media"
	"voxgate/media/g711"
	"voxgate/media/g722"
	"voxgate/media/opus"
)

// maxSDP limits a session description, in bytes. The descriptions of trunks have 300 to 2,000 bytes.
const maxSDP = 16 << 10

// codec is an audio codec as it appears in SDP.
type codec struct {
	name        string // encoding name as in a=rtpmap: "PCMU/8000"
	fixed       int    // static payload type (RFC 3551, section 6); -1 if the codec has none
	offeredType uint8  // payload type in our offer
	media       media.Codec
	fmtp        string
}

// codecs lists the supported codecs, in the order of our offer.
var codecs = []*codec{{"opus/48000/2", -1, 96, opus.Codec{}, "useinbandfec=1"}, {"G722/8000", 9, 9, g722.Codec{}, ""}, pcmu, pcma}

var pcmu, pcma = &codec{"PCMU/8000", 0, 0, g711.MuLaw, ""}, &codec{"PCMA/8000", 8, 8, g711.ALaw, ""}

const (
	ourEvents = 101 // payload type in our offer

	// comfortNoise is the encoding name of comfort noise in the pauses of G.711 (RFC 3389). comfortType is its static
	// payload type (RFC 3551, section 6).
	comfortNoise = "CN/8000"
	comfortType  = 13
)

// payload is a payload type with its codec.
type payload struct {
	number uint8
	codec  *codec
}

// event is a payload type for telephone-event (RFC 4733).
type event struct {
	number uint8
	clock  int
}

// suites lists the supported SRTP suites of SDES (RFC 4568, section 6.2; RFC 6188; RFC 7714), strongest first.
var suites = []struct {
	name    string
	profile srtp.ProtectionProfile
}{
	{"AEAD_AES_256_GCM", srtp.ProtectionProfileAeadAes256Gcm},
	{"AEAD_AES_128_GCM", srtp.ProtectionProfileAeadAes128Gcm},
	{"AES_256_CM_HMAC_SHA1_80", srtp.ProtectionProfileAes256CmHmacSha1_80},
	{"AES_CM_128_HMAC_SHA1_80", srtp.ProtectionProfileAes128CmHmacSha1_80},
	{"AES_CM_128_HMAC_SHA1_32", srtp.ProtectionProfileAes128CmHmacSha1_32},
}

// crypto is an SDES key (RFC 4568) and its suite.
type crypto struct {
	tag     string
	suite   string
	profile srtp.ProtectionProfile
	key     []byte // the key, followed by the salt
}

// description is a peer's session description (RFC 8866, RFC 3264), reduced to its audio.
type description struct {
	host      string         // destination for our packets: an address or a name
	remote    netip.AddrPort // host and port; the address is invalid if host is a name that is not resolved
	direction string         // direction of the audio from the peer's view: sendrecv, sendonly, recvonly or inactive
	payloads  []payload      // the supported payload types, in the peer's order
	events    []event
	comfort   uint8    // payload type of comfort noise; 0 if not supported
	keys      []crypto // the supported keys
	profile   string   // "RTP/AVP", or "RTP/SAVP", which requires a key
	audio     int      // index of the audio section
	sections  []string // m= values that refuse each section of the description: "audio 0 RTP/AVP 0"

	alternatives []*description // descriptions with each of the other audio sections
}

// isHeld reports whether the peer has put us on hold: it does not want to receive audio.
func (d *description) isHeld() bool { return d.direction == "sendonly" || d.direction == "inactive" }

var errNoAudio = errors.New("it has no supported audio section")

// parseCrypto parses the value of an a=crypto attribute: "1 AES_CM_128_HMAC_SHA1_80 inline:base64|2^20|1:4". It returns
// false for an unsupported key.
func parseCrypto(value string) (c crypto, ok bool) {
	fields := strings.Fields(value)
	if len(fields) < 3 {
		return crypto{}, false
	}
	for _, s := range suites {
		if !strings.EqualFold(s.name, fields[1]) {
			continue
		}
		inline, ok := strings.CutPrefix(fields[2], "inline:")
		inline, _, _ = strings.Cut(inline, "|")
		key, err := base64.StdEncoding.DecodeString(inline)
		if padded := strings.TrimRight(inline, "="); err != nil {
			key, err = base64.RawStdEncoding.DecodeString(padded)
		}
		keys, salts := keyLengths(s.profile)
		return crypto{fields[0], s.name, s.profile, key}, ok && err == nil && len(key) == keys+salts && !hasUnknownParameter(fields[3:])
	}
	return crypto{}, false
}

// hasUnknownParameter reports whether a key must be rejected because of its session parameters (RFC 4568, section 6.3).
// Some of them ask for partly unencrypted media. Unknown parameters that begin with a hyphen can be ignored.
func hasUnknownParameter(params []string) bool {
	for _, p := range params {
		name, value, _ := strings.Cut(strings.ToUpper(p), "=")
		known := name == "WSH" || name == "FEC_ORDER" || name == "KDR" && value == "0"
		if !known && !strings.HasPrefix(p, "-") {
			return true
		}
	}
	return false
}

// keyLengths returns the lengths of the key and the salt, in bytes.
func keyLengths(p srtp.ProtectionProfile) (key, salt int) {
	key, _ = p.KeyLen()
	salt, _ = p.SaltLen()
	return key, salt
}

// newCrypto generates a key.
func newCrypto(tag, suite string, profile srtp.ProtectionProfile) crypto {
	keys, salts := keyLengths(profile)
	c := crypto{tag, suite, profile, make([]byte, keys+salts)}
	rand.Read(c.key)
	return c
}

// agreement is the result of an offer and its answer.
type agreement struct {
	payload                    // the codec in use
	acceptedPayloads []payload // accepted payload types; if the peer switches to another codec among them, we do the same
	events           []uint8   // payload types of incoming digits
	event            *event    // payload type of outgoing digits; nil if not supported
	pauses           uint8     // payload type of comfort noise; 0 if not agreed
	comfort          uint8     // payload type of comfort noise for the current codec; 0 if the codec needs none
	in, out          *crypto   // SRTP keys; nil without SRTP
	isHeld           bool      // the peer does not want to receive audio
	isSilent         bool      // the peer does not send audio
	remote           netip.AddrPort
	direction        string // the direction in our description
}

// isOnHold reports whether one side does not send audio.
func (a *agreement) isOnHold() bool { return a.isHeld || a.isSilent }

// errSRTP rejects a peer that does not comply with the trunk's SRTP setting.
var errSRTP = errors.New("this trunk requires SRTP with an SDES key (RFC 4568), and no supported one was offered")

// negotiateSection returns the first audio section on which both sides can agree, and the agreement. See
// [description.negotiate] for the parameters.
func (d *description) negotiateSection(srtpRule string, localKeys []crypto) (*description, *agreement, error) {
	agreed, err := d.negotiate(srtpRule, localKeys)
	if err == nil {
		return d, agreed, nil
	}
	for _, other := range d.alternatives {
		if agreed, err := other.negotiate(srtpRule, localKeys); err == nil {
			return other, agreed, nil
		}
	}
	return nil, nil, err
}

// negotiate returns the agreement between us and a peer's description. srtpRule is [Settings.SRTP]. localKeys are the
// SRTP keys in our offer or earlier answer.
func (d *description) negotiate(srtpRule string, localKeys []crypto) (*agreement, error) {
	if !d.remote.IsValid() {
		return nil, fmt.Errorf("the address of its audio section cannot be resolved: %q", d.host)
	}
	if len(d.payloads) == 0 {
		return nil, errors.New("it has none of the codecs opus, G722, PCMU and PCMA")
	}
	s := &agreement{
		payload: d.payloads[0], acceptedPayloads: d.payloads[:1], pauses: d.comfort, remote: d.remote,
		isHeld: d.isHeld(), isSilent: d.direction == "recvonly" || d.direction == "inactive",
	}
	for _, e := range d.events {
		s.events = append(s.events, e.number)
		if s.event == nil || e.clock == s.codec.media.ClockRate() && s.event.clock != e.clock {
			s.event = &e
		}
	}
	s.updateComfortType()
	s.direction = map[string]string{"sendonly": "recvonly", "recvonly": "sendonly", "inactive": "inactive"}[d.direction]
	if s.direction == "" {
		s.direction = "sendrecv"
	}
	if len(d.keys) == 0 || srtpRule == srtpOff {
		if strings.HasPrefix(strings.ToUpper(d.profile), "RTP/SAVP") || srtpRule == srtpRequired {
			return nil, errSRTP
		}
		return s, nil
	}
	key := d.keys[0]
	s.in = &key
	for _, k := range localKeys {
		if k.suite == key.suite && k.tag == key.tag {
			s.out = &k
		}
	}
	if s.out == nil {
		k := newCrypto(key.tag, key.suite, key.profile)
		s.out = &k
	}
	return s, nil
}

// updateComfortType sets comfort for the current codec. Only G.711 needs comfort noise.
func (a *agreement) updateComfortType() {
	a.comfort = 0
	if a.codec == pcmu || a.codec == pcma {
		a.comfort = a.pauses
	}
}

// acceptAnsweredTypes accepts all codecs in an answer to our offer, because the peer may switch between them. It
// accepts the payload types of the offer and also those of the answer. The peer should send the types of the offer (RFC
// 3264, section 6.1), but many peers send those of their own answer.
func (a *agreement) acceptAnsweredTypes(answer, offered []payload, offeredEvents uint8) {
	a.acceptedPayloads = slices.Clone(answer)
	for _, o := range offered {
		if !slices.ContainsFunc(answer, func(p payload) bool { return p.codec == o.codec }) || slices.Contains(a.acceptedPayloads, o) {
			continue
		}
		a.acceptedPayloads = slices.DeleteFunc(a.acceptedPayloads, func(p payload) bool { return p.number == o.number })
		a.acceptedPayloads = append(a.acceptedPayloads, o)
	}
	a.events = slices.DeleteFunc(append(a.events, offeredEvents), func(number uint8) bool { return a.codecOf(number) != nil })
}

// codecOf returns the codec of a received payload type, or nil.
func (a *agreement) codecOf(number uint8) *codec {
	for _, p := range a.acceptedPayloads {
		if p.number == number {
			return p.codec
		}
	}
	return nil
}

// codecPayloadTypes returns the accepted payload types of the current codec.
func (a *agreement) codecPayloadTypes() (list []uint8) {
	for _, p := range a.acceptedPayloads {
		if p.codec == a.codec {
			list = append(list, p.number)
		}
	}
	return list
}

// withCodec returns a copy of the agreement that uses another of its codecs, or nil if the codec was not agreed.
func (a *agreement) withCodec(c *codec) *agreement {
	i := slices.IndexFunc(a.acceptedPayloads, func(p payload) bool { return p.codec == c })
	if i < 0 {
		return nil
	}
	changed := *a
	changed.payload = a.acceptedPayloads[i]
	changed.updateComfortType()
	return &changed
}

// local holds our part of the session descriptions.
type local struct {
	address netip.Addr
	port    int
	id      uint64 // session ID
	version uint64
}

func (l local) writeHeader(b *strings.Builder) {
	kind := "IP4"
	if l.address.Is6() {
		kind = "IP6"
	}
	fmt.Fprintf(b, "v=0\r\no=- %d %d IN %s %s\r\ns=-\r\nc=IN %s %s\r\nt=0 0\r\n", l.id, l.version, kind, l.address, kind, l.address)
}

func writeCodec(b *strings.Builder, number uint8, c *codec) {
	fmt.Fprintf(b, "a=rtpmap:%d %s\r\n", number, c.name)
	if c.fmtp != "" {
		fmt.Fprintf(b, "a=fmtp:%d %s\r\n", number, c.fmtp)
	}
}

func writeEvent(b *strings.Builder, number uint8, clock int) {
	fmt.Fprintf(b, "a=rtpmap:%d telephone-event/%d\r\na=fmtp:%d 0-16\r\n", number, clock, number)
}

func writeCrypto(b *strings.Builder, c crypto) {
	fmt.Fprintf(b, "a=crypto:%s %s inline:%s\r\n", c.tag, c.suite, base64.StdEncoding.EncodeToString(c.key))
}

// buildAnswer returns our answer to the peer's description. It accepts one codec with the peer's payload type, and refuses
// all other sections.
func (d *description) buildAnswer(l local, s *agreement) []byte {
	var b strings.Builder
	l.writeHeader(&b)
	for i, section := range d.sections {
		if i != d.audio {
			fmt.Fprintf(&b, "m=%s\r\n", section)
			continue
		}
		fmt.Fprintf(&b, "m=audio %d %s %d", l.port, d.profile, s.number)
		if s.comfort != 0 {
			fmt.Fprintf(&b, " %d", s.comfort)
		}
		if s.event != nil {
			fmt.Fprintf(&b, " %d", s.event.number)
		}
		b.WriteString("\r\n")
		writeCodec(&b, s.number, s.codec)
		if s.comfort != 0 {
			fmt.Fprintf(&b, "a=rtpmap:%d %s\r\n", s.comfort, comfortNoise)
		}
		if s.event != nil {
			writeEvent(&b, s.event.number, s.event.clock)
		}
		if s.out != nil {
			writeCrypto(&b, *s.out)
		}
		fmt.Fprintf(&b, "a=ptime:20\r\na=%s\r\n", s.direction)
	}
	return []byte(b.String())
}

// buildOffer returns an offer of all codecs. If keys are given, the offer requires SRTP (RTP/SAVP).
func buildOffer(l local, keys []crypto, direction string) []byte {
	var b strings.Builder
	l.writeHeader(&b)
	profile := "RTP/AVP"
	if len(keys) > 0 {
		profile = "RTP/SAVP"
	}
	fmt.Fprintf(&b, "m=audio %d %s", l.port, profile)
	for _, c := range codecs {
		fmt.Fprintf(&b, " %d", c.offeredType)
	}
	fmt.Fprintf(&b, " %d %d\r\n", comfortType, ourEvents)
	for _, c := range codecs {
		writeCodec(&b, c.offeredType, c)
	}
	fmt.Fprintf(&b, "a=rtpmap:%d %s\r\n", comfortType, comfortNoise)
	writeEvent(&b, ourEvents, 8000)
	for _, k := range keys {
		writeCrypto(&b, k)
	}
	fmt.Fprintf(&b, "a=ptime:20\r\na=%s\r\n", direction)
	return []byte(b.String())
}

// newOfferKeys generates a key of each suite for our offer.
func newOfferKeys() (keys []crypto) {
	for i, s := range suites {
		keys = append(keys, newCrypto(strconv.Itoa(i+1), s.name, s.profile))
	}
	return keys
}
