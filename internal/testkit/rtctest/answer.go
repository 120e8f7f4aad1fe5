package rtctest

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/pion/sdp/v3"
)

// CheckAnswer returns an error if an answer to an offer violates RFC 3264, 8829, 8839, 8853 or 9143. It shares no code
// with the gateway. It parses the answer with Pion's strict parser. The offer has a lenient parser, because Pion's
// rejects the offers of some clients.
func CheckAnswer(offer, answer string) error {
	var a sdp.SessionDescription
	if err := a.UnmarshalString(answer); err != nil {
		return fmt.Errorf("the answer cannot be read: %w", err)
	}
	for line := range strings.Lines(answer) {
		if !strings.HasSuffix(line, "\r\n") || strings.TrimSpace(line) != strings.TrimSuffix(line, "\r\n") {
			return fmt.Errorf("the line %q", line)
		}
	}
	o := parseOffer(offer)
	if len(o.sections) != len(a.MediaDescriptions) {
		return fmt.Errorf("%d sections are answered with %d", len(o.sections), len(a.MediaDescriptions))
	}
	check := answerCheck{offer: o, answer: &a}
	for i, m := range a.MediaDescriptions {
		if m.MediaName.Port.Value != 0 {
			check.accepted = append(check.accepted, i)
		}
	}
	errs := []error{check.checkBundle()}
	for i, m := range a.MediaDescriptions {
		err := errors.Join(check.checkSection(o.sections[i], m), check.checkTransport(i, m))
		if m.MediaName.Port.Value != 0 && m.MediaName.Media != "application" {
			err = errors.Join(err, check.checkMedia(o.sections[i], m))
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("section %d: %w", i, err))
		}
	}
	return errors.Join(errs...)
}

// offerText is an offer in the form that the client sent.
type offerText struct {
	session  []string // attributes of the session level, without "a="
	sections []offerSection
}

type offerSection struct {
	fields []string // fields of the m= line
	lines  []string
}

// parseOffer splits an offer into the attributes of the session and its sections.
func parseOffer(text string) (o offerText) {
	for _, line := range strings.FieldsFunc(text, func(r rune) bool { return r == '\r' || r == '\n' }) {
		line = strings.TrimSpace(line)
		attribute, isAttribute := strings.CutPrefix(line, "a=")
		attribute = strings.TrimSpace(attribute)
		switch n := len(o.sections); {
		case strings.HasPrefix(line, "m="):
			o.sections = append(o.sections, offerSection{fields: strings.Fields(line[2:])})
		case !isAttribute:
		case n == 0:
			o.session = append(o.session, attribute)
		default:
			o.sections[n-1].lines = append(o.sections[n-1].lines, attribute)
		}
	}
	return o
}

func (s offerSection) attribute(key string) (value string, ok bool) {
	return firstAttribute(s.lines, key)
}

// firstAttribute returns the value of the first attribute with this name. It returns false if no attribute has the
// name.
func firstAttribute(lines []string, key string) (value string, ok bool) {
	for _, l := range lines {
		if name, value, _ := strings.Cut(l, ":"); strings.TrimSpace(name) == key {
			return strings.TrimSpace(value), true
		}
	}
	return "", false
}

// bundleOf returns the BUNDLE group that a section is in.
func (o offerText) bundleOf(s offerSection) []string {
	mid, _ := s.attribute("mid")
	for _, l := range o.session {
		value, ok := strings.CutPrefix(l, "group:")
		if fields := strings.Fields(value); ok && mid != "" && len(fields) > 0 && fields[0] == "BUNDLE" && slices.Contains(fields[1:], mid) {
			return fields[1:]
		}
	}
	return nil
}

type answerCheck struct {
	offer    offerText
	answer   *sdp.SessionDescription
	accepted []int // indexes of the accepted sections
}

