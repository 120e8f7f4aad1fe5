// Package crash keeps a panic in a goroutine of one call from ending the gateway: the panic is logged with its stack and counted, and ends
// that call. Whatever starts a goroutine for a call runs it by [Run], or defers [Contain] in it. Goroutines that belong to no call are not
// contained: a gateway whose common parts have failed had better be started again.
package crash

import (
	"fmt"
	"log/slog"
	"net/http"
	"runtime/debug"
	"sync"
	"sync/atomic"
)

// Error is a panic that was contained. Its text is for clients, too: only the log has the value.
type Error struct {
	Place string // which kind of goroutine it was, as in the metric
	Value any
}

func (e *Error) Error() string { return "an internal error of the gateway (" + e.Place + ")" }

// Places are the kinds of goroutines that a call has.
var Places = []string{
	"session", "playout", "model connection", "model request", "tool", "recording", "caller", "request",
	"socket reader", "socket writer", "data channel", "peer", "microphone", "camera", "rtcp",
	"sip request", "sip call", "sip media", "keypad", "report",
}

var (
	counts   sync.Map // *atomic.Uint64, by place
	injected atomic.Pointer[func(place string)]
)

// Contain recovers a panic of the goroutine that defers it, logs it (to the default logger, if log is nil) and counts it. Then it calls
// end, which may be nil, with an [*Error].
func Contain(log *slog.Logger, place string, end func(error)) {
	v := recover()
	if v == nil {
		return
	}
	if v == http.ErrAbortHandler { // no fault: a handler ends its connection by it
		panic(v)
	}
	n, _ := counts.LoadOrStore(place, new(atomic.Uint64))
	n.(*atomic.Uint64).Add(1)
	if log == nil {
		log = slog.Default()
	}
	log.Error("panic", "place", place, "panic", fmt.Sprint(v), "stack", string(debug.Stack()))
	if end != nil {
		end(&Error{place, v})
	}
}

// Run calls f, and contains its panic.
func Run(log *slog.Logger, place string, end func(error), f func()) {
	defer Contain(log, place, end)
	Check(place)
	f()
}

// Count returns how many panics were contained at a place.
func Count(place string) uint64 {
	if n, ok := counts.Load(place); ok {
		return n.(*atomic.Uint64).Load()
	}
	return 0
}

// Check calls what a test has injected, which may panic. It stands where [Run] begins, and costs an atomic load.
func Check(place string) {
	if f := injected.Load(); f != nil {
		(*f)(place)
	}
}

// Inject has f called at each place until restore is called. It is for tests.
func Inject(f func(place string)) (restore func()) {
	injected.Store(&f)
	return func() { injected.Store(nil) }
}
