package playout

import "sync"

// blockSize is the number of samples in a block: 200 ms at 24 kHz, about as much as the model sends at a time.
const blockSize = 4800

type block [blockSize]int16

// blockPool holds unused blocks. All queues share it, because most queues are empty most of the time.
var blockPool = sync.Pool{New: func() any { return new(block) }}

// queue is a first-in-first-out queue of samples. It holds only as much memory as it needs.
type queue struct {
	blocks []*block // oldest first; all but the last are full
	head   int      // index of the oldest sample in the first block
	n      int      // number of samples in the queue
}

func (q *queue) len() int { return q.n }

// push appends a copy of pcm.
func (q *queue) push(pcm []int16) {
	for len(pcm) > 0 {
		end := q.head + q.n
		if end == len(q.blocks)*blockSize {
			q.blocks = append(q.blocks, blockPool.Get().(*block))
		}
		n := copy(q.blocks[len(q.blocks)-1][end%blockSize:], pcm)
		q.n, pcm = q.n+n, pcm[n:]
	}
}

// pop moves the oldest samples to dst and returns their number.
func (q *queue) pop(dst []int16) (n int) {
	for n < len(dst) && q.n > 0 {
		part := copy(dst[n:], q.blocks[0][q.head:min(blockSize, q.head+q.n)])
		q.drop(part)
		n += part
	}
	return n
}

// peek copies samples from position offset on, without removing them, and returns their number.
func (q *queue) peek(dst []int16, offset int) (n int) {
	for offset += q.head; n < len(dst) && offset < q.head+q.n; {
		part := copy(dst[n:], q.blocks[offset/blockSize][offset%blockSize:min(blockSize, q.head+q.n-offset/blockSize*blockSize)])
		n, offset = n+part, offset+part
	}
	return n
}

// drop removes the n oldest samples.
func (q *queue) drop(n int) {
	q.head, q.n = q.head+n, q.n-n
	done := q.head / blockSize
	if q.n == 0 {
		done, q.head = len(q.blocks), 0
	}
	for _, b := range q.blocks[:done] {
		blockPool.Put(b)
	}
	rest := copy(q.blocks, q.blocks[done:])
	clear(q.blocks[rest:])
	q.blocks, q.head = q.blocks[:rest], q.head%blockSize
}
