package emulator

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"voxgate/bridge/gemini/emulator/live"
)

const (
	// firstHandle is the time from setupComplete to the first resumption handle, as measured on gemini-3.8-live.
	firstHandle = 100 * time.Millisecond

	// handleTTL is the lifetime of a handle: https://ai.google.dev/gemini-api/docs/live-session.
	handleTTL = 2 * time.Hour

	// closeGrace limits how long resuming a session waits for the end of its previous connection. The client may
	// already have closed that connection, but the emulator has not received the close yet.
	closeGrace = 200 * time.Millisecond
)

// conversation is a session as Google uses the word: it exists as long as it has a handle. In this package the type
// session is one connection of a conversation.
type conversation struct {
	// Guarded by the memory's mu.
	conn     *session      // current connection, or nil
	released chan struct{} // closed when conn leaves the conversation
	lastEnd  time.Time     // end of the last connection

	handles []string // handles of the conversation, oldest first
}

// savedSession is the state that a handle restores. It is copied from the session when the handle is issued.
type savedSession struct {
	*conversation
	model    string
	history  []Turn
	calls    map[string]*call // pending calls
	detector *speechDetector  // unfinished speech, if the session has transparent resumption
}

// memory holds the sessions for which handles were issued.
type memory struct {
	ttl time.Duration

	mu      sync.Mutex
	handles map[string]savedSession
	order   []string
}

const (
	// maxHandles limits the number of stored handles, so that the memory of an emulator does not grow without end.
	maxHandles = 4096
	// maxOfConversation limits the handles of one conversation, because each handle stores a copy of the pending calls.
	// The histories share memory.
	maxOfConversation = 128
)

// newUUID returns a random UUID.
func newUUID() string {
	b := make([]byte, 16)
	_, _ = rand.Read(b) // never fails
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}

// saveSession stores the state of a session, and returns a handle for it: a UUID, or base64 if isLong is set, as for
// models of version 2.5.
func (m *memory) saveSession(s savedSession, isLong bool) (handle string) {
	handle = newUUID()
	if isLong {
		handle = base64.StdEncoding.EncodeToString([]byte(strings.ToLower(rand.Text() + rand.Text())[:42]))
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.handles == nil {
		m.handles = make(map[string]savedSession)
	}
	if len(m.order) >= maxHandles {
		delete(m.handles, m.order[0])
		m.order = m.order[1:]
	}
	m.handles[handle] = s
	m.order = append(m.order, handle)
	if c := s.conversation; c != nil {
		if c.handles = append(c.handles, handle); len(c.handles) > maxOfConversation {
			delete(m.handles, c.handles[0]) // m.order still contains the handle, but that takes little memory
			c.handles = c.handles[1:]
		}
	}
	return handle
}

// findSession returns the session state that a handle restores. It returns false if the handle is unknown or has expired.
func (m *memory) findSession(handle string) (s savedSession, ok bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	s, ok = m.handles[handle]
	if !ok || s.conn == nil && time.Since(s.lastEnd) > m.ttl {
		return savedSession{}, false
	}
	return s, true
}

// enterConversation makes s the connection of c. If c already has a connection, nothing changes, and busy is a channel
// that is closed when that connection has ended.
func (m *memory) enterConversation(c *conversation, s *session) (busy <-chan struct{}) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if c.conn != nil {
		return c.released
	}
	c.conn, c.released = s, make(chan struct{})
	return nil
}

// leaveConversation ends the connection of c.
func (m *memory) leaveConversation(c *conversation) {
	m.mu.Lock()
	defer m.mu.Unlock()
	c.conn, c.lastEnd = nil, time.Now()
	close(c.released)
}

