// Package uplink queues the input of the model: audio, marks, typed turns, pictures and the results of tools. It
// detects speech, keeps input that the model has not answered, and sends it again after a connection was lost.
package uplink

import (
	"cmp"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"voxgate/bridge/gemini/wire"
	"voxgate/bridge/turns"
	"voxgate/media"
)

const (
	// maxQueued limits the audio that is queued while there is no connection, for example what a person says during a
	// dial. If more comes, the oldest audio is dropped and counted.
	maxQueued = 10 * time.Second

	// maxUrgent limits the messages, such as typed turns, that are queued while there is no connection.
	maxUrgent = 100

	// maxResponses limits the queued results of tool calls. Results must not be dropped, so the limit is far above the
	// number of calls that a model makes at once.
	maxResponses = 5000

	// maxMarks limits the marks in the queue of audio.
	maxMarks = 100

	// clearSpeech is a level (-30 dBov). If audio above it is dropped because of SetAudioGate, this counts as lost
	// speech.
	clearSpeech = 1000

	// defaultRate is the sample rate, in Hz, of silence that is sent before any audio has come. It is Gemini's own
	// rate.
	defaultRate = 16000

	// ReplaySpeed is the speed of a replay, as a multiple of real time. Gemini measures time by its input, so audio
	// that is sent all at once would not count as speech.
	ReplaySpeed = 2
)

// Uplink holds the input for the model that is queued or unanswered. It outlives connections, so that nothing that is
// said during a reconnect is lost. Its methods are safe for concurrent use.
type Uplink struct {
	Ready         chan struct{} // has a token when Next may return something
	SpeechChanged chan struct{} // has a token when speech may have begun or ended, or was lost

	SentChunks        atomic.Uint64 // chunks sent
	DroppedChunks     atomic.Uint64 // chunks dropped because of maxQueued
	LostSpeechChunks  atomic.Uint64 // dropped chunks that were speech
	GatedSpeechChunks atomic.Uint64 // chunks among GatedChunks that were louder than clearSpeech
	GatedChunks       atomic.Uint64 // chunks dropped because the model would close the session
	ReplayedChunks    atomic.Uint64 // chunks sent again
	MilliTokens       atomic.Uint64 // upper bound of the tokens sent, in thousandths

	mu                sync.Mutex
	urgent            []Item // items to send ahead of the audio
	view              shownPicture
	queue             []Item // audio, and the marks among it; next item at head
	head              int
	queued            time.Duration // length of the audio in queue that was never sent
	marks             int           // number of marks in queue
	paused            bool          // on hold: audio is dropped
	toolResponsesHeld bool          // the results of tools are held back
	gated             bool          // see SetAudioGate: replayed audio waits, and other audio is dropped
	activity          speechActivity
	playback          func() (isSounding bool, level float64)
	turnTaker         *turnTaker     // nil unless the gateway decides about turns
	turnActions       []turns.Action // for the owner: see TakeTurnActions
	replayBuf         replayBuffer

	endSilence    time.Duration // silence that the model needs after a speech to detect its end; 0 means none
	silenceOffset time.Duration // position in the received audio at which endSilence was last queued
	rate          int           // sample rate of the newest audio; 0 means that none was received yet

	replayCount int       // items at the head of queue that are sent again
	paced       bool      // audio goes at ReplaySpeed until the queue is empty
	nextAudioAt time.Time // when the next paced audio may be sent
}

// New returns an empty uplink. playback reports whether the person hears an answer, and its level in dBov. playback
// must not call the uplink.
func New(playback func() (isSounding bool, level float64)) *Uplink {
	return &Uplink{Ready: make(chan struct{}, 1), SpeechChanged: make(chan struct{}, 1), activity: newActivity(), playback: playback}
}

