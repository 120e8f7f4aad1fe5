package ua

// trySend sends a value, unless that would block.
func trySend[T any](to chan<- T, v T) {
	select {
	case to <- v:
	default:
	}
}

// isClosed reports whether a channel is closed.
func isClosed(stage <-chan struct{}) bool {
	select {
	case <-stage:
		return true
	default:
		return false
	}
}
