package console

import (
	"cmp"
	"crypto/x509"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"voxgate/bridge"
	"voxgate/signaling"
	"voxgate/signaling/access"
	"voxgate/signaling/backend"
)

const (
	maxEnded    = 100     // ended conversations; the oldest are dropped
	maxOrders   = 50      // orders of a conversation
	maxHours    = 24      // hours in the charts
	maxWords    = 20_000  // bytes of the words of a conversation, the newest, if it has no call file
	maxReasons  = 20      // reasons of failed dials: a server's refusal may quote what a client has sent
	maxCallFile = 1 << 20 // bytes: larger call files are left out
)

// otherReasons counts the failed dials whose reasons are not among the first maxReasons different ones.
const otherReasons = "other reasons"

// History remembers the newest conversations that have ended, and the counts of the last hours. Its methods may be called
// concurrently.
type History struct {
	mu        sync.Mutex
	pastCalls []endedCall // oldest first
	running   map[string]*callNotes
	hours     []hourStatus // oldest first
	dials     map[string]int
	unreached string // in words, why the last dial reached no server of the model; "" if it reached one

	keyRefusals int // the newest dials, if Google did not accept the key or the token of any of them
}

// callNotes holds what is known of a conversation in addition to its [bridge.Info].
type callNotes struct {
	orders    []order
	dialError string
	latency   time.Duration // sum of the measured latencies of answers
	answers   int
}

// endedCall is a conversation in GET /ended.
type endedCall struct {
	ID         string    `json:"id"`
	Protocol   string    `json:"door"`
	Agent      string    `json:"agent,omitempty"`
	Identity   string    `json:"identity,omitempty"`
	Address    string    `json:"address,omitempty"`
	Device     string    `json:"device,omitempty"`
	Model      string    `json:"model"`
	StartedAt  time.Time `json:"startedAt"`
	EndedAt    time.Time `json:"endedAt"`
	Outcome    string    `json:"outcome"` // one word, see [bridge.SessionEnded.Code]; "" if only the call file is left
	Failed     bool      `json:"failed,omitempty"`
	Reason     string    `json:"reason,omitempty"` // why it ended, for people; "" if the person or the agent ended it
	Turns      int       `json:"turns"`
	Tokens     int       `json:"tokens"`
	Dollars    *float64  `json:"dollars,omitempty"`
	LatencyMs  int64     `json:"latencyMs,omitempty"` // mean of all answers
	Recordings []string  `json:"recordings,omitempty"`
	Orders     []order   `json:"steered,omitempty"`
	HasWords   bool      `json:"words,omitempty"` // GET /ended/{id}/words returns what was said
	Node       string    `json:"node,omitempty"`  // name of the gateway that had it; "" means this one

	Newest *backend.Words `json:"newest,omitempty"` // what was said last

	key      string // see [bridge.Origin].Key
	words    []entry
	callFile string // path of the call file with the words, if words is nil
}

// entry holds the words of one side in one turn, as in a call file.
type entry struct {
	Role string    `json:"role"`
	At   time.Time `json:"at"`
	Text string    `json:"text"`
	Cut  bool      `json:"cut,omitempty"` // interrupted
}

// order is an intervention in a running conversation, by an operator or the operator's backend.
type order struct {
	At   time.Time `json:"at"`
	By   string    `json:"by,omitempty"` // name of the server key
	What string    `json:"what"`
	Text string    `json:"text,omitempty"`
}

// hourStatus holds the counts of an hour.
type hourStatus struct {
	At            time.Time `json:"at"`
	SessionsBegun int       `json:"begun"`     // conversations that have begun
	Failures      int       `json:"failed"`    // conversations that have ended with an error
	LatencyMs     int64     `json:"latencyMs"` // mean; 0 if no answer was measured
	Dollars       float64   `json:"dollars"`

	latency time.Duration
	answers int
}

// NewHistory returns a history that begins with the newest files of a folder of call files, or empty if folder is "".
func NewHistory(folder string) *History {
	h := &History{running: map[string]*callNotes{}, dials: map[string]int{}}
	if folder != "" {
		h.readCallFiles(folder)
	}
	return h
}

