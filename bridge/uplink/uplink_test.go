package uplink_test

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"voxgate/bridge/gemini/wire"
	"voxgate/bridge/uplink"
)

// person speaks into an uplink in real time.
type person struct {
	*testing.T
	up    *uplink.Uplink
	index int64 // index of the last message of the connection
}

// bubble runs f with simulated time and an empty uplink.
func bubble(t *testing.T, f func(p *person)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { f(&person{t, uplink.New(nil), 0}) })
}

// says queues audio of this level and length in real time; level 0 is silence.
func (p *person) says(level int16, d time.Duration) {
	pcm := make([]int16, 320)
	for i := range pcm {
		pcm[i] = level * int16(1-i/20%2*2)
	}
	for range int(d / uplink.Chunk) {
		p.up.QueueAudio(pcm, 16000)
		time.Sleep(uplink.Chunk)
	}
}

// flows is like says, but each chunk is taken for sending at once.
func (p *person) flows(level int16, d time.Duration) {
	for range int(d / uplink.Chunk) {
		p.says(level, uplink.Chunk)
		p.take()
	}
}

const (
	loud = 8000
	soft = 50 // a level below that of speech
)

// take takes all items that may be sent now. It returns loud and quiet audio in milliseconds, and other items by name.
func (p *person) take() string {
	var words []string
	kind, length := "", time.Duration(0)
	flush := func() {
		if length > 0 {
			words = append(words, fmt.Sprintf("%s %d", kind, length.Milliseconds()))
		}
		length = 0
	}
	for {
		it, _, ok := p.up.Next(p.index)
		if !ok {
			flush()
			return strings.Join(words, ", ")
		}
		p.index++
		if it.PCM != nil {
			now := "loud"
			if it.PCM[0] == 0 {
				now = "quiet"
			}
			if now != kind {
				flush()
			}
			kind, length = now, length+uplink.Chunk
			continue
		}
		flush()
		words = append(words, name(it))
	}
}

// takeAll is like take, but for 20 s, so that a paced replay is complete.
func (p *person) takeAll() string {
	var all []string
	for range 20_000 / 10 {
		if got := p.take(); got != "" {
			all = append(all, got)
		}
		time.Sleep(10 * time.Millisecond)
	}
	return merge(all)
}

// merge adds up neighbouring audio of the same kind.
func merge(list []string) string {
	var out []string
	kind, total := "", 0
	flush := func() {
		if total > 0 {
			out = append(out, fmt.Sprintf("%s %d", kind, total))
		}
		total = 0
	}
	for _, word := range strings.Split(strings.Join(list, ", "), ", ") {
		var k string
		var n int
		if _, err := fmt.Sscanf(word, "%s %d", &k, &n); err != nil || k != "loud" && k != "quiet" {
			flush()
			out = append(out, word)
			continue
		}
		if k != kind {
			flush()
		}
		kind, total = k, total+n
	}
	flush()
	return strings.Join(out, ", ")
}

func name(it uplink.Item) string {
	if it.Silence > 0 {
		return fmt.Sprintf("silence %d", it.Silence.Milliseconds())
	}
	switch m := it.Message; {
	case it.Turn != nil:
		return "turn " + string(it.Turn.Parts)
	case it.Flushed != nil:
		close(it.Flushed)
		return "sent"
	case m.ToolResponse != nil:
		return "answer " + m.ToolResponse.FunctionResponses[0].ID
	case m.ContextUpdate != nil:
		return "update"
	case m.ClientContent != nil:
		return "history"
	case m.RealtimeInput.Video != nil:
		return "picture " + string(m.RealtimeInput.Video.Data)
	case m.RealtimeInput.ActivityStart:
		return "start"
	case m.RealtimeInput.ActivityEnd:
		return "end"
	case m.RealtimeInput.AudioStreamEnd:
		return "pause"
	default:
		return "text " + m.RealtimeInput.Text
	}
}

func text(s string) wire.ClientMessage {
	return wire.ClientMessage{RealtimeInput: &wire.RealtimeInput{Text: s}}
}

func turn(parts string, complete bool) uplink.Turn {
	return uplink.Turn{Parts: []byte(parts), Complete: complete}
}