// resumeSession restores the session of a handle on this connection. It blocks until the previous connection of the
// conversation has ended, and fails after closeGrace.
func (s *session) resumeSession(ctx context.Context, handle string) error {
	saved, ok := s.e.memory.findSession(handle)
	switch {
	case !ok:
		return live.NewClosing(live.ClosePolicy, "BidiGenerateContent session not found")
	case saved.model != s.setup.Model:
		return live.NewClosing(live.CloseInvalid, "") // a resumed session cannot change its model
	}
	timeout := time.After(closeGrace)
	for {
		busy := s.e.memory.enterConversation(saved.conversation, s)
		if busy == nil {
			break
		}
		select {
		case <-busy:
		case <-timeout:
			return live.NewClosing(live.CloseInternal, "")
		case <-ctx.Done():
			return newGoingAwayError()
		}
	}
	s.conversation, s.history, s.inherited = saved.conversation, saved.history, len(saved.history)
	if saved.detector != nil {
		vad := *saved.detector // a copy, because the handle may be used again
		s.vad = &vad
	}
	s.lastCall = time.Now() // the client may not know yet that the model waits for the result of a call: see hearingLag
	maps.Copy(s.calls, saved.calls)
	return nil
}

// releaseConversation makes the conversation available to another connection. It must be called before the client can
// notice the end of this connection, because the client may then dial immediately.
func (s *session) releaseConversation() {
	if s.hasDeparted {
		return
	}
	s.hasDeparted = true
	if s.conversation == nil {
		return
	}
	switch {
	case s.talking:
		s.unfinished, s.unfinishedRate = s.manual, s.rate
	case s.vad.speaking:
		s.unfinished, s.unfinishedRate = s.vad.buffer, s.vad.rate
	}
	s.e.memory.leaveConversation(s.conversation)
}

// resumptionHandlePolicy returns the policy that determines when this session gets handles: a value of Scenario.Handles.
func (s *session) resumptionHandlePolicy() string {
	switch given := s.e.scenario.Handles; {
	case given != "":
		return given
	case s.setup.WithholdsHandles:
		return HandlesWithheld
	}
	return HandlesPrompt
}

// sendHandle sends a handle for the current state of the session.
func (s *session) sendHandle() error {
	state := savedSession{s.conversation, s.setup.Model, s.savedHistory(), maps.Clone(s.calls), nil}
	update := live.Object{"resumable": true}
	if s.setup.Transparent {
		if s.vad.speaking {
			vad := *s.vad
			vad.buffer, vad.rest = vad.buffer[:len(vad.buffer):len(vad.buffer)], slices.Clone(vad.rest)
			state.detector = &vad
		}
		update["lastConsumedClientMessageIndex"] = strconv.FormatInt(s.index, 10)
	}
	update["newHandle"] = s.e.memory.saveSession(state, s.setup.LongHandles)
	return s.conn.send(live.Object{"sessionResumptionUpdate": update})
}

// savedHistory returns the turns that a handle restores. It omits the turns that the client has appended since the last
// completed turn.
func (s *session) savedHistory() []Turn {
	end, begin := len(s.history)-s.appended, 0
	// With ForgetfulHandles, handles of a resumed connection do not restore the turns of earlier connections.
	if s.setup.ForgetfulHandles {
		begin = min(s.inherited, end)
	}
	return s.history[begin:end:end]
}

// sendHandleAfterChange sends a handle after a change of the session, if the client has requested handles and the
// policy allows it.
func (s *session) sendHandleAfterChange() error {
	if !s.setup.Resumption || s.resumptionHandlePolicy() == HandlesWithheld && (s.turn != nil || len(s.calls) > 0) {
		return nil
	}
	return s.sendHandle()
}

// announceNoHandle tells the client that the session cannot be resumed now, if the policy is to withhold handles. The
// message is an empty object, because proto3 JSON omits false and an empty handle.
func (s *session) announceNoHandle() error {
	if !s.setup.Resumption || s.resumptionHandlePolicy() != HandlesWithheld {
		return nil
	}
	return s.conn.send(live.Object{"sessionResumptionUpdate": live.Object{}})
}

// addHistory adds a turn to the history.
func (s *session) addHistory(role, text string) {
	const (
		most    = 1000     // turns, enough for hours; only /history and tests read them
		longest = 16 << 10 // bytes of one turn
	)
	if len(text) > longest {
		text = strings.ToValidUTF8(text[:longest], "")
	}
	if len(s.history) >= most {
		s.history = s.history[1:]
		s.inherited = max(s.inherited-1, 0)
	}
	s.appended = 0
	s.history = append(s.history, Turn{role, text}) // the histories of handles end before this turn, and share the memory
}
