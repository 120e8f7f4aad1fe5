package fault

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"time"

	"voxgate/gateway/bench/harness"
	"voxgate/gateway/bench/peer"
	"voxgate/gateway/bench/speech"
	"voxgate/media"
	"voxgate/media/opus"
)

const frame = media.FrameDuration

// person is a caller with a microphone, who hears and keeps what comes.
type person struct {
	*peer.Peer
	stop func() // ends the microphone, and waits for it

	mu       sync.Mutex
	sentence int
	left     bool // of the sentence
	over     chan time.Time
}

// join calls the gateway. CONNECT_GEMINI gets the payload open.
func join(ctx context.Context, gateway *harness.Process, r *record, open string) (*person, error) {
	hear, err := r.listener()
	if err != nil {
		return nil, err
	}
	encoder, err := opus.NewEncoder(speech.MicRate)
	if err != nil {
		return nil, err
	}
	p := &person{}
	if p.Peer, err = peer.Call(ctx, gateway.URL, peer.Options{Hear: hear, Tell: r.tell, Open: open}); err != nil {
		return nil, fmt.Errorf("%w\n%s", err, gateway.Log())
	}
	ctx, cancel := context.WithCancel(ctx)
	var mic sync.WaitGroup
	mic.Go(func() { p.talk(ctx, encoder) })
	p.stop = func() {
		cancel()
		mic.Wait()
	}
	return p, nil
}

// leave ends the call.
func (p *person) leave() {
	p.stop()
	p.Close()
}

// die ends the call without a goodbye, as when a page is closed.
func (p *person) die() {
	p.stop()
	p.Drop()
}

// talk is the microphone.
func (p *person) talk(ctx context.Context, encoder *opus.Encoder) {
	const ever = int(time.Hour / frame)
	pcm, buf := make([]int16, speech.FrameSamples(speech.MicRate)), make([]byte, 1500)
	begun := 0 // the frame in which the sentence began
	harness.Pace(ctx, frame, 1, ever, func(_, i int) {
		p.mu.Lock()
		sentence, left, over := p.sentence, p.left, p.over
		p.mu.Unlock()
		if !left {
			begun = i + 1
		}
		at := i - begun
		if !left {
			at = int(sentenceLength / frame) // beyond the last word
		}
		more := speakFrame(pcm, sentence, at)
		n, err := encoder.Encode(pcm, buf)
		if err != nil {
			p.Fail(err)
			return
		}
		p.Send(buf[:n])
		if left && !more {
			p.mu.Lock()
			p.left = false
			p.mu.Unlock()
			over <- time.Now()
		}
	})
}

// say begins a sentence. When its last word was sent comes over the channel.
func (p *person) say(sentence int) <-chan time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.sentence, p.left, p.over = sentence, true, make(chan time.Time, 1)
	return p.over
}

// tell keeps a message.
func (r *record) tell(at time.Time, raw []byte) {
	var m peer.Message
	if json.Unmarshal(raw, &m) != nil {
		m.Type = "not JSON"
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.told = append(r.told, told{at, m})
}

// messages are those of a type since a time.
func (r *record) messages(kind string, since time.Time) []told {
	r.mu.Lock()
	defer r.mu.Unlock()
	var found []told
	for _, m := range r.told {
		if m.Type == kind && m.at.After(since) {
			found = append(found, m)
		}
	}
	return found
}

// saying is what the payloads say that a person may be told by.
type saying struct {
	State, Message, Reason, ResumeToken string
	Resumed                             bool
	Details                             struct{ Stall string }
	ServerContent                       struct{ OutputTranscription struct{ Text string } }
}

func (m told) read() saying {
	var s saying
	_ = json.Unmarshal(m.Payload, &s) // a field of another type is none of those
	return s
}

// poll is how often a condition is looked at that is waited for. What is measured carries its own time.
const poll = 5 * time.Millisecond

// until waits for a condition, at most so long.
func until(ctx context.Context, limit time.Duration, condition func() bool) error {
	for end := time.Now().Add(limit); !condition(); {
		if time.Now().After(end) {
			return errTooLate
		}
		if err := harness.Sleep(ctx, poll); err != nil {
			return err
		}
	}
	return nil
}

// relink is how long the conversation was without a link to Gemini at its longest, as far as the person's client was told.
func (r *record) relink(since time.Time) time.Duration {
	var down time.Time
	var longest time.Duration
	for _, m := range r.messages("SESSION_STATE", since) {
		switch {
		case slices.Contains([]string{"resuming", "reseeding"}, m.read().State):
			if down.IsZero() {
				down = m.at
			}
		case !down.IsZero():
			longest = max(longest, m.at.Sub(down))
			down = time.Time{}
		}
	}
	return longest
}
