package bridge

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"voxgate/bridge/cluster"
	"voxgate/bridge/gemini/api"
	"voxgate/bridge/gemini/liveconfig"
	"voxgate/bridge/pricing"
	"voxgate/store"
	"voxgate/tools"
)

// Options configure a [Host].
type Options struct {
	Client  *api.Client
	Backend string        // gemini, vertex or emulator; shown to clients
	Park    time.Duration // how long a resumable conversation waits for its lost caller; 0 means not at all
	// Stall is how long the model may be silent when an answer is due; 0 means no limit.
	Stall time.Duration
	// MaxTokens ends a conversation that has used so many; 0 means no limit.
	MaxTokens int
	// Findings hold observed deviations of Google's servers from the assumed behaviour, by model; may be nil.
	Findings map[string]liveconfig.Findings

	// Prices of the models' tokens; nil means all unknown.
	Prices pricing.Table
	// Observe receives the observations of the conversation with this ID; nil means no observer, at no cost. It is called by
	// several goroutines and must not block.
	Observe func(id string, o Observation)
	// Tools returns the gateway's tools for a new conversation; nil means none.
	Tools func() []tools.Tool
	// SignPicture returns the gateway's own address for the URL of an external picture. SuggestionsPage returns the
	// address of a page with these search suggestions. nil means that clients get none.
	SignPicture, SuggestionsPage func(string) string
	// Admit is called before a conversation begins. It may reject it with an [Error] or set its Override; nil means all
	// begin. It may block until ctx is done.
	Admit func(ctx context.Context, id string, o *SessionRequest) error
	// Recordings is the folder for recordings; empty means no recording. RecordAll records every conversation.
	Recordings string
	RecordAll  bool
	// Store is shared with other gateways: a conversation can continue at any of them, with its resume token. Node is
	// this gateway's name, which no other has or had, then a space and its URL for the others, if any. Without a Store
	// there is no cluster and no snapshots, which take 0.1 % of the CPU of a call with turns of 9 s.
	Store  store.Store
	Node   string
	Logger *slog.Logger
}

// PriceOf returns the prices of a model; ok is false if they are unknown.
func (h *hostState) PriceOf(model string) (m pricing.ModelPrices, ok bool) {
	return h.options.Prices.PricesOf(model)
}

// hostState is shared by the conversations of a host.
type hostState struct {
	options Options
	cluster *cluster.Cluster // nil without a cluster
	tokens  *resumeTokens
	writing sync.WaitGroup // recordings being finished
}
