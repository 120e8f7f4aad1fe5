// Package probe tests in short conversations whether a server of the Live API behaves as the gateway assumes. It tests which
// setups and messages each model accepts, and how the model answers. The conversations use the gateway's own code for Live
// connections, and its own table of models.
package probe

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"voxgate/bridge/gemini/api"
	"voxgate/bridge/gemini/liveconfig"
	"voxgate/bridge/gemini/wire"
	"voxgate/bridge/pricing"
)

// Verdict is the result of comparing the findings of a probe with the gateway's assumptions.
type Verdict string

// The values of Verdict.
const (
	AsAssumed   Verdict = "as assumed"
	Different   Verdict = "different"
	Learned     Verdict = "nothing was assumed"
	Unavailable Verdict = "not available to this key"
	NotRun      Verdict = "not run"
)

// Result is the result of one probe.
type Result struct {
	Model   string  `json:"model"`
	Name    string  `json:"name"`
	Verdict Verdict `json:"verdict"`

	// Assumed and Found list facts in the order of the probe, such as "refused with 1007" or "says plum".
	Assumed []string `json:"assumed"`
	Found   []string `json:"found"`

	// Notes lists further observations, for example the server's own words. They do not affect the verdict.
	Notes []string `json:"notes,omitempty"`

	Dollars float64 `json:"dollars"`
	Seconds float64 `json:"seconds"`

	// Messages lists the messages of both sides. It is set only if the verdict is Different.
	Messages []Message `json:"messages,omitempty"`
}

// ID returns the name of the probe together with its model.
func (r Result) ID() string { return r.Model + ": " + r.Name }

// Options configures Run.
type Options struct {
	// Client has the server's address and the key.
	Client *api.Client

	// Models lists the models to probe. nil means the models in the gateway's table that speak, and the models that are
	// probed with REST calls.
	Models []string

	// Dollars limits the total cost of the conversations, calculated with Prices. A probe is not run if it could exceed
	// the limit.
	Dollars float64
	Prices  pricing.Table

	// Parallel is the number of simultaneous conversations, at least 1. Google's free tier allows three.
	Parallel int

	// Long adds a probe that waits for the end of a connection, which takes ten minutes per model.
	Long bool

	// Done, if not nil, is called with each result. It is never called concurrently.
	Done func(Result)
}

// probe is one conversation.
type probe struct {
	model string
	name  string

	// config is the session config of a client, without the model. It is translated by the gateway's own code.
	config map[string]any

	// raw is merged into the setup that results from config. It is for fields that the gateway itself would never send.
	// A nil value removes a field.
	raw   map[string]any
	alpha bool

	// maxVoice is the length of voice, in seconds, that the model will hardly exceed. maxCost uses it.
	maxVoice float64

	do      func(*talk)
	rest    func(*run) // used instead of do in a probe of the REST API
	assumed []string
	unknown bool // the gateway has no assumption, so any finding is accepted
}

// run is the state of a running probe.
type run struct {
	probe

	ctx        context.Context
	client     *api.Client
	prices     pricing.Table
	trace      trace
	facts      []string
	notes      []string
	keyProblem string  // why the findings are due to the key, not to the API; "" if they are not
	micros     float64 // cost in millionths of a dollar
}

func (r *run) addFact(format string, args ...any) {
	r.facts = append(r.facts, fmt.Sprintf(format, args...))
}

func (r *run) addNote(format string, args ...any) {
	r.notes = append(r.notes, wire.OneLine(fmt.Sprintf(format, args...), wire.MaxReason))
}

func (r *run) addCost(t wire.Tokens) {
	if prices, ok := r.prices.PricesOf(r.model); ok {
		r.micros += prices.Cost(t)
	}
}

// Run runs the probes, and returns their results in a fixed order. It blocks until the last probe has ended, or ctx is done.
func Run(ctx context.Context, o Options) []Result {
	lists := o.probesByModel()
	results := make([][]Result, len(lists))
	b := &budget{Options: o, remaining: o.Dollars}
	// The first probe of a model tests whether the key can use the model. The other probes run only if it can.
	b.forEachParallel(len(lists), func(i int) { results[i] = []Result{b.runIfAffordable(ctx, lists[i][0])} })
	type place struct{ model, probe int }
	var rest []place
	for i, list := range lists {
		results[i] = append(results[i], make([]Result, len(list)-1)...)
		for j := 1; j < len(list); j++ {
			rest = append(rest, place{i, j})
		}
	}
	b.forEachParallel(len(rest), func(n int) {
		i, j := rest[n].model, rest[n].probe
		if first := results[i][0]; first.Verdict == Unavailable {
			results[i][j] = b.skip(lists[i][j], Unavailable, first.Notes...)
			return
		}
		results[i][j] = b.runIfAffordable(ctx, lists[i][j])
	})
	return slices.Concat(results...)
}

// Count returns the number of probes that Run would run, and their maximum cost in dollars.
func Count(o Options) (probes int, dollars float64) {
	for _, list := range o.probesByModel() {
		for _, p := range list {
			probes++
			dollars += p.maxCost(o.Prices)
		}
	}
	return probes, dollars
}

