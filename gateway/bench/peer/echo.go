package peer

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
	"github.com/pion/rtp"
	"github.com/pion/webrtc/v4"

	"voxgate/gateway/bench/speech"
	"voxgate/media/opus"
)

// ServeEcho is the least that a WebRTC server in Go can cost: it sends every RTP packet back as it came. Like the gateway it
// has one UDP port for all calls, reports, answers to NACK, and takes a data channel. With codecs it decodes what comes and
// encodes what it sends, as the gateway does. It serves until ctx is done, and logs its URL.
func ServeEcho(ctx context.Context, codecs bool, stderr io.Writer) error {
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
	api, err := newAPI(settings, Features{nack: true, resend: true})
	if err != nil {
		return err
	}
	if codecs {
		if _, err := speech.Recite(); err != nil { // now, and not in the first call
			return err
		}
	}
	e := &echo{api: api, codecs: codecs}
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

// echo answers offers over HTTP.
type echo struct {
	api    *webrtc.API
	codecs bool

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
	back, err := webrtc.NewTrackLocalStaticRTP(opusCodec, "echo", "echo")
	if err != nil {
		return nil, err
	}
	pc.OnTrack(func(track *webrtc.TrackRemote, _ *webrtc.RTPReceiver) {
		send := back.Write
		if e.codecs {
			codec, err := newEchoCodec(back)
			if err != nil {
				return // the caller gets no replies
			}
			send = codec.write
		}
		buf := make([]byte, 1500)
		for {
			n, _, err := track.Read(buf)
			if err != nil {
				return
			}
			send(buf[:n]) // its loss would show in the count of replies
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

// echoCodec does to each packet what the gateway does: decodes it to the model's rate, and encodes as much of a voice.
type echoCodec struct {
	back    *webrtc.TrackLocalStaticRTP
	decoder opus.Decoder
	encoder *opus.Encoder
	voice   *speech.Speech
	packet  rtp.Packet
	frame   int
	pcm     [speech.ModelRate * 120 / 1000]int16
	buf     [1500]byte
}

func newEchoCodec(back *webrtc.TrackLocalStaticRTP) (*echoCodec, error) {
	c := &echoCodec{back: back}
	var err error
	if c.decoder, err = opus.NewDecoder(speech.ModelRate, ""); err != nil {
		return nil, err
	}
	if c.encoder, err = opus.NewEncoder(speech.EarRate); err != nil {
		return nil, err
	}
	c.voice, err = speech.Recite()
	return c, err
}

func (c *echoCodec) write(raw []byte) (int, error) {
	if err := c.packet.Unmarshal(raw); err != nil {
		return 0, err
	}
	if _, err := c.decoder.Decode(c.packet.Payload, c.pcm[:]); err != nil {
		return 0, err
	}
	at := c.frame % c.voice.Frames()
	c.frame++
	n, err := c.encoder.Encode(c.voice.Voice(at, at+1), c.buf[:])
	if err != nil {
		return 0, err
	}
	c.packet.Payload = c.buf[:n]
	return n, c.back.WriteRTP(&c.packet)
}
