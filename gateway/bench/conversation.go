package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/pion/rtp"

	"voxgate/media"
)

const (
	settled     = 500 * time.Millisecond  // from the connection to the first word
	rest        = 300 * time.Millisecond  // between an answer and the next sentence
	answerTime  = 45 * time.Second        // more than all that the gateway tries
	strikeTime  = 15 * time.Second        // for a fault to show
	answerOver  = 300 * time.Millisecond  // of quiet after the last burst
	answerTorn  = 1200 * time.Millisecond // of quiet where the last burst does not come
	memoryTime  = 3 * time.Second
	notNoticed  = 150 * time.Millisecond // a pause so much longer than usual
	wholeAnswer = 0.85                   // the least share of the first answer's length for nothing to be missing
)

// conversation is one of three sentences: the first as ever, the second with the fault, the third to show that it goes on.
type conversation struct {
	*fault
	gateway, emulator *process
	relay             *relay

	peer  *peer
	quiet func()         // ends the microphone, and waits for it
	say   chan int       // sentences for the microphone
	over  chan time.Time // their last words were sent

	mu     sync.Mutex // what the person hears and is told, over all calls
	sounds []sound
	told   []told

	asked, spoken [sentences]time.Time // each sentence's first and last word
	answers       [sentences]answer
	struck        time.Time // by act
	dialled       time.Time // leaving: the new WebSocket
}

// told is a message of the gateway, with what a person may learn from it.
type told struct {
	at                                  time.Time
	kind                                string
	State, Message, Reason, ResumeToken string
	Resumed                             bool
	Details                             struct{ Stall string }
	ServerContent                       struct{ OutputTranscription struct{ Text string } }
}

// try holds a conversation in which the fault strikes.
func (f *fault) try(ctx context.Context, o options) (result outcome, err error) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	c := &conversation{fault: f, quiet: func() {}, say: make(chan int, 1), over: make(chan time.Time, 1)}
	if c.emulator, err = o.startEmulator(ctx, f.scenario); err != nil {
		return result, err
	}
	defer c.emulator.stop()
	if c.relay, err = newRelay(c.emulator.url); err != nil {
		return result, err
	}
	defer c.relay.close()
	if c.gateway, err = o.startGateway(ctx, c.relay.url); err != nil {
		return result, err
	}
	defer c.gateway.stop()
	defer func() {
		c.quiet()
		if c.peer != nil {
			c.peer.close()
		}
	}()
	if err := c.converse(ctx); err != nil {
		return result, fmt.Errorf("%w\ngateway:\n%s\nemulator:\n%s", err, c.gateway.log(), c.emulator.log())
	}
	turns := -1
	if c.phase != ending {
		turns = c.recall(ctx)
	}
	return c.outcome(turns), nil
}

// join calls the gateway. A token resumes the conversation.
func (c *conversation) join(ctx context.Context, token string) error {
	hears, err := newListener(voiceRate)
	if err != nil {
		return err
	}
	encoder, err := newMicrophone()
	if err != nil {
		return err
	}
	hear := func(at time.Time, p *rtp.Packet) {
		if pcm := hears.decode(p.Payload); pcm != nil {
			c.mu.Lock()
			defer c.mu.Unlock()
			c.sounds = append(c.sounds, sound{at, recognize(pcm)})
		}
	}
	tell := func(at time.Time, m message) {
		t := told{at: at, kind: m.Type}
		_ = json.Unmarshal(m.Payload, &t) // a field of another type is none of those
		c.mu.Lock()
		defer c.mu.Unlock()
		c.told = append(c.told, t)
	}
	open := fmt.Sprintf(`{"initialConfig":{},"resumable":true,"resumeToken":%q}`, token)
	p, err := call(ctx, c.gateway.url, callOptions{hear: hear, told: tell, open: open})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	var mic sync.WaitGroup
	mic.Go(func() { c.talk(ctx, p, encoder) })
	c.peer, c.quiet = p, func() {
		cancel()
		mic.Wait()
	}
	return nil
}

// talk is the microphone.
func (c *conversation) talk(ctx context.Context, p *peer, encoder *talker) {
	pcm := make([]int16, media.Samples(frame, micRate))
	sentence, begun := -1, 0
	pace(ctx, frame, 1, int(time.Hour/frame), func(_, i int) {
		if sentence < 0 {
			select {
			case sentence = <-c.say:
				begun = i
			default:
			}
		}
		speakFrame(pcm, sentence, time.Duration(i-begun)*frame)
		packet, err := encoder.encode(pcm)
		if err != nil {
			p.fail(err)
		}
		p.send(packet)
		if sentence >= 0 && time.Duration(i+1-begun)*frame >= sentenceLength {
			sentence = -1
			c.over <- time.Now()
		}
	})
}