// readCallFiles reads the newest call files. Unreadable ones are left out.
func (h *History) readCallFiles(folder string) {
	files, err := os.ReadDir(folder) // sorted by name, which begins with the time
	if err != nil {
		return
	}
	for _, f := range slices.Backward(files) {
		if len(h.pastCalls) == maxEnded {
			break
		}
		if !strings.HasSuffix(f.Name(), ".json") {
			continue
		}
		if c, _, err := readCallFile(filepath.Join(folder, f.Name())); err == nil {
			h.pastCalls = append(h.pastCalls, c)
		}
	}
	slices.Reverse(h.pastCalls)
}

// readCallFile reads a call file, with what was said.
func readCallFile(path string) (c endedCall, words []entry, err error) {
	f, err := os.Open(path)
	if err != nil {
		return c, nil, err
	}
	defer f.Close()
	call := struct {
		Session struct {
			ID       string `json:"id"`
			Protocol string `json:"door"`
			Agent    string `json:"agent"`
			Identity string `json:"identity"`
		} `json:"session"`
		Transcript []entry `json:"transcript"`
		*endedCall
	}{endedCall: &c}
	if err := json.NewDecoder(io.LimitReader(f, maxCallFile)).Decode(&call); err != nil {
		return c, nil, err
	}
	if call.Session.ID == "" || c.EndedAt.IsZero() {
		return c, nil, errors.New("not a call file")
	}
	c.ID, c.Protocol, c.Agent, c.Identity = call.Session.ID, call.Session.Protocol, call.Session.Agent, call.Session.Identity
	c.HasWords, c.callFile = len(call.Transcript) > 0, path
	if c.HasWords {
		newest := call.Transcript[len(call.Transcript)-1]
		c.Newest = backend.NewWords(newest.Role, newest.Text)
	}
	return c, call.Transcript, nil
}

// Observe receives the observations of all conversations.
func (h *History) Observe(id string, o bridge.Observation) {
	h.mu.Lock()
	defer h.mu.Unlock()
	notes := h.running[id]
	if notes == nil {
		notes = &callNotes{}
	}
	switch o := o.(type) {
	case bridge.SessionStarted:
		h.running[id] = notes
		h.ensureCurrentHour().SessionsBegun++
	case bridge.DialOutcome:
		if notes.dialError = describeDialError(o.Err); notes.dialError != "" {
			h.countDialError(notes.dialError)
		}
		h.unreached = ""
		if o.Cause == "lost" { // no server was reached; any other cause means that a server has refused
			h.unreached = strings.TrimSuffix(notes.dialError, ".")
		}
		h.keyRefusals++
		if o.Cause != "auth" {
			h.keyRefusals = 0
		}
	case bridge.TurnEnd:
		if l := o.Latency.Total(); l > 0 {
			hour := h.ensureCurrentHour()
			notes.latency, notes.answers = notes.latency+l, notes.answers+1
			hour.latency, hour.answers = hour.latency+l, hour.answers+1
		}
	case bridge.SpendingReport:
		h.ensureCurrentHour().Dollars += o.Dollars
	case bridge.Steered: // after the end of the conversation, an order is not kept
		if len(notes.orders) < maxOrders {
			notes.orders = append(notes.orders, order{o.At.UTC(), o.By, o.What, o.Text})
		}
	case bridge.SessionEnded:
		delete(h.running, id)
		h.addEndedCall(o, notes)
	}
}

func (h *History) addEndedCall(e bridge.SessionEnded, notes *callNotes) {
	if e.HasMoved() {
		return
	}
	c := endedCall{
		ID: e.ID, Protocol: e.Protocol, Agent: e.Agent, Identity: e.Identity, Address: e.Address, Device: e.Device, Model: e.Model,
		StartedAt: e.Started.UTC(), EndedAt: e.At.UTC(), Outcome: e.Code(), Failed: e.HasFailed(), Reason: bridge.DescribeEnd(e.Reason),
		Turns: e.Turns, Tokens: e.Tokens, Dollars: e.Dollars, Recordings: e.Recordings, Orders: notes.orders, key: e.Key,
	}
	room := maxWords
	for _, t := range slices.Backward(e.Transcript) {
		if room -= len(t.Content); room < 0 {
			break
		}
		c.words = append(c.words, entry{t.Role, t.Time.UTC(), t.Content, t.Interrupted})
	}
	slices.Reverse(c.words)
	c.HasWords = len(c.words) > 0
	if n := len(e.Transcript); n > 0 {
		c.Newest = backend.NewWords(e.Transcript[n-1].Role, e.Transcript[n-1].Content)
	}
	if notes.answers > 0 {
		c.LatencyMs = (notes.latency / time.Duration(notes.answers)).Milliseconds()
	}
	if c.Failed {
		h.ensureCurrentHour().Failures++
	}
	if c.Failed && notes.dialError != "" && notes.dialError != c.Reason {
		c.Reason = strings.TrimSuffix(c.Reason, ".") + ": " + strings.TrimSuffix(notes.dialError, ".") + "."
	}
	h.pastCalls = append(h.pastCalls, c)
	h.pastCalls = h.pastCalls[max(0, len(h.pastCalls)-maxEnded):]
}

