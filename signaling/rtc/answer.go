package rtc

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// wireAnswer makes of Pion's answer the one that the client gets: a section for each of the offer's, in its order, refused ones with
// port 0; the BUNDLE group of the accepted ones, with its tag first; candidates in the tag's section alone (RFC 8839 section 4.2.4); each
// direction as far as both sides want it; and no attribute that the offer does not allow. voice is the mid of the section that the voice
// goes by, role is ours in DTLS, which Pion gets wrong for a passive client with ICE lite, and version counts the answers that Pion did not
// make.
func (o *Offer) wireAnswer(local, voice, role string, version uint64) (string, error) {
	d, err := readDescription(local)
	if err != nil {
		return "", err
	}
	pion := map[string]*mediaDescription{}
	var candidates attributes // Pion writes them into its first section
	for _, m := range d.media {
		mid, _ := m.attributes.get("mid")
		pion[mid] = m
		for _, a := range m.attributes {
			if a.key == "candidate" && isFirstComponent(a.value) || a.key == "end-of-candidates" {
				candidates = append(candidates, a)
			}
		}
	}
	var b strings.Builder
	d.writeSession(&b, version)
	if o.group != nil {
		fmt.Fprintf(&b, "a=group:BUNDLE %s\r\n", strings.Join(o.bundled(), " "))
	}
	tag := o.tag()
	ours := attributes{{"setup", role}} // our side of the transport
	if m := pion[tag.mid]; m != nil {
		for _, a := range m.attributes {
			if a.key == "ice-ufrag" || a.key == "ice-pwd" {
				ours = append(ours, a)
			}
		}
	}
	for i := range o.sections {
		s := &o.sections[i]
		m := pion[s.mid]
		switch {
		case !s.accepted:
			m = s.refused(ours)
		case m == nil || m.port == 0:
			return "", fmt.Errorf("its %s section %q has no answer", s.kind, clip(s.mid))
		default:
			o.edit(m, s, voice, role)
			if s == tag {
				m.attributes = append(m.attributes, candidates...)
			}
		}
		m.write(&b)
	}
	return b.String(), nil
}

// writeSession writes the part before the first media section without the BUNDLE group, with the version of the session raised by a number.
func (d *description) writeSession(b *strings.Builder, raise uint64) {
	for _, line := range d.head {
		if fields := strings.Fields(line); strings.HasPrefix(line, "o=") && len(fields) == 6 {
			if version, err := strconv.ParseUint(fields[2], 10, 64); err == nil {
				fields[2] = strconv.FormatUint(version+raise, 10)
				line = strings.Join(fields, " ")
			}
		}
		b.WriteString(line + "\r\n")
	}
	for _, a := range d.attributes {
		if a.key != "group" {
			fmt.Fprintf(b, "a=%v\r\n", a)
		}
	}
}

// isFirstComponent reports whether a candidate is of component 1: with rtcp-mux there is no other (RFC 5761 section 5.1.3).
func isFirstComponent(candidate string) bool {
	fields := strings.Fields(candidate)
	return len(fields) > 1 && fields[1] == "1"
}

// refused is the answer to a section that is not accepted. Its transport is what RFC 8829 section 5.3.1 allows and aiortc insists on.
func (s *section) refused(ours attributes) *mediaDescription {
	m := &mediaDescription{kind: s.kind, proto: s.proto, formats: s.formats[:1]}
	if s.hasMid {
		m.attributes = append(m.attributes, attribute{"mid", s.mid})
	}
	m.attributes = append(m.attributes, ours...)
	if s.kind == "audio" || s.kind == "video" {
		m.attributes = append(m.attributes, attribute{key: "rtcp-mux"})
	}
	m.attributes = append(m.attributes, attribute{key: "inactive"})
	return m
}

// videoBandwidth is the b= line of a video section (RFC 3890).
var videoBandwidth = "TIAS:" + strconv.Itoa(videoBits)

// edit makes of Pion's answer to an accepted section the one that is sent.
func (o *Offer) edit(m *mediaDescription, s *section, voice, role string) {
	m.proto = s.proto
	d := direction{sends: s.mid == voice && s.client.receives, receives: s.client.sends}
	as := attributes{{"setup", role}}
	for _, a := range m.attributes {
		if o.keeps(a, s, d) && !slices.Contains(as, a) {
			as = append(as, a)
		}
	}
	if s.kind == "application" {
		if s.isOldChannel() {
			m.formats = s.formats[:1]
			as = append(as, attribute{"sctpmap", m.formats[0] + " webrtc-datachannel 65535"})
		}
	} else {
		as = append(as, attribute{key: d.String()})
	}
	if s.kind == "video" && s.attributes.has("simulcast") {
		as = append(as, s.streamIDs()...)
	}
	if s.kind == "video" && d.receives {
		m.bandwidth = append(m.bandwidth, videoBandwidth)
	}
	m.attributes = as
}

