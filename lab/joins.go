package main

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"sync"
	"time"

	"github.com/gorilla/websocket"
	"github.com/pion/webrtc/v4"
	"google.golang.org/protobuf/encoding/protowire"

	"voxgate/internal/testkit/rtctest"
)

// join connects a caller to a conversation at a URL.
type join func(ctx context.Context, c *caller, url string) error

// joinFuncs maps the names in the set-up files to the callers' signalling protocols.
var joinFuncs = map[string]join{"voxgate": joinVoxgate, "smallwebrtc": joinPipecat, "livekit": joinLiveKit}

// joinPipecat posts an offer like Pipecat's SmallWebRTCTransport.
func joinPipecat(ctx context.Context, c *caller, serverURL string) (err error) {
	o := c.peerOptions()
	o.RED = false // aiortc does not support it, and this caller sends RED whenever it offers it
	o.Channel = "chat"
	if c.Caller, err = rtctest.New(o); err != nil {
		return err
	}
	offer, err := c.Offer(ctx, false)
	if err != nil {
		return err
	}
	body, _ := json.Marshal(map[string]string{"sdp": offer, "type": "offer"})
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, serverURL+"/api/offer", bytes.NewReader(body))
	if err != nil {
		return err
	}
	request.Header.Set("Content-Type", "application/json")
	client := http.Client{Transport: &http.Transport{DialContext: c.dialSignaling, DisableKeepAlives: true}}
	response, err := client.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	raw, err := io.ReadAll(response.Body)
	if err != nil || response.StatusCode != http.StatusOK {
		return fmt.Errorf("the offer was refused: %s: %s %w", response.Status, raw, err)
	}
	var answer struct{ SDP string }
	if err := json.Unmarshal(raw, &answer); err != nil {
		return err
	}
	if err := c.SetAnswer(answer.SDP); err != nil {
		return err
	}
	return c.waitFor(ctx, c.Connected())
}

// liveKit is a participant of a room of LiveKit's server (livekit_rtc.proto, version 15). It has two connections, one
// for publishing and one for subscribing. The participant sends the offer for the first, and the server the offer for
// the second.
type liveKit struct {
	*caller
	ws          *websocket.Conn
	write       sync.Mutex
	subscriber  *webrtc.PeerConnection
	pending     [2][]webrtc.ICECandidateInit // candidates by target that wait for the server's description
	subscribing chan struct{}
}

// Field numbers of SignalRequest and SignalResponse, and the targets of a candidate.
const (
	requestOffer, requestAnswer, requestAddTrack                 = 1, 2, 4
	responseJoin, responseAnswer, responseOffer, responseTrickle = 1, 2, 3, 4
	publisher, subscriber                                        = 0, 1
)

// joinLiveKit joins a new room. The URL contains the server's key and secret.
func joinLiveKit(ctx context.Context, c *caller, serverURL string) (err error) {
	target, err := url.Parse(serverURL)
	if err != nil {
		return err
	}
	l := &liveKit{caller: c, subscribing: make(chan struct{})}
	if err := l.createPeers(); err != nil {
		return err
	}
	query := url.Values{"access_token": {liveKitToken(target.User)}, "protocol": {"15"}, "auto_subscribe": {"1"}, "sdk": {"go"}}
	dialer := websocket.Dialer{NetDialContext: c.dialSignaling}
	if l.ws, _, err = dialer.DialContext(ctx, "ws://"+target.Host+"/rtc?"+query.Encode(), nil); err != nil {
		return err
	}
	c.onClose = append(c.onClose, func() { l.ws.Close() })
	joined := make(chan struct{})
	c.reading.Go(func() { c.setFailure(fmt.Errorf("LiveKit's signalling ended: %w", l.handleSignals(joined))) })
	if err := c.waitFor(ctx, joined); err != nil {
		return err
	}
	track := appendBytesField(nil, 1, c.Mic.ID()) // cid; type 0 means audio
	track = appendVarintField(appendBytesField(track, 2, "microphone"), 8, 2)
	if err := l.sendSignal(requestAddTrack, track); err != nil {
		return err
	}
	offer, err := c.Offer(ctx, false)
	if err != nil {
		return err
	}
	if err := l.sendSignal(requestOffer, appendBytesField(appendBytesField(nil, 1, "offer"), 2, offer)); err != nil {
		return err
	}
	if err := c.awaitAndSetAnswer(ctx); err != nil {
		return err
	}
	if err := c.waitFor(ctx, c.Connected()); err != nil {
		return err
	}
	return c.waitFor(ctx, l.subscribing)
}