func picture(data string) wire.Blob { return wire.Blob{MIMEType: "image/jpeg", Data: []byte(data)} }

func (p *person) sent(want string) {
	p.Helper()
	if got := p.take(); got != want {
		p.Errorf("sent\n  %s\nwant\n  %s", got, want)
	}
}

func TestOrder(t *testing.T) {
	bubble(t, func(p *person) {
		p.says(loud, 100*time.Millisecond)
		if err := p.up.QueueMark(uplink.MarkPause); err != nil {
			t.Fatal(err)
		}
		p.says(loud, 40*time.Millisecond)
		p.up.ShowPicture(picture("old"), true)
		p.up.ShowPicture(picture("new"), true)
		p.up.QueueMessage(text("one"))
		p.up.QueueTurn(turn("two", true))
		p.up.QueueToolResponse(wire.FunctionResponse{ID: "three"})
		sent := p.up.NotifyFlushed()
		p.up.QueueMessageFirst(wire.ClientMessage{ClientContent: &wire.ClientContent{}})
		p.sent("history, text one, turn two, answer three, sent, picture new, loud 100, pause, loud 40")
		<-sent
		if n := p.up.SentChunks.Load(); n != 7 {
			t.Errorf("%d chunks", n)
		}
	})
}

// The queue is limited. Silence is dropped first, and then the oldest speech.
func TestBounds(t *testing.T) {
	bubble(t, func(p *person) {
		p.says(loud, 2*time.Second)
		p.says(0, 4*time.Second)
		p.says(loud, 6*time.Second)
		if lost, dropped := p.up.LostSpeechChunks.Load(), p.up.DroppedChunks.Load(); lost != 0 || dropped != 100 {
			t.Errorf("%d chunks of speech dropped, %d in all", lost, dropped)
		}
		p.says(loud, 4*time.Second)
		if lost := p.up.LostSpeechChunks.Load(); lost == 0 {
			t.Error("no speech was dropped")
		}
		p.sent("loud 10000")
	})
	for what, test := range map[string]struct {
		put  func(p *person) bool
		most int
	}{
		"texts":   {func(p *person) bool { return p.up.QueueMessage(text("x")) }, 100},
		"turns":   {func(p *person) bool { return p.up.QueueTurn(turn("x", true)) }, 100},
		"answers": {func(p *person) bool { return p.up.QueueToolResponse(wire.FunctionResponse{}) }, 5000},
		"marks":   {func(p *person) bool { return p.up.QueueMark(uplink.MarkPause) == nil }, 100},
	} {
		bubble(t, func(p *person) {
			taken := 0
			for range 6000 {
				if test.put(p) {
					taken++
				}
			}
			if taken != test.most {
				t.Errorf("%d %s were taken", taken, what)
			}
			p.take()
			if !test.put(p) {
				t.Errorf("%s: refused though nothing waits", what)
			}
		})
	}
}

// A speech begins with 60 ms of loud audio and ends with 240 ms of silence.
func TestVoiceActivity(t *testing.T) {
	bubble(t, func(p *person) {
		check := func(speaking bool, speeches int, voiced time.Duration) {
			t.Helper()
			s, n, v := p.up.SpeechState()
			if s != speaking || n != speeches || (v-voiced).Abs() > 40*time.Millisecond {
				t.Errorf("speaking %v, speech %d, %v voiced, want %v, %d, %v", s, n, v, speaking, speeches, voiced)
			}
		}
		p.says(0, time.Second)
		p.says(loud, 40*time.Millisecond)
		check(false, 0, 0)
		p.says(0, time.Second)
		p.says(loud, time.Second)
		check(true, 1, time.Second)
		end := time.Now()
		p.says(0, 200*time.Millisecond)
		check(true, 1, time.Second)
		p.says(0, 100*time.Millisecond)
		check(false, 1, time.Second)
		if ago := end.Sub(p.up.LastLoudAt()); ago < 0 || ago > 40*time.Millisecond {
			t.Errorf("the last sound was %v before the end", ago)
		}
		p.says(loud, time.Second)
		check(true, 2, time.Second)
		time.Sleep(uplink.MicPause - uplink.Chunk - time.Millisecond)
		if p.up.EndStoppedSpeech() {
			t.Error("stopped too early")
		}
		time.Sleep(time.Millisecond)
		if !p.up.EndStoppedSpeech() || p.up.EndStoppedSpeech() {
			t.Error("not stopped once")
		}
		if got := p.take(); !strings.HasSuffix(got, ", pause") {
			t.Errorf("sent %s", got)
		}
		check(false, 2, time.Second)
	})
}