// checkBundle checks the BUNDLE group.
func (c answerCheck) checkBundle() error {
	var groups []string
	for _, a := range c.answer.Attributes {
		if a.Key == "group" {
			groups = append(groups, a.Value)
		}
	}
	if len(groups) > 1 {
		return fmt.Errorf("groups %q", groups)
	}
	if len(c.accepted) == 0 {
		if len(groups) > 0 {
			return fmt.Errorf("nothing is accepted, and there is a group %q", groups)
		}
		for _, s := range c.offer.sections {
			if s.fields[1] != "0" && !strings.HasPrefix(s.fields[1], "0/") {
				return errors.New("everything is refused")
			}
		}
		return nil
	}
	offered := c.offer.bundleOf(c.offer.sections[c.accepted[0]])
	if offered == nil {
		if len(groups) > 0 || len(c.accepted) > 1 {
			return fmt.Errorf("without a group %d sections are accepted, in %q", len(c.accepted), groups)
		}
		return nil
	}
	if len(groups) == 0 {
		return errors.New("there is no group")
	}
	var want []string // in the offer's order (RFC 9143 section 7.3.1)
	for _, mid := range offered {
		for _, i := range c.accepted {
			if m, _ := c.offer.sections[i].attribute("mid"); m == mid && !slices.Contains(want, mid) {
				want = append(want, mid)
			}
		}
	}
	if got := strings.Fields(groups[0]); got[0] != "BUNDLE" || got[1] != want[0] || !slices.Equal(got[1:], want) ||
		len(want) != len(c.accepted) {
		return fmt.Errorf("the group is %q, want %q of %d accepted sections", groups[0], want, len(c.accepted))
	}
	return nil
}

// tagIndex returns the index of the section whose transport all bundled sections use, or -1 if no section is accepted.
func (c answerCheck) tagIndex() int {
	value, _ := c.answer.Attribute("group")
	if fields := strings.Fields(value); len(fields) > 1 {
		for i, m := range c.answer.MediaDescriptions {
			if mid, _ := m.Attribute("mid"); mid == fields[1] {
				return i
			}
		}
	}
	if len(c.accepted) > 0 {
		return c.accepted[0]
	}
	return -1
}

// checkSection checks the rules for every section.
func (c answerCheck) checkSection(o offerSection, m *sdp.MediaDescription) error {
	var errs []error
	if m.MediaName.Media != o.fields[0] || strings.Join(m.MediaName.Protos, "/") != o.fields[2] {
		errs = append(errs, fmt.Errorf("%v answers %v", m.MediaName, o.fields))
	}
	wantMid, offered := o.attribute("mid")
	if mid, ok := m.Attribute("mid"); mid != wantMid || ok != (offered && wantMid != "") {
		errs = append(errs, fmt.Errorf("the mid is %q, want %q", mid, wantMid))
	}
	_, only := o.attribute("bundle-only")
	zero := strings.TrimLeft(strings.Split(o.fields[1], "/")[0], "0") == ""
	if zero && !(only && c.offer.bundleOf(o) != nil) && m.MediaName.Port.Value != 0 {
		errs = append(errs, errors.New("what was taken back is accepted"))
	}
	if len(m.MediaName.Formats) == 0 {
		errs = append(errs, errors.New("it has no format"))
	}
	for _, f := range m.MediaName.Formats {
		if !slices.Contains(o.fields[3:], f) {
			errs = append(errs, fmt.Errorf("the format %q was not offered", f))
		}
	}
	once := map[string]bool{}
	for _, a := range m.Attributes {
		key := a.Key
		switch key {
		case "mid", "setup", "ice-ufrag", "ice-pwd", "rtcp-mux", "rtcp-rsize", "sctp-port", "max-message-size", "end-of-candidates", "msid":
		case "sendrecv", "sendonly", "recvonly", "inactive":
			key = "direction"
		default:
			key += ":" + a.Value
		}
		if once[key] {
			errs = append(errs, fmt.Errorf("%q stands twice", key))
		}
		once[key] = true
		if a.Key == "rid" || a.Key == "simulcast" {
			errs = append(errs, fmt.Errorf("%s without the extension of RIDs", a.Key))
		}
	}
	return errors.Join(errs...)
}

