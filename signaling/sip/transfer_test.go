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
	"voxgate/media"
	"voxgate/media/g711"
	"voxgate/media/mediatest"
	"voxgate/media/opus"
)

// handover is a caller of an office, a colleague, and the call to the colleague.
type handover struct {
	t                 testing.TB
	office            *office
	caller, colleague *handset
	events            <-chan bridge.Event // of the caller's conversation
	invite            string              // to the colleague
}

// beginTransfer begins a transfer: the caller talks to the agent, and the colleague's phone rings. formats are the payload types of both.
// With "record" in trunk the conversation is recorded.
func beginTransfer(t testing.TB, trunk map[string]any, formats ...string) *handover {
	t.Helper()
	fields := map[string]any{"transfer": "warm", "transferTo": []string{"+49*"}}
	for name, value := range trunk {
		fields[name] = value
	}
	delete(fields, "record")
	h := &handover{t: t}
	formats = append(formats, "0 101", "0 101")
	h.colleague, h.office = newCarrier(t, fields, nil)
	h.colleague.listen(formats[1])
	h.caller = newHandset(t, h.office, formats[0])
	if trunk["record"] != nil {
		if err := h.office.session().Do(bridge.UpdateConfig{Config: []byte(`{"voxgate":{"record":true}}`)}); err != nil {
			t.Fatal(err)
		}
		h.office.logged("recording started")
	}
	h.events = h.office.watch()
	h.office.types(`/tool transfer_call {"target":"+49302","about":"Ada's boiler is broken."}`)
	if fields["transfer"] == "" {
		h.caller.reply(h.caller.request("REFER"), "405 Method Not Allowed", "1")
	}
	h.invite = h.colleague.request("INVITE sip:\\+49302@")
	h.colleague.hears(h.invite)
	return h
}

// answered makes the colleague answer.
func (h *handover) answered() *handover {
	h.t.Helper()
	h.colleague.reply(h.invite, "200 OK", "a")
	h.colleague.request("ACK")
	return h
}

// briefing waits for the conversation with the colleague, and returns it.
func (h *handover) briefing() *bridge.Session {
	h.t.Helper()
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); <-time.After(10 * time.Millisecond) {
		for _, s := range h.office.host.Sessions() {
			if s.Identity == "+49302" && s.State == bridge.StateLive {
				return h.office.host.Session(s.ID)
			}
		}
	}
	h.t.Fatal("nobody talks to the colleague")
	return nil
}