// ensureCurrentHour returns the counts of the current hour. It adds them first if the hour has just begun. The caller
// must hold h.mu.
func (h *History) ensureCurrentHour() *hourStatus {
	h.dropOldHours()
	now := time.Now().UTC().Truncate(time.Hour)
	if n := len(h.hours); n == 0 || h.hours[n-1].At != now {
		h.hours = append(h.hours, hourStatus{At: now})
	}
	return &h.hours[len(h.hours)-1]
}

// dropOldHours drops the counts of hours that are not among the last 24. The caller must hold h.mu.
func (h *History) dropOldHours() {
	oldest := time.Now().UTC().Truncate(time.Hour).Add(-(maxHours - 1) * time.Hour)
	h.hours = slices.DeleteFunc(h.hours, func(hour hourStatus) bool { return hour.At.Before(oldest) })
}

// describeDialError says in a few words why the model could not be reached, or returns "".
func describeDialError(err error) string {
	var dns *net.DNSError
	var certificate *x509.UnknownAuthorityError
	var host x509.HostnameError
	var network net.Error
	switch {
	case err == nil:
		return ""
	case errors.Is(err, syscall.ECONNREFUSED):
		return "connection refused"
	case errors.Is(err, syscall.ECONNRESET), errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return "connection closed by the other side"
	case errors.Is(err, syscall.ENETUNREACH), errors.Is(err, syscall.EHOSTUNREACH):
		return "no route to the host"
	case errors.As(err, &dns):
		return "host not found: " + dns.Name
	case errors.As(err, &certificate), errors.As(err, &host):
		return "certificate not accepted"
	case errors.As(err, &network) && network.Timeout():
		return "no answer in time"
	}
	return bridge.AsError(err).Message
}

// dialErrors returns the number of failed dials of the model by reason. unreached is the reason why the newest dial did
// not reach a server, or "" if it reached one. isKeyRefused reports whether Google refused the key at the newest dials,
// at least at two: one may have been for a model that the key does not have.
func (h *History) dialErrors() (counts map[string]int, unreached string, isKeyRefused bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return maps.Clone(h.dials), h.unreached, h.keyRefusals > 1
}

// countDialError counts a failed dial. The caller must hold h.mu.
func (h *History) countDialError(reason string) {
	if _, isKnown := h.dials[reason]; !isKnown && len(h.dials) >= maxReasons {
		reason = otherReasons
	}
	h.dials[reason]++
}

// historyAnswer is the body of GET /ended.
type historyAnswer struct {
	Conversations []endedCall        `json:"conversations"` // newest first
	Running       map[string][]order `json:"steered"`       // orders to conversations that run, by their IDs
	Hours         []hourStatus       `json:"hours"`         // the last 24 hours, oldest first; hours in which nothing happened are left out
}

// serveHistory serves GET /ended. It lists the ended conversations that the key may watch, including those of other
// gateways.
func (c *Console) serveHistory(w http.ResponseWriter, r *http.Request) {
	key, err := access.From(r.Context()).RequireWatcher()
	if err != nil {
		access.WriteError(w, err)
		return
	}
	answer := c.History.visibleHistory(key, c.Host)
	others, _ := backend.AskOtherNodes[historyAnswer](c.Host, r, nodePath)
	for node, other := range others {
		for _, e := range other.Conversations {
			if slices.ContainsFunc(answer.Conversations, func(own endedCall) bool { return own.ID == e.ID }) {
				continue // listed twice, because the gateways share a folder of call files
			}
			e.Node, e.HasWords, e.Recordings = node, false, nil // only that gateway can serve the words and recordings
			answer.Conversations = append(answer.Conversations, e)
		}
		maps.Copy(answer.Running, other.Running)
	}
	slices.SortStableFunc(answer.Conversations, func(a, b endedCall) int { return b.EndedAt.Compare(a.EndedAt) })
	access.WriteJSON(w, http.StatusOK, answer)
}

