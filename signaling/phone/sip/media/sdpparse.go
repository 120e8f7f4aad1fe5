package media

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// sessionText is a session description before negotiation (RFC 8866). The parser tolerates wrong order, missing lines
// and unknown formats.
type sessionText struct {
	connection string // address in the first c= line or, without one, in the o= line
	attributes []attribute
	sections   []*sectionText
}

// sectionText is a media section, which begins with an m= line.
type sectionText struct {
	media, transport string
	port             int // 0 if the section is refused, or if its port cannot be read
	formats          []string
	connection       string
	attributes       []attribute
}

type attribute struct{ key, value string }

// parseSessionText parses a description. It fails if the description has no media section.
func parseSessionText(text string) (*sessionText, error) {
	s := &sessionText{}
	var section *sectionText
	origin := ""
	for line := range strings.Lines(text) {
		kind, value, ok := strings.Cut(strings.TrimRight(line, "\r\n \t"), "=")
		if !ok {
			continue
		}
		value = strings.TrimSpace(value)
		switch strings.TrimSpace(kind) {
		case "m":
			section = parseSection(value)
			s.sections = append(s.sections, section)
		case "c":
			to := &s.connection
			if section != nil {
				to = &section.connection
			}
			if *to == "" {
				*to = connectionAddress(value)
			}
		case "o":
			origin = connectionAddress(value)
		case "a":
			key, value, _ := strings.Cut(value, ":")
			a := attribute{strings.ToLower(strings.TrimSpace(key)), strings.TrimSpace(value)}
			if section != nil {
				section.attributes = append(section.attributes, a)
			} else {
				s.attributes = append(s.attributes, a)
			}
		}
	}
	if len(s.sections) == 0 {
		return nil, errNoAudio
	}
	if s.connection == "" {
		s.connection = origin
	}
	return s, nil
}

// parseSection parses an m= line.
func parseSection(value string) *sectionText {
	fields := append(strings.Fields(value), "", "", "")
	port, _, _ := strings.Cut(fields[1], "/") // omits the number of ports
	s := &sectionText{media: fields[0], transport: fields[2]}
	if n, err := strconv.ParseUint(port, 10, 16); err == nil {
		s.port = int(n)
	}
	if n := len(fields) - 3; n > 3 {
		s.formats = fields[3:n]
	}
	return s
}

// rejectionValue returns the m= value that refuses a section.
func (s *sectionText) rejectionValue() string {
	withDefault := func(text, other string) string {
		if text == "" {
			return other
		}
		return text
	}
	return fmt.Sprintf("%s 0 %s %s",
		withDefault(s.media, "audio"), withDefault(s.transport, "RTP/AVP"), withDefault(strings.Join(s.formats, " "), "0"))
}

// connectionAddress returns the address or host name at the end of the value of a c= or o= line: "IN IP4
// 192.0.2.1/127", "IN IP6 [2001:db8::1]". If the value has no address, it returns "".
func connectionAddress(value string) string {
	fields := strings.Fields(value)
	if len(fields) == 0 {
		return ""
	}
	if i := slices.IndexFunc(fields, func(f string) bool { return strings.EqualFold(f, "IP4") || strings.EqualFold(f, "IP6") }); i >= 0 {
		if fields = fields[i+1:]; len(fields) == 0 {
			return ""
		}
		fields = fields[:1]
	}
	address, _, _ := strings.Cut(fields[len(fields)-1], "/")
	address, _, _ = strings.Cut(strings.Trim(address, "[]"), "%") // omits the zone, which is valid only at the peer
	return address
}

// isSupported reports whether a section is audio by RTP.
func (s *sectionText) isSupported() bool {
	return strings.EqualFold(s.media, "audio") && s.port > 0 &&
		slices.Contains([]string{"RTP/AVP", "RTP/SAVP", "RTP/AVPF", "RTP/SAVPF"}, strings.ToUpper(s.transport))
}