// converse calls and says the three sentences.
func (c *conversation) converse(ctx context.Context) error {
	if err := c.join(ctx, ""); err != nil {
		return err
	}
	sleep(ctx, settled)
	if err := c.ask(ctx, 0); err != nil {
		return fmt.Errorf("the first sentence: %w", err)
	}
	if first := c.answers[0]; !first.last || first.twice {
		return fmt.Errorf("the first answer is not as it should be: %+v", first)
	}
	err := sleep(ctx, rest)
	switch c.phase {
	case resting:
		err = until(ctx, strikeTime, func() bool { return len(c.messages("SESSION_STATE")) > 0 })
	case leaving:
		err = c.comeBack(ctx)
	}
	if err != nil {
		return fmt.Errorf("between the sentences: %w", err)
	}
	err = c.ask(ctx, 1)
	switch {
	case c.phase == ending && len(c.farewells()) == 0:
		return fmt.Errorf("the conversation has not ended: %w", err)
	case c.phase == ending:
		return nil
	case err != nil:
		return fmt.Errorf("the second sentence: %w", err)
	case c.phase == listening && c.answers[1].last:
		return fmt.Errorf("the answer was not broken off: %+v", c.answers[1])
	}
	sleep(ctx, rest)
	if err := c.ask(ctx, 2); err != nil {
		return fmt.Errorf("the third sentence: %w", err)
	}
	return nil
}

// ask says a sentence and hears the answer out.
func (c *conversation) ask(ctx context.Context, sentence int) error {
	c.asked[sentence] = time.Now()
	c.say <- sentence
	if sentence == 1 && c.act != nil {
		sleep(ctx, midSentence)
		c.struck = time.Now()
		c.act(c)
	}
	select {
	case c.spoken[sentence] = <-c.over:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	a := &c.answers[sentence]
	err := until(ctx, answerTime, func() bool {
		*a = find(c.soundsSince(c.asked[sentence]), sentence)
		silence := time.Since(a.over)
		return len(c.farewells()) > 0 || !a.began.IsZero() && (a.last && silence > answerOver || silence > answerTorn)
	})
	if err == nil && a.began.IsZero() {
		err = fmt.Errorf("the conversation has ended: %s", c.farewells()[0].Reason)
	}
	return err
}

// comeBack loses the gateway and comes back with the token of the conversation.
func (c *conversation) comeBack(ctx context.Context) error {
	token := c.messagesSince("SETUP_COMPLETE", time.Time{})[0].ResumeToken
	if token == "" {
		return errors.New("no token to come back with")
	}
	c.quiet()
	c.peer.drop()
	if err := sleep(ctx, c.away); err != nil {
		return err
	}
	c.dialled = time.Now()
	if err := c.join(ctx, token); err != nil {
		return err
	}
	if setups := c.messagesSince("SETUP_COMPLETE", c.dialled); len(setups) != 1 || !setups[0].Resumed {
		return fmt.Errorf("the conversation was not resumed: %v", setups)
	}
	return nil
}

var remembered = regexp.MustCompile(`I remember (\d+) turns`)

// recall asks the model what it remembers at the end, and returns how many turns that are; -1 if it does not say.
func (c *conversation) recall(ctx context.Context) int {
	asked, turns := time.Now(), -1
	if c.peer.ask("/history") != nil {
		return turns
	}
	_ = until(ctx, memoryTime, func() bool {
		var text strings.Builder
		for _, m := range c.messagesSince("CONTENT_MESSAGE", asked) {
			text.WriteString(m.ServerContent.OutputTranscription.Text)
		}
		if found := remembered.FindStringSubmatch(text.String()); found != nil {
			turns, _ = strconv.Atoi(found[1])
		}
		return turns >= 0
	})
	return turns
}

// soundsSince are the sounds since a time.
func (c *conversation) soundsSince(since time.Time) []sound {
	c.mu.Lock()
	defer c.mu.Unlock()
	i := slices.IndexFunc(c.sounds, func(s sound) bool { return s.at.After(since) })
	if i < 0 {
		return nil
	}
	return slices.Clone(c.sounds[i:])
}

// messagesSince are those of a type since a time.
func (c *conversation) messagesSince(kind string, since time.Time) (found []told) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, m := range c.told {
		if m.kind == kind && m.at.After(since) {
			found = append(found, m)
		}
	}
	return found
}

