package rtc

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/pion/rtp"

	"voxgate/internal/testkit/mediatest"
	"voxgate/internal/testkit/rtctest"
	"voxgate/media"
	"voxgate/media/opus"
)

var allDirections = []string{"sendrecv", "sendonly", "recvonly", "inactive"}

// TestDirectionsChange changes a client's direction from each to each other one and back: after each offer audio
// flows as far as both sides want it, and the voice returns after a hold.
func TestDirectionsChange(t *testing.T) {
	for _, first := range allDirections {
		for _, second := range allDirections {
			for _, third := range allDirections {
				t.Run(fmt.Sprintf("%s %s %s", first, second, third), func(t *testing.T) {
					t.Parallel()
					changeDirections(t, first, second, third, "sendrecv")
				})
			}
		}
	}
}

func changeDirections(t *testing.T, directions ...string) {
	t.Helper()
	session := &conversation{}
	phone := newClient(t, offerOpus, offerOpus)
	var p *Peer
	var connected chan struct{}
	for i, d := range directions {
		offer := strings.ReplaceAll(phone.offer(), "a=sendrecv", "a="+d)
		var answer string
		if p == nil {
			p, answer, connected = newAnsweredPeer(t, session, offer)
		} else {
			o, err := ParseOffer(offer)
			must(t, err)
			if !p.IsSameClient(o) {
				t.Fatal("the offer is of another peer")
			}
			answer, err = p.Answer(o)
			must(t, err)
		}
		if err := rtctest.CheckAnswer(offer, answer); err != nil {
			t.Errorf("%s: %v\n%s", d, err, answer)
		}
		want := map[string]string{"sendrecv": "sendrecv", "sendonly": "recvonly", "recvonly": "sendonly", "inactive": "inactive"}[d]
		if !strings.Contains(answer, "a="+want+"\r\n") {
			t.Fatalf("%d: %s is not answered %s\n%s", i, d, want, answer)
		}
		// The phone's own connection is not changed: its handling of directions is not tested.
		own := strings.ReplaceAll(answer, "a="+want+"\r\n", "a=sendrecv\r\n")
		phone.setAnswer(own)
		<-connected
		phone.awaitReceivers()
		exchangeAudio(t, phone, p, session, d)
	}
}

// exchangeAudio lets both sides send audio until everything that the client's direction permits has arrived.
func exchangeAudio(t *testing.T, phone *client, p *Peer, session *conversation, direction string) {
	t.Helper()
	sends, receives := direction == "sendrecv" || direction == "sendonly", direction == "sendrecv" || direction == "recvonly"
	if got := p.VoiceOutput() != nil; got != receives {
		t.Fatalf("%s: there is a voice: %v", direction, got)
	}
	if _, got := p.MicrophoneSilence(); got && !sends {
		t.Errorf("%s: there is a microphone", direction)
	}
	for len(phone.came) > 0 {
		<-phone.came
	}
	session.mu.Lock()
	session.pcm = nil
	session.mu.Unlock()
	down := mediatest.Tone(time.Second, 24000, 1100, 8000)
	frame := time.NewTicker(media.FrameDuration)
	defer frame.Stop()
	for i := 0; ; i++ {
		session.mu.Lock()
		heard := len(session.pcm) > 0 || !sends
		session.mu.Unlock()
		if heard && (len(phone.came) > 0 || !receives) {
			return
		}
		if i == 500 {
			t.Fatalf("%s: after 10 s the microphone is heard: %v, and %d packets of the voice have come", direction, heard, len(phone.came))
		}
		phone.sequence++
		must(t, phone.track.WriteRTP(&rtp.Packet{
			Header: rtp.Header{Version: 2, SequenceNumber: phone.sequence, Timestamp: uint32(phone.sequence) * 960}, Payload: []byte{
				0xf8, 0xff,
				0xfe,
			},
		}))
		if voice := p.VoiceOutput(); voice != nil {
			must(t, voice.WriteFrame(media.Frame{PCM: down[:480], PTS: time.Duration(phone.sequence) * media.FrameDuration, Start: i == 0}))
		}
		<-frame.C
	}
}

