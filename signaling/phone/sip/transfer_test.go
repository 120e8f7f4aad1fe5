package sip_test

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/pion/rtp"

	"voxgate/bridge"
	"voxgate/internal/testkit/mediatest"
	"voxgate/media"
	"voxgate/media/g711"
	"voxgate/media/opus"
)

// transferTest is a caller of a gateway, a colleague, and the call to the colleague.
type transferTest struct {
	t                 testing.TB
	gateway           *testGateway
	caller, colleague *handset
	events            <-chan bridge.Event // of the caller's conversation
	invite            string              // to the colleague
}

// beginTransfer begins a transfer: the caller talks to the agent, and the colleague's phone rings. formats are the payload types of both.
// With "record" in trunk the conversation is recorded.
func beginTransfer(t testing.TB, trunk map[string]any, formats ...string) *transferTest {
	t.Helper()
	fields := map[string]any{"transfer": "warm", "transferTo": []string{"+49*"}}
	for name, value := range trunk {
		fields[name] = value
	}
	delete(fields, "record")
	h := &transferTest{t: t}
	formats = append(formats, "0 101", "0 101")
	h.colleague, h.gateway = startCarrier(t, fields, nil)
	h.colleague.openAudio(formats[1])
	h.caller = startCall(t, h.gateway, formats[0])
	if trunk["record"] != nil {
		if err := h.gateway.awaitSession().Do(bridge.UpdateConfig{Config: []byte(`{"voxgate":{"record":true}}`)}); err != nil {
			t.Fatal(err)
		}
		h.gateway.awaitLog("recording started")
	}
	h.events = h.gateway.watchEvents()
	h.gateway.sendText(`/tool transfer_call {"target":"+49302","about":"Ada's boiler is broken."}`)
	if fields["transfer"] == "" {
		h.caller.respond(h.caller.awaitRequest("REFER"), "405 Method Not Allowed", "1")
	}
	h.invite = h.colleague.awaitRequest("INVITE sip:\\+49302@")
	h.colleague.setAudioAddr(h.invite)
	return h
}

// answerCall makes the colleague answer.
func (t *transferTest) answerCall() *transferTest {
	t.t.Helper()
	t.colleague.respond(t.invite, "200 OK", "a")
	t.colleague.awaitRequest("ACK")
	return t
}

// awaitBriefing waits for the conversation with the colleague, and returns it.
func (t *transferTest) awaitBriefing() *bridge.Session {
	t.t.Helper()
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); <-time.After(10 * time.Millisecond) {
		for _, s := range t.gateway.host.Sessions() {
			if s.Identity == "+49302" && s.State == bridge.StateLive {
				return t.gateway.host.Session(s.ID)
			}
		}
	}
	t.t.Fatal("nobody talks to the colleague")
	return nil
}

// awaitBriefingText waits until the agent has told the colleague a text.
func (t *transferTest) awaitBriefingText(text string) {
	t.t.Helper()
	heard := make(chan struct{}, 1)
	stop, err := t.awaitBriefing().Watch(func(e bridge.Event) {
		said := ""
		switch b := e.Body.(type) {
		case bridge.AssistantText:
			said = b.Text
		case bridge.History:
			for _, entry := range b.Entries {
				said += entry.Content
			}
		}
		if strings.Contains(said, text) {
			select {
			case heard <- struct{}{}:
			default:
			}
		}
	})
	if err != nil {
		t.t.Fatal(err)
	}
	defer stop()
	select {
	case <-heard:
	case <-time.After(patience):
		t.t.Errorf("the colleague is not told %q", text)
	}
}

// acceptTransfer makes the colleague accept, and returns when both are connected.
func (t *transferTest) acceptTransfer() *transferTest {
	t.t.Helper()
	t.answerCall().awaitBriefing()
	t.colleague.sendInDialog(t.invite, "a", "INFO", 1, "application/dtmf", "1")
	t.colleague.awaitResponse("200")
	t.gateway.awaitLog("call bridged")
	return t
}

