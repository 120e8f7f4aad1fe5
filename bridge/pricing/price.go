// Package pricing calculates what the tokens of Google's models cost.
package pricing

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

// ModelPrices holds the prices of one model in US dollars per million tokens, by modality: "TEXT", "AUDIO", "IMAGE",
// "VIDEO". TEXT is required. It also applies to modalities that are not listed.
type ModelPrices struct {
	Input    map[string]float64 `json:"input"`
	Cached   map[string]float64 `json:"cached"` // prices of input tokens served from the cache; nil means the prices of Input
	Output   map[string]float64 `json:"output"`
	Thinking float64            `json:"thinking"` // price of thinking tokens; 0 means the price of TEXT in Output

	// ValidFrom holds future prices by the day (UTC) on which they take effect: "2027-01-01". From that day on they
	// replace all prices above.
	ValidFrom map[string]ModelPrices `json:"from"`
}

// Table holds the prices of models by name or pattern ([path.Match]). The longest matching pattern wins.
type Table map[string]ModelPrices

// defaultJSON holds Google's public prices. The file names their date and source; an operator's file replaces it.
//
//go:embed prices.json
var defaultJSON []byte

// Default is the table of Google's public prices in this release.
var Default = func() Table {
	t, err := parseTable(defaultJSON)
	if err != nil {
		panic(err) // does not happen: a test parses the embedded file
	}
	return t
}()

// ReadFile reads an operator's price file.
func ReadFile(file string) (Table, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	t, err := parseTable(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return t, nil
}

func parseTable(text []byte) (Table, error) {
	var file struct {
		Date, Source string // for human readers only
		Models       Table
	}
	if err := tools.ReadStrictJSON(text, &file); err != nil { // strict, because a misspelt price would be ignored otherwise
		return nil, err
	}
	if len(file.Models) == 0 {
		return nil, errors.New("models: must not be empty")
	}
	for _, name := range slices.Sorted(maps.Keys(file.Models)) {
		if err := file.Models[name].checkPrices(name); err != nil {
			return nil, fmt.Errorf("models[%q]%w", name, err)
		}
	}
	return file.Models, nil
}

func (m ModelPrices) checkPrices(name string) error {
	if _, err := path.Match(name, ""); err != nil || name == "" {
		return errors.New(" is not a valid name or pattern")
	}
	for list, prices := range map[string]map[string]float64{"input": m.Input, "output": m.Output, "cached": m.Cached} {
		if _, ok := prices["TEXT"]; !ok && (list != "cached" || prices != nil) {
			return fmt.Errorf(".%s.TEXT: missing", list)
		}
		for modality, dollars := range prices {
			if dollars < 0 {
				return fmt.Errorf(".%s.%s: must not be negative (%g)", list, modality, dollars)
			}
		}
	}
	if m.Thinking < 0 {
		return fmt.Errorf(".thinking: must not be negative (%g)", m.Thinking)
	}
	for _, day := range slices.Sorted(maps.Keys(m.ValidFrom)) {
		if _, err := time.Parse(time.DateOnly, day); err != nil {
			return fmt.Errorf(".from[%q] is not a date such as 2027-01-01", day)
		}
		if err := m.ValidFrom[day].checkPrices(name); err != nil {
			return fmt.Errorf(".from[%q]%w", day, err)
		}
	}
	return nil
}

// pricesOn returns the prices that are in force on a day.
func (m ModelPrices) pricesOn(t time.Time) ModelPrices {
	today, newest := t.UTC().Format(time.DateOnly), ""
	for day := range m.ValidFrom {
		if day <= today && day > newest {
			newest = day
		}
	}
	if newest != "" {
		return m.ValidFrom[newest]
	}
	return m
}

// PricesOf returns today's prices of a model. ok is false if the model is unknown.
func (t Table) PricesOf(model string) (m ModelPrices, ok bool) {
	m, ok = t.findModel(model)
	return m.pricesOn(time.Now()), ok
}

func (t Table) findModel(model string) (m ModelPrices, ok bool) {
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

// Cost returns the price of tokens in millionths of a US dollar. Google reports some tokens without a modality, such as
// 25 to 51 of each input of gemini-3.8-live. They count as text.
func (m ModelPrices) Cost(t wire.Tokens) (micros float64) {
	otherModality := "TEXT"
	// If no token has a modality, assume that both the person and the model have spoken.
	if _, speaks := m.Output["AUDIO"]; speaks && len(t.PromptBy)+len(t.ResponseBy) == 0 {
		otherModality = "AUDIO"
	}
	in := priceTokens(m.Input, t.PromptBy, t.Prompt, otherModality)
	if m.Cached != nil && t.Prompt > 0 { // Google does not report the modality of cached tokens: assume the mix of the prompt
		cached := min(1, float64(t.Cached)/float64(t.Prompt))
		in += cached * (priceTokens(m.Cached, t.PromptBy, t.Prompt, otherModality) - in)
	}
	thinking := m.Thinking
	if thinking == 0 {
		thinking = m.Output["TEXT"]
	}
	// Tokens without a direction count as output, which costs more.
	unknown := max(0, t.Total-t.Prompt-t.ToolUse-t.Response-t.Thoughts)
	out := priceTokens(m.Output, t.ResponseBy, t.Response+unknown, otherModality) + thinking*float64(t.Thoughts)
	return in + m.Input["TEXT"]*float64(t.ToolUse) + out
}

// priceTokens returns the price of total tokens. Tokens listed in byModality cost the price of their modality, and all
// others the price of otherModality.
func priceTokens(prices map[string]float64, byModality map[string]int, total int, otherModality string) (cost float64) {
	for modality, n := range byModality {
		cost += priceOf(prices, modality) * float64(n)
		total -= n
	}
	return cost + priceOf(prices, otherModality)*float64(max(0, total))
}

func priceOf(prices map[string]float64, modality string) float64 {
	if price, ok := prices[modality]; ok {
		return price
	}
	return prices["TEXT"]
}

// MaxCost returns the highest possible cost, in millionths of a US dollar, of these numbers of input and output tokens,
// whatever their modality.
func (m ModelPrices) MaxCost(inputTokens, outputTokens int) (micros float64) {
	return highestPrice(m.Input)*float64(inputTokens) + max(m.Thinking, highestPrice(m.Output))*float64(outputTokens)
}

func highestPrice(prices map[string]float64) (highest float64) {
	for _, price := range prices {
		highest = max(highest, price)
	}
	return highest
}