func notify(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// Config selects who marks the start and end of speech.
type Config struct {
	// IsManual means that the client or the gateway marks speech, and not the model. Turns.By selects which of the two.
	IsManual bool
	Turns    turns.Settings
	// PreRoll is the length of the audio that belongs to a speech although it came before the client's start mark.
	PreRoll time.Duration
	// EndSilence is the length of the silence that the model needs to detect the end of a speech; 0 means none.
	EndSilence time.Duration
}

// Configure changes who marks the start and end of speech.
func (u *Uplink) Configure(c Config) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.endSilence = c.EndSilence
	u.configureTurns(c.Turns)
	manual := c.IsManual
	if u.activity.manual != manual { // queued marks belong to the other mode, and would close the session
		if u.activity.endSpeech() { // a speech is in progress: its beginning is lost, so it gets no answer
			u.activity.isVoid = true
			notify(u.SpeechChanged)
		}
		u.replayBuf = replayBuffer{}
		u.queue = slices.DeleteFunc(slices.Delete(u.queue, 0, u.head), func(it Item) bool { return it.isMark() || it.Silence > 0 })
		u.head, u.replayCount, u.marks, u.queued = 0, 0, 0, 0
		for _, it := range u.queue {
			u.queued += it.duration()
		}
	}
	u.activity.manual, u.activity.preRoll = manual, c.PreRoll
}

// DiscardAll empties the queue and the replay buffer and removes the picture, for a new conversation.
func (u *Uplink) DiscardAll() {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.replayBuf, u.view = replayBuffer{}, shownPicture{}
	u.urgent, u.queue, u.head, u.replayCount, u.marks, u.queued = nil, nil, 0, 0, 0, 0
	u.requeueSpeechStart()
}

// requeueSpeechStart queues the start of a speech again if the client has marked the start but not yet the end, because
// the model has not received it. The caller must hold mu.
func (u *Uplink) requeueSpeechStart() {
	if !u.activity.manual || !u.activity.speaking {
		return
	}
	u.replayBuf.hasUnanswered = true
	u.appendItem(newMark(MarkStart, u.activity.speeches))
	u.marks++
	notify(u.SpeechChanged)
}

// QueueAudio queues a copy of pcm.
func (u *Uplink) QueueAudio(pcm []int16, rate int) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.activity.received += media.Duration(len(pcm), rate)
	u.rate = rate
	if u.paused {
		return
	}
	if u.gated && (!u.activity.manual || u.activity.speaking) {
		u.GatedChunks.Add(1)
		u.activity.lastAudioAt = time.Now()
		if media.RMS(pcm) >= clearSpeech && u.GatedSpeechChunks.Add(1) == 1 {
			notify(u.SpeechChanged) // the owner informs the client
		}
		if u.turnTaker != nil {
			u.turnTaker.processAudio(pcm, rate, true, u.handleTurnAction)
		}
		return
	}
	it := Item{Rate: rate, PCM: slices.Clone(pcm)}
	if u.turnTaker != nil {
		u.processTurnAudio(it)
		return
	}
	began, ended := u.activity.detectSpeech(pcm, rate)
	it.speechNumber = u.activity.currentSpeechNumber()
	if began {
		left := leadIn
		for i := len(u.queue) - 1; i >= u.head && left > 0; i-- { // mark the lead-in as part of the speech
			if u.queue[i].speechNumber == 0 {
				u.queue[i].speechNumber = u.activity.speeches
			}
			left -= u.queue[i].duration()
		}
		u.replayBuf.markLeadIn(u.activity.speeches, left)
	}
	if began || ended {
		notify(u.SpeechChanged)
	}
	if u.activity.manual && !u.activity.speaking { // audio outside of marked speech is not sent to the model
		u.activity.keepPreSpeech(it)
		return
	}
	u.queueLiveAudio(it)
}

// queueLiveAudio queues audio that is to be sent to the model. The caller must hold mu.
func (u *Uplink) queueLiveAudio(it Item) {
	u.appendItem(it)
	u.queued += it.duration()
	for u.queued > maxQueued {
		u.dropOldest()
	}
	notify(u.Ready)
}

// appendItem appends an item to the queue. The caller must hold mu.
func (u *Uplink) appendItem(it Item) {
	if u.head > 0 && len(u.queue) == cap(u.queue) {
		u.queue = slices.Delete(u.queue, 0, u.head) // reuse the space of the items already taken
		u.head = 0
	}
	u.queue = append(u.queue, it)
}

