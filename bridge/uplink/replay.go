package uplink

import (
	"slices"
	"time"
)

// replayBuffer holds the items that may have to be sent again, oldest first. These are the unanswered turn, and the
// lead-in of the next speech. Uplink.mu guards it.
type replayBuffer struct {
	hasUnanswered bool // a turn has no answer yet
	items         []Item
	audioLength   time.Duration // length of the audio in items
	lostSpeech    time.Duration // length of the speech that was too long to keep

	// actedCount is the number of items at the front that made the model call a tool. actedCovered reports whether the
	// newest handle covers these items.
	actedCount     int
	actedCovered   bool
	awaitsReaction bool // the resumed session has not answered yet; it has the items acted on, which were not sent again

	settledText []Item // typed text that counts as answered

	sentIndex     int64 // index of the last message on this connection
	coveredIndex  int64 // index of the last message that the newest handle covers; 0 means unknown
	ignoreIndices bool  // the server counts messages differently, so its indices are not used
}

// coveredEarlier replaces the index of an item that was sent on an earlier connection and that the newest handle
// covers.
const coveredEarlier = -1

// recordSentIndex records the index of the last message sent. It is also the index of the newest item.
func (b *replayBuffer) recordSentIndex(sent int64) {
	b.sentIndex = sent
	if n := len(b.items); n > 0 && b.items[n-1].index == 0 {
		b.items[n-1].index = sent
	}
}

// addItem adds an item that is being sent.
func (b *replayBuffer) addItem(it Item) {
	switch {
	case it.isPrompt():
		b.hasUnanswered = true
	case it.PCM != nil || it.isIncompleteTurn():
	case !b.hasUnanswered: // a mark outside of an unanswered turn
		return
	}
	it.index = 0
	b.items = append(b.items, it)
	b.audioLength += it.duration()
	quiet, run := len(b.items), time.Duration(0)
	for quiet > 0 && b.isSilence(b.items[quiet-1]) {
		quiet--
		run += b.items[quiet].duration()
	}
	for run > leadIn {
		run -= b.items[quiet].duration()
		b.removeItems(quiet, quiet+1)
	}
	for b.audioLength > maxReplay || len(b.items) > int(maxReplay/Chunk)+maxUrgent {
		if b.hasUnanswered && b.items[0].speechNumber > 0 {
			b.lostSpeech += b.items[0].duration()
		}
		b.removeItems(0, 1)
	}
}

// isSilence reports whether the item is audio that belongs to no unanswered speech.
func (b *replayBuffer) isSilence(it Item) bool {
	return it.PCM != nil && (it.speechNumber == 0 || !b.hasUnanswered)
}

// removeItems removes items[from:to].
func (b *replayBuffer) removeItems(from, to int) {
	for _, it := range b.items[from:to] {
		b.audioLength -= it.duration()
	}
	b.items = slices.Delete(b.items, from, to)
	if from < b.actedCount {
		b.actedCount = max(from, b.actedCount-(to-from))
	}
}

// markLeadIn makes the newest audio the lead-in of the speech that has just begun. sentLength is how much of the
// lead-in was sent already.
func (b *replayBuffer) markLeadIn(speech int, sentLength time.Duration) {
	b.hasUnanswered = true
	for i := len(b.items) - 1; i >= 0 && sentLength > 0 && b.items[i].PCM != nil && b.items[i].speechNumber == 0; i-- {
		b.items[i].speechNumber = speech
		sentLength -= b.items[i].duration()
	}
}

// speechStartIndex returns the index of the first item of a speech. If speech is 0, which means no speech, it returns
// the number of items.
func (b *replayBuffer) speechStartIndex(speech int) int {
	if speech == 0 {
		return len(b.items)
	}
	if i := slices.IndexFunc(b.items, func(it Item) bool { return it.speechNumber == speech }); i >= 0 {
		return i
	}
	return len(b.items)
}

