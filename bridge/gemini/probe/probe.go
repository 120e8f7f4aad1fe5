// Package probe asks a server of the Live API, in short conversations, whether it behaves as the gateway assumes: what each model takes
// and refuses, and how it answers. The conversations use the gateway's own code for Live connections, and the tables that it serves
// people by.
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
	"voxgate/bridge/gemini/setup"
	"voxgate/bridge/gemini/wire"
	"voxgate/bridge/price"
)

// Verdict says how what was found relates to what is assumed.
type Verdict string

// The values of Verdict.
const (
	AsAssumed   Verdict = "as assumed"
	Different   Verdict = "different"
	Learned     Verdict = "nothing was assumed"
	Unavailable Verdict = "not available to this key"
	NotRun      Verdict = "not run"
)

// Result is what one probe has found.
type Result struct {
	Model   string  `json:"model"`
	Name    string  `json:"name"`
	Verdict Verdict `json:"verdict"`

	// Assumed and Found are facts in their order, such as "refused with 1007" or "says plum".
	Assumed []string `json:"assumed"`
	Found   []string `json:"found"`

	// Notes are what else was seen, in the server's own words, and are not compared.
	Notes []string `json:"notes,omitempty"`

	Dollars float64 `json:"dollars"`
	Seconds float64 `json:"seconds"`

	// Messages are those of both sides, if the verdict is Different.
	Messages []Message `json:"messages,omitempty"`
}

// ID names the probe among all.
func (r Result) ID() string { return r.Model + ": " + r.Name }

// Options are what Run wants to know.
type Options struct {
	// Client is where the server is, and the key.
	Client *api.Client

	// Models are the names of the models that are asked; nil: those of the gateway's table that talk, and one or two for REST.
	Models []string

	// Dollars bounds what the conversations may cost together, by the prices of Prices. A probe that could exceed it is not run.
	Dollars float64
	Prices  price.Table

	// Parallel is how many conversations are held at once, at least 1. Google's free tier allows three.
	Parallel int

	// Long waits for the end of a connection, too: ten minutes a model.
	Long bool

	// Done, if not nil, is called with each result, one at a time.
	Done func(Result)
}

// probe is one conversation.
type probe struct {
	model string
	name  string

	// config is the LiveConfig that a client would send, without the model. It goes through the gateway's own code.
	config map[string]any

	// raw is laid over the set-up that becomes of it: what our own code would not send. nil as a value takes a field away.
	raw   map[string]any
	alpha bool

	// most is what it may cost, in seconds of the model's voice.
	most float64

	do      func(*talk)
	rest    func(*run) // in place of do: it is a call of the REST API
	assumed []string
	unknown bool // nothing is assumed
}

// run is a probe under way.
type run struct {
	probe

	ctx     context.Context
	client  *api.Client
	prices  price.Table
	trace   trace
	facts   []string
	notes   []string
	missing string  // why the key, and not the API, is to blame for what was found
	micros  float64 // millionths of a dollar
}

func (r *run) fact(format string, args ...any) {
	r.facts = append(r.facts, fmt.Sprintf(format, args...))
}

func (r *run) note(format string, args ...any) {
	r.notes = append(r.notes, wire.OneLine(fmt.Sprintf(format, args...), wire.MaxReason))
}

func (r *run) spend(t wire.Tokens) {
	if prices, ok := r.prices.PricesOf(r.model); ok {
		r.micros += prices.Cost(t)
	}
}

// Run holds the conversations, and returns their results in a fixed order. It blocks until the last is over, or ctx ends.
func Run(ctx context.Context, o Options) []Result {
	lists := o.probes()
	results := make([][]Result, len(lists))
	b := &budget{Options: o, left: o.Dollars}
	// The first probe of a model finds out whether this key has it.
	b.each(len(lists), func(i int) { results[i] = []Result{b.hold(ctx, lists[i][0])} })
	type place struct{ model, probe int }
	var rest []place
	for i, list := range lists {
		results[i] = append(results[i], make([]Result, len(list)-1)...)
		for j := 1; j < len(list); j++ {
			rest = append(rest, place{i, j})
		}
	}
	b.each(len(rest), func(n int) {
		i, j := rest[n].model, rest[n].probe
		if first := results[i][0]; first.Verdict == Unavailable {
			results[i][j] = b.leave(lists[i][j], Unavailable, first.Notes...)
			return
		}
		results[i][j] = b.hold(ctx, lists[i][j])
	})
	return slices.Concat(results...)
}

// Count returns how many probes Run would hold, and what they may cost at most, in dollars.
func Count(o Options) (probes int, dollars float64) {
	for _, list := range o.probes() {
		for _, p := range list {
			probes++
			dollars += p.bound(o.Prices)
		}
	}
	return probes, dollars
}

