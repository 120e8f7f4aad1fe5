package rtpaudio_test

import (
	"context"
	"encoding/binary"
	"io"
	"testing"
	"time"

	"github.com/pion/rtp"

	"voxgate/internal/testkit/mediatest"
	"voxgate/media/opus"
	"voxgate/media/rtpaudio"
)

// endless is a source of n packets, which repeats the packets in raw.
type endless struct {
	raw  [][]byte
	i    int
	n    int
	lost int // one in this number of packets is lost; 0 means none
}

func (e *endless) SetReadDeadline(time.Time) error { return nil }

func (e *endless) Read(b []byte) (int, error) {
	if e.lost > 0 && e.i%e.lost == e.lost-1 {
		e.i++
	}
	if e.i >= e.n {
		return 0, io.EOF
	}
	n := copy(b, e.raw[e.i%len(e.raw)])
	binary.BigEndian.PutUint16(b[2:], uint16(e.i))
	binary.BigEndian.PutUint32(b[4:], uint32(e.i)*960)
	e.i++
	return n, nil
}

type discard struct{}

func (discard) Rate() int                    { return 16000 }
func (discard) WritePCM([]int16) error       { return nil }
func (discard) WriteRTP(p *rtp.Packet) error { return nil }

// BenchmarkReceiver measures one packet from Read to WritePCM: without copies, with a copy of the previous packet, and with
// every tenth packet lost and restored from its copy.
func BenchmarkReceiver(b *testing.B) {
	packets := mediatest.Hybrid.Encode(b, mediatest.SynthesizeSpeech(4*time.Second, 48000))
	for _, c := range []struct {
		name   string
		red    bool
		lost   int // as endless.lost
		choice opus.DecoderChoice
	}{
		{"libopus", false, 0, opus.LibOpus},
		{"pion", false, 0, opus.Pion},
		{"libopus RED", true, 0, opus.LibOpus},
		{"libopus RED lost", true, 10, opus.LibOpus},
		{"libopus lost", false, 10, opus.LibOpus},
	} {
		b.Run(c.name, func(b *testing.B) {
			var raw [][]byte
			for i, a := range stream(packets, 0, 0) {
				if c.red {
					a.pkt.PayloadType, a.pkt.Payload = typeRED, redPayload(packets, i, 1)
				}
				p, err := a.pkt.Marshal()
				if err != nil {
					b.Fatal(err)
				}
				raw = append(raw, p)
			}
			o := rtpaudio.ReceiverOptions{
				Codec:        opus.Codec{Decoder: c.choice},
				PayloadTypes: []uint8{typeOpus},
				REDTypes:     []uint8{typeRED},
				SendNACK:     func(uint32, []uint16) {},
			}
			src := &endless{raw: raw, n: b.N, lost: c.lost}
			b.ReportAllocs()
			if err := rtpaudio.NewReceiver(discard{}, o).Run(context.Background(), src); err != nil {
				b.Fatal(err)
			}
		})
	}
}
