package openai

import (
	"time"

	"voxgate/media"
	"voxgate/media/vad"
)

// Durations for the start and the end of speech, the same as in the engine's own VAD.
const (
	vadOnset    = 60 * time.Millisecond
	vadHangover = 240 * time.Millisecond
	// minAnsweredSpeech is the shortest speech that a model answers.
	minAnsweredSpeech = 300 * time.Millisecond
)

// speechState is the state of the person's last speech.
type speechState int

const (
	nothingToAnswer speechState = iota // nothing to answer
	speechCommitted                    // the client may request an answer
	answerExpected                     // the model answers without a request
)

// userSpeech follows the person's speech.
type userSpeech struct {
	*clientRecord
	received     time.Duration // duration of all received audio
	speechStart  time.Duration // position in the received audio at which the current speech began
	itemID       string        // id of the item for the current speech, or ""
	state        speechState
	activityOpen bool // an ActivityStart was sent to the model, and no ActivityEnd after it

	lastItem        *item  // the newest committed item, or nil
	earlyTranscript string // transcript that arrived before its item
	transcriptTurn  int    // turn of the newest complete transcript

	vad          vad.Detector
	partialFrame []int16 // less than a frame of audio
}

// resetState discards the state of the current speech, because the turn-taking mode has changed.
func (e *userSpeech) resetState() {
	e.itemID, e.state, e.activityOpen, e.partialFrame = "", nothingToAnswer, false, nil
}

// startSpeech reports the start of speech. at is the position in the audio at which it was detected.
func (e *userSpeech) startSpeech(at time.Duration) {
	e.itemID = e.newID("item")
	padding := time.Duration(e.session.Audio.Input.TurnDetection.paddingMS()) * time.Millisecond
	e.speechStart = max(0, at-vadOnset-padding)
	e.emitEvent("input_audio_buffer.speech_started", object{"item_id": e.itemID, "audio_start_ms": e.speechStart.Milliseconds()})
}

// stopSpeech reports the end of speech, if there is any, and creates its item.
func (e *userSpeech) stopSpeech(at time.Duration) {
	if e.itemID == "" {
		return
	}
	e.emitEvent("input_audio_buffer.speech_stopped", object{"item_id": e.itemID, "audio_end_ms": at.Milliseconds()})
	e.commitSpeech(e.itemID, at)
}

// commitSpeech creates the item for the current speech, which ends at the position until.
func (e *userSpeech) commitSpeech(id string, until time.Duration) {
	i := newMessage(id, roleUser, completed, part{Type: inputAudio})
	i.voiceDuration = max(0, until-e.speechStart)
	e.emitEvent("input_audio_buffer.committed", object{"item_id": id, "previous_item_id": e.lastItemID()})
	e.addItem(i, len(e.items))
	e.emitItemDone(i)
	e.itemID, e.lastItem, e.speechStart = "", i, until
	switch {
	case e.session.turnMode() != engineDetectsTurns:
		e.state = speechCommitted
	case i.voiceDuration >= minAnsweredSpeech:
		e.state = answerExpected
	default:
		e.state = nothingToAnswer
	}
	if early := e.earlyTranscript; early != "" {
		e.earlyTranscript = ""
		e.addTranscript(early, false)
	}
}

// onIdleTimeout reports that the person has been silent for the idle timeout, and that the model is prompted to speak.
func (e *userSpeech) onIdleTimeout() {
	d := e.session.Audio.Input.TurnDetection
	if d == nil || d.IdleTimeoutMS == nil || e.itemID != "" {
		return
	}
	id := e.newID("item")
	e.speechStart = max(0, e.received-time.Duration(*d.IdleTimeoutMS)*time.Millisecond)
	e.emitEvent("input_audio_buffer.timeout_triggered",
		object{"item_id": id, "audio_start_ms": e.speechStart.Milliseconds(), "audio_end_ms": e.received.Milliseconds()})
	e.commitSpeech(id, e.received)
}

// markAnswered records that the last speech was answered, in the mode in which the model answers without a request.
func (e *userSpeech) markAnswered() {
	if e.state == answerExpected {
		e.state = nothingToAnswer
	}
}

// addTranscript reports a transcript of the person's speech: the next piece, or the whole.
func (e *userSpeech) addTranscript(text string, whole bool) {
	if e.lastItem == nil || e.itemID != "" || e.lastItem.Content[0].Transcript != nil { // the item of this transcript does not exist yet
		if !whole {
			e.earlyTranscript += text
			return
		}
		e.earlyTranscript = ""
		if e.itemID != "" {
			e.stopSpeech(e.received)
		} else { // the model has understood speech that was not detected here
			e.commitSpeech(e.newID("item"), e.received)
		}
	}
	i := e.lastItem
	if whole {
		i.Content[0].Transcript = &text
	}
	if e.session.Audio.Input.Transcription == nil {
		return
	}
	where := object{"item_id": i.ID, "content_index": 0}
	if !whole {
		where["delta"] = text
		e.emitEvent("conversation.item.input_audio_transcription.delta", where)
		return
	}
	where["transcript"] = text
	where["usage"] = object{"type": "duration", "seconds": float64(i.voiceDuration.Milliseconds()) / 1000}
	e.emitEvent("conversation.item.input_audio_transcription.completed", where)
}

// detectSpeech detects speech in audio. It calls onStart before it reports a start of speech.
func (e *userSpeech) detectSpeech(pcm []int16, rate int, onStart func()) {
	e.vad.Onset, e.vad.Hangover = vadOnset, max(vadHangover, time.Duration(e.session.Audio.Input.TurnDetection.silenceMS())*time.Millisecond)
	e.partialFrame = append(e.partialFrame, pcm...)
	pending, received := e.partialFrame, e.received
	for frame := rate / 50; len(pending) >= frame; pending = pending[frame:] {
		e.received = received - media.Duration(len(pending)-frame, rate)
		switch speaks := e.vad.ProcessFrame(pending[:frame], rate); {
		case speaks && e.itemID == "":
			onStart()
			e.startSpeech(e.received)
		case !speaks:
			e.stopSpeech(e.received)
		}
	}
	e.partialFrame, e.received = append(e.partialFrame[:0], pending...), received
}
