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

// protocols returns the protocols of the gateway. Add an endpoint here. The REST API is not in the list: openModels
// opens it, because other components call it, too.
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
