package sip

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

// maxSDP bounds a session description, in bytes: those of trunks have 300 to 2,000.
const maxSDP = 16 << 10

// codec is what sound may travel as.
type codec struct {
	name  string // of its rtpmap: "PCMU/8000"
	fixed int    // its static payload type (RFC 3551, section 6); -1: it has none
	ours  uint8  // the payload type in our offer
	media media.Codec
	fmtp  string
}

// codecs are in the order in which we offer them.
var codecs = []*codec{{"opus/48000/2", -1, 96, opus.Codec{}, "useinbandfec=1"}, {"G722/8000", 9, 9, g722.Codec{}, ""}, pcmu, pcma}

var pcmu, pcma = &codec{"PCMU/8000", 0, 0, g711.MuLaw, ""}, &codec{"PCMA/8000", 8, 8, g711.ALaw, ""}

const (
	ourEvents = 101 // payload type in our offer

	// comfortNoise is what pauses in G.711 may be sent as (RFC 3389), and comfortType its static payload type (RFC 3551, section 6).
	comfortNoise = "CN/8000"
	comfortType  = 13
)

// payload is a payload type and what it stands for.
type payload struct {
	number uint8
	codec  *codec
}

// event is a payload type of telephone-event (RFC 4733).
type event struct {
	number uint8
	clock  int
}

// suites are the kinds of SRTP that SDES has names for (RFC 4568, section 6.2; RFC 6188; RFC 7714), the best first.
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

// crypto is a key of SDES (RFC 4568), and how it is used.
type crypto struct {
	tag     string
	suite   string
	profile srtp.ProtectionProfile
	key     []byte // and the salt behind it
}

// description is what a peer says of its sound (RFC 8866, RFC 3264).
type description struct {
	host      string         // where it wants it: an address, or a name
	remote    netip.AddrPort // the same; its address is invalid if host is a name that was not looked up
	direction string         // as it says it: sendrecv, sendonly, recvonly or inactive
	payloads  []payload      // that we have, in its order
	events    []event
	comfort   uint8    // payload type of comfort noise; 0: it has none
	keys      []crypto // that we can use
	profile   string   // "RTP/AVP"; "RTP/SAVP": only with a key
	audio     int      // which of the sections it is
	sections  []string // the first lines of all, as they are refused: "audio 0 RTP/AVP 0"

	alternatives []*description // of other sections of audio
}

// isHeld reports whether the peer does not listen.
func (d *description) isHeld() bool { return d.direction == "sendonly" || d.direction == "inactive" }

var errNoAudio = errors.New("it has no section of audio that is served")

