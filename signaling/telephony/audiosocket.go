package telephony

import (
	"bufio"
	"context"
	"crypto/rand"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime/debug"
	"sync"
	"time"

	"voxgate/signaling"
	"voxgate/signaling/access"
	"voxgate/signaling/phone"
)

// The kinds of AudioSocket messages (https://docs.asterisk.org/Configuration/Channel-Drivers/AudioSocket/). A message is one byte with its
// kind, two bytes with the length of the payload, big-endian, and the payload.
const (
	audioHangUp = 0x00
	audioUUID   = 0x01
	audioDigit  = 0x03
	audioFirst  = 0x10 // linear PCM at the first of audioRates; the next kinds have the next rates
	audioError  = 0xff

	audioHeader = 3
)

// audioRates are the sample rates of the kinds from audioFirst on, in Hz.
var audioRates = [...]int{8000, 12000, 16000, 24000, 32000, 44100, 48000}

const (
	// audioLead is how much voice is sent ahead of real time. It is short, since sent voice cannot be cleared.
	audioLead = 60 * time.Millisecond
	// audioFirstTime bounds the time that a connection takes to identify its call. audioSilence detects a connection that was lost without
	// notice: Asterisk sends audio every 20 ms, even silence.
	audioFirstTime = 5 * time.Second
	audioSilence   = 10 * time.Second
	// audioWrite bounds one write, and audioLinger how long we wait for the other side to close the connection after us.
	audioWrite  = 5 * time.Second
	audioLinger = time.Second
)

// announce handles the backend's announcement of a call. It responds with the UUID that Asterisk must send first.
func (d *Door) announce(w http.ResponseWriter, r *http.Request) {
	if _, err := access.From(r.Context()).RequireKey(access.MayTalk); err != nil {
		access.WriteError(w, err)
		return
	}
	var body struct{ From, To, Name string }
	dec := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxBody))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&body); err != nil {
		http.Error(w, "The body must be an object of from, to and name: "+err.Error(), http.StatusBadRequest)
		return
	}
	t := ticket{party: (&dialect{}).newParty(body.From, body.To, body.Name)}
	t.agent = phone.FindAgent(d.Agents, doorName, t.party.Called)
	if t.agent == nil {
		d.refused(r.RemoteAddr, "agent", fmt.Errorf("no agent answers calls to %q", phone.ClipField(body.To)))
		http.Error(w, "No agent answers calls to this number.", http.StatusNotFound)
		return
	}
	t.open.Origin.Agent = t.agent.Name
	err := d.authorize(&t.open, r, "")
	if err == nil {
		err = d.Agents.Select(&t.open, nil)
	}
	if err != nil {
		access.WriteError(w, err)
		return
	}
	id := make([]byte, 16)
	rand.Read(id)         // never fails (crypto/rand)
	id[6] = id[6]&15 | 64 // version 4, variant 2 (RFC 9562, section 5.4): Asterisk accepts no other
	id[8] = id[8]&63 | 128
	t.call = uuid(id)
	w.Header().Set("Content-Type", "application/json")
	json.NewEncoder(w).Encode(map[string]any{"uuid": d.tickets.put(t.call, t), "expiresIn": int(ticketLife / time.Second)})
}

func uuid(id []byte) string {
	h := hex.EncodeToString(id)
	return h[:8] + "-" + h[8:12] + "-" + h[12:16] + "-" + h[16:20] + "-" + h[20:]
}

// listen opens the AudioSocket listener. Its connections are served in the background until Close.
func (d *Door) listen(at string) error {
	listener, err := net.Listen("tcp", at)
	if err != nil {
		return err
	}
	d.listener = listener
	accepts := &phone.Acceptor{
		Listener: listener, Slots: make(chan struct{}, phone.MaxUnverifiedConns),
		OnRefused: func(from net.Addr) {
			d.refused(from.String(), "waiting", errors.New("too many connections have not said whose they are"))
		},
		OnError: func(why error) {
			d.logged.Do(func() { d.Logger.Error("accepting a connection failed", "at", listener.Addr(), "err", why) })
		},
	}
	d.running.Go(func() {
		for {
			conn, known, err := accepts.Next()
			if err != nil {
				return
			}
			d.running.Go(func() { d.audioSocket(conn, known) })
		}
	})
	return nil
}

