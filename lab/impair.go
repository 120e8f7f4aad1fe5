package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"voxgate/internal/testkit/mediatest"
)

// condition is an impairment of the network between a person and the gateway.
type condition struct {
	name     string               // suffix of the names of its cells, which begin with "up.", "down." or "stretch."
	profile  mediatest.Impairment // impairment of both directions
	blackout time.Duration        // duration of an outage at the start of the condition
}

// badNetworks lists the conditions of the comparison.
var badNetworks = []condition{
	{name: "0"},
	{name: "5", profile: mediatest.Impairment{Loss: 0.05}},
	{name: "10", profile: mediatest.Impairment{Loss: 0.1}},
	{name: "20", profile: mediatest.Impairment{Loss: 0.2}},
	{name: "30", profile: mediatest.Impairment{Loss: 0.3}},
	{name: "burst", profile: mediatest.Impairment{Burst: mediatest.Burst{Loss: 0.07, Length: 4}}},
	{name: "jitter", profile: mediatest.Impairment{Jitter: 100 * time.Millisecond, Overtake: true}},
	{name: "dark", blackout: 2 * time.Second},
}

const (
	// linkDelay is the minimum delay of a packet in each direction. It makes a round trip of 60 ms, as to a server in a
	// neighbouring country.
	linkDelay = 30 * time.Millisecond
	// backTime limits how long the delay may take to return to its previous value after a condition ends.
	backTime = 5 * time.Second
	// callsAtOnce is the number of concurrent calls, each of which takes a few percent of a core.
	callsAtOnce = 6
)

// callPhases holds the durations of the phases of a call.
type callPhases struct{ settle, clean, bad, after time.Duration }

func (c callPhases) total() time.Duration { return c.settle + c.clean + c.bad + c.after }

// callAll makes the calls of all conditions, a few at a time. A failed call is nil and has an error.
func callAll(ctx context.Context, stage *stage, seed uint64, conditions []condition, s callPhases) ([]*impaired, []error) {
	stage.model.setListener(func(s *session, pcm []int16) { s.WritePCM(pcm) })
	calls, errs := make([]*impaired, len(conditions)), make([]error, len(conditions))
	limit := callsAtOnce
	if stage.hasSharedInstruction() {
		limit = 1
	}
	runConcurrently(limit, len(conditions), func(i int) {
		logProgress("%s: %v", conditions[i].name, s.total())
		c := &impaired{condition: conditions[i], callPhases: s}
		if err := c.run(ctx, stage, seed); err != nil {
			errs[i] = fmt.Errorf("%s: %w", c.name, err)
			return
		}
		calls[i] = c
	})
	return calls, errs
}

// impaired is a call over a bad network. The person and the model talk all the time.
type impaired struct {
	condition
	callPhases
	speech   *reference
	network  [2]*mediatest.Socket // one for each WebRTC connection; see callOptions.second
	caller   *caller
	model    *session
	received recording // what the person hears

	begin, end              time.Time   // begin and end of the condition
	userSpeech, modelSpeech []utterance // what the person and the model said, and when
	delays                  []time.Duration
}

// run makes the call and applies the condition.
func (ic *impaired) run(ctx context.Context, stage *stage, seed uint64) (err error) {
	ic.speech = speech()
	for i := range ic.network {
		socket, err := net.ListenPacket("udp4", "127.0.0.1:0")
		if err != nil {
			return err
		}
		ic.network[i] = mediatest.NewSocket(socket, seed)
		defer ic.network[i].Close()
	}
	ic.setImpairment(mediatest.Impairment{})
	name := fmt.Sprint(ic.name, seed)
	if stage.hasSharedInstruction() {
		name = instruction
	}
	o := callOptions{instruction: name, likeChrome: true, socket: ic.network[0], second: ic.network[1], sink: &ic.received}
	if ic.caller, err = stage.placeCall(ctx, o); err != nil {
		return err
	}
	defer ic.caller.close()
	if ic.model, err = stage.awaitSession(ctx, ic.caller); err != nil {
		return err
	}
	talking, quiet := context.WithTimeout(ctx, ic.total())
	defer quiet()
	var talkers sync.WaitGroup
	var tellErr error
	talkers.Go(func() { ic.sendUserSpeech(talking) })
	talkers.Go(func() { tellErr = ic.sendModelSpeech(talking) })
	if err = ic.applyCondition(ctx); err != nil {
		quiet()
	}
	talkers.Wait()
	sleep(ctx, latest) // wait for packets in transit
	return errors.Join(err, tellErr, ic.caller.err())
}

// setImpairment applies an impairment to both directions, in addition to linkDelay.
func (ic *impaired) setImpairment(p mediatest.Impairment) {
	p.Delay = linkDelay
	for _, network := range ic.network {
		network.SetImpairments(p, p)
	}
}

