package mediastream

import (
	"voxgate/media/g711"
)

// profile describes a provider. Comments in the table give the sources of the formats.
type profile struct {
	dialect           dialect
	sign              *signatureScheme // signature of the provider's requests; nil if it uses a password
	signatureOptional bool             // the signature is optional: without a secret, a password is used
	signsUpgrade      bool             // if a secret is configured, the WebSocket request is signed in addition to the password
	answer            string           // XML or JSON that makes the provider stream the call {id} to {url}
	reject            string           // XML or JSON that makes the provider reject a call
	id                string           // name of the request parameter with the call ID
	needsAccount      bool             // the REST API requires an account ID
	rest              *restAPI         // the provider's REST API; nil if not supported
}

var mulaw = format{&g711.MuLaw, 8000}

// twilio is Twilio's dialect, which other providers have copied.
// https://www.twilio.com/docs/voice/media-streams/websocket-messages
var twilio = dialect{
	events: map[string]messageKind{"start": kindStart, "dtmf": kindDigit, "mark": kindPlayed, "stop": kindStop},
	call:   "start.callSid", stream: "start.streamSid", encoding: "start.mediaFormat.encoding", rate: "start.mediaFormat.sampleRate",
	key: "dtmf.digit", mark: "mark.name", format: mulaw, attributes: "start.customParameters",
	voiceTemplate: `{"event":"media","streamSid":{stream},"media":{"payload":"{sound}"}}`,
	commands: map[command]string{
		clearVoice: `{"event":"clear","streamSid":{stream}}`,
		putMark:    `{"event":"mark","streamSid":{stream},"mark":{"name":{what}}}`,
	},
}