// If the client marks speech, only the audio between the marks and PreRoll before them is sent.
func TestMarksByHand(t *testing.T) {
	bubble(t, func(p *person) {
		for mark, want := range map[uplink.Mark]error{
			uplink.MarkStart: uplink.ErrAutomaticActivity,
			uplink.MarkEnd:   uplink.ErrAutomaticActivity, uplink.MarkPause: nil,
		} {
			if err := p.up.QueueMark(mark); err != want {
				t.Errorf("%d: %v", mark, err)
			}
		}
		p.up.Configure(uplink.Config{IsManual: true, PreRoll: 100 * time.Millisecond}) // removes the queued mark, which would close the session
		if err := p.up.QueueMark(uplink.MarkPause); err != uplink.ErrManualActivity {
			t.Error(err)
		}
		p.says(loud, time.Second)
		_ = p.up.QueueMark(uplink.MarkStart)
		p.says(loud, 200*time.Millisecond)
		p.says(0, 400*time.Millisecond) // this silence does not end the speech
		if speaking, _, voiced := p.up.SpeechState(); !speaking || voiced != 600*time.Millisecond {
			t.Errorf("speaking %v for %v", speaking, voiced)
		}
		_ = p.up.QueueMark(uplink.MarkEnd)
		p.says(loud, time.Second)
		p.sent("start, loud 300, quiet 400, end")
	})
}

// Audio that the client has kept belongs to the next activity as a whole, even if it is longer than the queue's limit, and
// while audio is gated. Dropped audio belongs to none.
func TestKeptForAnActivity(t *testing.T) {
	bubble(t, func(p *person) {
		if err := p.up.QueueMark(uplink.MarkKeep); err != uplink.ErrAutomaticActivity {
			t.Error(err)
		}
		p.up.Configure(uplink.Config{IsManual: true, PreRoll: time.Minute})
		p.up.SetAudioGate(true)
		p.says(loud, time.Second)
		_ = p.up.QueueMark(uplink.MarkDrop)
		p.says(loud, 12*time.Second)
		_ = p.up.QueueMark(uplink.MarkKeep)
		p.says(loud, 2*time.Second)
		p.up.SetAudioGate(false)
		for _, want := range []string{"start, loud 12000, end", "start, loud 2000, end"} {
			_ = p.up.QueueMark(uplink.MarkStart)
			_ = p.up.QueueMark(uplink.MarkEnd)
			if _, speeches, voiced := p.up.SpeechState(); speeches == 1 && voiced != 12*time.Second {
				t.Errorf("%v of speech", voiced)
			}
			p.sent(want)
		}
	})
}

// If a client keeps audio again and again without an activity, memory is limited: only the newest audio is kept.
func TestKeptIsBounded(t *testing.T) {
	bubble(t, func(p *person) {
		p.up.Configure(uplink.Config{IsManual: true, PreRoll: 10 * time.Second})
		for range 3 {
			p.says(loud, 8*time.Second)
			_ = p.up.QueueMark(uplink.MarkKeep)
		}
		_ = p.up.QueueMark(uplink.MarkStart)
		_ = p.up.QueueMark(uplink.MarkEnd)
		p.sent("start, loud 10000, end")
	})
}