// clearAnswered empties the buffer after an answer. It keeps the speech with the number unfinishedSpeech. If that is 0,
// it keeps the newest audio as the lead-in of the next speech.
func (b *replayBuffer) clearAnswered(unfinishedSpeech int) {
	end := b.speechStartIndex(unfinishedSpeech)
	for left := leadIn; unfinishedSpeech == 0 && end > 0 && left > 0 && b.items[end-1].PCM != nil; left -= b.items[end].duration() {
		end--
	}
	b.settledText = slices.DeleteFunc(slices.Clone(b.items), func(it Item) bool { return !it.isPrompt() })
	b.removeItems(0, end)
	b.items = slices.DeleteFunc(b.items, Item.isPrompt) // typed text that came during the unfinished speech is answered, too
	b.hasUnanswered = unfinishedSpeech > 0
	b.actedCount, b.actedCovered, b.awaitsReaction, b.lostSpeech = 0, false, false, 0
}

// reopenTypedText marks typed text as unanswered again, because the answer was not for that text.
func (b *replayBuffer) reopenTypedText() {
	b.items = append(b.items, b.settledText...)
	b.hasUnanswered = b.hasUnanswered || len(b.settledText) > 0
	b.settledText = nil
}

// markActedOn records that what was sent so far has made the model call a tool. It leaves out the speech with the
// number unfinishedSpeech; 0 means that all speech is finished.
func (b *replayBuffer) markActedOn(unfinishedSpeech int) {
	b.actedCount, b.actedCovered = b.speechStartIndex(unfinishedSpeech), false
}

// recordHandle records a new handle. covered is the index of the last message that the handle covers.
func (b *replayBuffer) recordHandle(covered int64) {
	const slack = 10 // the messages of the item being sent are not counted yet
	b.actedCovered = b.actedCount > 0
	b.ignoreIndices = b.ignoreIndices || covered > b.sentIndex+slack
	if b.coveredIndex = covered; b.ignoreIndices {
		b.coveredIndex = 0
	}
	for i := len(b.items) - 1; i >= 0; i-- {
		// A resumed session already has the text that the handle covers.
		it := b.items[i]
		isCovered := b.coveredIndex == 0 || it.index == coveredEarlier || it.index > 0 && it.index <= b.coveredIndex
		if it.isIncompleteTurn() && isCovered {
			b.removeItems(i, i+1)
		}
	}
}

// needsReplay reports whether something must be sent again to a resumed session. Input that made the model call a tool
// is not sent again if the handle covers the call.
func (b *replayBuffer) needsReplay() bool {
	return b.hasUnanswered && (!b.actedCovered || slices.ContainsFunc(b.items[b.actedCount:],
		func(it Item) bool { return it.speechNumber > 0 || it.isPrompt() }))
}

// takeReplay empties the buffer and returns the items to send again. The turn still counts as unanswered. isSpeaking
// means that a speech is in progress. lostSpeech is how much of the speech is missing because it was too long to keep.
//
// A complete question is always sent again, because Google does not document whether a resumed session answers a
// question from before the resume.
func (b *replayBuffer) takeReplay(isNewSession, isSpeaking bool) (again []Item, lostSpeech time.Duration) {
	skip, open := 0, b.hasUnanswered
	if b.actedCovered && !isNewSession {
		skip, open = b.actedCount, b.needsReplay()
	}
	again, lostSpeech = b.items[skip:], b.lostSpeech
	if !open {
		again = slices.DeleteFunc(slices.Clone(again), func(it Item) bool { return !it.isIncompleteTurn() })
	}
	rest := replayBuffer{hasUnanswered: open, awaitsReaction: !isNewSession && (skip > 0 || b.awaitsReaction), ignoreIndices: b.ignoreIndices}
	// During a speech, a resumed session gets only the items that the handle does not cover. The other items are kept
	// for another replay.
	if isSpeaking && !isNewSession {
		var uncovered []Item
		for _, it := range again {
			if it.index != coveredEarlier && (it.index == 0 || it.index > b.coveredIndex) {
				uncovered = append(uncovered, it)
				continue
			}
			it.index = coveredEarlier
			rest.items = append(rest.items, it)
			rest.audioLength += it.duration()
		}
		again = uncovered
		if len(rest.items) > 0 { // the audio that was too long to keep is older, so the session has it, too
			rest.lostSpeech, lostSpeech = lostSpeech, 0
		}
	}
	*b = rest
	return again, lostSpeech
}
