package openai

import (
	"time"

	"voxgate/media"
	"voxgate/media/vad"
)

// Durations for detecting the start and the end of speech. The engine's own VAD uses the same.
const (
	vadOnset    = 60 * time.Millisecond
	vadHangover = 240 * time.Millisecond
	// minAnsweredSpeech is the shortest speech that a model answers.
	minAnsweredSpeech = 300 * time.Millisecond
)

// speechState is the state of the person's last speech.
type speechState int

const (
	nothingToAnswer speechState = iota // no speech, or it was answered, or is too short for an answer
	speechCommitted                    // the model answers it when the client sends response.create
	answerExpected                     // the model answers it without a response.create
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
	partialFrame []int16 // audio that is kept until a frame for vad is complete
}

// resetState discards the state of the current speech, because the turn-taking mode has changed.
func (u *userSpeech) resetState() {
	u.itemID, u.state, u.activityOpen, u.partialFrame = "", nothingToAnswer, false, nil
}

// startSpeech reports the start of speech. `at` is the position in the audio at which the start was detected.
func (u *userSpeech) startSpeech(at time.Duration) {
	u.itemID = u.newID("item")
	padding := time.Duration(u.session.Audio.Input.TurnDetection.paddingMS()) * time.Millisecond
	u.speechStart = max(0, at-vadOnset-padding)
	u.emitEvent("input_audio_buffer.speech_started", object{"item_id": u.itemID, "audio_start_ms": u.speechStart.Milliseconds()})
}

// stopSpeech reports the end of speech at the position `at`, and creates its item. Without speech it does nothing.
func (u *userSpeech) stopSpeech(at time.Duration) {
	if u.itemID == "" {
		return
	}
	u.emitEvent("input_audio_buffer.speech_stopped", object{"item_id": u.itemID, "audio_end_ms": at.Milliseconds()})
	u.commitSpeech(u.itemID, at)
}

// commitSpeech creates the item for the current speech, which ends at the position end.
func (u *userSpeech) commitSpeech(id string, end time.Duration) {
	i := newMessage(id, roleUser, completed, part{Type: inputAudio})
	i.voiceDuration = max(0, end-u.speechStart)
	u.emitEvent("input_audio_buffer.committed", object{"item_id": id, "previous_item_id": u.lastItemID()})
	u.addItem(i, len(u.items))
	u.emitItemDone(i)
	u.itemID, u.lastItem, u.speechStart = "", i, end
	switch {
	case u.session.turnMode() != engineDetectsTurns:
		u.state = speechCommitted
	case i.voiceDuration >= minAnsweredSpeech:
		u.state = answerExpected
	default:
		u.state = nothingToAnswer
	}
	if early := u.earlyTranscript; early != "" {
		u.earlyTranscript = ""
		u.addTranscript(early, false)
	}
}

// onIdleTimeout reports that the person has been silent for the idle timeout, so that the model will now be asked to
// speak.
func (u *userSpeech) onIdleTimeout() {
	d := u.session.Audio.Input.TurnDetection
	if d == nil || d.IdleTimeoutMS == nil || u.itemID != "" {
		return
	}
	id := u.newID("item")
	u.speechStart = max(0, u.received-time.Duration(*d.IdleTimeoutMS)*time.Millisecond)
	u.emitEvent("input_audio_buffer.timeout_triggered",
		object{"item_id": id, "audio_start_ms": u.speechStart.Milliseconds(), "audio_end_ms": u.received.Milliseconds()})
	u.commitSpeech(id, u.received)
}

// markAnswered records that the last speech was answered, in the mode in which the model answers without a request.
func (u *userSpeech) markAnswered() {
	if u.state == answerExpected {
		u.state = nothingToAnswer
	}
}

// addTranscript reports a transcript of the person's speech: the next piece, or the whole transcript if isFinal is set.
func (u *userSpeech) addTranscript(text string, isFinal bool) {
	if u.lastItem == nil || u.itemID != "" || u.lastItem.Content[0].Transcript != nil { // the item of this transcript does not exist yet
		if !isFinal {
			u.earlyTranscript += text
			return
		}
		u.earlyTranscript = ""
		if u.itemID != "" {
			u.stopSpeech(u.received)
		} else { // the model has transcribed speech that the gateway has not detected
			u.commitSpeech(u.newID("item"), u.received)
		}
	}
	i := u.lastItem
	if isFinal {
		i.Content[0].Transcript = &text
	}
	if u.session.Audio.Input.Transcription == nil {
		return
	}
	where := object{"item_id": i.ID, "content_index": 0}
	if !isFinal {
		where["delta"] = text
		u.emitEvent("conversation.item.input_audio_transcription.delta", where)
		return
	}
	where["transcript"] = text
	where["usage"] = object{"type": "duration", "seconds": float64(i.voiceDuration.Milliseconds()) / 1000}
	u.emitEvent("conversation.item.input_audio_transcription.completed", where)
}

// detectSpeech detects speech in audio. It calls onStart before it reports a start of speech.
func (u *userSpeech) detectSpeech(pcm []int16, rate int, onStart func()) {
	u.vad.Onset, u.vad.Hangover = vadOnset, max(vadHangover, time.Duration(u.session.Audio.Input.TurnDetection.silenceMS())*time.Millisecond)
	u.partialFrame = append(u.partialFrame, pcm...)
	pending, received := u.partialFrame, u.received
	for frame := rate / 50; len(pending) >= frame; pending = pending[frame:] {
		u.received = received - media.Duration(len(pending)-frame, rate)
		switch speaks := u.vad.ProcessFrame(pending[:frame], rate); {
		case speaks && u.itemID == "":
			onStart()
			u.startSpeech(u.received)
		case !speaks:
			u.stopSpeech(u.received)
		}
	}
	u.partialFrame, u.received = append(u.partialFrame[:0], pending...), received
}