// dropOldest drops the oldest audio that was never sent: silence if there is any, otherwise speech. It keeps marks. The
// caller must hold mu.
func (u *Uplink) dropOldest() {
	oldest := -1
	for i := u.head + u.replayCount; i < len(u.queue); i++ {
		if it := u.queue[i]; it.PCM != nil && (oldest < 0 || it.speechNumber == 0) {
			oldest = i
			if it.speechNumber == 0 {
				break
			}
		}
	}
	if oldest < 0 {
		return
	}
	it := u.queue[oldest]
	u.queue = slices.Delete(u.queue, oldest, oldest+1)
	u.queued -= it.duration()
	u.DroppedChunks.Add(1)
	if it.speechNumber > 0 && u.LostSpeechChunks.Add(1) == 1 {
		notify(u.SpeechChanged) // the owner informs the client
	}
}

// QueueMark queues a mark behind the audio queued so far. It returns an error if the mark would make the model close
// the session, or if maxMarks marks are queued already.
func (u *Uplink) QueueMark(m Mark) error {
	u.mu.Lock()
	defer u.mu.Unlock()
	switch {
	case u.turnTaker != nil && m == MarkPause: // the microphone has stopped
		u.turnTaker.processAudioGap(true, u.handleTurnAction)
		return nil
	case u.turnTaker != nil:
		return ErrGatewayActivity
	case u.activity.manual && m == MarkPause:
		return ErrManualActivity
	case !u.activity.manual && m != MarkPause:
		return ErrAutomaticActivity
	case m == MarkKeep || m == MarkDrop:
		u.activity.keepOrDropPreSpeech(m)
		return nil
	case u.marks >= maxMarks:
		return ErrTooManyMarks
	}
	if u.paused { // SetPaused queues the start of a speech that still lasts when the hold ends
		switch m {
		case MarkStart:
			u.activity.beginSpeech()
		case MarkEnd:
			u.activity.endSpeech()
		}
		return nil
	}
	u.queueMark(m)
	return nil
}

// queueMark queues a mark and the audio that belongs to it. The caller must hold mu.
func (u *Uplink) queueMark(m Mark) {
	u.marks++
	if m == MarkStart {
		before := u.activity.beginSpeech()
		u.replayBuf.hasUnanswered = true
		u.appendItem(newMark(m, u.activity.speeches))
		for _, it := range before {
			it.speechNumber = u.activity.speeches
			u.appendItem(it)
			u.queued += it.duration()
		}
	} else {
		u.appendItem(newMark(m, u.activity.speeches))
		u.activity.endSpeech()
		if u.activity.received != u.silenceOffset { // otherwise the silence was sent already
			u.appendSilence()
		}
	}
	notify(u.SpeechChanged)
	notify(u.Ready)
}

// appendSilence queues silence, by which the model detects the end of speech. It is needed because some models ignore
// activityEnd, and a microphone may stop sending. The caller must hold mu.
func (u *Uplink) appendSilence() {
	u.activity.isSettled, u.silenceOffset = true, u.activity.received
	if u.endSilence > 0 {
		u.appendItem(Item{Silence: u.endSilence, Rate: cmp.Or(u.rate, defaultRate)})
	}
}

// RepeatSpeechEnd marks the end of speech and sends the silence after it once more, because the model has not reacted.
func (u *Uplink) RepeatSpeechEnd() error {
	u.mu.Lock()
	u.silenceOffset = -1
	u.mu.Unlock()
	return u.QueueMark(MarkPause)
}

// QueueMessage queues m ahead of the audio. isQueued is false if too many messages are queued already.
func (u *Uplink) QueueMessage(m wire.ClientMessage) (isQueued bool) {
	return u.enqueueUrgent(Item{Message: &m}, maxUrgent)
}

// QueueTurn queues a typed turn ahead of the audio, but after a replay. isQueued is false if too many messages are
// queued already.
func (u *Uplink) QueueTurn(t Turn) (isQueued bool) { return u.enqueueUrgent(Item{Turn: &t}, maxUrgent) }

// QueueMessageFirst queues m ahead of everything.
func (u *Uplink) QueueMessageFirst(m wire.ClientMessage) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.urgent = slices.Insert(u.urgent, 0, Item{Message: &m})
	notify(u.Ready)
}

