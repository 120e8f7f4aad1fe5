package protocol

import (
	"fmt"
	"iter"
	"strconv"
	"unicode/utf8"

	"voxgate/bridge"
)

// pieceSize is the size of the text in one PIECE, in bytes. Even if JSON escaping doubles it, the message stays below
// 64 KiB, which every peer supports (RFC 8841 section 6.1).
const pieceSize = 16 << 10

type piecePayload struct {
	ID    string `json:"id"`
	Index int    `json:"index"`
	Count int    `json:"count"`
	Data  string `json:"data"`
}

// SplitMessage splits an encoded message that is too long for its data channel into PIECE messages, in order. id
// identifies the message.
func SplitMessage(id uint64, text []byte) iter.Seq[[]byte] {
	pieces := splitText(text, pieceSize)
	return func(yield func([]byte) bool) {
		for i, p := range pieces {
			payload := piecePayload{ID: strconv.FormatUint(id, 10), Index: i, Count: len(pieces), Data: string(p)}
			if !yield(newMessage(TypePiece, payload).Encode(0)) {
				return
			}
		}
	}
}

// splitText cuts text into pieces of at most size bytes, at character boundaries.
func splitText(text []byte, size int) [][]byte {
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
	// maxIncomplete limits the number of incomplete messages.
	maxIncomplete = 4
	// maxPieces limits the pieces of a message. Even the longest message fits if its pieces are only a quarter as long
	// as pieceSize.
	maxPieces = maxLarge / (pieceSize / 4)
)

// Joiner reassembles messages from pieces. The zero Joiner is ready to use. It is not safe for concurrent use.
type Joiner struct {
	started map[string]*partialMessage
	size    int // total length of the pieces, in bytes
}

type partialMessage struct {
	text []byte
	next int
}

// AddPiece adds a piece, which must be the next one of its message. It returns the whole message after its last piece,
// otherwise nil.
func (j *Joiner) AddPiece(m ClientMessage) (message []byte, err error) {
	var piece piecePayload
	if err := m.DecodePayload(&piece); err != nil {
		return nil, err
	}
	switch {
	case piece.ID == "":
		return nil, BadField("payload.id", "is missing")
	case piece.Count < 1 || piece.Count > maxPieces:
		return nil, BadField("payload.count", fmt.Sprintf("is %d; it must be 1 to %d", piece.Count, maxPieces))
	}
	z := j.started[piece.ID]
	if z == nil {
		if len(j.started) >= maxIncomplete {
			return nil, &bridge.Error{
				Code: bridge.CodeStreamLimitExceeded, Field: "payload.id",
				Message: fmt.Sprintf("payload.id begins one message too many: %d messages in pieces are incomplete", maxIncomplete),
			}
		}
		z = &partialMessage{}
		if j.started == nil {
			j.started = map[string]*partialMessage{}
		}
		j.started[piece.ID] = z
	}
	if piece.Index != z.next || piece.Index >= piece.Count {
		j.discardPartial(piece.ID)
		return nil, BadField("payload.index", fmt.Sprintf("is %d where %d was expected; the message is dropped", piece.Index, z.next))
	}
	small := len(z.text) <= MaxControl
	z.text = append(z.text, piece.Data...)
	z.next++
	j.size += len(piece.Data)
	switch {
	case len(z.text) > maxLarge:
		err = BadField("payload.data", fmt.Sprintf("makes a message of more than %d bytes", maxLarge))
	case small && len(z.text) > MaxControl:
		err = checkLargeType(z.text)
	case j.size > maxLarge:
		err = &bridge.Error{
			Code: bridge.CodeStreamLimitExceeded, Field: "payload.data",
			Message: fmt.Sprintf("payload.data is too long: all messages in pieces may have %d bytes together; this one is dropped", maxLarge),
		}
	}
	if err == nil && z.next < piece.Count {
		return nil, nil
	}
	j.discardPartial(piece.ID)
	if err != nil {
		return nil, err
	}
	return z.text, nil
}

func (j *Joiner) discardPartial(id string) {
	j.size -= len(j.started[id].text)
	delete(j.started, id)
}
