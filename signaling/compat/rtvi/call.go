package rtvi

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"

	"voxgate/bridge"
	"voxgate/signaling"
	"voxgate/signaling/phone"
	"voxgate/signaling/rtc"
	"voxgate/tools"
)

const (
	// channelLabel is the label of the data channel, which the client creates.
	channelLabel = "chat"
	// reconnectTimeout ends a conversation without messages or without a peer. It is long enough for a client that has
	// lost its peer, which tries to reconnect after 5, 7 and 9 s (SmallWebRTCTransport). Connected clients send a ping
	// every second.
	reconnectTimeout = 20 * time.Second
)

// call is the conversation of a client. The client may replace its peer during the conversation. call implements
// [bridge.Caller].
type call struct {
	signaling.HTTPCall
	server       *Server
	log          *slog.Logger
	offerLimiter *rate.Limiter
	lastMessage  atomic.Int64 // time of the newest message in ns since 1970; 0 before the first

	// The following fields are used only by the goroutine of Serve.
	session      *bridge.Session
	peer         *signaling.Peer
	channel      *signaling.DataChannel
	closingPeers sync.WaitGroup // closing of the peers that were replaced

	mu         sync.Mutex
	events     eventWriter
	outChannel *signaling.DataChannel // data channel of the newest peer
}

// Serve implements [bridge.Caller].
func (c *call) Serve(ctx context.Context, s *bridge.Session) error {
	c.log.Info("client connected", "call", s.ID())
	c.session = s
	if err := c.connectPeer(); err != nil {
		return err
	}
	c.AttachVoiceAndSendAnswer(c.peer)
	err := c.handleRequests(ctx)
	c.sendEvents(func(w *eventWriter) {
		if bridge.DescribeEnd(err) != "" {
			w.reportError(err, true)
		}
		w.queueTransportMessage("peerLeft")
	})
	c.channel.Close()
	c.peer.Close()
	c.closingPeers.Wait()
	return err
}

// connectPeer creates a peer for the newest offer.
func (c *call) connectPeer() error {
	o := rtc.PeerOptions{Decoder: c.server.OpusDecoder, Logger: c.log}
	channel := signaling.NewDataChannel(&o, channelLabel, func(m signaling.Message) { c.handleMessage(m.Data) })
	peer, err := c.AnswerOffer(c.session, c.server.RTC, o)
	if err != nil {
		return newOfferError(err)
	}
	c.peer, c.channel = peer, channel
	c.mu.Lock()
	defer c.mu.Unlock()
	c.outChannel = channel
	return nil
}

