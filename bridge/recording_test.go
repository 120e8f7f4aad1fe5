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
)

// recorded is the recordings in a folder, each as long as its last page says.
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

// A conversation is recorded when it asks for it and there is a place for it, or when the operator says so, and the client
// learns of it either way.
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
			bubble(t, func(t *testing.T) {
				r := newRig(t, func(o *bridge.Options) {
					if test.place {
						o.Recordings = folder
					}
					o.RecordAll = test.all
				})
				c, l := r.connect(bridge.Open{Config: []byte(test.config)})
				if got := last[bridge.SetupComplete](c).Recording; got != test.want {
					t.Errorf("reported as recorded: %v", got)
				}
				switch {
				case test.want:
					c.warned("is recorded")
				case strings.Contains(test.config, "true"):
					c.warned("no place for recordings")
				}
				c.utter(time.Second)
				l.Answer(7, time.Second)
				time.Sleep(2 * time.Second)
				c.do(bridge.Goodbye{})
				c.ends(bridge.ErrGoodbye)
				<-c.over
			})
			lengths := recorded(t, folder)
			if (len(lengths) == 1) != test.want || test.want && (lengths[0]-4*time.Second).Abs() > 100*time.Millisecond {
				t.Errorf("recordings of %v", lengths)
			}
		})
	}
}

// The recording begins and ends when the configuration says so.
func TestRecordingByUpdate(t *testing.T) {
	folder := t.TempDir()
	bubble(t, func(t *testing.T) {
		r := newRig(t, func(o *bridge.Options) { o.Recordings = folder })
		c, _ := r.plain()
		c.quiet(2 * time.Second)
		c.do(bridge.UpdateConfig{Config: []byte(`{"voxgate":{"record":true}}`)})
		c.quiet(3 * time.Second)
		if !last[bridge.SetupComplete](c).Recording {
			t.Error("the client does not learn that it is recorded")
		}
		c.warned("is recorded")
		c.do(bridge.UpdateConfig{Config: []byte(`{}`)})
		c.quiet(2 * time.Second)
		if last[bridge.SetupComplete](c).Recording {
			t.Error("the client learns that it is still recorded")
		}
		c.warned("no longer recorded")
		c.do(bridge.Goodbye{})
		<-c.over
	})
	if lengths := recorded(t, folder); len(lengths) != 1 || (lengths[0]-3*time.Second).Abs() > 100*time.Millisecond {
		t.Errorf("recordings of %v", lengths)
	}
}

// A recording that is asked for again within a second is made.
func TestRecordingAgainWithinASecond(t *testing.T) {
	folder := t.TempDir()
	bubble(t, func(t *testing.T) {
		r := newRig(t, func(o *bridge.Options) { o.Recordings = folder })
		c, _ := r.plain()
		for _, config := range []string{`{"voxgate":{"record":true}}`, `{}`, `{"voxgate":{"record":true}}`} {
			c.do(bridge.UpdateConfig{Config: []byte(config)})
			time.Sleep(100 * time.Millisecond)
		}
		if !last[bridge.SetupComplete](c).Recording {
			t.Errorf("not recorded: %v", r.log.find("recording"))
		}
	})
	if files, _ := os.ReadDir(folder); len(files) != 2 {
		t.Errorf("%d files", len(files))
	}
}

// A recording goes on over a park and a resume, and is closed once.
func TestRecordingGoesOnOverAResume(t *testing.T) {
	folder := t.TempDir()
	bubble(t, func(t *testing.T) {
		r := newRig(t, func(o *bridge.Options) { o.Recordings = folder })
		c, l := r.connect(bridge.Open{Resumable: true, Config: []byte(`{"voxgate":{"record":true}}`)})
		for range 5 {
			c.utter(time.Second)
			l.Say(7, 3*time.Second)
			time.Sleep(time.Second)
			token := c.token()
			c.leaves()
			time.Sleep(time.Second)
			c = r.join(bridge.Open{ResumeToken: token})
			<-c.seated
			l.Completes()
			synctest.Wait()
			if !last[bridge.SetupComplete](c).Recording {
				t.Fatal("not recorded any more")
			}
		}
		c.do(bridge.Goodbye{})
		<-c.over
	})
	if lengths := recorded(t, folder); len(lengths) != 1 || (lengths[0]-20*time.Second).Abs() > 200*time.Millisecond {
		t.Errorf("recordings of %v", lengths)
	}
}

// A change of the configuration that Gemini refuses, or loses with the link, leaves no recording that nobody asked for.
func TestRecordingOfARefusedUpdate(t *testing.T) {
	folder := t.TempDir()
	bubble(t, func(t *testing.T) {
		r := newRig(t, func(o *bridge.Options) { o.Recordings = folder })
		c, l := r.connect(bridge.Open{Config: []byte(`{"systemInstruction":"a","voxgate":{"record":true}}`)})
		l.Handle("h")
		time.Sleep(time.Second)
		c.do(bridge.UpdateConfig{Config: []byte(`{"systemInstruction":"b"}`)}) // in place: tried for 500 ms
		time.Sleep(50 * time.Millisecond)
		l.End(1007, "Request contains an invalid argument.")
		r.up.Next().Accept()
		time.Sleep(3 * time.Second)
		if failed, _ := find[bridge.SetupFailed](c); len(failed) != 1 {
			t.Errorf("refused %d times", len(failed))
		}
		c.quiet(time.Second)
		c.do(bridge.Goodbye{})
		<-c.over
	})
	if lengths := recorded(t, folder); len(lengths) != 1 {
		t.Errorf("a recording was broken in two by a change that was refused: %v", lengths)
	}
}
