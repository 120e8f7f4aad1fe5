package rtc

import (
	"bytes"
	"errors"
	"log/slog"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/pion/dtls/v3/pkg/protocol/recordlayer"
	"github.com/pion/rtcp"
	"github.com/pion/sdp/v3"
	"github.com/pion/webrtc/v4"

	"voxgate/internal/testkit/rtctest"
	"voxgate/media/opus"
)

// newOfflineAPI creates peers without a network.
func newOfflineAPI(f testing.TB) *webrtc.API {
	f.Helper()
	var settings webrtc.SettingEngine
	settings.LoggerFactory = newPionLogger(slog.New(slog.DiscardHandler))
	settings.SetRemoteIPFilter(func(net.IP) bool { return false })
	settings.SetIPFilter(func(net.IP) bool { return false })
	settings.SetICEMulticastDNSMode(1)
	api, err := newAPI(settings)
	if err != nil {
		f.Fatal(err)
	}
	return api
}

func newOfflinePeer(t testing.TB, api *webrtc.API) *Peer {
	t.Helper()
	pc, err := api.NewPeerConnection(webrtc.Configuration{})
	if err != nil {
		t.Fatal(err)
	}
	p := &Peer{api: &API{}, log: slog.New(slog.DiscardHandler), pc: pc, session: &conversation{}, stop: func() {}}
	p.watchCandidates(nil)
	t.Cleanup(p.Close)
	return p
}

// browserOffer is an offer like a browser's.
func browserOffer(t testing.TB) string {
	t.Helper()
	pc, err := webrtc.NewPeerConnection(webrtc.Configuration{})
	if err != nil {
		t.Fatal(err)
	}
	defer pc.Close()
	for _, kind := range []webrtc.RTPCodecType{webrtc.RTPCodecTypeAudio, webrtc.RTPCodecTypeVideo} {
		if _, err := pc.AddTransceiverFromKind(kind); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := pc.CreateDataChannel("events", nil); err != nil {
		t.Fatal(err)
	}
	offer, err := pc.CreateOffer(nil)
	if err != nil {
		t.Fatal(err)
	}
	return offer.SDP
}

func checkErrorText(t *testing.T, err error) {
	t.Helper()
	var r *RefusedError
	if err != nil && (!errors.As(err, &r) || r.Problem == "") {
		t.Fatalf("refused without a word: %v", err)
	}
}

// isReadable reports whether Pion's strict parser accepts the m= lines of an offer, which its answer repeats.
func isReadable(offer string) bool {
	text := rtctest.OfferHead
	for line := range strings.FieldsFuncSeq(offer, func(r rune) bool { return r == '\r' || r == '\n' }) {
		if strings.HasPrefix(line, "m=") {
			text += line + "\r\n"
		}
	}
	return new(sdp.SessionDescription).UnmarshalString(text) == nil
}

// FuzzAnswer answers arbitrary offers, and a second one after each, by the rules of [rtctest.CheckAnswer], or rejects
// them with a message.
func FuzzAnswer(f *testing.F) {
	offer := browserOffer(f)
	for _, seed := range []string{
		offer, "", "v=0", strings.ReplaceAll(offer, "a=sctp-port", "a=max-message-size:0\r\na=sctp-port"),
		strings.ReplaceAll(offer, "opus", "G722"), strings.ReplaceAll(offer, "a=mid:0", "a=mid:1"),
		strings.ReplaceAll(offer, "m=audio 9", "m=audio 0"), strings.ReplaceAll(offer, "VP8", "H264"),
		strings.ReplaceAll(offer, "a=rtpmap:111 opus/48000/2", "a=rtpmap:63 red/48000/2\r\na=fmtp:63 111/111\r\na=rtpmap:111 opus/48000/2"),
	} {
		f.Add(seed, offer)
		f.Add(offer, seed)
	}
	for i, c := range rtctest.OddOffers {
		f.Add(c.Offer, rtctest.OddOffers[(i*7+3)%len(rtctest.OddOffers)].Offer)
	}
	api := newOfflineAPI(f)
	f.Fuzz(func(t *testing.T, first, second string) {
		var peer *Peer
		for _, text := range []string{first, second} {
			o, err := ParseOffer(text)
			if err == nil {
				if !o.IsStopped() && o.transport.fingerprint == "" || o.maxMessage <= 0 || o.maxMessage > maxChannelMessage {
					t.Errorf("%+v", o)
				}
				if peer == nil || !peer.IsSameClient(o) {
					peer = newOfflinePeer(t, api)
				}
				var answer string
				if answer, err = peer.Answer(o); err == nil {
					if wrong := rtctest.CheckAnswer(text, answer); wrong != nil && isReadable(text) {
						t.Fatalf("%v\n%q\n%s", wrong, text, answer)
					}
				}
			}
			checkErrorText(t, err)
			if err != nil && strings.Contains(err.Error(), "would be wrong") {
				t.Fatalf("%v\n%q", err, text)
			}
		}
	})
}

// FuzzCandidate accepts arbitrary candidates, or rejects them with a message.
func FuzzCandidate(f *testing.F) {
	for _, seed := range []string{
		"candidate:1 1 udp 2130706431 192.0.2.1 50000 typ host", "candidate:1 1 tcp 1 ::1 9 typ host tcptype active", "candidate:", "x",
		"candidate:2 1 udp 1 203.0.113.7 1 typ srflx raddr 192.0.2.1 rport 2 generation 0 ufrag a network-id 1",
		"candidate:1 1 udp 1 x.local 9 typ host",
	} {
		f.Add(seed)
	}
	p := newOfflinePeer(f, newOfflineAPI(f))
	o, err := ParseOffer(browserOffer(f))
	if err == nil {
		_, err = p.Answer(o)
	}
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, text string) {
		p.tried = 0 // otherwise the rest would be too many
		checkErrorText(t, p.AddCandidate(text))
	})
}