// awaitFailure waits until the model knows why the transfer failed, and checks that the caller is with the agent again.
func (t *transferTest) awaitFailure(why string) {
	t.t.Helper()
	end := awaitEvent(t.t, t.events, func(e bridge.ToolStatus) bool { return e.Status != bridge.StatusRunning })
	if end.Status != bridge.StatusFailed || !strings.Contains(string(end.Result), why) {
		t.t.Errorf("%s: %s", end.Status, end.Result)
	}
	t.gateway.sendText("Are you there?") // the caller is back
	for t.caller.awaitVoice(time.Now().Add(time.Millisecond)) {
	}
	if !t.caller.awaitVoice(time.Now().Add(patience)) {
		t.t.Error("the caller hears nothing")
	}
	awaitEvent(t.t, t.events, func(e bridge.AssistantText) bool { return strings.Contains(e.Text, "there") })
}

// awaitCallsEnd waits until both calls have ended. The handsets in ended, which have not hung up, get a BYE.
func (t *transferTest) awaitCallsEnd(ended ...*handset) {
	t.t.Helper()
	for _, one := range ended {
		one.respond(one.awaitRequest("BYE"), "200 OK", "a")
	}
	t.gateway.awaitLogTimes("call ended", 2)
	if n := len(t.gateway.host.Sessions()); n > 0 {
		t.t.Errorf("%d conversations", n)
	}
}

// sendPackets sends packets of 20 ms until it is stopped.
func (h *handset) sendPackets(number uint8, clock int, payload func(i int) []byte) (stop func()) {
	over := make(chan struct{})
	var running sync.WaitGroup
	running.Go(func() {
		tick := time.NewTicker(media.FrameDuration)
		defer tick.Stop()
		p := rtp.Packet{Header: rtp.Header{Version: 2, SSRC: 7, PayloadType: number, SequenceNumber: 65500}}
		for i := 0; ; i++ {
			p.SequenceNumber++
			p.Timestamp += uint32(media.Samples(media.FrameDuration, clock))
			p.Payload = payload(i)
			if raw, err := p.Marshal(); err == nil {
				_, _ = h.audio.WriteTo(raw, h.gateway)
			}
			select {
			case <-tick.C:
			case <-over:
				return
			}
		}
	})
	return sync.OnceFunc(func() { close(over); running.Wait() })
}

// awaitPacket waits for a packet that matches.
func (h *handset) awaitPacket(want func(p *rtp.Packet) bool) rtp.Packet {
	h.t.Helper()
	buf := make([]byte, 1500)
	h.audio.SetReadDeadline(time.Now().Add(patience))
	for {
		n, _, err := h.audio.ReadFrom(buf)
		if err != nil {
			h.t.Fatalf("no such packet: %v", err)
		}
		var p rtp.Packet
		if p.Unmarshal(slices.Clone(buf[:n])) == nil && want(&p) {
			return p
		}
	}
}

// numberedPayload returns the distinguishable payload number i.
func numberedPayload(i int) []byte {
	return []byte(fmt.Sprintf("%-160d", i))
}

// payloadNumber returns the number of a packet's payload, or 0.
func payloadNumber(p *rtp.Packet) (i int) {
	if _, err := fmt.Sscanf(string(p.Payload), "%d ", &i); err != nil || string(p.Payload) != string(numberedPayload(i)) {
		return 0
	}
	return i
}

func isNumbered(p *rtp.Packet) bool { return payloadNumber(p) > 0 }

