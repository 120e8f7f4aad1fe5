package rtc_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pion/rtp"
	"github.com/pion/webrtc/v4"

	"voxgate/client"
	"voxgate/client/rtc"
	"voxgate/internal/testkit"
	"voxgate/internal/testkit/mediatest"
	"voxgate/media/opus/libopus"
)

func TestMain(m *testing.M) { testkit.RunTests(m) }

const (
	rate  = 48000
	frame = 20 * time.Millisecond
)

// call is a conversation over WebRTC.
type call struct {
	*client.Conversation
	audio     *rtc.Audio
	connected chan struct{}
	voice     chan []int16 // decoded samples of each received packet
	ended     atomic.Bool  // set after Close: from then on, a received packet fails the test
}

func dialWebRTC(t *testing.T) *call {
	t.Helper()
	decoder, err := libopus.NewDecoder(rate, 1)
	if err != nil {
		t.Fatal(err)
	}
	c := &call{connected: make(chan struct{}, 10), voice: make(chan []int16, 10000)}
	c.audio, err = rtc.New(rtc.Options{
		OnPacket: func(p *rtp.Packet) {
			if c.ended.Load() {
				t.Error("a packet came after Close")
			}
			pcm := make([]int16, rate*120/1000)
			if n, err := decoder.Decode(p.Payload, pcm); err == nil {
				c.voice <- pcm[:n]
			}
		},
		OnState: func(s webrtc.PeerConnectionState) {
			if s == webrtc.PeerConnectionStateConnected {
				c.connected <- struct{}{}
			}
		},
	})
	if err == nil {
		c.Conversation, err = client.Dial(t.Context(), client.Options{URL: testkit.StartGateway(t).URL, WebRTC: c.audio})
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// speak sends a second of speech, and then silence until stop is called.
func (c *call) speak(t *testing.T) (stop func()) {
	t.Helper()
	encoder, err := libopus.NewEncoder(rate, 1, libopus.VoIP)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var speaking sync.WaitGroup
	speaking.Go(func() {
		speech, packet := mediatest.SynthesizeSpeech(time.Second, rate), make([]byte, 1000)
		for tick := time.NewTicker(frame); ctx.Err() == nil; <-tick.C {
			pcm := make([]int16, rate/50)
			speech = speech[copy(pcm, speech):]
			n, err := encoder.Encode(pcm, packet)
			if err == nil {
				err = c.audio.WriteOpus(packet[:n], frame)
			}
			if err != nil {
				t.Error(err)
				return
			}
		}
	})
	return func() { cancel(); speaking.Wait() }
}

// Speech and the model's answer go over WebRTC, and not over the WebSocket.
func TestBothDirectionsGoOverWebRTC(t *testing.T) {
	t.Parallel()
	c := dialWebRTC(t)
	select {
	case <-c.connected:
	case <-time.After(testkit.Patience):
		t.Fatal("not connected")
	}
	defer c.speak(t)()
	said := false
	for complete := false; !complete; {
		switch e := (<-c.Events()).(type) {
		case client.UserText:
			said = true
		case client.Audio:
			t.Fatalf("%d samples came over the WebSocket", len(e.PCM))
		case client.TurnComplete:
			complete = true
		case nil:
			t.Fatal("the conversation has ended: ", c.Err())
		}
	}
	var voice []int16
	for len(c.voice) > 0 {
		voice = append(voice, <-c.voice...)
	}
	if length := len(testkit.TrimSilence(voice)); !said || length < rate/4 {
		t.Errorf("speech recognized: %v; %d samples of voice", said, length)
	}
}

// The first event of a connection names the gateway's servers, with WebRTC as without.
func TestConnectedIsTheFirstEvent(t *testing.T) {
	t.Parallel()
	c := dialWebRTC(t)
	e := <-c.Events()
	if _, ok := e.(client.Connected); !ok {
		t.Errorf("the first event is %T", e)
	}
}

// After Close no packet is delivered any more.
func TestCloseWaitsForTheVoice(t *testing.T) {
	t.Parallel()
	c := dialWebRTC(t)
	if err := c.SendText(t.Context(), "Please count slowly from one to twenty"); err != nil {
		t.Fatal(err)
	}
	select {
	case <-c.voice:
	case <-time.After(testkit.Patience):
		t.Fatal("no packet came")
	}
	_ = c.Close()
	c.ended.Store(true) // from now on a packet fails the test
}

// An offer that the gateway rejects is reported as a Failure, and the conversation continues.
func TestFailedNegotiationIsReported(t *testing.T) {
	t.Parallel()
	c := dialWebRTC(t)
	if err := c.Send(t.Context(), "WEBRTC_OFFER", map[string]string{"sdp": "nonsense"}); err != nil {
		t.Fatal(err)
	}
	if err := c.SendText(t.Context(), "Hello"); err != nil {
		t.Fatal(err)
	}
	failed := false
	for {
		switch e := (<-c.Events()).(type) {
		case client.Failure:
			failed = true
		case client.TurnComplete:
			if !failed {
				t.Error("no failure")
			}
			return
		case nil:
			t.Fatal("the conversation has ended: ", e, c.Err())
		}
	}
}
