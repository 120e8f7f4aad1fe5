package sip

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"voxgate/agents"
	"voxgate/bridge"
	"voxgate/internal/crash"
	"voxgate/media"
	"voxgate/signaling/phone"
	sipmedia "voxgate/signaling/phone/sip/media"
	"voxgate/signaling/phone/sip/ua"
)

// call is one phone call, incoming or outgoing, of a trunk. It implements bridge.Caller.
type call struct {
	*ua.Call // the SIP signalling of the call

	server    *Server
	trunk     *Trunk
	agent     *agents.Agent
	party     phone.Party
	open      bridge.SessionRequest // session request, with the caller's identity and limits
	outbound  *outboundCall         // nil for an incoming call
	startedAt time.Time
	line      *currentCall
	audio     *sipmedia.Audio
	screen    *callScreen // does nothing without answering-machine detection
	keypad    *phone.Keypad
	replaces  *call // the call whose conversation this one continues; may be nil
	stages
	transferState

	mu      sync.Mutex
	session *bridge.Session // nil until the conversation begins
}

// stages holds a channel for each step of a call. Each channel is closed when the call reaches its step.
type stages struct {
	sessionStarted chan struct{} // the conversation has begun
	modelSpoke     chan struct{} // the model has begun to speak
	bridged        chan struct{} // the caller was put through to another person
}

// transferState is the state of transfers of a call.
type transferState struct {
	isTransferring atomic.Bool      // a transfer is under way
	consultation   *consultation    // set if this call asks a colleague to take over a caller; else nil
	supervised     *call            // set if this call is to a supervisor: the call that they listen to, and may take over
	joining        chan *call       // receives the call to the colleague, once the colleague has accepted
	partner        *call            // the call to the colleague who has accepted; nil before that
	monitored      *monitoredBridge // set if the agent keeps listening to the bridge; else nil
}

// monitoredBridge is a bridge of two people to which the agent listens.
type monitoredBridge struct {
	both   sipmedia.Mixer
	result chan error // receives the reason for the end of the bridge; buffers one
}

// newCall returns a call with its audio. The audio has no UDP port yet.
func (s *Server) newCall(signals *ua.Call, agent *agents.Agent, party phone.Party) *call {
	t := s.config.findTrunk(signals.Trunk())
	newStage := func() chan struct{} { return make(chan struct{}) }
	c := &call{
		Call: signals, server: s, trunk: t, agent: agent, party: party, startedAt: time.Now(), line: &currentCall{}, screen: &callScreen{},
		keypad: phone.NewKeypad(), stages: stages{newStage(), newStage(), newStage()}, transferState: transferState{joining: make(chan *call)},
	}
	c.line.Store(c)
	c.party.Attributes.Add("trunk", t.Name)
	c.open = bridge.SessionRequest{
		Origin: bridge.Origin{
			Protocol: protocolName, Identity: string(party.Number), Key: protocolName + " " + t.Name, Attributes: c.party.Attributes,
		},
		Grant:   &bridge.Grant{Tools: []string{"*"}, MaxDuration: t.maxDuration()},
		Account: s.account(protocolName+" "+t.Name, t.Calls),
	}
	c.audio = sipmedia.NewAudio(sipmedia.Options{
		Settings: t.Settings, Ports: s.ports, Resolver: s.resolver, Local: signals.MediaAddr(), OnKey: c.keypad.PushKey,
		OnQuality: s.onQuality, Logger: c.Log,
	})
	c.Media, c.OnDigit = c.audio, c.handleInfoDigit
	return c
}

// handleInfoDigit passes the DTMF digit of an INFO request to the keypad. ok is false if the request has no digit.
func (c *call) handleInfoDigit(kind, body string) (ok bool) {
	digit, ok := sipmedia.ParseInfoDigit(kind, body)
	if ok {
		c.keypad.PushKey(digit)
	}
	return ok
}

// logBegin logs both parties of a call, and the local port of its media.
func (c *call) logBegin(from, to string) {
	c.Log.Info("call", "from", phone.SanitizeField(from), "to", phone.SanitizeField(to), "sound", c.audio.Port())
}

// sessionID returns the ID of the call's session, or "" before it begins.
func (c *call) sessionID() string {
	if s := c.conversation(); s != nil {
		return s.ID()
	}
	return ""
}

// callTable holds the calls that have begun.
type callTable struct {
	mu   sync.Mutex
	list map[*ua.Call]*call
}

func (t *callTable) add(c *call) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.list[c.Call] = c
}

func (t *callTable) remove(c *call) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.list, c.Call)
}

// find returns the call that has this signalling, or nil.
func (t *callTable) find(signals *ua.Call) *call {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.list[signals]
}

// all returns all calls.
func (t *callTable) all() []*call {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Collect(maps.Values(t.list))
}

// conversationAudio connects the audio of a call to its conversation.
type conversationAudio struct {
	call *call
	*bridge.Session
}

// NewMicrophone implements [sipmedia.Conversation]. The sink removes the tones of secret keys, and runs
// answering-machine detection.
func (a conversationAudio) NewMicrophone(rate int) (media.Sink, error) {
	mic, err := a.Session.NewMicrophone(rate)
	if err != nil {
		return nil, err
	}
	return a.call.screen.gateSink(a.call.keypad.FilterSecret(mic)), nil
}

// AttachOutput implements [sipmedia.Conversation].
func (a conversationAudio) AttachOutput(out media.Output) { a.call.screen.attachOutput(a.Session, out) }

