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
	// Stall limits how long the model may stay silent while an answer is due; 0 means no limit.
	Stall time.Duration
	// MaxTokens limits the tokens of one conversation, which then ends; 0 means no limit.
	MaxTokens int
	// Findings hold observed deviations of Google's servers from the assumed behaviour, by model; may be nil.
	Findings map[string]liveconfig.Findings

	// Prices holds the prices of the models' tokens; nil means that all are unknown.
	Prices pricing.Table
	// Observe receives the observations of the conversation with this ID. nil observes nothing, which saves time.
	// Observe is called by several goroutines and must not block.
	Observe func(id string, o Observation)
	// TurnJudge improves the gateway's decisions about the ends of turns. nil means that prosody alone decides.
	TurnJudge TurnJudge
	// Tools returns the gateway's tools for a new conversation; nil means none.
	Tools func() []tools.Tool
	// SignPicture returns the gateway's own address for the URL of an external picture. nil gives clients no address.
	SignPicture func(url string) string
	// SuggestionsPage returns the address of a page with these search suggestions. nil gives clients no address.
	SuggestionsPage func(suggestions string) string
	// Admit is called before a conversation begins; nil admits all. It may reject with an [Error], or set the Override
	// of the request. It may block until ctx is done.
	Admit func(ctx context.Context, id string, o *SessionRequest) error
	// Recordings is the folder for recordings; empty means no recording. RecordAll records every conversation.
	Recordings string
	RecordAll  bool
	// Store is shared with other gateways, so that each can continue the conversations of the others. nil means no
	// cluster. Snapshots take 0.1 % of the CPU of a call with turns of 9 s.
	Store store.Store
	// Node is a name of this gateway that no other gateway has or had. A space and the URL for other gateways may follow.
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
	writing sync.WaitGroup // counts recordings being finished
}