// A caller hears music while a colleague is told about them. When the colleague accepts, both hear each other in real time, and the agent
// has left.
func TestWarmTransfer(t *testing.T) {
	t.Parallel()
	for name, takes := range map[string]func(h *transferTest){
		"by word": func(h *transferTest) {
			if err := h.awaitBriefing().Do(bridge.Message{Text: "/tool accept {}", TurnComplete: true}); err != nil {
				h.t.Fatal(err)
			}
		},
		"by key": func(h *transferTest) {
			h.awaitBriefing()
			stop := h.colleague.sendPackets(101, 0, func(int) []byte { return []byte{1, 10, 0, 160} })
			defer stop()
			h.gateway.awaitLog("call bridged")
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := beginTransfer(t, nil)
			if !h.caller.awaitVoice(time.Now().Add(patience)) {
				t.Error("there is no music")
			}
			h.answerCall()
			if !h.colleague.awaitVoice(time.Now().Add(patience)) {
				t.Error("the colleague is told nothing")
			}
			h.awaitBriefingText("boiler")
			takes(h)
			h.gateway.awaitLog("call bridged")
			for from, to := range map[*handset]*handset{h.caller: h.colleague, h.colleague: h.caller} {
				stop := from.sendPackets(0, 8000, numberedPayload)
				before := to.awaitPacket(isNumbered)
				first := payloadNumber(&before)
				for i := first + 1; i < first+25; i++ {
					p := to.awaitPacket(func(*rtp.Packet) bool { return true })
					if string(p.Payload) != string(numberedPayload(i)) || p.SequenceNumber != before.SequenceNumber+1 ||
						p.Timestamp != before.Timestamp+160 || p.SSRC != before.SSRC {
						t.Fatalf("%v %q after %v", p.Header, p.Payload, before.Header)
					}
					before = p
				}
				stop()
			}
			h.caller.sendRequest("BYE", 2, "")
			h.caller.awaitResponse("200")
			h.awaitCallsEnd(h.colleague)
		})
	}
}

// If a colleague does not accept, the caller stays with the agent, which learns why.
func TestWarmTransferFails(t *testing.T) {
	t.Parallel()
	refuses := func(status string) func(h *transferTest) {
		return func(h *transferTest) { h.colleague.respond(h.invite, status, "a") }
	}
	for name, test := range map[string]struct {
		goes func(h *transferTest)
		why  string
	}{
		"busy":       {refuses("486 Busy Here"), "busy: Busy Here"},
		"not there":  {refuses("480 Temporarily Unavailable"), "no-answer"},
		"trunk away": {refuses("503 Service Unavailable"), "failed: Service Unavailable"},
		"trunk away after 180": {func(h *transferTest) {
			h.colleague.respond(h.invite, "180 Ringing", "a")
			h.gateway.server.EndUnanswered("+49302")
			h.colleague.awaitRequest("CANCEL")
			h.t.Cleanup(func() {
				if !h.gateway.server.HasCall("+49302") {
					h.t.Error("the caller waited until the trunk had answered our CANCEL")
				}
				h.colleague.respond(h.invite, "487 Request Terminated", "a")
			})
		}, "nobody has answered"},
		"declined by word": {func(h *transferTest) {
			s := h.answerCall().awaitBriefing()
			if err := s.Do(bridge.Message{Text: `/tool decline {"reason":"in a meeting"}`, TurnComplete: true}); err != nil {
				h.t.Error(err)
			}
			h.colleague.respond(h.colleague.awaitRequest("BYE"), "200 OK", "a")
		}, "in a meeting"},
		"declined by key": {func(h *transferTest) {
			h.answerCall().awaitBriefing()
			h.colleague.sendInDialog(h.invite, "a", "INFO", 1, "application/dtmf", "2")
			h.colleague.respond(h.colleague.awaitRequest("BYE"), "200 OK", "a")
		}, "pressed 2"},
		"silence": {func(h *transferTest) {
			h.answerCall().awaitBriefing()
			h.colleague.respond(h.colleague.awaitRequest("BYE"), "200 OK", "a")
		}, "said nothing"},
		"hangs up while briefed": {func(h *transferTest) {
			h.answerCall()
			if !h.colleague.awaitVoice(time.Now().Add(patience)) {
				h.t.Error("the colleague is told nothing")
			}
			h.colleague.hangUp(h.invite, "a")
		}, "has hung up"},
		"hangs up at once": {func(h *transferTest) {
			h.answerCall()
			h.colleague.hangUp(h.invite, "a")
		}, "has hung up"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := beginTransfer(t, nil)
			test.goes(h)
			h.awaitFailure(test.why)
		})
	}
}

