package signaling

import (
	"context"
	"slices"
	"sync"

	"voxgate/signaling/rtc"
)

// maxWaiting bounds what waits for a slow client, in bytes. Above it the client is dropped: what it would hear is seconds
// old.
const maxWaiting = 4 << 20

// muchWaiting is how much may wait before voice that is far ahead is held back, in bytes: a quarter of a minute of it in base64.
const muchWaiting = maxWaiting / 4

// ErrSlow says that a client does not read what we send.
var ErrSlow = rtc.ErrSlow

// Outbox holds what waits to go to a client. Many put in, which never blocks, and one goroutine, which runs Run, writes.
type Outbox[T any] struct {
	wake chan struct{}

	mu      sync.Mutex
	queue   []item[T]
	waiting int // bytes
	slow    bool
	closed  bool
}

type item[T any] struct {
	value T
	size  int
}

// NewOutbox returns an empty outbox.
func NewOutbox[T any]() *Outbox[T] { return &Outbox[T]{wake: make(chan struct{}, 1)} }

// Put queues something of so many bytes. After 4 MiB that wait, and after Close, it is dropped; the former ends Run.
func (o *Outbox[T]) Put(value T, size int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	switch {
	case o.closed:
		return
	case o.waiting > maxWaiting:
		o.slow = true
	default:
		o.queue = append(o.queue, item[T]{value, size})
		o.waiting += size
	}
	o.signal()
}

// Full reports whether a MiB waits already: voice that can wait elsewhere should. It is a [media.BackpressureOutput]'s answer.
func (o *Outbox[T]) Full() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.waiting > muchWaiting
}

// Close accepts nothing more; Run returns when the queue is empty.
func (o *Outbox[T]) Close() {
	o.mu.Lock()
	o.closed = true
	o.mu.Unlock()
	o.signal()
}

func (o *Outbox[T]) signal() {
	select {
	case o.wake <- struct{}{}:
	default:
	}
}

// Run calls write with one thing after the other until the outbox is closed and empty (nil), too much waits ([ErrSlow]), ctx is
// done, or write fails.
func (o *Outbox[T]) Run(ctx context.Context, write func(context.Context, T) error) error {
	for {
		value, ok, done, err := o.next()
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

func (o *Outbox[T]) next() (value T, ok, done bool, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.slow {
		return value, false, true, ErrSlow
	}
	if len(o.queue) == 0 {
		return value, false, o.closed, nil
	}
	first := o.queue[0]
	o.queue = slices.Delete(o.queue, 0, 1) // it is short, and keeps its memory
	o.waiting -= first.size
	return first.value, true, false, nil
}