var profiles = map[string]*profile{
	"twilio": {
		dialect: twilio, id: "CallSid",
		sign:         &signatureScheme{verify: verifyTwilio, headers: []string{"X-Twilio-Signature"}, signsUpgrade: true},
		answer:       `<Response><Connect><Stream url="{url}"/></Connect></Response>`,
		reject:       `<Response><Reject reason="busy"/></Response>`,
		needsAccount: true, rest: &restAPI{base: "https://api.twilio.com", hangUp: twilioHangUp("/2010-04-01"), transfer: twilioTransfer},
	},
	"signalwire": {
		// https://developer.signalwire.com/compatibility-api/cxml/voice/stream/
		dialect: twilio, id: "CallSid",
		sign:         &signatureScheme{verify: verifyTwilio, headers: []string{"X-SignalWire-Signature", "X-Twilio-Signature"}},
		answer:       `<Response><Connect><Stream url="{url}"/></Connect></Response>`,
		reject:       `<Response><Reject reason="busy"/></Response>`,
		needsAccount: true, rest: &restAPI{hangUp: twilioHangUp("/api/laml/2010-04-01")},
	},
	"telnyx": {
		// https://developers.telnyx.com/api-reference/websockets/stream-call-media-over-websocket
		dialect: dialect{
			events: map[string]messageKind{"start": kindStart, "dtmf": kindDigit, "mark": kindPlayed, "stop": kindStop},
			call:   "start.call_control_id", stream: "stream_id", from: "start.from", to: "start.to", attributes: "start.client_state",
			encoding: "start.media_format.encoding", rate: "start.media_format.sample_rate",
			key: "dtmf.digit", mark: "mark.name", format: mulaw,
			voiceTemplate: `{"event":"media","media":{"payload":"{sound}"}}`,
			commands:      map[command]string{clearVoice: `{"event":"clear"}`, putMark: `{"event":"mark","mark":{"name":{what}}}`},
		},
		sign: &signatureScheme{verify: verifyTelnyx, headers: []string{"Telnyx-Signature-Ed25519"}, isPublicKey: true}, id: "CallSid",
		answer: `<Response><Connect><Stream url="{url}" track="inbound_track" codec="PCMU" ` +
			`bidirectionalMode="rtp" bidirectionalCodec="PCMU"/></Connect></Response>`,
		reject: `<Response><Reject reason="busy"/></Response>`,
		rest: &restAPI{
			base: "https://api.telnyx.com", bearer: true, hangUp: telnyxAction("hangup", ""), transfer: telnyxTransfer, keys: telnyxKeys,
		},
	},
	"plivo": {
		// https://www.plivo.com/docs/voice/xml/audiostream
		dialect: dialect{
			events: map[string]messageKind{"start": kindStart, "dtmf": kindDigit, "playedStream": kindPlayed, "stop": kindStop},
			call:   "start.callId", stream: "start.streamId", attributes: "extra_headers", fullNumbers: true,
			encoding: "start.mediaFormat.encoding", rate: "start.mediaFormat.sampleRate",
			key: "dtmf.digit", mark: "name", format: mulaw,
			voiceTemplate: `{"event":"playAudio","streamId":{stream},"media":{"contentType":{encoding},"sampleRate":{rate},"payload":"{sound}"}}`,
			commands: map[command]string{
				clearVoice: `{"event":"clearAudio","streamId":{stream}}`,
				putMark:    `{"event":"checkpoint","streamId":{stream},"name":{what}}`,
				pressKeys:  `{"event":"sendDTMF","dtmf":{what}}`,
			},
		},
		sign: &signatureScheme{verify: verifyPlivo, headers: []string{"X-Plivo-Signature-V3"}}, id: "CallUUID",
		answer: `<Response><Stream bidirectional="true" keepCallAlive="true" contentType="audio/x-mulaw;rate=8000">{url}` +
			`</Stream></Response>`,
		reject:       `<Response><Hangup reason="busy"/></Response>`,
		needsAccount: true, rest: &restAPI{base: "https://api.plivo.com", hangUp: plivoHangUp, transfer: plivoTransfer},
	},
	"exotel": {dialect: dialect{
		// https://developer.exotel.com/docs/agentstream/websocket-protocol
		events: map[string]messageKind{"start": kindStart, "dtmf": kindDigit, "mark": kindPlayed, "stop": kindStop},
		call:   "start.call_sid", stream: "start.stream_sid", from: "start.from", to: "start.to", attributes: "start.custom_parameters",
		encoding: "start.media_format.encoding", rate: "start.media_format.sample_rate",
		key: "dtmf.digit", mark: "mark.name", format: format{rate: 8000},
		packing:       packing{framesPerMessage: 10, padsLast: true}, // 3,200 bytes, the minimum message size in Exotel's documentation
		voiceTemplate: `{"event":"media","stream_sid":{stream},"media":{"payload":"{sound}"}}`,
		commands: map[command]string{
			clearVoice: `{"event":"clear","stream_sid":{stream}}`,
			putMark:    `{"event":"mark","stream_sid":{stream},"mark":{"name":{what}}}`,
		},
	}},
	"ozonetel": {dialect: dialect{
		// Sources: public code of Ozonetel's customers: https://github.com/rajeshganji/ai-agent-portal
		// (STREAM_IMPLEMENTATION.md), https://github.com/pragyaa-ai/singleinterface2.0ws
		// (TELEPHONY_VENDOR_INTEGRATION.md)
		soundIsList: true, events: map[string]messageKind{"start": kindStart, "stop": kindStop},
		call: "ucid", stream: "ucid", to: "did", format: format{rate: 8000},
		voiceTemplate: `{"event":"media","type":"media","ucid":{stream},"data":{"type":"data",` +
			`"bitsPerSample":16,"sampleRate":8000,"channelCount":1,"samples":[{sound}],"numberOfFrames":{count}}}`,
		commands: map[command]string{clearVoice: `{"command":"clearBuffer"}`, hangUp: `{"command":"callDisconnect"}`},
	}},
	"asterisk": {dialect: dialect{
		// https://docs.asterisk.org/Configuration/Channel-Drivers/WebSocket/
		binary: true, plainText: true,
		events: map[string]messageKind{
			"MEDIA_START": kindStart, "DTMF_END": kindDigit, "QUEUE_DRAINED": kindPlayed, "MEDIA_XOFF": kindPause, "MEDIA_XON": kindResume,
			"HANGUP": kindStop,
		},
		call: "channel_id", encoding: "format", key: "digit", format: mulaw,
		attributes: "channel_variables",
		from:       "channel_variables.CALLER_NUMBER", to: "channel_variables.CALLED_NUMBER", name: "channel_variables.CALLER_NAME",
		commands: map[command]string{clearVoice: "FLUSH_MEDIA", putMark: "REPORT_QUEUE_DRAINED", hangUp: "HANGUP"},
	}},
	"jambonz": {dialect: dialect{
		// https://docs.jambonz.org/verbs/verbs/listen
		binary: true, events: map[string]messageKind{"dtmf": kindDigit, "mark": kindPlayed},
		call: "callSid", from: "from", to: "to", name: "callerName", rate: "sampleRate",
		key: "dtmf", mark: "data.name", format: format{rate: 8000},
		commands: map[command]string{
			clearVoice: `{"type":"killAudio"}`, putMark: `{"type":"mark","data":{"name":{what}}}`, hangUp: `{"type":"disconnect"}`,
		},
	}},
	"freeswitch": {dialect: dialect{
		// https://github.com/drachtio/drachtio-freeswitch-modules, mod_audio_fork. The operator writes the first
		// message in the dialplan, so we are free to choose its field names.
		binary: true, events: map[string]messageKind{"dtmf": kindDigit},
		call: "callId", from: "from", to: "to", name: "callerName", attributes: "attributes", rate: "sampleRate",
		key: "dtmf", format: format{rate: 8000},
		commands: map[command]string{clearVoice: `{"type":"killAudio"}`, hangUp: `{"type":"disconnect"}`},
	}},
	"vonage": {
		dialect: dialect{
			// https://developer.vonage.com/voice/voice-api/concepts/websockets; from, to and call are headers of the endpoint
			binary: true, fullNumbers: true,
			events: map[string]messageKind{"websocket:connected": kindStart, "websocket:dtmf": kindDigit, "websocket:notify": kindPlayed},
			call:   "uuid", from: "from", to: "to", encoding: "content-type", key: "digit", mark: "payload.name", format: format{rate: 16000},
			commands: map[command]string{clearVoice: `{"action":"clear"}`, putMark: `{"action":"notify","payload":{"name":{what}}}`},
		},
		// https://developer.vonage.com/en/voice/voice-api/webhook-reference#answer-webhook, …/ncco-reference#connect
		sign: &signatureScheme{verify: verifyVonage, headers: []string{"Authorization"}}, signatureOptional: true, id: "uuid",
		answer: `[{"action":"connect","endpoint":[{"type":"websocket","uri":{url},"content-type":"audio/l16;rate=16000",` +
			`"headers":{"uuid":{id}}}]}]`,
		reject: `[]`, // an empty list of actions ends the call
	},
	"bandwidth": {dialect: dialect{
		// https://dev.bandwidth.com/docs/voice/programmable-voice/bxml/startStream/, and Pipecat's serializer for it
		eventPath: "eventType", events: map[string]messageKind{"start": kindStart, "stop": kindStop}, call: "metadata.callId", format: mulaw,
		voiceTemplate: `{"eventType":"playAudio","media":{"contentType":"audio/pcmu","payload":"{sound}"}}`,
		commands:      map[command]string{clearVoice: `{"eventType":"clear"}`},
	}},
	"sinch": {dialect: dialect{
		// https://developers.sinch.com/docs/voice-2.0/api-reference/stream
		binary: true, eventPath: "command", events: map[string]messageKind{"connect": kindStart},
		call: "callId", rate: "sampleRate", attributes: "callHeaders", format: format{rate: 8000},
		commands: map[command]string{
			acceptCall: `{"command":"answer"}`, clearVoice: `{"command":"clear"}`, sendKeepAlive: `{"command":"heartbeat"}`,
		},
	}},
	"infobip": {dialect: dialect{
		// https://www.infobip.com/docs/voice-and-video/calls/use-websocket-streaming, and public code of its users: a
		// fork of Pipecat, https://github.com/crunnels-alt/dynamic-fintech-demo, and a sample for Azure's Voice Live.
		// The fields of customData are sent at the top level of the message.
		binary: true, events: map[string]messageKind{"websocket:connected": kindStart, "websocket:dtmf": kindDigit},
		call: "callId", from: "from", to: "to", encoding: "content-type", key: "digit", format: format{rate: 24000},
		packing:  packing{sendsSilence: true}, // two of these sources say that a stream without sound is closed
		commands: map[command]string{clearVoice: `{"action":"clear"}`},
	}},
	"genesys": {signsUpgrade: true, dialect: dialect{
		// https://developer.genesys.cloud/devapps/audiohook,
		// https://github.com/purecloudlabs/audiohook-reference-implementation. The messages with a digit and
		// with barge_in follow Pipecat's serializer.
		binary: true,
		events: map[string]messageKind{
			"open": kindStart, "dtmf": kindDigit, "paused": kindHold, "resumed": kindUnhold, "ping": kindPing, "close": kindStop,
		},
		call: "parameters.conversationId", stream: "id", offersPath: "parameters.media", attributes: "parameters.inputVariables",
		from: "parameters.participant.ani", to: "parameters.participant.dnis", name: "parameters.participant.aniName",
		key: "parameters.digit", format: mulaw,
		probeCallID: "00000000-0000-0000-0000-000000000000", // AudioHook, patterns and practices: "Connection probe"
		packing:     packing{framesPerMessage: 10},          // larger messages, because AudioHook limits the rate of messages
		commands: map[command]string{
			acceptCall:    audioHookTemplate("opened", `{"media":[{chosen}]}`),
			answerPing:    audioHookTemplate("pong", `{}`),
			clearVoice:    audioHookTemplate("event", `{"entities":[{"type":"barge_in","data":{}}]}`),
			hangUp:        audioHookTemplate("disconnect", `{"reason":"completed"}`),
			confirmHangUp: audioHookTemplate("closed", `{}`),
		},
	}},
}

// audioHookTemplate returns a template for a message to Genesys.
func audioHookTemplate(kind, parameters string) string {
	return `{"version":"2","id":{stream},"type":"` + kind + `","seq":{seq},"clientseq":{theirs},"parameters":` + parameters + `}`
}
