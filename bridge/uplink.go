package bridge

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"voxgate/bridge/gemini"
	"voxgate/media"
)

const (
	// chunk is how much audio travels in one message: 20 ms, the least that Google's best practices recommend (20-40 ms).
	chunk = media.FrameDuration

	// maxQueued bounds the audio that waits for a link. Ten seconds hold what a person says while the model is being
	// dialled; after that the oldest is dropped and counted.
	maxQueued = 10 * time.Second

	// maxUrgent bounds the messages that wait for a link. A client that types a hundred turns into a dead link has
	// enough. Answers to tool calls have as much room again: they must not be crowded out, since a model waits for them.
	maxUrgent = 100

	// maxMarks bounds the marks that wait among the audio.
	maxMarks = 100

	// clearSpeech is the level (-30 dBov) above which what the gate keeps out is taken for speech.
	clearSpeech = 1000

	// replaySpeed is how much faster than spoken a turn is said again. Gemini's sense of time is its input, and twice is
	// what was seen to be understood; all at once is not speech any more.
	replaySpeed = 2
)

// uplink is what goes to the model, and what went there since it last answered. The microphone and the loop put in, the
// link's writer takes out; it outlives links, so nothing said during a reconnect is lost. All methods are safe from any
// goroutine.
type uplink struct {
	ready  chan struct{} // has a token when there may be something to take
	turned chan struct{} // has a token when speech may have begun or ended, or was lost

	frames   atomic.Uint64 // chunks sent
	dropped  atomic.Uint64 // chunks lost to maxQueued
	lost     atomic.Uint64 // those of them that were speech
	muffled  atomic.Uint64 // chunks of clear speech among the gated
	gated    atomic.Uint64 // chunks dropped because the model would close the session for them
	replayed atomic.Uint64 // chunks sent again

	mu     sync.Mutex
	urgent []item // goes ahead of the audio
	frame  *item  // the newest picture; older ones are worthless
	queue  []item // audio, and the marks that keep their place in it; taken from head on
	head   int
	queued time.Duration // of the audio in queue that was never sent
	marks  int           // in queue
	shut   bool          // the gate is: audio waits if it is a replay, and is dropped if not
	ear    ear
	ring   ring
	free   [][]int16 // buffers of sent chunks, used again
	flight []int16   // the one that the link's writer has in hand
	stray  bool      // and that nobody else needs

	replay int       // items at the head of queue that are sent again
	paced  bool      // until the queue is empty, audio goes at replaySpeed
	due    time.Time // when the next of it may go
}

// item is one thing to send: a chunk of audio, a typed turn, or another message.
type item struct {
	rate    int
	pcm     []int16
	speech  int      // of audio and marks: the number of the speech that it belongs to; 0: silence
	turn    *Message // in the form of the model that it goes to
	message *gemini.ClientMessage
}

// typed tells whether it is words that want an answer, as speech does.
func (i item) typed() bool {
	return i.turn != nil && i.turn.TurnComplete || i.message != nil && i.message.RealtimeInput != nil && i.message.RealtimeInput.Text != ""
}

// hint tells whether it is words that want none.
func (i item) hint() bool { return i.turn != nil && !i.turn.TurnComplete }

// mark tells whether it keeps its place among the audio.
func (i item) mark() bool {
	in := i.message
	return in != nil && in.RealtimeInput != nil && (in.RealtimeInput.ActivityStart || in.RealtimeInput.ActivityEnd || in.RealtimeInput.AudioStreamEnd)
}

func (i item) duration() time.Duration {
	if i.rate == 0 {
		return 0
	}
	return time.Duration(len(i.pcm)) * time.Second / time.Duration(i.rate)
}

func newUplink() *uplink {
	return &uplink{ready: make(chan struct{}, 1), turned: make(chan struct{}, 1), ear: newEar()}
}

func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// configure says who marks where speech begins and ends, and how much of the audio before a mark belongs to it.
func (u *uplink) configure(manual bool, preRoll time.Duration) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.ear.manual != manual { // what was marked in the other way would close the session
		u.ear.end()
		u.ring = ring{}
		u.queue = slices.DeleteFunc(slices.Delete(u.queue, 0, u.head), item.mark)
		u.head, u.replay, u.marks = 0, 0, 0
		u.recount()
	}
	u.ear.manual, u.ear.preRoll = manual, preRoll
}

