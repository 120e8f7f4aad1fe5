package sip

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/emiago/sipgo/sip"

	"voxgate/bridge"
	"voxgate/media/rtpaudio"
	"voxgate/signaling/phone"
	"voxgate/tools"
)

// uplinkRate is what is decoded to at the most, in Hz: the Live API's own rate. G.711 goes up at its 8 kHz; nothing is resampled.
const uplinkRate = 16000

// call is one telephone call. It implements bridge.Caller.
type call struct {
	door    *Door
	lane    *lane
	agent   *phone.Agent
	log     *slog.Logger
	dialog  *dialog
	stream  *stream
	party   phone.Party
	counted string        // the caller that it counts for; empty: a call of ours
	over    chan struct{} // closed when nothing is left of it

	ended  chan struct{} // closed with the first reason for the end
	digits chan byte     // that were pressed
	agreed chan *sound   // what a re-INVITE has changed
	acked  chan []byte   // the body of an ACK; it has room for one
	fresh  chan struct{} // the session timer was refreshed; it has room for one
	spoken chan struct{} // closed when the model has begun to speak

	changing chan struct{} // holds one as long as what was agreed is about to change, from the first INVITE on

	mu       sync.Mutex
	reason   error // why it has ended
	local    local
	peer     *description // the peer's newest; nil: it has answered an offer of ours
	offered  []crypto     // keys that our offer had
	sound    *sound
	session  *bridge.Session // nil: the conversation has not begun
	timer    refresh
	heard    bool     // spoken is closed
	transfer chan int // the final status of one that runs; nil: none does
}

// end ends the call, for the first reason that is given.
func (c *call) end(reason error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.reason == nil {
		c.reason = reason
		close(c.ended)
	}
}

func (c *call) why() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.reason
}

// converse has the conversation of a call whose way is open, and returns when it is over.
func (c *call) converse() error {
	ctx, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)
	go func() {
		select {
		case <-c.ended:
			cancel(c.why())
		case <-ctx.Done():
		}
	}()
	open := c.agent.Open(c.party)
	open.Origin = bridge.Origin{Door: doorName, Identity: c.party.Number, Key: c.lane.Name}
	open.Grant = &bridge.Grant{Tools: []string{"*"}, MaxDuration: c.lane.longest()}
	open.Account = c.door.account("sip "+c.lane.Name, c.lane.Calls)
	open.Tools = c.tools()
	return c.door.host.Serve(ctx, c, open)
}

// Serve implements bridge.Caller.
func (c *call) Serve(ctx context.Context, s *bridge.Session) error {
	c.mu.Lock()
	c.session = s
	current := c.sound
	timer := c.timer
	c.mu.Unlock()
	if greeting := c.agent.Begin(); greeting != "" {
		if err := s.Do(bridge.Respond{Instruction: greeting}); err != nil {
			return err
		}
	}
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	pressed := collector{}
	refreshed, reported := time.Now(), time.Now()
	var hearing *hearing
	defer func() { hearing.stop() }()
	for {
		if current != nil {
			hearing.stop()
			var err error
			if hearing, err = c.hear(ctx, s, current); err != nil {
				return err
			}
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

var (
	errSilence   = errors.New("no packet has come for too long")
	errRefresh   = errors.New("the session timer was not refreshed")
	errLostACK   = errors.New("our answer was not acknowledged")
	errCancelled = errors.New("the caller has given up")
)

// keepAlive refreshes the session timer, or ends a call that the peer has not refreshed.
func (c *call) keepAlive(timer refresh, now time.Time, refreshed *time.Time) error {
	switch waited := now.Sub(*refreshed); {
	case timer.every == 0:
	case timer.ours && waited > timer.every/2:
		*refreshed = now
		go c.sendRefresh(timer)
	case !timer.ours && waited > timer.due():
		return errRefresh
	}
	return nil
}

// sendRefresh says that we are still here (RFC 4028, section 7.4; RFC 3311).
func (c *call) sendRefresh(timer refresh) {
	ctx, cancel := context.WithTimeout(context.Background(), byeTimeout)
	defer cancel()
	res, err := c.dialog.send(ctx, c.dialog.request(sip.UPDATE, sip.NewHeader("Supported", "timer"), timer.header(true)))
	if err != nil || res.StatusCode == 408 || res.StatusCode == 481 {
		c.end(errRefresh)
	}
}

func (c *call) onHold() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.sound != nil && (c.sound.held || c.sound.silent)
}

// hearing is a codec at work, up and down.
type hearing struct {
	cancel context.CancelFunc
	done   chan struct{}
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
	if err := s.Do(bridge.Pause{On: agreed.held}); err != nil {
		return nil, err
	}
	c.log.Info(map[bool]string{true: "on hold", false: "off hold"}[agreed.held], "codec", agreed.codec.name, "srtp", agreed.out != nil)
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
	h := &hearing{cancel, make(chan struct{})}
	go func() {
		defer close(h.done)
		err := receiver.Run(ctx, c.stream)
		stats := receiver.Stats()
		c.log.Info("sound ended", "codec", agreed.codec.name, "packets", stats.Packets, "lost", stats.Lost, "late", stats.Late,
			"concealed", stats.Concealed, "jitter", stats.Jitter, "err", err)
	}()
	return h, nil
}

// press takes a digit; nobody presses faster than they are taken.
func (c *call) press(digit byte) {
	select {
	case c.digits <- digit:
	default:
	}
}

// digitGap is how long nothing is pressed until what was pressed is one number.
const digitGap = 2 * time.Second

// maxPressed bounds a number.
const maxPressed = 64

// collector makes one text of digits.
type collector struct {
	text string
	at   time.Time // of the newest
}

// add takes a digit. # ends a number.
func (c *collector) add(digit byte, now time.Time) (text string, over bool) {
	c.text += string(digit)
	c.at = now
	if digit == '#' || len(c.text) >= maxPressed {
		text, c.text = c.text, ""
		return text, true
	}
	return "", false
}

// due returns the number that is over because nothing more comes.
func (c *collector) due(now time.Time) (text string, over bool) {
	if c.text == "" || now.Sub(c.at) < digitGap {
		return "", false
	}
	text, c.text = c.text, ""
	return text, true
}

// typed tells the model what was pressed.
func (c *call) typed(s *bridge.Session, digits string) {
	c.log.Info("keys pressed", "count", len(digits))
	if err := s.Do(phone.Pressed(digits)); err != nil {
		c.log.Warn("keys lost", "err", err)
	}
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

// reasonHeader is why we end a call, for the other side's log (RFC 3326).
func reasonHeader(err error) string {
	cause := 16 // Q.850: normal call clearing
	text := bridge.Reason(err)
	switch {
	case errors.Is(err, errSilence), errors.Is(err, errRefresh):
		cause, text = 102, err.Error() // recovery on timer expiry
	case text != "":
		cause = 41 // temporary failure
		var limit bridge.Limit
		if errors.As(err, &limit) {
			cause = 31 // normal, unspecified
		}
	}
	return fmt.Sprintf("Q.850;cause=%d;text=%q", cause, cmp.Or(tools.Cut(text, 100), "Normal call clearing"))
}