// handleRequests handles requests until the client has left or ctx is done.
func (c *call) handleRequests(ctx context.Context) error {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	lost := c.peer.Lost
	for {
		select {
		case do := <-c.Requests():
			previous := c.peer
			if do(); c.peer != previous {
				lost = c.peer.Lost
			}
		case <-lost:
			if c.peer.HasLeft() {
				return nil
			}
			lost = nil
			c.session.HoldVoice(true)
			c.lastMessage.CompareAndSwap(0, time.Now().UnixNano())
		case now := <-tick.C:
			if last := c.lastMessage.Load(); last != 0 && now.Sub(time.Unix(0, last)) > reconnectTimeout {
				return nil
			}
		case err := <-c.channel.Failures():
			if errors.Is(err, signaling.ErrSlow) { // for any other error, c.peer.Lost reports that the peer is lost
				return err
			}
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// answerOffer answers a further offer of the client. The same peer answers it if possible. Otherwise, or if replacePeer
// is set, a new peer answers it and replaces the previous peer.
func (c *call) answerOffer(offer rtc.Offer, replacePeer bool) (sdp string, err error) {
	if !c.offerLimiter.Allow() {
		return "", &bridge.Error{
			Code: bridge.CodeBusy, Message: "Too many offers: the limit is 10 at once and one per second.", Retry: time.Second,
		}
	}
	if !replacePeer && c.peer.IsSameClient(offer) {
		if sdp, err = c.peer.Peer.Answer(offer); err != nil {
			return "", newOfferError(err)
		}
		c.session.AttachOutput(c.peer.Output())
		return sdp, nil
	}
	previous, channel := c.peer, c.channel
	c.session.HoldVoice(true) // until the new peer is connected
	c.Offer = offer
	if err := c.connectPeer(); err != nil {
		c.session.HoldVoice(false)
		return "", err
	}
	c.session.AttachOutput(c.peer.Output())
	c.lastMessage.Store(0) // the new peer has sent nothing yet
	c.closingPeers.Go(func() {
		channel.Close()
		previous.Close()
	})
	return c.peer.SDP, nil
}

// addCandidates passes candidates to the peer.
func (c *call) addCandidates(candidates []candidate) error {
	for _, one := range candidates {
		if err := c.peer.AddCandidate(one.Candidate); err != nil && !errors.Is(err, rtc.ErrTooManyCandidates) {
			return badMessage("A candidate %v.", err)
		}
	}
	return nil
}

// sendEvents runs a function that queues messages for the client, and sends them.
func (c *call) sendEvents(queue func(w *eventWriter)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	queue(&c.events)
	for _, m := range c.events.drainQueue() {
		c.outChannel.PutText(m)
	}
}

// Notify implements [bridge.Caller].
func (c *call) Notify(e bridge.Event) {
	if b, ok := e.Body.(bridge.Log); ok {
		if b.Level == "warn" {
			c.log.Info("warning for the client's developer", "message", phone.SanitizeField(b.Message))
		}
		return
	}
	c.sendEvents(func(w *eventWriter) { w.handleEvent(e.Time, e.Body) })
}

// message is a message of a client. It belongs to RTVI or to the transport.
type message struct {
	Label, Type, ID string
	Data            json.RawMessage
	Message         struct { // message of the transport
		Type          string
		ReceiverIndex int `json:"receiver_index"`
		Enabled       bool
	}
}

// handleMessage handles a message from the data channel.
func (c *call) handleMessage(raw []byte) {
	c.lastMessage.Store(time.Now().UnixNano())
	if strings.HasPrefix(string(raw), "ping") { // a ping only keeps the connection alive
		return
	}
	var m message
	err := json.Unmarshal(raw, &m)
	switch {
	case err != nil:
		err = badMessage("The message cannot be read: %v.", tools.ExplainJSON(err, ""))
	case m.Type == "signalling":
		c.handleTrackStatus(m)
	case m.Label != label:
		err = badMessage("The message does not have the label %q.", label)
	default:
		err = c.handleRTVIMessage(m)
	}
	if err != nil {
		text := bridge.AsError(err).Message
		c.sendEvents(func(w *eventWriter) { w.queueMessage("error-response", m.ID, object{"error": text}) })
	}
}

// handleTrackStatus is called when the client switches a microphone or a camera on or off. Switching off the microphone
// ends the person's turn.
func (c *call) handleTrackStatus(m message) {
	if m.Message.Type != "trackStatus" || m.Message.Enabled {
		return
	}
	if m.Message.ReceiverIndex == 0 {
		_ = c.session.Do(bridge.AudioStreamEnd) // rejected if the client marks its speech itself
	} else {
		c.session.ClearFrame()
	}
}

// handleRTVIMessage handles an RTVI message.
func (c *call) handleRTVIMessage(m message) error {
	var d struct {
		Content any // a string in send-text
		Role    string
		Options struct {
			RunImmediately *bool `json:"run_immediately"`
		}
		Run          bool            `json:"run_immediately"`
		ToolCallID   string          `json:"tool_call_id"`
		FunctionName string          `json:"function_name"`
		Result       json.RawMessage // result of a function
		Button       string
		Buttons      []string
		T            string
		D            json.RawMessage
	}
	if len(m.Data) > 0 {
		if err := json.Unmarshal(m.Data, &d); err != nil {
			return badMessage("The data of %s cannot be read: %v.", phone.SanitizeField(m.Type), tools.ExplainJSON(err, "data"))
		}
	}
	switch m.Type {
	case "client-ready":
		c.sendEvents(func(w *eventWriter) { w.markReady(true, false) })
		return c.session.Greet()
	case "disconnect-bot":
		return c.session.Do(bridge.Goodbye{})
	case "send-text":
		text, ok := d.Content.(string)
		if !ok {
			return badMessage("The content of send-text must be a string.")
		}
		run := d.Options.RunImmediately == nil || *d.Options.RunImmediately
		return c.session.Do(bridge.Message{Text: text, TurnComplete: run})
	case "append-to-context":
		return c.appendToContext(m.ID, d.Role, d.Content, d.Run)
	case "dtmf":
		return c.session.Do(phone.KeysMessage(d.Button + strings.Join(d.Buttons, "")))
	case "llm-function-call-result":
		err := c.session.Do(bridge.ToolResponse{ID: d.ToolCallID, Name: d.FunctionName, Response: d.Result})
		c.sendEvents(func(w *eventWriter) {
			if name, open := w.pendingCalls[d.ToolCallID]; open && err == nil {
				w.reportCallEnd(d.ToolCallID, name, d.Result, false)
				delete(w.pendingCalls, d.ToolCallID)
			}
		})
		return err
	case "client-message":
		return c.handleClientRequest(m.ID, d.T, d.D)
	case "ui-snapshot": // the gateway does not use the content of the page
		return nil
	}
	return badMessage("Messages of the type %q are not served.", phone.SanitizeField(m.Type))
}

// appendToContext adds text of the person, or of the model, to the conversation.
func (c *call) appendToContext(id, role string, content any, runImmediately bool) (err error) {
	text, ok := content.(string)
	if !ok {
		raw, _ := json.Marshal(content) // cannot fail: it was parsed from JSON
		text = string(raw)
	}
	if role == "assistant" {
		parts, _ := json.Marshal([]object{{"text": text}})
		err = c.session.Do(bridge.PrefillTurns{Turns: []bridge.PrefillTurn{{Model: true, Parts: parts}}})
	} else {
		err = c.session.Do(bridge.Message{Text: text, TurnComplete: runImmediately})
	}
	if err == nil {
		c.sendEvents(func(w *eventWriter) { w.queueMessage("append-to-context-result", id, object{"result": "ok"}) })
	}
	return err
}

// handleClientRequest handles a request to the server itself, and answers it.
func (c *call) handleClientRequest(id, kind string, data json.RawMessage) (err error) {
	switch kind {
	case "interrupt":
		err = c.session.Do(bridge.Interrupt{})
	case "config":
		err = c.session.Do(bridge.UpdateConfig{Config: data})
	default:
		return badMessage(`Client messages of the type %q are not served: there are "interrupt" and "config".`, phone.SanitizeField(kind))
	}
	if err == nil {
		c.sendEvents(func(w *eventWriter) {
			w.queueMessage("server-response", id, object{"t": kind, "d": object{"success": true}})
		})
	}
	return err
}