// streamIDs is the header extension that names the streams of simulcast (RFC 8852). It is accepted though simulcast is declined and Pion
// does not read it: Chromium offers simulcast again in each further offer, but the extension only if it was accepted, and then refuses its
// own offer.
func (s *section) streamIDs() (list attributes) {
	for _, value := range s.attributes.all("extmap") {
		fields := strings.Fields(value)
		if len(fields) == 2 && fields[1] == "urn:ietf:params:rtp-hdrext:sdes:rtp-stream-id" && isExtensionNumber(fields[0]) {
			return attributes{{"extmap", value}}
		}
	}
	return nil
}

// keeps reports whether an attribute of Pion's answer belongs to the one that is sent, in a section of this direction from our side.
func (o *Offer) keeps(a attribute, s *section, d direction) bool {
	switch a.key {
	case "mid":
		return s.hasMid
	case "setup", "candidate", "end-of-candidates", "rid", "simulcast": // simulcast is declined (RFC 8853 section 5.3)
		return false
	case "msid":
		return d.sends
	case "ssrc":
		// The name of the source stays on hold: Chromium ends the sound of a source that vanishes from an answer, and a page that listens by
		// Web Audio hears nothing of it when it comes back (RFC 5576 allows a source that sends nothing).
		return d.sends || strings.Contains(a.value, " cname:")
	case "rtcp-mux", "rtcp-rsize": // an answer has them only if the offer has (RFC 5761 section 5.1.1, RFC 5506 section 5)
		return s.attributes.has(a.key)
	case "extmap":
		return slices.Contains(s.attributes.all("extmap"), strings.TrimSpace(a.value))
	case "sctp-port":
		return !s.isOldChannel()
	}
	return !isDirection(a.key)
}

// stoppedAnswer is the answer to an offer that takes all sections back. It has the session of Pion's last answer.
func (o *Offer) stoppedAnswer(local string, version uint64) string {
	var b strings.Builder
	d, _ := readDescription(local) // Pion wrote it
	d.writeSession(&b, version)
	for i := range o.sections {
		o.sections[i].refused(nil).write(&b)
	}
	return b.String()
}

// checkAnswer looks at an answer before it leaves, whatever has made it. An error is one of ours, not the client's.
func (o *Offer) checkAnswer(text string) error {
	d, err := readDescription(text)
	switch {
	case err != nil:
		return err
	case len(d.media) != len(o.sections):
		return fmt.Errorf("it has %d sections for the offer's %d", len(d.media), len(o.sections))
	}
	groups := bundles(d)
	if len(groups) > 1 || (len(groups) == 1) != (o.group != nil) {
		return fmt.Errorf("it has %d BUNDLE groups", len(groups))
	}
	accepted := 0
	for i, m := range d.media {
		s := &o.sections[i]
		if err := o.checkSection(m, s); err != nil {
			return fmt.Errorf("its section %d: %w", i, err)
		}
		if m.port != 0 {
			accepted++
		}
	}
	if len(groups) == 1 && (!slices.Equal(groups[0], o.bundled()) || len(groups[0]) != accepted) {
		return fmt.Errorf("its BUNDLE group is %v, and %d sections are accepted", groups[0], accepted)
	}
	if o.codec != nil && !slices.ContainsFunc(d.media, func(m *mediaDescription) bool { return m.kind == "audio" && m.port != 0 }) {
		return errors.New("it refuses the sound")
	}
	return nil
}

// checkSection looks at one section of an answer.
func (o *Offer) checkSection(m *mediaDescription, s *section) error {
	mid, hasMid := m.attributes.get("mid")
	switch {
	case m.kind != s.kind || m.proto != s.proto || len(m.formats) == 0:
		return fmt.Errorf("it is of %s over %s", m.kind, m.proto)
	case hasMid != s.hasMid || hasMid && mid != s.mid:
		return fmt.Errorf("its mid is %q, not %q", mid, s.mid)
	case (m.port != 0) != s.accepted:
		return fmt.Errorf("its port is %d", m.port)
	}
	for _, f := range m.formats {
		if !slices.Contains(s.formats, f) {
			return fmt.Errorf("it has the format %q, which was not offered", f)
		}
	}
	for i, a := range m.attributes {
		if slices.Contains(m.attributes[:i], a) {
			return fmt.Errorf("it has a=%v twice", a)
		}
		switch a.key {
		case "mid", "setup", "ice-ufrag", "ice-pwd":
			if slices.ContainsFunc(m.attributes[:i], func(b attribute) bool { return b.key == a.key }) {
				return fmt.Errorf("it has a=%s twice", a.key)
			}
		case "candidate", "end-of-candidates":
			if s != o.tag() {
				return errors.New("it has candidates, and does not carry the transport")
			}
		case "rid", "simulcast":
			return errors.New("it takes simulcast")
		}
	}
	if s.kind == "application" || !s.accepted {
		return nil
	}
	if d, ok := m.attributes.direction(); !ok || d.sends && !s.client.receives || d.receives && !s.client.sends {
		return fmt.Errorf("it is %v, to %v", d, s.client)
	}
	return nil
}
