// Package uplink queues what goes to the model, and keeps what it has not answered: audio, marks, typed turns, pictures
// and the answers of tools. It detects speech, and sends again what was lost with a link.
package uplink

import (
	"cmp"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"voxgate/bridge/gemini/wire"
	"voxgate/media"
)

const (
	// maxQueued bounds the audio that waits for a link. Ten seconds hold what a person says while the model is being
	// dialled; after that the oldest is dropped and counted.
	maxQueued = 10 * time.Second

	// maxUrgent bounds the messages that wait for a link. A client that types a hundred turns into a dead link has
	// enough.
	maxUrgent = 100

	// maxResponses bounds the answers to tool calls that wait: more than a model asks for in one message; none may be
	// dropped.
	maxResponses = 5000

	// maxMarks bounds the marks that wait among the audio.
	maxMarks = 100

	// clearSpeech is the level (-30 dBov) above which what the gate keeps out is taken for speech.
	clearSpeech = 1000

	// defaultRate is that of silence where no audio has come: Gemini's own.
	defaultRate = 16000

	// ReplaySpeed is how much faster than spoken a turn is said again: it catches up, but is still a stream. Gemini's
	// clock is its input, so audio sent all at once would not be speech to it.
	ReplaySpeed = 2
)

// Uplink holds what goes to the model, and what it has not answered. The microphone and the loop put in, the link's
// writer takes out; it outlives links, so nothing said during a reconnect is lost. Any goroutine may call its methods.
type Uplink struct {
	Ready  chan struct{} // has a token when there may be something to take
	Turned chan struct{} // has a token when speech may have begun or ended, or was lost

	Frames      atomic.Uint64 // chunks sent
	Dropped     atomic.Uint64 // chunks lost to maxQueued
	Lost        atomic.Uint64 // those of them that were speech
	GatedSpeech atomic.Uint64 // chunks of clear speech among the gated
	Gated       atomic.Uint64 // chunks dropped because the model would close the session for them
	Replayed    atomic.Uint64 // chunks sent again
	Tokens      atomic.Uint64 // thousandths of tokens that what was sent has at most

	mu          sync.Mutex
	urgent      []Item // goes ahead of the audio
	view        view
	queue       []Item // audio, and the marks that keep their place in it; taken from head on
	head        int
	queued      time.Duration // of the audio in queue that was never sent
	marks       int           // in queue
	paused      bool          // nobody listens to the person
	answersHeld bool          // the answers of tools wait
	gated       bool          // audio waits if it is a replay, and is dropped if not
	person      activity
	sent        replayBuffer

	endSilence time.Duration // that the model must hear behind a speech to find its end; 0: none
	silenceAt  time.Duration // of sound: where that silence was sent last
	rate       int           // of the newest audio; 0: none has come

	replay int       // items at the head of queue that are sent again
	paced  bool      // until the queue is empty, audio goes at ReplaySpeed
	due    time.Time // when the next of it may go
}

// New returns an empty uplink.
func New() *Uplink {
	return &Uplink{Ready: make(chan struct{}, 1), Turned: make(chan struct{}, 1), person: newActivity()}
}

func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// Configure sets whether the client marks where speech begins and ends, and how much of the audio before a mark belongs
// to it; and how much silence the model must hear behind a speech to find its end.
func (u *Uplink) Configure(manual bool, preRoll, endSilence time.Duration) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.endSilence = endSilence
	if u.person.manual != manual { // what was marked in the other way would close the session
		if u.person.end() { // in mid-speech: the rest would have no begin, so what was said is not to be answered
			u.person.void = true
			signal(u.Turned)
		}
		u.sent = replayBuffer{}
		u.queue = slices.DeleteFunc(slices.Delete(u.queue, 0, u.head), func(it Item) bool { return it.mark() || it.Silence > 0 })
		u.head, u.replay, u.marks, u.queued = 0, 0, 0, 0
		for _, it := range u.queue {
			u.queued += it.duration()
		}
	}
	u.person.manual, u.person.preRoll = manual, preRoll
}

// Clear forgets all that was said and shown: another conversation begins.
func (u *Uplink) Clear() {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.sent, u.view = replayBuffer{}, view{}
	u.urgent, u.queue, u.head, u.replay, u.marks, u.queued = nil, nil, 0, 0, 0, 0
	if u.person.manual && u.person.speaking {
		u.put(markOf(Start, u.person.speeches))
		u.marks++
	}
}

