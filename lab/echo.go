package main

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"os"
	"slices"

	"github.com/gorilla/websocket"
	"github.com/pion/rtp"
	"github.com/pion/webrtc/v4"

	"voxgate/internal/testkit/rtctest"
	"voxgate/media/opus"
)

// echoCommand is the argument with which this program starts itself as the echo server.
const echoCommand = "echo"

// echoVoice is a setting in the environment. It makes the echo server reply with a voice of the same length, which costs
// as much as a model's voice.
const echoVoice = "BENCH_ECHO=voice"

// echo is a server that decodes audio and sends it back. With the gateway's codecs, no server can cost much less. Like
// the gateway, it has one UDP port, reports, NACKs and a data channel.
type echo struct{ api *webrtc.API }

// serveEcho serves until ctx is done, and logs its URL.
func serveEcho(ctx context.Context) error {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	conn, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		return err
	}
	api, _, err := rtctest.NewAPI(rtctest.Options{NACK: true, Resend: true, Socket: conn})
	if err != nil {
		return err
	}
	speech() // prepare it now, not during the first call
	server := &http.Server{Handler: &echo{api}}
	stop := context.AfterFunc(ctx, func() { server.Close() })
	defer stop()
	slog.New(slog.NewTextHandler(os.Stderr, nil)).Info("echo listening", "url", "http://"+listener.Addr().String())
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil // remaining calls end with the process
}

// message is a message of the client protocol (signaling/client/PROTOCOL.md).
type message struct {
	Type    string          `json:"type"`
	Payload json.RawMessage `json:"payload"`
}

// ServeHTTP handles a call as the gateway does: it answers the offer over a WebSocket, and ends the call when the
// WebSocket ends.
func (e *echo) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	upgrader := websocket.Upgrader{}
	ws, err := upgrader.Upgrade(w, r, nil)
	if err != nil {
		return
	}
	defer ws.Close()
	pc, err := e.api.NewPeerConnection(webrtc.Configuration{})
	if err != nil {
		return // the caller gets no answer, and fails
	}
	defer pc.Close()
	for {
		var m message
		if err := ws.ReadJSON(&m); err != nil {
			return
		}
		reply := message{"SETUP_COMPLETE", json.RawMessage(`{"success":true}`)}
		if m.Type == "WEBRTC_OFFER" {
			answer, err := e.answerOffer(pc, m.Payload)
			if err != nil {
				return
			}
			payload, _ := json.Marshal(map[string]string{"sdp": answer})
			reply = message{"WEBRTC_ANSWER", payload}
		}
		if ws.WriteJSON(reply) != nil {
			return
		}
	}
}

// answerOffer returns the SDP answer to the payload of an offer. It waits for its candidates, so that the answer
// includes all of them.
func (e *echo) answerOffer(pc *webrtc.PeerConnection, payload []byte) (string, error) {
	var offer struct{ SDP string }
	if err := json.Unmarshal(payload, &offer); err != nil {
		return "", err
	}
	back, err := webrtc.NewTrackLocalStaticRTP(rtctest.Opus, "echo", "echo")
	if err != nil {
		return "", err
	}
	pc.OnTrack(func(track *webrtc.TrackRemote, _ *webrtc.RTPReceiver) {
		send := newTranscoder(back)
		for buf := make([]byte, 1500); ; {
			n, _, err := track.Read(buf)
			if err != nil {
				return
			}
			send(buf[:n])
		}
	})
	if err := pc.SetRemoteDescription(webrtc.SessionDescription{Type: webrtc.SDPTypeOffer, SDP: offer.SDP}); err != nil {
		return "", err
	}
	sender, err := pc.AddTrack(back)
	if err != nil {
		return "", err
	}
	go rtctest.DiscardRTCP(sender)
	gathered := webrtc.GatheringCompletePromise(pc)
	answer, err := pc.CreateAnswer(nil)
	if err != nil {
		return "", err
	}
	if err := pc.SetLocalDescription(answer); err != nil {
		return "", err
	}
	<-gathered
	return pc.LocalDescription().SDP, nil
}

// newTranscoder returns a function that processes a packet as the gateway does: it decodes the packet, and encodes
// audio of the same duration.
func newTranscoder(back *webrtc.TrackLocalStaticRTP) (send func(raw []byte)) {
	decoder, encoder, s := newListener(voiceRate), must(opus.NewEncoder(voiceRate)), speech()
	voice := slices.Contains(os.Environ(), echoVoice)
	if voice {
		decoder = newListener(modelRate) // like the gateway
	}
	var packet rtp.Packet
	buf := make([]byte, 1500)
	count := 0
	return func(raw []byte) {
		if packet.Unmarshal(raw) != nil {
			return
		}
		pcm := decoder.decodePacket(packet.Payload)
		if at := count % s.frameCount(); voice {
			pcm = s.voiceFrames(at, at+1)
		}
		count++
		n, err := encoder.Encode(pcm, buf)
		if err != nil {
			return // not 20 ms
		}
		packet.Payload = buf[:n]
		back.WriteRTP(&packet) // an error shows as a missing packet
	}
}