// told waits until the agent has told the colleague a text.
func (h *handover) told(text string) {
	h.t.Helper()
	heard := make(chan struct{}, 1)
	stop, err := h.briefing().Watch(func(e bridge.Event) {
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
		h.t.Fatal(err)
	}
	defer stop()
	select {
	case <-heard:
	case <-time.After(patience):
		h.t.Errorf("the colleague is not told %q", text)
	}
}

// accepted makes the colleague accept, and returns when both are connected.
func (h *handover) accepted() *handover {
	h.t.Helper()
	h.answered().briefing()
	h.colleague.within(h.invite, "a", "INFO", 1, "application/dtmf", "1")
	h.colleague.answer("200")
	h.office.logged("call bridged")
	return h
}

// failed waits until the model knows why the transfer failed, and checks that the caller is with the agent again.
func (h *handover) failed(why string) {
	h.t.Helper()
	end := see(h.t, h.events, func(e bridge.ToolStatus) bool { return e.Status != bridge.StatusRunning })
	if end.Status != bridge.StatusFailed || !strings.Contains(string(end.Result), why) {
		h.t.Errorf("%s: %s", end.Status, end.Result)
	}
	h.office.types("Are you there?") // the caller is back
	for h.caller.hear(time.Now().Add(time.Millisecond)) {
	}
	if !h.caller.hear(time.Now().Add(patience)) {
		h.t.Error("the caller hears nothing")
	}
	see(h.t, h.events, func(e bridge.AssistantText) bool { return strings.Contains(e.Text, "there") })
}

// over waits until both calls have ended. The handsets in ended, which have not hung up, get a BYE.
func (h *handover) over(ended ...*handset) {
	h.t.Helper()
	for _, one := range ended {
		one.reply(one.request("BYE"), "200 OK", "a")
	}
	h.office.loggedTimes("call ended", 2)
	if n := len(h.office.host.Sessions()); n > 0 {
		h.t.Errorf("%d conversations", n)
	}
}

// say sends packets of 20 ms until it is stopped.
func (h *handset) say(number uint8, clock int, payload func(i int) []byte) (stop func()) {
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
				_, _ = h.sound.WriteTo(raw, h.gateway)
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

// packet waits for a packet that matches.
func (h *handset) packet(want func(p *rtp.Packet) bool) rtp.Packet {
	h.t.Helper()
	buf := make([]byte, 1500)
	h.sound.SetReadDeadline(time.Now().Add(patience))
	for {
		n, _, err := h.sound.ReadFrom(buf)
		if err != nil {
			h.t.Fatalf("no such packet: %v", err)
		}
		var p rtp.Packet
		if p.Unmarshal(slices.Clone(buf[:n])) == nil && want(&p) {
			return p
		}
	}
}

// numbered returns the distinguishable payload number i.
func numbered(i int) []byte {
	return []byte(fmt.Sprintf("%-160d", i))
}

// number returns the number of a packet's payload, or 0.
func number(p *rtp.Packet) (i int) {
	if _, err := fmt.Sscanf(string(p.Payload), "%d ", &i); err != nil || string(p.Payload) != string(numbered(i)) {
		return 0
	}
	return i
}

func isNumbered(p *rtp.Packet) bool { return number(p) > 0 }

// A caller hears music while a colleague is told about them. When the colleague accepts, both hear each other in real time, and the agent
// has left.
func TestPuttingThrough(t *testing.T) {
	t.Parallel()
	for name, takes := range map[string]func(h *handover){
		"by word": func(h *handover) {
			if err := h.briefing().Do(bridge.Message{Text: "/tool accept {}", TurnComplete: true}); err != nil {
				h.t.Fatal(err)
			}
		},
		"by key": func(h *handover) {
			h.briefing()
			stop := h.colleague.say(101, 0, func(int) []byte { return []byte{1, 10, 0, 160} })
			defer stop()
			h.office.logged("call bridged")
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := beginTransfer(t, nil)
			if !h.caller.hear(time.Now().Add(patience)) {
				t.Error("there is no music")
			}
			h.answered()
			if !h.colleague.hear(time.Now().Add(patience)) {
				t.Error("the colleague is told nothing")
			}
			h.told("boiler")
			takes(h)
			h.office.logged("call bridged")
			for from, to := range map[*handset]*handset{h.caller: h.colleague, h.colleague: h.caller} {
				stop := from.say(0, 8000, numbered)
				before := to.packet(isNumbered)
				first := number(&before)
				for i := first + 1; i < first+25; i++ {
					p := to.packet(func(*rtp.Packet) bool { return true })
					if string(p.Payload) != string(numbered(i)) || p.SequenceNumber != before.SequenceNumber+1 ||
						p.Timestamp != before.Timestamp+160 || p.SSRC != before.SSRC {
						t.Fatalf("%v %q after %v", p.Header, p.Payload, before.Header)
					}
					before = p
				}
				stop()
			}
			h.caller.next("BYE", 2, "")
			h.caller.answer("200")
			h.over(h.colleague)
		})
	}
}

// If a colleague does not accept, the caller stays with the agent, which learns why.
func TestNotPutThrough(t *testing.T) {
	t.Parallel()
	refuses := func(status string) func(h *handover) {
		return func(h *handover) { h.colleague.reply(h.invite, status, "a") }
	}
	for name, test := range map[string]struct {
		goes func(h *handover)
		why  string
	}{
		"busy":       {refuses("486 Busy Here"), "busy: Busy Here"},
		"not there":  {refuses("480 Temporarily Unavailable"), "no-answer"},
		"trunk away": {refuses("503 Service Unavailable"), "failed: Service Unavailable"},
		"trunk away after 180": {func(h *handover) {
			h.colleague.reply(h.invite, "180 Ringing", "a")
			h.office.door.NoAnswer("+49302")
			h.colleague.request("CANCEL")
			h.t.Cleanup(func() { h.colleague.reply(h.invite, "487 Request Terminated", "a") })
		}, "nobody has answered"},
		"declined by word": {func(h *handover) {
			s := h.answered().briefing()
			if err := s.Do(bridge.Message{Text: `/tool decline {"reason":"in a meeting"}`, TurnComplete: true}); err != nil {
				h.t.Error(err)
			}
			h.colleague.reply(h.colleague.request("BYE"), "200 OK", "a")
		}, "in a meeting"},
		"declined by key": {func(h *handover) {
			h.answered().briefing()
			h.colleague.within(h.invite, "a", "INFO", 1, "application/dtmf", "2")
			h.colleague.reply(h.colleague.request("BYE"), "200 OK", "a")
		}, "pressed 2"},
		"silence": {func(h *handover) {
			h.answered().briefing()
			h.colleague.reply(h.colleague.request("BYE"), "200 OK", "a")
		}, "said nothing"},
		"hangs up while briefed": {func(h *handover) {
			h.answered()
			if !h.colleague.hear(time.Now().Add(patience)) {
				h.t.Error("the colleague is told nothing")
			}
			h.colleague.hangUp(h.invite, "a")
		}, "has hung up"},
		"hangs up at once": {func(h *handover) {
			h.answered()
			h.colleague.hangUp(h.invite, "a")
		}, "has hung up"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := beginTransfer(t, nil)
			test.goes(h)
			h.failed(test.why)
		})
	}
}