// Audio queues a copy of pcm.
func (u *Uplink) Audio(pcm []int16, rate int) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.person.came += media.Duration(len(pcm), rate)
	u.rate = rate
	if u.paused {
		return
	}
	if u.gated && (!u.person.manual || u.person.speaking) {
		u.Gated.Add(1)
		u.person.last = time.Now()
		if media.RMS(pcm) >= clearSpeech && u.GatedSpeech.Add(1) == 1 {
			signal(u.Turned) // the owner informs the client
		}
		return
	}
	it := Item{Rate: rate, PCM: slices.Clone(pcm)}
	began, ended := u.person.hear(pcm, rate)
	it.speech = u.person.speech()
	if began {
		left := prefix
		for i := len(u.queue) - 1; i >= u.head && left > 0; i-- { // the begin of the first word
			if u.queue[i].speech == 0 {
				u.queue[i].speech = u.person.speeches
			}
			left -= u.queue[i].duration()
		}
		u.sent.onset(u.person.speeches, left)
	}
	if began || ended {
		signal(u.Turned)
	}
	if u.person.manual && !u.person.speaking { // what is said outside of an activity is not for the model
		u.person.keep(it)
		return
	}
	u.put(it)
	u.queued += it.duration()
	for u.queued > maxQueued {
		u.dropOldest()
	}
	signal(u.Ready)
}

// put appends to the queue. Needs mu.
func (u *Uplink) put(it Item) {
	if u.head > 0 && len(u.queue) == cap(u.queue) {
		u.queue = slices.Delete(u.queue, 0, u.head) // what was taken makes room
		u.head = 0
	}
	u.queue = append(u.queue, it)
}

