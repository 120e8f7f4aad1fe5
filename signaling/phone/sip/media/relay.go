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

// mediaRelay relays audio from one call to another, in one direction. It implements [media.Sink] and [rtpaudio.Reader]
// only for the receiver that it uses itself.
type mediaRelay struct {
	*stream     // the source
	to          *stream
	fillsPauses bool // the other side needs packets in pauses, too
	press       func(digit byte)
	recording   *recordingTap // nil without a recording

	inbound, outbound *agreement // agreements of both sides, replaced only when changed is set
	changed           bool
	track             track
	lawTable          *[256]byte // converts G.711 A-law to µ-law or back when relaying; nil if not needed

	// The fields below are used only for transcoding.
	rate    int
	encoder media.Encoder
	pcm     []int16 // decoded audio that does not fill a frame yet
	packet  rtp.Packet
	payload [media.MaxPacketBytes]byte
}

// RelayTo sends the received audio of this call to another call. It blocks until ctx is done or this call's port is
// closed. recorders also receive the audio: as the caller's if isCaller is true, otherwise as the model's.
func (a *Audio) RelayTo(ctx context.Context, to *Audio, recorders []Recorder, isCaller bool) error {
	p := &mediaRelay{stream: a.stream, to: to.stream, fillsPauses: to.settings.Silence != "", press: a.onKey}
	if len(recorders) > 0 {
		p.recording = &recordingTap{to: recorders, caller: isCaller}
	}
	return p.run(ctx)
}

// run relays audio until ctx is done or the source is closed. It blocks.
func (m *mediaRelay) run(ctx context.Context) (err error) {
	m.dropReceived()
	for m.changed = true; m.changed && err == nil && ctx.Err() == nil; {
		m.changed = false
		m.inbound, m.outbound = m.agreement(), m.to.agreement()
		if m.preparePassthrough() {
			err = m.relayPackets(ctx)
		} else {
			err = m.transcodeAudio(ctx)
		}
	}
	return err
}

// preparePassthrough reports whether packets can be relayed without decoding. Both sides must have the same codec, or
// the two variants of G.711, between which lawTable converts. With a recording, or if pauses must be filled with
// packets, the audio has to be decoded.
func (m *mediaRelay) preparePassthrough() (ok bool) {
	m.lawTable = nil
	from, isLaw := m.inbound.codec.media.(g711.Codec)
	to, areLaws := m.outbound.codec.media.(g711.Codec)
	if isLaw && areLaws && from != to {
		m.lawTable = from.TranscodeTable(to)
	}
	return (m.lawTable != nil || m.inbound.codec == m.outbound.codec) && !m.fillsPauses && m.recording == nil
}

// Read implements [rtpaudio.Reader]. It returns an error if the agreement of one side has changed.
func (m *mediaRelay) Read(b []byte) (int, error) {
	n, err := m.stream.Read(b)
	if m.agreement() != m.inbound || m.to.agreement() != m.outbound {
		m.changed = true
		return 0, io.EOF
	}
	return n, err
}

// relayPackets relays packets without decoding.
func (m *mediaRelay) relayPackets(ctx context.Context) error {
	defer m.stopReadsOnDone(ctx)()
	var buf [2048]byte
	var packet rtp.Packet
	for {
		n, err := m.Read(buf[:])
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case m.changed, errors.Is(err, net.ErrClosed): // the source's call has ended, or run must start again
			return nil
		case err != nil:
			return err
		}
		if packet.Unmarshal(buf[:n]) != nil {
			continue
		}
		switch {
		case m.inbound.codecOf(packet.PayloadType) == m.inbound.codec:
			if m.lawTable != nil {
				for i, b := range packet.Payload {
					packet.Payload[i] = m.lawTable[b]
				}
			}
			m.to.forwardPacket(&m.track, m.outbound.number, &packet)
			continue
		case packet.PayloadType == m.inbound.comfort && m.outbound.comfort != 0:
			m.to.forwardPacket(&m.track, m.outbound.comfort, &packet)
			continue
		}
		m.readKeyPacket(&packet, m.inbound, m.press)
	}
}

// transcodeAudio decodes incoming audio, and sends it in the other side's codec.
func (m *mediaRelay) transcodeAudio(ctx context.Context) (err error) {
	m.rate = m.inbound.codec.media.BestDecodeRate(uplinkRate)
	if m.encoder, err = m.outbound.codec.media.NewEncoder(m.rate); err != nil {
		return err
	}
	m.pcm, m.packet.SSRC = m.pcm[:0], m.packet.SSRC+1 // a new SSRC, because timestamps restart with the new encoder
	return rtpaudio.NewReceiver(m, rtpaudio.ReceiverOptions{
		Codec: m.inbound.codec.media, PayloadTypes: m.inbound.codecPayloadTypes(), EventTypes: m.inbound.events,
		OnEvent: func(e rtpaudio.Event) { m.keyReader.detectDigit(e, m.press) },
	}).Run(ctx, m)
}

// Rate implements [media.Sink].
func (m *mediaRelay) Rate() int { return m.rate }

// WritePCM implements [media.Sink].
func (m *mediaRelay) WritePCM(pcm []int16) error {
	m.recording.write(pcm, m.rate)
	m.pcm = append(m.pcm, pcm...)
	frame := media.Samples(media.FrameDuration, m.rate)
	for ; len(m.pcm) >= frame; m.pcm = m.pcm[:copy(m.pcm, m.pcm[frame:])] {
		n, err := m.encoder.Encode(m.pcm[:frame], m.payload[:])
		if err != nil {
			return err
		}
		m.packet.SequenceNumber++
		m.packet.Timestamp += uint32(media.Samples(media.FrameDuration, m.outbound.codec.media.ClockRate()))
		m.packet.Payload = m.payload[:n]
		m.to.forwardPacket(&m.track, m.outbound.number, &m.packet)
	}
	return nil
}

// Recorder receives the audio of both sides of a bridge. [voxgate/media/record.Recording] and [Mixer] implement it.
type Recorder interface {
	WriteCaller(pcm []int16, rate int, at time.Time)
	WriteModel(pcm []int16, at time.Time) // at [VoiceRate]
}

// recordingTap passes the audio of one side to recorders: the caller's audio to WriteCaller, the other person's to
// WriteModel.
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

// maxGap limits how far received audio may be from real time and still be appended to the recording without a gap.
// Packets arrive unevenly.
const maxGap = 200 * time.Millisecond
