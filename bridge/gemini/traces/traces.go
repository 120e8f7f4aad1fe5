// Package traces reads and writes recordings of the messages between a client and the Live API: JSON lines without sound, keys and
// handles. Its testdata contains published recordings. The first line of each names its source.
package traces

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Comment is the first line of a recording and describes its origin.
type Comment struct {
	Source  string `json:"source"`
	Date    string `json:"date"`
	Model   string `json:"model"`
	Backend string `json:"backend"`
	Real    string `json:"real,omitempty"` // which part of the recording is from a real server, and how it was recorded
	Clock   string `json:"ms,omitempty"`   // what the times (ms) are relative to
	Audio   string `json:"audio,omitempty"`
	Note    string `json:"note,omitempty"`

	// Microphone is the length of the silence that the client sends after each speech, such as "500ms". If it is empty,
	// the client sends silence until the end of the recording.
	Microphone string `json:"microphone,omitempty"`
}

// Directions of a [Line].
const (
	Up       = "up"    // message of the client
	Down     = "down"  // message of the server
	EndClose = "close" // the server has closed the connection
	Note     = "note"  // a remark of the author
)

// Line is one line of a recording after the first.
type Line struct {
	Dir   string          `json:"dir"`
	MS    *float64        `json:"ms,omitempty"` // milliseconds since the start; nil if not recorded
	Msg   json.RawMessage `json:"msg,omitempty"`
	Times int             `json:"times,omitempty"` // number of equal messages in a row; 0 means one
	Note  string          `json:"note,omitempty"`

	// If the recording lists the closes of several connections, the following fields describe the connection of each.
	After   string `json:"after,omitempty"`
	Model   string `json:"model,omitempty"`
	Backend string `json:"backend,omitempty"`
	Source  string `json:"source,omitempty"`
	Date    string `json:"date,omitempty"`

	Bytes int `json:"bytes,omitempty"` // original size of the message
}

// Close is the content of Line.Msg in a line with the direction EndClose.
type Close struct {
	Code   int    `json:"code"`
	Reason string `json:"reason"`
}

// Trace is a recording.
type Trace struct {
	Name    string
	Comment Comment
	Lines   []Line
}

// Variable is the name of an environment variable. If it has the path of a recording, tests read that recording instead
// of the package's own. `make traces` sets it.
const Variable = "VOXGATE_TRACE"

// ReadTests reads the recordings for a test: all in dir, or only the file that the environment variable names.
func ReadTests(dir string) ([]Trace, error) {
	files, err := filepath.Glob(filepath.Join(dir, "*.jsonl"))
	if file := os.Getenv(Variable); file != "" {
		files = []string{file}
	}
	if err == nil && len(files) == 0 {
		err = fmt.Errorf("%s: no recordings", dir)
	}
	var list []Trace
	for _, file := range files {
		f, openErr := os.Open(file)
		if openErr != nil {
			return nil, openErr
		}
		trace, readErr := Read(f)
		_ = f.Close() // an error is ignored, because the file was only read
		if readErr != nil {
			return nil, fmt.Errorf("%s: %w", file, readErr)
		}
		trace.Name = strings.TrimSuffix(filepath.Base(file), ".jsonl")
		list = append(list, trace)
	}
	return list, err
}

// maxLine limits a line of a recording, in bytes.
const maxLine = 16 << 20

// Read reads one recording.
func Read(r io.Reader) (Trace, error) {
	var t Trace
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, maxLine)
	for number := 1; lines.Scan(); number++ {
		if len(bytes.TrimSpace(lines.Bytes())) == 0 {
			continue
		}
		var line struct {
			Line
			Comment *Comment `json:"comment"`
		}
		if err := json.Unmarshal(lines.Bytes(), &line); err != nil {
			return Trace{}, fmt.Errorf("line %d: %w", number, err)
		}
		switch {
		case line.Comment != nil:
			t.Comment = *line.Comment
		case !slices.Contains([]string{Up, Down, EndClose, Note}, line.Dir):
			return Trace{}, fmt.Errorf("line %d: dir %q must be up, down, close or note", number, line.Dir)
		case line.Dir != Note && len(line.Msg) == 0:
			return Trace{}, fmt.Errorf("line %d: msg is missing", number)
		default:
			t.Lines = append(t.Lines, line.Line)
		}
	}
	if err := lines.Err(); err != nil {
		return Trace{}, err
	}
	if len(t.Lines) == 0 {
		return Trace{}, errors.New("the recording has no messages")
	}
	return t, nil
}

