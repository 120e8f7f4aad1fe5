package client_test

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"image/jpeg"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gorilla/websocket"
	"github.com/pion/rtcp"
	"github.com/pion/rtp"
	"github.com/pion/rtp/codecs"
	"github.com/pion/webrtc/v4"

	"voxgate/bridge"
	"voxgate/bridge/gemini/api"
	"voxgate/internal/testkit"
	"voxgate/internal/testkit/mediatest"
	"voxgate/signaling"
)

// tap is a proxy between a gateway and its model. It stores the size and the time of each picture.
type tap struct {
	mu       sync.Mutex
	pictures []seen
}

type seen struct {
	width, height int
	at            time.Time
}

// withTap returns an option that makes the gateway reach its model through the tap k.
func withTap(t *testing.T, k *tap) testkit.Option {
	return func(_ *testkit.Endpoints, ho *bridge.Options) {
		model := "ws" + strings.TrimPrefix(ho.Client.BaseURL, "http")
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			far, _, err := websocket.DefaultDialer.Dial(model+r.URL.RequestURI(), nil)
			if err != nil {
				t.Error(err)
				return
			}
			defer far.Close()
			near, err := (&websocket.Upgrader{}).Upgrade(w, r, nil)
			if err != nil {
				t.Error(err)
				return
			}
			defer near.Close()
			var back sync.WaitGroup
			defer back.Wait()
			defer far.Close()
			back.Go(func() { relay(far, near, nil) })
			relay(near, far, func(b []byte) { k.take(t, b) })
		}))
		t.Cleanup(server.Close)
		ho.Client = &api.Client{BaseURL: server.URL}
	}
}

func relay(from, to *websocket.Conn, tell func([]byte)) {
	defer to.Close()
	for {
		kind, b, err := from.ReadMessage()
		if err != nil {
			return
		}
		if tell != nil {
			tell(b)
		}
		if to.WriteMessage(kind, b) != nil {
			return
		}
	}
}

func (tp *tap) take(t *testing.T, b []byte) {
	var m struct {
		RealtimeInput struct {
			Video *struct {
				MIMEType string
				Data     []byte
			}
		}
	}
	if err := json.Unmarshal(b, &m); err != nil {
		t.Errorf("not JSON: %.100s", b)
		return
	}
	v := m.RealtimeInput.Video
	if v == nil {
		return
	}
	c, err := jpeg.DecodeConfig(bytes.NewReader(v.Data))
	if err != nil || v.MIMEType != "image/jpeg" {
		t.Errorf("%s: %v", v.MIMEType, err)
	}
	tp.mu.Lock()
	defer tp.mu.Unlock()
	tp.pictures = append(tp.pictures, seen{c.Width, c.Height, time.Now()})
}

func (tp *tap) all() []seen {
	tp.mu.Lock()
	defer tp.mu.Unlock()
	return append([]seen(nil), tp.pictures...)
}

// readFixture reads the key frames of an IVF file of media/picture.
func readFixture(t *testing.T, name string) [][]byte {
	t.Helper()
	b, err := os.ReadFile("../../media/picture/testdata/" + name)
	if err != nil {
		t.Fatal(err)
	}
	var all [][]byte
	for b = b[32:]; len(b) > 0; {
		n := binary.LittleEndian.Uint32(b)
		all = append(all, b[12:12+n])
		b = b[12+n:]
	}
	return all
}

// lens is the camera of a phone: it answers each PLI with its next key frame, and sends other frames in between, like
// an encoder.
type lens struct {
	track  *webrtc.TrackLocalStaticRTP
	sender *webrtc.RTPSender

	mu   sync.Mutex
	plis []time.Time
}

