package mediastream

import (
	"testing"

	"voxgate/media"
)

// fuzzCodec makes a codec read messages, and then build all of its own. It may return errors, but must not panic.
func fuzzCodec(c *dialectCodec, messages [][]byte, text func(i int) bool) {
	for i, data := range messages {
		m, err := c.parseProviderMessage(data, text(i))
		if err == nil && m.kind == kindStart {
			m.start.format.encodeSound(nil, m.start.format.decodeSound(nil, &media.SampleReader{}, data))
		}
	}
	c.encodeVoice([]byte{1, 2})
	for what := clearVoice; what <= sendKeepAlive; what++ {
		c.buildCommand(what, "1")
	}
}

// FuzzJSONSound parses two messages in each format with sound in JSON.
func FuzzJSONSound(f *testing.F) {
	f.Add(
		[]byte(`{"event":"start","streamSid":"MZ1",`+
			`"start":{"streamSid":"MZ1","callSid":"CA1","mediaFormat":{"encoding":"audio/x-mulaw","sampleRate":8000}}}`),
		[]byte(`{"event":"media","media":{"chunk":"1","payload":"AAAA"}}`),
	)
	f.Add(
		[]byte(`{"event":"start","start":{"call_control_id":"v2","media_format":{"encoding":"PCMA","sample_rate":8000}},"stream_id":"32DE"}`),
		[]byte(`{"event":"dtmf","dtmf":{"digit":"5"}}`),
	)
	f.Add(
		[]byte(`{"event":"start","start":{"callId":"1","streamId":"2","mediaFormat":{"encoding":"audio/x-l16","sampleRate":16000}}}`),
		[]byte(`{"event":"playedStream","name":"1"}`),
	)
	f.Add([]byte(`{"eventType":"start","metadata":{"callId":"1"}}`), []byte(`{"eventType":"media","track":"inbound","payload":"AAAA"}`))
	f.Add([]byte(`{"event":"start","ucid":"1"}`), []byte(`{"event":"media","data":{"samples":[1,-2],"sampleRate":8000}}`))
	f.Fuzz(func(_ *testing.T, first, second []byte) {
		for _, name := range []string{"twilio", "telnyx", "plivo", "exotel", "bandwidth", "ozonetel"} {
			fuzzCodec(&dialectCodec{dialect: &profiles[name].dialect}, [][]byte{first, second}, func(int) bool { return true })
		}
	})
}

// FuzzBinarySound parses a message, sound and another message in each format with sound in binary messages.
func FuzzBinarySound(f *testing.F) {
	f.Add([]byte("MEDIA_START connection_id:e226e283 channel:WebSocket/c format:ulaw optimal_frame_size:160"), []byte("DTMF_END digit:5"))
	f.Add(
		[]byte(`{"event":"MEDIA_START","channel_id":"1.1","format":"slin16","channel_variables":{"CALLER_NUMBER":"+49"}}`),
		[]byte(`{"event":"MEDIA_XOFF"}`),
	)
	f.Add([]byte(`{"callSid":"1","sampleRate":16000}`), []byte(`{"type":"mark","data":{"name":"1"}}`))
	f.Add([]byte(`{"event":"websocket:connected","content-type":"audio/l16;rate=16000"}`), []byte(`{"event":"websocket:dtmf","digit":"5"}`))
	f.Add([]byte(`{"command":"connect","callId":"1","sampleRate":16000}`), []byte(`{"command":"busy"}`))
	f.Add(
		[]byte(`{"type":"open","seq":1,"id":"1","parameters":{"media":[{"format":"PCMU","channels":["external","internal"],"rate":8000}]}}`),
		[]byte(`{"type":"ping","seq":2,"parameters":{}}`),
	)
	f.Fuzz(func(_ *testing.T, first, second []byte) {
		for _, name := range []string{"asterisk", "jambonz", "freeswitch", "vonage", "sinch", "infobip", "genesys"} {
			fuzzCodec(&dialectCodec{dialect: &profiles[name].dialect}, [][]byte{first, {1, 2, 3}, second}, func(i int) bool { return i != 1 })
		}
	})
}