// If a caller hangs up, the call to the colleague ends too, at every stage.
func TestCallerHangsUpDuringTransfer(t *testing.T) {
	t.Parallel()
	leaves := func(h *transferTest) {
		h.caller.sendRequest("BYE", 2, "")
		h.caller.awaitResponse("200")
	}
	for name, goes := range map[string]func(h *transferTest){
		"while it rings": func(h *transferTest) {
			h.colleague.respond(h.invite, "180 Ringing", "a")
			leaves(h)
			h.colleague.respond(h.colleague.awaitRequest("CANCEL"), "200 OK", "a")
			h.colleague.respond(h.invite, "487 Request Terminated", "a")
			h.awaitCallsEnd()
		},
		"while the colleague is told": func(h *transferTest) {
			h.answerCall().awaitBriefing()
			leaves(h)
			h.awaitCallsEnd(h.colleague)
		},
		"as the colleague takes the call": func(h *transferTest) {
			h.answerCall().awaitBriefing()
			h.colleague.sendInDialog(h.invite, "a", "INFO", 1, "application/dtmf", "1")
			leaves(h)
			h.awaitCallsEnd(h.colleague)
		},
		"both, while it is told": func(h *transferTest) {
			h.answerCall().awaitBriefing()
			h.caller.sendRequest("BYE", 2, "")
			h.colleague.hangUp(h.invite, "a")
			h.caller.awaitResponse("200")
			h.awaitCallsEnd()
		},
		"both, when they talk": func(h *transferTest) {
			h.acceptTransfer()
			h.caller.sendRequest("BYE", 2, "")
			h.colleague.sendInDialog(h.invite, "a", "BYE", 2, "", "")
			h.caller.awaitResponse("200")
			h.colleague.awaitResponse("200")
			h.awaitCallsEnd()
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			goes(beginTransfer(t, nil))
		})
	}
}

// A bridge ends when one side hangs up, when the gateway stops, and at the maximum duration of the call.
func TestBridgedCallsEnd(t *testing.T) {
	t.Parallel()
	t.Run("the colleague leaves", func(t *testing.T) {
		t.Parallel()
		h := beginTransfer(t, nil).acceptTransfer()
		h.colleague.sendInDialog(h.invite, "a", "BYE", 2, "", "")
		h.colleague.awaitResponse("200")
		h.awaitCallsEnd(h.caller)
	})
	t.Run("the gateway stops", func(t *testing.T) {
		t.Parallel()
		h := beginTransfer(t, nil).acceptTransfer()
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		if err := h.gateway.host.Shutdown(ctx); err != nil {
			t.Error(err)
		}
		h.awaitCallsEnd(h.caller, h.colleague)
	})
	t.Run("nobody replaces it", func(t *testing.T) {
		t.Parallel()
		h := beginTransfer(t, nil).acceptTransfer()
		_, tag, _ := strings.Cut(h.caller.remoteParty, "tag=")
		headers := fmt.Sprintf(usualHeaders, "other") + "Replaces: ah;to-tag=" + tag + ";from-tag=1\r\n"
		h.caller.send(inviteText(h.caller.signals.LocalAddr().String(), headers, body))
		h.caller.awaitResponse("603")
		h.colleague.sendInDialog(h.invite, "a", "BYE", 2, "", "")
		h.colleague.awaitResponse("200")
		h.awaitCallsEnd(h.caller)
	})
	t.Run("too long, after a REFER that was refused", func(t *testing.T) {
		t.Parallel()
		h := beginTransfer(t, map[string]any{"transfer": "", "maxSeconds": 15}).answerCall()
		h.gateway.awaitLog("call bridged")
		if n := strings.Count(h.gateway.logs.String(), "conversation started"); n != 1 {
			t.Errorf("%d conversations", n)
		}
		h.caller.respond(h.caller.awaitRequest("BYE.*time limit"), "200 OK", "a")
		h.awaitCallsEnd(h.colleague)
	})
}

