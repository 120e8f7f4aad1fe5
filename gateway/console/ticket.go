package console

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"net/http"
	"net/url"
	"time"

	"voxgate/signaling/access"
)

// listenTickets issues tickets with which an <audio> element can play a conversation, because such an element cannot
// send a key. A ticket contains the encrypted key. It is valid for one conversation, and for 10 s. Playback may
// continue after that.
type listenTickets struct{ seal cipher.AEAD }

const ticketLife = 10 * time.Second

// listenTicket is the content of a ticket.
type listenTicket struct {
	ID, Authorization string
	Until             time.Time
}

func newListenTickets() (listenTickets, error) {
	key := make([]byte, 32)
	rand.Read(key) // Read never returns an error
	block, err := aes.NewCipher(key)
	if err != nil {
		return listenTickets{}, err
	}
	seal, err := cipher.NewGCMWithRandomNonce(block)
	return listenTickets{seal}, err
}

// issueTicket returns a ticket with the key of the request. The key is not checked here, but when the ticket is used.
func (t listenTickets) issueTicket(w http.ResponseWriter, r *http.Request) {
	text, err := json.Marshal(listenTicket{r.PathValue("id"), r.Header.Get("Authorization"), time.Now().Add(ticketLife)})
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	access.WriteJSON(w, http.StatusOK, map[string]string{"ticket": base64.RawURLEncoding.EncodeToString(t.seal.Seal(nil, nil, text, nil))})
}

// redeemTicket serves the sound of the conversation to a client with a ticket.
func (t listenTickets) redeemTicket(endpoints http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var ticket listenTicket
		sealed, err := base64.RawURLEncoding.DecodeString(r.PathValue("ticket"))
		if err == nil {
			sealed, err = t.seal.Open(nil, nil, sealed, nil)
		}
		if err == nil {
			err = json.Unmarshal(sealed, &ticket)
		}
		if err != nil || time.Now().After(ticket.Until) {
			http.Error(w, "This ticket is not valid any more.", http.StatusForbidden)
			return
		}
		r = r.Clone(r.Context())
		r.URL = &url.URL{Path: "/v1/sessions/" + ticket.ID + "/audio"}
		r.Header.Set("Authorization", ticket.Authorization)
		endpoints.ServeHTTP(w, r)
	})
}