// FuzzRTCP parses arbitrary RTCP.
func FuzzRTCP(f *testing.F) {
	for _, packets := range [][]rtcp.Packet{
		{&rtcp.ReceiverReport{Reports: []rtcp.ReceptionReport{
			{SSRC: 7, FractionLost: 30, TotalLost: 40, LastSequenceNumber: 1000, LastSenderReport: 1, Delay: 2},
		}}},
		{&rtcp.SenderReport{SSRC: 1, Reports: []rtcp.ReceptionReport{{SSRC: 7}}}, &rtcp.SourceDescription{}},
		{&rtcp.TransportLayerNack{MediaSSRC: 7, Nacks: rtcp.NackPairsFromSequenceNumbers([]uint16{1, 2, 40})}},
		{&rtcp.TransportLayerCC{
			MediaSSRC: 7, PacketStatusCount: 1, PacketChunks: []rtcp.PacketStatusChunk{&rtcp.RunLengthChunk{PacketStatusSymbol: 1, RunLength: 1}},
			RecvDeltas: []*rtcp.RecvDelta{{Type: 1, Delta: 250}},
			Header:     rtcp.Header{Count: rtcp.FormatTCC, Type: rtcp.TypeTransportSpecificFeedback, Length: 5},
		}},
	} {
		raw, err := rtcp.Marshal(packets)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(raw)
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		v, err := newVoice(webrtc.MimeTypeOpus, opus.Codec{}, func(rtt time.Duration) {
			if rtt < 0 || rtt > 10*time.Second {
				t.Fatalf("a round trip of %v", rtt)
			}
		}, func(lost, of int) {
			if lost < 0 || lost > of {
				t.Fatalf("%d packets of %d are lost", lost, of)
			}
		})
		if err != nil {
			t.Fatal(err)
		}
		v.path.Store(&path{ssrc: 7, to: &ear{}})
		for range 3 {
			if packets, err := rtcp.Unmarshal(bytes.Clone(raw)); err == nil {
				v.onRTCP(packets, time.Unix(1_800_000_000, 0))
			}
		}
	})
}

// FuzzDatagram checks arbitrary datagrams of the UDP port. A plaintext datagram that passes has no record that ends a
// connection.
func FuzzDatagram(f *testing.F) {
	for _, seed := range [][]byte{
		nil,
		{0},
		{22},
		{0x80, 111, 0, 0},
		{23, 0xfe, 0xfd, 0, 0, 0, 0, 0, 0, 0, 9, 0, 1, 1},
		{23, 0xfe, 0xfd, 0, 1, 0, 0, 0, 0, 0, 9, 0, 1, 1},
		{20, 0xfe, 0xfd, 0, 0, 0, 0, 0, 0, 0, 9, 0, 1, 1, 22, 0xfe, 0xfd, 0, 0, 0, 0, 0, 0, 0, 9, 0xff, 0xff},
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, datagram []byte) {
		if !isHarmlessDTLS(datagram) || len(datagram) == 0 || datagram[0] < 20 || datagram[0] > 63 {
			return
		}
		records, err := recordlayer.UnpackDatagram(datagram)
		if err != nil {
			t.Fatalf("% x passes: %v", datagram, err)
		}
		for _, r := range records {
			if r[3] == 0 && r[4] == 0 && (r[0] < 20 || r[0] > 22) {
				t.Fatalf("% x passes", datagram)
			}
		}
	})
}