// After a refused REFER we do not call the target ourselves if the operator has not allowed the number, or the other side has declined.
func TestRefusedReferNotBridged(t *testing.T) {
	t.Parallel()
	for target, test := range map[string]struct{ answer, why string }{
		"+49999": {"405 Method Not Allowed", "may not be called"}, "+49302": {"603 Decline", "603"},
	} {
		colleague, o := startCarrier(t, map[string]any{"transferTo": []string{"+49*"}}, map[string]any{"to": []string{"+4930*"}})
		caller := startCall(t, o)
		result := o.server.Transfer(target)
		caller.respond(caller.awaitRequest("REFER"), test.answer, "1")
		if err := <-result; err == nil || !strings.Contains(err.Error(), test.why) {
			t.Errorf("%s: %v", target, err)
		}
		_ = colleague.signals.SetReadDeadline(time.Now().Add(100 * time.Millisecond))
		if n, _, err := colleague.signals.ReadFrom(make([]byte, 2000)); err == nil {
			t.Errorf("%s is called: %d bytes", target, n)
		}
	}
}

// An agent that keeps listening hears both people, and its tools work. They do not hear it, and continue when its conversation ends.
func TestAgentListensToBridge(t *testing.T) {
	t.Parallel()
	hear := func(h *transferTest) {
		h.t.Helper()
		for from, to := range map[*handset]*handset{h.caller: h.colleague, h.colleague: h.caller} {
			stop := from.sendPackets(0, 8000, func(int) []byte { return loudPacket })
			to.awaitPacket(func(p *rtp.Packet) bool { return media.RMS(g711.MuLaw.AppendDecoded(nil, p.Payload)) > 2000 })
			stop()
		}
	}
	ends := func(h *transferTest) {
		h.caller.sendRequest("BYE", 2, "")
		h.caller.awaitResponse("200")
		h.awaitCallsEnd(h.colleague)
	}
	for name, goes := range map[string]func(h *transferTest){
		"hears both": func(h *transferTest) {
			for from, to := range map[*handset]*handset{h.caller: h.colleague, h.colleague: h.caller} {
				for from.awaitVoice(time.Now().Add(10 * time.Millisecond)) { // what came before
				}
				words := mediatest.SynthesizeSpeech(1500*time.Millisecond, 8000)
				stop := from.sendPackets(0, 8000, func(i int) []byte {
					frame := make([]int16, 160)
					copy(frame, words[min(160*i, len(words)):])
					return g711.MuLaw.AppendEncoded(nil, frame)
				})
				to.awaitPacket(func(p *rtp.Packet) bool { return media.RMS(g711.MuLaw.AppendDecoded(nil, p.Payload)) > 500 })
				awaitEvent(h.t, h.events, func(e bridge.UserText) bool { return strings.HasPrefix(e.Text, "(") })
				if from.awaitVoice(time.Now().Add(time.Second)) {
					h.t.Error("the agent answers")
				}
				stop()
			}
			ends(h)
		},
		"its tools": func(h *transferTest) {
			for _, tool := range []string{`transfer_call {"target":"+49303","about":"x"}`, `send_dtmf {"digits":"1"}`} {
				h.gateway.sendText("/tool " + tool)
				end := awaitEvent(h.t, h.events, func(e bridge.ToolStatus) bool { return e.Status == bridge.StatusFailed })
				if !strings.Contains(string(end.Result), "you only listen") {
					h.t.Errorf("%s: %s", tool, end.Result)
				}
			}
			h.gateway.sendText("/tool end_call {}")
			h.gateway.awaitLogTimes("conversation ended", 2)
			hear(h)
			ends(h)
		},
		"its time is over": func(h *transferTest) {
			if err := h.gateway.awaitSession().Do(bridge.Goodbye{}); err != nil {
				h.t.Fatal(err)
			}
			h.gateway.awaitLogTimes("conversation ended", 2)
			hear(h)
			ends(h)
		},
		"the colleague leaves": func(h *transferTest) {
			h.colleague.sendInDialog(h.invite, "a", "BYE", 2, "", "")
			h.colleague.awaitResponse("200")
			h.awaitCallsEnd(h.caller)
		},
		"the gateway stops": func(h *transferTest) {
			ctx, cancel := context.WithTimeout(h.t.Context(), patience)
			defer cancel()
			if err := h.gateway.host.Shutdown(ctx); err != nil {
				h.t.Error(err)
			}
			h.awaitCallsEnd(h.caller, h.colleague)
		},
		"nobody takes its place": func(h *transferTest) {
			_, tag, _ := strings.Cut(h.caller.remoteParty, "tag=")
			headers := fmt.Sprintf(usualHeaders, "other") + "Replaces: ah;to-tag=" + tag + ";from-tag=1\r\n"
			h.caller.send(inviteText(h.caller.signals.LocalAddr().String(), headers, body))
			h.caller.awaitResponse("603")
			b := startBackend(h.t, h.gateway)
			status, text := b.sendRequest(b.key, "POST", "/v1/calls",
				fmt.Sprintf(`{"to":"+49303","trunk":"lab","supervise":%q}`, h.gateway.awaitSession().ID()))
			if status != 400 || !strings.Contains(text, "no call of a trunk") {
				h.t.Errorf("supervised: %d %s", status, text)
			}
			ends(h)
		},
		"their keys": func(h *transferTest) {
			h.colleague.sendInDialog(h.invite, "a", "INFO", 2, "application/dtmf", "5")
			h.caller.awaitPacket(func(p *rtp.Packet) bool { return p.PayloadType == 101 && p.Payload[0] == 5 })
			ends(h)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			goes(beginTransfer(t, map[string]any{"listen": true}).acceptTransfer())
		})
	}
}

