package signaling

import (
	"context"
	"slices"
	"sync"

	"voxgate/signaling/rtc"
)

// maxQueuedBytes limits the queue of a slow client, in bytes. If the queue is longer, the client is disconnected,
// because its audio would be seconds old.
const maxQueuedBytes = 4 << 20

// fullBytes is the queue size above which audio is held back, in bytes. It is about 15 s of audio in base64.
const fullBytes = maxQueuedBytes / 4

// ErrSlow reports that a client does not read what the gateway sends.
var ErrSlow = rtc.ErrSlow

// SendQueue holds the messages for one client. Put never blocks. One goroutine must call Run, which writes the
// messages.
type SendQueue[T any] struct {
	wake chan struct{}

	mu          sync.Mutex
	queue       []item[T]
	queuedBytes int // sum of the sizes in queue
	isSlow      bool
	isClosed    bool
}

type item[T any] struct {
	value T
	size  int
}

// NewSendQueue returns an empty queue.
func NewSendQueue[T any]() *SendQueue[T] { return &SendQueue[T]{wake: make(chan struct{}, 1)} }

// Put queues a value of size bytes. If more than 4 MiB are queued, it drops the value, and Run returns [ErrSlow]. After
// Close it drops all values.
func (s *SendQueue[T]) Put(value T, size int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.isClosed:
		return
	case s.queuedBytes > maxQueuedBytes:
		s.isSlow = true
	default:
		s.queue = append(s.queue, item[T]{value, size})
		s.queuedBytes += size
	}
	s.wakeWriter()
}

// Full reports whether more than 1 MiB is queued. The caller should then hold back audio: see
// [voxgate/media.BackpressureOutput].
func (s *SendQueue[T]) Full() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.queuedBytes > fullBytes
}

// Close makes the queue drop all further values. Run returns when it has written the values that are already queued.
func (s *SendQueue[T]) Close() {
	s.mu.Lock()
	s.isClosed = true
	s.mu.Unlock()
	s.wakeWriter()
}

func (s *SendQueue[T]) wakeWriter() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// Run calls write with one value after the other. It returns nil when the queue is closed and empty. It returns
// [ErrSlow] if too much is queued, and otherwise the error of write or of ctx.
func (s *SendQueue[T]) Run(ctx context.Context, write func(context.Context, T) error) error {
	for {
		value, ok, done, err := s.takeNext()
		switch {
		case err != nil:
			return err
		case ok:
			if err := write(ctx, value); err != nil {
				return err
			}
		case done:
			return nil
		default:
			select {
			case <-s.wake:
			case <-ctx.Done():
				return ctx.Err()
			}
		}
	}
}

// takeNext removes the oldest value and returns it. ok is false if the queue is empty. isDone is true if no more values
// will follow.
func (s *SendQueue[T]) takeNext() (value T, ok, isDone bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.isSlow {
		return value, false, true, ErrSlow
	}
	if len(s.queue) == 0 {
		return value, false, s.isClosed, nil
	}
	first := s.queue[0]
	s.queue = slices.Delete(s.queue, 0, 1) // moves the rest, which is short, and reuses the memory
	s.queuedBytes -= first.size
	return first.value, true, false, nil
}