// MessageCount returns how many messages the line stands for.
func (l *Line) MessageCount() int { return max(l.Times, 1) }

// CloseFrame returns the content of a line with the direction EndClose.
func (l *Line) CloseFrame() (c Close, err error) {
	err = json.Unmarshal(l.Msg, &c)
	return c, err
}

// Setup returns the setup that the client has sent, or nil if it is not in the recording.
func (t *Trace) Setup() json.RawMessage {
	for i := range t.Lines {
		var m struct{ Setup json.RawMessage }
		if l := &t.Lines[i]; l.Dir == Up && json.Unmarshal(l.Msg, &m) == nil && m.Setup != nil {
			return m.Setup
		}
	}
	return nil
}

// ModelName returns the name of the model without its path.
func (t *Trace) ModelName() string {
	name := t.Comment.Model
	var setup struct{ Model string }
	if json.Unmarshal(t.Setup(), &setup) == nil {
		name = cmp.Or(setup.Model, name)
	}
	return name[strings.LastIndexByte(name, '/')+1:]
}

// IsVertex reports whether the server was Vertex AI, or a proxy in front of it.
func (t *Trace) IsVertex() bool {
	var setup struct{ Model string }
	_ = json.Unmarshal(t.Setup(), &setup)
	return strings.Contains(t.Comment.Backend, "Vertex") || strings.Contains(setup.Model, "publishers/google")
}

// Placeholders for sound in a recording. cutSound matches those without a length. They count as unknownLength, which is
// a common length of Google's chunks.
var (
	charsOf  = regexp.MustCompile(`^<(\d+) chars>$`)
	lengthOf = regexp.MustCompile(`^<(\d+) ms of (speech|silence)\b`)
	cutSound = regexp.MustCompile(`^<(cut|not logged)\b`)
)

const unknownLength = 40 * time.Millisecond

// Sound describes the sound that a placeholder has replaced. Either Chars is set, or Length is, and Silent distinguishes
// silence from speech.
type Sound struct {
	Chars  int // number of base64 characters; 0 means that Length is set instead
	Length time.Duration
	Silent bool
}

// ParseSoundPlaceholder parses a placeholder in the data of a blob. ok is false if data is not a placeholder.
func ParseSoundPlaceholder(data string) (s Sound, ok bool) {
	if m := charsOf.FindStringSubmatch(data); m != nil {
		s.Chars, _ = strconv.Atoi(m[1])
		return s, true
	}
	if m := lengthOf.FindStringSubmatch(data); m != nil {
		ms, _ := strconv.Atoi(m[1])
		return Sound{Length: time.Duration(ms) * time.Millisecond, Silent: m[2] == "silence"}, true
	}
	return Sound{Length: unknownLength}, cutSound.MatchString(data)
}

// Bytes returns the size of the sound in bytes, as 16-bit samples at rate Hz.
func (s Sound) Bytes(rate int) int {
	if s.Chars > 0 {
		return s.Chars / 4 * 3
	}
	return 2 * int(s.Length.Seconds()*float64(rate))
}

// PCM returns substitute audio at rate Hz for a placeholder. Silence stays silence, and speech becomes tones that do
// not repeat.
func (s Sound) PCM(rate int) []int16 {
	pcm := make([]int16, s.Bytes(rate)/2)
	if s.Silent {
		return pcm
	}
	for i := range pcm {
		chance := uint32(i*50/rate+1) * 2654435761 >> 8 // a pseudo-random number that changes every 20 ms
		pcm[i] = int16(float64(2000+chance%8000) * math.Sin(2*math.Pi*float64(200+chance%801)*float64(i)/float64(rate)))
	}
	return pcm
}

var dataField = regexp.MustCompile(`"data":\s*"(<[^"]*>)"`)

// FillSound replaces the placeholders for sound in a server message by base64 of PCM. All samples have the value
// sample, so that a test can find them.
func FillSound(msg json.RawMessage, sample int16, rate int) json.RawMessage {
	return dataField.ReplaceAllFunc(msg, func(field []byte) []byte {
		s, ok := ParseSoundPlaceholder(string(dataField.FindSubmatch(field)[1]))
		if !ok {
			return field
		}
		raw := make([]byte, s.Bytes(rate))
		for i := 0; i+1 < len(raw); i += 2 {
			binary.LittleEndian.PutUint16(raw[i:], uint16(sample))
		}
		return []byte(`"data":"` + base64.StdEncoding.EncodeToString(raw) + `"`)
	})
}