// recount adds up the audio in the queue that was never sent. Needs mu.
func (u *uplink) recount() {
	u.queued = 0
	for _, it := range u.queue[u.head+u.replay:] {
		u.queued += it.duration()
	}
}

// clear forgets all that was said: another conversation begins.
func (u *uplink) clear() {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.ring = ring{}
	u.urgent, u.queue, u.head, u.replay, u.marks, u.queued = nil, nil, 0, 0, 0, 0
	if u.ear.manual && u.ear.speaking {
		u.put(markOf(ActivityStart, u.ear.speeches))
		u.marks++
	}
}

// audio queues a copy of pcm.
func (u *uplink) audio(pcm []int16, rate int) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.shut {
		u.gated.Add(1)
		u.ear.last = time.Now()
		if media.RMS(pcm) >= clearSpeech && u.muffled.Add(1) == 1 {
			signal(u.turned) // the loop shall say so
		}
		return
	}
	it := item{rate: rate, pcm: append(u.buffer(), pcm...)}
	began, ended := u.ear.hear(pcm, rate)
	it.speech = u.ear.speech()
	if began {
		left := lead
		for i := len(u.queue) - 1; i >= u.head && left > 0; i-- { // the begin of the first word
			if u.queue[i].speech == 0 {
				u.queue[i].speech = u.ear.speeches
			}
			left -= u.queue[i].duration()
		}
		u.ring.onset(u.ear.speeches, left)
	}
	if began || ended {
		signal(u.turned)
	}
	if u.ear.manual && !u.ear.speaking { // what is said outside of an activity is not for the model
		u.drop(u.ear.keep(it)...)
		return
	}
	u.put(it)
	u.queued += it.duration()
	for u.queued > maxQueued {
		u.dropOldest()
	}
	signal(u.ready)
}

// put appends to the queue. Needs mu.
func (u *uplink) put(it item) {
	if u.head > 0 && len(u.queue) == cap(u.queue) {
		u.queue = slices.Delete(u.queue, 0, u.head) // what was taken makes room
		u.head = 0
	}
	u.queue = append(u.queue, it)
}

// buffer returns an empty buffer, used if there is one. Needs mu.
func (u *uplink) buffer() []int16 {
	n := len(u.free)
	if n == 0 {
		return nil
	}
	buf := u.free[n-1][:0]
	u.free = u.free[:n-1]
	return buf
}

// drop keeps the buffers of items that are not needed any more. Needs mu.
func (u *uplink) drop(items ...item) {
	for _, it := range items {
		switch {
		case it.pcm == nil:
		case u.flight != nil && &it.pcm[0] == &u.flight[0]:
			u.stray = true
		case len(u.free) < 8:
			u.free = append(u.free, it.pcm)
		}
	}
}