// QueueToolResponse queues the result of a tool call. isQueued is false if too many results are queued already.
func (u *Uplink) QueueToolResponse(r wire.FunctionResponse) (isQueued bool) {
	answer := &wire.ToolResponse{FunctionResponses: []wire.FunctionResponse{r}}
	return u.enqueueUrgent(Item{Message: &wire.ClientMessage{ToolResponse: answer}}, maxResponses)
}

// NotifyFlushed returns a channel that is closed when everything that is now queued ahead of the audio was sent. It is
// for the end of the conversation, so it also releases held tool results.
func (u *Uplink) NotifyFlushed() <-chan struct{} {
	flushed := make(chan struct{})
	u.mu.Lock()
	defer u.mu.Unlock()
	u.toolResponsesHeld = false
	u.urgent = append(u.urgent, Item{Flushed: flushed})
	notify(u.Ready)
	return flushed
}

// HasRoom reports whether QueueMessage and QueueTurn would accept another message.
func (u *Uplink) HasRoom() bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.hasUrgentRoom(maxUrgent)
}

// hasUrgentRoom reports whether fewer than limit messages are queued ahead of the audio. The caller must hold mu.
func (u *Uplink) hasUrgentRoom(limit int) bool { return len(u.urgent)+u.countTypedInReplay() < limit }

func (u *Uplink) enqueueUrgent(it Item, limit int) (isQueued bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if !u.hasUrgentRoom(limit) {
		return false
	}
	if (it.isPrompt() || it.isIncompleteTurn()) && u.replayCount > 0 { // text must not interrupt the replayed speech
		u.queue = slices.Insert(u.queue, u.head+u.replayCount, it)
		u.replayCount++
	} else {
		u.urgent = append(u.urgent, it)
	}
	notify(u.Ready)
	return true
}

// countTypedInReplay returns the number of typed turns in the replay. The caller must hold mu.
func (u *Uplink) countTypedInReplay() int {
	n := 0
	for _, it := range u.queue[u.head : u.head+u.replayCount] {
		if it.isPrompt() || it.isIncompleteTurn() {
			n++
		}
	}
	return n
}

// DropToolResponses drops the queued results of tool calls.
func (u *Uplink) DropToolResponses() {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.urgent = slices.DeleteFunc(u.urgent, Item.isToolAnswer)
}

// HoldToolResponses holds back the queued results of tools, or releases them.
func (u *Uplink) HoldToolResponses(on bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.toolResponsesHeld = on
	notify(u.Ready)
}

// SetAudioGate stops sending audio, or lets audio through again. It is needed because some models close the session if
// audio arrives while a synchronous tool runs.
func (u *Uplink) SetAudioGate(gated bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.gated = gated
	if gated && !u.activity.manual && u.activity.endSpeech() {
		notify(u.SpeechChanged)
	}
	notify(u.Ready)
}

// SetPaused puts audio and pictures on hold, or ends the hold. What arrives during the hold is silently dropped.
func (u *Uplink) SetPaused(on bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.paused == on {
		return
	}
	u.paused = on
	if on { // also ends a speech, which the model would join to the speech after the hold
		u.startHold()
	} else {
		u.requeueSpeechStart()
	}
	notify(u.Ready)
}

// startHold drops audio and marks that are queued, and input that is unanswered. If the model has received the
// beginning of a speech, it ends that speech. The caller must hold mu.
func (u *Uplink) startHold() {
	startSent := !slices.ContainsFunc(u.queue[u.head:], func(it Item) bool { return it.isMark() && it.Message.RealtimeInput.ActivityStart })
	u.queue = slices.DeleteFunc(slices.Delete(u.queue, 0, u.head), func(it Item) bool { return it.PCM != nil || it.isMark() })
	u.head, u.replayCount, u.marks, u.queued = 0, len(u.queue), 0, 0 // replayed typed turns stay
	u.replayBuf.clearAnswered(0)
	u.view = shownPicture{}
	u.resetTurns()
	if u.activity.endSpeech() {
		u.activity.isVoid = true
		notify(u.SpeechChanged)
		end := MarkPause
		if u.activity.manual {
			end = MarkEnd
		}
		if startSent || end == MarkPause {
			u.appendItem(newMark(end, u.activity.speeches))
			u.marks++
			u.appendSilence()
		}
	}
}

