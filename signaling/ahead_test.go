package signaling_test

import (
	"context"
	"encoding/base64"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"voxgate/bridge/gemini/wire"
	"voxgate/media"
	"voxgate/media/playout"
	"voxgate/signaling"
)

// slowClient is an output whose client reads 100 kB a second.
type slowClient struct{ box *signaling.SendQueue[int] }

func (slowClient) MaxLead() time.Duration { return media.UnlimitedLead }

func (c slowClient) WriteFrame(f media.Frame) error {
	size := base64.StdEncoding.EncodedLen(2 * len(f.PCM))
	c.box.Put(size, size)
	return nil
}

// holdingClient is a slowClient with the method Full of [voxgate/media.BackpressureOutput], like all endpoints.
type holdingClient struct{ slowClient }

func (c holdingClient) Full() bool { return c.box.Full() }

// A model that sends two minutes of voice in 20 s is faster than a client that reads 100 kB a second, which is fast
// enough for playback. Without backpressure the client was disconnected at 4 MiB; with it, all of the voice arrives.
func TestVoiceFarAheadIsHeldBack(t *testing.T) {
	const seconds, perSecond = 120, 100_000
	for _, holds := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			box := signaling.NewSendQueue[int]()
			ticker := playout.NewTicker()
			defer ticker.Close()
			p := playout.NewPacer(ticker, wire.OutputRate)
			defer p.Close()
			if p.AttachOutput(slowClient{box}); holds {
				p.AttachOutput(holdingClient{slowClient{box}})
			}
			read := 0
			ended := make(chan error, 1)
			go func() {
				ended <- box.Run(t.Context(), func(_ context.Context, size int) error {
					time.Sleep(time.Duration(size) * time.Second / perSecond)
					read += size
					return nil
				})
			}()
			for range seconds {
				if err := p.WritePCM(make([]int16, wire.OutputRate)); err != nil {
					t.Fatal(err)
				}
				time.Sleep(time.Second / 6)
			}
			time.Sleep(seconds * time.Second)
			box.Close()
			err := <-ended
			if !holds && !errors.Is(err, signaling.ErrSlow) {
				t.Errorf("without room for it the client was kept: %v", err)
			}
			if want := seconds * wire.OutputRate * 2 * 4 / 3; holds && (err != nil || read != want) {
				t.Errorf("%d of %d bytes were read, %v", read, want, err)
			}
		})
	}
}
