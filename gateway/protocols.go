package main

import (
	"voxgate/signaling"
	"voxgate/signaling/backend"
	"voxgate/signaling/client"
	"voxgate/signaling/compat/geminilive"
	"voxgate/signaling/compat/openai"
	"voxgate/signaling/compat/rtvi"
	"voxgate/signaling/compat/whip"
	"voxgate/signaling/phone/mediastream"
	"voxgate/signaling/phone/sip"
	"voxgate/vox"
)

// protocols returns what the gateway serves, besides the REST API, which other components use too. An endpoint is added by a line here.
func protocols() []signaling.Protocol {
	return []signaling.Protocol{
		backend.Protocol(),
		client.Protocol(),
		geminilive.Protocol(),
		mediastream.Protocol(),
		openai.Protocol(),
		rtvi.Protocol(),
		sip.Protocol(),
		vox.Protocol(),
		whip.Protocol(),
	}
}