// Next returns the next item to send, and counts it as sent. sent is the index of the last message on the connection;
// the setup has index 0. ok is false if nothing may be sent now. A positive wait is then the time until the next
// attempt.
func (u *Uplink) Next(sent int64) (it Item, wait time.Duration, ok bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.replayBuf.recordSentIndex(sent)
	it, wait, ok = u.takeNext()
	if it.PCM != nil {
		u.SentChunks.Add(1)
	}
	if ok {
		u.MilliTokens.Add(it.milliTokens())
	}
	if it.PCM != nil || it.Turn != nil || it.isPrompt() || it.isMark() {
		u.replayBuf.addItem(it)
	}
	return it, wait, ok
}

// nextSendableIndex returns the index of the next item to send ahead of the audio, or -1. If a tool result is held,
// pictures behind it wait with it. The caller must hold mu.
func (u *Uplink) nextSendableIndex() int {
	if !u.toolResponsesHeld {
		return min(len(u.urgent), 1) - 1
	}
	behind := false
	return slices.IndexFunc(u.urgent, func(it Item) bool {
		behind = behind || it.isToolAnswer()
		return !it.isToolAnswer() && !(behind && it.isIncompleteTurn())
	})
}

// takeNext removes and returns the next item to send. wait and ok have the same meaning as in Next. The caller must
// hold mu.
func (u *Uplink) takeNext() (it Item, wait time.Duration, ok bool) {
	if i := u.nextSendableIndex(); i == 0 {
		it = u.urgent[0]
		u.urgent[0] = Item{}
		u.urgent = u.urgent[1:]
		return it, 0, true
	} else if i > 0 {
		it = u.urgent[i]
		u.urgent = slices.Delete(u.urgent, i, i+1)
		return it, 0, true
	}
	it, wait, ok = u.view.takePicture(u.activity.speaking)
	if ok {
		return it, 0, true
	}
	if u.head == len(u.queue) {
		u.paced = false
		return Item{}, wait, false
	}
	if u.gated {
		return Item{}, wait, false
	}
	it = u.queue[u.head]
	if u.paced && it.PCM != nil {
		now := time.Now()
		if u.nextAudioAt.After(now) {
			return Item{}, u.nextAudioAt.Sub(now), false // Next is called again after this wait, also for a waiting picture
		}
		u.nextAudioAt = now.Add(it.duration() / ReplaySpeed)
	}
	u.queue[u.head] = Item{}
	u.head++
	if u.head == len(u.queue) {
		u.queue, u.head = u.queue[:0], 0
	}
	switch {
	case u.replayCount > 0:
		u.replayCount--
		if it.PCM != nil {
			u.ReplayedChunks.Add(1)
		}
	case it.PCM != nil:
		u.queued -= it.duration()
	case it.Silence == 0:
		u.marks--
	}
	return it, 0, true
}

