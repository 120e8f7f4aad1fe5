package console

import (
	"net/http"
	"time"

	"voxgate/signaling/access"
)

// status is the body of GET /status. The counts begin when the gateway starts.
type status struct {
	Started           time.Time          `json:"startedAt"`
	Backend           string             `json:"backend"`              // backend of the conversations: gemini, vertex or emulator
	Ready             bool               `json:"ready"`                // new calls are taken
	RequiresKey       bool               `json:"keyed"`                // conversations are shown only with a server key
	Redis             string             `json:"redis,omitempty"`      // state of the shared Redis: well or down
	Recordings        string             `json:"recordings,omitempty"` // folder of the recordings
	Page              string             `json:"page"`                 // the URL of the gateway's own page
	Disks             []diskStatus       `json:"disks,omitempty"`      // the disks of recordings and of call files
	Today             dayStatus          `json:"today"`
	Now               int                `json:"now"`                  // conversations that are running
	SessionsEnded     float64            `json:"ended"`                // conversations that have ended
	Dollars           float64            `json:"dollars"`              // cost of Gemini
	Refusals          map[string]float64 `json:"refusals"`             // number of rejected clients, by rule
	Dials             map[string]float64 `json:"dials"`                // attempts to connect to the model, by outcome
	DialErrors        map[string]int     `json:"dialErrors"`           // failed attempts, by the reason in words
	Unreached         string             `json:"unreached,omitempty"`  // why the model could not be reached the last time
	IsKeyRefused      bool               `json:"keyRefused,omitempty"` // Google did not accept the gateway's key the last times
	ClosedModels      map[string]int64   `json:"closed,omitempty"`     // models whose quota is used up: milliseconds until the next attempt
	RecordingFailures float64            `json:"unrecorded"`           // recordings that could not be written
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
	Problem string `json:"problem,omitempty"` // why the file is invalid, with file and line
}

// serveStatus serves GET /status: everything on the page except the conversations. It holds no names of callers.
func (c *Console) serveStatus(w http.ResponseWriter, _ *http.Request) {
	families, err := c.Metrics.Gather()
	if err != nil {
		http.Error(w, "The metrics cannot be read: "+err.Error(), http.StatusInternalServerError)
		return
	}
	counted := map[string]map[string]float64{} // by metric, then by the value of its last label
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
	s := status{
		Started: c.started.UTC(), Backend: c.Host.Backend(), Ready: c.IsReady(), RequiresKey: c.RequiresKey,
		Recordings: c.RecordingFolder, Page: c.PageURL, Now: len(c.Host.Sessions()),
		SessionsEnded: sumCounts(counted["voxgate_sessions_ended_total"]), Dollars: sumCounts(counted["voxgate_dollars_total"]),
		Refusals: counted["voxgate_refusals_total"], Dials: counted["voxgate_model_dials_total"],
		RecordingFailures: sumCounts(counted["voxgate_recordings_failed_total"]), Agents: []agentStatus{},
	}
	s.DialErrors, s.Unreached, s.IsKeyRefused = c.History.dialErrors()
	for model, left := range c.Host.ClosedModels() {
		if s.ClosedModels == nil {
			s.ClosedModels = map[string]int64{}
		}
		s.ClosedModels[model] = left.Milliseconds()
	}
	s.Today.SessionsBegun, s.Today.Dollars = c.ReadTodayCounts()
	for _, folder := range []string{c.RecordingFolder, c.CallFolder} {
		if free, total, ok := diskSpace(folder); ok {
			s.Disks = append(s.Disks, diskStatus{folder, free, total})
		}
	}
	if c.HasStore {
		s.Redis = "well"
	}
	if c.IsStoreDown() {
		s.Redis = "down"
	}
	for _, f := range c.Agents.Files() {
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
