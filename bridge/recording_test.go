package bridge_test

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"voxgate/bridge"
	"voxgate/internal/testkit/bridgetest"
)

// recorded returns the lengths of the recordings in a folder, from their last pages.
func recorded(t *testing.T, folder string) []time.Duration {
	t.Helper()
	files, err := os.ReadDir(folder)
	if err != nil {
		t.Fatal(err)
	}
	var lengths []time.Duration
	for _, f := range files {
		b, err := os.ReadFile(filepath.Join(folder, f.Name()))
		if err != nil {
			t.Fatal(err)
		}
		last := bytes.LastIndex(b, []byte("OggS"))
		if last < 0 || b[last+5]&4 == 0 {
			t.Fatalf("%s is not a whole Ogg file", f.Name())
		}
		samples := 0 // the granule position: RFC 3533, section 6
		for i := range 8 {
			samples |= int(b[last+6+i]) << (8 * i)
		}
		lengths = append(lengths, time.Duration(samples)*time.Second/48000)
	}
	return lengths
}

// A conversation is recorded if its config requests it and there is a folder, or if the operator records all. The client is
// informed either way.
func TestRecording(t *testing.T) {
	for _, test := range []struct {
		name, config string
		place, all   bool
		want         bool
	}{
		{"not asked for", `{}`, true, false, false},
		{"asked for", `{"voxgate":{"record":true}}`, true, false, true},
		{"no place", `{"voxgate":{"record":true}}`, false, false, false},
		{"all", `{}`, true, true, true},
		{"all, but not this one", `{"voxgate":{"record":false}}`, true, true, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			folder := t.TempDir()
			runWithFakeClock(t, func(t *testing.T) {
				r := newHarness(t, func(o *bridge.Options) {
					if test.place {
						o.Recordings = folder
					}
					o.RecordAll = test.all
				})
				c, l := r.connectCaller(bridge.SessionRequest{Config: []byte(test.config)})
				if got := lastEvent[bridge.SetupComplete](c).Recording; got != test.want {
					t.Errorf("reported as recorded: %v", got)
				}
				switch {
				case test.want:
					c.checkWarning("is recorded")
				case strings.Contains(test.config, "true"):
					c.checkWarning("no folder for recordings")
				}
				c.speakFor(time.Second)
				l.SendAnswer(7, time.Second)
				time.Sleep(2 * time.Second)
				c.doCommand(bridge.Goodbye{})
				c.awaitEnd(bridge.ErrGoodbye)
				<-c.over
			})
			lengths := recorded(t, folder)
			if (len(lengths) == 1) != test.want || test.want && (lengths[0]-4*time.Second).Abs() > 100*time.Millisecond {
				t.Errorf("recordings of %v", lengths)
			}
		})
	}
}

// A change of the configuration starts and stops the recording.
func TestRecordingByUpdate(t *testing.T) {
	folder := t.TempDir()
	runWithFakeClock(t, func(t *testing.T) {
		r := newHarness(t, func(o *bridge.Options) { o.Recordings = folder })
		c, _ := r.plain()
		c.staySilentFor(2 * time.Second)
		c.doCommand(bridge.UpdateConfig{Config: []byte(`{"voxgate":{"record":true}}`)})
		c.staySilentFor(3 * time.Second)
		if !lastEvent[bridge.SetupComplete](c).Recording {
			t.Error("the client does not learn that it is recorded")
		}
		c.checkWarning("is recorded")
		c.doCommand(bridge.UpdateConfig{Config: []byte(`{}`)})
		c.staySilentFor(2 * time.Second)
		if lastEvent[bridge.SetupComplete](c).Recording {
			t.Error("the client learns that it is still recorded")
		}
		c.checkWarning("no longer recorded")
		c.doCommand(bridge.Goodbye{})
		<-c.over
	})
	if lengths := recorded(t, folder); len(lengths) != 1 || (lengths[0]-3*time.Second).Abs() > 100*time.Millisecond {
		t.Errorf("recordings of %v", lengths)
	}
}

// packets returns the sizes of the packets of a recording, of 20 ms each. Packets of silence have only a few bytes.
func packets(t *testing.T, file string) (sizes []int) {
	t.Helper()
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for size := 0; len(b) > 27; { // a page: RFC 3533, section 6
		lacing := b[27 : 27+int(b[26])]
		b = b[27+len(lacing):]
		for _, n := range lacing {
			size += int(n)
			b = b[n:]
			if n < 255 {
				sizes, size = append(sizes, size), 0
			}
		}
	}
	return sizes[2:] // the headers
}

