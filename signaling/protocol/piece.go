package protocol

import (
	"fmt"
	"iter"
	"strconv"
	"unicode/utf8"

	"voxgate/bridge"
)

// pieceSize is the text in one PIECE. JSON inside JSON at most doubles (every byte a quote or a backslash), which stays
// below 64 KiB, the message size that any peer takes (RFC 8841 section 6.1).
const pieceSize = 16 << 10

type piecePayload struct {
	ID    string `json:"id"`
	Index int    `json:"index"`
	Count int    `json:"count"`
	Data  string `json:"data"`
}

// Pieces are the messages that carry an encoded message which is too long for its data channel, in their order. id tells it from
// the others that were sent in pieces.
func Pieces(id uint64, text []byte) iter.Seq[[]byte] {
	pieces := split(text, pieceSize)
	return func(yield func([]byte) bool) {
		for i, p := range pieces {
			payload := piecePayload{ID: strconv.FormatUint(id, 10), Index: i, Count: len(pieces), Data: string(p)}
			if !yield(message(TypePiece, payload).Encode(0)) {
				return
			}
		}
	}
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

const (
	// maxPuzzles bounds the messages that may be under way in pieces at once.
	maxPuzzles = 4
	// maxPieces bounds the pieces of a message: the longest message in pieces of a quarter of pieceSize.
	maxPieces = maxLarge / (pieceSize / 4)
)

// Joiner joins the messages of which some pieces have come. The zero Joiner is ready. One goroutine at a time.
type Joiner struct {
	started map[string]*puzzle
	size    int // bytes in all of them
}

type puzzle struct {
	text []byte
	next int
}

// Add takes a piece, which must be the next of its message, and returns the message when it was the last.
func (j *Joiner) Add(m ClientMessage) ([]byte, error) {
	var piece piecePayload
	if err := m.Decode(&piece); err != nil {
		return nil, err
	}
	switch {
	case piece.ID == "":
		return nil, BadField("payload.id", "is missing")
	case piece.Count < 1 || piece.Count > maxPieces:
		return nil, BadField("payload.count", fmt.Sprintf("is %d; 1 to %d is served", piece.Count, maxPieces))
	}
	z := j.started[piece.ID]
	if z == nil {
		if len(j.started) >= maxPuzzles {
			return nil, &bridge.Error{
				Code: bridge.CodeStreamLimitExceeded, Field: "payload.id",
				Message: fmt.Sprintf("payload.id is one too many: %d messages in pieces are not complete yet", maxPuzzles),
			}
		}
		z = &puzzle{}
		if j.started == nil {
			j.started = map[string]*puzzle{}
		}
		j.started[piece.ID] = z
	}
	if piece.Index != z.next || piece.Index >= piece.Count {
		j.drop(piece.ID)
		return nil, BadField("payload.index", fmt.Sprintf("is %d where %d was expected; the message is dropped", piece.Index, z.next))
	}
	small := len(z.text) <= MaxControl
	z.text = append(z.text, piece.Data...)
	z.next++
	j.size += len(piece.Data)
	err := error(nil)
	switch {
	case len(z.text) > maxLarge:
		err = BadField("payload.data", fmt.Sprintf("makes a message of more than %d bytes", maxLarge))
	case small && len(z.text) > MaxControl:
		err = checkLong(z.text)
	case j.size > maxLarge:
		err = &bridge.Error{
			Code: bridge.CodeStreamLimitExceeded, Field: "payload.data",
			Message: fmt.Sprintf("payload.data is too much: the messages in pieces have %d bytes together; this one is dropped", maxLarge),
		}
	}
	if err == nil && z.next < piece.Count {
		return nil, nil
	}
	j.drop(piece.ID)
	if err != nil {
		return nil, err
	}
	return z.text, nil
}

func (j *Joiner) drop(id string) {
	j.size -= len(j.started[id].text)
	delete(j.started, id)
}
