package smartturn

import (
	"fmt"
	"math"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"voxgate/media/prosody"
)

const (
	// DefaultCPU is the share of one processor core that all questions together may use. A question takes 20 ms, so
	// this is enough for the pauses of about 70 calls.
	DefaultCPU = 0.25

	// Deadline limits the time from a question to its answer.
	Deadline = 250 * time.Millisecond

	// budgetWindow limits the CPU time that can be saved up: at most as much as the budget grows in this time.
	budgetWindow = 4 * time.Second
	// maxQueue limits the questions that wait. One worker can answer this many before their deadline.
	maxQueue = 12
	// maxWorkers limits the questions that are answered at once.
	maxWorkers = 4
)

// LatencyBuckets are the upper limits of Stats.Latencies.
var LatencyBuckets = [...]time.Duration{
	20 * time.Millisecond, 30 * time.Millisecond, 50 * time.Millisecond, 100 * time.Millisecond, 150 * time.Millisecond, Deadline,
}

// Judge answers whether a person who pauses has finished speaking. It may be used concurrently.
type Judge struct {
	network    predictor
	threadTime func() time.Duration
	queue      chan question
	budget     budget
	workers    sync.WaitGroup

	mu       sync.RWMutex // guards isClosed, and keeps Close from closing the queue during enqueue
	isClosed bool

	questions, answers, tooLate, overBudget, failures atomic.Int64
	cpu, latency                                      atomic.Int64 // sums in nanoseconds
	latencies                                         [len(LatencyBuckets)]atomic.Int64
}

// predictor is a [network], or its replacement in a test.
type predictor interface {
	predict(a *analysis, pcm []int16) (float64, error)
	close()
}

// question is a request to judge, from the audio before a pause, whether the person has finished speaking.
type question struct {
	pcm      []int16
	at       time.Time
	reserved time.Duration // CPU time that was taken from the budget
	answer   func(finished float64, ok bool)
}

// Load opens the library of ONNX Runtime and the model, and starts the workers. cpu is the share of a core for
// questions; 0 means [DefaultCPU]. A process can use only one library. An error names the file that is wrong. The
// caller must close the Judge.
func Load(libraryFile, modelFile string, cpu float64) (*Judge, error) {
	n, err := loadNetwork(libraryFile, modelFile)
	if err != nil {
		return nil, err
	}
	if _, err := n.predict(new(analysis), nil); err != nil { // checks the model; also, the first question takes longer
		n.close()
		return nil, fmt.Errorf("%s: %w", modelFile, err)
	}
	if cpu == 0 {
		cpu = DefaultCPU
	}
	return newJudge(n, cpu, min(runtime.GOMAXPROCS(0), maxWorkers), threadTime), nil
}

func newJudge(n predictor, cpu float64, workers int, threadTime func() time.Duration) *Judge {
	j := &Judge{network: n, threadTime: threadTime, queue: make(chan question, maxQueue), budget: newBudget(cpu)}
	for range workers {
		j.workers.Go(j.runWorker)
	}
	return j
}

// Ask asks whether a person has finished speaking. It does not block. pcm is audio at 16 kHz that ends 200 ms after the
// voice's last sound. 4 s are best. pcm must not change until answer is called.
//
// answer is called once, within [Deadline] or a little later, with the combined probability of the network and package
// prosody. answer must not block. ok is false if the budget is used up, too many questions wait, or the network was
// late or failed.
func (j *Judge) Ask(pcm []int16, answer func(finished float64, ok bool)) {
	j.questions.Add(1)
	if !j.enqueue(pcm, answer) {
		j.overBudget.Add(1)
		answer(0, false)
	}
}

// enqueue puts a question into the queue. It returns false if the budget or the queue has no room.
func (j *Judge) enqueue(pcm []int16, answer func(finished float64, ok bool)) (isAccepted bool) {
	j.mu.RLock()
	defer j.mu.RUnlock()
	now := time.Now()
	if j.isClosed {
		return false
	}
	reserved, ok := j.budget.reserve(now)
	if !ok {
		return false
	}
	select {
	case j.queue <- question{pcm, now, reserved, answer}:
		return true
	default:
		j.budget.settle(reserved, 0)
		return false
	}
}