// audioSocket serves a connection until it ends. It calls known, which frees the slot, once the first message was read or has failed.
func (d *Door) audioSocket(conn net.Conn, known func()) {
	defer conn.Close()
	defer func() { // as http.Server does for the WebSockets
		if p := recover(); p != nil {
			d.Logger.Error("a call over AudioSocket has crashed", "panic", p, "stack", string(debug.Stack()))
		}
	}()
	d.mu.Lock()
	open := d.sockets != nil
	if open {
		d.sockets[conn] = struct{}{}
	}
	d.mu.Unlock()
	if !open {
		known()
		return
	}
	defer func() {
		d.mu.Lock()
		delete(d.sockets, conn) // sockets may be nil by now
		d.mu.Unlock()
	}()
	line := &audioLine{conn: conn, in: bufio.NewReader(conn), patience: audioFirstTime}
	var first []byte
	message, _, err := line.Next()
	if err == nil {
		first, err = signaling.ReadLimited(message, audioHeader+16)
	}
	known()
	from := conn.RemoteAddr().String()
	if err != nil || first[0] != audioUUID || len(first) != audioHeader+16 {
		d.refused(from, "start", errors.New("the first message is no UUID"))
		return
	}
	t, ok := d.tickets.take(uuid(first[audioHeader:]), nil)
	if !ok {
		d.refused(from, "token", errors.New("the UUID was not handed out, was used or is too old"))
		return
	}
	leave, err := d.enter(nil)
	if err != nil {
		d.refused(from, "calls", err)
		return
	}
	defer leave()
	line.patience = audioSilence
	c := d.newCall(t, &audioCodec{}, audioLead)
	signaling.ServeConn(context.Background(), line, signaling.SocketOptions{Limit: maxMessage}, c.run) // ends with the host, or with Close
}

// audioLine is an AudioSocket connection. It implements [signaling.Conn]. One goroutine may read and one may write at a time.
type audioLine struct {
	conn     net.Conn
	in       *bufio.Reader
	message  io.LimitedReader // the unread rest of the newest message
	patience time.Duration    // limit on the other side's silence

	mu      sync.Mutex
	leaving bool // the read deadline is final
}

// Next returns the next message with its header. It discards what was not read of the previous one.
func (l *audioLine) Next() (message io.Reader, text bool, err error) {
	l.wait(l.patience, false)
	if l.message.N > 0 {
		if _, err := l.in.Discard(int(l.message.N)); err != nil {
			return nil, false, err
		}
	}
	header, err := l.in.Peek(audioHeader)
	if err != nil {
		return nil, false, err
	}
	l.message = io.LimitedReader{R: l.in, N: audioHeader + int64(binary.BigEndian.Uint16(header[1:]))}
	return &l.message, false, nil
}

// wait sets the read deadline to d from now. If last is true the deadline is final: later calls do not extend it.
func (l *audioLine) wait(d time.Duration, last bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.leaving {
		l.leaving = last
		l.conn.SetReadDeadline(time.Now().Add(d))
	}
}

func (l *audioLine) Write(message []byte, _ bool) error {
	l.conn.SetWriteDeadline(time.Now().Add(audioWrite))
	_, err := l.conn.Write(message)
	return err
}

// ChargeTime does nothing: Asterisk's messages have at most 64 KiB and cost little to process. MarkOpened does nothing, either: the
// connection has already identified its call.
func (l *audioLine) ChargeTime(time.Duration) {}
func (l *audioLine) MarkOpened()              {}

// SendGoodbye closes our direction of the connection. The protocol cannot carry a reason.
func (l *audioLine) SendGoodbye(int, string) {
	l.wait(audioLinger, true)
	if c, ok := l.conn.(*net.TCPConn); ok {
		c.CloseWrite()
	}
}

func (l *audioLine) Close() { l.conn.Close() }

// audioCodec implements codec for AudioSocket. The call begins with the first message with sound, whose kind gives the rate.
type audioCodec struct {
	kind byte // kind of the messages with sound; 0 before the first
}

func (c *audioCodec) read(data []byte, _ bool) (m message, err error) {
	kind, payload := data[0], data[audioHeader:]
	switch {
	case kind == audioHangUp:
		m.kind = stopped
	case kind == audioDigit:
		m.kind = digit
		m.digit, err = readDigit(string(payload))
	case kind == audioError:
		return m, fmt.Errorf("the other side reports an error: %x", payload[:min(len(payload), 4)])
	case kind < audioFirst || int(kind-audioFirst) >= len(audioRates):
		return m, fmt.Errorf("messages of the kind %#02x are not known", kind)
	case c.kind == 0:
		if len(payload) == 0 {
			return m, errors.New("sound of no length")
		}
		c.kind = kind
		rate := audioRates[kind-audioFirst]
		if kind == audioFirst+1 && len(payload) == 640 { // an early Asterisk used this kind for 16 kHz: 640 bytes are 20 ms
			rate = 16000
		}
		m = message{kind: started, start: start{format: format{rate: rate}}}
	case kind != c.kind:
		return m, fmt.Errorf("sound of the kind %#02x in a call of %#02x", kind, c.kind)
	default:
		m = message{kind: sound, sound: payload}
	}
	return m, err
}

func (c *audioCodec) voice(sound []byte) signaling.Outgoing {
	b := append(make([]byte, 0, audioHeader+len(sound)), c.kind)
	b = binary.BigEndian.AppendUint16(b, uint16(len(sound)))
	return signaling.Outgoing{Data: append(b, sound...)}
}

func (c *audioCodec) say(what command, _ string) (signaling.Outgoing, bool) {
	return signaling.Outgoing{Data: []byte{audioHangUp, 0, 0}}, what == hangUp
}
