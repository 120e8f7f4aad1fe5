package bridge

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"voxgate/bridge/gemini"
	"voxgate/media"
)

// chunk is how much audio travels in one message: 20 ms, the least that Google's best practices recommend (20-40 ms).
const chunk = media.FrameDuration

// maxQueued bounds the audio that waits for a link. Ten seconds hold what a person says while the model is being
// dialled; after that the oldest is dropped and counted.
const maxQueued = 10 * time.Second

// maxUrgent bounds the messages that wait for a link. A client that types a hundred turns into a dead link has enough.
// Answers to tool calls have as much room again: they must not be crowded out, since a model waits for them.
const maxUrgent = 100

// maxMarks bounds the marks that wait among the audio.
const maxMarks = 100

// uplink is what waits to go to the model. The microphone and the loop put in, the link's writer takes out; it outlives
// links, so nothing said during a reconnect is lost. All methods are safe from any goroutine.
type uplink struct {
	ready   chan struct{} // has a token when there may be something to take
	frames  atomic.Uint64 // chunks taken
	dropped atomic.Uint64 // chunks lost to maxQueued

	mu     sync.Mutex
	urgent []urgent     // goes ahead of the audio
	frame  *gemini.Blob // the newest picture; older ones are worthless
	queue  []item       // audio, and the marks that keep their place in it; taken from head on
	head   int
	queued time.Duration // of the audio in queue
	marks  int           // in queue
	free   [][]int16     // buffers of sent chunks, used again
}

// urgent is a message that goes ahead of the audio.
type urgent struct {
	gemini.ClientMessage
	handles int // of an answer: link.handles when its call came
}

// item is a chunk of audio, or a mark among the audio.
type item struct {
	rate int
	pcm  []int16
	mark *gemini.RealtimeInput
}

func (i item) duration() time.Duration {
	if i.rate == 0 {
		return 0
	}
	return time.Duration(len(i.pcm)) * time.Second / time.Duration(i.rate)
}

func newUplink() *uplink { return &uplink{ready: make(chan struct{}, 1)} }

func (u *uplink) wake() {
	select {
	case u.ready <- struct{}{}:
	default:
	}
}

// audio queues a copy of pcm.
func (u *uplink) audio(pcm []int16, rate int) {
	u.mu.Lock()
	var buf []int16
	if n := len(u.free); n > 0 {
		buf, u.free = u.free[n-1][:0], u.free[:n-1]
	}
	it := item{rate: rate, pcm: append(buf, pcm...)}
	u.put(it)
	u.queued += it.duration()
	for u.queued > maxQueued {
		u.dropOldest()
	}
	u.mu.Unlock()
	u.wake()
}

// put appends to the queue. Needs mu.
func (u *uplink) put(it item) {
	if u.head > 0 && len(u.queue) == cap(u.queue) {
		u.queue = slices.Delete(u.queue, 0, u.head) // what was taken makes room
		u.head = 0
	}
	u.queue = append(u.queue, it)
}

// dropOldest removes the oldest audio; the marks stay. Needs mu.
func (u *uplink) dropOldest() {
	for i := u.head; i < len(u.queue); i++ {
		if it := u.queue[i]; it.mark == nil {
			u.queue = slices.Delete(u.queue, i, i+1)
			u.queued -= it.duration()
			u.dropped.Add(1)
			return
		}
	}
}

// mark queues in among the audio, so that what was said before it is heard before it. It reports false when too many
// wait already.
func (u *uplink) mark(in gemini.RealtimeInput) bool {
	u.mu.Lock()
	ok := u.marks < maxMarks
	if ok {
		u.put(item{mark: &in})
		u.marks++
	}
	u.mu.Unlock()
	u.wake()
	return ok
}

// send queues m ahead of the audio. It reports false when too much waits already.
func (u *uplink) send(m gemini.ClientMessage) bool {
	return u.enqueue(urgent{ClientMessage: m}, maxUrgent)
}

// respond queues the answer to a call that came when so many handles had come.
func (u *uplink) respond(r gemini.FunctionResponse, handles int) bool {
	answer := &gemini.ToolResponse{FunctionResponses: []gemini.FunctionResponse{r}}
	return u.enqueue(urgent{ClientMessage: gemini.ClientMessage{ToolResponse: answer}, handles: handles}, 2*maxUrgent)
}

