package client

import (
	"encoding/json"
	"fmt"

	"github.com/gorilla/websocket"
)

// PeerDialer opens the WebRTC connection of a conversation, which then carries the audio in both directions: see
// package voxgate/client/rtc.
type PeerDialer interface {
	// OpenPeer starts the negotiation over a connection to the gateway, and again over each later one. send sends a
	// message of the protocol; it blocks for 5 s at most.
	OpenPeer(servers []ICEServer, send func(kind string, payload any) error) (Peer, error)
}

// Peer is the client's side of a WebRTC connection.
type Peer interface {
	// HandleAnswer applies the gateway's SDP answer.
	HandleAnswer(sdp string) error
	// HandleCandidate adds a candidate of the gateway, a RTCIceCandidateInit in JSON.
	HandleCandidate(candidate json.RawMessage) error
	// Close ends the WebRTC connection.
	Close() error
}

// ICEServer is a STUN or TURN server that the gateway names.
type ICEServer struct {
	URLs                 []string
	Username, Credential string
}

// openPeer starts the negotiation of WebRTC over a new connection, if the application wants that.
func (c *Conversation) openPeer(ws *websocket.Conn, payload json.RawMessage) error {
	if c.options.WebRTC == nil {
		return nil
	}
	var p struct{ ICEServers []ICEServer }
	if len(payload) > 0 {
		if err := json.Unmarshal(payload, &p); err != nil {
			return fmt.Errorf("the gateway's ICE servers: %w", err)
		}
	}
	c.closePeer()
	peer, err := c.options.WebRTC.OpenPeer(p.ICEServers, func(kind string, payload any) error {
		c.mu.Lock()
		defer c.mu.Unlock()
		return c.write(ws, kind, payload)
	})
	if err != nil {
		return fmt.Errorf("WebRTC: %w", err)
	}
	c.peer = peer
	return nil
}

func (c *Conversation) closePeer() {
	if c.peer != nil {
		_ = c.peer.Close()
		c.peer = nil
	}
}

// handlePeer passes a message of the negotiation to the peer. It reports whether the message was one.
func (c *Conversation) handlePeer(m message) (handled bool, err error) {
	switch m.Type {
	case "WEBRTC_ANSWER":
		var p struct{ SDP string }
		if err = json.Unmarshal(m.Payload, &p); err == nil && c.peer != nil {
			err = c.peer.HandleAnswer(p.SDP)
		}
	case "WEBRTC_ICE_CANDIDATE":
		if c.peer != nil {
			err = c.peer.HandleCandidate(m.Payload)
		}
	default:
		return false, nil
	}
	if err != nil {
		err = fmt.Errorf("%s: %w", m.Type, err)
	}
	return true, err
}