// dropOldest removes the oldest audio that was never sent: silence if there is some, else speech. The marks stay. Needs
// mu.
func (u *Uplink) dropOldest() {
	oldest := -1
	for i := u.head + u.replay; i < len(u.queue); i++ {
		if it := u.queue[i]; it.PCM != nil && (oldest < 0 || it.speech == 0) {
			oldest = i
			if it.speech == 0 {
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
	u.Dropped.Add(1)
	if it.speech > 0 && u.Lost.Add(1) == 1 {
		signal(u.Turned) // the owner informs the client
	}
}

// Mark queues a mark among the audio, so that what was said before it is heard before it. It refuses a mark for which
// the model would close the session, and one too many.
func (u *Uplink) Mark(m Mark) error {
	u.mu.Lock()
	defer u.mu.Unlock()
	switch {
	case u.person.manual && m == Pause:
		return ErrManual
	case !u.person.manual && m != Pause:
		return ErrAutomatic
	case m == Keep || m == Drop:
		u.person.forget(m)
		return nil
	case u.marks >= maxMarks:
		return ErrFull
	}
	if u.paused { // the loop learns of it when the pause is over
		switch m {
		case Start:
			u.person.begin()
		case End:
			u.person.end()
		}
		return nil
	}
	u.marks++
	if m == Start {
		before := u.person.begin()
		u.sent.open = true
		u.put(markOf(m, u.person.speeches))
		for _, it := range before {
			it.speech = u.person.speeches
			u.put(it)
			u.queued += it.duration()
		}
	} else {
		u.put(markOf(m, u.person.speeches))
		u.person.end()
		if u.person.came != u.silenceAt { // else the silence is there
			u.putSilence()
		}
	}
	signal(u.Turned)
	signal(u.Ready)
	return nil
}

// putSilence queues the silence by which the model detects the end of speech: some models ignore marks, and a microphone that
// stops sending. Needs mu.
func (u *Uplink) putSilence() {
	u.person.isSettled, u.silenceAt = true, u.person.came
	if u.endSilence > 0 {
		u.put(Item{Silence: u.endSilence, Rate: cmp.Or(u.rate, defaultRate)})
	}
}

// Nudge marks the end of speech once more, with the silence, for a model that does not react.
func (u *Uplink) Nudge() error {
	u.mu.Lock()
	u.silenceAt = -1
	u.mu.Unlock()
	return u.Mark(Pause)
}

// Send queues m ahead of the audio. It reports false when too much waits already.
func (u *Uplink) Send(m wire.ClientMessage) bool { return u.enqueue(Item{Message: &m}, maxUrgent) }

// Say queues a typed turn ahead of the audio, but behind what is said again. It reports false when too much waits
// already.
func (u *Uplink) Say(t Turn) bool { return u.enqueue(Item{Turn: &t}, maxUrgent) }

// First queues m ahead of everything.
func (u *Uplink) First(m wire.ClientMessage) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.urgent = slices.Insert(u.urgent, 0, Item{Message: &m})
	signal(u.Ready)
}

// Respond queues the answer to a tool call.
func (u *Uplink) Respond(r wire.FunctionResponse) bool {
	answer := &wire.ToolResponse{FunctionResponses: []wire.FunctionResponse{r}}
	return u.enqueue(Item{Message: &wire.ClientMessage{ToolResponse: answer}}, maxResponses)
}

// Sent returns a channel that is closed when all that waits ahead of the audio now has been sent. Answers that are held go, too: the
// conversation ends.
func (u *Uplink) Sent() <-chan struct{} {
	sent := make(chan struct{})
	u.mu.Lock()
	defer u.mu.Unlock()
	u.answersHeld = false
	u.urgent = append(u.urgent, Item{Sent: sent})
	signal(u.Ready)
	return sent
}

func (u *Uplink) enqueue(it Item, limit int) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	if len(u.urgent)+u.typedInReplay() >= limit {
		return false
	}
	if (it.typed() || it.hint()) && u.replay > 0 { // it must not cut off what was said before it
		u.queue = slices.Insert(u.queue, u.head+u.replay, it)
		u.replay++
	} else {
		u.urgent = append(u.urgent, it)
	}
	signal(u.Ready)
	return true
}

// typedInReplay is how many typed turns wait among the audio. Needs mu.
func (u *Uplink) typedInReplay() int {
	n := 0
	for _, it := range u.queue[u.head : u.head+u.replay] {
		if it.typed() || it.hint() {
			n++
		}
	}
	return n
}

// TakeBack drops the answers to tool calls that wait.
func (u *Uplink) TakeBack() {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.urgent = slices.DeleteFunc(u.urgent, Item.isToolAnswer)
}

// HoldAnswers holds back queued answers of tools, or releases them.
func (u *Uplink) HoldAnswers(on bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.answersHeld = on
	signal(u.Ready)
}

// Gate stops audio, or lets it through again. Some models close the session if audio comes while a synchronous tool
// runs.
func (u *Uplink) Gate(gated bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.gated = gated
	if gated && !u.person.manual && u.person.end() {
		signal(u.Turned)
	}
	signal(u.Ready)
}

// Pause puts sound and pictures on hold, or lets them through again. What comes meanwhile is silently dropped. A speech
// under way ends for the model, too: it would take what comes after the hold for the rest of it.
func (u *Uplink) Pause(on bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.paused == on {
		return
	}
	u.paused = on
	switch {
	case on:
		u.hold()
	case u.person.manual && u.person.speaking: // it began meanwhile
		u.put(markOf(Start, u.person.speeches))
		u.marks++
	}
	signal(u.Ready)
}

// hold drops what waits and what has no answer, and ends a speech whose beginning the model has heard. Needs mu.
func (u *Uplink) hold() {
	begun := !slices.ContainsFunc(u.queue[u.head:], func(it Item) bool { return it.mark() && it.Message.RealtimeInput.ActivityStart })
	u.queue = slices.DeleteFunc(slices.Delete(u.queue, 0, u.head), func(it Item) bool { return it.PCM != nil || it.mark() })
	u.head, u.replay, u.marks, u.queued = 0, len(u.queue), 0, 0 // typed turns that are said again are left
	u.sent.answered(0)
	u.view = view{}
	if u.person.end() {
		u.person.void = true
		signal(u.Turned)
		end := Pause
		if u.person.manual {
			end = End
		}
		if begun || end == Pause {
			u.put(markOf(end, u.person.speeches))
			u.marks++
			u.putSilence()
		}
	}
}

// Next takes the next thing to send. ok is false when nothing may be sent; wait then says for how long, if it is only
// too early. What is taken counts as said: if its link dies before it is answered, it is said again. Sent is the index of the
// last message of the link, where the setup is 0.
func (u *Uplink) Next(sent int64) (it Item, wait time.Duration, ok bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.sent.number(sent)
	it, wait, ok = u.take()
	if it.PCM != nil {
		u.Frames.Add(1)
	}
	if ok {
		u.Tokens.Add(it.tokens())
	}
	if it.PCM != nil || it.Turn != nil || it.typed() || it.mark() {
		u.sent.add(it)
	}
	return it, wait, ok
}

// nextUrgent returns the index of the next item to send ahead of the audio, or -1. A picture behind a held answer belongs to that
// answer and waits with it. Needs mu.
func (u *Uplink) nextUrgent() int {
	if !u.answersHeld {
		return min(len(u.urgent), 1) - 1
	}
	behind := false
	return slices.IndexFunc(u.urgent, func(it Item) bool {
		behind = behind || it.isToolAnswer()
		return !it.isToolAnswer() && !(behind && it.hint())
	})
}

// take takes what is next in order. Needs mu.
func (u *Uplink) take() (it Item, wait time.Duration, ok bool) {
	if i := u.nextUrgent(); i == 0 {
		it = u.urgent[0]
		u.urgent[0] = Item{}
		u.urgent = u.urgent[1:]
		return it, 0, true
	} else if i > 0 {
		it = u.urgent[i]
		u.urgent = slices.Delete(u.urgent, i, i+1)
		return it, 0, true
	}
	it, wait, ok = u.view.take(u.person.speaking)
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
		if u.due.After(now) {
			return Item{}, u.due.Sub(now), false // sooner than a picture, or soon enough for it
		}
		u.due = now.Add(it.duration() / ReplaySpeed)
	}
	u.queue[u.head] = Item{}
	u.head++
	if u.head == len(u.queue) {
		u.queue, u.head = u.queue[:0], 0
	}
	switch {
	case u.replay > 0:
		u.replay--
		if it.PCM != nil {
			u.Replayed.Add(1)
		}
	case it.PCM != nil:
		u.queued -= it.duration()
	case it.Silence == 0:
		u.marks--
	}
	return it, 0, true
}

