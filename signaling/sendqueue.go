package signaling

import (
	"context"
	"slices"
	"sync"

	"voxgate/signaling/rtc"
)

// maxQueuedBytes limits the queue of a slow client. Above it the client is disconnected: its audio would be seconds
// old.
const maxQueuedBytes = 4 << 20

// fullBytes is the queue size above which audio is held back: the size of about 15 s of audio in base64.
const fullBytes = maxQueuedBytes / 4

// ErrSlow reports that a client does not read what the gateway sends.
var ErrSlow = rtc.ErrSlow

// SendQueue holds the messages for one client. Put never blocks; one goroutine calls Run, which writes them.
type SendQueue[T any] struct {
	wake chan struct{}

	mu          sync.Mutex
	queue       []item[T]
	queuedBytes int // bytes
	isSlow      bool
	isClosed    bool
}

type item[T any] struct {
	value T
	size  int
}

// NewSendQueue returns an empty queue.
func NewSendQueue[T any]() *SendQueue[T] { return &SendQueue[T]{wake: make(chan struct{}, 1)} }

// Put queues a value of so many bytes. If more than 4 MiB are queued, it drops the value and makes Run return
// [ErrSlow]. After Close it drops the value.
func (o *SendQueue[T]) Put(value T, size int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	switch {
	case o.isClosed:
		return
	case o.queuedBytes > maxQueuedBytes:
		o.isSlow = true
	default:
		o.queue = append(o.queue, item[T]{value, size})
		o.queuedBytes += size
	}
	o.wakeWriter()
}

// Full reports whether more than 1 MiB is queued: audio should wait elsewhere, as [voxgate/media.BackpressureOutput] says.
func (o *SendQueue[T]) Full() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.queuedBytes > fullBytes
}

// Close makes the queue drop all further values; Run returns when the queue is empty.
func (o *SendQueue[T]) Close() {
	o.mu.Lock()
	o.isClosed = true
	o.mu.Unlock()
	o.wakeWriter()
}

func (o *SendQueue[T]) wakeWriter() {
	select {
	case o.wake <- struct{}{}:
	default:
	}
}

// Run calls write with one value after the other until the queue is closed and empty (nil), too much is queued
// ([ErrSlow]), ctx is done, or write fails.
func (o *SendQueue[T]) Run(ctx context.Context, write func(context.Context, T) error) error {
	for {
		value, ok, done, err := o.takeNext()
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
			case <-o.wake:
			case <-ctx.Done():
				return ctx.Err()
			}
		}
	}
}

func (o *SendQueue[T]) takeNext() (value T, ok, done bool, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.isSlow {
		return value, false, true, ErrSlow
	}
	if len(o.queue) == 0 {
		return value, false, o.isClosed, nil
	}
	first := o.queue[0]
	o.queue = slices.Delete(o.queue, 0, 1) // short, and reuses its memory
	o.queuedBytes -= first.size
	return first.value, true, false, nil
}
