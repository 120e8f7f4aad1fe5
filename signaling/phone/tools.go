package phone

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"voxgate/bridge"
	"voxgate/tools"
)

// EndCallTool returns the tool that hangs up. runCommand sends a command to the session.
func EndCallTool(runCommand func(bridge.Command) error) tools.Tool {
	return tools.Tool{
		Declaration: tools.Declaration{
			Name: "end_call", Title: "Hanging up…",
			Description: "Ends this telephone call when all that you say has been heard. Say goodbye first.",
		},
		Run: func(context.Context, json.RawMessage) (json.RawMessage, error) {
			if err := runCommand(bridge.EndAfterSpeaking{}); err != nil {
				return nil, err
			}
			return json.RawMessage(`{"output":"The call ends when you have finished speaking."}`), nil
		},
	}
}

// PressKeysTool returns the tool that presses keys. acceptedKeys is the end of a sentence in the tool's description and
// names the keys. menu is nil for incoming calls.
func PressKeysTool(acceptedKeys string, menu *Menu, press func(ctx context.Context, digits string) error) tools.Tool {
	if menu != nil {
		acceptedKeys += " Listen first, until you know which key is for what you want. If a key leads nowhere, press another one."
	}
	return tools.Tool{
		Declaration: tools.Declaration{
			Name: "send_dtmf", Title: "Pressing keys…",
			Description: "Presses keys of the telephone, as another automatic system asks for" + acceptedKeys,
			Parameters:  json.RawMessage(`{"type":"object","required":["digits"],"properties":{"digits":{"type":"string"}}}`),
		},
		Run: func(ctx context.Context, args json.RawMessage) (json.RawMessage, error) {
			var a struct{ Digits string }
			if err := json.Unmarshal(args, &a); err != nil {
				return nil, fmt.Errorf("digits must be a text: %w", err)
			}
			return nil, menu.PressKeys(a.Digits, func() error { return press(ctx, a.Digits) })
		},
	}
}

// TransferMode selects how calls are transferred.
type TransferMode struct {
	Warm   bool // attended: the target first hears the reason, and may decline
	Listen bool // the agent keeps listening after the transfer
}

// TransferTool returns the tool that transfers a call to a number or SIP URI in targets. If the model names another
// target, the tool calls onRefused, which may be nil. A timeout of 0 means [tools.Timeout].
func TransferTool(
	targets []string, timeout time.Duration, mode TransferMode, onRefused func(target string),
	transfer func(ctx context.Context, target, about string) error,
) tools.Tool {
	does, about, done := "Hands this call over to somebody else. Say so first.", "", `{"output":"The call was handed over."}`
	if mode.Listen {
		done = `{"output":"The call was handed over: the caller and your colleague talk to each other. You hear both, and nobody hears you: ` +
			`say nothing. Your other tools work still."}`
	}
	if mode.Warm {
		does = "Calls a colleague, tells them who calls and why, and puts the caller through if they take the call. " +
			"Ask the caller to wait first: they hear music meanwhile. If it fails, you are with the caller again: tell them why."
		about = `,"about":{"type":"string","description":"Two sentences for the colleague: who calls, and why"}`
	}
	return tools.Tool{
		Declaration: tools.Declaration{
			Name: "transfer_call", Title: "Transferring…",
			Description: does + " It works for these alone: " + strings.Join(targets, ", ") + ".",
			Parameters: json.RawMessage(
				`{"type":"object","required":["target"],"properties":{"target":{"type":"string","description":"A number or a SIP URI"}` + about + `}}`),
			Timeout: timeout,
		},
		Run: func(ctx context.Context, args json.RawMessage) (json.RawMessage, error) {
			var a struct{ Target, About string }
			if err := json.Unmarshal(args, &a); err != nil {
				return nil, fmt.Errorf("target and about must be texts: %w", err)
			}
			target, ok := parseTransferTarget(targets, a.Target)
			if !ok {
				if onRefused != nil {
					onRefused(target)
				}
				return nil, fmt.Errorf("%q may not be called; these may: %s", target, strings.Join(targets, ", "))
			}
			if err := transfer(ctx, target, a.About); err != nil {
				return nil, err
			}
			return json.RawMessage(done), nil
		},
	}
}

// parseTransferTarget returns the number or SIP URI that the model named. isAllowed reports whether it matches one of
// the allowed patterns.
func parseTransferTarget(allowed []string, text string) (target string, isAllowed bool) {
	target = strings.TrimSpace(text)
	scheme, rest, _ := strings.Cut(target, ":")
	if scheme = strings.ToLower(scheme); scheme == "sip" || scheme == "sips" {
		target = scheme + ":" + rest
		return target, bridge.MatchesAny(allowed, target)
	}
	number := ParseNumber(target)
	return string(number), number != "" && number.Matches(allowed)
}