// Unanswered input is replayed on the next connection, at twice real time: the speech, the audio just before it, and the
// silence that marks its end. Answered input is not replayed.
func TestRewind(t *testing.T) {
	for name, test := range map[string]struct {
		before func(p *person)
		fresh  bool
		want   string
	}{
		"silence": {func(p *person) { p.says(0, 5*time.Second); p.take() }, false, ""},
		"a sentence": {func(p *person) {
			p.flows(0, 5*time.Second)
			p.flows(loud, 2*time.Second)
			p.flows(0, 5*time.Second)
		}, false, "quiet 260, loud 2000, quiet 1540"},
		"one that is not over": {func(p *person) { p.says(loud, 2*time.Second); p.take() }, false, "loud 2000"},
		"one that was answered": {func(p *person) {
			p.says(loud, 2*time.Second)
			p.says(0, time.Second)
			p.take()
			p.up.MarkAnswered()
		}, false, ""},
		"the next one has begun": {func(p *person) {
			p.says(loud, time.Second)
			p.says(0, 3*time.Second)
			p.says(loud, 500*time.Millisecond)
			p.take()
			p.up.MarkAnswered()
		}, false, "quiet 260, loud 500"},
		"the next one has begun softly, and the first has no answer": {func(p *person) {
			p.flows(loud, time.Second)
			p.flows(0, 3*time.Second)
			p.flows(soft, 300*time.Millisecond)
			p.flows(loud, 500*time.Millisecond)
		}, false, "loud 1000, quiet 1240, loud 760"},
		"typed": {func(p *person) {
			p.up.QueueTurn(turn("one", true))
			p.up.QueueMessage(text("two"))
			p.take()
			p.up.QueueTurn(turn("three", true)) // this turn was never sent
		}, false, "turn one, text two, turn three"},
		"typed, and taken back": {func(p *person) {
			p.up.QueueTurn(turn("one", true))
			p.take()
			p.up.MarkAnswered() // but the answer belonged to other input
			p.up.MarkTypedTextUnanswered()
		}, false, "turn one"},
		"a hint that the handle knows": {func(p *person) {
			p.up.QueueTurn(turn("hint", false))
			p.take()
			p.up.RecordHandle(0)
		}, false, ""},
		"a hint that a handle does not cover": {func(p *person) {
			p.says(0, time.Second)
			p.take()
			p.up.QueueTurn(turn("hint", false))
			p.take()
			p.up.RecordHandle(40)
		}, false, "turn hint"},
		"a hint that it does not know": {func(p *person) { p.up.QueueTurn(turn("hint", false)); p.take() }, false, "turn hint"},
		"marks": {func(p *person) {
			p.up.Configure(uplink.Config{IsManual: true})
			_ = p.up.QueueMark(uplink.MarkStart)
			p.says(loud, time.Second)
			_ = p.up.QueueMark(uplink.MarkEnd)
			p.take()
		}, false, "start, loud 1000, end"},
		"acted on, and the handle knows": {func(p *person) {
			p.says(loud, time.Second)
			p.says(0, time.Second)
			p.take()
			p.up.MarkActedOn()
			p.up.RecordHandle(0)
		}, false, ""},
		"acted on, to a fresh session": {func(p *person) {
			p.says(loud, time.Second)
			p.says(0, time.Second)
			p.take()
			p.up.MarkActedOn()
			p.up.RecordHandle(0)
		}, true, "loud 1000, quiet 1000"},
		"an update": {func(p *person) { p.up.QueueMessage(wire.ClientMessage{ContextUpdate: &wire.ContextUpdate{}}) }, false, ""},
		"forgotten": {func(p *person) { p.says(loud, time.Second); p.take(); p.up.DiscardAll() }, false, ""},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(p *person) {
				p.T = t
				test.before(p)
				p.up.QueueReplay(test.fresh)
				if got := p.takeAll(); got != test.want {
					t.Errorf("sent\n  %s\nwant\n  %s", got, test.want)
				}
				p.up.QueueReplay(false) // the loss of that connection loses nothing, either
				if got := p.takeAll(); got != test.want {
					t.Errorf("then sent\n  %s\nwant\n  %s", got, test.want)
				}
			})
		})
	}
}