// probes are those of each model.
func (o Options) probes() (lists [][]probe) {
	models := o.Models
	if models == nil {
		vertex := o.Client.Vertex != nil
		models = append(setup.Models(vertex), restModels(vertex)...)
	}
	for _, m := range models {
		lists = append(lists, probesOf(m, o))
	}
	return lists
}

// bound is what a probe may cost in dollars, generously: the model's voice, 25 tokens a second
// (https://ai.google.dev/gemini-api/docs/tokens), and two turns with 400 tokens of text and 200 of sound each.
func (p probe) bound(prices price.Table) float64 {
	m, ok := prices.PricesOf(p.model)
	if !ok || p.most == 0 {
		return 0
	}
	voice := int(25 * p.most)
	return m.Cost(wire.Tokens{
		Prompt: 1200, PromptBy: map[string]int{"TEXT": 800, "AUDIO": 400}, Response: voice, ResponseBy: map[string]int{"AUDIO": voice},
	}) / 1e6
}

// budget holds probes one after the other, or some at once, while there is money left.
type budget struct {
	Options

	mu   sync.Mutex
	left float64 // dollars that are not reserved; guarded by mu
}

// each calls do for 0 to n-1, Parallel of them at once, and waits for all.
func (b *budget) each(n int, do func(int)) {
	var work errgroup.Group
	work.SetLimit(max(1, b.Parallel))
	for i := range n {
		work.Go(func() error { do(i); return nil })
	}
	work.Wait()
}

// hold holds a probe if it can be paid.
func (b *budget) hold(ctx context.Context, p probe) Result {
	bound := p.bound(b.Prices)
	b.mu.Lock()
	paid := bound <= b.left
	if paid {
		b.left -= bound
	}
	b.mu.Unlock()
	switch {
	case !paid:
		return b.leave(p, NotRun, "the budget is spent")
	case ctx.Err() != nil:
		return b.leave(p, NotRun, "stopped")
	}
	r := hold(ctx, b.Options, p)
	b.mu.Lock()
	b.left += bound - r.Dollars
	b.mu.Unlock()
	b.done(r)
	return r
}

// leave leaves a probe out.
func (b *budget) leave(p probe, why Verdict, notes ...string) Result {
	r := Result{Model: p.model, Name: p.name, Assumed: p.assumed, Verdict: why, Notes: notes}
	b.done(r)
	return r
}

func (b *budget) done(r Result) {
	if b.Done == nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.Done(r)
}

// hold holds one conversation.
func hold(ctx context.Context, o Options, p probe) Result {
	r := &run{probe: p, ctx: ctx, client: o.Client, prices: o.Prices}
	begun := time.Now()
	t := &talk{run: r}
	if p.rest != nil {
		p.rest(r)
	} else if err := t.prepare(); err != nil {
		r.fact("refused by the gateway itself")
		r.note("%v", err)
	} else {
		p.do(t)
		t.close()
	}
	result := Result{
		Model: p.model, Name: p.name, Assumed: p.assumed, Found: r.facts, Notes: r.notes,
		Dollars: r.micros / 1e6, Seconds: time.Since(begun).Seconds(), Verdict: AsAssumed,
	}
	switch {
	case ctx.Err() != nil:
		result.Verdict = NotRun
		result.Notes = append(result.Notes, "stopped")
	case slices.Equal(r.facts, p.assumed) && !p.unknown:
	case r.missing != "":
		result.Verdict = Unavailable
	case p.unknown:
		result.Verdict, result.Assumed = Learned, nil
	default:
		result.Verdict, result.Messages = Different, r.trace.messages()
	}
	return result
}

// prepare makes the set-up.
func (t *talk) prepare() error {
	config := map[string]any{
		"model": t.model, "systemInstruction": instruction,
		"inputAudioTranscription": map[string]any{}, "outputAudioTranscription": map[string]any{},
	}
	maps.Copy(config, t.probe.config)
	var err error
	if t.config, err = parse(config, t.client.Vertex); err != nil {
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
	lay(fields, t.raw)
	t.object = encode(fields)
	return nil
}

func parse(config map[string]any, vertex *api.Vertex) (setup.Config, error) {
	return setup.Parse(encode(config), "config", setup.Scope{Vertex: vertex})
}

// lay lays a tree over another one.
func lay(under, over map[string]any) {
	for name, value := range over {
		object, isObject := value.(map[string]any)
		below, hasObject := under[name].(map[string]any)
		switch {
		case value == nil:
			delete(under, name)
		case isObject && hasObject:
			lay(below, object)
		default:
			under[name] = value
		}
	}
}
