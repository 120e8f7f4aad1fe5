package ua

import (
	"bytes"
	"encoding/base64"
	"io"
	"mime/quotedprintable"
	"slices"
	"strings"

	"github.com/emiago/sipgo/sip"
)

// Content types of the supported bodies, in lower case.
const (
	typeSDP       = "application/sdp"
	typeDTMFRelay = "application/dtmf-relay"
	typeDTMF      = "application/dtmf"
	typeFragment  = "message/sipfrag"
)

const (
	// maxParts limits the parts of a body, and maxDepth their nesting. Bodies from carriers have two or three parts, in
	// one level.
	maxParts = 32
	maxDepth = 4
)

// bodyPart is a body, or a part of a multipart body (RFC 5621).
type bodyPart struct {
	kind        string // content type in lower case, without parameters; empty if missing
	params      string // parameters of the content type
	disposition string // Content-Disposition in lower case, with its parameters
	encoding    string // Content-Transfer-Encoding
	data        []byte
}

// isMarkedRequired reports whether the part says handling=required. By RFC 3261, section 20.11, a part without a handling
// is required, too. Here nested parts without one are ignored if they are not understood.
func (p *bodyPart) isMarkedRequired() bool {
	return strings.Contains(strings.ReplaceAll(p.disposition, " ", ""), "handling=required")
}

func (p *bodyPart) isMarkedOptional() bool {
	return strings.Contains(strings.ReplaceAll(p.disposition, " ", ""), "handling=optional")
}

// isSession reports whether an SDP part describes the session itself. It may instead describe, for example, an early
// session (RFC 3959).
func (p *bodyPart) isSession() bool {
	name, _, _ := strings.Cut(p.disposition, ";")
	name = strings.TrimSpace(name)
	return name == "" || name == "session" || name == "render"
}

// findBody returns the part of a message that has one of the given types, or nil. A body without a Content-Type counts
// as the first of these types. If the message requires a part that is not supported, refused is the refusal.
func findBody(m sip.Message, types ...string) (found *bodyPart, refused *Refusal) {
	body := m.Body()
	if len(bytes.TrimSpace(body)) == 0 {
		return nil, nil
	}
	top := bodyPart{data: body, disposition: strings.ToLower(headerText(m, "Content-Disposition"))}
	top.kind, top.params = splitType(headerText(m, "Content-Type", "c"))
	unsupported := &Refusal{
		415, "Unsupported Media Type", "body: " + top.kind, []sip.Header{sip.NewHeader("Accept", accepted), sip.NewHeader("Accept-Encoding",
			"identity")},
	}
	if coding := strings.ToLower(headerText(m, "Content-Encoding", "e")); coding != "" && coding != "identity" {
		if top.isMarkedOptional() {
			return nil, nil
		}
		return nil, unsupported
	}
	top.encoding = headerText(m, "Content-Transfer-Encoding")
	if top.kind == "" {
		top.kind = types[0]
	}
	partsLeft := maxParts
	found, missing := searchParts(&top, types, maxDepth, &partsLeft)
	if missing || found == nil && !top.isMarkedOptional() && !strings.HasPrefix(top.kind, "multipart/") {
		return nil, unsupported
	}
	return found, nil
}

// searchParts searches a part, and the parts nested in it, for one of the types. hasUnsupported is true if a required
// part has none of the types.
func searchParts(p *bodyPart, types []string, depth int, partsLeft *int) (found *bodyPart, hasUnsupported bool) {
	if *partsLeft--; *partsLeft < 0 {
		return nil, false
	}
	if !strings.HasPrefix(p.kind, "multipart/") {
		if !slices.Contains(types, p.kind) {
			return nil, p.isMarkedRequired()
		}
		if p.kind == typeSDP && !p.isSession() || !p.decodeTransferEncoding() {
			return nil, false
		}
		return p, false
	}
	if depth == 0 {
		return nil, false
	}
	for _, one := range splitParts(p.data, parameterOf(p.params, "boundary")) {
		inner, lacks := searchParts(one, types, depth-1, partsLeft)
		hasUnsupported = hasUnsupported || lacks
		if inner != nil && (found == nil || p.kind == "multipart/alternative") { // the last alternative is the best
			found = inner
		}
	}
	return found, hasUnsupported && p.kind != "multipart/alternative"
}