// createPeers creates both connections.
func (l *liveKit) createPeers() (err error) {
	o := l.peerOptions()
	o.Direction = webrtc.RTPTransceiverDirectionSendonly
	if l.Caller, err = rtctest.New(o); err != nil {
		return err
	}
	api, mux, err := rtctest.NewAPI(rtctest.Options{NACK: o.NACK, RED: l.sink != nil && o.RED, Socket: l.second})
	if err != nil {
		return err
	}
	if mux != nil {
		defer func() { l.onClose = append(l.onClose, func() { mux.Close() }) }()
	}
	if l.subscriber, err = api.NewPeerConnection(webrtc.Configuration{}); err != nil {
		return err
	}
	l.onClose = append(l.onClose, func() { l.subscriber.GracefulClose() })
	l.subscriber.OnTrack(func(track *webrtc.TrackRemote, receiver *webrtc.RTPReceiver) {
		go rtctest.DiscardRTCP(receiver)
		l.readTrack(track)
	})
	subscribing := sync.OnceFunc(func() { close(l.subscribing) }) // once, because a recovered connection reports its state again
	l.subscriber.OnConnectionStateChange(func(s webrtc.PeerConnectionState) {
		if s == webrtc.PeerConnectionStateConnected {
			subscribing()
		}
	})
	return nil
}

// handleSignals handles signalling messages until the socket ends.
func (l *liveKit) handleSignals(joined chan struct{}) error {
	for {
		_, raw, err := l.ws.ReadMessage()
		if err != nil {
			return err
		}
		for field, value := range parseFields(raw) {
			body := parseFields(value)
			switch field {
			case responseJoin:
				close(joined)
			case responseAnswer:
				l.answers <- string(body[2])
			case responseOffer:
				err = l.answerOffer(body)
			case responseTrickle:
				err = l.addCandidate(body)
			}
			if err != nil {
				return err
			}
		}
	}
}

// answerOffer answers an offer of the server. It waits for its candidates, so that the answer includes all of them.
func (l *liveKit) answerOffer(offer map[int][]byte) error {
	description := webrtc.SessionDescription{Type: webrtc.SDPTypeOffer, SDP: string(offer[2])}
	if err := l.subscriber.SetRemoteDescription(description); err != nil {
		return err
	}
	for _, c := range l.pending[subscriber] {
		if err := l.subscriber.AddICECandidate(c); err != nil {
			return err
		}
	}
	l.pending[subscriber] = nil
	answer, err := l.subscriber.CreateAnswer(nil)
	if err != nil {
		return err
	}
	gathered := webrtc.GatheringCompletePromise(l.subscriber)
	if err := l.subscriber.SetLocalDescription(answer); err != nil {
		return err
	}
	<-gathered
	reply := appendBytesField(appendBytesField(nil, 1, "answer"), 2, l.subscriber.LocalDescription().SDP)
	if id, _ := binary.Uvarint(offer[3]); id > 0 {
		reply = appendVarintField(reply, 3, id)
	}
	return l.sendSignal(requestAnswer, reply)
}