// loudPacket is 20 ms of a 400 Hz tone.
var loudPacket = g711.MuLaw.AppendEncoded(nil, mediatest.Tone(media.FrameDuration, 8000, 400, 8000))

// Keys reach the other side of a bridge, by every method of sending them.
func TestKeysThroughBridge(t *testing.T) {
	t.Parallel()
	h := beginTransfer(t, nil, "96 101").acceptTransfer()
	h.colleague.sendInDialog(h.invite, "a", "INFO", 2, "application/dtmf", "5")
	h.caller.awaitPacket(func(p *rtp.Packet) bool { return p.PayloadType == 101 && p.Payload[0] == 5 })
	stop := h.caller.sendPackets(101, 0, func(int) []byte { return []byte{7, 10, 0, 160} })
	h.colleague.awaitPacket(func(p *rtp.Packet) bool { return p.PayloadType == 101 && p.Payload[0] == 7 })
	stop()
}

// A change on one side of a bridge does not disturb the other: one side holds, resumes with another codec, and both hear each other.
func TestBridgeHoldAndCodecChange(t *testing.T) {
	t.Parallel()
	h := beginTransfer(t, nil).acceptTransfer()
	stop := h.caller.sendPackets(0, 8000, numberedPayload)
	defer stop()
	h.colleague.awaitPacket(isNumbered)
	change := func(sequence int, sdp string) {
		h.colleague.sendInDialog(h.invite, "a", "INVITE", sequence, "application/sdp", sdp)
		h.colleague.awaitResponse("200")
		h.colleague.sendInDialog(h.invite, "a", "ACK", sequence, "", "")
	}
	change(2, h.colleague.sdp+"a=sendonly\r\n")
	for h.colleague.awaitVoice(time.Now().Add(100 * time.Millisecond)) {
	}
	change(3, h.colleague.audioSDP("8"))
	h.colleague.awaitPacket(func(p *rtp.Packet) bool { return p.PayloadType == 8 })
	back := h.colleague.sendPackets(8, 8000, func(int) []byte {
		return g711.ALaw.AppendEncoded(nil, mediatest.Tone(media.FrameDuration, 8000, 400, 8000))
	})
	defer back()
	h.caller.awaitPacket(func(p *rtp.Packet) bool {
		return p.PayloadType == 0 && media.RMS(g711.MuLaw.AppendDecoded(nil, p.Payload)) > 4000
	})
}

