package main

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

// ended is a conversation that is over, as the session webhook gets it, and as its file in the folder of calls has it: docs/sideband.md.
type ended struct {
	Type       string          `json:"type"`
	Session    hookSession     `json:"session"`
	StartedAt  time.Time       `json:"startedAt"`
	EndedAt    time.Time       `json:"endedAt"`
	Reason     string          `json:"reason"`
	Model      string          `json:"model"`
	Turns      int             `json:"turns"`
	Step       string          `json:"step,omitempty"`   // the agent's last
	Fields     map[string]any  `json:"fields,omitempty"` // what was found out in its steps
	Tokens     int             `json:"tokens"`
	Dollars    *float64        `json:"dollars,omitempty"`
	Recordings []string        `json:"recordings,omitempty"` // paths on the gateway's machine
	Pauses     []span          `json:"recordingPauses,omitempty"`
	Outcome    json.RawMessage `json:"outcome,omitempty"`      // what came of it, by the agent's schema
	Failed     string          `json:"outcomeError,omitempty"` // why there is none
	Transcript []entry         `json:"transcript"`
}

// entry is what one side has said in a turn, as far as it was heard.
type entry struct {
	Role string    `json:"role"` // user or assistant
	At   time.Time `json:"at"`
	Text string    `json:"text"`
	Cut  bool      `json:"cut,omitempty"` // it was interrupted
}

// span is a time; without its end it lasts to that of the conversation.
type span struct {
	From time.Time  `json:"from"`
	To   *time.Time `json:"to,omitempty"`
}

func endedOf(e report) ended {
	var pauses []span
	for _, p := range e.Pauses {
		pause := span{From: p.From.UTC()}
		if !p.To.IsZero() {
			to := p.To.UTC()
			pause.To = &to
		}
		pauses = append(pauses, pause)
	}
	return ended{
		"session.end",
		hookSession{ID: e.ID, Door: e.Protocol, Agent: e.Agent, Identity: e.Identity, Attributes: e.Attributes},
		e.Started.UTC(), e.At.UTC(), bridge.Reason(e.Reason), e.Model, e.Turns,
		e.Step, e.Fields, e.Tokens, e.Dollars, e.Recordings, pauses, e.outcome, e.failed,
		entriesOf(e.Transcript),
	}
}

func entriesOf(transcript []bridge.Entry) []entry {
	list := make([]entry, len(transcript))
	for i, t := range transcript {
		list[i] = entry{t.Role, t.Time.UTC(), t.Content, t.Interrupted}
	}
	return list
}

// maxWaiting is how many conversations may wait for their files: as many as may run at once by default.
const maxWaiting = 1000

// callFiles writes a file for each conversation that is over. What the disk refuses is in the log and in a metric, and nobody waits for it.
type callFiles struct {
	folder string
	log    *slog.Logger
	failed func()
	queue  chan report
	stop   chan struct{} // closed: what is in the queue is the last
	done   chan struct{}
}

func newCallFiles(folder string, failed func(), log *slog.Logger) *callFiles {
	c := &callFiles{
		folder: folder, log: log, failed: failed,
		queue: make(chan report, maxWaiting), stop: make(chan struct{}), done: make(chan struct{}),
	}
	go c.run()
	return c
}

// report has a file written of the end of a conversation.
func (c *callFiles) report(e report) {
	select {
	case c.queue <- e:
	default:
		c.log.Error("no file of a call: the disk does not keep up", "call", e.ID)
		c.failed()
	}
}

func (c *callFiles) run() {
	defer close(c.done)
	for {
		select {
		case e := <-c.queue:
			c.write(e)
		case <-c.stop: // the queue is never closed: a conversation that was left behind at a shutdown may end later
			for len(c.queue) > 0 {
				c.write(<-c.queue)
			}
			return
		}
	}
}

func (c *callFiles) write(e report) {
	text, err := json.MarshalIndent(endedOf(e), "", "  ")
	if err == nil {
		err = writeWhole(filepath.Join(c.folder, record.FileName(e.Started, e.ID, ".json")), append(text, '\n'))
	}
	if err != nil {
		c.log.Error("no file of a call", "call", e.ID, "err", err)
		c.failed()
	}
}

// close waits until all files are written, or for ctx. The conversations have ended.
func (c *callFiles) close(ctx context.Context) error {
	close(c.stop)
	select {
	case <-c.done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// writeWhole writes a file that is there as a whole, after a crash too, or not at all. Only the gateway's own user may read it.
func writeWhole(path string, text []byte) (err error) {
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

// oursToDelete is what recordings and files of calls are called, and what a crash has left of the latter. Nothing else is touched.
var oursToDelete = regexp.MustCompile(`^\d{4}-\d\d-\d\dT\d\d-\d\d-\d\d\.\d{3}Z-[A-Za-z0-9_-]{1,100}\.(ogg|json|json\.tmp)$`)

// keepEvery is how often it is looked for what is too old.
const keepEvery = time.Hour

// keepFor deletes what is older than so many days in these folders, now and every hour, until stop is called.
func keepFor(days int, folders []string, log *slog.Logger) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		tick := time.NewTicker(keepEvery)
		defer tick.Stop()
		for {
			for _, folder := range folders {
				deleteOld(ctx, folder, time.Now().AddDate(0, 0, -days), log)
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

// deleteOld deletes the gateway's own files in a folder that were last written before a time.
func deleteOld(ctx context.Context, folder string, before time.Time, log *slog.Logger) {
	entries, err := os.ReadDir(folder)
	if err != nil {
		log.Error("what is too old cannot be deleted", "err", err)
		return
	}
	deleted := 0
	for _, e := range entries {
		if ctx.Err() != nil {
			break
		}
		info, err := e.Info()
		if err != nil || !oursToDelete.MatchString(e.Name()) || !info.Mode().IsRegular() || !info.ModTime().Before(before) {
			continue
		}
		if err := os.Remove(filepath.Join(folder, e.Name())); err != nil {
			log.Error("what is too old cannot be deleted", "err", err)
			continue
		}
		deleted++
	}
	if deleted > 0 {
		log.Info("deleted what is too old", "folder", folder, "files", deleted, "before", before.UTC().Format(time.DateTime))
	}
}