// QueueReplay queues unanswered input again, before all other input, after a connection was lost. isNewSession means
// that the new connection does not resume the session. replayedSpeech is the length of the audio that is queued again.
// lostSpeech is the length of speech that was too old to keep. hasSpeechStart means that the session already has the
// beginning of the speech.
func (u *Uplink) QueueReplay(isNewSession bool) (replayedSpeech, lostSpeech time.Duration, hasSpeechStart bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.urgent = slices.DeleteFunc(u.urgent, func(it Item) bool { // the setup of the new connection contains these updates
		return it.Message != nil && it.Message.ContextUpdate != nil
	})
	u.pruneSilence()
	again, lostSpeech := u.replayBuf.takeReplay(isNewSession, !u.activity.manual && u.unfinishedSpeechNumber() > 0)
	hasSpeechStart = slices.ContainsFunc(u.replayBuf.items, func(it Item) bool { return it.speechNumber > 0 })
	if len(again) == 0 {
		return 0, lostSpeech, hasSpeechStart
	}
	again = slices.Clone(again)
	for _, it := range u.urgent { // text typed meanwhile must follow the speech that preceded it
		if it.isPrompt() || it.isIncompleteTurn() {
			again = append(again, it)
		}
	}
	u.urgent = slices.DeleteFunc(u.urgent, func(it Item) bool { return it.isPrompt() || it.isIncompleteTurn() })
	for _, it := range again {
		replayedSpeech += it.duration()
	}
	if replayedSpeech > 0 && u.endSilence > 0 && u.unfinishedSpeechNumber() == 0 { // needed because live audio may never follow
		again = append(again, Item{Silence: u.endSilence, Rate: cmp.Or(u.rate, defaultRate)})
	}
	u.queue = append(again, u.queue[u.head:]...)
	u.head = 0
	u.replayCount += len(again)
	u.paced = true
	u.nextAudioAt = time.Time{}
	notify(u.Ready)
	return replayedSpeech, lostSpeech, hasSpeechStart
}

// pruneSilence drops queued silence, because it would only delay the audio after it. It keeps the newest leadIn of
// silence. The caller must hold mu.
func (u *Uplink) pruneSilence() {
	keptLength := time.Duration(0)
	for i := len(u.queue) - 1; i >= u.head+u.replayCount; i-- {
		if it := u.queue[i]; it.PCM != nil && it.speechNumber == 0 {
			if keptLength += it.duration(); keptLength > leadIn {
				u.queue = slices.Delete(u.queue, i, i+1)
				u.queued -= it.duration()
			}
		}
	}
}

// unfinishedSpeechNumber returns the number of the first speech that is still in progress or not completely sent, or 0.
// The caller must hold mu.
func (u *Uplink) unfinishedSpeechNumber() int {
	for _, it := range u.queue[u.head:] {
		if it.speechNumber > 0 {
			return it.speechNumber
		}
	}
	if u.activity.speaking {
		return u.activity.speeches
	}
	return 0
}

// MarkAnswered records that the input sent so far needs no replay. The model has begun to answer this input, or never
// will. A speech that is still in progress or not completely sent does not count as answered.
func (u *Uplink) MarkAnswered() {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.replayBuf.clearAnswered(u.unfinishedSpeechNumber())
}

// MarkTypedTextUnanswered marks the typed text before the last answer as unanswered again, because the answer was not
// for that text.
func (u *Uplink) MarkTypedTextUnanswered() {
	u.mu.Lock()
	u.replayBuf.reopenTypedText()
	u.mu.Unlock()
}

// MarkActedOn records that the input sent so far has made the model call a tool.
func (u *Uplink) MarkActedOn() {
	u.mu.Lock()
	u.replayBuf.markActedOn(u.unfinishedSpeechNumber())
	u.mu.Unlock()
}

// RecordHandle records that a new handle has arrived. A session that is resumed with the handle has all tool calls so
// far. covered is the index of the last message that the handle covers, or 0.
func (u *Uplink) RecordHandle(covered int64) {
	u.mu.Lock()
	u.replayBuf.recordHandle(covered)
	u.mu.Unlock()
}

// HasUnanswered reports whether there is input, sent or still queued, that the model has not answered.
func (u *Uplink) HasUnanswered() bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.replayBuf.hasUnanswered || u.replayBuf.awaitsReaction || u.replayCount > 0 || slices.ContainsFunc(u.urgent, Item.isPrompt)
}

// NeedsReplay reports whether unanswered input must be sent again after the session is resumed with its newest handle.
// Input is unanswered in the sense of [Uplink.HasUnanswered].
func (u *Uplink) NeedsReplay() bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.replayBuf.needsReplay() || u.replayCount > 0 || slices.ContainsFunc(u.urgent, Item.isPrompt)
}

// RestoreTurn restores a question that was asked at another gateway. The handle covers a tool call for this question,
// so the question is sent again only to a session that is not resumed.
func (u *Uplink) RestoreTurn(turn Turn) {
	u.mu.Lock()
	u.replayBuf = replayBuffer{hasUnanswered: true, items: []Item{{Turn: &turn}}, actedCount: 1, actedCovered: true}
	u.mu.Unlock()
}

