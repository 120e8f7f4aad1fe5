package openai

import (
	"time"

	"voxgate/media"
	"voxgate/media/vad"
)

// What it takes to begin and to end a speech, as in the engine's own ear.
const (
	onset    = 60 * time.Millisecond
	hangover = 240 * time.Millisecond
	// leastQuestion is how much speech a model answers.
	leastQuestion = 300 * time.Millisecond
)

// question is what becomes of what the person has said.
type question int

const (
	noQuestion question = iota // there is nothing to answer
	committed                  // the client may ask for an answer
	due                        // the model answers by itself
)

// ear is what the person says.
type ear struct {
	*record
	heard    time.Duration // in all
	since    time.Duration // of heard, when what is said now began
	item     string        // of the speech that is under way; empty: none is
	question question
	open     bool // the model knows, by a mark of ours, that somebody speaks

	spoken *item  // the newest that was committed; nil: none was
	early  string // of a transcript that came before its item
	turn   int    // of the newest whole transcript

	vad  vad.Detector
	rest []int16 // less than a frame of sound
}

// reset starts hearing anew, for another mode of taking turns.
func (e *ear) reset() { e.item, e.question, e.open, e.rest = "", noQuestion, false, nil }

// start reports that the person speaks. at is where that was found in what was heard.
func (e *ear) start(at time.Duration) {
	e.item = e.newID("item")
	padding := time.Duration(e.session.Audio.Input.TurnDetection.padding()) * time.Millisecond
	e.since = max(0, at-onset-padding)
	e.emit("input_audio_buffer.speech_started", object{"item_id": e.item, "audio_start_ms": e.since.Milliseconds()})
}

// stop reports that the person has stopped, if they spoke, and makes an item of what was said.
func (e *ear) stop(at time.Duration) {
	if e.item == "" {
		return
	}
	e.emit("input_audio_buffer.speech_stopped", object{"item_id": e.item, "audio_end_ms": at.Milliseconds()})
	e.commit(e.item, at)
}

// commit makes an item of what was said until then.
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

// timeout reports that nothing was said for so long that the model is asked to speak.
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

// answered says that what was said has its answer, if the model gives that by itself.
func (e *ear) answered() {
	if e.question == due {
		e.question = noQuestion
	}
}

// transcript reports the transcript of what was said: the next piece, or all of it.
func (e *ear) transcript(text string, whole bool) {
	if e.spoken == nil || e.item != "" || e.spoken.Content[0].Transcript != nil { // its item is not there yet
		if !whole {
			e.early += text
			return
		}
		e.early = ""
		if e.item != "" {
			e.stop(e.heard)
		} else { // nothing was heard here, and the model has understood something
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

// listen finds speech in sound that was heard, and calls started before it reports a beginning.
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
