package fault

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"voxgate/gateway/bench/harness"
)

const (
	sentences = 3 // of a conversation: the first as ever, the second with the fault, the third to show that it goes on

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

// conversation is one with a fault in it.
type conversation struct {
	*fault
	gateway  *harness.Process
	emulator *harness.Process
	wire     *wire
	r        *record
	person   *person
	struck   time.Time // by act, or the person's own loss

	usual     time.Duration // from the last word to the answer
	baseline  answer
	spoken    [sentences]time.Time
	asked     [sentences]time.Time // when the sentence began
	connected time.Time            // leaving: when the person is heard again
	dialled   time.Time            // leaving: the new WebSocket
}

// outcome is what a trial has shown.
type outcome struct {
	recovery time.Duration
	relink   time.Duration // without a link to Gemini
	back     time.Duration // leaving: until voice and messages were connected again
	tried    string        // by the watch for a silent model
	notices  []notice
	remarks  string // for the log
}

// try holds a conversation in which the fault strikes.
func (f *fault) try(ctx context.Context) (outcome, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	t := &conversation{fault: f, r: &record{}}
	if err := t.start(ctx); err != nil {
		return outcome{}, err
	}
	defer t.end()
	err := t.converse(ctx)
	if err != nil {
		return outcome{}, fmt.Errorf("%w\ngateway:\n%s\nemulator:\n%s", err, t.gateway.Log(), t.emulator.Log())
	}
	return t.outcome(t.recall(ctx)), nil
}

// start starts the gateway with an emulator behind a wire, and calls it.
func (t *conversation) start(ctx context.Context) error {
	scenario := t.scenario
	if scenario == "" {
		scenario = "{}"
	}
	var err error
	if t.emulator, err = harness.StartEmulator(ctx, "-scenario", scenario); err != nil {
		return err
	}
	if t.wire, err = newWire(t.emulator.URL); err != nil {
		t.emulator.Stop()
		return err
	}
	if t.gateway, err = harness.StartGateway(ctx, "", t.wire.url, "serve"); err != nil {
		t.wire.close()
		t.emulator.Stop()
		return err
	}
	if t.person, err = join(ctx, t.gateway, t.r, `{"initialConfig":{},"resumable":true}`); err != nil {
		t.end()
		return err
	}
	return nil
}

func (t *conversation) end() {
	if t.person != nil {
		t.person.leave()
	}
	t.gateway.Stop()
	t.emulator.Stop()
	t.wire.close()
}

// converse says the three sentences.
func (t *conversation) converse(ctx context.Context) error {
	if err := harness.Sleep(ctx, settled); err != nil {
		return err
	}
	var err error
	if t.baseline, err = t.ask(ctx, 0); err != nil {
		return fmt.Errorf("the first sentence: %w", err)
	}
	if !t.baseline.last || t.baseline.twice {
		return fmt.Errorf("the first answer is not as it should be: %+v", t.baseline)
	}
	t.usual = t.baseline.began.Sub(t.spoken[0])
	switch t.phase {
	case resting:
		err = until(ctx, strikeTime, func() bool { return len(t.r.messages("SESSION_STATE", t.baseline.over)) > 0 })
	case leaving:
		err = t.comeBack(ctx)
	case asking, listening, ending:
		err = harness.Sleep(ctx, rest)
	}
	if err != nil {
		return fmt.Errorf("between the sentences: %w", err)
	}
	a, err := t.ask(ctx, 1)
	if t.phase == ending {
		if !t.ended() {
			return fmt.Errorf("the conversation has not ended: %w", err)
		}
		return nil
	}
	if err != nil {
		return fmt.Errorf("the second sentence: %w", err)
	}
	if t.phase == listening && a.last {
		return fmt.Errorf("the answer was not broken off: %+v", a)
	}
	if err := harness.Sleep(ctx, rest); err != nil {
		return err
	}
	if _, err := t.ask(ctx, 2); err != nil {
		return fmt.Errorf("the third sentence: %w", err)
	}
	return nil
}

// ask says a sentence and hears the answer out.
func (t *conversation) ask(ctx context.Context, sentence int) (answer, error) {
	t.asked[sentence] = time.Now()
	over := t.person.say(sentence)
	if sentence == 1 && t.act != nil {
		if err := harness.Sleep(ctx, midSentence); err != nil {
			return answer{}, err
		}
		t.struck = time.Now()
		t.act(t)
	}
	select {
	case t.spoken[sentence] = <-over:
	case <-ctx.Done():
		return answer{}, context.Cause(ctx)
	}
	var a answer
	err := until(ctx, answerTime, func() bool {
		a = t.answer(sentence)
		quiet := time.Since(a.over)
		return t.ended() || !a.began.IsZero() && (a.last && quiet > answerOver || quiet > answerTorn)
	})
	if err == nil && a.began.IsZero() {
		err = fmt.Errorf("the conversation has ended: %s", t.reason())
	}
	return a, err
}

func (t *conversation) answer(sentence int) answer {
	return find(t.r.heard(t.asked[sentence]), sentence)
}

// ended tells whether the conversation has.
func (t *conversation) ended() bool { return len(t.farewells()) > 0 }

// farewells are those to the person. One that came back takes the place of an old connection, which is told so.
func (t *conversation) farewells() []told {
	all := t.r.messages("GEMINI_DISCONNECTED", t.baseline.over)
	return slices.DeleteFunc(all, func(m told) bool { return m.read().Reason == "replaced" })
}

func (t *conversation) reason() string {
	for _, m := range t.farewells() {
		return m.read().Reason
	}
	return "without a reason"
}

// comeBack loses the gateway and comes back with the token of the conversation.
func (t *conversation) comeBack(ctx context.Context) error {
	if err := harness.Sleep(ctx, rest); err != nil {
		return err
	}
	setups := t.r.messages("SETUP_COMPLETE", time.Time{})
	if len(setups) != 1 || setups[0].read().ResumeToken == "" {
		return fmt.Errorf("no token to come back with: %v", setups)
	}
	t.struck = time.Now()
	lost := t.person
	if t.hangs {
		lost.stop()
		defer lost.Close()
	} else {
		lost.die()
	}
	t.person = nil
	if err := harness.Sleep(ctx, t.away); err != nil {
		return err
	}
	t.dialled = time.Now()
	p, err := join(ctx, t.gateway, t.r, fmt.Sprintf(`{"initialConfig":{},"resumable":true,"resumeToken":%q}`, setups[0].read().ResumeToken))
	if err != nil {
		return err
	}
	t.connected = time.Now()
	t.person = p
	if setups = t.r.messages("SETUP_COMPLETE", t.dialled); len(setups) != 1 || !setups[0].read().Resumed {
		return fmt.Errorf("the conversation was not resumed: %v", setups)
	}
	return nil
}

var remembered = regexp.MustCompile(`I remember (\d+) turns`)

// recall asks the model what it remembers at the end, and returns how many turns that are; -1 if it does not say.
func (t *conversation) recall(ctx context.Context) int {
	if t.phase == ending {
		return -1
	}
	asked := time.Now()
	if err := t.person.Type(`{"parts":[{"text":"/history"}]}`); err != nil {
		return -1
	}
	turns := -1
	_ = until(ctx, memoryTime, func() bool {
		var text strings.Builder
		for _, m := range t.r.messages("CONTENT_MESSAGE", asked) {
			text.WriteString(m.read().ServerContent.OutputTranscription.Text)
		}
		if found := remembered.FindStringSubmatch(text.String()); found != nil {
			turns, _ = strconv.Atoi(found[1])
		}
		return turns >= 0
	})
	return turns
}