// dropOldest removes the oldest audio that was never sent: silence if there is some, else speech. The marks stay. Needs mu.
func (u *uplink) dropOldest() {
	oldest := -1
	for i := u.head + u.replay; i < len(u.queue); i++ {
		if it := u.queue[i]; it.pcm != nil && (oldest < 0 || it.speech == 0) {
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
	u.drop(it)
	u.dropped.Add(1)
	if it.speech > 0 && u.lost.Add(1) == 1 {
		signal(u.turned) // the loop shall say so
	}
}

// mark queues in among the audio, so that what was said before it is heard before it. It refuses what the model would
// close the session for, and what is one too many.
func (u *uplink) mark(a Activity) error {
	u.mu.Lock()
	defer u.mu.Unlock()
	switch {
	case u.ear.manual && a == AudioStreamEnd:
		return &Error{Code: CodeInvalidState, Message: "audioStreamEnd has no meaning while the client marks speech itself; send activityEnd."}
	case !u.ear.manual && a != AudioStreamEnd:
		return &Error{Code: CodeInvalidState, Message: "activityStart and activityEnd have no meaning while Gemini finds out who speaks; " +
			"initialConfig.voxgate.vad.enabled must be false for them."}
	case u.marks >= maxMarks:
		return &Error{Code: CodeStreamLimitExceeded, Message: "Too many marks wait for Gemini; this one was dropped."}
	}
	u.marks++
	if a == ActivityStart {
		before := u.ear.begin()
		u.ring.open = true
		u.put(markOf(a, u.ear.speeches))
		for _, it := range before {
			it.speech = u.ear.speeches
			u.put(it)
			u.queued += it.duration()
		}
	} else {
		u.put(markOf(a, u.ear.speeches))
		u.ear.end()
	}
	signal(u.turned)
	signal(u.ready)
	return nil
}

// markOf is the message of a mark in a speech.
func markOf(a Activity, speech int) item {
	return item{speech: speech, message: &gemini.ClientMessage{RealtimeInput: &gemini.RealtimeInput{
		ActivityStart: a == ActivityStart, ActivityEnd: a == ActivityEnd, AudioStreamEnd: a == AudioStreamEnd,
	}}}
}

// send queues m ahead of the audio. It reports false when too much waits already.
func (u *uplink) send(m gemini.ClientMessage) bool { return u.enqueue(item{message: &m}, maxUrgent) }

// say queues a typed turn ahead of the audio, but behind what is said again. It reports false when too much waits already.
func (u *uplink) say(m Message) bool { return u.enqueue(item{turn: &m}, maxUrgent) }

// first queues m ahead of everything.
func (u *uplink) first(m gemini.ClientMessage) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.urgent = slices.Insert(u.urgent, 0, item{message: &m})
	signal(u.ready)
}

// respond queues the answer to a tool call.
func (u *uplink) respond(r gemini.FunctionResponse) bool {
	answer := &gemini.ToolResponse{FunctionResponses: []gemini.FunctionResponse{r}}
	return u.enqueue(item{message: &gemini.ClientMessage{ToolResponse: answer}}, 2*maxUrgent)
}

func (u *uplink) enqueue(it item, limit int) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	if len(u.urgent)+u.typedAgain() >= limit {
		return false
	}
	if (it.typed() || it.hint()) && u.replay > 0 { // it must not cut off what was said before it
		u.queue = slices.Insert(u.queue, u.head+u.replay, it)
		u.replay++
	} else {
		u.urgent = append(u.urgent, it)
	}
	signal(u.ready)
	return true
}

// typedAgain is how many typed turns wait among the audio. Needs mu.
func (u *uplink) typedAgain() int {
	n := 0
	for _, it := range u.queue[u.head : u.head+u.replay] {
		if it.typed() || it.hint() {
			n++
		}
	}
	return n
}

// takeBack drops the answers to tool calls that wait.
func (u *uplink) takeBack() {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.urgent = slices.DeleteFunc(u.urgent, func(it item) bool { return it.message != nil && it.message.ToolResponse != nil })
}

// picture replaces the waiting picture.
func (u *uplink) picture(b gemini.Blob) {
	u.mu.Lock()
	u.frame = &item{message: &gemini.ClientMessage{RealtimeInput: &gemini.RealtimeInput{Video: &b}}}
	u.mu.Unlock()
	signal(u.ready)
}

// gate shuts or opens the way for audio. While a synchronous tool runs, some models close the session for it.
func (u *uplink) gate(shut bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.shut = shut
	if shut && !u.ear.manual && u.ear.end() {
		signal(u.turned)
	}
	signal(u.ready)
}

// next takes the next thing to send. ok is false when nothing may be sent; then wait says when, if it is only too early.
// What is taken counts as said: if its link dies it is said again, as long as it has no answer. The audio is valid until
// next is called again.
func (u *uplink) next() (it item, wait time.Duration, ok bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if sent := u.flight; sent != nil {
		u.flight = nil
		if u.stray {
			u.drop(item{pcm: sent})
		}
	}
	it, wait, ok = u.take()
	if it.pcm != nil {
		u.frames.Add(1)
		u.flight, u.stray = it.pcm, false
	}
	if it.pcm != nil || it.turn != nil || it.typed() || it.mark() {
		u.drop(u.ring.add(it)...)
	}
	return it, wait, ok
}

