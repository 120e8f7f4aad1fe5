package sip

import (
	"context"

	"voxgate/bridge"
	"voxgate/signaling/phone"
	sipmedia "voxgate/signaling/phone/sip/media"
	"voxgate/signaling/phone/sip/ua"
	"voxgate/tools"
)

// tools returns the tools for the model in this call. They act on c, or on the call that has taken over the
// conversation from c.
func (c *call) tools() []tools.Tool {
	end := phone.EndCallTool(func(command bridge.Command) error { return c.conversation().Do(command) })
	if c.consultation != nil {
		return c.consultation.buildTools()
	}
	list := append(c.server.config.Collect.BuildTools(c.agent, func() *phone.Keypad { return c.line.Load().keypad }), end)
	list = append(list, phone.PressKeysTool(
		". Digits, *, #, and a comma for a pause of half a second.", c.menu(),
		func(ctx context.Context, digits string) error {
			now := c.line.Load()
			if now.isBridged() {
				return errBridged
			}
			return now.audio.SendDigits(ctx, digits)
		},
	))
	if c.screen.ask {
		list = append(list, c.screen.answeredByTool())
	}
	if len(c.trunk.TransferTo) > 0 {
		manner := phone.TransferMode{Warm: c.trunk.Transfer == transferWarm, Listen: c.trunk.Listen}
		const timeout = ua.ReferTimeout + consultationTimeout + sipmedia.SpokenTimeout + ua.ByeTimeout
		list = append(list, phone.TransferTool(c.trunk.TransferTo, timeout, manner, nil,
			func(ctx context.Context, target, about string) error {
				return c.line.Load().transferCall(ctx, target, about)
			}))
	}
	return list
}