// Rewind puts what was said and not answered before everything that waits: the link it went by is gone. It returns how
// much of it is speech, and how much speech was too old. Rest is set if the session has heard the beginning.
func (u *Uplink) Rewind(fresh bool) (speech, lost time.Duration, rest bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.urgent = slices.DeleteFunc(u.urgent, func(it Item) bool { // the new link was set up with it
		return it.Message != nil && it.Message.ContextUpdate != nil
	})
	u.prune()
	again, lost := u.sent.take(fresh, !u.person.manual && u.unfinished() > 0)
	rest = slices.ContainsFunc(u.sent.items, func(it Item) bool { return it.speech > 0 })
	if len(again) == 0 {
		return 0, lost, rest
	}
	again = slices.Clone(again)
	for _, it := range u.urgent { // what was typed meanwhile comes after what was said before it
		if it.typed() || it.hint() {
			again = append(again, it)
		}
	}
	u.urgent = slices.DeleteFunc(u.urgent, func(it Item) bool { return it.typed() || it.hint() })
	for _, it := range again {
		speech += it.duration()
	}
	if speech > 0 && u.endSilence > 0 && u.unfinished() == 0 { // live audio may never follow
		again = append(again, Item{Silence: u.endSilence, Rate: cmp.Or(u.rate, defaultRate)})
	}
	u.queue = append(again, u.queue[u.head:]...)
	u.head = 0
	u.replay += len(again)
	u.paced = true
	u.due = time.Time{}
	signal(u.Ready)
	return speech, lost, rest
}

// prune drops queued silence except the newest prefix: it would only delay what follows. Needs mu.
func (u *Uplink) prune() {
	kept := time.Duration(0)
	for i := len(u.queue) - 1; i >= u.head+u.replay; i-- {
		if it := u.queue[i]; it.PCM != nil && it.speech == 0 {
			if kept += it.duration(); kept > prefix {
				u.queue = slices.Delete(u.queue, i, i+1)
				u.queued -= it.duration()
			}
		}
	}
}

// unfinished is the number of the first speech that is not over, or not all sent; 0: none. Needs mu.
func (u *Uplink) unfinished() int {
	for _, it := range u.queue[u.head:] {
		if it.speech > 0 {
			return it.speech
		}
	}
	if u.person.speaking {
		return u.person.speeches
	}
	return 0
}

// Answered forgets what was said: the model has begun to answer it, or never will. A speech that is not over stays.
func (u *Uplink) Answered() {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.sent.answered(u.unfinished())
}

// Unsettle marks typed text that was taken for answered as unanswered again.
func (u *Uplink) Unsettle() {
	u.mu.Lock()
	u.sent.unsettle()
	u.mu.Unlock()
}

// Acted notes that the model has acted on what was said so far, by calling a tool.
func (u *Uplink) Acted() {
	u.mu.Lock()
	u.sent.actedOn(u.unfinished())
	u.mu.Unlock()
}

