package media

import "errors"

var (
	// ErrPlayoutFull says that a write to a Playout was refused since two minutes of sound are waiting already.
	ErrPlayoutFull = errors.New("playout is full")
	// ErrPlayoutClosed says that a write to a Playout came after its Close.
	ErrPlayoutClosed = errors.New("playout is closed")

	errEmptyPacket = errors.New("empty Opus packet")
	errFrameSize   = errors.New("frame is not 20 ms long")
)
