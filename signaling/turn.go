package signaling

import (
	"cmp"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha1"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"regexp"
	"slices"
	"strings"
	"time"
)

// turnCredentialLifetime is the validity of TURN credentials. It is short, because credentials may be stolen. A relay
// that a client has allocated stays usable after this time, and a client that reconnects gets new credentials.
const turnCredentialLifetime = time.Hour

// ICEServer is a STUN or TURN server for clients, in the format of RTCIceServer (W3C WebRTC section 4.2.4).
type ICEServer struct {
	URLs       []string `json:"urls"`
	Username   string   `json:"username,omitempty"`
	Credential string   `json:"credential,omitempty"`
}

// ParseICEServers parses an operator's list: URLs separated by commas, or a JSON array of RTCIceServer. It returns an
// error if browsers would reject an entry, because a browser then rejects the whole list.
func ParseICEServers(text string) (servers []ICEServer, err error) {
	text = strings.TrimSpace(text)
	if !strings.HasPrefix(text, "[") && !strings.HasPrefix(text, "{") {
		for u := range strings.SplitSeq(text, ",") {
			if u = strings.TrimSpace(u); u == "" {
				continue
			}
			if u, err = parseICEURL(u); err != nil {
				return nil, err
			}
			servers = append(servers, ICEServer{URLs: []string{u}})
		}
		return servers, nil
	}
	if strings.HasPrefix(text, "{") {
		text = "[" + text + "]"
	}
	var items []struct {
		URL, URLs            json.RawMessage
		Username, Credential string
	}
	if err := json.Unmarshal([]byte(text), &items); err != nil {
		if wrong := (*json.UnmarshalTypeError)(nil); errors.As(err, &wrong) {
			return nil, fmt.Errorf("%s: a text is expected, not a JSON %s", cmp.Or(wrong.Field, "the list"), wrong.Value)
		}
		return nil, fmt.Errorf("JSON: %w", err)
	}
	for i, item := range items {
		server := ICEServer{Username: item.Username, Credential: item.Credential}
		if server.URLs, err = parseICEURLs(item.URLs); err == nil {
			err = server.checkCredentialPair()
		}
		if len(server.URLs) == 0 && item.URL != nil {
			err = errors.New(`"url" is an old name that browsers do not read any more: write "urls"`)
		}
		if err != nil {
			return nil, fmt.Errorf("server %d: %w", i+1, err)
		}
		servers = append(servers, server)
	}
	return servers, nil
}

// parseICEURLs parses the field "urls" of an RTCIceServer, which is a string or a list of strings.
func parseICEURLs(raw json.RawMessage) (urls []string, err error) {
	var one string
	if json.Unmarshal(raw, &one) == nil && one != "" {
		urls = []string{one}
	} else if json.Unmarshal(raw, &urls) != nil || len(urls) == 0 {
		return nil, errors.New(`"urls" must be a URL or a list of URLs`)
	}
	for i, u := range urls {
		if urls[i], err = parseICEURL(u); err != nil {
			return nil, err
		}
	}
	return urls, nil
}

// iceURL matches the URL of a STUN server (RFC 7064 section 3.1) or of a TURN server (RFC 7065 section 3.1).
var iceURL = regexp.MustCompile(`^(stuns?|turns?):(\[[0-9a-fA-F:.]+\]|[^:/?#@\[\]\s]+)(?::([0-9]+))?(\?transport=(?:udp|tcp))?$`)

// parseICEURL returns the URL of a STUN or TURN server with its scheme in lower case.
func parseICEURL(text string) (string, error) {
	scheme, rest, _ := strings.Cut(text, ":")
	text = strings.ToLower(scheme) + ":" + rest
	parts := iceURL.FindStringSubmatch(text)
	switch {
	case strings.HasPrefix(rest, "//"):
		return "", fmt.Errorf("%q: leave out the slashes, as in turn:turn.example.com:3478", text)
	case parts == nil:
		return "", fmt.Errorf("%q is not a URL like stun:stun.example.com:3478 or turn:turn.example.com:3478?transport=tcp", text)
	case parts[4] != "" && strings.HasPrefix(parts[1], "stun"):
		return "", fmt.Errorf("%q: the URL of a STUN server has no transport", text)
	case strings.HasPrefix(parts[2], "[") && net.ParseIP(strings.Trim(parts[2], "[]")) == nil:
		return "", fmt.Errorf("%q: %s is not an IPv6 address", text, parts[2])
	}
	if err := checkPort(parts[3]); err != nil {
		return "", fmt.Errorf("%q: %w", text, err)
	}
	return text, nil
}

// checkCredentialPair returns an error if browsers would reject the server's credentials.
func (i ICEServer) checkCredentialPair() error {
	if i.hasTURN() && i.Credential != "" && i.Username == "" {
		return errors.New("a TURN server with a credential needs a username")
	}
	if i.hasTURN() && i.Credential == "" && i.Username != "" {
		return errors.New("a TURN server with a username needs a credential")
	}
	return nil
}

func (i ICEServer) hasTURN() bool {
	return slices.ContainsFunc(i.URLs, func(u string) bool { return strings.HasPrefix(u, "turn") })
}

// NeedsSecret reports whether the server is a TURN server without credentials. The gateway then needs a secret to
// create credentials for clients.
func (i ICEServer) NeedsSecret() bool { return i.Credential == "" && i.hasTURN() }

// ICEServersFor returns the ICE servers for one client. If a TURN server has no credentials, it creates some with a
// user name for this client. They have the format of coturn's use-auth-secret (draft-uberti-behave-turn-rest-00,
// section 2.2).
func ICEServersFor(list []ICEServer, secret string, now time.Time) []ICEServer {
	username := fmt.Sprintf("%d:%s", now.Add(turnCredentialLifetime).Unix(), rand.Text())
	mac := hmac.New(sha1.New, []byte(secret))
	mac.Write([]byte(username))
	credential := base64.StdEncoding.EncodeToString(mac.Sum(nil))
	servers := append([]ICEServer{}, list...)
	for i, s := range servers {
		if s.NeedsSecret() && secret != "" {
			servers[i].Username, servers[i].Credential = username, credential
		}
	}
	return servers
}