// If the handle reports the messages that it covers, a session that is resumed within a speech gets only the rest, once. A
// fresh session, or one that is resumed after the speech, gets all of it.
func TestRewindToTheHandle(t *testing.T) {
	relinked := func(p *person, fresh bool) string {
		p.up.QueueReplay(fresh)
		p.index = 0
		return p.takeAll()
	}
	for name, test := range map[string]struct {
		then  func(p *person)
		fresh bool
		want  string
	}{
		"at once":                      {func(*person) {}, false, "loud 400"},
		"by a fresh session":           {func(*person) {}, true, "loud 1000"},
		"after the end of the speech":  {func(p *person) { p.flows(0, time.Second) }, false, "loud 1000, quiet 1000"},
		"with what was not sent":       {func(p *person) { p.says(loud, 200*time.Millisecond) }, false, "loud 600"},
		"with a handle that says no":   {func(p *person) { p.up.RecordHandle(0) }, false, "loud 1000"},
		"with a handle from elsewhere": {func(p *person) { p.up.RecordHandle(500); p.up.RecordHandle(30) }, false, "loud 1000"},
		"with an early one from there": {
			func(p *person) { p.up.QueueReplay(false); p.index = 0; p.up.RecordHandle(31); p.takeAll() }, false,
			"loud 400",
		},
		"of speech that is marked":      {func(p *person) { p.up.Configure(uplink.Config{IsManual: true}) }, false, ""},
		"with no newer handle":          {func(p *person) { relinked(p, false) }, false, "loud 400"},
		"with a newer one":              {func(p *person) { relinked(p, false); p.up.RecordHandle(5) }, false, "loud 300"},
		"and then by a fresh session":   {func(p *person) { relinked(p, false) }, true, "loud 1000"},
		"and again, when it has spoken": {func(p *person) { relinked(p, false); p.flows(0, time.Second) }, false, "loud 1000, quiet 1000"},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(p *person) {
				p.T = t
				p.flows(loud, time.Second)
				p.up.RecordHandle(30) // of 50 messages
				test.then(p)
				if got := relinked(p, test.fresh); got != test.want {
					t.Errorf("sent %s, want %s", got, test.want)
				}
			})
		})
	}
}

// Speech that is too long to keep is lost only for a fresh session.
func TestALongSpeechTheHandleCovers(t *testing.T) {
	bubble(t, func(p *person) {
		p.flows(loud, 20*time.Second)
		p.up.RecordHandle(995) // of 1000 messages
		if again, lost, _ := p.up.QueueReplay(false); again != 100*time.Millisecond || lost != 0 {
			t.Errorf("a resumed session gets %v again, and %v are lost", again, lost)
		}
		if _, lost, _ := p.up.QueueReplay(true); lost != 10*time.Second {
			t.Errorf("%v are lost for a fresh session", lost)
		}
	})
}

func TestReplayIsPaced(t *testing.T) {
	bubble(t, func(p *person) {
		p.says(loud, 4*time.Second)
		p.take()
		if again, lost, _ := p.up.QueueReplay(false); again != 4*time.Second || lost != 0 {
			t.Errorf("%v again, %v lost", again, lost)
		}
		p.up.QueueTurn(turn("typed", true)) // must not overtake the speech before it
		begin := time.Now()
		for {
			it, wait, ok := p.up.Next(0)
			if it.Turn != nil {
				break
			}
			if !ok {
				time.Sleep(wait)
			}
		}
		if took := time.Since(begin); (took - 2*time.Second).Abs() > 20*time.Millisecond {
			t.Errorf("4 s were said again within %v", took)
		}
		if n := p.up.ReplayedChunks.Load(); n != 200 {
			t.Errorf("%d chunks", n)
		}
	})
}

// While audio would make the model close the session, live audio is dropped, and replayed audio waits.
func TestGate(t *testing.T) {
	bubble(t, func(p *person) {
		p.says(loud, time.Second)
		p.take()
		p.up.SetAudioGate(true)
		if speaking, _, _ := p.up.SpeechState(); speaking {
			t.Error("somebody is heard")
		}
		p.says(loud, time.Second)
		p.says(0, time.Second)
		p.up.QueueMessage(text("one"))
		p.sent("text one")
		if gated, speech := p.up.GatedChunks.Load(), p.up.GatedSpeechChunks.Load(); gated != 100 || speech != 50 {
			t.Errorf("%d chunks dropped, %d of speech", gated, speech)
		}
		p.up.QueueReplay(false)
		p.sent("")
		p.up.SetAudioGate(false)
		if got := p.takeAll(); got != "loud 1000, text one" {
			t.Errorf("sent %s", got)
		}
	})
}