// TestAudioAfterHold puts the call on hold in each way, and resumes it with the same source of audio or
// another one: then audio flows in both directions, and neither side has changed its source because of the hold. The
// client gets every answer unchanged.
func TestAudioAfterHold(t *testing.T) {
	sources := map[string]func(phone *client, offer string) string{
		"the same SSRC": func(_ *client, offer string) string { return offer },
		"another SSRC": func(phone *client, offer string) string {
			old := strconv.Itoa(int(phone.pc.GetSenders()[0].GetParameters().Encodings[0].SSRC))
			phone.ssrc.Store(4242)
			return strings.ReplaceAll(offer, "a=ssrc:"+old, "a=ssrc:4242")
		},
		"no SSRC": func(_ *client, offer string) string { return withoutLines(offer, "a=ssrc") },
		"another SSRC, not named": func(phone *client, offer string) string {
			phone.ssrc.Store(4242)
			return withoutLines(offer, "a=ssrc")
		},
		"the old SSRC named, and another one sent": func(phone *client, offer string) string {
			phone.ssrc.Store(4242)
			return offer
		},
	}
	for _, holds := range [][]string{
		{"inactive"},
		{"sendonly"},
		{"recvonly"},
		{"sendrecv"},
		{"sendonly", "inactive"},
		{"inactive", "inactive"},
		{"sendonly", "sendrecv", "sendonly"},
		{"recvonly", "sendonly"},
	} {
		for source, change := range sources {
			for _, channel := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s, %s, channel %v", strings.Join(holds, " "), source, channel), func(t *testing.T) {
					t.Parallel()
					holdAndResume(t, holds, change, channel)
				})
			}
		}
	}
}

func withoutLines(text, prefix string) string {
	var b strings.Builder
	for line := range strings.Lines(text) {
		if !strings.HasPrefix(line, prefix) {
			b.WriteString(line)
		}
	}
	return b.String()
}

func holdAndResume(t *testing.T, holds []string, change func(phone *client, offer string) string, channel bool) {
	t.Helper()
	session := &conversation{}
	phone := newClient(t, offerOpus, offerOpus)
	if channel {
		_, err := phone.pc.CreateDataChannel("events", nil)
		must(t, err)
	}
	offer := phone.offer()
	p, answer, connected := newAnsweredPeer(t, session, offer)
	voice := sourceOf(answer)
	phone.setAnswer(answer)
	<-connected
	phone.awaitReceivers()
	exchangeTones(t, phone, p, session)
	for i, direction := range append(holds, "sendrecv") {
		offer := strings.ReplaceAll(phone.offer(), "a=sendrecv", "a="+direction)
		if i == len(holds) {
			offer = change(phone, offer)
		}
		o, err := ParseOffer(offer)
		must(t, err)
		if !p.IsSameClient(o) {
			t.Fatalf("the offer %d is of another peer", i)
		}
		last := answer
		answer, err = p.Answer(o)
		must(t, err)
		if err := rtctest.CheckAnswer(offer, answer); err != nil {
			t.Errorf("%s: %v\n%s", direction, err, answer)
		}
		if got := sourceOf(answer); got != voice || got == "" {
			t.Errorf("%s: our source is %q and was %q\n%s", direction, got, voice, answer)
		}
		if was, is := sessionVersion(t, last), sessionVersion(t, answer); is != was+1 {
			t.Errorf("%s: the version of the session goes from %d to %d", direction, was, is)
		}
		phone.setAnswer(answer)
		phone.awaitReceivers()
	}
	exchangeTones(t, phone, p, session)
	tracks := int32(1)
	if phone.ssrc.Load() != 0 {
		tracks = 2
	}
	if got := p.tracks.Load(); got != tracks {
		t.Errorf("%d tracks have come, want %d: one for each source", got, tracks)
	}
}

// sourceOf returns the SSRC of an answer, "" if it has none.
func sourceOf(answer string) string {
	_, after, _ := strings.Cut(answer, "a=ssrc:")
	ssrc, _, _ := strings.Cut(after, " ")
	return ssrc
}

// sessionVersion returns the version of the session of a description (RFC 8866 section 5.2).
func sessionVersion(t *testing.T, text string) (version uint64) {
	t.Helper()
	_, after, _ := strings.Cut(text, "\r\no=")
	version, err := strconv.ParseUint(strings.Fields(after)[2], 10, 64)
	must(t, err)
	return version
}

