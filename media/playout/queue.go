package playout

// queue is a first-in-first-out queue of samples. Once it has grown it allocates nothing.
type queue struct {
	buf  []int16
	head int
}

func (q *queue) len() int { return len(q.buf) - q.head }

// push appends a copy of pcm.
func (q *queue) push(pcm []int16) {
	if len(q.buf)+len(pcm) > cap(q.buf) && q.head > len(q.buf)/2 {
		q.buf = q.buf[:copy(q.buf, q.buf[q.head:])]
		q.head = 0
	}
	q.buf = append(q.buf, pcm...)
}

// pop moves the oldest samples to dst and returns their number.
func (q *queue) pop(dst []int16) int {
	n := copy(dst, q.buf[q.head:])
	q.drop(n)
	return n
}

// drop removes the n oldest samples.
func (q *queue) drop(n int) {
	q.head += n
	if q.head < len(q.buf) {
		return
	}
	q.buf, q.head = q.buf[:0], 0
	if cap(q.buf) > keepQueue {
		q.buf = nil
	}
}

// keepQueue is how many samples of memory an empty queue keeps: 10 s at 24 kHz, an ordinary answer. What a longer one took
// is given back, or a thousand idle calls would hold their longest answers for good.
const keepQueue = 10 * 24000
