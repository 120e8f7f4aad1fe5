package signaling

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha1"
	"encoding/base64"
	"fmt"
	"strings"
	"time"
)

// turnLife is how long a client can use its TURN credentials to begin with a relay; one that is in use lives on. A
// stolen credential relays for as long, and a client whose network changes later goes on over the WebSocket. A
// reconnect brings new ones.
const turnLife = time.Hour

// ICEServer is a STUN or TURN server that clients get, in the form of RTCIceServer (W3C WebRTC section 4.2.4).
type ICEServer struct {
	URLs       []string `json:"urls"`
	Username   string   `json:"username,omitempty"`
	Credential string   `json:"credential,omitempty"`
}

// NeedsSecret reports whether clients need credentials for the server that its settings lack.
func (s ICEServer) NeedsSecret() bool {
	return s.Credential == "" && len(s.URLs) > 0 && strings.HasPrefix(s.URLs[0], "turn")
}

// TellICE is the ICE servers for one client. A TURN server without credentials has some made of the secret that it
// shares with us, in the form that coturn takes with use-auth-secret (draft-uberti-behave-turn-rest-00, section 2.2).
// Each client has a name of its own, by which the server counts what it relays.
func TellICE(list []ICEServer, secret string, now time.Time) []ICEServer {
	username := fmt.Sprintf("%d:%s", now.Add(turnLife).Unix(), rand.Text())
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
