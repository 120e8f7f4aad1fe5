package sip

import (
	"context"
	"slices"
	"time"

	"voxgate/bridge"
	"voxgate/media/rtpaudio"
)

// uplinkRate is what is decoded to at the most, in Hz: the Live API's own rate. G.711 goes up at its 8 kHz; nothing is resampled.
const uplinkRate = 16000

// call is one telephone call. It implements bridge.Caller.
type call struct {
	leg
	door    *Door
	lane    *lane
	line    *line
	stream  *stream
	counted string        // the caller that it counts for; empty: a call of ours
	over    chan struct{} // closed when nothing is left of it

	agreed chan *sound   // what a re-INVITE has changed
	spoken chan struct{} // closed when the model has begun to speak

	replaces *call         // whose conversation it goes on with; nil: it begins one
	changing chan struct{} // holds one as long as what was agreed is about to change, from the first INVITE on

	// Of leg.mu, too.
	local    local
	peer     *description // the peer's newest; nil: it has answered an offer of ours
	offered  []crypto     // keys that our offer had
	sound    *sound
	heard    bool // spoken is closed
	reliable reliable
	transfer chan int // the final status of one that runs; nil: none does
}

// converse has the conversation of a call whose way is open, and returns when it is over.
func (c *call) converse() error {
	ctx, cancel := c.during(context.Background())
	defer cancel(nil)
	open := c.agent.Open(c.party)
	open.Origin = bridge.Origin{Door: doorName, Identity: c.party.Number, Key: c.lane.Name}
	open.Grant = &bridge.Grant{Tools: []string{"*"}, MaxDuration: c.lane.longest()}
	open.Account = c.door.account("sip "+c.lane.Name, c.lane.Calls)
	open.Tools = c.tools()
	if c.replaces != nil {
		open.TakeOver = c.replaces.conversation()
	}
	return c.door.host.Serve(ctx, c, open)
}

// Serve implements bridge.Caller.
func (c *call) Serve(ctx context.Context, s *bridge.Session) error {
	c.mu.Lock()
	current := c.sound
	timer := c.timer
	c.mu.Unlock()
	if err := c.come(s); err != nil {
		return err
	}
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	pressed := collector{}
	refreshed, reported := time.Now(), time.Now()
	var hearing *hearing
	defer func() { hearing.stop() }()
	for {
		if current != nil {
			if !hearing.does(current) {
				hearing.stop()
				var err error
				if hearing, err = c.hear(ctx, s, current); err != nil {
					return err
				}
			}
			if err := s.Do(bridge.Pause{On: current.held}); err != nil {
				return err
			}
			c.log.Info("sound", "codec", current.codec.name, "srtp", current.out != nil, "hold", current.held)
			current = nil
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case current = <-c.agreed:
		case digit := <-c.digits:
			if text, over := pressed.add(digit, time.Now()); over {
				c.typed(s, text)
			}
		case <-c.fresh:
			refreshed = time.Now()
		case now := <-tick.C:
			if text, over := pressed.due(now); over {
				c.typed(s, text)
			}
			if now.Sub(reported) >= reportEvery {
				reported = now
				c.stream.report(now)
			}
			if c.stream.quiet(now) > c.lane.silence() && !c.onHold() {
				return errSilence
			}
			if err := c.keepAlive(timer, now, &refreshed); err != nil {
				return err
			}
		}
	}
}

// come has the model begin a conversation, or know that another call has taken the place of the one that it had.
func (c *call) come(s *bridge.Session) error {
	took := c.replaces != nil && s == c.replaces.conversation()
	if took {
		c.line = c.replaces.line
	}
	c.line.Store(c)
	c.begin(s)
	if took {
		c.log.Info("call replaced", "was", c.replaces.dialog.callID)
		return s.Do(handedOver(c.party))
	}
	return c.greet(s)
}

func (c *call) onHold() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.sound != nil && (c.sound.held || c.sound.silent)
}

// hearing is a codec at work, up and down.
type hearing struct {
	agreed *sound
	cancel context.CancelFunc
	done   chan struct{}
}

// does tells whether nothing changes for it by another agreement: a session timer is often refreshed by an INVITE that says the same.
func (h *hearing) does(agreed *sound) bool {
	return h != nil && h.agreed.payload == agreed.payload && slices.Equal(h.agreed.events, agreed.events)
}

func (h *hearing) stop() {
	if h != nil {
		h.cancel()
		<-h.done
	}
}

// hear has sound go both ways as it was agreed on.
func (c *call) hear(ctx context.Context, s *bridge.Session, agreed *sound) (*hearing, error) {
	codec := agreed.codec.media
	mic, err := s.Mic(codec.DecodedRate(uplinkRate))
	if err != nil {
		return nil, err
	}
	sender, err := rtpaudio.NewSender(c.stream, codec)
	if err != nil {
		return nil, err
	}
	sender.Negotiated(agreed.number, 0)
	c.stream.sender.Store(sender)
	s.Attach(sender)
	s.Hold(false)
	var digits digitReader
	receiver := rtpaudio.NewReceiver(mic, rtpaudio.ReceiverOptions{
		Codec: codec, Types: []uint8{agreed.number}, Events: agreed.events,
		Event: func(e rtpaudio.Event) {
			if digit, ok := digits.read(e); ok {
				c.press(digit)
			}
		},
	})
	ctx, cancel := context.WithCancel(ctx)
	h := &hearing{agreed, cancel, make(chan struct{})}
	go func() {
		defer close(h.done)
		err := receiver.Run(ctx, c.stream)
		stats := receiver.Stats()
		c.log.Info("sound ended", "codec", agreed.codec.name, "packets", stats.Packets, "lost", stats.Lost, "late", stats.Late,
			"concealed", stats.Concealed, "jitter", stats.Jitter, "err", err)
	}()
	return h, nil
}

// Notify implements bridge.Caller: what a telephone is told is said.
func (c *call) Notify(e bridge.Event) {
	switch b := e.Body.(type) {
	case bridge.Speaking:
		c.speaks()
	case bridge.Log:
		c.log.Debug(b.Message)
	}
}

// speaks notes that the model speaks.
func (c *call) speaks() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.heard {
		c.heard = true
		close(c.spoken)
	}
}
