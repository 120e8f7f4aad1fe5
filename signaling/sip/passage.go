package sip

import (
	"context"
	"errors"
	"io"
	"math"
	"net"
	"time"

	"github.com/pion/rtp"

	"voxgate/bridge"
	"voxgate/media"
	"voxgate/media/g711"
	"voxgate/media/rtpaudio"
)

// passage is the way of sound from one call to another. It is a [media.Sink] and a [rtpaudio.Reader] for itself.
type passage struct {
	*stream // it comes by
	to      *stream
	fills   bool // packets go out in pauses, too
	press   func(digit byte)
	tape    *tape // nil: nothing is recorded

	heard, said *agreement // of both sides, while nothing changes
	changed     bool
	track       track
	law         *[256]byte // from one law of G.711 into the other, where packets are passed on; nil: as they are

	// Where sound is decoded.
	rate    int
	encoder media.Encoder
	pcm     []int16 // less than a frame
	packet  rtp.Packet
	payload [media.MaxPacketBytes]byte
}

// run passes sound on until ctx is done, or the sound has ended.
func (p *passage) run(ctx context.Context) (err error) {
	p.drain()
	for p.changed = true; p.changed && err == nil && ctx.Err() == nil; {
		p.changed = false
		p.heard, p.said = p.agreement(), p.to.agreement()
		if p.relays() {
			err = p.relay(ctx)
		} else {
			err = p.transcode(ctx)
		}
	}
	return err
}

// relays reports whether packets are passed on as they come: both sides have the same codec, or G.711, and nothing needs the sound itself.
func (p *passage) relays() bool {
	p.law = nil
	from, isLaw := p.heard.codec.media.(g711.Codec)
	to, areLaws := p.said.codec.media.(g711.Codec)
	if isLaw && areLaws && from != to {
		p.law = from.TranscodeTable(to)
	}
	return (p.law != nil || p.heard.codec == p.said.codec) && !p.fills && p.tape == nil
}

// Read implements [rtpaudio.Reader]. It ends when another codec may have been agreed on.
func (p *passage) Read(b []byte) (int, error) {
	n, err := p.stream.Read(b)
	if p.agreement() != p.heard || p.to.agreement() != p.said {
		p.changed = true
		return 0, io.EOF
	}
	return n, err
}

// relay passes packets on as they come.
func (p *passage) relay(ctx context.Context) error {
	defer p.until(ctx)()
	var buf [2048]byte
	var packet rtp.Packet
	for {
		n, err := p.Read(buf[:])
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case p.changed, errors.Is(err, net.ErrClosed): // their call is over
			return nil
		case err != nil:
			return err
		}
		if packet.Unmarshal(buf[:n]) != nil {
			continue
		}
		switch {
		case p.heard.receivedAs(packet.PayloadType) == p.heard.codec:
			if p.law != nil {
				for i, b := range packet.Payload {
					packet.Payload[i] = p.law[b]
				}
			}
			p.to.pass(&p.track, p.said.number, &packet)
			continue
		case packet.PayloadType == p.heard.comfort && p.said.comfort != 0:
			p.to.pass(&p.track, p.said.comfort, &packet)
			continue
		}
		p.keyIn(&packet, p.heard, p.press)
	}
}

// transcode decodes what comes, and sends it in the other side's codec.
func (p *passage) transcode(ctx context.Context) (err error) {
	p.rate = p.heard.codec.media.DecodedRate(uplinkRate)
	if p.encoder, err = p.said.codec.media.NewEncoder(p.rate); err != nil {
		return err
	}
	p.pcm, p.packet.SSRC = p.pcm[:0], p.packet.SSRC+1 // its time begins anew
	return rtpaudio.NewReceiver(p, rtpaudio.ReceiverOptions{
		Codec: p.heard.codec.media, PayloadTypes: p.heard.types(), EventTypes: p.heard.events,
		OnEvent: func(e rtpaudio.Event) { p.pressed.read(e, p.press) },
	}).Run(ctx, p)
}

// Rate implements [media.Sink].
func (p *passage) Rate() int { return p.rate }

// WritePCM implements [media.Sink].
func (p *passage) WritePCM(pcm []int16) error {
	p.tape.write(pcm, p.rate)
	p.pcm = append(p.pcm, pcm...)
	frame := media.Samples(media.FrameDuration, p.rate)
	for ; len(p.pcm) >= frame; p.pcm = p.pcm[:copy(p.pcm, p.pcm[frame:])] {
		n, err := p.encoder.Encode(p.pcm[:frame], p.payload[:])
		if err != nil {
			return err
		}
		p.packet.SequenceNumber++
		p.packet.Timestamp += uint32(media.Samples(media.FrameDuration, p.said.codec.media.ClockRate()))
		p.packet.Payload = p.payload[:n]
		p.to.pass(&p.track, p.said.number, &p.packet)
	}
	return nil
}

// recorder hears both sides: a [voxgate/media/record.Recording], or a [mixer].
type recorder interface {
	WriteCaller(pcm []int16, rate int, at time.Time)
	WriteModel(pcm []int16, at time.Time)
}

// tape gives one side to recorders: the caller as the person, the other as the model.
type tape struct {
	to     []recorder
	caller bool
	rate   int // that up takes
	up     *media.Resampler
	ends   time.Time // of what was recorded
}

func (t *tape) write(pcm []int16, rate int) {
	if t == nil {
		return
	}
	began := time.Now().Add(-media.Duration(len(pcm), rate))
	if t.caller {
		for _, r := range t.to {
			r.WriteCaller(pcm, rate, began)
		}
		return
	}
	if t.rate != rate {
		t.rate, t.up = rate, media.NewResampler(rate, bridge.VoiceRate)
	}
	if gap := began.Sub(t.ends).Abs(); gap > maxGap {
		t.ends = began
	}
	out := t.up.Resample(pcm)
	for _, r := range t.to {
		r.WriteModel(out, t.ends)
	}
	t.ends = t.ends.Add(media.Duration(len(out), bridge.VoiceRate))
}

// maxGap is by how much the place of sound in a recording may be wrong: packets do not come evenly.
const maxGap = 200 * time.Millisecond

// musicRate is that of the music, in Hz, and note how long one sounds.
const (
	musicRate = 16000
	note      = 600 * time.Millisecond
)

// notes are the music for one who waits, in Hz: two that fade, softly, and a pause.
var notes = [...]float64{523.25, 392, 0, 0}

// music writes what is heard from a position on, and returns the next one.
func music(pcm []int16, position int) int {
	length := media.Samples(note, musicRate)
	for i := range pcm {
		at := position % length
		faded := math.Exp(-5*float64(at)/float64(length)) * min(1, float64(at)/80)
		pcm[i] = int16(2500 * faded * math.Sin(2*math.Pi*notes[position/length%len(notes)]*float64(at)/musicRate))
		position++
	}
	return position
}