// A pause that one side announces is also announced to the other side, which would otherwise report packet loss.
func TestComfortNoiseThroughBridge(t *testing.T) {
	t.Parallel()
	h := beginTransfer(t, nil, "0 13", "0 13").acceptTransfer()
	defer h.caller.sendPackets(13, 8000, func(int) []byte { return []byte{70} })()
	h.colleague.awaitPacket(func(p *rtp.Packet) bool { return p.PayloadType == 13 && p.Payload[0] == 70 })
}

// mostAdded is the maximum delay that a bridge may add.
const mostAdded = 60 * time.Millisecond

// The voice passes a bridge unchanged and in time, for all pairs of codecs.
func TestBridgeTranscoding(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		formats [2]string
		codecs  [2]media.Codec
		numbers [2]uint8
	}{
		"PCMU":      {[2]string{"0", "0"}, [2]media.Codec{g711.MuLaw, g711.MuLaw}, [2]uint8{0, 0}},
		"PCMU-PCMA": {[2]string{"0", "8"}, [2]media.Codec{g711.MuLaw, g711.ALaw}, [2]uint8{0, 8}},
		"Opus-PCMU": {[2]string{"96", "0"}, [2]media.Codec{opus.Codec{}, g711.MuLaw}, [2]uint8{96, 0}},
		"PCMA-Opus": {[2]string{"8", "96"}, [2]media.Codec{g711.ALaw, opus.Codec{}}, [2]uint8{8, 96}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := beginTransfer(t, nil, test.formats[:]...).acceptTransfer()
			machine := mediatest.MeasureLateness(t)
			encoder, err := test.codecs[0].NewEncoder(8000)
			if err != nil {
				t.Fatal(err)
			}
			decoder, err := test.codecs[1].NewDecoder(8000)
			if err != nil {
				t.Fatal(err)
			}
			const begins = 25                                             // packets of silence before the tone
			tone := mediatest.Tone(media.FrameDuration, 8000, 400, 12000) // whole periods: it can be repeated without a step
			spoke := make(chan time.Time, 1)
			stop := h.caller.sendPackets(test.numbers[0], test.codecs[0].ClockRate(), func(i int) []byte {
				frame := make([]int16, 160)
				if i >= begins {
					copy(frame, tone)
				}
				if i == begins {
					spoke <- time.Now()
				}
				buf := make([]byte, media.MaxPacketBytes)
				n, err := encoder.Encode(frame, buf)
				if err != nil {
					t.Error(err)
				}
				return buf[:n]
			})
			defer stop()
			var heard []int16
			pcm := make([]int16, media.Samples(media.MaxPacketDuration, 8000))
			next := func() []int16 {
				p := h.colleague.awaitPacket(func(p *rtp.Packet) bool { return p.PayloadType == test.numbers[1] })
				n, err := decoder.Decode(p.Payload, pcm)
				if err != nil {
					t.Fatal(err)
				}
				return pcm[:n]
			}
			for media.RMS(next()) > 100 { // what the colleague was told
			}
			for media.RMS(next()) < 4000 { // half of the tone's
			}
			late := time.Since(<-spoke)
			for range 50 {
				heard = append(heard, next()...)
			}
			if level := mediatest.ToneLevel(heard[len(heard)-4000:], 8000, 400); level < 0.9 && machine.CanJudge(t, mostAdded) {
				t.Errorf("the tone is %.3f of what was heard", level)
			}
			t.Logf("the tone came %v after it was sent", late)
			if late > mostAdded && machine.CanJudge(t, mostAdded) {
				t.Errorf("the bridge adds %v", late)
			}
		})
	}
}

