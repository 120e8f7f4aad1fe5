package phone

// TrySend sends a value, unless that would block.
func TrySend[T any](to chan<- T, v T) {
	select {
	case to <- v:
	default:
	}
}
