package telemetry

import (
	"context"
	"encoding/json"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"sync"
	"time"

	"voxgate/bridge"
	"voxgate/media/record"
)

// sessionEnd describes a conversation that has ended, for the session webhook and for its call file: docs/sideband.md.
type sessionEnd struct {
	Type       string            `json:"type"`
	Session    webhookSession    `json:"session"`
	StartedAt  time.Time         `json:"startedAt"`
	EndedAt    time.Time         `json:"endedAt"`
	Reason     string            `json:"reason"`
	Model      string            `json:"model"`
	Turns      int               `json:"turns"`
	Step       string            `json:"step,omitempty"`   // the agent's last step
	Fields     map[string]any    `json:"fields,omitempty"` // values that were collected in the agent's steps
	Tokens     int               `json:"tokens"`
	Dollars    *float64          `json:"dollars,omitempty"`
	Recordings []string          `json:"recordings,omitempty"` // paths on the gateway's machine
	Pauses     []pauseSpan       `json:"recordingPauses,omitempty"`
	Outcome    json.RawMessage   `json:"outcome,omitempty"`      // follows the agent's JSON Schema
	Failed     string            `json:"outcomeError,omitempty"` // why the outcome is missing
	Transcript []transcriptEntry `json:"transcript"`
}

// transcriptEntry holds the words of one side in a turn. Words of the model that an interruption left unplayed are missing.
type transcriptEntry struct {
	Role string    `json:"role"` // user or assistant
	At   time.Time `json:"at"`
	Text string    `json:"text"`
	Cut  bool      `json:"cut,omitempty"` // interrupted
}

// pauseSpan is a pause in the recording. A pause without an end lasts until the end of the conversation.
type pauseSpan struct {
	From time.Time  `json:"from"`
	To   *time.Time `json:"to,omitempty"`
}

func newSessionEnd(e endReport) sessionEnd {
	var pauses []pauseSpan
	for _, p := range e.Pauses {
		pause := pauseSpan{From: p.From.UTC()}
		if !p.To.IsZero() {
			to := p.To.UTC()
			pause.To = &to
		}
		pauses = append(pauses, pause)
	}
	return sessionEnd{
		"session.end",
		webhookSession{ID: e.ID, Protocol: e.Protocol, Agent: e.Agent, Identity: e.Identity, Attributes: e.Attributes},
		e.Started.UTC(), e.At.UTC(), bridge.DescribeEnd(e.Reason), e.Model, e.Turns,
		e.Step, e.Fields, e.Tokens, e.Dollars, e.Recordings, pauses, e.outcome, e.failed,
		transcriptEntries(e.Transcript),
	}
}

func transcriptEntries(transcript []bridge.Entry) []transcriptEntry {
	list := make([]transcriptEntry, len(transcript))
	for i, t := range transcript {
		list[i] = transcriptEntry{t.Role, t.Time.UTC(), t.Content, t.Interrupted}
	}
	return list
}

// maxQueuedFiles bounds the number of conversations whose files still have to be written. It is the default limit of
// parallel sessions.
const maxQueuedFiles = 1000

// callFileWriter writes a file for each ended conversation. Failures are logged and counted. No conversation waits for
// the disk.
type callFileWriter struct {
	folder string
	log    *slog.Logger
	failed func()
	queue  chan endReport
	stop   chan struct{} // closed when the gateway stops, and the queued files must be written
	done   chan struct{}
}

func newCallFileWriter(folder string, failed func(), log *slog.Logger) *callFileWriter {
	c := &callFileWriter{
		folder: folder, log: log, failed: failed,
		queue: make(chan endReport, maxQueuedFiles), stop: make(chan struct{}), done: make(chan struct{}),
	}
	go c.writeQueue()
	return c
}

// enqueue queues the file of a conversation that has ended. It does not block.
func (c *callFileWriter) enqueue(e endReport) {
	select {
	case c.queue <- e:
	default:
		c.log.Error("call file dropped: the disk is too slow", "call", e.ID)
		c.failed()
	}
}

// writeQueue writes the files in the queue, and blocks until c.stop is closed.
func (c *callFileWriter) writeQueue() {
	defer close(c.done)
	for {
		select {
		case e := <-c.queue:
			c.writeFile(e)
		case <-c.stop: // the queue is never closed, because a conversation that outlives the shutdown may end later
			for len(c.queue) > 0 {
				c.writeFile(<-c.queue)
			}
			return
		}
	}
}

func (c *callFileWriter) writeFile(e endReport) {
	text, err := json.MarshalIndent(newSessionEnd(e), "", "  ")
	if err == nil {
		err = writeFileAtomically(filepath.Join(c.folder, record.FileName(e.Started, e.ID, ".json")), append(text, '\n'))
	}
	if err != nil {
		c.log.Error("call file not written", "call", e.ID, "err", err)
		c.failed()
	}
}

// close waits until all files are written, or until ctx is done. The conversations must have ended.
func (c *callFileWriter) close(ctx context.Context) error {
	close(c.stop)
	select {
	case <-c.done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// writeFileAtomically writes a file by a rename, so that a crash leaves no partial file. Only the gateway's user may read it.
func writeFileAtomically(path string, text []byte) (err error) {
	f, err := os.OpenFile(path+".tmp", os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = os.Remove(f.Name())
		}
	}()
	_, err = f.Write(text)
	if err == nil {
		err = f.Sync()
	}
	if closed := f.Close(); err == nil {
		err = closed
	}
	if err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
}

// deletableFile matches the names of recordings and call files, and of temporary files that a crash left. No other file is deleted.
var deletableFile = regexp.MustCompile(`^\d{4}-\d\d-\d\dT\d\d-\d\d-\d\d\.\d{3}Z-[A-Za-z0-9_-]{1,100}\.(ogg|json|json\.tmp)$`)

// deleteInterval is the time between two searches for expired files.
const deleteInterval = time.Hour

// deleteExpiredFiles deletes the gateway's files in these folders when they are older than this number of days. It
// searches for them now, and every hour until stop is called.
func deleteExpiredFiles(days int, folders []string, log *slog.Logger) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		tick := time.NewTicker(deleteInterval)
		defer tick.Stop()
		for {
			for _, folder := range folders {
				deleteFilesBefore(ctx, folder, time.Now().AddDate(0, 0, -days), log)
			}
			select {
			case <-tick.C:
			case <-ctx.Done():
				return
			}
		}
	})
	return func() {
		cancel()
		running.Wait()
	}
}

// deleteFilesBefore deletes the gateway's own files in a folder that were last written before a time.
func deleteFilesBefore(ctx context.Context, folder string, before time.Time, log *slog.Logger) {
	entries, err := os.ReadDir(folder)
	if err != nil {
		log.Error("expired file not deleted", "err", err)
		return
	}
	deleted := 0
	for _, e := range entries {
		if ctx.Err() != nil {
			break
		}
		info, err := e.Info()
		if err != nil || !deletableFile.MatchString(e.Name()) || !info.Mode().IsRegular() || !info.ModTime().Before(before) {
			continue
		}
		if err := os.Remove(filepath.Join(folder, e.Name())); err != nil {
			log.Error("expired file not deleted", "err", err)
			continue
		}
		deleted++
	}
	if deleted > 0 {
		log.Info("expired files deleted", "folder", folder, "files", deleted, "before", before.UTC().Format(time.DateTime))
	}
}