func newLens(p *testkit.Phone, frames [][]byte) *lens {
	p.T.Helper()
	track, err := webrtc.NewTrackLocalStaticRTP(webrtc.RTPCodecCapability{MimeType: webrtc.MimeTypeVP8, ClockRate: 90000}, "camera", "phone")
	if err != nil {
		p.T.Fatal(err)
	}
	sender, err := p.PC.AddTrack(track)
	if err != nil {
		p.T.Fatal(err)
	}
	l := &lens{track: track, sender: sender}
	asked := make(chan struct{}, 1)
	p.Done.Go(func() {
		for {
			all, _, err := sender.ReadRTCP()
			if err != nil {
				return
			}
			for _, packet := range all {
				if _, ok := packet.(*rtcp.PictureLossIndication); !ok {
					continue
				}
				l.mu.Lock()
				l.plis = append(l.plis, time.Now())
				l.mu.Unlock()
				select {
				case asked <- struct{}{}:
				default:
				}
			}
		}
	})
	p.Done.Go(func() { l.film(frames, asked, p.Stop) })
	return l
}

func (l *lens) film(frames [][]byte, asked, stop <-chan struct{}) {
	const rate = 100 * time.Millisecond // of frames
	payloader := codecs.VP8Payloader{EnablePictureID: true}
	next := rtp.Header{Version: 2, SequenceNumber: 65500}
	tick := time.NewTicker(rate)
	defer tick.Stop()
	for n := 0; ; {
		select {
		case <-tick.C:
		case <-stop:
			return
		}
		frame := []byte{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11} // not a key frame
		select {
		case <-asked:
			frame = frames[n%len(frames)]
			n++
		default:
		}
		next.Timestamp += uint32(rate.Seconds() * 90000)
		parts := payloader.Payload(300, frame)
		for i, part := range parts {
			next.Marker = i == len(parts)-1
			next.SequenceNumber++
			l.track.WriteRTP(&rtp.Packet{Header: next, Payload: part}) // not connected yet: dropped
		}
	}
}

func (l *lens) asked() []time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	return append([]time.Time(nil), l.plis...)
}

func TestVideoBecomesPictures(t *testing.T) {
	t.Parallel()
	k := &tap{}
	c := testkit.OpenConversation(t, testkit.StartGateway(t, withTap(t, k)), `{}`)
	p := testkit.NewPhone(t, c, testkit.PhoneOptions{})
	l := newLens(p, readFixture(t, "slides.ivf"))
	machine := mediatest.MeasureLateness(t)
	p.Negotiate(false)
	answer := p.PC.RemoteDescription().SDP
	if _, video, ok := strings.Cut(answer, "m=video"); !ok || !strings.Contains(video, "a=recvonly") ||
		!strings.Contains(
			video,
			"a=ice-ufrag",
		) || !strings.Contains(video, "b=TIAS:500000") || !strings.Contains(video, " nack pli\r\n") || !strings.Contains(video, " nack\r\n") {
		t.Errorf("the answer to video is\n%s", answer)
	}
	p.AwaitConnected()
	testkit.Eventually(p.T, "three pictures", func() bool { return len(k.all()) >= 3 })
	for _, s := range k.all() {
		if s.width != 768 || s.height != 432 {
			t.Errorf("a slide of 1280x720 went up as %dx%d", s.width, s.height)
		}
	}
	plis := l.asked()
	for i, at := range plis[1:] {
		if d := at.Sub(plis[i]); d < 800*time.Millisecond || d > 3*time.Second && machine.CanJudge(t, time.Second) {
			t.Errorf("key frame %d was asked for after %v", i+1, d)
		}
	}
}

// TestCameraComesAndGoes adds video to a running call, removes it and adds it again, like a page with a button.
func TestCameraComesAndGoes(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	t.Parallel()
	k := &tap{}
	g := testkit.StartGateway(t, withTap(t, k))
	_, p := testkit.DialPhone(t, g, `{}`, testkit.PhoneOptions{Channel: true})
	for i := range 2 {
		before := len(k.all())
		l := newLens(p, readFixture(t, "slides.ivf"))
		p.Negotiate(false)
		testkit.Eventually(p.T, "pictures", func() bool { return len(k.all()) > before })
		if err := p.PC.RemoveTrack(l.sender); err != nil {
			t.Fatal(err)
		}
		p.Negotiate(false)
		testkit.Eventually(p.T, "end of the track", func() bool { return strings.Count(g.Logs.String(), "video track ended") == i+1 })
	}
	p.CheckAudioBothWays(440)
}

