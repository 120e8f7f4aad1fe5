package network

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"voxgate/gateway/bench/harness"
	"voxgate/gateway/bench/impair"
	"voxgate/gateway/bench/model"
	"voxgate/gateway/bench/peer"
	"voxgate/gateway/bench/speech"
	"voxgate/media"
)

const frame = media.FrameDuration

// modelTimeout is how long the gateway may take to call the model.
const modelTimeout = 20 * time.Second

// linkDelay is the time a packet needs in each direction, whatever else befalls it: a round trip of 60 ms, as to a server in
// the next country.
const linkDelay = 30 * time.Millisecond

// call is one over a bad network: a person who talks all the time and hears the model, which talks as well.
type call struct {
	*condition
	span
	peer    *peer.Peer
	network *impair.Conn
	line    *model.Line
	ear     speech.Recording
	speech  *speech.Speech

	copies         bool             // were negotiated
	begin, end     time.Time        // of what befalls
	spoken, voiced []speech.Recital // by the person, by the model
	late           []time.Duration
}

// measured is what a call has shown, in one direction.
type measured struct {
	share    float64 // of the voiced blocks that were heard
	blocks   int
	clean    time.Duration // delay before, median
	added    time.Duration // to it, median
	tail     time.Duration // to it, 95th percentile
	back     time.Duration // added still, later than backTime after the end: 10th percentile against that before
	recovery time.Duration // after a time without voice: from its end to the first word
}

