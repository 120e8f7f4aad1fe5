package signaling

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"
	"unicode/utf8"

	"voxgate/bridge"
)

// way is how a message travels.
type way int

const (
	events  way = iota // the data channel while it is open, else the socket
	socket             // the WebSocket, or the channel when it is gone
	channel            // the data channel, or the socket when it is gone
)

const (
	// maxWaiting bounds what waits for a slow client, in bytes. Above it the client is dropped: what it would hear
	// is seconds old.
	maxWaiting = 4 << 20

	// maxBuffered is how much the data channel may hold before we wait for it.
	maxBuffered = 1 << 20

	// slowChannel is how long the data channel may take to get below maxBuffered.
	slowChannel = 10 * time.Second

	// pieceSize is the text in one PIECE. JSON inside JSON at most doubles (every byte a quote or a backslash),
	// which stays below 64 KiB, the message size that any peer takes (RFC 8841 section 6.1).
	pieceSize = 16 << 10
)

var errSlow = errors.New("the client does not read fast enough")

// line is one of the two ways to the client, as the outbox sees it.
type line interface {
	write(message []byte) error
	// limit is the longest message it takes, in bytes; 0: any.
	limit() int
	// ready blocks until the line takes more, or ctx is done.
	ready(ctx context.Context) error
}

// outbox holds what waits to go to a client. One goroutine writes, whichever way it goes, so that the last event on
// the old way is sent before the first on the new one.
type outbox struct {
	wake chan struct{}

	mu       sync.Mutex
	queue    []letter
	waiting  int
	seq      uint64
	pieces   uint64
	overflow bool
	closed   bool // nothing more is accepted
	lines    [channel + 1]line
}

type letter struct {
	way  way
	text []byte
}

func newOutbox() *outbox { return &outbox{wake: make(chan struct{}, 1)} }

// put queues a message. It never blocks.
func (o *outbox) put(w way, kind string, payload []byte) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.closed {
		return
	}
	if o.waiting > maxWaiting {
		o.overflow = true
		o.signal()
		return
	}
	seq := uint64(0)
	if w == events {
		o.seq++
		seq = o.seq
	}
	text := encode(kind, payload, seq)
	o.queue = append(o.queue, letter{w, text})
	o.waiting += len(text)
	o.signal()
}

func (o *outbox) signal() {
	select {
	case o.wake <- struct{}{}:
	default:
	}
}

// connect sets or, with nil, takes away one of the two lines: socket or channel.
func (o *outbox) connect(w way, l line) {
	o.mu.Lock()
	o.lines[w] = l
	o.mu.Unlock()
	o.signal()
}

// close accepts nothing more; run returns when the queue is empty.
func (o *outbox) close() {
	o.mu.Lock()
	o.closed = true
	o.mu.Unlock()
	o.signal()
}

// next takes the oldest message and the line that it shall go by now. done is true when there will be none.
func (o *outbox) next() (l letter, by line, done bool, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.overflow {
		return letter{}, nil, true, errSlow
	}
	if len(o.queue) == 0 {
		return letter{}, nil, o.closed, nil
	}
	l = o.queue[0]
	by = o.lines[channel]
	if other := o.lines[socket]; by == nil || l.way == socket && other != nil {
		by = other
	} else if other != nil && by.limit() > 0 && len(l.text) > by.limit() {
		by = other // too long for the channel
	}
	if by == nil {
		return letter{}, nil, o.closed, nil // nobody there: wait, the caller's loop decides what that means
	}
	o.queue[0] = letter{}
	o.queue = o.queue[1:]
	o.waiting -= len(l.text)
	return l, by, false, nil
}

// run writes until the outbox is closed and empty, the client is too slow (errSlow), or ctx is done. A line that fails
// is reported to lost and not used again.
func (o *outbox) run(ctx context.Context, lost func(line)) error {
	for {
		l, by, done, err := o.next()
		if err != nil {
			return err
		}
		if by == nil {
			if done {
				return nil
			}
			select {
			case <-o.wake:
				continue
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		if err := o.write(ctx, by, l.text); errors.Is(err, errSlow) {
			return err
		} else if err != nil {
			o.drop(by)
			lost(by)
		}
	}
}

// drop forgets a line that failed.
func (o *outbox) drop(by line) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for w, l := range o.lines {
		if l == by {
			o.lines[w] = nil
		}
	}
}

// write sends one message, in pieces if it must be.
func (o *outbox) write(ctx context.Context, by line, text []byte) error {
	limit := by.limit()
	if limit == 0 || len(text) <= limit {
		if err := by.ready(ctx); err != nil {
			return err
		}
		return by.write(text)
	}
	o.mu.Lock()
	o.pieces++
	id := strconv.FormatUint(o.pieces, 10)
	o.mu.Unlock()
	pieces := split(text, pieceSize)
	for i, p := range pieces {
		if err := by.ready(ctx); err != nil {
			return err
		}
		payload := marshal(piecePayload{ID: id, Index: i, Count: len(pieces), Data: string(p)})
		if err := by.write(encode(typePiece, payload, 0)); err != nil {
			return err
		}
	}
	return nil
}

// split cuts text into pieces of at most size bytes that end between two characters.
func split(text []byte, size int) [][]byte {
	var pieces [][]byte
	for len(text) > size {
		n := size
		for n > 0 && !utf8.RuneStart(text[n]) {
			n--
		}
		pieces = append(pieces, text[:n])
		text = text[n:]
	}
	return append(pieces, text)
}

type piecePayload struct {
	ID    string `json:"id"`
	Index int    `json:"index"`
	Count int    `json:"count"`
	Data  string `json:"data"`
}

const (
	// maxPuzzles bounds the messages that may be under way in pieces at once.
	maxPuzzles = 4
	// maxPieces bounds the pieces of a message: the longest message in pieces of a quarter of pieceSize.
	maxPieces = maxLarge / (pieceSize / 4)
)

// puzzles are the messages of which some pieces have come. One goroutine at a time.
type puzzles map[string]*puzzle

type puzzle struct {
	text []byte
	next int
}

// add takes a piece, which must be the next of its message, and returns the message when it was the last.
func (p puzzles) add(e envelope) ([]byte, error) {
	var piece piecePayload
	if err := e.decode(&piece); err != nil {
		return nil, err
	}
	switch {
	case piece.ID == "":
		return nil, badField("payload.id", "is missing")
	case piece.Count < 1 || piece.Count > maxPieces:
		return nil, badField("payload.count", fmt.Sprintf("is %d; 1 to %d is served", piece.Count, maxPieces))
	}
	z := p[piece.ID]
	if z == nil {
		if len(p) >= maxPuzzles {
			return nil, &bridge.Error{
				Code: bridge.CodeStreamLimitExceeded, Field: "payload.id",
				Message: fmt.Sprintf("payload.id is one too many: %d messages in pieces are not complete yet", maxPuzzles),
			}
		}
		z = &puzzle{}
		p[piece.ID] = z
	}
	if piece.Index != z.next || piece.Index >= piece.Count {
		delete(p, piece.ID)
		return nil, badField("payload.index", fmt.Sprintf("is %d where %d was expected; the message is dropped", piece.Index, z.next))
	}
	z.text = append(z.text, piece.Data...)
	z.next++
	if len(z.text) > maxLarge {
		delete(p, piece.ID)
		return nil, badField("payload.data", fmt.Sprintf("makes a message of more than %d bytes", maxLarge))
	}
	if z.next < piece.Count {
		return nil, nil
	}
	delete(p, piece.ID)
	return z.text, nil
}