// Handled notes a new handle: what the model has acted on need not be said to its session again. Covered is the index of the
// last message that is in it; 0: it does not say.
func (u *Uplink) Handled(covered int64) {
	u.mu.Lock()
	u.sent.handled(covered)
	u.mu.Unlock()
}

// Unanswered reports whether something was said that the model has not answered, or waits to be sent.
func (u *Uplink) Unanswered() bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.sent.open || u.sent.told || u.replay > 0 || slices.ContainsFunc(u.urgent, Item.typed)
}

// Owed reports whether a session that goes on by the newest handle is to be told something that Unanswered counts.
func (u *Uplink) Owed() bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.sent.owed() || u.replay > 0 || slices.ContainsFunc(u.urgent, Item.typed)
}

// Restore notes what a person has asked at another gateway: the model has acted on it by calling a tool, and the handle knows of that.
// Only a session that is begun anew is told it again.
func (u *Uplink) Restore(asked Turn) {
	u.mu.Lock()
	u.sent = replayBuffer{open: true, items: []Item{{Turn: &asked}}, acted: 1, known: true}
	u.mu.Unlock()
}

// Speech reports whether the person speaks now, how many speeches there were so far, and how much of the last was
// voiced.
func (u *Uplink) Speech() (speaking bool, speeches int, voiced time.Duration) {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.person.speaking, u.person.speeches, u.person.voiced()
}

// Bounds are where the last speech was found to begin and to end, from the beginning of all sound that has come.
func (u *Uplink) Bounds() (began, ended time.Duration) {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.person.from, u.person.to
}

// Began is when the person last began to speak: when the voice came, not when it was recognised as speech.
func (u *Uplink) Began() time.Time {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.person.manual {
		return u.person.began
	}
	return u.person.began.Add(-onset)
}

// LastLoud is when the last speech ended: its last loud 20 ms, or the mark of a client that marks speech by hand.
func (u *Uplink) LastLoud() time.Time {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.person.loud
}

// NeedsSound reports whether the model cannot detect the end of speech yet: the speech goes on, or too little silence follows it.
func (u *Uplink) NeedsSound() bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.needsSound()
}

// needsSound is NeedsSound. Needs mu.
func (u *Uplink) needsSound() bool {
	p := &u.person
	return !p.manual && (p.speaking || p.speeches > 0 && !p.isSettled && !u.paused && p.came-p.to+hangover < u.endSilence)
}

// EndStoppedSpeech ends the speech of a microphone that has stopped sending, and reports whether it did. The model's clock is
// its input: without audio it would wait for ever for the end of the sentence.
func (u *Uplink) EndStoppedSpeech() bool {
	u.mu.Lock()
	stopped := u.needsSound() && time.Since(u.person.last) >= MicPause
	if stopped && !u.person.speaking {
		u.putSilence()
		signal(u.Ready)
		u.mu.Unlock()
		return true
	}
	u.mu.Unlock()
	return stopped && u.Mark(Pause) == nil
}

// Picture gives the model something to look at: the newest wins, and one a second is sent. An unchanged one is sent
// only while the person speaks.
func (u *Uplink) Picture(b wire.Blob, changed bool) {
	u.mu.Lock()
	if !u.paused {
		u.view.show(b, changed)
	}
	u.mu.Unlock()
	signal(u.Ready)
}

// Blind forgets the picture: there is nothing to look at any more.
func (u *Uplink) Blind() {
	u.mu.Lock()
	u.view.newest, u.view.unsent = nil, false
	u.mu.Unlock()
}

// Seen takes the current picture to go with a typed turn, which cannot wait for the next one; nil if there is none, or
// it may not go.
func (u *Uplink) Seen() *wire.Blob {
	u.mu.Lock()
	defer u.mu.Unlock()
	v := &u.view
	if v.newest == nil || time.Since(v.came) > inlineAge || v.inline && len(v.newest.Data) > largeInline || !u.room(v.newest) {
		return nil
	}
	v.inline = true
	return v.newest
}

// room reports whether a picture may be kept with the turns that wait or have no answer. Needs mu.
func (u *Uplink) room(next *wire.Blob) bool {
	held := []*wire.Blob{next}
	size := len(next.Data)
	for _, list := range [][]Item{u.urgent, u.queue[u.head:], u.sent.items, u.sent.settled} {
		for _, it := range list {
			if it.Turn != nil && it.Turn.Picture != nil && !slices.Contains(held, it.Turn.Picture) {
				held = append(held, it.Turn.Picture)
				size += len(it.Turn.Picture.Data)
			}
		}
	}
	return len(held) == 1 || size <= maxInline
}
