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
	profile  mediatest.Impairment // for both directions
	blackout time.Duration        // duration of an outage at its start
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
	// linkDelay is the minimum delay of a packet in each direction: a round trip of 60 ms, as to a server in the next country.
	linkDelay = 30 * time.Millisecond
	// backTime is the time after a condition within which the delay must return to its previous value.
	backTime = 5 * time.Second
	// callsAtOnce is the number of concurrent calls, each of which takes a few percent of a core.
	callsAtOnce = 6
)

// callPhases holds the durations of the phases of a call.
type callPhases struct{ settle, clean, bad, after time.Duration }

func (s callPhases) total() time.Duration { return s.settle + s.clean + s.bad + s.after }

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

// impaired is a call over a bad network, in which person and model talk all the time.
type impaired struct {
	condition
	callPhases
	speech   *reference
	network  [2]*mediatest.Socket // the second one for a second connection
	caller   *caller
	model    *session
	received recording // what the person hears

	begin, end              time.Time   // of the condition
	userSpeech, modelSpeech []utterance // by the person, and by the model
	delays                  []time.Duration
}

// run makes the call and applies the condition.
func (c *impaired) run(ctx context.Context, stage *stage, seed uint64) (err error) {
	c.speech = speech()
	for i := range c.network {
		socket, err := net.ListenPacket("udp4", "127.0.0.1:0")
		if err != nil {
			return err
		}
		c.network[i] = mediatest.NewSocket(socket, seed)
		defer c.network[i].Close()
	}
	c.setImpairment(mediatest.Impairment{})
	name := fmt.Sprint(c.name, seed)
	if stage.hasSharedInstruction() {
		name = instruction
	}
	o := callOptions{instruction: name, likeChrome: true, socket: c.network[0], second: c.network[1], sink: &c.received}
	if c.caller, err = stage.placeCall(ctx, o); err != nil {
		return err
	}
	defer c.caller.close()
	if c.model, err = stage.awaitSession(ctx, c.caller); err != nil {
		return err
	}
	talking, quiet := context.WithTimeout(ctx, c.total())
	defer quiet()
	var talkers sync.WaitGroup
	var tellErr error
	talkers.Go(func() { c.sendUserSpeech(talking) })
	talkers.Go(func() { tellErr = c.sendModelSpeech(talking) })
	if err = c.applyCondition(ctx); err != nil {
		quiet()
	}
	talkers.Wait()
	sleep(ctx, latest) // wait for packets in transit
	return errors.Join(err, tellErr, c.caller.err())
}

// setImpairment applies an impairment to both directions, in addition to linkDelay.
func (c *impaired) setImpairment(p mediatest.Impairment) {
	p.Delay = linkDelay
	for _, network := range c.network {
		network.Set(p, p)
	}
}

// sendUserSpeech sends the speech of the person.
func (c *impaired) sendUserSpeech(ctx context.Context) {
	encoder := newTalker()
	start := time.Now()
	c.delays = paceFrames(ctx, frame, 1, int(c.total()/frame), func(_, i int) {
		if frames := c.speech.frameCount(); i%frames == 0 {
			c.userSpeech = append(c.userSpeech, utterance{start.Add(time.Duration(i) * frame), 0, frames})
		}
		c.caller.sendPacket(encoder.encodeFrame(c.speech.micFrame(i)))
	})
}

// sendModelSpeech sends the voice of the model, one clip a turn.
func (c *impaired) sendModelSpeech(ctx context.Context) error {
	const between = 200 * time.Millisecond // pause between turns
	for i := 0; ctx.Err() == nil; i++ {
		from, to := c.speech.clipFrames(i)
		turn := utterance{time.Now(), from, to}
		c.modelSpeech = append(c.modelSpeech, turn)
		if err := c.model.sendTurn(ctx, c.speech.voiceFrames(from, to)); err != nil {
			return err
		}
		sleep(ctx, time.Until(turn.frameTime(to).Add(between)))
	}
	return nil
}

// applyCondition applies the condition at its time, and waits for its end.
func (c *impaired) applyCondition(ctx context.Context) error {
	if err := sleep(ctx, c.settle+c.clean); err != nil {
		return err
	}
	c.begin = time.Now()
	c.setImpairment(c.profile)
	if c.blackout > 0 {
		c.begin = c.begin.Add(c.blackout) // the measurement begins after the outage
		for _, network := range c.network {
			network.Blackout(c.begin)
		}
	}
	if err := sleep(ctx, c.bad); err != nil {
		return err
	}
	c.end = time.Now()
	c.setImpairment(mediatest.Impairment{})
	return nil
}

// measured holds the results of a call in one direction.
type measured struct {
	share          float64 // of the voiced blocks that arrived
	blocks         int
	remainingDelay time.Duration // added delay that is left backTime after the condition: 10th percentile, to exclude delays of the machine
	recovery       time.Duration // from the end of an outage to the first word
}

// evaluate evaluates both directions.
func (c *impaired) evaluate() (up, down measured) {
	up = c.evaluateDirection(judgeSpeech(c.speech, c.userSpeech, c.model.snapshot()))
	verdicts := judgeSpeech(c.speech, c.modelSpeech, c.received.snapshot())
	arrives := recoveryTime(verdicts, c.begin)
	applyPlayout(c.modelSpeech, verdicts)
	down = c.evaluateDirection(verdicts)
	down.recovery = arrives
	return up, down
}

func (c *impaired) evaluateDirection(all []verdict) measured {
	var before, after []time.Duration
	arrivedBlocks := 0
	var m measured
	for _, v := range all {
		in := !v.spokenAt.Before(c.begin) && v.spokenAt.Before(c.end)
		if in {
			m.blocks++
		}
		switch dark := c.begin.Add(-c.blackout); {
		case !v.present:
		case in:
			arrivedBlocks++
		case v.spokenAt.Before(dark) && v.spokenAt.After(dark.Add(-c.clean)):
			before = append(before, v.delay)
		case v.spokenAt.After(c.end.Add(backTime)):
			after = append(after, v.delay)
		}
	}
	m.share = float64(arrivedBlocks) / float64(max(1, m.blocks))
	m.remainingDelay = quantile(after, 0.1) - quantile(before, 0.1)
	if len(after) == 0 {
		m.remainingDelay = backTime // nothing has arrived after the condition
	}
	m.recovery = recoveryTime(all, c.begin)
	return m
}

// recoveryTime returns the time from a moment to the first word that arrives, without the time in which no word was spoken.
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
