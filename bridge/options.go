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
	// Stall limits how long the model may send nothing while an answer is due; 0 means no limit.
	Stall time.Duration
	// MaxTokens limits the tokens of one conversation. At the limit, the conversation ends. 0 means no limit.
	MaxTokens int
	// Findings holds, by model, how Google's servers were observed to differ from the assumed behaviour. It may be nil.
	Findings map[string]liveconfig.Findings

	// Prices holds the prices of the models' tokens. If it is nil, all prices are unknown.
	Prices pricing.Table
	// Observe receives the observations of all conversations; id is that of the conversation. If it is nil,
	// observations are not even built, which saves time. It is called by several goroutines and must not block.
	Observe func(id string, o Observation)
	// TurnJudge improves the gateway's decisions about where turns end. If it is nil, package prosody decides alone.
	TurnJudge TurnJudge
	// Tools returns the gateway's tools for a new conversation; nil means none.
	Tools func() []tools.Tool
	// SignPicture returns an address of the gateway from which clients can load an external picture. If it is nil,
	// clients get no address.
	SignPicture func(url string) string
	// SuggestionsPage returns the address of a page that shows these search suggestions. If it is nil, clients get no
	// address.
	SuggestionsPage func(suggestions string) string
	// Admit is called before a conversation begins. It may reject the conversation with an [Error], or set the Override
	// of the request. It may block until ctx is done. If it is nil, all conversations are admitted.
	Admit func(ctx context.Context, id string, o *SessionRequest) error
	// OnQuotaRefusal is called for each conversation that the host does not begin because Google's quota for its model is
	// used up. It may be nil, and must not block.
	OnQuotaRefusal func()
	// Recordings is the folder for recordings; empty means that nothing is recorded. RecordAll records every
	// conversation.
	Recordings string
	RecordAll  bool
	// Store is shared with other gateways, so that each can continue conversations of the others. If it is nil, there
	// is no cluster. Writing snapshots takes 0.1 % of the CPU time of a call whose turns last 9 s.
	Store store.Store
	// Node is a name of this gateway that no other gateway has or has had. After a space, it may contain the URL by
	// which other gateways reach this one.
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
