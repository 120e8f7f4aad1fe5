package bridge

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"voxgate/bridge/fleet"
	"voxgate/bridge/gemini/api"
	"voxgate/bridge/gemini/setup"
	"voxgate/bridge/price"
	"voxgate/store"
	"voxgate/tools"
)

// Options make a [Host].
type Options struct {
	Client  *api.Client
	Backend string        // what answers: gemini, vertex or emulator; clients see it
	Park    time.Duration // how long a resumable conversation waits for its lost caller; 0: not at all
	// Stall is how long the model may be silent where an answer is due; 0: for ever.
	Stall time.Duration
	// MaxTokens ends a conversation that has used so many; 0: no limit.
	MaxTokens int
	// Findings are what Google's servers were found to do otherwise than is assumed, by model; nil: nothing.
	Findings map[string]setup.Findings

	// Prices are what tokens cost; nil: that is not known of any.
	Prices price.Table
	// Observe gets what happens in the conversation of this id; nil: nobody observes, at no cost. Several goroutines call
	// it; it must not block.
	Observe func(id string, o Observation)
	// Tools returns the gateway's own tools, for a conversation that begins; nil: there are none.
	Tools func() []tools.Tool
	// SignPicture returns the address on the gateway for a picture's URL on the internet, and Chips that of a page of
	// search suggestions; nil: clients get none.
	SignPicture, Chips func(string) string
	// Admit is called before a conversation begins, and may refuse it with an [Error] or set its Override; nil: all begin.
	// It may block until ctx is done.
	Admit func(ctx context.Context, id string, o *Open) error
	// Recordings is the folder for conversations that are recorded; empty: none is. RecordAll records every conversation.
	Recordings string
	RecordAll  bool
	// Store is what this gateway shares with others: a conversation can go on at any of them, by its resume token. Node is
	// this gateway's name, which no other has or had, then a space and the URL by which the others reach it, if there is
	// one. Without a Store there are no other gateways and no snapshots, which take 0.1 % of the CPU of a call with turns
	// of 9 s.
	Store  store.Store
	Node   string
	Logger *slog.Logger
}

// Price is what a model's tokens cost; ok is false if that is not known.
func (h *shared) Price(model string) (m price.ModelPrices, ok bool) {
	return h.options.Prices.PricesOf(model)
}

// shared is what the conversations of a host have in common.
type shared struct {
	options Options
	fleet   *fleet.Cluster // nil without other gateways
	tokens  *resumeTokens
	writing sync.WaitGroup // the ends of recordings
}