// nodePath is the path of [History.Endpoint].
const nodePath = "/v1/ended"

// Endpoint returns the endpoint that lists the ended conversations of this gateway for other gateways. It needs a server key.
func (h *History) Endpoint(host *bridge.Host) signaling.Endpoint {
	return signaling.Endpoint{Pattern: "GET " + nodePath, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		key, err := access.From(r.Context()).RequireWatcher()
		if err != nil {
			access.WriteError(w, err)
			return
		}
		access.WriteJSON(w, http.StatusOK, h.visibleHistory(key, host))
	})}
}

// findCall returns an ended conversation that the key may watch.
func (h *History) findCall(id string, key access.Watcher) (e endedCall, ok bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, e := range slices.Backward(h.pastCalls) {
		if e.ID == id && key.MayWatch(bridge.Origin{Key: e.key}) {
			return e, true
		}
	}
	return e, false
}

// serveTranscript serves GET /ended/{id}/words: {"transcript": [{role, at, text, cut?}]}.
func (c *Console) serveTranscript(w http.ResponseWriter, r *http.Request) {
	key, err := access.From(r.Context()).RequireWatcher()
	if err != nil {
		access.WriteError(w, err)
		return
	}
	e, ok := c.History.findCall(r.PathValue("id"), key)
	if ok && e.callFile != "" {
		_, e.words, err = readCallFile(e.callFile)
	}
	if !ok || err != nil || len(e.words) == 0 {
		access.WriteNotFound(w, "What was said in this conversation is not kept any more.")
		return
	}
	access.WriteJSON(w, http.StatusOK, map[string][]entry{"transcript": e.words})
}

// serveRecording serves GET /ended/{id}/recordings/{number}: a recording of a conversation, counted from 0.
func (c *Console) serveRecording(w http.ResponseWriter, r *http.Request) {
	key, err := access.From(r.Context()).RequireWatcher(access.MayListen)
	if err != nil {
		access.WriteError(w, err)
		return
	}
	e, ok := c.History.findCall(r.PathValue("id"), key)
	number, err := strconv.Atoi(r.PathValue("number"))
	if !ok || err != nil || number < 0 || number >= len(e.Recordings) || c.RecordingFolder == "" {
		access.WriteNotFound(w, "This recording does not exist.")
		return
	}
	// filepath.Base ensures that a manipulated call file cannot name a file outside the folder.
	f, err := os.Open(filepath.Join(c.RecordingFolder, filepath.Base(e.Recordings[number])))
	if err != nil {
		access.WriteNotFound(w, "This recording is not in the folder of recordings any more.")
		return
	}
	defer f.Close()
	w.Header().Set("Content-Type", "audio/ogg")
	http.ServeContent(w, r, "", time.Time{}, f)
}

// visibleHistory returns the history that a key may see.
func (h *History) visibleHistory(key access.Watcher, host *bridge.Host) historyAnswer {
	answer := historyAnswer{Conversations: []endedCall{}, Running: map[string][]order{}, Hours: []hourStatus{}}
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, e := range slices.Backward(h.pastCalls) {
		if key.MayWatch(bridge.Origin{Key: e.key}) {
			answer.Conversations = append(answer.Conversations, e)
		}
	}
	for id, notes := range h.running {
		if s := host.Session(id); notes.orders != nil && s != nil && key.MayWatch(s.Origin()) {
			answer.Running[id] = slices.Clone(notes.orders)
		}
	}
	h.dropOldHours()
	for _, hour := range h.hours {
		hour.LatencyMs = (hour.latency / time.Duration(cmp.Or(hour.answers, 1))).Milliseconds()
		answer.Hours = append(answer.Hours, hour)
	}
	return answer
}
