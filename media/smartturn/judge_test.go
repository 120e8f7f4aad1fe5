package smartturn

import (
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// slowNetwork is a network that sleeps for each answer. In the simulated time of the tests, this time counts as CPU time.
type slowNetwork struct {
	takes time.Duration
	err   error
}

func (n *slowNetwork) predict(*analysis, []int16) (float64, error) {
	time.Sleep(n.takes)
	return 0.9, n.err
}

func (n *slowNetwork) close() {}

// simulate runs a test with a judge that has one worker, in simulated time. This time is also the judge's CPU time.
func simulate(t *testing.T, takes time.Duration, cpu float64, err error, test func(j *Judge, ask func() chan bool)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		j := newJudge(&slowNetwork{takes, err}, cpu, 1, func() time.Duration { return time.Since(start) })
		defer j.Close()
		test(j, func() chan bool {
			answered := make(chan bool, 1)
			j.Ask(nil, func(_ float64, ok bool) { answered <- ok })
			return answered
		})
	})
}

func (s Stats) counts() [5]int64 {
	return [5]int64{s.Questions, s.Answers, s.TooLate, s.OverBudget, s.Failures}
}

func TestAskAnswers(t *testing.T) {
	simulate(t, 20*time.Millisecond, 1, nil, func(j *Judge, ask func() chan bool) {
		if !<-ask() {
			t.Error("no answer")
		}
		s := j.Stats()
		if s.counts() != [5]int64{1, 1, 0, 0, 0} || s.Latency != 20*time.Millisecond || s.CPU != 20*time.Millisecond {
			t.Errorf("%+v", s)
		}
	})
}

// TestAskIsLate asks five questions at once that need 100 ms each. The third answer comes after the deadline, and the last two
// questions are not started.
func TestAskIsLate(t *testing.T) {
	simulate(t, 100*time.Millisecond, 1, nil, func(j *Judge, ask func() chan bool) {
		var answers [5]chan bool
		for i := range answers {
			answers[i] = ask()
		}
		for i, want := range []bool{true, true, false, false, false} {
			if ok := <-answers[i]; ok != want {
				t.Errorf("question %d: ok %v", i, ok)
			}
		}
		if s := j.Stats(); s.counts() != [5]int64{5, 2, 3, 0, 0} || s.CPU != 300*time.Millisecond {
			t.Errorf("%+v", s)
		}
	})
}

// TestAskKeepsTheBudget asks a question every 50 ms for a minute, with a budget of a tenth of a core.
func TestAskKeepsTheBudget(t *testing.T) {
	simulate(t, 40*time.Millisecond, 0.1, nil, func(j *Judge, ask func() chan bool) {
		for range 20 * 60 {
			ask()
			time.Sleep(50 * time.Millisecond)
		}
		s := j.Stats()
		if seconds := s.CPU.Seconds(); seconds < 6 || seconds > 6.5 {
			t.Errorf("%.2f s of CPU in a minute, want 6.0 and at most 0.4 of the time before", seconds)
		}
		if s.Answers+s.OverBudget != s.Questions {
			t.Errorf("%+v", s)
		}
	})
}

func TestAskRefusesWhenTheQueueIsFull(t *testing.T) {
	simulate(t, time.Millisecond, 100, nil, func(j *Judge, ask func() chan bool) {
		ask()
		synctest.Wait() // the worker has started the first question
		for range maxQueue + 5 {
			ask()
		}
		if n := j.Stats().OverBudget; n != 5 {
			t.Errorf("%d questions refused, want 5", n)
		}
	})
}

func TestAskReportsFailures(t *testing.T) {
	simulate(t, time.Millisecond, 1, errors.New("broken"), func(j *Judge, ask func() chan bool) {
		if <-ask() {
			t.Error("an answer without a network")
		}
		j.Close()
		if <-ask() {
			t.Error("a question is accepted after Close")
		}
		if s := j.Stats(); s.counts() != [5]int64{2, 0, 0, 1, 1} {
			t.Errorf("%+v", s)
		}
	})
}

func TestAskIsCheap(t *testing.T) {
	j := newJudge(&slowNetwork{}, 1e6, 1, threadTime)
	defer j.Close()
	pcm, answered := make([]int16, 3*samples), make(chan bool, 1)
	answer := func(float64, bool) { answered <- true }
	if n := testing.AllocsPerRun(100, func() {
		j.Ask(pcm, answer)
		<-answered
	}); n > 0 {
		t.Errorf("%v allocations", n)
	}
}

func TestLoadNamesTheFileThatIsWrong(t *testing.T) {
	dir := t.TempDir()
	broken := filepath.Join(dir, "broken.onnx")
	if err := os.WriteFile(broken, []byte("not a model"), 0o600); err != nil {
		t.Fatal(err)
	}
	for model, want := range map[string]string{filepath.Join(dir, "missing"): "missing", broken: "broken.onnx: not the ONNX file"} {
		if _, err := Load("libonnxruntime.so", model, 0); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
}

// loadJudge returns a judge for the files that `make turn-model` fetches. Without these files it skips the test.
func loadJudge(t testing.TB) *Judge {
	t.Helper()
	library, model := os.Getenv("VOXGATE_ONNXRUNTIME"), os.Getenv("VOXGATE_TURN_MODEL")
	if library == "" || model == "" {
		t.Skip("VOXGATE_ONNXRUNTIME and VOXGATE_TURN_MODEL are not set (make turn-model)")
	}
	j, err := Load(library, model, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(j.Close)
	return j
}

// TestPredictionsEqualThoseOfPython compares the network with the results of vectors.py, which cuts the model with other code.
func TestPredictionsEqualThoseOfPython(t *testing.T) {
	j := loadJudge(t)
	text, err := os.ReadFile("testdata/probabilities.txt")
	if err != nil {
		t.Fatal(err)
	}
	pcm := readSpeech(t)
	for line := range strings.Lines(string(text)) {
		var end int
		var want float64
		if _, err := fmt.Sscan(line, &end, &want); err != nil {
			t.Fatal(err)
		}
		_, got, err := j.Predict(pcm[:end])
		if err != nil {
			t.Fatal(err)
		}
		if math.Abs(got-want) > 0.02 {
			t.Errorf("window until %d: %.4f, want %.4f", end, got, want)
		}
	}
}

func TestLoadRefusesAnotherLibrary(t *testing.T) {
	loadJudge(t)
	_, err := Load("other.so", os.Getenv("VOXGATE_TURN_MODEL"), 0)
	if err == nil || !strings.Contains(err.Error(), "ONNX Runtime: other.so: already loaded") {
		t.Error(err)
	}
}

func BenchmarkPredict(b *testing.B) {
	j := loadJudge(b)
	var a analysis
	pcm := readSpeech(b)
	b.ReportAllocs()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	start := threadTime()
	for b.Loop() {
		if _, err := j.network.predict(&a, pcm); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64((threadTime()-start).Milliseconds())/float64(b.N), "cpu-ms/op")
}
