package rtc

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// buildClientAnswer turns Pion's answer into the client's answer, with a section for each section of the offer.
// Rejected sections have port 0. Accepted sections form the BUNDLE group. The first section of the group, called the
// tag, has the candidates (RFC 8839 section 4.2.4).
//
// voiceMid is the mid of the section with the model's voice. role is our DTLS role, because Pion gets it wrong for a
// passive client with ICE lite. versionOffset is the number of answers so far that were not made by Pion.
func (o *Offer) buildClientAnswer(pionAnswer, voiceMid, role string, versionOffset uint64) (string, error) {
	d, err := parseDescription(pionAnswer)
	if err != nil {
		return "", err
	}
	pion := map[string]*mediaDescription{}
	var candidates attributes // Pion writes all candidates into the first section of its answer
	for _, m := range d.media {
		mid, _ := m.attributes.value("mid")
		pion[mid] = m
		for _, a := range m.attributes {
			if a.key == "candidate" && isFirstComponent(a.value) || a.key == "end-of-candidates" {
				candidates = append(candidates, a)
			}
		}
	}
	var b strings.Builder
	d.writeSession(&b, versionOffset)
	if o.group != nil {
		fmt.Fprintf(&b, "a=group:BUNDLE %s\r\n", strings.Join(o.bundledMids(), " "))
	}
	tag := o.transportSection()
	transportAttributes := attributes{{"setup", role}} // our side of the transport
	if m := pion[tag.mid]; m != nil {
		for _, a := range m.attributes {
			if a.key == "ice-ufrag" || a.key == "ice-pwd" {
				transportAttributes = append(transportAttributes, a)
			}
		}
	}
	for i := range o.sections {
		s := &o.sections[i]
		m := pion[s.mid]
		switch {
		case !s.accepted:
			m = s.buildRejection(transportAttributes)
		case m == nil || m.port == 0:
			return "", fmt.Errorf("its %s section %q has no answer", s.kind, clipText(s.mid))
		default:
			o.rewriteAnswerSection(m, s, voiceMid, role)
			if s == tag {
				m.attributes = append(m.attributes, candidates...)
			}
		}
		m.write(&b)
	}
	return b.String(), nil
}