// probesByModel returns the probes of each model.
func (o Options) probesByModel() (lists [][]probe) {
	models := o.Models
	if models == nil {
		vertex := o.Client.Vertex != nil
		models = append(liveconfig.Models(vertex), restModels(vertex)...)
	}
	for _, m := range models {
		lists = append(lists, probesOf(m, o))
	}
	return lists
}

// maxCost returns a generous upper bound of a probe's cost in dollars. It assumes two turns, each with a prompt of 400
// tokens of text and 200 tokens of audio. The model's voice has 25 tokens a second
// (https://ai.google.dev/gemini-api/docs/tokens).
func (p probe) maxCost(prices pricing.Table) float64 {
	m, ok := prices.PricesOf(p.model)
	if !ok || p.maxVoice == 0 {
		return 0
	}
	voice := int(25 * p.maxVoice)
	return m.Cost(wire.Tokens{
		Prompt: 1200, PromptBy: map[string]int{"TEXT": 800, "AUDIO": 400}, Response: voice, ResponseBy: map[string]int{"AUDIO": voice},
	}) / 1e6
}

// budget runs probes until Options.Dollars are used up.
type budget struct {
	Options

	mu        sync.Mutex
	remaining float64 // dollars that are neither spent nor reserved; guarded by mu
}

// forEachParallel calls do with the numbers from 0 to n-1, and waits for all calls. At most Parallel calls run at the
// same time.
func (b *budget) forEachParallel(n int, do func(int)) {
	var work errgroup.Group
	work.SetLimit(max(1, b.Parallel))
	for i := range n {
		work.Go(func() error { do(i); return nil })
	}
	work.Wait()
}

// runIfAffordable runs a probe if the budget allows it.
func (b *budget) runIfAffordable(ctx context.Context, p probe) Result {
	bound := p.maxCost(b.Prices)
	b.mu.Lock()
	paid := bound <= b.remaining
	if paid {
		b.remaining -= bound
	}
	b.mu.Unlock()
	switch {
	case !paid:
		return b.skip(p, NotRun, "the budget is spent")
	case ctx.Err() != nil:
		return b.skip(p, NotRun, "stopped")
	}
	r := runProbe(ctx, b.Options, p)
	b.mu.Lock()
	b.remaining += bound - r.Dollars
	b.mu.Unlock()
	b.report(r)
	return r
}

// skip reports a probe that is not run, and returns its result.
func (b *budget) skip(p probe, verdict Verdict, notes ...string) Result {
	r := Result{Model: p.model, Name: p.name, Assumed: p.assumed, Verdict: verdict, Notes: notes}
	b.report(r)
	return r
}

func (b *budget) report(r Result) {
	if b.Done == nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.Done(r)
}

// runProbe runs one probe.
func runProbe(ctx context.Context, o Options, p probe) Result {
	r := &run{probe: p, ctx: ctx, client: o.Client, prices: o.Prices}
	start := time.Now()
	t := &talk{run: r}
	if p.rest != nil {
		p.rest(r)
	} else if err := t.buildSetup(); err != nil {
		r.addFact("refused by the gateway itself")
		r.addNote("%v", err)
	} else {
		p.do(t)
		t.close()
	}
	result := Result{
		Model: p.model, Name: p.name, Assumed: p.assumed, Found: r.facts, Notes: r.notes,
		Dollars: r.micros / 1e6, Seconds: time.Since(start).Seconds(), Verdict: AsAssumed,
	}
	switch {
	case ctx.Err() != nil:
		result.Verdict = NotRun
		result.Notes = append(result.Notes, "stopped")
	case slices.Equal(r.facts, p.assumed) && !p.unknown:
	case r.keyProblem != "":
		result.Verdict = Unavailable
	case p.unknown:
		result.Verdict, result.Assumed = Learned, nil
	default:
		result.Verdict, result.Messages = Different, r.trace.messages()
	}
	return result
}

// buildSetup builds the setup from config and raw of the probe.
func (t *talk) buildSetup() error {
	config := map[string]any{
		"model": t.model, "systemInstruction": instruction,
		"inputAudioTranscription": map[string]any{}, "outputAudioTranscription": map[string]any{},
	}
	maps.Copy(config, t.probe.config)
	var err error
	if t.config, err = parseConfig(config, t.client.Vertex); err != nil {
		return err
	}
	t.object = t.config.Effective()
	t.alpha = t.probe.alpha || t.config.Setup("", nil).Alpha
	if t.raw == nil {
		return nil
	}
	var fields map[string]any
	if err := json.Unmarshal(t.object, &fields); err != nil {
		return err
	}
	mergeTree(fields, t.raw)
	t.object = mustEncodeJSON(fields)
	return nil
}

func parseConfig(config map[string]any, vertex *api.Vertex) (liveconfig.Config, error) {
	return liveconfig.Parse(mustEncodeJSON(config), "config", liveconfig.Scope{Vertex: vertex})
}

// mergeTree merges the fields of override into base. A nil value removes a field.
func mergeTree(base, override map[string]any) {
	for name, value := range override {
		object, isObject := value.(map[string]any)
		below, hasObject := base[name].(map[string]any)
		switch {
		case value == nil:
			delete(base, name)
		case isObject && hasObject:
			mergeTree(below, object)
		default:
			base[name] = value
		}
	}
}