// exchangeTones lets the client and the model send a tone each until the other side has received it.
func exchangeTones(t *testing.T, phone *client, p *Peer, session *conversation) {
	t.Helper()
	const ours, theirs = 1100, 700 // Hz
	for len(phone.came) > 0 {
		<-phone.came
	}
	session.mu.Lock()
	session.pcm = nil
	session.mu.Unlock()
	encoder, err := opus.Codec{}.NewEncoder(24000)
	must(t, err)
	decoder, err := opus.Codec{}.NewDecoder(24000)
	must(t, err)
	up, down := mediatest.Tone(10*time.Second, 24000, theirs, 8000), mediatest.Tone(10*time.Second, 24000, ours, 8000)
	var heard []int16
	pcm, buf := make([]int16, media.Samples(media.MaxPacketDuration, 48000)), make([]byte, media.MaxPacketBytes)
	frame := time.NewTicker(media.FrameDuration)
	defer frame.Stop()
	for i := range len(up) / 480 {
		n, err := encoder.Encode(up[480*i:][:480], buf)
		must(t, err)
		phone.sequence++
		must(t, phone.track.WriteRTP(&rtp.Packet{
			Header: rtp.Header{Version: 2, SequenceNumber: phone.sequence, Timestamp: uint32(phone.sequence) * 960}, Payload: buf[:n],
		}))
		at := time.Duration(phone.sequence) * media.FrameDuration
		must(t, p.VoiceOutput().WriteFrame(media.Frame{PCM: down[480*i:][:480], PTS: at, Start: i == 0}))
		for len(phone.came) > 0 {
			n, err := decoder.Decode(<-phone.came, pcm)
			must(t, err)
			heard = append(heard, pcm[:n]...)
		}
		session.mu.Lock()
		mic, rate := session.pcm, session.rate
		session.mu.Unlock()
		if isTone(mic, rate, theirs) && isTone(heard, 24000, ours) {
			return
		}
		<-frame.C
	}
	t.Fatalf("after 10 s %d samples of the client and %d of the voice have come", len(session.pcm), len(heard))
}

// isTone reports whether the newest 0.2 s are a tone of this frequency, in Hz.
func isTone(pcm []int16, rate, hz int) bool {
	return rate > 0 && len(pcm) >= rate/5 && mediatest.ToneLevel(pcm[len(pcm)-rate/5:], rate, float64(hz)) > 0.95
}

