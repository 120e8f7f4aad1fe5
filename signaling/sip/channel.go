package sip

// tell sends a value, unless nobody has room for it.
func tell[T any](to chan<- T, v T) {
	select {
	case to <- v:
	default:
	}
}

// reached reports whether a channel is closed.
func reached(stage <-chan struct{}) bool {
	select {
	case <-stage:
		return true
	default:
		return false
	}
}
