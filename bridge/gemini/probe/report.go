package probe

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"voxgate/bridge/gemini/liveconfig"
	"voxgate/bridge/gemini/traces"
)

// Report is the result of a run, which can be published and compared with other runs.
type Report struct {
	// Made is the time of the run. Version is the version of the gateway. Server is "the Gemini API", "Vertex AI", or
	// "another server".
	Made    time.Time `json:"made"`
	Version string    `json:"version"`
	Server  string    `json:"server"`

	Results []Result `json:"results"`
}

// Message is one message of a conversation. Sound, pictures, handles and session IDs are removed.
type Message struct {
	At   float64         `json:"at"`   // seconds since the first message
	From string          `json:"from"` // "us" (the probe) or "server"
	JSON json.RawMessage `json:"json"`
}

const (
	// maxMessages limits the messages of a conversation that are kept. The first and the last messages are sufficient,
	// because most of the others are audio, of which up to 50 messages a second arrive.
	maxMessages = 120

	// maxMessage limits the size of a message that is kept, in bytes.
	maxMessage = 8 << 10
)

// trace keeps the messages of a conversation.
type trace struct {
	mu      sync.Mutex
	start   time.Time
	list    []Message
	dropped int // number of messages that were dropped in the middle of the list
	redact  traces.Redactor
}

// add stores a message. It is called by the sending and by the receiving goroutine.
func (t *trace) add(isSent bool, frame []byte) {
	t.mu.Lock()
	defer t.mu.Unlock()
	m := Message{From: "server", JSON: t.redactMessage(frame)}
	if isSent {
		m.From = "us"
	}
	if t.start.IsZero() {
		t.start = time.Now()
	}
	m.At = time.Since(t.start).Round(time.Millisecond).Seconds()
	if len(t.list) == maxMessages {
		t.dropped++
		t.list = slices.Delete(t.list, maxMessages/2, maxMessages/2+1)
	}
	t.list = append(t.list, m)
}

func (t *trace) messages() []Message {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.dropped == 0 {
		return slices.Clone(t.list)
	}
	note, _ := json.Marshal(fmt.Sprintf("%d messages were left out here", t.dropped))
	return slices.Insert(slices.Clone(t.list), maxMessages/2, Message{At: t.list[maxMessages/2].At, From: "us", JSON: note})
}

// redactMessage removes secrets and long content from a message. gemini.Conn has already removed the key from the server's
// messages. The caller must hold mu.
func (t *trace) redactMessage(frame []byte) json.RawMessage {
	t.redact.Numbers = true
	text := t.redact.RedactMessage(frame)
	if len(text) > maxMessage {
		text, _ = json.Marshal(fmt.Sprintf("a message of %d bytes", len(frame)))
	}
	return text
}

// WithoutPrivateDetails returns the report without private details.
func (r Report) WithoutPrivateDetails() Report {
	redact := traces.Redactor{Numbers: true}
	r.Results = slices.Clone(r.Results)
	for i := range r.Results {
		notes := slices.Clone(r.Results[i].Notes)
		for j := range notes {
			notes[j] = redact.RedactText(notes[j])
		}
		r.Results[i].Notes = notes
	}
	return r
}

// Difference describes a probe that found other facts than the same probe in an earlier report.
type Difference struct {
	ID             string
	Reported, Here []string
}

func (d Difference) String() string {
	return fmt.Sprintf("%s: the report has %q, here it is %q", d.ID, strings.Join(d.Reported, "; "), strings.Join(d.Here, "; "))
}

// CompareResults compares the results of a report with those of this run, and returns the probes that found different
// facts. compared is the number of probes that were run in both.
func CompareResults(reported, here []Result) (different []Difference, compared int) {
	found := make(map[string]Result, len(here))
	for _, r := range here {
		found[r.ID()] = r
	}
	for _, r := range reported {
		h, known := found[r.ID()]
		if !known || !r.wasRun() || !h.wasRun() {
			continue
		}
		if compared++; !slices.Equal(r.Found, h.Found) {
			different = append(different, Difference{r.ID(), r.Found, h.Found})
		}
	}
	return different, compared
}

func (r Result) wasRun() bool {
	return r.Verdict == AsAssumed || r.Verdict == Different || r.Verdict == Learned
}

// Findings returns the results that replace the gateway's assumptions about models. The keys are names of models.
func (r Report) Findings() map[string]liveconfig.Findings {
	all := make(map[string]liveconfig.Findings)
	for _, result := range r.Results {
		if !result.wasRun() || len(result.Found) == 0 {
			continue
		}
		f, last := all[result.Model], result.Found[len(result.Found)-1]
		switch result.Name {
		case remembersResumes:
			if says := last == "says plum"; says || last == "does not say plum" {
				f.ForgetfulHandles = new(!says)
			}
		case remembersLong:
			if says := last == "says plum"; says || last == "does not say plum" {
				f.ForgetfulWithLongInstruction = new(!says)
			}
		case endsAtStreamEnd:
			if answered := last == "answers"; answered || last == "silent" {
				f.SilenceRequired = new(!answered)
			}
		}
		if f != (liveconfig.Findings{}) {
			all[result.Model] = f
		}
	}
	return all
}

// Models returns the models that have results in the report.
func (r Report) Models() (models []string) {
	for _, result := range r.Results {
		if result.wasRun() && !slices.Contains(models, result.Model) {
			models = append(models, result.Model)
		}
	}
	return models
}
