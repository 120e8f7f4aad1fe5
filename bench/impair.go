package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"voxgate/media/mediatest"
)

// condition is something that happens to the network between a person and the gateway.
type condition struct {
	name     string
	profile  mediatest.Impairment // of both directions, while it lasts
	blackout time.Duration        // at its begin
	moves    bool                 // the person's address changes at its begin, and the person restarts ICE
	drift    time.Duration        // per second: how much slower the person's clock is, all the time
	plain    bool                 // the person offers neither copies nor retransmission
}

// conditions are in the order of the table.
var conditions = []condition{
	{name: "clean"},
	{name: "1 % lost", profile: mediatest.Impairment{Loss: 0.01}},
	{name: "5 % lost", profile: mediatest.Impairment{Loss: 0.05}},
	{name: "5 % lost, plain Opus", profile: mediatest.Impairment{Loss: 0.05}, plain: true},
	{name: "10 % lost", profile: mediatest.Impairment{Loss: 0.1}},
	{name: "20 % lost", profile: mediatest.Impairment{Loss: 0.2}},
	{name: "20 % lost, plain Opus", profile: mediatest.Impairment{Loss: 0.2}, plain: true},
	{name: "7 % lost in bursts of 4", profile: mediatest.Impairment{Burst: mediatest.Burst{Loss: 0.07, Length: 4}}},
	{name: "jitter of 100 ms, in order", profile: mediatest.Impairment{Jitter: 100 * time.Millisecond}},
	{name: "jitter of 100 ms, out of order", profile: mediatest.Impairment{Jitter: 100 * time.Millisecond, Overtake: true}},
	{name: "25 % overtake others", profile: mediatest.Impairment{Reorder: 0.25}},
	{name: "5 % come twice", profile: mediatest.Impairment{Duplicate: 0.05}},
	{name: "nothing passes for 2 s", blackout: 2 * time.Second},
	{name: "the person's clock is 200 ppm slow", drift: 200 * time.Microsecond},
	{name: "the person's clock is 200 ppm fast", drift: -200 * time.Microsecond},
	{name: "another address with an ICE restart", moves: true},
}

const (
	// linkDelay is the time a packet needs in each direction, whatever else happens to it: a round trip of 60 ms, as to a
	// server in the next country.
	linkDelay = 30 * time.Millisecond
	// backTime is when the delay must be back at its old value, at the latest.
	backTime = 5 * time.Second
	// callsAtOnce is how many calls are made at once: a few percent of a core each.
	callsAtOnce = 6
)

// span is how long the parts of a call take.
type span struct{ settle, clean, bad, after time.Duration }

func (s span) whole() time.Duration { return s.settle + s.clean + s.bad + s.after }

// fullSpan is that of the table: some 700 voiced blocks in each direction.
var fullSpan = span{settle: time.Second, clean: 7 * time.Second, bad: 20 * time.Second, after: backTime + 5*time.Second}

// measureNetworks makes a call under each condition and prints a table.
func measureNetworks(ctx context.Context, o options, stdout io.Writer) error {
	began := time.Now()
	stage, err := o.stage(ctx, voxgate, silence)
	if err != nil {
		return err
	}
	defer stage.close()
	calls, failed := callAll(ctx, stage, o.seed, conditions, fullSpan)
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	t := newTable("between person and gateway", "reaches the model", "delay", "reaches the person", "delay")
	var stays time.Duration
	for i, c := range conditions {
		if calls[i] == nil {
			t.row(c.name, "not measured", "–", "–", "–")
			continue
		}
		up, down := calls[i].results()
		stays = max(stays, up.stays, down.stays)
		name := c.name
		if c.blackout > 0 || c.moves {
			name += fmt.Sprintf("; heard again after %s by the model, %s by the person", milliseconds(up.recovery), milliseconds(down.recovery))
		}
		delays := func(m measured) string { return milliseconds(m.added) + " / " + milliseconds(m.tail) }
		t.row(name, percent(up.share), delays(up), percent(down.share), delays(down))
	}
	note := fmt.Sprintf("Seed %d. %v after the end at most %s of the delay stays.", o.seed, backTime, milliseconds(stays))
	return errors.Join(t.write(stdout, began, note), failed)
}