// Pause implements [sipmedia.Conversation].
func (a conversationAudio) Pause(isPaused bool) error { return a.Do(bridge.Pause{On: isPaused}) }

// The index is 0 if both packages have the same VoiceRate. For any other difference, this line does not compile.
var _ = [1]int{}[bridge.VoiceRate-sipmedia.VoiceRate]

// startKeypad passes pressed keys to the model until stop is called.
func (c *call) startKeypad(ctx context.Context) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	var typing sync.WaitGroup
	typing.Go(func() {
		crash.Run(c.Log, "keypad", c.End, func() { c.keypad.Run(ctx, c.Log, c.agent.Keys, c.sendKeys) })
	})
	return func() {
		cancel()
		typing.Wait()
	}
}

// sendKeys passes pressed keys to the model. It drops keys that are pressed while the caller waits for a transfer, or
// before AMD has decided.
func (c *call) sendKeys(command bridge.Command) error {
	if c.audio.HasHoldMusic() || c.screen.isActive() && !c.screen.open.Load() {
		return nil
	}
	return c.conversation().Do(command)
}

// attachSession stores the session of a call. isTakenOver is true if the session belonged to the call that c replaces.
func (c *call) attachSession(s *bridge.Session) (isTakenOver bool) {
	isTakenOver = c.replaces != nil && s == c.replaces.conversation()
	if isTakenOver {
		c.line, c.agent = c.replaces.line, c.replaces.agent
		c.keypad.InheritSecret(c.replaces.keypad)
	}
	c.line.Store(c)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.session = s
	close(c.sessionStarted)
	return isTakenOver
}

// greetCaller makes the model speak first. If the session was taken over from another call, it tells the model about
// the new caller instead.
func (c *call) greetCaller(s *bridge.Session, isTakenOver bool) error {
	if isTakenOver {
		c.Log.Info("call replaced", "was", c.replaces.ID())
		return s.Do(transferMessage(c.party))
	}
	return s.Greet()
}

// Notify implements bridge.Caller. A phone receives only audio, so most events are ignored.
func (c *call) Notify(e bridge.Event) {
	c.consultation.updateSilenceTimer(e.Body)
	c.menu().RecordSpeech(e.Body)
	switch b := e.Body.(type) {
	case bridge.Speaking:
		c.screen.recordModelSpeech()
		c.mu.Lock()
		defer c.mu.Unlock()
		if !isClosed(c.modelSpoke) {
			close(c.modelSpoke)
		}
	case bridge.TurnComplete:
		if c.screen.saying.Load() {
			c.End(errMessage)
		}
	case bridge.Log:
		c.Log.Debug(b.Message)
	}
}

// handleAnsweredBy acts on the result of answering-machine detection.
func (c *call) handleAnsweredBy(s *bridge.Session, answeredBy string) error {
	c.Log.Info("answered", "by", answeredBy)
	c.server.registry.changeStatus(c.outbound, func(status *CallStatus) { status.AnsweredBy = answeredBy })
	screen := c.screen
	if screen.ask {
		s.AttachOutput(*screen.output.Load())
	}
	switch {
	// The model has reported these results itself, so it goes on without a prompt.
	case answeredBy == ByMenu, answeredBy == ByPerson && screen.askedAt.Load() != 0:
		screen.open.Store(true)
		return nil
	case answeredBy == ByPerson, answeredBy == BySilence:
		screen.open.Store(true)
		return c.greetCaller(s, false)
	case answeredBy == ByMachine && screen.say != "":
		return nil // [call.leaveMessage] is called when the message can be left
	}
	return errMachine
}

// leaveMessage makes the model say the message for an answering machine. It returns an error if the network has
// announced that the call failed, because then no message can be left.
func (c *call) leaveMessage(s *bridge.Session) error {
	switch screen := c.screen; {
	case screen.failed.Load():
		return errMachine
	case screen.leaving.Swap(true):
		return nil
	}
	return s.Do(bridge.Prompt{
		Instruction: "An answering machine records you. Say this message, word for word, and nothing else: " + c.screen.say,
	})
}

// currentCall holds the call that a conversation belongs to now. Another call may take over the conversation.
type currentCall struct{ atomic.Pointer[call] }

// conversation returns the call's session, or nil before it begins.
func (c *call) conversation() *bridge.Session {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.session
}

// transferMessage returns the message that tells the model about its new caller after a transfer.
func transferMessage(newCaller phone.Party) bridge.Message {
	return bridge.Message{Text: "The call was handed over: somebody else is on the line now. " + newCaller.PromptData(), TurnComplete: true}
}

// isClosed reports whether a channel is closed.
func isClosed(stage <-chan struct{}) bool {
	select {
	case <-stage:
		return true
	default:
		return false
	}
}

// isBridged reports whether the agent has put its caller through.
func (c *call) isBridged() bool { return isClosed(c.bridged) }

// menu returns the state of the automatic phone menu that an outgoing call may reach, or nil for an incoming call.
func (c *call) menu() *phone.Menu {
	if c.outbound == nil {
		return nil
	}
	return &c.outbound.menu
}

// watchBridge monitors a call that is connected to another person until ctx is done, and returns why it stopped. It
// passes pressed keys to onKey.
func (c *call) watchBridge(ctx context.Context, onKey func(key byte)) error {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-c.Ending():
			return c.EndReason()
		case key := <-c.keypad.Keys():
			onKey(key)
		case now := <-tick.C:
			if err := cmp.Or(c.audio.ReportAndCheckSilence(now), c.KeepAlive(now)); err != nil {
				return err
			}
		}
	}
}
