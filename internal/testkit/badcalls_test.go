package testkit_test

import (
	"crypto/rand"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/gorilla/websocket"

	"voxgate/bridge/gemini/emulator"
	"voxgate/internal/testkit"
	"voxgate/signaling/compat/whip/whiptest"
)

// emulatorForREST starts the emulator that is the backend of the REST API.
func emulatorForREST(t *testing.T) *httptest.Server {
	t.Helper()
	model := emulator.New(emulator.Options{Espeak: emulator.NoVoice})
	up := httptest.NewServer(model)
	t.Cleanup(func() { up.Close(); model.Close() })
	return up
}

// readableRefusal reports whether an answer is an error with a text, in the format of Google, OpenAI or Pipecat.
func readableRefusal(text string) bool {
	var answer struct {
		Error  struct{ Message string }
		Detail string
	}
	return json.Unmarshal([]byte(text), &answer) == nil && answer.Error.Message+answer.Detail != ""
}

// posts sends bad requests that begin calls, change calls, or are calls themselves: JSON, SDP and SDP fragments.
func (target *badInputTarget) posts(t *testing.T) {
	ask := func(method, url, kind, body string, headers ...string) (status int, answer string) {
		t.Helper()
		target.cases++
		headers = append(headers, "Content-Type", kind, "Authorization", "Bearer "+target.token)
		resp, text := testkit.SendHTTP(t, method, url, body, headers...)
		testkit.CheckNoGoWords(t, text)
		if resp.StatusCode >= http.StatusInternalServerError {
			t.Errorf("%s %s with %.100q: %s %.200s", method, url, body, resp.Status, text)
		}
		if call, err := resp.Location(); err == nil { // the call would wait 15 s for its peer
			testkit.SendHTTP(t, http.MethodDelete, call.String(), "", "Authorization", "Bearer "+target.token)
			testkit.SendHTTP(t, http.MethodPost, call.String()+"/hangup", "", "Authorization", "Bearer "+target.token) // as OpenAI's clients do
		}
		return resp.StatusCode, text
	}
	const jsonType, sdp = "application/json", "application/sdp"
	for path, good := range map[string]string{
		"/v1beta/models/gemini-3.8-flash:generateContent": `{"contents":[{"role":"user",` +
			`"parts":[{"text":"x"},{"inlineData":{"mimeType":"image/png","data":"AAAA"}}]}],` +
			`"systemInstruction":{"parts":[{"text":"x"}]},` +
			`"generationConfig":{"maxOutputTokens":5,"responseMimeType":"text/plain","responseModalities":["TEXT"]},` +
			`"tools":[{"functionDeclarations":[{"name":"f"}]}]}`,
		"/v1beta/models/gemini-embedding-001:batchEmbedContents": `{"requests":[{"content":{"parts":[{"text":"x"}]},"outputDimensionality":7}]}`,
		"/v1/realtime/client_secrets": `{"expires_after":{"anchor":"created_at","seconds":60},` +
			`"session":{"type":"realtime","model":"gpt-realtime","instructions":"x","tools":[{"type":"function","name":"f"}]}}`,
		"/v1alpha/auth_tokens": `{"uses":1,"expireTime":"2031-01-01T00:00:00Z",` +
			`"bidiGenerateContentSetup":{"setup":{"model":"models/gemini-3.8-live"}}}`,
		"/start":     `{"enableDefaultIceServers":true,"body":{"agent":"desk"}}`,
		"/api/offer": `{"sdp":"v=0","type":"offer","pc_id":null,"restart_pc":false,"requestData":{"agent":"desk"}}`,
	} {
		for _, bad := range testkit.SampleMalformed(3, good) {
			status, text := ask(http.MethodPost, target.HTTP+path, jsonType, bad)
			if status != http.StatusOK && !readableRefusal(text) {
				t.Errorf("%s with %.100q: %d %.200s", path, bad, status, text)
			}
		}
	}
	call := whiptest.DialAs(t, target.Gateway, "desk", target.token)
	call.AwaitConnected()
	offer := call.PC.LocalDescription().SDP
	for _, bad := range []string{
		"", "v=0", "\x00", offer[:len(offer)/2], strings.Repeat("m=audio 9 UDP/TLS/RTP/SAVPF 111\r\n", 500), strings.ToUpper(offer),
	} {
		for _, path := range []string{"/whip/desk", "/whep/desk?session=X", "/v1/realtime/calls"} {
			ask(http.MethodPost, target.HTTP+path, sdp, bad)
		}
		ask(http.MethodPatch, call.Session, sdp, bad)
		ask(http.MethodPatch, call.Session, "application/trickle-ice-sdpfrag", bad, "If-Match", call.Etag)
		ask(http.MethodPatch, call.Session, "application/trickle-ice-sdpfrag", "a=ice-ufrag:x\r\n"+bad, "If-Match", "*")
		ask(http.MethodPatch, target.HTTP+"/api/offer", jsonType, `{"pc_id":"x","candidates":[`+bad)
	}
	testkit.SendHTTP(t, http.MethodDelete, call.Session, "")
	call.HangUp()
	target.model.CloseClientConnections() // idle connections would count as a leak
}