// writeSession writes the part before the media sections, without the BUNDLE group. It adds versionOffset to the
// version in the o= line.
func (d *description) writeSession(b *strings.Builder, versionOffset uint64) {
	for _, line := range d.head {
		if fields := strings.Fields(line); strings.HasPrefix(line, "o=") && len(fields) == 6 {
			if version, err := strconv.ParseUint(fields[2], 10, 64); err == nil {
				fields[2] = strconv.FormatUint(version+versionOffset, 10)
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

// isFirstComponent reports whether a candidate is of component 1, the only component with rtcp-mux (RFC 5761 section
// 5.1.3).
func isFirstComponent(candidate string) bool {
	fields := strings.Fields(candidate)
	return len(fields) > 1 && fields[1] == "1"
}

// buildRejection returns the rejection of a section. It includes the attributes of the transport, which RFC 8829
// section 5.3.1 allows and aiortc requires.
func (s *section) buildRejection(transportAttributes attributes) *mediaDescription {
	m := &mediaDescription{kind: s.kind, proto: s.proto, formats: s.formats[:1]}
	if s.hasMid {
		m.attributes = append(m.attributes, attribute{"mid", s.mid})
	}
	m.attributes = append(m.attributes, transportAttributes...)
	if s.kind == "audio" || s.kind == "video" {
		m.attributes = append(m.attributes, attribute{key: "rtcp-mux"})
	}
	m.attributes = append(m.attributes, attribute{key: "inactive"})
	return m
}

// videoBandwidth is the b= line of a video section (RFC 3890).
var videoBandwidth = "TIAS:" + strconv.Itoa(videoBits)

// rewriteAnswerSection rewrites m, a section of Pion's answer, for the client's answer. s is the section of the offer.
func (o *Offer) rewriteAnswerSection(m *mediaDescription, s *section, voiceMid, role string) {
	m.proto = s.proto
	d := direction{sends: s.mid == voiceMid && s.client.receives, receives: s.client.sends}
	as := attributes{{"setup", role}}
	for _, a := range m.attributes {
		if o.keepsAttribute(a, s, d) && !slices.Contains(as, a) {
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
	if s.kind == "video" && s.attributes.hasKey("simulcast") {
		as = append(as, s.streamIDExtmap()...)
	}
	if s.kind == "video" && d.receives {
		m.bandwidth = append(m.bandwidth, videoBandwidth)
	}
	m.attributes = as
}

// streamIDExtmap returns the offer's extmap attribute for the header extension that names simulcast streams (RFC 8852),
// or nil. We decline simulcast, but if the first answer lacked this attribute, Chromium would reject its own later
// offers.
func (s *section) streamIDExtmap() (list attributes) {
	for _, value := range s.attributes.values("extmap") {
		fields := strings.Fields(value)
		if len(fields) == 2 && fields[1] == "urn:ietf:params:rtp-hdrext:sdes:rtp-stream-id" && isExtensionNumber(fields[0]) {
			return attributes{{"extmap", value}}
		}
	}
	return nil
}

// keepsAttribute reports whether an attribute of Pion's answer stays in the client's answer. d is our direction in the
// section.
func (o *Offer) keepsAttribute(a attribute, s *section, d direction) bool {
	switch a.key {
	case "mid":
		return s.hasMid
	case "setup", "candidate", "end-of-candidates", "rid", "simulcast": // simulcast is declined (RFC 8853 section 5.3)
		return false
	case "msid":
		return d.sends
	case "ssrc":
		// While the section is on hold, keep only the source's name (RFC 5576 allows this). Without the name, Chromium
		// ends the source, and Web Audio gets no sound from it after the hold.
		return d.sends || strings.Contains(a.value, " cname:")
	case "rtcp-mux", "rtcp-rsize": // an answer has them only if the offer has (RFC 5761 section 5.1.1, RFC 5506 section 5)
		return s.attributes.hasKey(a.key)
	case "extmap":
		return slices.Contains(s.attributes.values("extmap"), strings.TrimSpace(a.value))
	case "sctp-port":
		return !s.isOldChannel()
	}
	return !isDirection(a.key)
}

// buildStoppedAnswer returns the answer to an offer that stops all sections. It takes the session part from Pion's last
// answer and adds versionOffset to the version in it.
func (o *Offer) buildStoppedAnswer(pionAnswer string, versionOffset uint64) string {
	var b strings.Builder
	d, _ := parseDescription(pionAnswer) // cannot fail: Pion wrote it
	d.writeSession(&b, versionOffset)
	for i := range o.sections {
		o.sections[i].buildRejection(nil).write(&b)
	}
	return b.String()
}

// checkAnswer validates an answer before it is sent. An error is a bug of the gateway, not the client's fault.
func (o *Offer) checkAnswer(text string) error {
	d, err := parseDescription(text)
	switch {
	case err != nil:
		return err
	case len(d.media) != len(o.sections):
		return fmt.Errorf("it has %d sections for the offer's %d", len(d.media), len(o.sections))
	}
	groups := parseBundles(d)
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
	if len(groups) == 1 && (!slices.Equal(groups[0], o.bundledMids()) || len(groups[0]) != accepted) {
		return fmt.Errorf("its BUNDLE group is %v, and %d sections are accepted", groups[0], accepted)
	}
	if o.codec != nil && !slices.ContainsFunc(d.media, func(m *mediaDescription) bool { return m.kind == "audio" && m.port != 0 }) {
		return errors.New("it refuses the sound")
	}
	return nil
}

// checkSection validates one section of an answer.
func (o *Offer) checkSection(m *mediaDescription, s *section) error {
	mid, hasMid := m.attributes.value("mid")
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
			if s != o.transportSection() {
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