// On hold, audio and pictures are dropped. A speech that had begun ends for the model, too.
func TestPause(t *testing.T) {
	for _, manual := range []bool{false, true} {
		bubble(t, func(p *person) {
			p.up.Configure(uplink.Config{IsManual: manual})
			said, end := "loud 1000", "pause"
			if manual {
				_ = p.up.QueueMark(uplink.MarkStart)
				said, end = "start, loud 1000", "end"
			}
			p.says(loud, time.Second)
			p.sent(said)
			p.says(loud, time.Second) // this audio waits, and is dropped
			p.up.ShowPicture(picture("before"), true)
			p.up.SetPaused(true)
			if speaking, _, voiced := p.up.SpeechState(); speaking || voiced != 0 {
				t.Errorf("speaking %v, %v voiced", speaking, voiced)
			}
			p.says(loud, time.Second)
			p.up.ShowPicture(picture("during"), true)
			if manual { // marks from the hold are sent after it
				_, _, _ = p.up.QueueMark(uplink.MarkStart), p.up.QueueMark(uplink.MarkEnd), p.up.QueueMark(uplink.MarkStart)
			}
			p.sent(end)
			if replayed, _, _ := p.up.QueueReplay(true); replayed > 0 {
				t.Errorf("%v are said again", replayed)
			}
			p.up.SetPaused(false)
			p.up.ShowPicture(picture("after"), true)
			p.says(loud, time.Second)
			p.sent("picture after, " + said)
			if manual { // the connection is lost: the speech has no answer yet
				p.up.QueueReplay(false)
				if got := p.takeAll(); got != said {
					t.Errorf("%s is said again, want %s", got, said)
				}
			}
		})
	}
}

// A speech that is only queued when the hold begins is never marked for the model.
func TestPauseBeforeAnythingWasSent(t *testing.T) {
	bubble(t, func(p *person) {
		p.up.Configure(uplink.Config{IsManual: true})
		_ = p.up.QueueMark(uplink.MarkStart)
		p.says(loud, time.Second)
		p.up.SetPaused(true)
		_ = p.up.QueueMark(uplink.MarkEnd)
		p.up.SetPaused(false)
		p.sent("")
	})
}

// A change of the detection of speech voids earlier marks.
func TestConfigureVoidsMarks(t *testing.T) {
	bubble(t, func(p *person) {
		p.up.Configure(uplink.Config{IsManual: true})
		_ = p.up.QueueMark(uplink.MarkStart)
		p.says(loud, time.Second)
		p.up.Configure(uplink.Config{})
		if speaking, _, voiced := p.up.SpeechState(); speaking || voiced != 0 {
			t.Errorf("speaking %v, %v voiced", speaking, voiced)
		}
		p.sent("loud 1000")
		p.up.QueueReplay(false)
		p.sent("")
	})
}

// If the conversation is cleared during a speech that the client has marked, the start is marked again.
func TestClear(t *testing.T) {
	bubble(t, func(p *person) {
		p.up.Configure(uplink.Config{IsManual: true})
		_ = p.up.QueueMark(uplink.MarkStart)
		p.says(loud, time.Second)
		p.up.QueueMessage(text("one"))
		p.up.ShowPicture(picture("x"), true)
		p.up.DiscardAll()
		p.says(loud, time.Second)
		p.sent("start, loud 1000")
		p.up.QueueReplay(false)
		if got := p.takeAll(); got != "start, loud 1000" {
			t.Errorf("%s is said again", got)
		}
		if p.up.TakePictureForTurn() != nil {
			t.Error("the picture is still there")
		}
	})
}

// At most one picture a second is sent, always the newest. An unchanged picture is sent only during speech.
func TestPictures(t *testing.T) {
	bubble(t, func(p *person) {
		p.up.ShowPicture(picture("1"), false) // the first is new
		p.sent("picture 1")
		p.up.ShowPicture(picture("2"), true)
		p.up.ShowPicture(picture("3"), false)
		p.sent("")
		if _, wait, ok := p.up.Next(0); ok || wait != time.Second {
			t.Errorf("%v, come back in %v", ok, wait)
		}
		time.Sleep(time.Second)
		p.sent("picture 3")
		time.Sleep(time.Second)
		p.up.ShowPicture(picture("4"), false)
		p.sent("")
		p.says(loud, 100*time.Millisecond)
		p.sent("picture 4, loud 100")
	})
}

