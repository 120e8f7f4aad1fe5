package client

import (
	"encoding/json"
	"fmt"

	"github.com/gorilla/websocket"
)

// PeerDialer opens the WebRTC connection of a conversation, which then carries the audio in both directions: see
// package voxgate/client/rtc.
type PeerDialer interface {
	// OpenPeer opens a peer for a new connection to the gateway. The peer may send an offer at once, or after
	// SetServers. The peer calls send to send a message to the gateway; send blocks for 5 s at most.
	OpenPeer(send func(kind string, payload any) error) (Peer, error)
}

// Peer is the client's side of a WebRTC connection.
type Peer interface {
	// SetServers is called once, with the gateway's STUN and TURN servers.
	SetServers(servers []ICEServer) error
	// HandleAnswer applies the gateway's SDP answer.
	HandleAnswer(sdp string) error
	// HandleCandidate adds a candidate of the gateway, a RTCIceCandidateInit in JSON.
	HandleCandidate(candidate json.RawMessage) error
	// Close ends the WebRTC connection, and blocks until its goroutines have ended.
	Close() error
}

// ICEServer is a STUN or TURN server that the gateway names.
type ICEServer struct {
	URLs                 []string
	Username, Credential string
}

// openPeer opens the peer of a new connection, if the application wants WebRTC.
func (c *Conversation) openPeer(ws *websocket.Conn) error {
	if c.options.WebRTC == nil {
		return nil
	}
	peer, err := c.options.WebRTC.OpenPeer(func(kind string, payload any) error {
		c.mu.Lock()
		defer c.mu.Unlock()
		return c.writeMessage(ws, kind, payload)
	})
	if err != nil {
		return fmt.Errorf("WebRTC: %w", err)
	}
	c.peer = peer
	return nil
}

// passServersToPeer passes the STUN and TURN servers of GEMINI_CONNECTED to the peer.
func (c *Conversation) passServersToPeer(payload json.RawMessage) error {
	var p struct{ ICEServers []ICEServer }
	err := json.Unmarshal(payload, &p)
	if err == nil && c.peer != nil {
		err = c.peer.SetServers(p.ICEServers)
	}
	if err != nil {
		return fmt.Errorf("GEMINI_CONNECTED: %w", err)
	}
	return nil
}

func (c *Conversation) closePeer() {
	if c.peer != nil {
		_ = c.peer.Close()
		c.peer = nil
	}
}

// handlePeerMessage passes a message of the negotiation to the peer. It reports whether the message belongs to the
// negotiation.
func (c *Conversation) handlePeerMessage(m message) (isPeerMessage bool, err error) {
	if c.peer == nil {
		return false, nil // the application may negotiate itself, with Send and Raw events
	}
	var p struct{ SDP string }
	switch m.Type {
	case "WEBRTC_ANSWER":
		if err = json.Unmarshal(m.Payload, &p); err == nil {
			err = c.peer.HandleAnswer(p.SDP)
		}
	case "WEBRTC_ICE_CANDIDATE":
		err = c.peer.HandleCandidate(m.Payload)
	default:
		return false, nil
	}
	if err != nil {
		err = fmt.Errorf("%s: %w", m.Type, err)
	}
	return true, err
}