// If the conversation is recorded, the bridge after the agent has left is also recorded: the caller in the left
// channel, the colleague in the right one.
func TestBridgeRecording(t *testing.T) {
	t.Parallel()
	h := beginTransfer(t, map[string]any{"record": true}).acceptTransfer()
	machine := mediatest.MeasureLateness(t)
	tone := func(hz float64) func(int) []byte {
		return func(int) []byte {
			return g711.MuLaw.AppendEncoded(nil, mediatest.Tone(media.FrameDuration, 8000, hz, 8000))
		}
	}
	stop, back := h.caller.sendPackets(0, 8000, tone(400)), h.colleague.sendPackets(0, 8000, tone(600))
	for _, one := range []*handset{h.caller, h.colleague} {
		for range 100 {
			one.awaitPacket(func(p *rtp.Packet) bool { return true })
		}
	}
	stop()
	back()
	h.caller.sendRequest("BYE", 2, "")
	h.caller.awaitResponse("200")
	h.awaitCallsEnd(h.colleague)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := h.gateway.host.Shutdown(ctx); err != nil { // the end of a recording is written by then
		t.Fatal(err)
	}
	files, err := filepath.Glob(filepath.Join(h.gateway.recordings, "*-bridged.ogg"))
	if err != nil || len(files) != 1 {
		t.Fatalf("recorded %q, %v", files, err)
	}
	raw, err := exec.CommandContext(ctx, "opusdec", "--quiet", "--rate", "8000", files[0], "-").Output() // Debian's opus-tools
	if err != nil {
		t.Fatal(err)
	}
	both := media.AppendSamples(nil, raw)
	for channel, hz := range []float64{400, 600} {
		var pcm []int16
		for i := channel; i < len(both); i += 2 {
			pcm = append(pcm, both[i])
		}
		loud, own := 0, 0 // blocks of 20 ms: a busy machine lets the voice stutter
		for block := range slices.Chunk(pcm, 160) {
			if media.RMS(block) > 4000 { // of the tone's 5,700
				loud++
				if mediatest.ToneLevel(block, 8000, hz) > 0.9 {
					own++
				}
			}
		}
		if (loud < 50 || own < loud*9/10) && machine.CanJudge(t, soundLate) {
			t.Errorf("of %d samples in channel %d %d blocks are loud, and %d have %v Hz", len(pcm), channel, loud, own, hz)
		}
	}
}

// With two real phones: the colleague accepts by a key, and hears the caller's keys.
func TestWarmTransferByBaresip(t *testing.T) {
	t.Parallel()
	desk := newBaresip(t, "audio_codecs=PCMA/8000/1;answermode=auto")
	o := gatewayWithPhone(t, desk, map[string]any{"transfer": "warm", "transferTo": []string{"alice"}})
	p := newBaresip(t, "audio_codecs=opus/48000/2;mediaenc=srtp-mand")
	p.runCommand("dial", o.sipURI(0))
	p.awaitEvent("CALL_ESTABLISHED")
	o.sendText(`/tool transfer_call {"target":"alice","about":"A broken boiler."}`)
	desk.awaitEvent("CALL_ESTABLISHED")
	o.awaitLogTimes("msg=sound door", 3) // the caller's, twice, and the colleague's
	desk.runCommand("sndcode", "1")
	o.awaitLog("call bridged")
	p.runCommand("sndcode", "7")
	if e := desk.awaitEvent("CALL_DTMF_START"); e.Param != "7" {
		t.Errorf("the colleague hears the key %q", e.Param)
	}
	p.runCommand("hold", "")
	p.runCommand("resume", "")
	p.runCommand("sndcode", "9")
	for desk.awaitEvent("CALL_DTMF_START").Param != "9" {
	}
	desk.runCommand("hangup", "")
	p.awaitEvent("CALL_CLOSED")
	o.awaitLogTimes("call ended", 2)
}
