// Package libopus is a binding of the parts of libopus (https://opus-codec.org/docs/opus_api-1.5/) that Voxgate uses.
// Encoders and decoders are not safe for concurrent use. Their state is in Go memory: they need not be closed.
package libopus

/*
#cgo pkg-config: opus
#cgo noescape opus_encode
#cgo nocallback opus_encode
#cgo noescape opus_decode
#cgo nocallback opus_decode
#include <opus.h>

// opus_encoder_ctl is variadic, and cgo cannot call variadic functions. All requests that Voxgate uses take one number.
static int set_encoder_option(OpusEncoder *encoder, int request, opus_int32 value) {
	return opus_encoder_ctl(encoder, request, value);
}
*/
import "C"

import (
	"errors"
	"fmt"
	"unsafe"
)

// Application is the goal of the optimizations of an encoder.
type Application int

// See OPUS_APPLICATION_VOIP and OPUS_APPLICATION_RESTRICTED_LOWDELAY.
const (
	VoIP     Application = C.OPUS_APPLICATION_VOIP                // speech, with SILK and in-band FEC
	LowDelay Application = C.OPUS_APPLICATION_RESTRICTED_LOWDELAY // CELT alone, 2.5 ms of look-ahead
)

// Bandwidth limits the audio bandwidth of an encoder.
type Bandwidth int

// Audio bandwidths.
const (
	Narrowband Bandwidth = C.OPUS_BANDWIDTH_NARROWBAND // 4 kHz
	Wideband   Bandwidth = C.OPUS_BANDWIDTH_WIDEBAND   // 8 kHz
	Fullband   Bandwidth = C.OPUS_BANDWIDTH_FULLBAND   // 20 kHz
)

// Error is an error code of libopus, which is negative.
type Error int

func (e Error) Error() string { return "opus: " + C.GoString(C.opus_strerror(C.int(e))) }

func toError(code C.int) error {
	if code < 0 {
		return Error(code)
	}
	return nil
}

var errEmpty = errors.New("opus: empty buffer")

func checkChannels(channels int) error {
	if channels != 1 && channels != 2 {
		return fmt.Errorf("opus: %d channels, want 1 or 2", channels)
	}
	return nil
}

// Encoder is an Opus encoder.
type Encoder struct {
	state    []byte
	channels int
}

// NewEncoder makes an encoder of 16-bit samples. The sample rate is 8000, 12000, 16000, 24000 or 48000 Hz; channels is 1 or 2.
func NewEncoder(rate, channels int, application Application) (*Encoder, error) {
	if err := checkChannels(channels); err != nil {
		return nil, err
	}
	e := &Encoder{make([]byte, C.opus_encoder_get_size(C.int(channels))), channels}
	if err := toError(C.opus_encoder_init(e.handle(), C.opus_int32(rate), C.int(channels), C.int(application))); err != nil {
		return nil, err
	}
	return e, nil
}

func (e *Encoder) handle() *C.OpusEncoder { return (*C.OpusEncoder)(unsafe.Pointer(&e.state[0])) }

// Encode encodes one frame of 2.5, 5, 10, 20, 40 or 60 ms into buf, and returns the length of the packet. The samples of two
// channels are interleaved.
func (e *Encoder) Encode(pcm []int16, buf []byte) (int, error) {
	if len(pcm) == 0 || len(buf) == 0 {
		return 0, errEmpty
	}
	n := C.opus_encode(e.handle(), (*C.opus_int16)(&pcm[0]), C.int(len(pcm)/e.channels), (*C.uchar)(&buf[0]), C.opus_int32(len(buf)))
	return max(0, int(n)), toError(C.int(n))
}

func (e *Encoder) setOption(request C.int, value int) error {
	return toError(C.set_encoder_option(e.handle(), request, C.opus_int32(value)))
}

func boolToInt(b bool) int {
	if b {
		return 1
	}
	return 0
}

// SetBitrate sets the bitrate in bits a second.
func (e *Encoder) SetBitrate(bitrate int) error {
	return e.setOption(C.OPUS_SET_BITRATE_REQUEST, bitrate)
}

// SetComplexity sets the effort of the encoder, between 0 and 10.
func (e *Encoder) SetComplexity(complexity int) error {
	return e.setOption(C.OPUS_SET_COMPLEXITY_REQUEST, complexity)
}

// SetInBandFEC makes each packet carry a copy of the previous one, if a loss is expected.
func (e *Encoder) SetInBandFEC(on bool) error {
	return e.setOption(C.OPUS_SET_INBAND_FEC_REQUEST, boolToInt(on))
}

// SetPacketLoss sets the expected loss in percent.
func (e *Encoder) SetPacketLoss(percent int) error {
	return e.setOption(C.OPUS_SET_PACKET_LOSS_PERC_REQUEST, percent)
}

// SetDTX makes the encoder send almost nothing during silence.
func (e *Encoder) SetDTX(on bool) error { return e.setOption(C.OPUS_SET_DTX_REQUEST, boolToInt(on)) }

// SetMaxBandwidth limits the audio bandwidth.
func (e *Encoder) SetMaxBandwidth(b Bandwidth) error {
	return e.setOption(C.OPUS_SET_MAX_BANDWIDTH_REQUEST, int(b))
}

// Decoder is an Opus decoder.
type Decoder struct {
	state    []byte
	channels int
}

// NewDecoder makes a decoder to 16-bit samples, with the sample rates and channels of [NewEncoder].
func NewDecoder(rate, channels int) (*Decoder, error) {
	if err := checkChannels(channels); err != nil {
		return nil, err
	}
	d := &Decoder{make([]byte, C.opus_decoder_get_size(C.int(channels))), channels}
	if err := toError(C.opus_decoder_init(d.handle(), C.opus_int32(rate), C.int(channels))); err != nil {
		return nil, err
	}
	return d, nil
}

func (d *Decoder) handle() *C.OpusDecoder { return (*C.OpusDecoder)(unsafe.Pointer(&d.state[0])) }

// Decode decodes a packet into pcm, and returns the number of samples of each channel. It returns an error if pcm is too short.
func (d *Decoder) Decode(packet []byte, pcm []int16) (int, error) {
	if len(packet) == 0 {
		return 0, errEmpty
	}
	return d.decode(packet, pcm, 0)
}

// Conceal fills pcm in place of lost packets. The length of pcm is their duration, a multiple of 2.5 ms.
func (d *Decoder) Conceal(pcm []int16) error {
	_, err := d.decode(nil, pcm, 0)
	return err
}

// DecodeFEC fills pcm in place of a lost packet. The length of pcm is the duration of that packet. The argument packet
// is the next packet, which may carry a copy of the lost one.
func (d *Decoder) DecodeFEC(packet []byte, pcm []int16) error {
	if len(packet) == 0 {
		return errEmpty
	}
	_, err := d.decode(packet, pcm, 1)
	return err
}

func (d *Decoder) decode(packet []byte, pcm []int16, fec C.int) (int, error) {
	if len(pcm) == 0 {
		return 0, errEmpty
	}
	n := C.opus_decode(d.handle(), (*C.uchar)(unsafe.SliceData(packet)), C.opus_int32(len(packet)),
		(*C.opus_int16)(&pcm[0]), C.int(len(pcm)/d.channels), fec)
	return max(0, int(n)), toError(n)
}