func (u *uplink) enqueue(m urgent, limit int) bool {
	u.mu.Lock()
	ok := len(u.urgent) < limit
	if ok {
		u.urgent = append(u.urgent, m)
	}
	u.mu.Unlock()
	u.wake()
	return ok
}

// forget drops the answers to calls that stale says nobody waits for any more.
func (u *uplink) forget(stale func(handles int) bool) {
	u.mu.Lock()
	u.urgent = slices.DeleteFunc(u.urgent, func(m urgent) bool { return m.ToolResponse != nil && stale(m.handles) })
	u.mu.Unlock()
}

// picture replaces the waiting picture.
func (u *uplink) picture(b gemini.Blob) {
	u.mu.Lock()
	u.frame = &b
	u.mu.Unlock()
	u.wake()
}

// next takes the next thing to send: a message or a chunk of audio. ok is false when nothing waits.
func (u *uplink) next() (m *urgent, it item, ok bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if len(u.urgent) > 0 {
		m := u.urgent[0]
		u.urgent[0] = urgent{}
		u.urgent = u.urgent[1:]
		return &m, item{}, true
	}
	if u.frame != nil {
		b := u.frame
		u.frame = nil
		return realtime(gemini.RealtimeInput{Video: b}), item{}, true
	}
	if u.head == len(u.queue) {
		return nil, item{}, false
	}
	it = u.queue[u.head]
	u.queue[u.head] = item{}
	u.head++
	if u.head == len(u.queue) {
		u.queue, u.head = u.queue[:0], 0
	}
	u.queued -= it.duration()
	if it.mark != nil {
		u.marks--
		return realtime(*it.mark), item{}, true
	}
	return nil, it, true
}

func realtime(in gemini.RealtimeInput) *urgent {
	return &urgent{ClientMessage: gemini.ClientMessage{RealtimeInput: &in}}
}

// recycle gives a sent chunk's buffer back.
func (u *uplink) recycle(it item) {
	u.frames.Add(1)
	u.mu.Lock()
	if len(u.free) < 4 {
		u.free = append(u.free, it.pcm)
	}
	u.mu.Unlock()
}

// unsent puts m back at the front: the link died under it, the next one shall carry it.
func (u *uplink) unsent(m urgent) {
	u.mu.Lock()
	u.urgent = slices.Insert(u.urgent, 0, m)
	u.mu.Unlock()
	u.wake()
}

// unsentAudio does the same for a chunk.
func (u *uplink) unsentAudio(it item) {
	u.mu.Lock()
	u.queue = slices.Insert(u.queue, u.head, it)
	u.queued += it.duration()
	u.mu.Unlock()
	u.wake()
}

// Microphone is the [media.Sink] that a caller's audio enters by. It cuts what comes into chunks of 20 ms. One goroutine
// at a time.
type Microphone struct {
	up   *uplink
	rate int
	part []int16 // less than a chunk, waits for more
}

// Rate is the sample rate in Hz that the microphone was opened with.
func (m *Microphone) Rate() int { return m.rate }

// WritePCM takes mono audio of any length; it never blocks and does not keep pcm.
func (m *Microphone) WritePCM(pcm []int16) error {
	size := m.rate * int(chunk/time.Millisecond) / 1000
	if len(m.part) > 0 {
		n := min(size-len(m.part), len(pcm))
		m.part = append(m.part, pcm[:n]...)
		pcm = pcm[n:]
		if len(m.part) < size {
			return nil
		}
		m.up.audio(m.part, m.rate)
		m.part = m.part[:0]
	}
	for len(pcm) >= size {
		m.up.audio(pcm[:size], m.rate)
		pcm = pcm[size:]
	}
	m.part = append(m.part, pcm...)
	return nil
}

// Flush sends what is left of the last chunk: the microphone pauses, and the last syllable must not wait in here.
func (m *Microphone) Flush() {
	if len(m.part) > 0 {
		m.up.audio(m.part, m.rate)
		m.part = m.part[:0]
	}
}
