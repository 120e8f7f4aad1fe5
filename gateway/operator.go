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

	"github.com/prometheus/client_golang/prometheus"

	"voxgate/bridge"
	"voxgate/signaling"
	"voxgate/signaling/access"
	"voxgate/signaling/sideband"
	"voxgate/signaling/web"
)

// operator is the operator's page at the private address. What it shows of conversations, and does to them, goes through the doors of
// signaling/sideband, with their keys; GET /status has the rest, and names nobody.
type operator struct {
	settings settings
	registry *prometheus.Registry
	host     *bridge.Host
	health   health
	started  time.Time
	today    *today
	keyed    bool // conversations are shown for a server key alone
}

// open opens the page and its doors, which end with leave. Only the page itself may use them, no page of another origin.
func (o *operator) open(admission signaling.Options, log *slog.Logger) (page http.Handler, leave func(context.Context) error, err error) {
	site, err := operatorSite()
	if err != nil {
		return nil, nil, err
	}
	tickets, err := newTickets()
	if err != nil {
		return nil, nil, err
	}
	admission.Origins = nil
	o.keyed = true
	if at, _, err := net.SplitHostPort(o.settings.privateAddr); err == nil && isLoopback(at) && o.settings.access.Keys == "" {
		admission.Access, o.keyed = nil, false // there are no keys, and only this machine reaches the page
	}
	beside := sideband.Door{Host: o.host, Logger: log}
	doors := signaling.NewServer(admission, append(beside.Doors(),
		signaling.Door{Pattern: "GET /status", Handler: http.HandlerFunc(o.status)},
		signaling.Door{Pattern: "GET /v1/sessions/{id}/ticket", Handler: http.HandlerFunc(tickets.sell)},
		signaling.Door{Pattern: "/", Handler: site.Page(web.Status{}, nil)})...)
	mux := http.NewServeMux()
	mux.Handle("/", doors)
	mux.Handle("GET /listen/{ticket}", tickets.admit(doors))
	return mux, doors.Close, nil
}

// operatorStatus is the answer of GET /status.
type operatorStatus struct {
	Started    time.Time          `json:"startedAt"`
	Backend    string             `json:"backend"`              // what answers: gemini, vertex or emulator
	Ready      bool               `json:"ready"`                // new calls are taken
	Keyed      bool               `json:"keyed"`                // as in [operator]
	Redis      string             `json:"redis,omitempty"`      // well or down
	Recordings string             `json:"recordings,omitempty"` // their folder
	Page       string             `json:"page"`                 // the URL of the gateway's own page
	Disks      []diskStatus       `json:"disks,omitempty"`      // of recordings, and of files of calls
	Today      dayStatus          `json:"today"`
	Now        int                `json:"now"`        // conversations
	Ended      float64            `json:"ended"`      // likewise; this and what follows: since the start
	Dollars    float64            `json:"dollars"`    // that Gemini has cost
	Refusals   map[string]float64 `json:"refusals"`   // by rule
	Dials      map[string]float64 `json:"dials"`      // of the model, by outcome
	Unrecorded float64            `json:"unrecorded"` // recordings that the disk has refused
	Agents     []agentStatus      `json:"agents"`
}

// diskStatus is the disk of a folder, in bytes.
type diskStatus struct {
	Folder string `json:"folder"`
	Free   uint64 `json:"free"`
	Total  uint64 `json:"total"`
}

// dayStatus is what was counted since midnight (UTC), or since the start.
type dayStatus struct {
	Begun   int     `json:"begun"` // conversations
	Dollars float64 `json:"dollars"`
}

// agentStatus is the file of an agent.
type agentStatus struct {
	Name    string `json:"name"`
	Problem string `json:"problem,omitempty"` // with file and line
}

func (o *operator) status(w http.ResponseWriter, _ *http.Request) {
	families, err := o.registry.Gather()
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
		Started: o.started.UTC(), Backend: o.host.Backend(), Ready: o.health.ready(), Keyed: o.keyed,
		Recordings: o.settings.recordings, Page: o.health.page, Now: o.health.running(),
		Ended: sum(counted["voxgate_sessions_ended_total"]), Dollars: sum(counted["voxgate_dollars_total"]),
		Refusals: counted["voxgate_refusals_total"], Dials: counted["voxgate_model_dials_total"],
		Unrecorded: sum(counted["voxgate_recordings_failed_total"]), Agents: []agentStatus{},
	}
	s.Today.Begun, s.Today.Dollars = o.today.read()
	for _, folder := range []string{o.settings.recordings, o.settings.calls} {
		if free, total, ok := space(folder); ok {
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
	access.Answer(w, http.StatusOK, s)
}

func sum(counts map[string]float64) (all float64) {
	for _, n := range counts {
		all += n
	}
	return all
}

// tickets let an <audio> element hear a conversation, which can show no key: one is the sealed key for that conversation, good for 10 s.
// What was begun with it goes on.
type tickets struct{ seal cipher.AEAD }

const ticketLife = 10 * time.Second

// ticket is what is sealed.
type ticket struct {
	ID, Authorization string
	Until             time.Time
}

func newTickets() (tickets, error) {
	key := make([]byte, 32)
	rand.Read(key) // it never fails
	block, err := aes.NewCipher(key)
	if err != nil {
		return tickets{}, err
	}
	seal, err := cipher.NewGCMWithRandomNonce(block)
	return tickets{seal}, err
}

// sell makes a ticket of a request's key, which is judged when the ticket is shown.
func (t tickets) sell(w http.ResponseWriter, r *http.Request) {
	text, err := json.Marshal(ticket{r.PathValue("id"), r.Header.Get("Authorization"), time.Now().Add(ticketLife)})
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	access.Answer(w, http.StatusOK, map[string]string{"ticket": base64.RawURLEncoding.EncodeToString(t.seal.Seal(nil, nil, text, nil))})
}

// admit lets a client with a ticket hear the sound of the conversation.
func (t tickets) admit(doors http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var shown ticket
		sealed, err := base64.RawURLEncoding.DecodeString(r.PathValue("ticket"))
		if err == nil {
			sealed, err = t.seal.Open(nil, nil, sealed, nil)
		}
		if err == nil {
			err = json.Unmarshal(sealed, &shown)
		}
		if err != nil || time.Now().After(shown.Until) {
			http.Error(w, "This ticket is not valid any more.", http.StatusForbidden)
			return
		}
		r = r.Clone(r.Context())
		r.URL = &url.URL{Path: "/v1/sessions/" + shown.ID + "/audio"}
		r.Header.Set("Authorization", shown.Authorization)
		doors.ServeHTTP(w, r)
	})
}
