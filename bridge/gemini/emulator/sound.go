package emulator

import (
	"context"
	"encoding/binary"
	"errors"
	"hash/fnv"
	"math"
	"os/exec"
	"strings"
	"time"

	"voxgate/bridge/gemini/wire"
	"voxgate/media"
)

const (
	// longestText limits a text for espeak-ng, in bytes. 500 bytes are about half a minute of speech.
	longestText = 500

	// voiceTimeout limits a run of espeak-ng, which takes 50 ms for a long sentence.
	voiceTimeout = 5 * time.Second
)

// speakWithEspeak returns a text spoken at 24 kHz by a program, which must have the options of espeak-ng. If that
// fails, it returns a melody.
func speakWithEspeak(ctx context.Context, program, text string) []int16 {
	ctx, cancel := context.WithTimeout(ctx, voiceTimeout)
	defer cancel()
	if len(text) > longestText {
		text = strings.ToValidUTF8(text[:longestText], "")
	}
	// The text is passed on stdin, so that it cannot be parsed as an option.
	cmd := exec.CommandContext(ctx, program, "--stdin", "--stdout")
	cmd.Stdin = strings.NewReader(text)
	cmd.WaitDelay = time.Second
	wav, err := cmd.Output()
	if err != nil {
		return melody(text)
	}
	pcm, rate, err := parseWAV(wav)
	if err == nil {
		pcm, err = media.Resample(pcm, rate, wire.OutputRate)
	}
	if err != nil || len(pcm) == 0 {
		return melody(text)
	}
	return pcm
}

// parseWAV returns the samples of a WAV file from espeak-ng: mono 16-bit PCM after a header of 44 bytes. The lengths in
// the header are not used, because they are invalid if the output is a pipe.
func parseWAV(data []byte) (pcm []int16, rate int, err error) {
	const header = 44
	if len(data) < header || string(data[:4]) != "RIFF" || string(data[36:40]) != "data" {
		return nil, 0, errors.New("not a WAV file")
	}
	return media.AppendSamples(nil, data[header:]), int(binary.LittleEndian.Uint32(data[24:])), nil
}

// melody returns a whistled melody at 24 kHz: notes of a pentatonic scale that depend on the text. The same text always
// gives the same melody.
func melody(text string) []int16 {
	const note = 150 * time.Millisecond
	scale := []float64{523.25, 587.33, 659.25, 783.99, 880} // C5 D5 E5 G5 A5
	hash := fnv.New32a()
	_, _ = hash.Write([]byte(text))
	notes := 4 + min(len(text)/10, 8)
	var pcm []int16
	for i, n := 0, hash.Sum32(); i < notes; i, n = i+1, n*2654435761+12345 {
		pcm = append(pcm, tone(scale[n>>16%5], note)...)
	}
	return pcm
}

// tone returns a sine wave at 24 kHz with a quarter of full scale. It is faded for 5 ms at both ends, to avoid clicks.
func tone(hz float64, d time.Duration) []int16 {
	const fade = wire.OutputRate * 5 / 1000
	n := int(d.Seconds() * wire.OutputRate)
	pcm := make([]int16, n)
	for i := range pcm {
		level := min(1, float64(i)/fade, float64(n-1-i)/fade)
		pcm[i] = int16(8192 * level * math.Sin(2*math.Pi*hz*float64(i)/wire.OutputRate))
	}
	return pcm
}
