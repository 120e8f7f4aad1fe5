package mediastream

import (
	"context"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"voxgate/media"
	"voxgate/signaling"
)

// startCodec returns a provider's codec after the start message, and the format of the call.
func startCodec(t testing.TB, provider, start string) (*dialectCodec, format) {
	t.Helper()
	c := &dialectCodec{dialect: &profiles[provider].dialect}
	m, err := c.parseProviderMessage([]byte(start), true)
	if err != nil || m.kind != kindStart {
		t.Fatalf("%v, %+v", err, m)
	}
	return c, m.start.format
}

const twilioStart = `{"event":"start","streamSid":"MZ1","start":{"streamSid":"MZ1","callSid":"CA1",` +
	`"mediaFormat":{"encoding":"audio/x-mulaw","sampleRate":8000}}}`

func silentVoiceFrame() media.Frame { return media.Frame{PCM: make([]int16, 480)} }

// Voice counts as heard when the mark after it is reported, and no other, or 2 s after it should have been played.
func TestWaitUntilPlayed(t *testing.T) {
	const ms = time.Millisecond
	for name, test := range map[string]struct {
		back []string // marks, 10 ms apart
		gone time.Duration
		deaf bool // the other side does not support marks
		want time.Duration
	}{
		"its mark":           {back: []string{"2"}, want: 10 * ms},
		"an older one first": {back: []string{"1", "1", "2"}, want: 30 * ms},
		"those of strangers": {back: []string{"3", "-2", "99999999999999999999", "x", "2 ", "2"}, want: 60 * ms},
		"the newest":         {back: []string{""}, want: 10 * ms},
		"none":               {want: 200*ms + playbackReportWait},
		"an older one alone": {back: []string{"1"}, want: 200*ms + playbackReportWait},
		"the end":            {gone: 50 * ms, want: 50 * ms},
		"no marks":           {deaf: true, want: 200 * ms},
	} {
		synctest.Test(t, func(t *testing.T) {
			c, f := startCodec(t, "twilio", twilioStart)
			if test.deaf {
				c, f = startCodec(t, "freeswitch", `{"callId":"1"}`)
			}
			s := newVoiceSender(c, f, func(signaling.Outgoing) {}, slog.New(slog.DiscardHandler))
			gone, written := make(chan struct{}), make(chan struct{})
			s.waitUntilPlayed(playbackReportWait, gone, written) // nothing was sent yet
			for range 10 {
				if err := s.WriteFrame(silentVoiceFrame()); err != nil {
					t.Fatal(err)
				}
			}
			s.finishTurn()
			began := time.Now()
			if test.gone > 0 {
				time.AfterFunc(test.gone, func() { close(gone) })
			}
			go func() {
				for _, mark := range test.back {
					time.Sleep(10 * ms)
					s.recordPlayedMark(mark)
				}
			}()
			s.waitUntilPlayed(playbackReportWait, gone, written)
			if took := time.Since(began); took != test.want {
				t.Errorf("%s: heard after %v, want %v", name, took, test.want)
			}
		})
	}
}

// The mark at the end of an answer measures how much the other side buffers.
func TestPlaybackDelay(t *testing.T) {
	const ms = time.Millisecond
	synctest.Test(t, func(t *testing.T) {
		c, f := startCodec(t, "twilio", twilioStart)
		s := newVoiceSender(c, f, func(signaling.Outgoing) {}, slog.New(slog.DiscardHandler))
		s.setRoundTrip(40 * ms)
		answer := func(mark string, late time.Duration) {
			for range 10 {
				if err := s.WriteFrame(silentVoiceFrame()); err != nil {
					t.Fatal(err)
				}
			}
			s.finishTurn()
			time.Sleep(200*ms + late + 40*ms)
			s.recordPlayedMark(mark)
		}
		answer("1", 300*ms)
		if s.PlaybackDelay() != 300*ms {
			t.Errorf("%v late", s.PlaybackDelay())
		}
		answer("2", 20*ms)
		if s.PlaybackDelay() != 20*ms {
			t.Errorf("%v late, no more 300 ms", s.PlaybackDelay())
		}
		answer("3", -30*ms) // early: the round trip is shorter now
		if s.PlaybackDelay() != 0 {
			t.Errorf("%v late", s.PlaybackDelay())
		}
		answer("", 0)
		s.discardVoice()
		time.Sleep(time.Second)
		s.recordPlayedMark("4") // its sound was dropped, so it does not measure the delay
		if s.PlaybackDelay() != 0 {
			t.Errorf("%v late after what was dropped", s.PlaybackDelay())
		}
	})
}