// sideband sends bad messages as the operator's backend, during a conversation that must continue.
func (target *badInputTarget) sideband(t *testing.T) {
	c := testkit.DialWebSocket(t, target.URL)
	id, _ := testkit.EnterConversation(t, c, testkit.ConnectPayload(target.token, ""))
	events := strings.TrimSuffix(target.URL, "/") + "/v1/sessions/" + id + "/events"
	backend := testkit.DialWebSocketWith(t, events, http.Header{"Authorization": {"Bearer " + target.operator}})
	backend.AwaitEvent("SETUP_COMPLETE")
	for _, bad := range testkit.SampleMalformed(3, goodMessages...) {
		target.cases++
		backend.SendTextFrame(bad)
	}
	backend.SendFrame(websocket.BinaryMessage, []byte{0})
	backend.Send("THE_LAST_ONE", "")
	backend.AwaitMatch(0, "answer to the last", func(m testkit.Message) bool { return strings.Contains(string(m.Payload), "THE_LAST_ONE") })
	testkit.CheckNoUnknownError(t, backend)
	testkit.DropConnection(backend)
	leave(c)
}

// malformedSIP returns versions of a request with a line missing, repeated or with an odd value, and without its end.
func malformedSIP(request string) (all []string) {
	lines := strings.SplitAfter(request, "\r\n")
	for n, line := range lines {
		without := slices.Delete(slices.Clone(lines), n, n+1)
		name, _, _ := strings.Cut(line, " ")
		all = append(all, strings.Join(without, ""), strings.Join(slices.Insert(slices.Clone(lines), n, line), ""))
		for _, value := range []string{"", "-1", "\x00\xff", strings.Repeat("9", 900), "<sip:>;tag=;tag", `"`} {
			all = append(all, strings.Join(slices.Insert(slices.Clone(without), n, name+" "+value+"\r\n"), ""))
		}
	}
	for n := 0; n < len(request); n += 1 + len(request)/9 {
		all = append(all, request[:n])
	}
	return append(all, request+request, "\r\n\r\n", strings.Repeat("A", 9000))
}

// sipRequest returns a SIP request of the call with this ID.
func sipRequest(call, method string, cseq int) string {
	return fmt.Sprintf("%[1]s sip:desk@localhost SIP/2.0\r\nVia: SIP/2.0/UDP %[3]s.invalid;branch=z9hG4bK%[2]d%[1]s\r\nMax-Forwards: 70\r\n"+
		"From: <sip:ada@localhost>;tag=1\r\nTo: <sip:desk@localhost>\r\nCall-ID: %[3]s\r\nCSeq: %[2]d %[1]s\r\n"+
		"Contact: <sip:ada@a.invalid>\r\nContent-Type: application/sdp\r\nContent-Length: 0\r\n\r\n", method, cseq, call)
}

// sip sends bad SIP requests by UDP, from the address of a trunk and from an unknown address.
func (target *badInputTarget) sip(t *testing.T) {
	server := newTrunks(t, target.Gateway)
	lab, eve := newStranger(t, server, "127.0.0.5"), newStranger(t, server, "127.0.0.6")
	defer lab.Close()
	defer eve.Close()
	lab.n = 1000 // so that the CSeq of its own requests differs from those of the bad requests
	call := rand.Text()
	for i, method := range []string{"OPTIONS", "BYE", "CANCEL", "INFO", "REGISTER"} {
		for n, bad := range malformedSIP(sipRequest(call, method, i+1)) {
			if n%2 == 0 {
				target.cases++
				fmt.Fprint(lab, bad)
				fmt.Fprint(eve, strings.Replace(bad, method, "INVITE", 2))
			}
		}
		if answer := lab.ask("OPTIONS", "", "", testkit.Patience); !strings.HasPrefix(answer, "SIP/2.0 200") {
			t.Errorf("after bad %ss the trunk is answered %q", method, answer)
		}
	}
}