// sendUserSpeech sends the speech of the person.
func (ic *impaired) sendUserSpeech(ctx context.Context) {
	encoder := newBrowserTalker()
	start := time.Now()
	ic.delays = paceFrames(ctx, frame, 1, int(ic.total()/frame), func(_, i int) {
		if frames := ic.speech.frameCount(); i%frames == 0 {
			ic.userSpeech = append(ic.userSpeech, utterance{start.Add(time.Duration(i) * frame), 0, frames})
		}
		ic.caller.sendPacket(encoder.encodeFrame(ic.speech.micFrame(i)))
	})
}

// sendModelSpeech sends the voice of the model. Each clip is one turn.
func (ic *impaired) sendModelSpeech(ctx context.Context) error {
	const between = 200 * time.Millisecond // pause between turns
	for i := 0; ctx.Err() == nil; i++ {
		from, to := ic.speech.clipFrames(i)
		turn := utterance{time.Now(), from, to}
		ic.modelSpeech = append(ic.modelSpeech, turn)
		if err := ic.model.sendTurn(ctx, ic.speech.voiceFrames(from, to)); err != nil {
			return err
		}
		sleep(ctx, time.Until(turn.frameTime(to).Add(between)))
	}
	return nil
}

// applyCondition waits for the start of the condition, applies it, and waits for its end.
func (ic *impaired) applyCondition(ctx context.Context) error {
	if err := sleep(ctx, ic.settle+ic.clean); err != nil {
		return err
	}
	ic.begin = time.Now()
	ic.setImpairment(ic.profile)
	if ic.blackout > 0 {
		ic.begin = ic.begin.Add(ic.blackout) // the measurement begins after the outage
		for _, network := range ic.network {
			network.Blackout(ic.begin)
		}
	}
	if err := sleep(ctx, ic.bad); err != nil {
		return err
	}
	ic.end = time.Now()
	ic.setImpairment(mediatest.Impairment{})
	return nil
}

// measured holds the results of a call in one direction.
type measured struct {
	share          float64 // share of the voiced blocks that arrived, from 0 to 1
	blocks         int
	remainingDelay time.Duration // added delay that is left backTime after the condition: 10th percentile, to exclude delays of the machine
	recovery       time.Duration // from the end of an outage to the first word
}

// evaluate evaluates both directions.
func (ic *impaired) evaluate() (up, down measured) {
	up = ic.evaluateDirection(judgeSpeech(ic.speech, ic.userSpeech, ic.model.snapshot()))
	verdicts := judgeSpeech(ic.speech, ic.modelSpeech, ic.received.snapshot())
	arrives := recoveryTime(verdicts, ic.begin)
	applyPlayout(ic.modelSpeech, verdicts)
	down = ic.evaluateDirection(verdicts)
	down.recovery = arrives
	return up, down
}

func (ic *impaired) evaluateDirection(all []verdict) measured {
	var before, after []time.Duration
	arrivedBlocks := 0
	var m measured
	for _, v := range all {
		in := !v.spokenAt.Before(ic.begin) && v.spokenAt.Before(ic.end)
		if in {
			m.blocks++
		}
		switch dark := ic.begin.Add(-ic.blackout); {
		case !v.present:
		case in:
			arrivedBlocks++
		case v.spokenAt.Before(dark) && v.spokenAt.After(dark.Add(-ic.clean)):
			before = append(before, v.delay)
		case v.spokenAt.After(ic.end.Add(backTime)):
			after = append(after, v.delay)
		}
	}
	m.share = float64(arrivedBlocks) / float64(max(1, m.blocks))
	m.remainingDelay = quantile(after, 0.1) - quantile(before, 0.1)
	if len(after) == 0 {
		m.remainingDelay = backTime // nothing has arrived after the condition
	}
	m.recovery = recoveryTime(all, ic.begin)
	return m
}

// recoveryTime returns the time from a moment to the arrival of the first word. If the speech pauses at that moment,
// the rest of the pause is not included.
func recoveryTime(all []verdict, from time.Time) time.Duration {
	const never = time.Hour
	firstArrival, firstSpoken := from.Add(never), from.Add(never)
	for _, v := range all {
		if at := v.spokenAt.Add(v.delay); v.present && at.After(from) && at.Before(firstArrival) {
			firstArrival = at
		}
		if !v.spokenAt.Before(from) && v.spokenAt.Before(firstSpoken) {
			firstSpoken = v.spokenAt
		}
	}
	if firstArrival.After(firstSpoken) && firstArrival.Sub(from) < never {
		return firstArrival.Sub(firstSpoken)
	}
	return firstArrival.Sub(from)
}