// BenchmarkSendVoice measures one frame of the voice, from the model to its message.
func BenchmarkSendVoice(b *testing.B) {
	for provider, start := range map[string]string{"twilio": twilioStart, "jambonz": `{"callSid":"1","sampleRate":16000}`} {
		b.Run(provider, func(b *testing.B) {
			c, f := startCodec(b, provider, start)
			out, taken, done := signaling.NewSendQueue[signaling.Outgoing](), make(chan struct{}), make(chan struct{})
			put := func(m signaling.Outgoing) { out.Put(m, len(m.Data)) }
			s := newVoiceSender(c, f, put, slog.New(slog.DiscardHandler))
			go func() {
				defer close(done)
				_ = out.Run(context.Background(), func(context.Context, signaling.Outgoing) error { taken <- struct{}{}; return nil })
			}()
			frame := silentVoiceFrame()
			_ = s.WriteFrame(media.Frame{PCM: frame.PCM, Start: true})
			<-taken
			b.ReportAllocs()
			for b.Loop() {
				_ = s.WriteFrame(frame)
				<-taken
			}
			out.Close()
			<-done
		})
	}
}

// BenchmarkDecodeSound measures one message with sound, to PCM.
func BenchmarkDecodeSound(b *testing.B) {
	for provider, test := range map[string]struct {
		start, message string
		text           bool
	}{
		"twilio": {
			twilioStart,
			`{"event":"media","sequenceNumber":"3","streamSid":"MZ1",` +
				`"media":{"track":"inbound","chunk":"1","timestamp":"20","payload":"` + string(base64Silence(160)) + `"}}`,
			true,
		},
		"jambonz": {`{"callSid":"1","sampleRate":16000}`, string(make([]byte, 640)), false},
	} {
		b.Run(provider, func(b *testing.B) {
			c, f := startCodec(b, provider, test.start)
			var order reorderBuffer
			var pcm []int16
			message := []byte(test.message)
			b.ReportAllocs()
			var stream media.SampleReader
			for b.Loop() {
				m, err := c.parseProviderMessage(message, test.text)
				if err != nil {
					b.Fatal(err)
				}
				order.nextChunk = 0
				_, ready := order.push(m)
				for _, part := range ready {
					pcm = f.decodeSound(pcm[:0], &stream, part)
				}
			}
		})
	}
}

// base64Silence returns about n bytes of 0xff, which is silence in µ-law, in base64.
func base64Silence(n int) (text []byte) {
	for range n / 3 {
		text = append(text, "////"...)
	}
	return text
}

// TestUselessCounterDelaysNothing has counters that never rise. After a few messages the counter is ignored, and each
// message is played when it comes.
func TestUselessCounterDelaysNothing(t *testing.T) {
	t.Parallel()
	for name, chunk := range map[string]func(n int) int{
		"constant":        func(int) int { return 7 },
		"falls by one":    func(n int) int { return 50 - n },
		"falls by twenty": func(n int) int { return 500 - 20*n },
	} {
		var order reorderBuffer
		for n := range 20 {
			_, ready := order.push(message{chunk: chunk(n), sound: []byte{byte(n)}})
			if n > 2*maxIrregular && len(ready) != 1 {
				t.Errorf("%s: message %d releases %d", name, n, len(ready))
			}
		}
	}
}
