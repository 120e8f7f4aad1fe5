package signaling

import (
	"context"
	"encoding/json"
	"flag"
	"log/slog"

	"voxgate/agents"
	"voxgate/bridge"
	"voxgate/media/opus"
	"voxgate/signaling/access"
	"voxgate/signaling/rtc"
)

// Protocol describes a protocol to the program. The folder of the protocol's endpoint declares it in protocol.go, with
// the settings that only this endpoint reads.
type Protocol struct {
	Name string

	// AddFlags adds the protocol's settings to the program's flags. It may be nil.
	AddFlags func(f *flag.FlagSet)

	// Check checks the files that the protocol's settings name, without starting anything. For each file it calls check
	// with the flag, its value, and a function that reads the file. Check may be nil.
	Check func(folder *agents.Folder, check func(flag, value string, read func() error))

	// Open returns the protocol's endpoints. end closes them, and may be nil.
	Open func(e *Environment) (endpoints []Endpoint, end func(), err error)
}

// Environment holds the components and settings of a gateway that its protocols share.
type Environment struct {
	Host    *bridge.Host
	Agents  *agents.Folder // or nil
	Gate    *access.Gate
	Secrets *access.Secrets // short-lived tokens of foreign protocols
	Origins []Origin        // origins whose pages may connect, in addition to the gateway's own pages

	RTC         *rtc.API
	OpusDecoder opus.DecoderChoice
	ICEServers  func() []ICEServer // STUN and TURN servers for a client that connects now

	TextModels TextModels
	TextModel  string // the model for texts that the gateway itself requests
	MaxTokens  int    // limit for the tokens of a conversation; 0 means no limit

	OnRefused func(rule string)                     // counts a rejected client; must not block
	Observe   func(id string, o bridge.Observation) // receives what happens outside of conversations; may be nil
	Logger    *slog.Logger
}

// TextModels serves requests to text models.
type TextModels interface {
	// GenerateContent sends a request to a model, and calls onPiece with each GenerateContentResponse of the answer. It
	// blocks until the answer has ended. It charges the cost to the account. If the account's budget is too low, the
	// error wraps [bridge.ErrBudget].
	GenerateContent(
		ctx context.Context, account bridge.Account, model string, request json.RawMessage, onPiece func(json.RawMessage) error,
	) (bridge.Cost, error)

	// CheckModel returns an error if a model does not exist.
	CheckModel(ctx context.Context, model string) error
}
