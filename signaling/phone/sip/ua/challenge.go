package ua

import (
	"bytes"
	"crypto/md5"
	"crypto/rand"
	"crypto/sha256"
	"crypto/sha512"
	"encoding/hex"
	"hash"
	"io"
	"regexp"
	"slices"
	"strings"

	"github.com/emiago/sipgo/sip"
	"github.com/icholy/digest"
)

const (
	// maxChallenges limits how often one request may be challenged. Two proxies and the phone system behind them may
	// each challenge it, and once more when a nonce is stale.
	maxChallenges = 6
	// maxStale limits how often a realm may report that our nonce is stale.
	maxStale = 3
	// maxRealms limits the realms to which we send digest answers.
	maxRealms = 4
)

// challenge is the digest challenge of one realm (RFC 3261, section 22; RFC 7616).
type challenge struct {
	reply string // name of the header for the answer
	digest.Challenge
	stale int // how often the realm has reported a stale nonce
	count int // number of answers that were sent with this nonce (nc)
}

// passwordAnswers answers the challenges to one request with a trunk's password. Several realms may challenge a
// request. The zero value is ready to use.
type passwordAnswers struct {
	rounds int
	realms []*challenge
}

// addChallenges stores the challenges of a response, and reports whether to send the request again with answers.
func (p *passwordAnswers) addChallenges(o *Outbound, res *sip.Response) (shouldRetry bool) {
	if o == nil || o.Username == "" || res.StatusCode != 401 && res.StatusCode != 407 {
		return false
	}
	if p.rounds++; p.rounds > maxChallenges {
		return false
	}
	fresh := false
	for _, one := range challengesIn(res) {
		i := slices.IndexFunc(p.realms, func(c *challenge) bool { return c.reply == one.reply && c.Realm == one.Realm })
		switch {
		case i < 0 && len(p.realms) < maxRealms:
			p.realms = append(p.realms, one)
			fresh = true
		case i >= 0 && one.Nonce == p.realms[i].Nonce: // this nonce is already stored, perhaps with another algorithm
		case i >= 0 && one.Stale && p.realms[i].stale < maxStale:
			one.stale = p.realms[i].stale + 1
			p.realms[i] = one
			fresh = true
		// A realm that challenges again without "stale" does not accept the password.
		case i >= 0:
			return false
		}
	}
	return fresh
}

// authHeaders returns the headers that answer the stored challenges.
func (p *passwordAnswers) authHeaders(o *Outbound, req *sip.Request) (list []sip.Header) {
	for _, c := range p.realms {
		c.count++
		if answer := c.buildAnswer(o, req); answer != "" {
			list = append(list, sip.NewHeader(c.reply, answer))
		}
	}
	return list
}

// challengesIn returns the supported challenges of a response, one for each realm. If a realm sends several, the first
// one is returned, because the realm prefers it (RFC 8760).
func challengesIn(res *sip.Response) (list []*challenge) {
	for _, h := range []struct{ name, reply string }{
		{"Proxy-Authenticate", "Proxy-Authorization"}, {"WWW-Authenticate", "Authorization"},
	} {
		for _, header := range res.GetHeaders(h.name) {
			for _, text := range splitChallenges(header.Value()) {
				c := parseChallenge(text)
				if c == nil || slices.ContainsFunc(list, func(o *challenge) bool { return o.reply == h.reply && o.Realm == c.Realm }) {
					continue
				}
				c.reply = h.reply
				list = append(list, c)
			}
		}
	}
	return list
}

// schemeBegins matches the beginning of a challenge: its scheme and the name of its first parameter.
var schemeBegins = regexp.MustCompile(`^[A-Za-z0-9-]+[ \t]+[A-Za-z0-9-]+[ \t]*=`)

// splitChallenges splits a header into its challenges.
func splitChallenges(text string) (list []string) {
	for _, part := range splitList(text) {
		if schemeBegins.MatchString(part) || len(list) == 0 {
			list = append(list, part)
		} else {
			list[len(list)-1] += ", " + part
		}
	}
	return list
}

// parseChallenge parses a digest challenge. It returns nil for other schemes, and for digest challenges that are not supported.
func parseChallenge(text string) *challenge {
	scheme, rest, _ := strings.Cut(strings.TrimSpace(text), " ")
	if !strings.EqualFold(scheme, "Digest") {
		return nil
	}
	c := &challenge{}
	for _, one := range splitList(rest) {
		key, value, _ := strings.Cut(one, "=")
		value = strings.TrimSpace(value)
		if len(value) >= 2 && value[0] == '"' && value[len(value)-1] == '"' {
			value = unescapeQuoted(value[1 : len(value)-1])
		}
		switch strings.ToLower(strings.TrimSpace(key)) {
		case "realm":
			c.Realm = value
		case "nonce":
			c.Nonce = value
		case "opaque":
			c.Opaque = value
		case "algorithm":
			c.Algorithm = value
		case "stale":
			c.Stale = strings.EqualFold(value, "true")
		case "userhash":
			c.Userhash = strings.EqualFold(value, "true")
		case "qop":
			for q := range strings.SplitSeq(value, ",") {
				if q = strings.ToLower(strings.TrimSpace(q)); q != "" {
					c.QOP = append(c.QOP, q)
				}
			}
		}
	}
	if _, session := c.baseAlgorithm(); session && len(c.QOP) == 0 { // a "-sess" algorithm needs a cnonce, which is sent only with qop
		return nil
	}
	if c.Nonce == "" || c.newHash() == nil || len(c.QOP) > 0 && !c.SupportsQOP("auth") && !c.SupportsQOP("auth-int") {
		return nil
	}
	return c
}

// baseAlgorithm returns the algorithm in upper case, without the suffix "-sess". isSession reports whether it had the suffix. An empty
// name means MD5.
func (c *challenge) baseAlgorithm() (name string, isSession bool) {
	return strings.CutSuffix(strings.ToUpper(c.Algorithm), "-SESS")
}

// newHash returns a hash for the algorithm, or nil if it is not supported.
func (c *challenge) newHash() hash.Hash {
	switch name, _ := c.baseAlgorithm(); name {
	case "", "MD5":
		return md5.New()
	case "SHA-256":
		return sha256.New()
	case "SHA-512-256":
		return sha512.New512_256()
	}
	return nil
}

// buildAnswer returns the header value that answers the challenge, or "".
func (c *challenge) buildAnswer(o *Outbound, req *sip.Request) string {
	options := digest.Options{
		Method: string(req.Method), URI: req.Recipient.String(), Username: o.Username, Password: o.Password, Count: c.count,
		Cnonce:  rand.Text()[:16],
		GetBody: func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(req.Body())), nil },
	}
	plain := c.Challenge
	name, session := c.baseAlgorithm()
	if session { // computes A1 as in RFC 7616, section 3.4.2
		plain.Algorithm = name
		sum := func(text string) string {
			h := c.newHash()
			io.WriteString(h, text)
			return hex.EncodeToString(h.Sum(nil))
		}
		options.A1 = sum(sum(o.Username+":"+c.Realm+":"+o.Password) + ":" + c.Nonce + ":" + options.Cnonce)
	}
	answer, err := digest.Digest(&plain, options)
	if err != nil {
		return ""
	}
	answer.Algorithm = c.Algorithm
	return answer.String()
}
