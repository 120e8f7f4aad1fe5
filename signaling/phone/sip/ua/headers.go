package ua

import (
	"cmp"
	"crypto/sha256"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/emiago/sipgo/sip"

	"voxgate/signaling/phone"
)

// headerText returns the value of the first header with one of these names.
func headerText(m sip.Message, names ...string) string {
	for _, name := range names {
		if list := m.GetHeaders(name); len(list) > 0 {
			return strings.TrimSpace(list[0].Value())
		}
	}
	return ""
}

// optionTags returns the extensions listed in a header of a request.
func optionTags(req *sip.Request, header string) (list []string) {
	for _, h := range req.GetHeaders(header) {
		for one := range strings.SplitSeq(h.Value(), ",") {
			if one = strings.ToLower(strings.TrimSpace(one)); one != "" {
				list = append(list, one)
			}
		}
	}
	return list
}

// supportsOption reports whether the sender of a request supports an extension.
func supportsOption(req *sip.Request, option string) bool {
	return slices.Contains(slices.Concat(optionTags(req, "Supported"), optionTags(req, "k"), optionTags(req, "Require")), option)
}

// requiresOption reports whether the sender of a request requires an extension.
func requiresOption(req *sip.Request, option string) bool {
	return slices.Contains(optionTags(req, "Require"), option)
}

// missingOptions returns the extensions that a request requires and that served does not list.
func missingOptions(req *sip.Request, served string) (missing []string) {
	return slices.DeleteFunc(optionTags(req, "Require"), func(option string) bool {
		return slices.Contains(strings.Split(served, ", "), option)
	})
}

// splitList splits a header at commas that are neither quoted nor inside a URI.
func splitList(text string) (list []string) {
	begin, inURI, inQuotes := 0, false, false
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case inQuotes && c == '\\':
			i++
		case c == '"' && !inURI:
			inQuotes = !inQuotes
		case inQuotes:
		case c == '<', c == '>':
			inURI = c == '<'
		case c == ',' && !inURI:
			list = append(list, strings.TrimSpace(text[begin:i]))
			begin = i + 1
		}
	}
	return append(list, strings.TrimSpace(text[begin:]))
}

// unescapeQuoted removes the backslash escapes of a quoted string. The result is valid UTF-8.
func unescapeQuoted(text string) string {
	var b strings.Builder
	for i := 0; i < len(text); i++ {
		if text[i] == '\\' && i+1 < len(text) {
			i++
		}
		b.WriteByte(text[i])
	}
	return toValidUTF8(b.String())
}

// toValidUTF8 returns text as valid UTF-8, as SIP requires. Invalid text is decoded as ISO 8859-1, because carriers copy
// names from ISDN.
func toValidUTF8(text string) string {
	if utf8.ValidString(text) {
		return text
	}
	var b strings.Builder
	for i := range len(text) {
		b.WriteRune(rune(text[i]))
	}
	return b.String()
}

// contactsIn returns the Contacts of a response, best first (RFC 3261, section 20.10).
func contactsIn(res *sip.Response) (list []*sip.ContactHeader) {
	for _, h := range res.GetHeaders("Contact") {
		if contact, ok := h.(*sip.ContactHeader); ok && !contact.Address.Wildcard {
			list = append(list, contact)
		}
	}
	preference := func(c *sip.ContactHeader) float64 {
		q, err := strconv.ParseFloat(c.Params.GetOr("q", "1"), 64)
		if err != nil {
			return 1
		}
		return q
	}
	slices.SortStableFunc(list, func(a, b *sip.ContactHeader) int { return cmp.Compare(preference(b), preference(a)) })
	return list
}

func toTag(res *sip.Response) string {
	if res.To() == nil {
		return ""
	}
	return res.To().Params.GetOr("tag", "")
}

// maxRetryAfter limits the wait that a peer can demand with Retry-After.
const maxRetryAfter = time.Hour

// retryAfter parses Retry-After, such as "120;duration=3600 (in a meeting)". It returns 0 if the header is missing.
func retryAfter(res *sip.Response) time.Duration {
	text, _, _ := strings.Cut(headerText(res, "Retry-After"), ";")
	text, _, _ = strings.Cut(text, "(")
	seconds, err := strconv.ParseUint(strings.TrimSpace(text), 10, 31)
	if err != nil {
		return 0
	}
	return min(time.Duration(seconds)*time.Second, maxRetryAfter)
}

// withReasonHeader appends the text of a message's Reason header (RFC 3326) to a reason. The header contains the cause
// that the phone network gives.
func withReasonHeader(reason string, m interface {
	GetHeaders(name string) []sip.Header
},
) string {
	var texts []string
	for _, h := range m.GetHeaders("Reason") {
		texts = append(texts, h.Value())
	}
	if len(texts) == 0 {
		return phone.SanitizeField(reason)
	}
	return fmt.Sprintf("%s (%s)", phone.SanitizeField(reason), phone.SanitizeField(strings.Join(texts, ", ")))
}

// ParseURI parses a SIP URI.
func ParseURI(text string) (uri sip.Uri, err error) {
	scheme, _, _ := strings.Cut(strings.ToLower(text), ":")
	if scheme != "sip" && scheme != "sips" {
		return uri, fmt.Errorf("%q is not a SIP URI like sip:host or sip:+4930123@host", text)
	}
	if err := sip.ParseUri(text, &uri); err != nil {
		return uri, fmt.Errorf("%q is not a SIP URI: %w", text, err)
	}
	if uri.Host == "" {
		return uri, fmt.Errorf("%q is not a SIP URI: it has no host", text)
	}
	return uri, nil
}

// hostPort returns the host of a URI, with its port if set.
func hostPort(uri sip.Uri) string {
	if uri.Port > 0 {
		return fmt.Sprintf("%s:%d", uri.Host, uri.Port)
	}
	return uri.Host
}

// setBody sets the body of a message and its Content-Type.
func setBody(m sip.Message, kind string, body []byte) {
	contentType := sip.ContentTypeHeader(kind)
	m.AppendHeader(&contentType)
	m.SetBody(body)
}

func sourceOf(req *sip.Request) (from netip.Addr, ok bool) {
	at, err := netip.ParseAddrPort(req.Source())
	return at.Addr().Unmap(), err == nil
}

func branchOf(req *sip.Request) string { return req.Via().Params.GetOr("branch", "") }

// inviteKey returns a key that is the same for an INVITE and its CANCEL (RFC 3261, section 9.1). The key includes the
// source address, so that an attacker who knows the Call-ID cannot end a call.
func inviteKey(req *sip.Request) [sha256.Size]byte {
	from, _ := sourceOf(req)
	return sha256.Sum256(fmt.Append(nil, req.CallID().Value(), " ", req.From().Params.GetOr("tag", ""), " ", req.CSeq().SeqNo,
		" ", branchOf(req), " ", from))
}

// userNumber returns the number or the name in the user part of a URI.
func userNumber(uri sip.Uri) phone.Number { return phone.ParseNumber(uri.String()) }
