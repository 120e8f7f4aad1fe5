package main

import (
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"time"

	"voxgate/bridge"
	"voxgate/gateway/telemetry"
	"voxgate/signaling"
	"voxgate/signaling/access"
	"voxgate/signaling/backend"
	"voxgate/signaling/client"
)

// operatorPage is the operator's page at the private address. It shows and controls conversations through the endpoints of
// signaling/backend, which may require a server key (requiresKey). GET /status serves everything else on the page, without names of
// callers.
type operatorPage struct {
	settings    settings
	telemetry   *telemetry.Telemetry
	host        *bridge.Host
	health      health
	started     time.Time
	requiresKey bool // conversations are shown only with a server key
}

// newHandler returns the handler of the page and its endpoints. leave closes the handler. Pages of other origins cannot use them.
func (o *operatorPage) newHandler(admission signaling.Options, log *slog.Logger) (
	page http.Handler, leave func(context.Context) error, err error,
) {
	site, err := operatorSite()
	if err != nil {
		return nil, nil, err
	}
	tickets, err := newListenTickets()
	if err != nil {
		return nil, nil, err
	}
	admission.Origins = nil
	o.requiresKey = true
	if at, _, err := net.SplitHostPort(o.settings.privateAddr); err == nil && isLoopback(at) && o.settings.access.Keys == "" {
		admission.Access, o.requiresKey = nil, false // there are no keys, and only this machine reaches the page
	}
	beside := backend.Server{Host: o.host, Logger: log}
	doors := signaling.NewServer(admission, append(beside.Endpoints(),
		signaling.Endpoint{Pattern: "GET /status", Handler: http.HandlerFunc(o.serveStatus)},
		signaling.Endpoint{Pattern: "GET /v1/sessions/{id}/ticket", Handler: http.HandlerFunc(tickets.issueTicket)},
		signaling.Endpoint{Pattern: "/", Handler: site.Handler(client.Status{}, nil)})...)
	mux := http.NewServeMux()
	mux.Handle("/", doors)
	mux.Handle("GET /listen/{ticket}", tickets.redeemTicket(doors))
	return mux, doors.Close, nil
}

// operatorStatus is the body of GET /status. Counts are since the start.
type operatorStatus struct {
	Started           time.Time          `json:"startedAt"`
	Backend           string             `json:"backend"`              // what answers: gemini, vertex or emulator
	Ready             bool               `json:"ready"`                // new calls are taken
	RequiresKey       bool               `json:"keyed"`                // conversations are shown only with a server key
	Redis             string             `json:"redis,omitempty"`      // well or down
	Recordings        string             `json:"recordings,omitempty"` // their folder
	Page              string             `json:"page"`                 // the URL of the gateway's own page
	Disks             []diskStatus       `json:"disks,omitempty"`      // of recordings, and of files of calls
	Today             dayStatus          `json:"today"`
	Now               int                `json:"now"`        // conversations that are running
	SessionsEnded     float64            `json:"ended"`      // conversations that have ended
	Dollars           float64            `json:"dollars"`    // cost of Gemini
	Refusals          map[string]float64 `json:"refusals"`   // by rule
	Dials             map[string]float64 `json:"dials"`      // attempts to connect to the model, by outcome
	RecordingFailures float64            `json:"unrecorded"` // recordings that the disk has refused
	Agents            []agentStatus      `json:"agents"`
}

// diskStatus holds the free and total bytes of the disk of a folder.
type diskStatus struct {
	Folder string `json:"folder"`
	Free   uint64 `json:"free"`
	Total  uint64 `json:"total"`
}

// dayStatus holds the counts since midnight (UTC), or since the start.
type dayStatus struct {
	SessionsBegun int     `json:"begun"` // conversations that have begun
	Dollars       float64 `json:"dollars"`
}

// agentStatus describes the file of an agent.
type agentStatus struct {
	Name    string `json:"name"`
	Problem string `json:"problem,omitempty"` // with file and line
}

