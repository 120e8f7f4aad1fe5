package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"voxgate/media/mediatest"
)

// condition is an impairment of the network between a person and the gateway.
type condition struct {
	name     string               // suffix of the cells "up.", "down." and "stretch."
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

// span holds the durations of the phases of a call.
type span struct{ settle, clean, bad, after time.Duration }

func (s span) whole() time.Duration { return s.settle + s.clean + s.bad + s.after }

// callAll makes the calls of all conditions, a few at a time. A failed call is nil and has an error.
func callAll(ctx context.Context, stage *stage, seed uint64, conditions []condition, s span) ([]*impaired, []error) {
	stage.model.listen(func(s *session, pcm []int16) { s.WritePCM(pcm) })
	calls, errs := make([]*impaired, len(conditions)), make([]error, len(conditions))
	limit := callsAtOnce
	if stage.alone() {
		limit = 1
	}
	atOnce(limit, len(conditions), func(i int) {
		progress("%s: %v", conditions[i].name, s.whole())
		c := &impaired{condition: conditions[i], span: s}
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
	span
	speech  *reference
	network [2]*mediatest.Socket // the second one for a second connection
	caller  *caller
	model   *session
	hears   recording // what the person hears

	begin, end time.Time   // of the condition
	said, told []utterance // by the person, and by the model
	late       []time.Duration
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
	c.set(mediatest.Impairment{})
	name := fmt.Sprint(c.name, seed)
	if stage.alone() {
		name = instruction
	}
	o := callOptions{instruction: name, likeChrome: true, socket: c.network[0], second: c.network[1], sink: &c.hears}
	if c.caller, err = stage.call(ctx, o); err != nil {
		return err
	}
	defer c.caller.close()
	if c.model, err = stage.session(ctx, c.caller); err != nil {
		return err
	}
	talking, quiet := context.WithTimeout(ctx, c.whole())
	defer quiet()
	var talkers sync.WaitGroup
	var tellErr error
	talkers.Go(func() { c.talk(talking) })
	talkers.Go(func() { tellErr = c.tell(talking) })
	if err = c.happen(ctx); err != nil {
		quiet()
	}
	talkers.Wait()
	sleep(ctx, latest) // for packets in transit
	return errors.Join(err, tellErr, c.caller.err())
}

// set applies an impairment to both directions, in addition to linkDelay.
func (c *impaired) set(p mediatest.Impairment) {
	p.Delay = linkDelay
	for _, network := range c.network {
		network.Set(p, p)
	}
}

// talk sends the speech of the person.
func (c *impaired) talk(ctx context.Context) {
	encoder := newTalker()
	begun := time.Now()
	c.late = pace(ctx, frame, 1, int(c.whole()/frame), func(_, i int) {
		if frames := c.speech.frames(); i%frames == 0 {
			c.said = append(c.said, utterance{begun.Add(time.Duration(i) * frame), 0, frames})
		}
		c.caller.speak(encoder.encode(c.speech.micFrame(i)))
	})
}

// tell sends the voice of the model, one clip a turn.
func (c *impaired) tell(ctx context.Context) error {
	const between = 200 * time.Millisecond // pause between turns
	for i := 0; ctx.Err() == nil; i++ {
		from, to := c.speech.clip(i)
		turn := utterance{time.Now(), from, to}
		c.told = append(c.told, turn)
		if err := c.model.turn(ctx, c.speech.voiced(from, to)); err != nil {
			return err
		}
		sleep(ctx, time.Until(turn.spoken(to).Add(between)))
	}
	return nil
}

// happen applies the condition at its time, and waits for its end.
func (c *impaired) happen(ctx context.Context) error {
	if err := sleep(ctx, c.settle+c.clean); err != nil {
		return err
	}
	c.begin = time.Now()
	c.set(c.profile)
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
	c.set(mediatest.Impairment{})
	return nil
}

// measured holds the results of a call in one direction.
type measured struct {
	share    float64 // of the voiced blocks that arrived
	blocks   int
	stays    time.Duration // additional delay that remains backTime after the end: 10th percentile, to exclude hiccups of the machine
	recovery time.Duration // from the end of an outage to the first word
}

// results evaluates both directions.
func (c *impaired) results() (up, down measured) {
	up = c.measure(judge(c.speech, c.said, c.model.all()))
	verdicts := judge(c.speech, c.told, c.hears.all())
	arrives := recovery(verdicts, c.begin)
	play(c.told, verdicts)
	down = c.measure(verdicts)
	down.recovery = arrives
	return up, down
}

func (c *impaired) measure(all []verdict) measured {
	var before, after []time.Duration
	heard := 0
	var m measured
	for _, v := range all {
		in := !v.spoken.Before(c.begin) && v.spoken.Before(c.end)
		if in {
			m.blocks++
		}
		switch dark := c.begin.Add(-c.blackout); {
		case !v.present:
		case in:
			heard++
		case v.spoken.Before(dark) && v.spoken.After(dark.Add(-c.clean)):
			before = append(before, v.delay)
		case v.spoken.After(c.end.Add(backTime)):
			after = append(after, v.delay)
		}
	}
	m.share = float64(heard) / float64(max(1, m.blocks))
	m.stays = quantile(after, 0.1) - quantile(before, 0.1)
	if len(after) == 0 {
		m.stays = backTime // nothing has arrived after the condition
	}
	m.recovery = recovery(all, c.begin)
	return m
}

// recovery returns the time from a moment to the first word that arrives, without the time in which none was spoken.
func recovery(all []verdict, from time.Time) time.Duration {
	const never = time.Hour
	heard, spoken := from.Add(never), from.Add(never)
	for _, v := range all {
		if at := v.spoken.Add(v.delay); v.present && at.After(from) && at.Before(heard) {
			heard = at
		}
		if !v.spoken.Before(from) && v.spoken.Before(spoken) {
			spoken = v.spoken
		}
	}
	if heard.After(spoken) && heard.Sub(from) < never {
		return heard.Sub(spoken)
	}
	return heard.Sub(from)
}