// take takes what is next in order. Needs mu.
func (u *uplink) take() (it item, wait time.Duration, ok bool) {
	if len(u.urgent) > 0 {
		it = u.urgent[0]
		u.urgent[0] = item{}
		u.urgent = u.urgent[1:]
		return it, 0, true
	}
	if u.frame != nil {
		it, u.frame = *u.frame, nil
		return it, 0, true
	}
	if u.head == len(u.queue) {
		u.paced = false
		return item{}, 0, false
	}
	if u.shut {
		return item{}, 0, false
	}
	it = u.queue[u.head]
	if u.paced && it.pcm != nil {
		now := time.Now()
		if u.due.After(now) {
			return item{}, u.due.Sub(now), false
		}
		u.due = now.Add(it.duration() / replaySpeed)
	}
	u.queue[u.head] = item{}
	u.head++
	if u.head == len(u.queue) {
		u.queue, u.head = u.queue[:0], 0
	}
	switch {
	case u.replay > 0:
		u.replay--
		if it.pcm != nil {
			u.replayed.Add(1)
		}
	case it.pcm != nil:
		u.queued -= it.duration()
	default:
		u.marks--
	}
	return it, 0, true
}

// rewind puts what was said and not answered before everything that waits: the link it went by is gone. It returns how
// much of it is speech, and how much speech was too long ago.
func (u *uplink) rewind(fresh bool) (speech, lost time.Duration) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.urgent = slices.DeleteFunc(u.urgent, func(it item) bool { // the new link was set up with it
		return it.message != nil && it.message.ContextUpdate != nil
	})
	u.prune()
	again, lost := u.ring.take(fresh)
	if len(again) == 0 {
		return 0, lost
	}
	again = slices.Clone(again)
	for _, it := range u.urgent { // what was typed meanwhile comes after what was said before it
		if it.typed() || it.hint() {
			again = append(again, it)
		}
	}
	u.urgent = slices.DeleteFunc(u.urgent, func(it item) bool { return it.typed() || it.hint() })
	for _, it := range again {
		speech += it.duration()
	}
	u.queue = append(again, u.queue[u.head:]...)
	u.head = 0
	u.replay += len(again)
	u.paced = true
	u.due = time.Time{}
	signal(u.ready)
	return speech, lost
}

// prune drops the silence that waits, but for the newest lead: it would only delay what follows it. Needs mu.
func (u *uplink) prune() {
	kept := time.Duration(0)
	for i := len(u.queue) - 1; i >= u.head+u.replay; i-- {
		if it := u.queue[i]; it.pcm != nil && it.speech == 0 {
			if kept += it.duration(); kept > lead {
				u.queue = slices.Delete(u.queue, i, i+1)
				u.queued -= it.duration()
				u.drop(it)
			}
		}
	}
}

// unfinished is the number of the first speech that is not over, or not all sent; 0: none. Needs mu.
func (u *uplink) unfinished() int {
	for _, it := range u.queue[u.head:] {
		if it.speech > 0 {
			return it.speech
		}
	}
	if u.ear.speaking {
		return u.ear.speeches
	}
	return 0
}

// answered forgets what was said: the model has begun to answer it, or never will. A speech that is not over stays.
func (u *uplink) answered() {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.drop(u.ring.answered(u.unfinished())...)
}

// unsettle takes back what was typed and is taken for answered.
func (u *uplink) unsettle() {
	u.mu.Lock()
	u.ring.unsettle()
	u.mu.Unlock()
}

// acted notes that the model has acted on what was said so far, by calling a tool.
func (u *uplink) acted() {
	u.mu.Lock()
	u.ring.actedOn(u.unfinished())
	u.mu.Unlock()
}

// handled notes that there is a new handle: what the model has acted on need not be said to its session again.
func (u *uplink) handled() {
	u.mu.Lock()
	u.ring.handled()
	u.mu.Unlock()
}

// unanswered tells whether something was said that the model has not answered, or waits to be sent.
func (u *uplink) unanswered() bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.ring.open || u.replay > 0 || slices.ContainsFunc(u.urgent, item.typed)
}

// speech tells whether the person speaks now, how many speeches there were so far, and how much of the last was voiced.
func (u *uplink) speech() (speaking bool, speeches int, voiced time.Duration) {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.ear.speaking, u.ear.speeches, u.ear.voiced()
}

// stopped ends the speech of a microphone that has stopped sending, and reports whether it did. The model's clock is its
// input: without audio it would wait for the end of the sentence for ever.
func (u *uplink) stopped() bool {
	u.mu.Lock()
	silent := u.ear.speaking && !u.ear.manual && time.Since(u.ear.last) >= micPause
	u.mu.Unlock()
	return silent && u.mark(AudioStreamEnd) == nil
}