// parseCrypto reads the value of an attribute: 1 AES_CM_128_HMAC_SHA1_80 inline:base64|2^20|1:4
func parseCrypto(value string) (crypto, bool) {
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

// hasUnknownParameter reports whether a session parameter of a key refuses it (RFC 4568, section 6.3): whoever wants a part in the clear
// must not believe that they got it. One that begins with a hyphen may be ignored.
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

// keyLengths are those of a key and its salt, in bytes.
func keyLengths(p srtp.ProtectionProfile) (key, salt int) {
	key, _ = p.KeyLen()
	salt, _ = p.SaltLen()
	return key, salt
}

// newCrypto makes a key of our own.
func newCrypto(tag, suite string, profile srtp.ProtectionProfile) crypto {
	keys, salts := keyLengths(profile)
	c := crypto{tag, suite, profile, make([]byte, keys+salts)}
	rand.Read(c.key)
	return c
}

// agreement is what both sides have agreed on.
type agreement struct {
	payload            // by which sound goes
	receives []payload // by which sound may come; those of another codec follow a change of the peer's
	events   []uint8   // payload types of digits that come
	event    *event    // by which digits go; nil: they do not
	pauses   uint8     // payload type of comfort noise; 0: they have none
	comfort  uint8     // the same, if the codec needs it
	in, out  *crypto   // nil: in the clear
	held     bool      // the peer does not listen
	silent   bool      // the peer does not speak
	remote   netip.AddrPort
	answered string // our direction
}

// onHold reports whether one side does not hear the other.
func (a *agreement) onHold() bool { return a.held || a.silent }

// errSRTP refuses a peer that must encrypt, or must not.
var errSRTP = errors.New("this trunk wants SRTP with a key of SDES (RFC 4568), and none that is served was offered")

// agreeOn chooses a section of audio of which both sides can agree, and what they agree on; see [description.agree].
func (d *description) agreeOn(srtpRule string, own []crypto) (*description, *agreement, error) {
	agreed, err := d.agree(srtpRule, own)
	if err == nil {
		return d, agreed, nil
	}
	for _, other := range d.alternatives {
		if agreed, err := other.agree(srtpRule, own); err == nil {
			return other, agreed, nil
		}
	}
	return nil, nil, err
}

// agree chooses among what a peer describes. own is the key that we have offered, or have answered with before; nil: none.
func (d *description) agree(srtpRule string, own []crypto) (*agreement, error) {
	if !d.remote.IsValid() {
		return nil, fmt.Errorf("its section of audio has no address that is known: %q", d.host)
	}
	if len(d.payloads) == 0 {
		return nil, errors.New("it has none of the codecs opus, G722, PCMU and PCMA")
	}
	s := &agreement{
		payload: d.payloads[0], receives: d.payloads[:1], pauses: d.comfort, remote: d.remote,
		held: d.isHeld(), silent: d.direction == "recvonly" || d.direction == "inactive",
	}
	for _, e := range d.events {
		s.events = append(s.events, e.number)
		if s.event == nil || e.clock == s.codec.media.ClockRate() && s.event.clock != e.clock {
			s.event = &e
		}
	}
	s.setComfort()
	s.answered = map[string]string{"sendonly": "recvonly", "recvonly": "sendonly", "inactive": "inactive"}[d.direction]
	if s.answered == "" {
		s.answered = "sendrecv"
	}
	if len(d.keys) == 0 || srtpRule == srtpOff {
		if strings.HasPrefix(strings.ToUpper(d.profile), "RTP/SAVP") || srtpRule == srtpRequired {
			return nil, errSRTP
		}
		return s, nil
	}
	key := d.keys[0]
	s.in = &key
	for _, k := range own {
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

// setComfort has pauses be sent as comfort noise, which belongs to G.711.
func (a *agreement) setComfort() {
	a.comfort = 0
	if a.codec == pcmu || a.codec == pcma {
		a.comfort = a.pauses
	}
}

// receiveAnswered lets sound come by all codecs of an answer to our offer, between which the peer may change at any time, and by the
// payload types of either side: whoever answers is to send by those of the offer, but many send by their own (RFC 3264, section 6.1).
func (a *agreement) receiveAnswered(answer, offered []payload, offeredEvents uint8) {
	a.receives = slices.Clone(answer)
	for _, o := range offered {
		if !slices.ContainsFunc(answer, func(p payload) bool { return p.codec == o.codec }) || slices.Contains(a.receives, o) {
			continue
		}
		a.receives = slices.DeleteFunc(a.receives, func(p payload) bool { return p.number == o.number })
		a.receives = append(a.receives, o)
	}
	a.events = slices.DeleteFunc(append(a.events, offeredEvents), func(number uint8) bool { return a.receivedAs(number) != nil })
}

// receivedAs returns the codec that a payload type stands for, or nil.
func (a *agreement) receivedAs(number uint8) *codec {
	for _, p := range a.receives {
		if p.number == number {
			return p.codec
		}
	}
	return nil
}

// types are the payload types by which the codec comes.
func (a *agreement) types() (list []uint8) {
	for _, p := range a.receives {
		if p.codec == a.codec {
			list = append(list, p.number)
		}
	}
	return list
}

// withCodec returns the same agreement with another of its codecs, or nil.
func (a *agreement) withCodec(c *codec) *agreement {
	i := slices.IndexFunc(a.receives, func(p payload) bool { return p.codec == c })
	if i < 0 {
		return nil
	}
	changed := *a
	changed.payload = a.receives[i]
	changed.setComfort()
	return &changed
}

// local is what our own descriptions say.
type local struct {
	address netip.Addr
	port    int
	id      uint64 // of the session
	version uint64
}

func (l local) begin(b *strings.Builder) {
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

// answer is our description for a peer's: one codec, its payload types mirrored, all sections but the one refused.
func (d *description) answer(l local, s *agreement) []byte {
	var b strings.Builder
	l.begin(&b)
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
		fmt.Fprintf(&b, "a=ptime:20\r\na=%s\r\n", s.answered)
	}
	return []byte(b.String())
}

// offer is a description that begins: all that we have. keys make it RTP/SAVP.
func offer(l local, keys []crypto, direction string) []byte {
	var b strings.Builder
	l.begin(&b)
	profile := "RTP/AVP"
	if len(keys) > 0 {
		profile = "RTP/SAVP"
	}
	fmt.Fprintf(&b, "m=audio %d %s", l.port, profile)
	for _, c := range codecs {
		fmt.Fprintf(&b, " %d", c.ours)
	}
	fmt.Fprintf(&b, " %d %d\r\n", comfortType, ourEvents)
	for _, c := range codecs {
		writeCodec(&b, c.ours, c)
	}
	fmt.Fprintf(&b, "a=rtpmap:%d %s\r\n", comfortType, comfortNoise)
	writeEvent(&b, ourEvents, 8000)
	for _, k := range keys {
		writeCrypto(&b, k)
	}
	fmt.Fprintf(&b, "a=ptime:20\r\na=%s\r\n", direction)
	return []byte(b.String())
}

// offeredKeys are the keys of our offer.
func offeredKeys() (keys []crypto) {
	for i, s := range suites {
		keys = append(keys, newCrypto(strconv.Itoa(i+1), s.name, s.profile))
	}
	return keys
}