// messages are those of a type since the first answer.
func (c *conversation) messages(kind string) []told { return c.messagesSince(kind, c.answers[0].over) }

// farewells are those to the person.
func (c *conversation) farewells() []told { return c.messages("GEMINI_DISCONNECTED") }

// outcome sums up the conversation, in which the model knows of so many turns at the end.
func (c *conversation) outcome(turns int) (o outcome) {
	// later is by how much later than usual an answer came.
	later := func(sentence int) time.Duration {
		return c.answers[sentence].began.Sub(c.spoken[sentence]) - c.answers[0].began.Sub(c.spoken[0])
	}
	switch c.phase {
	case asking, resting:
		o.recovery = later(1)
	case listening:
		o.recovery = later(2)
	case ending:
		if c.struck.IsZero() {
			c.struck = c.emulator.faulted()
		}
		o.recovery = c.farewells()[0].at.Sub(c.struck)
	case leaving:
		o.recovery = c.messagesSince("SETUP_COMPLETE", c.dialled)[0].at.Sub(c.dialled)
	}
	note := func(happened bool, text string, took time.Duration) {
		if n := (notice{text, took}); happened && !slices.Contains(o.notices, n) {
			o.notices = append(o.notices, n)
		}
	}
	if c.phase != ending {
		first, second, third := c.answers[0], c.answers[1], c.answers[2]
		whole := func(a answer) bool { return float64(a.frames) >= wholeAnswer*float64(first.frames) }
		note(later(1) > notNoticed, "the answer comes %s later", later(1))
		note(!second.last, fmt.Sprintf("the answer breaks off after %%s of %.1f s", first.over.Sub(first.began).Seconds()), second.over.Sub(second.began))
		note(second.last && !whole(second), "a part of what was said is lost", 0)
		note(second.silence-first.silence > notNoticed, "the answer stops for %s", second.silence-first.silence)
		note(second.twice, "a part of the answer is heard twice", 0)
		note(!find(c.soundsSince(c.asked[2]), 1).began.IsZero(), "the answer comes again after the next sentence", 0)
		note(later(2) > notNoticed && c.phase != listening, "the next answer comes %s later, too", later(2))
		note(!third.last || !whole(third) || third.twice, "the next answer is not whole", 0)
		// Three sentences and their answers. The question itself is counted as well.
		note(turns < 2*sentences+1, fmt.Sprintf("Gemini knows %d of %d turns", turns, 2*sentences+1), 0)
	}
	tone, sentence := c.signals()
	note(!tone.IsZero(), "a soft tone every 2 s, from %s after the last word on", c.sinceWord(tone))
	note(!sentence.IsZero(), "a spoken sentence after %s", c.sinceWord(sentence))
	over := c.farewells()
	for _, m := range append(c.messages("SESSION_STATE"), c.messages("GEMINI_ERROR")...) {
		note(m.Message != "" && (len(over) == 0 || m.Message != over[0].Reason), "“"+m.Message+"” on the page", 0)
	}
	if c.phase == ending {
		note(true, "the conversation ends: “"+over[0].Reason+"”", 0)
	}
	names := map[string]string{"nudge": "a nudge", "resume": "a new connection", "fresh": "a fresh session", "none": "nothing more"}
	for _, m := range c.messages("LOG_MESSAGE") {
		if step := m.Details.Stall; step != "" {
			o.tried = strings.TrimPrefix(o.tried+", then "+cmp.Or(names[step], step), ", then ")
		}
	}
	return o
}

// signals are when the gateway's own soft tone was heard first, and a sentence of its own.
func (c *conversation) signals() (tone, sentence time.Time) {
	run := 0
	var last time.Time
	for _, s := range c.soundsSince(c.answers[0].over) {
		if run++; s.what != words || s.at.Sub(last) > burstEvery-burstLength {
			run = 0
		}
		if run > leastRun && sentence.IsZero() { // fewer are the edges of bursts
			sentence = s.at
		}
		if s.what == softTone && tone.IsZero() {
			tone = s.at
		}
		last = s.at
	}
	return tone, sentence
}

// sinceWord is how long before a time the person's last word was; 0 while it speaks.
func (c *conversation) sinceWord(at time.Time) time.Duration {
	for sentence := sentences - 1; sentence > 0; sentence-- {
		if asked := c.asked[sentence]; !asked.IsZero() && at.After(asked) {
			return max(0, at.Sub(c.spoken[sentence]))
		}
	}
	return 0
}