// While the recording is paused, the file gets no speech, but is as long as the conversation. The client is informed of the
// pause, and SessionEnded has it.
func TestARecordingPauses(t *testing.T) {
	folder := t.TempDir()
	var end bridge.SessionEnded
	runWithFakeClock(t, func(t *testing.T) {
		r := newHarness(t, func(o *bridge.Options) {
			o.Recordings = folder
			o.Observe = func(_ string, x bridge.Observation) {
				if e, ok := x.(bridge.SessionEnded); ok {
					end = e
				}
			}
		})
		c, _ := r.connectCaller(bridge.SessionRequest{Config: []byte(`{"voxgate":{"record":true}}`)})
		recording := func(want bool) {
			t.Helper()
			synctest.Wait()
			if got := lastEvent[bridge.Log](c).Details["recording"]; got != want || c.session.IsRecorded() != want {
				t.Errorf("the client learns that it is recorded: %v, want %v", got, want)
			}
		}
		c.speakFor(2 * time.Second)
		c.doCommand(bridge.PauseRecording{On: true})
		c.doCommand(bridge.PauseRecording{On: true})
		recording(false)
		c.speakFor(2 * time.Second)
		c.updateConfig(`{"voxgate":{"record":true}}`) // changes nothing
		recording(false)
		c.doCommand(bridge.PauseRecording{})
		recording(true)
		c.speakFor(2 * time.Second)
		c.doCommand(bridge.Goodbye{})
		<-c.over
		if err := c.session.Do(bridge.PauseRecording{On: true}); err == nil {
			t.Error("paused after the end")
		}
	})
	if len(end.Pauses) != 1 || len(end.Recordings) != 1 {
		t.Fatalf("paused at %v in %v", end.Pauses, end.Recordings)
	}
	began := end.Started
	from, to := int(end.Pauses[0].From.Sub(began)/(20*time.Millisecond)), int(end.Pauses[0].To.Sub(began)/(20*time.Millisecond))
	sizes := packets(t, end.Recordings[0])
	loud := func(sizes []int) (n int) {
		for _, size := range sizes {
			if size > 40 {
				n++
			}
		}
		return n
	}
	const mark = 30 // 0.2 s, and as long until the encoder takes what follows for silence
	if len(sizes) < to+100 || to-from < 100 || loud(sizes[from+mark:to-5]) > 0 {
		t.Errorf("of %d packets these were paused: %v", len(sizes), sizes[from:to])
	}
	if before, after := loud(sizes[:from]), loud(sizes[to+mark:]); before < 90 || after < 80 {
		t.Errorf("%d packets have sound before and %d after", before, after)
	}
}

// Without a recording, PauseRecording is rejected.
func TestPauseWithoutARecording(t *testing.T) {
	converse(t, bridge.SessionRequest{}, func(t *testing.T, _ *harness, c *caller, _ *bridgetest.Conn) {
		if e := bridge.AsError(c.session.Do(bridge.PauseRecording{On: true})); e.Code != bridge.CodeInvalidState {
			t.Error(e)
		}
	})
}

// A recording that is requested again within a second gets another file.
func TestRecordingAgainWithinASecond(t *testing.T) {
	folder := t.TempDir()
	runWithFakeClock(t, func(t *testing.T) {
		r := newHarness(t, func(o *bridge.Options) { o.Recordings = folder })
		c, _ := r.plain()
		for _, config := range []string{`{"voxgate":{"record":true}}`, `{}`, `{"voxgate":{"record":true}}`} {
			c.doCommand(bridge.UpdateConfig{Config: []byte(config)})
			time.Sleep(100 * time.Millisecond)
		}
		if !lastEvent[bridge.SetupComplete](c).Recording {
			t.Errorf("not recorded: %v", r.log.find("recording"))
		}
	})
	if files, _ := os.ReadDir(folder); len(files) != 2 {
		t.Errorf("%d files", len(files))
	}
}

// A recording continues while the conversation is parked and resumed, and is closed once.
func TestRecordingGoesOnOverAResume(t *testing.T) {
	folder := t.TempDir()
	runWithFakeClock(t, func(t *testing.T) {
		r := newHarness(t, func(o *bridge.Options) { o.Recordings = folder })
		c, l := r.connectCaller(bridge.SessionRequest{Resumable: true, Config: []byte(`{"voxgate":{"record":true}}`)})
		for range 5 {
			c.speakFor(time.Second)
			l.SendVoice(7, 3*time.Second)
			time.Sleep(time.Second)
			token := c.resumeToken()
			c.disconnect()
			time.Sleep(time.Second)
			c = r.startCaller(bridge.SessionRequest{ResumeToken: token})
			<-c.seated
			l.CompleteTurn()
			synctest.Wait()
			if !lastEvent[bridge.SetupComplete](c).Recording {
				t.Fatal("not recorded any more")
			}
		}
		c.doCommand(bridge.Goodbye{})
		<-c.over
	})
	if lengths := recorded(t, folder); len(lengths) != 1 || (lengths[0]-20*time.Second).Abs() > 200*time.Millisecond {
		t.Errorf("recordings of %v", lengths)
	}
}

// A change of the configuration that Gemini rejects, or that is lost with the connection, does not start a recording.
func TestRecordingOfARefusedUpdate(t *testing.T) {
	folder := t.TempDir()
	runWithFakeClock(t, func(t *testing.T) {
		r := newHarness(t, func(o *bridge.Options) { o.Recordings = folder })
		c, l := r.connectCaller(bridge.SessionRequest{Config: []byte(`{"systemInstruction":"a","voxgate":{"record":true}}`)})
		l.SendHandle("h")
		time.Sleep(time.Second)
		c.doCommand(bridge.UpdateConfig{Config: []byte(`{"systemInstruction":"b"}`)}) // in place: tried for 500 ms
		time.Sleep(50 * time.Millisecond)
		l.CloseWith(1007, "Request contains an invalid argument.")
		r.up.NextConn().SendSetupComplete()
		time.Sleep(3 * time.Second)
		if failed, _ := findEvents[bridge.SetupFailed](c); len(failed) != 1 {
			t.Errorf("refused %d times", len(failed))
		}
		c.staySilentFor(time.Second)
		c.doCommand(bridge.Goodbye{})
		<-c.over
	})
	if lengths := recorded(t, folder); len(lengths) != 1 {
		t.Errorf("a recording was broken in two by a change that was refused: %v", lengths)
	}
}