// A typed turn contains the picture if it is recent. A large picture goes with only one turn, and at most 8 MB wait.
func TestPicturesOfTurns(t *testing.T) {
	large := string(bytes.Repeat([]byte("x"), 3<<20))
	for name, test := range map[string]struct {
		happens func(p *person)
		want    []bool
	}{
		"none":      {nil, []bool{false}},
		"small":     {func(p *person) { p.up.ShowPicture(picture("x"), true) }, []bool{true, true}},
		"large":     {func(p *person) { p.up.ShowPicture(picture(large), true) }, []bool{true, false}},
		"old":       {func(p *person) { p.up.ShowPicture(picture("x"), true); time.Sleep(11 * time.Second) }, []bool{false}},
		"taken off": {func(p *person) { p.up.ShowPicture(picture("x"), true); p.up.ClearPicture() }, []bool{false}},
		"too many": {func(p *person) {
			for range 2 {
				p.up.ShowPicture(picture(large), true)
				p.up.QueueTurn(uplink.Turn{Complete: true, Picture: p.up.TakePictureForTurn()})
			}
			p.up.ShowPicture(picture(large), true)
		}, []bool{false}},
	} {
		bubble(t, func(p *person) {
			if test.happens != nil {
				test.happens(p)
			}
			for i, want := range test.want {
				if got := p.up.TakePictureForTurn() != nil; got != want {
					t.Errorf("%s: turn %d has a picture: %v", name, i+1, got)
				}
			}
		})
	}
}

// However the audio stops after a speech, the model gets the silence that it needs to detect the end: once, at once,
// and at the sample rate of the audio.
func TestSilenceBehindASpeech(t *testing.T) {
	const silence = 1500 * time.Millisecond
	for name, test := range map[string]struct {
		then func(p *person)
		want time.Duration
	}{
		"a mark": {func(p *person) { _ = p.up.QueueMark(uplink.MarkPause) }, silence},
		"two marks": {
			func(p *person) { _ = p.up.QueueMark(uplink.MarkPause); _ = p.up.QueueMark(uplink.MarkPause) },
			silence,
		},
		"a mark and a nudge":             {func(p *person) { _ = p.up.QueueMark(uplink.MarkPause); _ = p.up.RepeatSpeechEnd() }, 2 * silence},
		"the microphone stops in a word": {func(p *person) { time.Sleep(uplink.MicPause); p.up.EndStoppedSpeech() }, silence},
		"it stops behind 0.4 s of silence": {func(p *person) {
			p.flows(0, 400*time.Millisecond)
			time.Sleep(uplink.MicPause)
			p.up.EndStoppedSpeech()
		}, silence},
		"it stops, and is asked twice": {func(p *person) {
			time.Sleep(uplink.MicPause)
			p.up.EndStoppedSpeech()
			p.up.EndStoppedSpeech()
		}, silence},
		"it stops behind enough silence": {func(p *person) {
			p.flows(0, 2*time.Second)
			time.Sleep(uplink.MicPause)
			p.up.EndStoppedSpeech()
		}, 0},
		"it goes on":                    {func(p *person) { p.flows(0, time.Second) }, 0},
		"on hold":                       {func(p *person) { p.up.SetPaused(true) }, silence},
		"said again to another session": {func(p *person) { _ = p.up.QueueMark(uplink.MarkPause); p.take(); p.up.QueueReplay(true) }, silence},
		"said again in mid-speech":      {func(p *person) { p.take(); p.up.QueueReplay(true) }, 0},
		"marked by hand": {func(p *person) {
			p.up.Configure(uplink.Config{IsManual: true})
			_ = p.up.QueueMark(uplink.MarkPause)
		}, 0},
	} {
		bubble(t, func(p *person) {
			p.up.Configure(uplink.Config{EndSilence: silence})
			p.flows(loud, time.Second)
			test.then(p)
			got := time.Duration(0)
			for {
				it, wait, ok := p.up.Next(1)
				switch {
				case ok && it.Silence > 0:
					got += it.Silence
					if it.Rate != 16000 {
						t.Errorf("%s: silence at %d Hz", name, it.Rate)
					}
				case !ok && wait > 0:
					time.Sleep(wait)
				}
				if !ok && wait == 0 {
					break
				}
			}
			if got != test.want {
				t.Errorf("%s: %v of silence, want %v", name, got, test.want)
			}
		})
	}
}
