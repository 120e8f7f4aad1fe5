package openai

import (
	"time"

	"voxgate/media"
	"voxgate/media/vad"
)

// Durations for the start and the end of speech, the same as in the engine's own VAD.
const (
	onset    = 60 * time.Millisecond
	hangover = 240 * time.Millisecond
	// leastQuestion is the shortest speech that a model answers.
	leastQuestion = 300 * time.Millisecond
)

// question is the state of the person's last speech.
type question int

const (
	noQuestion question = iota // nothing to answer
	committed                  // the client may request an answer
	due                        // the model answers without a request
)

// ear follows the person's speech.
type ear struct {
	*record
	heard    time.Duration // duration of all received audio
	since    time.Duration // position in heard at which the current speech began
	item     string        // id of the item for the current speech, or ""
	question question
	open     bool // an ActivityStart was sent to the model without its end

	spoken *item  // the newest committed item, or nil
	early  string // transcript that arrived before its item
	turn   int    // of the newest complete transcript

	vad  vad.Detector
	rest []int16 // less than a frame of audio
}

// reset starts over in another turn-taking mode.
func (e *ear) reset() { e.item, e.question, e.open, e.rest = "", noQuestion, false, nil }

// start reports the start of speech. at is the position in the audio at which it was detected.
func (e *ear) start(at time.Duration) {
	e.item = e.newID("item")
	padding := time.Duration(e.session.Audio.Input.TurnDetection.padding()) * time.Millisecond
	e.since = max(0, at-onset-padding)
	e.emit("input_audio_buffer.speech_started", object{"item_id": e.item, "audio_start_ms": e.since.Milliseconds()})
}

// stop reports the end of speech, if there is any, and creates its item.
func (e *ear) stop(at time.Duration) {
	if e.item == "" {
		return
	}
	e.emit("input_audio_buffer.speech_stopped", object{"item_id": e.item, "audio_end_ms": at.Milliseconds()})
	e.commit(e.item, at)
}

// commit creates the item for the speech until then.
func (e *ear) commit(id string, until time.Duration) {
	i := newMessage(id, roleUser, completed, part{Type: inputAudio})
	i.voice = max(0, until-e.since)
	e.emit("input_audio_buffer.committed", object{"item_id": id, "previous_item_id": e.last()})
	e.add(i, len(e.items))
	e.itemDone(i)
	e.item, e.spoken, e.since = "", i, until
	switch {
	case e.session.turns() != modelsEar:
		e.question = committed
	case i.voice >= leastQuestion:
		e.question = due
	default:
		e.question = noQuestion
	}
	if early := e.early; early != "" {
		e.early = ""
		e.transcript(early, false)
	}
}

// timeout reports that the person has been silent for the idle timeout, and that the model is prompted to speak.
func (e *ear) timeout() {
	d := e.session.Audio.Input.TurnDetection
	if d == nil || d.IdleTimeoutMS == nil || e.item != "" {
		return
	}
	id := e.newID("item")
	e.since = max(0, e.heard-time.Duration(*d.IdleTimeoutMS)*time.Millisecond)
	e.emit("input_audio_buffer.timeout_triggered",
		object{"item_id": id, "audio_start_ms": e.since.Milliseconds(), "audio_end_ms": e.heard.Milliseconds()})
	e.commit(id, e.heard)
}

// answered records that the last speech was answered, in the mode in which the model answers without a request.
func (e *ear) answered() {
	if e.question == due {
		e.question = noQuestion
	}
}

// transcript reports a transcript of the person's speech: the next piece, or the whole.
func (e *ear) transcript(text string, whole bool) {
	if e.spoken == nil || e.item != "" || e.spoken.Content[0].Transcript != nil { // its item does not exist yet
		if !whole {
			e.early += text
			return
		}
		e.early = ""
		if e.item != "" {
			e.stop(e.heard)
		} else { // the model has understood speech that was not detected here
			e.commit(e.newID("item"), e.heard)
		}
	}
	i := e.spoken
	if whole {
		i.Content[0].Transcript = &text
	}
	if e.session.Audio.Input.Transcription == nil {
		return
	}
	where := object{"item_id": i.ID, "content_index": 0}
	if !whole {
		where["delta"] = text
		e.emit("conversation.item.input_audio_transcription.delta", where)
		return
	}
	where["transcript"] = text
	where["usage"] = object{"type": "duration", "seconds": float64(i.voice.Milliseconds()) / 1000}
	e.emit("conversation.item.input_audio_transcription.completed", where)
}

// listen detects speech in audio, and calls started before it reports a start.
func (e *ear) listen(pcm []int16, rate int, started func()) {
	e.vad.Onset, e.vad.Hangover = onset, max(hangover, time.Duration(e.session.Audio.Input.TurnDetection.silence())*time.Millisecond)
	e.rest = append(e.rest, pcm...)
	rest, heard := e.rest, e.heard
	for frame := rate / 50; len(rest) >= frame; rest = rest[frame:] {
		e.heard = heard - media.Duration(len(rest)-frame, rate)
		switch speaks := e.vad.ProcessFrame(rest[:frame], rate); {
		case speaks && e.item == "":
			started()
			e.start(e.heard)
		case !speaks:
			e.stop(e.heard)
		}
	}
	e.rest, e.heard = append(e.rest[:0], rest...), heard
}
