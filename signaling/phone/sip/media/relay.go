package media

import (
	"context"
	"errors"
	"io"
	"net"
	"time"

	"github.com/pion/rtp"

	"voxgate/media"
	"voxgate/media/g711"
	"voxgate/media/rtpaudio"
)

// mediaRelay relays audio from one call to another. It implements [media.Sink] and [rtpaudio.Reader] for its own use.
type mediaRelay struct {
	*stream     // the source
	to          *stream
	fillsPauses bool // packets are sent in pauses, too
	press       func(digit byte)
	recording   *recordingTap // nil without a recording

	inbound, outbound *agreement // agreements of both sides, replaced only when changed is set
	changed           bool
	track             track
	lawTable          *[256]byte // converts G.711 A-law to µ-law or back when relaying; nil if not needed

	// For transcoding.
	rate    int
	encoder media.Encoder
	pcm     []int16 // decoded audio that does not fill a frame yet
	packet  rtp.Packet
	payload [media.MaxPacketBytes]byte
}

// RelayTo sends the audio of a to another call, until ctx is done or a is closed. It blocks. recorders receive it too: as the user's audio
// if isCaller is true, else as the model's.
func (a *Audio) RelayTo(ctx context.Context, to *Audio, recorders []Recorder, isCaller bool) error {
	p := &mediaRelay{stream: a.stream, to: to.stream, fillsPauses: to.settings.Silence != "", press: a.onKey}
	if len(recorders) > 0 {
		p.recording = &recordingTap{to: recorders, caller: isCaller}
	}
	return p.run(ctx)
}

// run relays audio until ctx is done or the source is closed. It blocks.
func (p *mediaRelay) run(ctx context.Context) (err error) {
	p.dropReceived()
	for p.changed = true; p.changed && err == nil && ctx.Err() == nil; {
		p.changed = false
		p.inbound, p.outbound = p.agreement(), p.to.agreement()
		if p.canRelay() {
			err = p.relayPackets(ctx)
		} else {
			err = p.transcodeAudio(ctx)
		}
	}
	return err
}

// canRelay reports whether packets can be relayed without decoding: both sides have the same codec, or G.711, and nothing needs the decoded
// audio.
func (p *mediaRelay) canRelay() bool {
	p.lawTable = nil
	from, isLaw := p.inbound.codec.media.(g711.Codec)
	to, areLaws := p.outbound.codec.media.(g711.Codec)
	if isLaw && areLaws && from != to {
		p.lawTable = from.TranscodeTable(to)
	}
	return (p.lawTable != nil || p.inbound.codec == p.outbound.codec) && !p.fillsPauses && p.recording == nil
}

// Read implements [rtpaudio.Reader]. It returns an error when the agreement may have changed.
func (p *mediaRelay) Read(b []byte) (int, error) {
	n, err := p.stream.Read(b)
	if p.agreement() != p.inbound || p.to.agreement() != p.outbound {
		p.changed = true
		return 0, io.EOF
	}
	return n, err
}

// relayPackets relays packets without decoding.
func (p *mediaRelay) relayPackets(ctx context.Context) error {
	defer p.stopReadsOnDone(ctx)()
	var buf [2048]byte
	var packet rtp.Packet
	for {
		n, err := p.Read(buf[:])
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case p.changed, errors.Is(err, net.ErrClosed): // the source's call is over
			return nil
		case err != nil:
			return err
		}
		if packet.Unmarshal(buf[:n]) != nil {
			continue
		}
		switch {
		case p.inbound.receivedAs(packet.PayloadType) == p.inbound.codec:
			if p.lawTable != nil {
				for i, b := range packet.Payload {
					packet.Payload[i] = p.lawTable[b]
				}
			}
			p.to.forwardPacket(&p.track, p.outbound.number, &packet)
			continue
		case packet.PayloadType == p.inbound.comfort && p.outbound.comfort != 0:
			p.to.forwardPacket(&p.track, p.outbound.comfort, &packet)
			continue
		}
		p.readKeyPacket(&packet, p.inbound, p.press)
	}
}

// transcodeAudio decodes incoming audio, and sends it in the other side's codec.
func (p *mediaRelay) transcodeAudio(ctx context.Context) (err error) {
	p.rate = p.inbound.codec.media.DecodedRate(uplinkRate)
	if p.encoder, err = p.outbound.codec.media.NewEncoder(p.rate); err != nil {
		return err
	}
	p.pcm, p.packet.SSRC = p.pcm[:0], p.packet.SSRC+1 // with the new encoder, the timestamps restart
	return rtpaudio.NewReceiver(p, rtpaudio.ReceiverOptions{
		Codec: p.inbound.codec.media, PayloadTypes: p.inbound.types(), EventTypes: p.inbound.events,
		OnEvent: func(e rtpaudio.Event) { p.keyReader.readEvent(e, p.press) },
	}).Run(ctx, p)
}

// Rate implements [media.Sink].
func (p *mediaRelay) Rate() int { return p.rate }

// WritePCM implements [media.Sink].
func (p *mediaRelay) WritePCM(pcm []int16) error {
	p.recording.write(pcm, p.rate)
	p.pcm = append(p.pcm, pcm...)
	frame := media.Samples(media.FrameDuration, p.rate)
	for ; len(p.pcm) >= frame; p.pcm = p.pcm[:copy(p.pcm, p.pcm[frame:])] {
		n, err := p.encoder.Encode(p.pcm[:frame], p.payload[:])
		if err != nil {
			return err
		}
		p.packet.SequenceNumber++
		p.packet.Timestamp += uint32(media.Samples(media.FrameDuration, p.outbound.codec.media.ClockRate()))
		p.packet.Payload = p.payload[:n]
		p.to.forwardPacket(&p.track, p.outbound.number, &p.packet)
	}
	return nil
}

// Recorder receives both sides: a [voxgate/media/record.Recording], or a [Mixer].
type Recorder interface {
	WriteCaller(pcm []int16, rate int, at time.Time)
	WriteModel(pcm []int16, at time.Time) // at [VoiceRate]
}

// recordingTap passes both sides to recorders: the caller as the user, the other person as the model.
type recordingTap struct {
	to            []Recorder
	caller        bool
	rate          int // input rate of resampler, in Hz
	resampler     *media.Resampler
	recordedUntil time.Time // end of the audio recorded so far
}

func (t *recordingTap) write(pcm []int16, rate int) {
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
		t.rate, t.resampler = rate, media.NewResampler(rate, VoiceRate)
	}
	if gap := began.Sub(t.recordedUntil).Abs(); gap > maxGap {
		t.recordedUntil = began
	}
	out := t.resampler.Resample(pcm)
	for _, r := range t.to {
		r.WriteModel(out, t.recordedUntil)
	}
	t.recordedUntil = t.recordedUntil.Add(media.Duration(len(out), VoiceRate))
}

// maxGap is the deviation up to which audio is appended to the recording without a gap: packets do not arrive evenly.
const maxGap = 200 * time.Millisecond
