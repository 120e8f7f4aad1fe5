// Package crash prevents a panic in a goroutine of one call from ending the gateway: the panic is logged with its stack and counted,
// and ends only this call. Code that starts a goroutine for a call uses [Run], or defers [Recover] in it. Goroutines that belong to
// no call are not protected: a gateway whose shared parts have failed should restart.
package crash

import (
	"fmt"
	"log/slog"
	"net/http"
	"runtime/debug"
	"sync"
	"sync/atomic"
)

// Error is a recovered panic. Its text is safe for clients: only the log shows the value.
type Error struct {
	Place string // kind of goroutine: one of Places, and a label of the metric
	Value any
}

func (e *Error) Error() string { return "an internal error of the gateway (" + e.Place + ")" }

// Places are the kinds of goroutines of a call.
var Places = []string{
	"session", "playout", "model connection", "model request", "tool", "recording", "caller", "request",
	"socket reader", "socket writer", "data channel", "peer", "microphone", "camera", "rtcp",
	"sip request", "sip call", "sip media", "keypad", "report",
}

var (
	counts   sync.Map // *atomic.Uint64, by place
	injected atomic.Pointer[func(place string)]
)

// Recover recovers a panic of the goroutine that defers it. It counts the panic and logs it to log, or to the default
// logger. Then it calls onPanic, unless nil, with an [*Error].
func Recover(log *slog.Logger, place string, onPanic func(error)) {
	v := recover()
	if v == nil {
		return
	}
	if v == http.ErrAbortHandler { // not a fault: a handler panics with it to abort its connection
		panic(v)
	}
	n, _ := counts.LoadOrStore(place, new(atomic.Uint64))
	n.(*atomic.Uint64).Add(1)
	if log == nil {
		log = slog.Default()
	}
	log.Error("panic", "place", place, "panic", fmt.Sprint(v), "stack", string(debug.Stack()))
	if onPanic != nil {
		onPanic(&Error{place, v})
	}
}

// Run calls f, and recovers a panic of f as [Recover] does.
func Run(log *slog.Logger, place string, onPanic func(error), f func()) {
	defer Recover(log, place, onPanic)
	RunTestHook(place)
	f()
}

// PanicCount returns how many panics were recovered at a place.
func PanicCount(place string) uint64 {
	if n, ok := counts.Load(place); ok {
		return n.(*atomic.Uint64).Load()
	}
	return 0
}

// RunTestHook calls the function that a test has set with [SetTestHook], which may panic. [Run] calls RunTestHook before its function.
// If no function is set, it costs one atomic load.
func RunTestHook(place string) {
	if f := injected.Load(); f != nil {
		(*f)(place)
	}
}

// SetTestHook makes f run at each place until restore is called. It is for tests.
func SetTestHook(f func(place string)) (restore func()) {
	injected.Store(&f)
	return func() { injected.Store(nil) }
}