// callAll makes the calls of all conditions, a few at a time. Those that failed are nil.
func callAll(ctx context.Context, stage *stage, seed uint64, conditions []condition, s span) ([]*impaired, error) {
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
	return calls, errors.Join(errs...)
}

// impaired is a call over a bad network: the person talks all the time and hears the model, which talks as well.
type impaired struct {
	condition
	span
	speech  *reference
	network [2]*mediatest.Socket // the second one is for a second connection
	caller  *caller
	model   *session
	hears   recording // the person

	begin, end time.Time   // of the condition
	said, told []utterance // by the person, by the model
	late       []time.Duration
}

// run makes the call and lets the condition happen to it.
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
	o := callOptions{instruction: name, plain: c.plain, likeChrome: !c.plain, socket: c.network[0], second: c.network[1], sink: &c.hears}
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
	sleep(ctx, latest) // for what is on the way
	return errors.Join(err, tellErr, c.caller.err())
}

// set has both directions do something besides taking their time.
func (c *impaired) set(p mediatest.Impairment) {
	p.Delay = linkDelay
	for _, network := range c.network {
		network.Set(p, p)
	}
}

// talk is the person's microphone.
func (c *impaired) talk(ctx context.Context) {
	encoder := newTalker()
	begun, period := time.Now(), frame+c.drift*frame/time.Second
	c.late = pace(ctx, period, 1, int(c.whole()/frame), func(_, i int) {
		if frames := c.speech.frames(); i%frames == 0 {
			c.said = append(c.said, utterance{begun.Add(time.Duration(i) * period), 0, frames})
		}
		c.caller.speak(encoder.encode(c.speech.micFrame(i)))
	})
}

// tell is the model's voice: a clip a turn.
func (c *impaired) tell(ctx context.Context) error {
	const between = 200 * time.Millisecond // from the end of a turn to the next one
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

// happen lets the condition happen, and waits for its end.
func (c *impaired) happen(ctx context.Context) error {
	if err := sleep(ctx, c.settle+c.clean); err != nil {
		return err
	}
	c.begin = time.Now()
	c.set(c.profile)
	switch {
	case c.blackout > 0:
		c.begin = c.begin.Add(c.blackout) // what counts is what comes after
		c.network[0].Blackout(c.begin)
	case c.moves: // as when a phone leaves the Wi-Fi
		socket, err := net.ListenPacket("udp4", "127.0.0.1:0")
		if err != nil {
			return err
		}
		c.network[0].Swap(socket)
		offer, err := c.caller.Offer(ctx, true) // the voice goes on meanwhile
		if err == nil {
			err = c.caller.negotiate(ctx, offer)
		}
		if err != nil {
			return fmt.Errorf("ICE restart: %w", err)
		}
	}
	if err := sleep(ctx, c.bad); err != nil {
		return err
	}
	c.end = time.Now()
	c.set(mediatest.Impairment{})
	return nil
}

// measured is what a call has shown, in one direction.
type measured struct {
	share    float64 // of the voiced blocks that were heard
	blocks   int
	added    time.Duration // delay, compared with that before: median
	tail     time.Duration // likewise, 95th percentile
	stays    time.Duration // added still, later than backTime after the end: 10th percentile, so no hiccup of the machine
	recovery time.Duration // after a time without voice: from its end to the first word
}

// results judges both directions.
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
	var before, during, after []time.Duration
	var m measured
	for _, v := range all {
		in := !v.spoken.Before(c.begin) && v.spoken.Before(c.end)
		if in {
			m.blocks++
		}
		switch dark := c.begin.Add(-c.blackout); {
		case !v.present:
		case in:
			during = append(during, v.delay)
		case v.spoken.Before(dark) && v.spoken.After(dark.Add(-c.clean)):
			before = append(before, v.delay)
		case v.spoken.After(c.end.Add(backTime)):
			after = append(after, v.delay)
		}
	}
	m.share = float64(len(during)) / float64(max(1, m.blocks))
	m.added, m.tail = quantile(during, 0.5)-quantile(before, 0.5), quantile(during, 0.95)-quantile(before, 0.5)
	m.stays = quantile(after, 0.1) - quantile(before, 0.1)
	if len(after) == 0 {
		m.stays = backTime // nothing has come back at all
	}
	m.recovery = recovery(all, c.begin)
	return m
}

// recovery is how long after a time the first word is heard, without the time in which none was spoken.
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