// addCandidate adds a candidate of the server.
func (l *liveKit) addCandidate(body map[int][]byte) error {
	var c webrtc.ICECandidateInit
	if err := json.Unmarshal(body[1], &c); err != nil {
		return err
	}
	target, _ := binary.Uvarint(body[2])
	pc := []*webrtc.PeerConnection{l.PC, l.subscriber}[target&1]
	l.pending[target&1] = append(l.pending[target&1], c)
	if pc.RemoteDescription() == nil {
		return nil
	}
	for _, c := range l.pending[target&1] {
		if err := pc.AddICECandidate(c); err != nil {
			return err
		}
	}
	l.pending[target&1] = nil
	return nil
}

func (l *liveKit) sendSignal(field int, body []byte) error {
	l.write.Lock()
	defer l.write.Unlock()
	return l.ws.WriteMessage(websocket.BinaryMessage, appendBytesField(nil, field, string(body)))
}

// liveKitToken returns a JSON Web Token that permits joining a new room of LiveKit.
func liveKitToken(user *url.Userinfo) string {
	secret, _ := user.Password()
	name := fmt.Sprintf("lab-%d", time.Now().UnixNano())
	claims, _ := json.Marshal(map[string]any{
		"iss": user.Username(), "sub": name, "nbf": time.Now().Add(-time.Minute).Unix(), "exp": time.Now().Add(time.Hour).Unix(),
		"video": map[string]any{"room": name, "roomJoin": true, "canPublish": true, "canSubscribe": true},
	})
	code := base64.RawURLEncoding.EncodeToString
	text := code([]byte(`{"alg":"HS256","typ":"JWT"}`)) + "." + code(claims)
	mac := hmac.New(sha256.New, []byte(secret))
	mac.Write([]byte(text))
	return text + "." + code(mac.Sum(nil))
}

// appendBytesField appends a length-delimited field to a Protocol Buffers message, and appendVarintField a varint.
func appendBytesField(message []byte, field int, value string) []byte {
	return protowire.AppendString(protowire.AppendTag(message, protowire.Number(field), protowire.BytesType), value)
}

func appendVarintField(message []byte, field int, value uint64) []byte {
	return protowire.AppendVarint(protowire.AppendTag(message, protowire.Number(field), protowire.VarintType), value)
}

// parseFields returns the fields of a Protocol Buffers message by number. If a field is repeated, only the last value
// is returned. A varint is returned undecoded. parseFields stops at an error.
func parseFields(raw []byte) map[int][]byte {
	fields := map[int][]byte{}
	for len(raw) > 0 {
		field, kind, n := protowire.ConsumeTag(raw)
		if n < 0 {
			break
		}
		raw = raw[n:]
		if n = protowire.ConsumeFieldValue(field, kind, raw); n < 0 {
			break
		}
		value := raw[:n]
		if kind == protowire.BytesType {
			value, _ = protowire.ConsumeBytes(raw)
		}
		fields[int(field)], raw = value, raw[n:]
	}
	return fields
}

// dialSignaling opens a connection for signalling. If c.delay is set, it delays data in both directions, and connecting
// takes one round trip.
func (c *caller) dialSignaling(ctx context.Context, network, addr string) (net.Conn, error) {
	conn, err := (&net.Dialer{}).DialContext(ctx, network, addr)
	if err != nil || c.delay == 0 {
		return conn, err
	}
	if err := sleep(ctx, 2*c.delay); err != nil {
		conn.Close()
		return nil, err
	}
	near, far := net.Pipe()
	carry := func(to, from net.Conn) {
		type piece struct {
			sendAt time.Time
			data   []byte
		}
		pieces := make(chan piece, 256)
		go func() {
			defer to.Close()
			for p := range pieces {
				time.Sleep(time.Until(p.sendAt))
				to.Write(p.data) // after an error the reader ends, too
			}
		}()
		defer close(pieces)
		for buf := make([]byte, 16<<10); ; {
			n, err := from.Read(buf)
			if n > 0 {
				pieces <- piece{time.Now().Add(c.delay), bytes.Clone(buf[:n])}
			}
			if err != nil {
				return
			}
		}
	}
	go carry(conn, far)
	go carry(far, conn)
	return near, nil
}
