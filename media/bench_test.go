package media_test

import (
	"context"
	"encoding/binary"
	"io"
	"testing"
	"time"

	"github.com/pion/rtp"

	"voxgate/media"
)

// endless is a source of n packets, in order.
type endless struct {
	raw [][]byte
	i   int
	n   int
}

func (s *endless) SetReadDeadline(time.Time) error { return nil }

func (s *endless) Read(b []byte) (int, error) {
	if s.i == s.n {
		return 0, io.EOF
	}
	n := copy(b, s.raw[s.i%len(s.raw)])
	binary.BigEndian.PutUint16(b[2:], uint16(s.i))
	binary.BigEndian.PutUint32(b[4:], uint32(s.i)*960)
	s.i++
	return n, nil
}

type discard struct{}

func (discard) Rate() int                    { return 16000 }
func (discard) WritePCM([]int16) error       { return nil }
func (discard) WriteRTP(p *rtp.Packet) error { return nil }

func BenchmarkReceiver(b *testing.B) {
	var raw [][]byte
	for _, a := range stream(hybrid.encode(b, speech(4*time.Second, 48000)), 0, 0) {
		p, err := a.pkt.Marshal()
		if err != nil {
			b.Fatal(err)
		}
		raw = append(raw, p)
	}
	for _, choice := range []media.DecoderChoice{media.LibOpus, media.PionOpus} {
		b.Run(string(choice), func(b *testing.B) {
			b.ReportAllocs()
			if err := media.NewReceiver(discard{}, []uint8{111}, choice).Run(context.Background(), &endless{raw: raw, n: b.N}); err != nil {
				b.Fatal(err)
			}
		})
	}
}

// BenchmarkPlayout takes one frame from WritePCM to WriteRTP, without the ticker's wait.
func BenchmarkPlayout(b *testing.B) {
	ticker := media.NewTicker()
	defer ticker.Close()
	p := media.NewPlayout(ticker, outRate)
	defer p.Close()
	out, err := media.NewRTPOutput(discard{})
	if err != nil {
		b.Fatal(err)
	}
	p.Attach(eager{out})
	pcm := speech(4*time.Second, outRate)
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		if err := p.WritePCM(pcm[i%200*480:][:480]); err != nil {
			b.Fatal(err)
		}
	}
}

// eager is an RTPOutput that takes frames at any time.
type eager struct{ *media.RTPOutput }

func (eager) Lead() time.Duration { return 1 << 60 }