// SpeechState reports whether the person speaks now, the number of speeches so far, and how much of the last speech was
// voiced.
func (u *Uplink) SpeechState() (isSpeaking bool, speeches int, voicedLength time.Duration) {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.activity.speaking, u.activity.speeches, u.activity.voicedDuration()
}

// SpeechBounds returns the start and end of the last speech, as positions in all audio received.
func (u *Uplink) SpeechBounds() (start, end time.Duration) {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.activity.speechFrom, u.activity.speechTo
}

// SpeechStart returns when the voice of the last speech began. That is somewhat earlier than when the speech was
// detected.
func (u *Uplink) SpeechStart() time.Time {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.activity.manual {
		return u.activity.startedAt
	}
	return u.activity.startedAt.Add(-onsetTime)
}

// LastLoudAt returns when the last speech ended. That is the time of its last loud 20 ms, or of the client's mark.
func (u *Uplink) LastLoudAt() time.Time {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.activity.lastLoudAt
}

// NeedsAudio reports whether the model needs more audio, because a speech is in progress or because the model has not
// detected the end of one.
func (u *Uplink) NeedsAudio() bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.needsAudio()
}

// needsAudio implements NeedsAudio. The caller must hold mu.
func (u *Uplink) needsAudio() bool {
	p := &u.activity
	return !p.manual && (p.speaking || p.speeches > 0 && !p.isSettled && !u.paused && p.received-p.speechTo+hangoverTime < u.endSilence)
}

// EndStoppedSpeech ends the speech if the microphone has stopped sending, because without audio the model would never
// detect the end. isEnded reports whether it has ended a speech.
func (u *Uplink) EndStoppedSpeech() (isEnded bool) {
	u.mu.Lock()
	stopped := u.needsAudio() && time.Since(u.activity.lastAudioAt) >= MicPause
	if stopped && !u.activity.speaking {
		u.appendSilence()
		notify(u.Ready)
		u.mu.Unlock()
		return true
	}
	u.mu.Unlock()
	return stopped && u.QueueMark(MarkPause) == nil
}

// ShowPicture sets the picture that the model sees. At most one picture a second is sent, and always the newest. An
// unchanged picture is sent only during speech.
func (u *Uplink) ShowPicture(b wire.Blob, hasChanged bool) {
	u.mu.Lock()
	if !u.paused {
		u.view.setPicture(b, hasChanged)
	}
	u.mu.Unlock()
	notify(u.Ready)
}

// ClearPicture removes the picture, because the person no longer shows one.
func (u *Uplink) ClearPicture() {
	u.mu.Lock()
	u.view.newest, u.view.isUnsent = nil, false
	u.mu.Unlock()
}

// TakePictureForTurn returns the current picture, to be added to a typed turn, and records that it was added. It
// returns nil if the picture is too old, if it is large and was added to a turn before, or if there is no memory left
// for it (hasPictureRoom).
func (u *Uplink) TakePictureForTurn() *wire.Blob {
	u.mu.Lock()
	defer u.mu.Unlock()
	v := &u.view
	if v.newest == nil || time.Since(v.receivedAt) > inlineAge || v.sentInline && len(v.newest.Data) > largeInline ||
		!u.hasPictureRoom(v.newest) {
		return nil
	}
	v.sentInline = true
	return v.newest
}

// hasPictureRoom reports whether next may be kept in memory in addition to the pictures of queued and unanswered turns.
// The caller must hold mu.
func (u *Uplink) hasPictureRoom(next *wire.Blob) bool {
	pictures := []*wire.Blob{next}
	size := len(next.Data)
	for _, list := range [][]Item{u.urgent, u.queue[u.head:], u.replayBuf.items, u.replayBuf.settledText} {
		for _, it := range list {
			if it.Turn != nil && it.Turn.Picture != nil && !slices.Contains(pictures, it.Turn.Picture) {
				pictures = append(pictures, it.Turn.Picture)
				size += len(it.Turn.Picture.Data)
			}
		}
	}
	return len(pictures) == 1 || size <= maxInline
}
