package bench

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"voxgate/gateway/bench/harness"
	"voxgate/gateway/bench/peer"
	"voxgate/gateway/bench/speech"
	"voxgate/media/opus"
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
	first, err := calls(ctx, s, 1, o.offers())
	if err != nil {
		return cost{}, err
	}
	first[0].Ask()
	harness.Pace(ctx, frame, 1, int(o.settle/frame), func(_, i int) { first[0].Send(room[i%roomFrames]) })
	hangUp(first)
	if err := harness.Sleep(ctx, o.settle); err != nil {
		return cost{}, err
	}
	idle, err := s.ResidentBytes()
	if err != nil {
		return cost{}, err
	}
	peers, err := calls(ctx, s, n, o.offers())
	if err != nil {
		return cost{}, err
	}
	defer hangUp(peers)

	speaking, stop := context.WithCancel(ctx)
	defer stop()
	late := make(chan []time.Duration, 1)
	go func() {
		late <- harness.Pace(speaking, frame, n, int((o.settle+o.window+time.Minute)/frame), func(caller, i int) {
			if time.Duration(i)*frame == time.Duration(caller)*turnLength/time.Duration(n)/frame*frame {
				peers[caller].Ask() // turns are spread, too
			}
			peers[caller].Send(room[(i+caller)%roomFrames])
		})
	}()
	if err := harness.Sleep(ctx, o.settle); err != nil {
		return cost{}, err
	}
	c, err := watch(ctx, s, peers, o.window)
	if err != nil {
		return cost{}, err
	}
	stop()
	c.late = harness.Quantile(<-late, 0.99)
	c.memory = (c.memory - idle) / int64(n)
	for i, p := range peers {
		if p.Err() != nil {
			return cost{}, fmt.Errorf("call %d failed: %w\n%s", i, p.Err(), s.Log())
		}
	}
	if c.answered < o.answered {
		return cost{}, fmt.Errorf("a caller got only %.1f%% of its packets back", 100*c.answered)
	}
	return c, nil
}

// watch measures the server for a while. The memory it returns is all that is resident, at its most.
func watch(ctx context.Context, s *service, peers []*peer.Peer, window time.Duration) (cost, error) {
	before := make([]uint64, len(peers))
	for i, p := range peers {
		before[i] = p.Received()
	}
	if s.profiled {
		if err := s.BeginProfile(); err != nil {
			return cost{}, err
		}
	}
	began := time.Now()
	used, err := s.CPUTime()
	if err != nil {
		return cost{}, err
	}
	c := cost{calls: len(peers), answered: 1}
	for left := window; left > 0; left = window - time.Since(began) {
		if err := harness.Sleep(ctx, min(left, time.Second)); err != nil {
			return cost{}, err
		}
		resident, err := s.ResidentBytes()
		if err != nil {
			return cost{}, err
		}
		c.memory = max(c.memory, resident)
	}
	usedNow, err := s.CPUTime()
	if err != nil {
		return cost{}, err
	}
	took := time.Since(began)
	if s.profiled {
		if err := s.EndProfile(); err != nil {
			return cost{}, err
		}
	}
	for i, p := range peers {
		got := float64(p.Received()-before[i]) * float64(frame) / float64(took)
		c.answered = min(c.answered, got)
	}
	c.cpu = time.Duration(float64(usedNow-used) * float64(time.Minute) / float64(took) / float64(len(peers)))
	return c, nil
}

// calls makes n calls that talk without a pause. If one fails all are ended.
func calls(ctx context.Context, s *service, n int, offers peer.Features) ([]*peer.Peer, error) {
	return callsWith(ctx, s, n, func(int) peer.Options { return peer.Options{Question: question, Offers: offers} })
}

func callsWith(ctx context.Context, s *service, n int, options func(call int) peer.Options) ([]*peer.Peer, error) {
	peers, errs := make([]*peer.Peer, n), make([]error, n)
	var wg sync.WaitGroup
	room := make(chan struct{}, connecting)
	for i := range n {
		room <- struct{}{}
		wg.Go(func() {
			peers[i], errs[i] = s.call(ctx, options(i))
			<-room
		})
	}
	wg.Wait()
	for i, err := range errs {
		if err != nil {
			hangUp(peers)
			return nil, fmt.Errorf("call %d: %w\n%s", i, err, s.Log())
		}
	}
	return peers, nil
}

func hangUp(peers []*peer.Peer) {
	for _, p := range peers {
		if p != nil {
			p.Close()
		}
	}
}

// roomNoise encodes what the callers send, once for all.
func roomNoise() ([][]byte, error) {
	encoder, err := opus.NewEncoder(speech.MicRate)
	if err != nil {
		return nil, err
	}
	random := rand.New(rand.NewPCG(1, 2))
	packets := make([][]byte, roomFrames)
	pcm, buf := make([]int16, speech.FrameSamples(speech.MicRate)), make([]byte, 1500)
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