// TestTheNewestCameraWins sends the video of two cameras at once: only the newer one is used.
func TestTheNewestCameraWins(t *testing.T) {
	t.Parallel()
	k := &tap{}
	g := testkit.StartGateway(t, withTap(t, k))
	c := testkit.OpenConversation(t, g, `{}`)
	p := testkit.NewPhone(t, c, testkit.PhoneOptions{})
	newLens(p, readFixture(t, "room.ivf"))
	p.Negotiate(false)
	p.AwaitConnected()
	testkit.Eventually(p.T, "a picture", func() bool { return len(k.all()) > 0 })
	newLens(p, readFixture(t, "slides.ivf"))
	p.Negotiate(false)
	testkit.Eventually(p.T, "end of the first", func() bool { return strings.Contains(g.Logs.String(), "video track ended") })
	after := len(k.all())
	testkit.Eventually(p.T, "pictures of the second", func() bool { return len(k.all()) > after+2 })
	for _, s := range k.all()[after+1:] {
		if s.width != 768 {
			t.Errorf("%dx%d is from the first", s.width, s.height)
		}
	}
}

func TestVideoOfAnotherCodecIsRefusedInWords(t *testing.T) {
	t.Parallel()
	c := testkit.OpenConversation(t, testkit.StartGateway(t), `{}`)
	p := testkit.NewPhone(t, c, testkit.PhoneOptions{})
	const h264 = "m=video 9 UDP/TLS/RTP/SAVPF 102 103\r\nc=IN IP4 0.0.0.0\r\na=mid:cam\r\n" +
		"a=rtpmap:102 H264/90000\r\na=rtpmap:103 rtx/90000\r\na=%s\r\n"
	offer := fmt.Sprintf(oneSection, "111", "a=rtpmap:111 opus/48000/2\r\n", fingerprint)
	p.SendOffer(offer + fmt.Sprintf(h264, "recvonly")) // an offer to receive video, which causes no warning
	c.AwaitEvent("WEBRTC_ANSWER")
	for range 2 {
		p.SendOffer(offer + fmt.Sprintf(h264, "sendonly"))
		_, video, ok := strings.Cut(string(c.AwaitEvent("WEBRTC_ANSWER").Payload), "m=video 0")
		if !ok || !strings.Contains(video, "a=mid:cam") || !strings.Contains(video, "a=ice-pwd") {
			t.Errorf("the answer to H.264 is %s", video)
		}
	}
	c.Send("PING", "")
	c.AwaitEvent("PONG")
	if n := c.CountWarnings("has H264: its video section is rejected"); n != 1 {
		t.Errorf("warned %d times", n)
	}
}

func TestWhoOnlyWantsToSeeGetsNothing(t *testing.T) {
	t.Parallel()
	c := testkit.OpenConversation(t, testkit.StartGateway(t), `{}`)
	p := testkit.NewPhone(t, c, testkit.PhoneOptions{})
	receiving := webrtc.RTPTransceiverInit{Direction: webrtc.RTPTransceiverDirectionRecvonly}
	if _, err := p.PC.AddTransceiverFromKind(webrtc.RTPCodecTypeVideo, receiving); err != nil {
		t.Fatal(err)
	}
	p.Negotiate(false)
	answer := p.PC.RemoteDescription().SDP
	if _, video, ok := strings.Cut(answer, "m=video"); !ok || !strings.Contains(video, "a=inactive") {
		t.Errorf("the answer is\n%s", answer)
	}
	p.AwaitConnected()
	if n := c.CountWarnings("") - c.CountWarnings(signaling.RateLimitMessage); n != 0 { // not those of a busy machine
		t.Errorf("warned %d times", n)
	}
}