// If a caller hangs up, the call to the colleague ends too, at every stage.
func TestCallersWhoDoNotWait(t *testing.T) {
	t.Parallel()
	leaves := func(h *handover) {
		h.caller.next("BYE", 2, "")
		h.caller.answer("200")
	}
	for name, goes := range map[string]func(h *handover){
		"while it rings": func(h *handover) {
			h.colleague.reply(h.invite, "180 Ringing", "a")
			leaves(h)
			h.colleague.reply(h.colleague.request("CANCEL"), "200 OK", "a")
			h.colleague.reply(h.invite, "487 Request Terminated", "a")
			h.over()
		},
		"while the colleague is told": func(h *handover) {
			h.answered().briefing()
			leaves(h)
			h.over(h.colleague)
		},
		"as the colleague takes the call": func(h *handover) {
			h.answered().briefing()
			h.colleague.within(h.invite, "a", "INFO", 1, "application/dtmf", "1")
			leaves(h)
			h.over(h.colleague)
		},
		"both, while it is told": func(h *handover) {
			h.answered().briefing()
			h.caller.next("BYE", 2, "")
			h.colleague.hangUp(h.invite, "a")
			h.caller.answer("200")
			h.over()
		},
		"both, when they talk": func(h *handover) {
			h.accepted()
			h.caller.next("BYE", 2, "")
			h.colleague.within(h.invite, "a", "BYE", 2, "", "")
			h.caller.answer("200")
			h.colleague.answer("200")
			h.over()
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
		h := beginTransfer(t, nil).accepted()
		h.colleague.within(h.invite, "a", "BYE", 2, "", "")
		h.colleague.answer("200")
		h.over(h.caller)
	})
	t.Run("the gateway stops", func(t *testing.T) {
		t.Parallel()
		h := beginTransfer(t, nil).accepted()
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		if err := h.office.host.Shutdown(ctx); err != nil {
			t.Error(err)
		}
		h.over(h.caller, h.colleague)
	})
	t.Run("nobody replaces it", func(t *testing.T) {
		t.Parallel()
		h := beginTransfer(t, nil).accepted()
		_, tag, _ := strings.Cut(h.caller.party, "tag=")
		headers := fmt.Sprintf(usualHeaders, "other") + "Replaces: ah;to-tag=" + tag + ";from-tag=1\r\n"
		h.caller.send(invite(h.caller.signals.LocalAddr().String(), headers, body))
		h.caller.answer("603")
		h.colleague.within(h.invite, "a", "BYE", 2, "", "")
		h.colleague.answer("200")
		h.over(h.caller)
	})
	t.Run("too long, after a REFER that was refused", func(t *testing.T) {
		t.Parallel()
		h := beginTransfer(t, map[string]any{"transfer": "", "maxSeconds": 15}).answered()
		h.office.logged("call bridged")
		if n := strings.Count(h.office.logs.String(), "conversation started"); n != 1 {
			t.Errorf("%d conversations", n)
		}
		h.caller.reply(h.caller.request("BYE.*time limit"), "200 OK", "a")
		h.over(h.colleague)
	})
}

