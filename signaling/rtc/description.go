package rtc

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// description is a session description (RFC 8866), reduced to what offers and answers need. A client's SDP is parsed
// only by parseDescription. Pion receives only text that this package has written.
type description struct {
	head       []string // lines before the first media section, without attributes
	attributes attributes
	media      []*mediaDescription
}

// mediaDescription is one media section.
type mediaDescription struct {
	kind       string // "audio", "video", "application", or another kind
	port       int
	proto      string
	formats    []string
	attributes attributes
	bandwidth  []string // values of the b= lines
}

// attribute is an "a=" line; the value is empty if the line has no colon.
type attribute struct{ key, value string }

func (a attribute) String() string {
	if a.value == "" {
		return a.key
	}
	return a.key + ":" + a.value
}

type attributes []attribute

// value returns the value of the first attribute with a name, without surrounding spaces.
func (attrs attributes) value(key string) (value string, ok bool) {
	i := slices.IndexFunc(attrs, func(a attribute) bool { return a.key == key })
	if i < 0 {
		return "", false
	}
	return strings.TrimSpace(attrs[i].value), true
}

// values returns the values of all attributes with a name.
func (attrs attributes) values(key string) (values []string) {
	for _, a := range attrs {
		if a.key == key {
			values = append(values, strings.TrimSpace(a.value))
		}
	}
	return values
}

func (attrs attributes) hasKey(key string) bool {
	_, ok := attrs.value(key)
	return ok
}

// direction is the direction of a section's media, from the view of the side that wrote it.
type direction struct{ sends, receives bool }

func (d direction) String() string {
	switch d {
	case direction{true, true}:
		return "sendrecv"
	case direction{true, false}:
		return "sendonly"
	case direction{false, true}:
		return "recvonly"
	}
	return "inactive"
}

// direction returns the first direction among the attributes.
func (attrs attributes) direction() (d direction, ok bool) {
	for _, a := range attrs {
		switch a.key {
		case "sendrecv":
			return direction{true, true}, true
		case "sendonly":
			return direction{true, false}, true
		case "recvonly":
			return direction{false, true}, true
		case "inactive":
			return direction{}, true
		}
	}
	return direction{}, false
}

// isDirection reports whether an attribute's name is a direction.
func isDirection(key string) bool {
	return key == "sendrecv" || key == "sendonly" || key == "recvonly" || key == "inactive"
}

// parseDescription parses SDP leniently: it accepts any line ends, empty lines, spaces, and any order of lines within a
// part. Lines that do not begin with a letter and "=" are ignored (RFC 8866 section 5).
func parseDescription(text string) (d description, err error) {
	text = strings.NewReplacer("\r\n", "\n", "\r", "\n").Replace(strings.TrimPrefix(text, "\ufeff"))
	first := true
	var m *mediaDescription // the current media section; nil in the session part
	for line := range strings.SplitSeq(text, "\n") {
		line = strings.TrimSpace(line)
		if line == "" {
			continue
		}
		if first && line != "v=0" {
			return d, fmt.Errorf("it begins with %q, not with v=0", clipText(line))
		}
		first = false
		if len(line) < 2 || line[1] != '=' {
			continue
		}
		value := strings.TrimSpace(line[2:])
		switch kind := line[0]; {
		case kind == 'm':
			if m, err = parseMediaLine(value); err != nil {
				return d, err
			}
			d.media = append(d.media, m)
		case kind == 'a':
			key, value, _ := strings.Cut(value, ":")
			a := attribute{strings.TrimSpace(key), value}
			if m == nil {
				d.attributes = append(d.attributes, a)
			} else {
				m.attributes = append(m.attributes, a)
			}
		case m == nil:
			d.head = append(d.head, line)
		case kind == 'b':
			m.bandwidth = append(m.bandwidth, value)
		}
	}
	return d, nil
}

// parseMediaLine reads the value of an "m=" line (RFC 8866 section 5.14).
func parseMediaLine(value string) (*mediaDescription, error) {
	fields := strings.Fields(value)
	bad := func(problem string) (*mediaDescription, error) {
		return nil, fmt.Errorf("the line %q has %s", clipText("m="+value), problem)
	}
	if len(fields) < 4 {
		return bad("fewer than four fields")
	}
	number, _, _ := strings.Cut(fields[1], "/") // omits the number of ports after the slash, which WebRTC does not use
	port, err := strconv.ParseUint(number, 10, 16)
	if err != nil {
		return bad("no port number")
	}
	return &mediaDescription{kind: fields[0], port: int(port), proto: fields[2], formats: fields[3:]}, nil
}

// clipText shortens a client's text.
func clipText(s string) string {
	const most = 80
	if len(s) > most {
		return strings.ToValidUTF8(s[:most], "") + "…"
	}
	return s
}

// write appends a media section as text.
func (m *mediaDescription) write(b *strings.Builder) {
	fmt.Fprintf(b, "m=%s %d %s %s\r\nc=IN IP4 0.0.0.0\r\n", m.kind, m.port, m.proto, strings.Join(m.formats, " "))
	for _, bw := range m.bandwidth {
		fmt.Fprintf(b, "b=%s\r\n", bw)
	}
	m.attributes.write(b)
}

func (attrs attributes) write(b *strings.Builder) {
	for _, a := range attrs {
		fmt.Fprintf(b, "a=%v\r\n", a)
	}
}
