package bench

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"voxgate/media"
)

const (
	// roomFrames is how many packets the callers repeat: the noise of a room, never silent and never speech, so that the
	// model is heard to the end.
	roomFrames = 50
	roomLevel  = 240 // decoded to 16 kHz an RMS of 82: the emulator takes 100 and more for speech

	// connecting is how many calls are made at a time.
	connecting = 8

	// turnLength is how long the emulator hums its answer to question.
	turnLength = 1800 * time.Millisecond
	question   = `{"parts":[{"text":"Congratulations, the international telecommunication infrastructure remains extraordinarily responsive."}]}`
)

// cost is what a server with so many calls needs.
type cost struct {
	calls    int
	cpu      time.Duration // per minute of a call
	memory   int64         // bytes per call
	answered float64       // the least share of the packets that a caller got back
	late     time.Duration // of the senders, 99th percentile
}

// measureCost starts a server, makes n calls and measures it for a while.
func measureCost(ctx context.Context, o options, n int, start func(context.Context) (*service, error)) (cost, error) {
	s, err := start(ctx)
	if err != nil {
		return cost{}, err
	}
	defer s.stop()
	room, err := roomNoise()
	if err != nil {
		return cost{}, err
	}
	// A first call, so that the memory without calls is that of a server that has worked.
	first, err := calls(ctx, s, 1)
	if err != nil {
		return cost{}, err
	}
	first[0].ask()
	pace(ctx, 1, int(o.settle/frame), func(_, i int) { first[0].send(room[i%roomFrames]) })
	hangUp(first)
	if err := sleep(ctx, o.settle); err != nil {
		return cost{}, err
	}
	idle, err := residentBytes(s.cmd.Process.Pid)
	if err != nil {
		return cost{}, err
	}
	peers, err := calls(ctx, s, n)
	if err != nil {
		return cost{}, err
	}
	defer hangUp(peers)

	speaking, stop := context.WithCancel(ctx)
	defer stop()
	late := make(chan []time.Duration, 1)
	go func() {
		late <- pace(speaking, n, int((o.settle+o.window+time.Minute)/frame), func(caller, i int) {
			if time.Duration(i)*frame == time.Duration(caller)*turnLength/time.Duration(n)/frame*frame {
				peers[caller].ask() // turns are spread, too
			}
			peers[caller].send(room[(i+caller)%roomFrames])
		})
	}()
	if err := sleep(ctx, o.settle); err != nil {
		return cost{}, err
	}
	c, err := watch(ctx, s, peers, o.window)
	if err != nil {
		return cost{}, err
	}
	stop()
	c.late = quantile(<-late, 0.99)
	c.memory = (c.memory - idle) / int64(n)
	for i, p := range peers {
		if p.err() != nil {
			return cost{}, fmt.Errorf("call %d failed: %w", i, p.err())
		}
	}
	if c.answered < o.answered {
		return cost{}, fmt.Errorf("a caller got only %.1f%% of its packets back", 100*c.answered)
	}
	return c, nil
}

// watch measures the server for a while. The memory it returns is all that is resident, at its most.
func watch(ctx context.Context, s *service, peers []*peer, window time.Duration) (cost, error) {
	pid := s.cmd.Process.Pid
	before := make([]uint64, len(peers))
	for i, p := range peers {
		before[i] = p.received.Load()
	}
	began := time.Now()
	used, err := cpuTime(pid)
	if err != nil {
		return cost{}, err
	}
	c := cost{calls: len(peers), answered: 1}
	for left := window; left > 0; left = window - time.Since(began) {
		if err := sleep(ctx, min(left, time.Second)); err != nil {
			return cost{}, err
		}
		resident, err := residentBytes(pid)
		if err != nil {
			return cost{}, err
		}
		c.memory = max(c.memory, resident)
	}
	usedNow, err := cpuTime(pid)
	if err != nil {
		return cost{}, err
	}
	took := time.Since(began)
	for i, p := range peers {
		got := float64(p.received.Load()-before[i]) * float64(frame) / float64(took)
		c.answered = min(c.answered, got)
	}
	c.cpu = time.Duration(float64(usedNow-used) * float64(time.Minute) / float64(took) / float64(len(peers)))
	return c, nil
}

// calls makes n calls. If one fails all are ended.
func calls(ctx context.Context, s *service, n int) ([]*peer, error) {
	peers, errs := make([]*peer, n), make([]error, n)
	var wg sync.WaitGroup
	room := make(chan struct{}, connecting)
	for i := range n {
		room <- struct{}{}
		wg.Go(func() {
			peers[i], errs[i] = s.call(ctx, s, peerOptions{chat: true})
			<-room
		})
	}
	wg.Wait()
	for i, err := range errs {
		if err != nil {
			hangUp(peers)
			return nil, fmt.Errorf("call %d: %w\n%s", i, err, s.log())
		}
	}
	return peers, nil
}

func hangUp(peers []*peer) {
	for _, p := range peers {
		if p != nil {
			p.close()
		}
	}
}

// roomNoise encodes what the callers send, once for all.
func roomNoise() ([][]byte, error) {
	encoder, err := media.NewOpusEncoder(micRate)
	if err != nil {
		return nil, err
	}
	random := rand.New(rand.NewPCG(1, 2))
	packets := make([][]byte, roomFrames)
	pcm, buf := make([]int16, samples(frame)), make([]byte, 1500)
	for i := range packets {
		for j := range pcm {
			pcm[j] = int16(random.IntN(2*roomLevel+1) - roomLevel)
		}
		n, err := encoder.Encode(pcm, buf)
		if err != nil {
			return nil, err
		}
		packets[i] = slices.Clone(buf[:n])
	}
	return packets, nil
}

func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