// call makes a call and lets the condition befall it.
func (c *condition) call(ctx context.Context, gateway *harness.Process, m *model.Model, seed uint64, s span) (*call, error) {
	t := &call{condition: c, span: s}
	var err error
	if t.speech, err = speech.Recite(); err != nil {
		return nil, err
	}
	socket, err := net.ListenPacket("udp4", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	t.network = impair.NewConn(socket, seed)
	t.set(impair.Profile{})
	name := fmt.Sprint(c.name, seed)
	o := peer.Options{Open: model.Opening(name), Socket: t.network, Offers: peer.Chromium, Ear: &t.ear, RTT: 2 * linkDelay}
	if c.plain {
		o.Offers = peer.Features{}
	}
	if t.peer, err = peer.Call(ctx, gateway.URL, o); err != nil {
		return nil, errors.Join(err, t.network.Close())
	}
	defer t.peer.Close()
	t.copies = t.peer.Copies()
	select {
	case t.line = <-m.Line(name):
	case <-time.After(modelTimeout):
		return nil, errors.New("the gateway has not called the model")
	}
	return t, t.converse(ctx)
}

// set has both directions do something besides taking their time.
func (t *call) set(p impair.Profile) {
	p.Delay = linkDelay
	t.network.Set(p, p)
}

// converse talks both ways until the call is over.
func (t *call) converse(ctx context.Context) error {
	talking, quiet := context.WithTimeout(ctx, t.whole())
	defer quiet()
	var talkers sync.WaitGroup
	var said, told error
	talkers.Go(func() { said = t.talk(talking) })
	talkers.Go(func() { told = t.tell(talking) })
	err := t.befall(ctx)
	if err != nil {
		quiet()
	}
	talkers.Wait()
	if err = errors.Join(err, said, told, t.peer.Err()); err != nil {
		return err
	}
	return harness.Sleep(ctx, speech.Latest) // for what is on the way
}

// talk is the person's microphone.
func (t *call) talk(ctx context.Context) error {
	encoder, err := speech.NewTalker()
	if err != nil {
		return err
	}
	period := frame + t.drift*frame/time.Second
	begun, buf := time.Now(), make([]byte, 1500)
	t.late = harness.Pace(ctx, period, 1, int(t.whole()/frame), func(_, i int) {
		if frames := t.speech.Frames(); i%frames == 0 {
			t.spoken = append(t.spoken, speech.Recital{At: begun.Add(time.Duration(i) * period), To: frames})
		}
		var n int
		if n, err = encoder.Encode(t.speech.MicFrame(i), buf); err == nil {
			t.peer.Send(buf[:n])
		}
	})
	return err
}

// tell is the model's voice: a clip a turn.
func (t *call) tell(ctx context.Context) error {
	const between = 200 * time.Millisecond // from the end of a turn to the next one
	for i := 0; ctx.Err() == nil; i++ {
		from, to := t.speech.Clip(i)
		turn := speech.Recital{At: time.Now(), From: from, To: to}
		t.voiced = append(t.voiced, turn)
		if err := t.line.Turn(ctx, t.speech.Voice(from, to)); err != nil {
			return err
		}
		harness.Sleep(ctx, time.Until(turn.End().Add(between)))
	}
	return nil
}

// befall lets the condition befall the call, and waits for its end.
func (t *call) befall(ctx context.Context) error {
	if err := harness.Sleep(ctx, t.settle+t.clean); err != nil {
		return err
	}
	t.begin = time.Now()
	t.set(t.profile)
	switch {
	case t.blackout > 0:
		t.network.Blackout(t.blackout)
		t.begin = t.begin.Add(t.blackout) // what counts is what comes after
	case t.moves:
		if err := t.move(ctx); err != nil {
			return fmt.Errorf("ICE restart: %w", err)
		}
	}
	if err := harness.Sleep(ctx, t.bad); err != nil {
		return err
	}
	t.end = time.Now()
	t.set(impair.Profile{})
	return nil
}

// move gives the person another address, as when a phone leaves the Wi-Fi, and restarts ICE.
func (t *call) move(ctx context.Context) error {
	socket, err := net.ListenPacket("udp4", "127.0.0.1:0")
	if err != nil {
		return err
	}
	t.network.Swap(socket)
	return t.peer.RestartICE(ctx)
}

// results judges both directions.
func (t *call) results() (up, down measured) {
	said := speech.Judge(t.speech, t.spoken, t.line.Pieces())
	told := speech.Judge(t.speech, t.voiced, t.ear.Pieces())
	down = t.measure(told)
	speech.Play(t.voiced, told)
	played := t.measure(told)
	played.recovery = down.recovery
	return t.measure(said), played
}

func (t *call) measure(all []speech.Verdict) measured {
	var m measured
	var clean, bad, back []time.Duration
	for _, v := range all {
		during := !v.Spoken.Before(t.begin) && v.Spoken.Before(t.end)
		if during {
			m.blocks++
		}
		if !v.Present {
			continue
		}
		switch {
		case during:
			bad = append(bad, v.Delay)
		case v.Spoken.Before(t.begin.Add(-t.blackout)) && v.Spoken.After(t.begin.Add(-t.blackout-t.clean)):
			clean = append(clean, v.Delay)
		case v.Spoken.After(t.end.Add(backTime)):
			back = append(back, v.Delay)
		}
	}
	m.share = float64(len(bad)) / float64(max(1, m.blocks))
	m.clean = harness.Quantile(clean, 0.5)
	m.added, m.tail = harness.Quantile(bad, 0.5)-m.clean, harness.Quantile(bad, 0.95)-m.clean
	m.back = harness.Quantile(back, 0.1) - harness.Quantile(clean, 0.1) // a hiccup of the machine is no delay that has stayed
	if len(back) == 0 {
		m.back = backTime // nothing has come back at all
	}
	m.recovery = recovery(all, t.begin)
	return m
}

// recovery is how long after a time the first word is heard, without the time in which none was spoken.
func recovery(all []speech.Verdict, from time.Time) time.Duration {
	var heard, spoken time.Time
	for _, v := range all {
		if at := v.Spoken.Add(v.Delay); v.Present && at.After(from) && (heard.IsZero() || at.Before(heard)) {
			heard = at
		}
		if !v.Spoken.Before(from) && (spoken.IsZero() || v.Spoken.Before(spoken)) {
			spoken = v.Spoken
		}
	}
	switch {
	case heard.IsZero():
		return time.Hour // never
	case heard.After(spoken):
		return heard.Sub(spoken)
	default:
		return heard.Sub(from)
	}
}