func (o *operatorPage) serveStatus(w http.ResponseWriter, _ *http.Request) {
	families, err := o.telemetry.Metrics().Gather()
	if err != nil {
		http.Error(w, "The metrics cannot be read: "+err.Error(), http.StatusInternalServerError)
		return
	}
	counted := map[string]map[string]float64{} // by metric, then by the last of its labels
	for _, family := range families {
		counts := map[string]float64{}
		for _, m := range family.GetMetric() {
			label := ""
			if labels := m.GetLabel(); len(labels) > 0 {
				label = labels[len(labels)-1].GetValue()
			}
			counts[label] += m.GetCounter().GetValue()
		}
		counted[family.GetName()] = counts
	}
	s := operatorStatus{
		Started: o.started.UTC(), Backend: o.host.Backend(), Ready: o.health.ready(), RequiresKey: o.requiresKey,
		Recordings: o.settings.recordings, Page: o.health.page, Now: o.health.running(),
		SessionsEnded: sumCounts(counted["voxgate_sessions_ended_total"]), Dollars: sumCounts(counted["voxgate_dollars_total"]),
		Refusals: counted["voxgate_refusals_total"], Dials: counted["voxgate_model_dials_total"],
		RecordingFailures: sumCounts(counted["voxgate_recordings_failed_total"]), Agents: []agentStatus{},
	}
	s.Today.SessionsBegun, s.Today.Dollars = o.telemetry.CountToday()
	for _, folder := range []string{o.settings.recordings, o.settings.calls} {
		if free, total, ok := diskSpace(folder); ok {
			s.Disks = append(s.Disks, diskStatus{folder, free, total})
		}
	}
	if o.settings.redis != "" {
		s.Redis = "well"
	}
	if o.health.degraded() {
		s.Redis = "down"
	}
	for _, f := range o.settings.access.Agents.Files() {
		a := agentStatus{Name: f.Name}
		if f.Err != nil {
			a.Problem = f.Err.Error()
		}
		s.Agents = append(s.Agents, a)
	}
	access.WriteJSON(w, http.StatusOK, s)
}

func sumCounts(counts map[string]float64) (all float64) {
	for _, n := range counts {
		all += n
	}
	return all
}

// listenTickets lets an <audio> element play a conversation although it cannot send a key. A ticket is the encrypted key. It is valid for
// one conversation and for 10 s; playback that began in that time continues.
type listenTickets struct{ seal cipher.AEAD }

const ticketLife = 10 * time.Second

// listenTicket is the content of a ticket.
type listenTicket struct {
	ID, Authorization string
	Until             time.Time
}

func newListenTickets() (listenTickets, error) {
	key := make([]byte, 32)
	rand.Read(key) // it never fails
	block, err := aes.NewCipher(key)
	if err != nil {
		return listenTickets{}, err
	}
	seal, err := cipher.NewGCMWithRandomNonce(block)
	return listenTickets{seal}, err
}

// issueTicket returns a ticket for the key of a request. The key is checked when the ticket is used.
func (t listenTickets) issueTicket(w http.ResponseWriter, r *http.Request) {
	text, err := json.Marshal(listenTicket{r.PathValue("id"), r.Header.Get("Authorization"), time.Now().Add(ticketLife)})
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	access.WriteJSON(w, http.StatusOK, map[string]string{"ticket": base64.RawURLEncoding.EncodeToString(t.seal.Seal(nil, nil, text, nil))})
}

// redeemTicket serves the sound of the conversation to a client with a ticket.
func (t listenTickets) redeemTicket(doors http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var ticket listenTicket
		sealed, err := base64.RawURLEncoding.DecodeString(r.PathValue("ticket"))
		if err == nil {
			sealed, err = t.seal.Open(nil, nil, sealed, nil)
		}
		if err == nil {
			err = json.Unmarshal(sealed, &ticket)
		}
		if err != nil || time.Now().After(ticket.Until) {
			http.Error(w, "This ticket is not valid any more.", http.StatusForbidden)
			return
		}
		r = r.Clone(r.Context())
		r.URL = &url.URL{Path: "/v1/sessions/" + ticket.ID + "/audio"}
		r.Header.Set("Authorization", ticket.Authorization)
		doors.ServeHTTP(w, r)
	})
}