// decodeTransferEncoding decodes the part's data according to its Content-Transfer-Encoding (RFC 2045, section 6).
func (p *bodyPart) decodeTransferEncoding() (ok bool) {
	var err error
	switch strings.ToLower(p.encoding) {
	case "base64":
		p.data, err = base64.StdEncoding.DecodeString(strings.Join(strings.Fields(string(p.data)), ""))
	case "quoted-printable":
		p.data, err = io.ReadAll(quotedprintable.NewReader(bytes.NewReader(p.data)))
	}
	return err == nil
}

// splitParts splits a multipart body (RFC 2046, section 5.1.1). It accepts bare LF as line end, and a missing last boundary.
func splitParts(body []byte, boundary string) (parts []*bodyPart) {
	if boundary == "" { // takes the missing boundary from the first line
		line, _, _ := bytes.Cut(bytes.TrimLeft(body, "\r\n"), []byte("\n"))
		text, ok := bytes.CutPrefix(bytes.TrimSpace(line), []byte("--"))
		if !ok {
			return nil
		}
		boundary = string(text)
	}
	delimiter := []byte("--" + boundary)
	begin := -1 // start of the current part
	for at := 0; at < len(body) && len(parts) <= maxParts; {
		end := len(body)
		if i := bytes.IndexByte(body[at:], '\n'); i >= 0 {
			end = at + i + 1
		}
		rest, ok := bytes.CutPrefix(body[at:end], delimiter)
		rest = bytes.TrimSpace(rest)
		if ok && (len(rest) == 0 || string(rest) == "--") {
			if begin >= 0 {
				parts = append(parts, parsePart(body[begin:at]))
			}
			if begin = end; len(rest) > 0 {
				return parts
			}
		}
		at = end
	}
	if begin >= 0 && begin < len(body) {
		parts = append(parts, parsePart(body[begin:]))
	}
	return parts
}

// parsePart parses the headers of a part, and removes the line end before the next boundary from its data.
func parsePart(text []byte) *bodyPart {
	p := &bodyPart{kind: "text/plain"}
	for {
		line, rest, more := bytes.Cut(text, []byte("\n"))
		line = bytes.TrimRight(line, "\r")
		if len(bytes.TrimSpace(line)) == 0 {
			text = rest
			break
		}
		name, value, ok := strings.Cut(string(line), ":")
		if !ok || strings.ContainsAny(name, " =") { // the part has no headers
			break
		}
		value = strings.TrimSpace(value)
		for more && len(rest) > 0 && (rest[0] == ' ' || rest[0] == '\t') { // a folded header continues in the next line
			line, rest, more = bytes.Cut(rest, []byte("\n"))
			value += " " + string(bytes.TrimSpace(line))
		}
		switch strings.ToLower(strings.TrimSpace(name)) {
		case "content-type", "c":
			p.kind, p.params = splitType(value)
		case "content-disposition":
			p.disposition = strings.ToLower(value)
		case "content-transfer-encoding":
			p.encoding = value
		}
		text = rest
	}
	text = bytes.TrimSuffix(text, []byte("\n"))
	p.data = bytes.TrimSuffix(text, []byte("\r"))
	return p
}

// splitType splits a Content-Type into type and parameters.
func splitType(value string) (kind, params string) {
	kind, params, _ = strings.Cut(value, ";")
	return strings.ToLower(strings.ReplaceAll(kind, " ", "")), params
}

// parameterOf returns a parameter of a header, without its quotes, or "".
func parameterOf(params, name string) string {
	for params != "" {
		var key string
		key, params, _ = strings.Cut(params, "=")
		params = strings.TrimLeft(params, " ")
		value := ""
		if rest, ok := strings.CutPrefix(params, `"`); ok {
			value, params, _ = strings.Cut(rest, `"`)
			_, params, _ = strings.Cut(params, ";")
		} else {
			value, params, _ = strings.Cut(params, ";")
			value = strings.TrimSpace(value)
		}
		if _, last, ok := strings.Cut(key, ";"); ok { // omits a preceding parameter that has no value
			key = last
		}
		if strings.EqualFold(strings.TrimSpace(key), name) {
			return value
		}
	}
	return ""
}

// findSDP returns the session description in a message, or nil.
func findSDP(m sip.Message) []byte {
	if p, _ := findBody(m, typeSDP); p != nil {
		return p.data
	}
	return nil
}

// checkBody returns a refusal if the body of a request is not supported, else nil.
func checkBody(req *sip.Request) *Refusal {
	_, refused := findBody(req, typeSDP)
	return refused
}

// accepted is the value of the Accept header: the supported types of bodies.
const accepted = typeSDP + ", " + typeDTMFRelay + ", " + typeDTMF + ", " + typeFragment + ", multipart/mixed"