// TestSectionsStopAndRestart lets a client stop each section of its offers and start others, in the same place or
// after it: each answer follows the rules, and the voice uses a section that receives it.
func TestSectionsStopAndRestart(t *testing.T) {
	const group = "a=group:BUNDLE "
	both := func(mids, sections string) string { return rtctest.OfferHead + group + mids + "\r\n" + sections }
	for _, c := range []struct {
		name   string
		offers []string
		voices []string // section of the voice after each offer: a mid, "" for none, or "gone" if a new peer is needed
	}{
		{"the sound, in the same place", []string{
			both("0 1", rtctest.Audio("9", "0")+rtctest.DataChannel("9", "1")), both("1", rtctest.Audio("0", "0")+rtctest.DataChannel("9", "1")),
			both("1 2", rtctest.Audio("9", "2")+rtctest.DataChannel("9", "1")), both("1", rtctest.Audio("0", "2")+rtctest.DataChannel("9", "1")),
			both("3 1", rtctest.Audio("9", "3")+rtctest.DataChannel("9", "1")),
		}, []string{"0", "", "2", "", "3"}},
		{"the sound, after the others", []string{
			both("0 1", rtctest.Audio("9", "0")+rtctest.DataChannel("9", "1")), both("1 2", rtctest.Audio("0", "0")+rtctest.DataChannel("9",
				"1")+rtctest.Audio("9", "2")),
			both("1 2 3", rtctest.Audio("9", "3")+rtctest.DataChannel("9", "1")+rtctest.Audio("9", "2")),
			both("1 3", rtctest.Audio("9", "3")+rtctest.DataChannel("9", "1")+rtctest.Audio("0", "2")),
		}, []string{"0", "2", "2", "3"}},
		{"the ear moves", []string{
			both("0 1", rtctest.Audio("9", "0")+rtctest.Audio("9", "1", "a=sendonly")), both("0 1", rtctest.Audio("9", "0",
				"a=sendonly")+rtctest.Audio("9", "1",
				"a=recvonly")),
			both("0 1", rtctest.Audio("9", "0", "a=inactive")+rtctest.Audio("9", "1", "a=inactive")), both("0 1", rtctest.Audio("9", "0",
				"a=inactive")+rtctest.Audio("9", "1")),
			both("0 1", rtctest.Audio("9", "0", "a=recvonly")+rtctest.Audio("9", "1", "a=inactive")),
		}, []string{"0", "1", "", "1", "0"}},
		{"the channel", []string{
			both("0 1", rtctest.Audio("9", "0")+rtctest.DataChannel("9", "1")), both("0", rtctest.Audio("9", "0")+rtctest.DataChannel("0", "1")),
			both("0 2", rtctest.Audio("9", "0")+rtctest.DataChannel("9", "2")),
		}, []string{"0", "0", "0"}},
		{"the camera", []string{
			both("0 1", rtctest.Video("9", "0", "VP8")+rtctest.Audio("9", "1")), both("1", rtctest.Video("0", "0", "VP8")+rtctest.Audio("9", "1")),
			both("2 1", rtctest.Video("9", "2", "VP8")+rtctest.Audio("9", "1")), both("2 1", rtctest.Video("9", "2", "H264")+rtctest.Audio("9",
				"1")),
		}, []string{"1", "1", "1", "1"}},
		{"everything", []string{both("0", rtctest.Audio("9", "0")), rtctest.OfferHead + rtctest.Audio("0", "0"), both("1", rtctest.Audio("9",
			"1"))}, []string{
			"0", "",
			"gone",
		}},
		{"the only section, in one offer with the next", []string{
			both("0", rtctest.Audio("9", "0")), both("1", rtctest.Audio("0", "0")+restartTransport(rtctest.Audio("9", "1"))),
		}, []string{"0", "gone"}},
		{"all sections, in one offer with the next", []string{
			both("0 1", rtctest.Audio("9", "0")+rtctest.DataChannel("9", "1")),
			both("2 3", restartTransport(rtctest.DataChannel("9", "2")+rtctest.Audio("9", "3"))),
		}, []string{"0", "gone"}},
		{"the sound, as the channel restarts ICE", []string{
			both("0 1", rtctest.Audio("9", "0")+rtctest.DataChannel("9", "1")),
			both("1 2", restartTransport(rtctest.Audio("0", "0")+rtctest.DataChannel("9", "1")+rtctest.Audio("9", "2"))),
			both("1 2", rtctest.Audio("0", "0")+rtctest.DataChannel("9", "1")+rtctest.Audio("9", "2")),
		}, []string{"0", "2", "2"}},
		{"what carries the transport, and a browser gives the others a new one", []string{
			both("0 1", rtctest.Audio("9", "0", candidate(5000))+rtctest.DataChannel("9", "1")),
			both("1 2", rtctest.Audio("0", "0", candidate(5000))+rtctest.DataChannel("9", "1")+rtctest.Audio("9", "2")),
		}, []string{"0", "gone"}},
		{"the same, with candidates", []string{
			both("0 1", rtctest.Audio("9", "0", candidate(5000), active)+rtctest.Audio("9", "1", candidate(5001), "a=sendonly")),
			both("1", rtctest.Audio("0", "0")+rtctest.Audio("9", "1", candidate(6000), active)),
		}, []string{"0", "gone"}},
		{"what carries the transport, which goes on", []string{
			both("0 1", rtctest.Audio("9", "0", candidate(5000))+rtctest.DataChannel("9", "1")),
			both("1 2", rtctest.Audio("0", "0")+rtctest.Section("application 9 UDP/DTLS/SCTP webrtc-datachannel", "1", "a=sctp-port:5000",
				candidate(5000))+rtctest.Audio("9", "2")),
			both("2", rtctest.Audio("0", "0")+rtctest.DataChannel("0", "1")+rtctest.Audio("9", "2", candidate(5000))),
		}, []string{"0", "2", "2"}},
		{"the only section, with the same ufrag and a new transport", []string{
			both("0", rtctest.Audio("9", "0", candidate(5000), active)),
			both("1", rtctest.Audio("0", "0")+rtctest.Audio("9", "1", candidate(6000), active)),
		}, []string{"0", "gone"}},
		{"nothing, but what carries the transport is not served any more", []string{
			both("0 1", rtctest.Video("9", "0", "VP8", candidate(5000))+rtctest.Audio("9", "1")),
			both("0 1", rtctest.Video("9", "0", "H264", candidate(5000))+rtctest.Audio("9", "1")),
		}, []string{"1", "1"}},
		{"another section than that with the transport", []string{
			both("0 1", rtctest.Audio("9", "0", candidate(5000))+rtctest.Audio("9", "1", "a=sendonly")),
			both("0 2", rtctest.Audio("9", "0", candidate(6000))+rtctest.Audio("0", "1")+rtctest.Audio("9", "2")),
		}, []string{"0", "0"}},
		{"no mids, as ICE restarts", []string{
			rtctest.OfferHead + rtctest.Audio("9", ""), rtctest.OfferHead + restartTransport(rtctest.Audio("9", "")),
		}, []string{"x", "x"}},
		{"a channel alone, and then sound", []string{
			both("0", rtctest.DataChannel("9", "0")), both("0 1", rtctest.DataChannel("9", "0")+rtctest.Audio("9", "1")),
		}, []string{"", "1"}},
		{"RED comes and goes", []string{
			both("0", rtctest.Audio("9", "0")), both("0", redSection("0")), both("0", rtctest.Audio("9", "0")), both("0", redSection("0")),
		}, []string{"0", "0", "0", "0"}},
		{"a better codec is offered later", []string{
			both("0", rtctest.Section("audio 9 UDP/TLS/RTP/SAVPF 0", "0", "a=rtcp-mux")), both("0", rtctest.Audio("9", "0")),
		}, []string{"0", "0"}},
		{"another payload type", []string{
			both("0", rtctest.Audio("9", "0")), both("0", rtctest.Section("audio 9 UDP/TLS/RTP/SAVPF 96", "0", "a=rtcp-mux",
				"a=rtpmap:96 opus/48000/2")),
		}, []string{"0", "0"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			p := newOfflinePeer(t, newOfflineAPI(t))
			for i, text := range c.offers {
				o, err := ParseOffer(text)
				must(t, err)
				if gone := i > 0 && !p.IsSameClient(o); gone != (c.voices[i] == "gone") {
					t.Fatalf("offer %d is of another peer: %v", i, gone)
				} else if gone {
					continue
				}
				answer, err := p.Answer(o)
				must(t, err)
				if err := rtctest.CheckAnswer(text, answer); err != nil {
					t.Errorf("offer %d: %v\n%s", i, err, answer)
				}
				voice := "" // the mid of the section with a stream of ours
				for _, section := range strings.Split(answer, "m=")[1:] {
					if strings.Contains(section, "a=msid:") {
						_, mid, ok := strings.Cut(section, "a=mid:")
						if !ok {
							mid = "x"
						}
						voice += strings.Fields(mid)[0]
						if path := p.output.path.Load(); path == nil || !strings.Contains(section, fmt.Sprintf("a=ssrc:%d ", path.ssrc)) {
							t.Errorf("offer %d: the voice goes by %+v\n%s", i, path, section)
						}
					}
				}
				if voice != c.voices[i] || (p.VoiceOutput() != nil) != (voice != "") {
					t.Errorf("offer %d: the voice goes by section %q (%v), want %q\n%s", i, voice, p.VoiceOutput(), c.voices[i], answer)
				}
			}
		})
	}
}

// candidate returns a candidate with a port, and active one of active TCP, which has no port.
func candidate(port int) string {
	return fmt.Sprintf("a=candidate:1 1 UDP 2122187007 192.0.2.2 %d typ host", port)
}

const active = "a=candidate:2 1 TCP 2105458943 192.0.2.2 9 typ host tcptype active"

// redSection returns an audio section with RED.
func redSection(mid string) string {
	return rtctest.Section("audio 9 UDP/TLS/RTP/SAVPF 111 63", mid, "a=rtcp-mux", "a=rtpmap:111 opus/48000/2", "a=rtpmap:63 red/48000/2",
		"a=fmtp:63 111/111")
}

// restartTransport returns sections with a new transport.
func restartTransport(sections string) string {
	return strings.ReplaceAll(sections, "a=ice-ufrag:abcd", "a=ice-ufrag:efgh")
}
