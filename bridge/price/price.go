// Package price is what the tokens of Google's models cost.
package price

import (
	_ "embed"
	"errors"
	"fmt"
	"maps"
	"os"
	"path"
	"slices"
	"strings"
	"time"

	"voxgate/bridge/gemini/wire"
	"voxgate/tools"
)

// Model is what a million tokens of a model cost, in US dollars, by modality: "TEXT", "AUDIO", "IMAGE", "VIDEO". What has no price of its
// own costs as TEXT, which each list must have.
type Model struct {
	In       map[string]float64 `json:"input"`
	Cached   map[string]float64 `json:"cached"` // of the input, what a cache had; none: as the other input
	Out      map[string]float64 `json:"output"`
	Thinking float64            `json:"thinking"` // 0: as TEXT that is put out

	// From are prices that count later, each in place of all before it, by the day on which they begin (UTC): "2027-01-01".
	From map[string]Model `json:"from"`
}

// Table has the prices of models by name or pattern, as [path.Match] has them; the longest that matches counts.
type Table map[string]Model

// ours are Google's public prices. Their date and their source stand in the file, which an operator's replaces.
//
//go:embed prices.json
var ours []byte

// Default is the table of this release.
var Default = func() Table {
	t, err := parse(ours)
	if err != nil {
		panic(err) // a test reads it
	}
	return t
}()

// Read reads an operator's file.
func Read(file string) (Table, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	t, err := parse(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return t, nil
}

func parse(text []byte) (Table, error) {
	var file struct {
		Date, Source string // for those who read it
		Models       Table
	}
	if err := tools.ReadStrictJSON(text, &file); err != nil { // a price that was misspelt would be none
		return nil, err
	}
	if len(file.Models) == 0 {
		return nil, errors.New("models: there is none")
	}
	for _, name := range slices.Sorted(maps.Keys(file.Models)) {
		if err := file.Models[name].check(name); err != nil {
			return nil, fmt.Errorf("models[%q]%w", name, err)
		}
	}
	return file.Models, nil
}

func (m Model) check(name string) error {
	if _, err := path.Match(name, ""); err != nil || name == "" {
		return errors.New(" is no name and no pattern")
	}
	for list, prices := range map[string]map[string]float64{"input": m.In, "output": m.Out, "cached": m.Cached} {
		if _, ok := prices["TEXT"]; !ok && (list != "cached" || prices != nil) {
			return fmt.Errorf(".%s.TEXT: is missing", list)
		}
		for modality, dollars := range prices {
			if dollars < 0 {
				return fmt.Errorf(".%s.%s: %g is less than nothing", list, modality, dollars)
			}
		}
	}
	if m.Thinking < 0 {
		return fmt.Errorf(".thinking: %g is less than nothing", m.Thinking)
	}
	for _, day := range slices.Sorted(maps.Keys(m.From)) {
		if _, err := time.Parse(time.DateOnly, day); err != nil {
			return fmt.Errorf(".from[%q] is no day, as 2027-01-01", day)
		}
		if err := m.From[day].check(name); err != nil {
			return fmt.Errorf(".from[%q]%w", day, err)
		}
	}
	return nil
}

// on is the prices on a day.
func (m Model) on(t time.Time) Model {
	today, newest := t.UTC().Format(time.DateOnly), ""
	for day := range m.From {
		if day <= today && day > newest {
			newest = day
		}
	}
	if newest != "" {
		return m.From[newest]
	}
	return m
}

// Of finds the prices of a model as they are today; ok is false if they are not known.
func (t Table) Of(model string) (m Model, ok bool) {
	m, ok = t.find(model)
	return m.on(time.Now()), ok
}

func (t Table) find(model string) (m Model, ok bool) {
	model = model[strings.LastIndexByte(model, '/')+1:]
	if m, ok = t[model]; ok {
		return m, true
	}
	best := ""
	for pattern := range t {
		if matches, _ := path.Match(pattern, model); matches && len(pattern) > len(best) {
			best = pattern
		}
	}
	m, ok = t[best]
	return m, ok
}

// Cost is what tokens cost, in millionths of a US dollar. Tokens whose modality Google does not say are text, beside others of which it
// does (gemini-3.8-live: 25 to 51 of the input of each turn). Where it says none at all, those of a model that speaks are audio. Tokens of
// which not even the direction is said are output, which costs more.
func (m Model) Cost(t wire.Tokens) float64 {
	rest := "TEXT"
	if _, speaks := m.Out["AUDIO"]; speaks && len(t.PromptBy)+len(t.ResponseBy) == 0 {
		rest = "AUDIO"
	}
	in := sum(m.In, t.PromptBy, t.Prompt, rest)
	if m.Cached != nil && t.Prompt > 0 { // Google does not say of which modality they were: of all alike
		cached := min(1, float64(t.Cached)/float64(t.Prompt))
		in += cached * (sum(m.Cached, t.PromptBy, t.Prompt, rest) - in)
	}
	thinking := m.Thinking
	if thinking == 0 {
		thinking = m.Out["TEXT"]
	}
	unknown := max(0, t.Total-t.Prompt-t.ToolUse-t.Response-t.Thoughts)
	return in + m.In["TEXT"]*float64(t.ToolUse) + sum(m.Out, t.ResponseBy, t.Response+unknown, rest) + thinking*float64(t.Thoughts)
}

// sum is what all tokens cost, of which by are said to be of a modality, and the others are of rest.
func sum(prices map[string]float64, by map[string]int, all int, rest string) (cost float64) {
	for modality, n := range by {
		cost += of(prices, modality) * float64(n)
		all -= n
	}
	return cost + of(prices, rest)*float64(max(0, all))
}

func of(prices map[string]float64, modality string) float64 {
	if price, ok := prices[modality]; ok {
		return price
	}
	return prices["TEXT"]
}

// Most is what so many tokens cost at most, whatever they are, in millionths of a US dollar.
func (m Model) Most(in, out int) float64 {
	return dearest(m.In)*float64(in) + max(m.Thinking, dearest(m.Out))*float64(out)
}

func dearest(prices map[string]float64) (most float64) {
	for _, price := range prices {
		most = max(most, price)
	}
	return most
}