// parseSDP parses a session description. It returns the first audio section with a supported codec. The other audio
// sections become its alternatives. Error texts are sent to the peer, whose operator may read them.
func parseSDP(text []byte) (*description, error) {
	if len(text) > maxSDP {
		return nil, fmt.Errorf("it has %d bytes, more than %d", len(text), maxSDP)
	}
	s, err := parseSessionText(string(text))
	if err != nil {
		return nil, err
	}
	var lines []string
	for _, section := range s.sections {
		lines = append(lines, section.rejectionValue())
	}
	var list []*description
	for i, section := range s.sections {
		if section.isSupported() {
			d := &description{audio: i, sections: lines, profile: section.transport}
			d.parseAudio(s, section)
			list = append(list, d)
		}
	}
	if len(list) == 0 {
		return nil, errNoAudio
	}
	slices.SortStableFunc(list, func(a, b *description) int { return min(len(b.payloads), 1) - min(len(a.payloads), 1) })
	list[0].alternatives = list[1:]
	return list[0], nil
}

func (d *description) parseAudio(s *sessionText, m *sectionText) {
	d.host = m.connection
	if d.host == "" {
		d.host = s.connection
	}
	d.remote = netip.AddrPortFrom(netip.Addr{}, uint16(m.port))
	if ip, err := netip.ParseAddr(d.host); err == nil {
		d.remote = netip.AddrPortFrom(ip.Unmap(), uint16(m.port))
	}
	d.direction = "sendrecv"
	for _, a := range slices.Concat(s.attributes, m.attributes) {
		if slices.Contains([]string{"sendrecv", "sendonly", "recvonly", "inactive"}, a.key) {
			d.direction = a.key
		}
	}
	if d.remote.Addr().IsUnspecified() { // an unspecified address means hold, as in RFC 2543 (RFC 3264, section 8.4)
		if d.direction == "sendrecv" || d.direction == "sendonly" {
			d.direction = "sendonly"
		} else {
			d.direction = "inactive"
		}
	}
	d.parseCodecs(m)
	for _, a := range m.attributes {
		if a.key == "crypto" {
			if k, ok := parseCrypto(a.value); ok {
				d.keys = append(d.keys, k)
			}
		}
	}
}

// parseCodecs collects the supported codecs among the formats of a section.
func (d *description) parseCodecs(m *sectionText) {
	names := map[string]string{}
	for _, a := range m.attributes {
		if number, name, ok := strings.Cut(strings.TrimSpace(a.value), " "); ok && a.key == "rtpmap" && names[number] == "" {
			names[number] = strings.ReplaceAll(name, " ", "")
		}
	}
	for _, format := range m.formats {
		n, err := strconv.ParseUint(format, 10, 7)
		if err != nil {
			continue
		}
		name, rate, channels := splitEncoding(names[format])
		switch {
		case name == "TELEPHONE-EVENT":
			if rate > 0 {
				d.events = append(d.events, event{uint8(n), rate})
			}
		case name == "CN" && rate == 8000, name == "" && n == comfortType:
			d.comfort = uint8(n)
		default:
			for _, c := range codecs {
				if name == "" && c.fixed == int(n) || c.hasEncoding(name, rate, channels) {
					d.payloads = append(d.payloads, payload{uint8(n), c})
				}
			}
		}
	}
}

// splitEncoding splits the encoding in an a=rtpmap: "opus/48000/2". Missing parts become 8000 and 1, as for most
// codecs.
func splitEncoding(text string) (name string, rate, channels int) {
	fields := strings.Split(text, "/")
	rate, channels = 8000, 1
	if len(fields) > 1 {
		rate, _ = strconv.Atoi(fields[1])
	}
	if len(fields) > 2 {
		channels, _ = strconv.Atoi(fields[2])
	}
	return strings.ToUpper(fields[0]), rate, channels
}

// hasEncoding reports whether the encoding of an a=rtpmap is that of the codec.
func (c *codec) hasEncoding(name string, rate, channels int) bool {
	encoding, clock, _ := splitEncoding(c.name)
	switch {
	case name != encoding:
		return false
	// RFC 7587, section 7, prescribes two channels in the rtpmap. Some peers write the number of channels that they
	// send instead.
	case encoding == "OPUS":
		return rate == clock && channels <= 2
	// RFC 3551, section 4.5.2, prescribes the rate 8000 in the rtpmap. Some peers write the real sample rate, 16000,
	// instead.
	case encoding == "G722" && rate == 16000:
		return channels == 1
	}
	return rate == clock && channels == 1
}
