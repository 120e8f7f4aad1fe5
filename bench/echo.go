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

	"voxgate/media/opus"
	"voxgate/signaling/rtc/rtctest"
)

// echoCommand is the argument by which this program is its own child.
const echoCommand = "echo"

// echoVoice in the environment makes the echo send a voice, as long as what it hears, and not that itself: what a model's costs.
const echoVoice = "BENCH_ECHO=voice"

// echo is about the least that a server in Go with the gateway's codecs can cost: it decodes what comes and sends it back. Like the
// gateway it has one UDP port for all calls, reports, answers to NACK, and takes a data channel.
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
	speech() // now, and not in the first call
	server := &http.Server{Handler: &echo{api}}
	stop := context.AfterFunc(ctx, func() { server.Close() })
	defer stop()
	slog.New(slog.NewTextHandler(os.Stderr, nil)).Info("echo listening", "url", "http://"+listener.Addr().String())
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil // what calls there are end with the process
}

// ServeHTTP takes a call as the gateway does: by a WebSocket over which an offer is answered, and with which it ends.
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
			answer, err := e.answer(pc, m.Payload)
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

// answer answers the payload of an offer with all candidates.
func (e *echo) answer(pc *webrtc.PeerConnection, payload []byte) (string, error) {
	var offer struct{ SDP string }
	if err := json.Unmarshal(payload, &offer); err != nil {
		return "", err
	}
	back, err := webrtc.NewTrackLocalStaticRTP(rtctest.Opus, "echo", "echo")
	if err != nil {
		return "", err
	}
	pc.OnTrack(func(track *webrtc.TrackRemote, _ *webrtc.RTPReceiver) {
		send := throughCodecs(back)
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

// throughCodecs does to each packet what the gateway does: decodes it, and encodes as much.
func throughCodecs(back *webrtc.TrackLocalStaticRTP) (send func(raw []byte)) {
	decoder, encoder, s := newListener(voiceRate), must(opus.NewEncoder(voiceRate)), speech()
	voice := slices.Contains(os.Environ(), echoVoice)
	if voice {
		decoder = newListener(modelRate) // as the gateway
	}
	var packet rtp.Packet
	buf := make([]byte, 1500)
	count := 0
	return func(raw []byte) {
		if packet.Unmarshal(raw) != nil {
			return
		}
		pcm := decoder.decode(packet.Payload)
		if at := count % s.frames(); voice {
			pcm = s.voiced(at, at+1)
		}
		count++
		n, err := encoder.Encode(pcm, buf)
		if err != nil {
			return // not 20 ms
		}
		packet.Payload = buf[:n]
		back.WriteRTP(&packet) // its loss would show in the count of packets
	}
}
