package bench

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"sync"

	"github.com/pion/ice/v4"
	"github.com/pion/interceptor"
	"github.com/pion/interceptor/pkg/nack"
	"github.com/pion/interceptor/pkg/report"
	"github.com/pion/webrtc/v4"
)

// echoCommand makes `gateway bench` the echo server.
const echoCommand = "echo-server"

// nackPackets is how many sent packets can be sent again: as many as in the gateway.
const nackPackets = 64

var opus = webrtc.RTPCodecCapability{MimeType: webrtc.MimeTypeOpus, ClockRate: 48000, Channels: 2}

// serveEcho is the least that a WebRTC server in Go can cost: it sends every RTP packet back as it came. Like the gateway it
// has one UDP port for all calls, reports, answers to NACK, and takes a data channel.
func serveEcho(ctx context.Context, stderr io.Writer) error {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	defer listener.Close()
	conn, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		return err
	}
	defer conn.Close()
	mux := ice.NewUDPMuxDefault(ice.UDPMuxParams{UDPConn: conn})
	defer mux.Close()
	settings := loopback()
	settings.SetICEUDPMux(mux)
	api, err := newAPI(settings, true)
	if err != nil {
		return err
	}
	e := &echo{api: api}
	server := &http.Server{Handler: e}
	stop := context.AfterFunc(ctx, func() { server.Close() })
	defer stop()
	slog.New(slog.NewTextHandler(stderr, nil)).Info("echo listening", "url", "http://"+listener.Addr().String())
	err = server.Serve(listener)
	e.close()
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return err
}

// loopback keeps pion on 127.0.0.1.
func loopback() webrtc.SettingEngine {
	var s webrtc.SettingEngine
	s.SetNetworkTypes([]webrtc.NetworkType{webrtc.NetworkTypeUDP4})
	s.SetIncludeLoopbackCandidate(true)
	s.SetIPFilter(net.IP.IsLoopback)
	s.SetICEMulticastDNSMode(ice.MulticastDNSModeDisabled)
	return s
}

// newAPI speaks Opus, with RTCP reports as any WebRTC client sends them, and with answers to NACK if wanted.
func newAPI(settings webrtc.SettingEngine, answerNACK bool) (*webrtc.API, error) {
	codecs := &webrtc.MediaEngine{}
	capability := opus
	capability.SDPFmtpLine = "minptime=10;useinbandfec=1"
	capability.RTCPFeedback = []webrtc.RTCPFeedback{{Type: "nack"}}
	err := codecs.RegisterCodec(webrtc.RTPCodecParameters{RTPCodecCapability: capability, PayloadType: 111}, webrtc.RTPCodecTypeAudio)
	if err != nil {
		return nil, err
	}
	registry := &interceptor.Registry{}
	if answerNACK {
		responder, err := nack.NewResponderInterceptor(nack.ResponderSize(nackPackets))
		if err != nil {
			return nil, err
		}
		registry.Add(responder)
	}
	receiver, err := report.NewReceiverInterceptor()
	if err != nil {
		return nil, err
	}
	registry.Add(receiver)
	sender, err := report.NewSenderInterceptor()
	if err != nil {
		return nil, err
	}
	registry.Add(sender)
	return webrtc.NewAPI(webrtc.WithSettingEngine(settings), webrtc.WithMediaEngine(codecs), webrtc.WithInterceptorRegistry(registry)), nil
}

// echo answers offers over HTTP.
type echo struct {
	api *webrtc.API

	mu    sync.Mutex
	peers []*webrtc.PeerConnection
}

func (e *echo) close() {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, pc := range e.peers {
		pc.Close()
	}
}

// ServeHTTP takes an offer and returns the answer with all candidates.
func (e *echo) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var offer webrtc.SessionDescription
	if err := json.NewDecoder(r.Body).Decode(&offer); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	answer, err := e.answer(offer)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	json.NewEncoder(w).Encode(answer)
}

func (e *echo) answer(offer webrtc.SessionDescription) (*webrtc.SessionDescription, error) {
	pc, err := e.api.NewPeerConnection(webrtc.Configuration{})
	if err != nil {
		return nil, err
	}
	e.mu.Lock()
	e.peers = append(e.peers, pc)
	e.mu.Unlock()
	pc.OnConnectionStateChange(func(s webrtc.PeerConnectionState) {
		if s == webrtc.PeerConnectionStateDisconnected || s == webrtc.PeerConnectionStateFailed {
			pc.Close()
		}
	})
	back, err := webrtc.NewTrackLocalStaticRTP(opus, "echo", "echo")
	if err != nil {
		return nil, err
	}
	pc.OnTrack(func(track *webrtc.TrackRemote, _ *webrtc.RTPReceiver) {
		buf := make([]byte, 1500)
		for {
			n, _, err := track.Read(buf)
			if err != nil {
				return
			}
			back.Write(buf[:n]) // its loss would show in the count of replies
		}
	})
	if err := pc.SetRemoteDescription(offer); err != nil {
		return nil, fmt.Errorf("offer: %w", err)
	}
	sender, err := pc.AddTrack(back)
	if err != nil {
		return nil, err
	}
	go drain(sender)
	gathered := webrtc.GatheringCompletePromise(pc)
	answer, err := pc.CreateAnswer(nil)
	if err != nil {
		return nil, err
	}
	if err := pc.SetLocalDescription(answer); err != nil {
		return nil, err
	}
	<-gathered
	return pc.LocalDescription(), nil
}

// drain reads a sender's RTCP until it is closed: reports and NACK do nothing unless somebody does.
func drain(sender *webrtc.RTPSender) {
	buf := make([]byte, 1500)
	for {
		if _, _, err := sender.Read(buf); err != nil {
			return
		}
	}
}