// After a refused REFER we do not call the target ourselves if the operator has not allowed the number, or the other side has declined.
func TestRefusedTransfersThatAreNotBridged(t *testing.T) {
	t.Parallel()
	for target, test := range map[string]struct{ answer, why string }{
		"+49999": {"405 Method Not Allowed", "may not be called"}, "+49302": {"603 Decline", "603"},
	} {
		colleague, o := newCarrier(t, map[string]any{"transferTo": []string{"+49*"}}, map[string]any{"to": []string{"+4930*"}})
		caller := newHandset(t, o)
		result := o.door.Transfer(target)
		caller.reply(caller.request("REFER"), test.answer, "1")
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
func TestListeningToABridge(t *testing.T) {
	t.Parallel()
	hear := func(h *handover) {
		h.t.Helper()
		for from, to := range map[*handset]*handset{h.caller: h.colleague, h.colleague: h.caller} {
			stop := from.say(0, 8000, func(int) []byte { return loudPacket })
			to.packet(func(p *rtp.Packet) bool { return media.RMS(g711.MuLaw.Append(nil, p.Payload)) > 2000 })
			stop()
		}
	}
	ends := func(h *handover) {
		h.caller.next("BYE", 2, "")
		h.caller.answer("200")
		h.over(h.colleague)
	}
	for name, goes := range map[string]func(h *handover){
		"hears both": func(h *handover) {
			for from, to := range map[*handset]*handset{h.caller: h.colleague, h.colleague: h.caller} {
				for from.hear(time.Now().Add(10 * time.Millisecond)) { // what came before
				}
				words := mediatest.Speech(1500*time.Millisecond, 8000)
				stop := from.say(0, 8000, func(i int) []byte {
					frame := make([]int16, 160)
					copy(frame, words[min(160*i, len(words)):])
					return g711.MuLaw.AppendBytes(nil, frame)
				})
				to.packet(func(p *rtp.Packet) bool { return media.RMS(g711.MuLaw.Append(nil, p.Payload)) > 500 })
				see(h.t, h.events, func(e bridge.UserText) bool { return strings.HasPrefix(e.Text, "(") })
				if from.hear(time.Now().Add(time.Second)) {
					h.t.Error("the agent answers")
				}
				stop()
			}
			ends(h)
		},
		"its tools": func(h *handover) {
			for _, tool := range []string{`transfer_call {"target":"+49303","about":"x"}`, `send_dtmf {"digits":"1"}`} {
				h.office.types("/tool " + tool)
				end := see(h.t, h.events, func(e bridge.ToolStatus) bool { return e.Status == bridge.StatusFailed })
				if !strings.Contains(string(end.Result), "you only listen") {
					h.t.Errorf("%s: %s", tool, end.Result)
				}
			}
			h.office.types("/tool end_call {}")
			h.office.loggedTimes("conversation ended", 2)
			hear(h)
			ends(h)
		},
		"its time is over": func(h *handover) {
			if err := h.office.session().Do(bridge.Goodbye{}); err != nil {
				h.t.Fatal(err)
			}
			h.office.loggedTimes("conversation ended", 2)
			hear(h)
			ends(h)
		},
		"the colleague leaves": func(h *handover) {
			h.colleague.within(h.invite, "a", "BYE", 2, "", "")
			h.colleague.answer("200")
			h.over(h.caller)
		},
		"the gateway stops": func(h *handover) {
			ctx, cancel := context.WithTimeout(h.t.Context(), patience)
			defer cancel()
			if err := h.office.host.Shutdown(ctx); err != nil {
				h.t.Error(err)
			}
			h.over(h.caller, h.colleague)
		},
		"nobody takes its place": func(h *handover) {
			_, tag, _ := strings.Cut(h.caller.party, "tag=")
			headers := fmt.Sprintf(usualHeaders, "other") + "Replaces: ah;to-tag=" + tag + ";from-tag=1\r\n"
			h.caller.send(invite(h.caller.signals.LocalAddr().String(), headers, body))
			h.caller.answer("603")
			b := newBackend(h.t, h.office)
			status, text := b.ask(b.key, "POST", "/v1/calls", fmt.Sprintf(`{"to":"+49303","trunk":"lab","supervise":%q}`, h.office.session().ID()))
			if status != 400 || !strings.Contains(text, "no call of a trunk") {
				h.t.Errorf("supervised: %d %s", status, text)
			}
			ends(h)
		},
		"their keys": func(h *handover) {
			h.colleague.within(h.invite, "a", "INFO", 2, "application/dtmf", "5")
			h.caller.packet(func(p *rtp.Packet) bool { return p.PayloadType == 101 && p.Payload[0] == 5 })
			ends(h)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			goes(beginTransfer(t, map[string]any{"listen": true}).accepted())
		})
	}
}

// loudPacket is 20 ms of a 400 Hz tone.
var loudPacket = g711.MuLaw.AppendBytes(nil, mediatest.Tone(media.FrameDuration, 8000, 400, 8000))

// Keys reach the other side of a bridge, by every method of sending them.
func TestKeysThroughABridge(t *testing.T) {
	t.Parallel()
	h := beginTransfer(t, nil, "96 101").accepted()
	h.colleague.within(h.invite, "a", "INFO", 2, "application/dtmf", "5")
	h.caller.packet(func(p *rtp.Packet) bool { return p.PayloadType == 101 && p.Payload[0] == 5 })
	stop := h.caller.say(101, 0, func(int) []byte { return []byte{7, 10, 0, 160} })
	h.colleague.packet(func(p *rtp.Packet) bool { return p.PayloadType == 101 && p.Payload[0] == 7 })
	stop()
}

// A change on one side of a bridge does not disturb the other: one side holds, resumes with another codec, and both hear each other.
func TestChangesOfABridge(t *testing.T) {
	t.Parallel()
	h := beginTransfer(t, nil).accepted()
	stop := h.caller.say(0, 8000, numbered)
	defer stop()
	h.colleague.packet(isNumbered)
	change := func(sequence int, sdp string) {
		h.colleague.within(h.invite, "a", "INVITE", sequence, "application/sdp", sdp)
		h.colleague.answer("200")
		h.colleague.within(h.invite, "a", "ACK", sequence, "", "")
	}
	change(2, h.colleague.described+"a=sendonly\r\n")
	for h.colleague.hear(time.Now().Add(100 * time.Millisecond)) {
	}
	change(3, h.colleague.describe("8"))
	h.colleague.packet(func(p *rtp.Packet) bool { return p.PayloadType == 8 })
	back := h.colleague.say(8, 8000, func(int) []byte {
		return g711.ALaw.AppendBytes(nil, mediatest.Tone(media.FrameDuration, 8000, 400, 8000))
	})
	defer back()
	h.caller.packet(func(p *rtp.Packet) bool {
		return p.PayloadType == 0 && media.RMS(g711.MuLaw.Append(nil, p.Payload)) > 4000
	})
}

// A pause that one side announces is announced to the other, too, which would otherwise report packet loss.
func TestComfortNoisePassesABridge(t *testing.T) {
	t.Parallel()
	h := beginTransfer(t, nil, "0 13", "0 13").accepted()
	defer h.caller.say(13, 8000, func(int) []byte { return []byte{70} })()
	h.colleague.packet(func(p *rtp.Packet) bool { return p.PayloadType == 13 && p.Payload[0] == 70 })
}

// mostAdded is the maximum delay that a bridge may add.
const mostAdded = 60 * time.Millisecond

// The voice passes a bridge unchanged and in time, for all pairs of codecs.
func TestBridgesOfTwoCodecs(t *testing.T) {
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
			h := beginTransfer(t, nil, test.formats[:]...).accepted()
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
			stop := h.caller.say(test.numbers[0], test.codecs[0].ClockRate(), func(i int) []byte {
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
				p := h.colleague.packet(func(p *rtp.Packet) bool { return p.PayloadType == test.numbers[1] })
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

// If the conversation is recorded, so is the bridge after the agent has left: the caller left, the colleague right.
func TestBridgesOfRecordedCalls(t *testing.T) {
	t.Parallel()
	h := beginTransfer(t, map[string]any{"record": true}).accepted()
	machine := mediatest.MeasureLateness(t)
	tone := func(hz float64) func(int) []byte {
		return func(int) []byte {
			return g711.MuLaw.AppendBytes(nil, mediatest.Tone(media.FrameDuration, 8000, hz, 8000))
		}
	}
	stop, back := h.caller.say(0, 8000, tone(400)), h.colleague.say(0, 8000, tone(600))
	for _, one := range []*handset{h.caller, h.colleague} {
		for range 100 {
			one.packet(func(p *rtp.Packet) bool { return true })
		}
	}
	stop()
	back()
	h.caller.next("BYE", 2, "")
	h.caller.answer("200")
	h.over(h.colleague)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := h.office.host.Shutdown(ctx); err != nil { // the end of a recording is written by then
		t.Fatal(err)
	}
	files, err := filepath.Glob(filepath.Join(h.office.recordings, "*-bridged.ogg"))
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
func TestPuttingTelephonesThrough(t *testing.T) {
	t.Parallel()
	desk := newBaresip(t, "audio_codecs=PCMA/8000/1;answermode=auto")
	o := calling(t, desk, map[string]any{"transfer": "warm", "transferTo": []string{"alice"}})
	p := newBaresip(t, "audio_codecs=opus/48000/2;mediaenc=srtp-mand")
	p.do("dial", o.uri(0))
	p.expect("CALL_ESTABLISHED")
	o.types(`/tool transfer_call {"target":"alice","about":"A broken boiler."}`)
	desk.expect("CALL_ESTABLISHED")
	o.loggedTimes("msg=sound door", 3) // the caller's, twice, and the colleague's
	desk.do("sndcode", "1")
	o.logged("call bridged")
	p.do("sndcode", "7")
	if e := desk.expect("CALL_DTMF_START"); e.Param != "7" {
		t.Errorf("the colleague hears the key %q", e.Param)
	}
	p.do("hold", "")
	p.do("resume", "")
	p.do("sndcode", "9")
	for desk.expect("CALL_DTMF_START").Param != "9" {
	}
	desk.do("hangup", "")
	p.expect("CALL_CLOSED")
	o.loggedTimes("call ended", 2)
}