// runWorker answers questions. It runs on an OS thread of its own, so that it can measure the CPU time of each
// question.
func (j *Judge) runWorker() {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var a analysis
	for q := range j.queue {
		if time.Since(q.at) >= Deadline {
			j.budget.settle(q.reserved, 0)
			j.tooLate.Add(1)
			q.answer(0, false)
			continue
		}
		start := j.threadTime()
		p, err := j.predict(&a, q.pcm)
		used := j.threadTime() - start
		j.budget.settle(q.reserved, used)
		j.cpu.Add(int64(used))
		latency := time.Since(q.at)
		switch {
		case err != nil:
			j.failures.Add(1)
			q.answer(0, false)
		case latency > Deadline:
			j.tooLate.Add(1)
			q.answer(0, false)
		default:
			j.answers.Add(1)
			j.latency.Add(int64(latency))
			for i, limit := range LatencyBuckets {
				if latency <= limit {
					j.latencies[i].Add(1)
					break
				}
			}
			q.answer(p, true)
		}
	}
}

// predict returns the combined probability of the network and package prosody.
func (j *Judge) predict(a *analysis, pcm []int16) (float64, error) {
	p, err := j.network.predict(a, pcm)
	return combineProbabilities(p, float64(prosody.Predict(pcm))), err
}

// Predict returns the probability that Ask would pass to answer, and the probability of the network alone. It ignores
// queue, budget and deadline, because it is for measurements.
func (j *Judge) Predict(pcm []int16) (probability, networkProbability float64, err error) {
	networkProbability, err = j.network.predict(new(analysis), pcm)
	return combineProbabilities(networkProbability, float64(prosody.Predict(pcm))), networkProbability, err
}

// Close waits for the questions in the queue, and releases the model. The library stays loaded. Later questions are refused.
func (j *Judge) Close() {
	j.mu.Lock()
	if j.isClosed {
		j.mu.Unlock()
		return
	}
	j.isClosed = true
	close(j.queue)
	j.mu.Unlock()
	j.workers.Wait()
	j.network.close()
}

// Stats counts questions since the start. A question that still waits is counted as a question, but not yet by its
// result.
type Stats struct {
	Questions  int64
	Answers    int64
	TooLate    int64 // not answered before the deadline
	OverBudget int64 // refused, because the budget was used up or the queue was full
	Failures   int64 // errors of ONNX Runtime

	Latency   time.Duration              // sum of the latencies of Answers
	Latencies [len(LatencyBuckets)]int64 // number of Answers in each of LatencyBuckets
	CPU       time.Duration              // CPU time that the questions used
}

// Stats returns the counts, which are 0 for a nil Judge.
func (j *Judge) Stats() (s Stats) {
	if j == nil {
		return s
	}
	s = Stats{
		Questions: j.questions.Load(), Answers: j.answers.Load(), TooLate: j.tooLate.Load(), OverBudget: j.overBudget.Load(),
		Failures: j.failures.Load(), Latency: time.Duration(j.latency.Load()), CPU: time.Duration(j.cpu.Load()),
	}
	for i := range s.Latencies {
		s.Latencies[i] = j.latencies[i].Load()
	}
	return s
}

// budget limits CPU time. Each second adds share seconds of CPU time to rest, up to the maximum most.
type budget struct {
	share   float64
	most    time.Duration
	mu      sync.Mutex
	at      time.Time
	rest    time.Duration
	typical time.Duration // expected cost of a question
}

func newBudget(share float64) budget {
	const typical = 20 * time.Millisecond
	most := max(time.Duration(share*float64(budgetWindow)), 2*typical)
	return budget{share: share, most: most, rest: most, typical: typical}
}

// reserve takes the expected cost of a question from the budget and returns this cost. ok is false if the budget has
// less left.
func (b *budget) reserve(now time.Time) (reserved time.Duration, ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.at.IsZero() {
		b.rest = min(b.rest+time.Duration(b.share*float64(now.Sub(b.at))), b.most)
	}
	b.at = now
	if b.rest < b.typical {
		return 0, false
	}
	b.rest -= b.typical
	return b.typical, true
}

// settle corrects the budget by the CPU time that a question has used instead of the reserved time. used is 0 if the
// question was not answered.
func (b *budget) settle(reserved, used time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.rest += reserved - used
	if used > 0 { // at most the whole budget, because reserve would always fail above it
		b.typical = min(b.typical+(used-b.typical)/16, b.most)
	}
}

// combineProbabilities combines the probabilities of the network and of package prosody into one.
func combineProbabilities(network, prosody float64) float64 {
	return 1 / (1 + math.Exp(-bias-weight*(logit(network)+logit(prosody))))
}

// logit returns the logarithm of the odds.
func logit(p float64) float64 {
	p = min(max(p, 1e-6), 1-1e-6)
	return math.Log(p / (1 - p))
}