// checkTransport checks ICE and DTLS.
func (c answerCheck) checkTransport(i int, m *sdp.MediaDescription) error {
	var errs []error
	for _, a := range m.Attributes {
		if (a.Key == "candidate" || a.Key == "end-of-candidates") && i != c.tagIndex() {
			errs = append(errs, fmt.Errorf("%s away from the tag, which is section %d", a.Key, c.tagIndex()))
		}
	}
	if m.MediaName.Port.Value == 0 {
		return errors.Join(errs...)
	}
	has := func(key string) string {
		value, ok := m.Attribute(key)
		if !ok {
			value, _ = c.answer.Attribute(key)
		}
		if value == "" {
			errs = append(errs, fmt.Errorf("no %s", key))
		}
		return value
	}
	has("ice-ufrag")
	has("ice-pwd")
	has("fingerprint")
	offered, ok := c.offer.sections[c.tagIndex()].attribute("setup")
	if !ok {
		offered, _ = firstAttribute(c.offer.session, "setup")
	}
	if setup := has("setup"); setup != "active" && setup != "passive" || setup == offered {
		errs = append(errs, fmt.Errorf("setup is %q, to %q", setup, offered))
	}
	return errors.Join(errs...)
}

// checkMedia checks an accepted section of audio or video.
func (c answerCheck) checkMedia(o offerSection, m *sdp.MediaDescription) error {
	var errs []error
	directionIn := func(lines []string) (d string) {
		for _, l := range lines {
			if slices.Contains([]string{"sendrecv", "sendonly", "recvonly", "inactive"}, l) {
				return l
			}
		}
		return ""
	}
	offerDirection := directionIn(o.lines)
	if offerDirection == "" {
		offerDirection = directionIn(c.offer.session)
	}
	var answerDirection string
	for _, a := range m.Attributes {
		if d := directionIn([]string{a.Key}); d != "" {
			answerDirection = d
		}
	}
	allowed := map[string][]string{
		"": {"sendrecv", "sendonly", "recvonly", "inactive"}, "sendrecv": {"sendrecv", "sendonly", "recvonly", "inactive"},
		"sendonly": {"recvonly", "inactive"}, "recvonly": {"sendonly", "inactive"}, "inactive": {"inactive"},
	}[offerDirection]
	if !slices.Contains(allowed, answerDirection) {
		errs = append(errs, fmt.Errorf("it is %q, to %q", answerDirection, offerDirection))
	}
	for _, a := range m.Attributes {
		switch a.Key {
		case "rtcp-mux", "rtcp-rsize":
			if _, ok := o.attribute(a.Key); !ok {
				errs = append(errs, fmt.Errorf("%s was not offered", a.Key))
			}
		case "extmap":
			if !slices.ContainsFunc(o.lines, func(l string) bool { return strings.Join(strings.Fields(l), " ") == "extmap:"+a.Value }) {
				errs = append(errs, fmt.Errorf("extmap %q was not offered", a.Value))
			}
		case "rtpmap", "fmtp", "rtcp-fb":
			pt, _, _ := strings.Cut(a.Value, " ")
			if !slices.Contains(m.MediaName.Formats, pt) {
				errs = append(errs, fmt.Errorf("%s of %q, which the m= line lacks", a.Key, pt))
			}
		case "ssrc", "msid": // on hold, a source may keep its name (RFC 5576), but may be in no stream (RFC 8829 section 5.3.1)
			if (answerDirection == "recvonly" || answerDirection == "inactive") && !(a.Key == "ssrc" && strings.Contains(a.Value, " cname:")) {
				errs = append(errs, fmt.Errorf("%s where nothing is sent", a.Key))
			}
		}
	}
	return errors.Join(errs...)
}
