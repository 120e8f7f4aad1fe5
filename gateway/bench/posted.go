package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"mime/multipart"
	"net/http"
	"os"
	"path/filepath"
	"sync"

	"github.com/pion/webrtc/v4"
)

// posted is a way to call by one HTTP request, which brings the offer.
type posted struct {
	who     string
	name    string // of the sessions with the model
	channel string // the label of a data channel; empty: there is none
	path    string
	body    func(offer, name string) (kind string, body []byte) // of the request
}

var (
	whip = &posted{who: "WHIP", name: "whip", path: "/whip/bench", body: func(offer, _ string) (string, []byte) {
		return "application/sdp", []byte(offer)
	}}
	realtime = &posted{who: "OpenAI's API", name: "realtime call", channel: "oai-events", path: "/v1/realtime/calls", body: func(offer, name string) (string, []byte) {
		session, _ := json.Marshal(map[string]string{"type": "realtime", "instructions": name})
		var form bytes.Buffer
		w := multipart.NewWriter(&form)
		w.WriteField("sdp", offer) // into memory: it does not fail
		w.WriteField("session", string(session))
		w.Close()
		return w.FormDataContentType(), form.Bytes()
	}}
)

// writeAgents makes the file of who answers WHIP. The caller removes its folder.
func writeAgents() (folder, file string, err error) {
	if folder, err = os.MkdirTemp("", "voxgate-bench"); err != nil {
		return "", "", err
	}
	file = filepath.Join(folder, "whip.json")
	return folder, file, os.WriteFile(file, fmt.Appendf(nil, `{"agents":{"bench":{"prompt":%q}}}`, whip.name), 0o600)
}

// post calls by one request, and waits until WebRTC is connected.
func (p *peer) post(ctx context.Context, url string) error {
	connected := make(chan struct{})
	p.watch(sync.OnceFunc(func() { close(connected) }))
	offer, err := p.offer(nil)
	if err != nil {
		return err
	}
	kind, body := p.by.body(offer, p.by.name)
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, url+p.by.path, bytes.NewReader(body))
	if err != nil {
		return err
	}
	r.Header.Set("Content-Type", kind)
	answer, err := scrapeClient.Do(r)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	sdp, err := io.ReadAll(answer.Body)
	if err != nil {
		return err
	}
	if answer.StatusCode != http.StatusCreated {
		return fmt.Errorf("%s: %s: %s", p.by.path, answer.Status, sdp)
	}
	if err := p.pc.SetRemoteDescription(webrtc.SessionDescription{Type: webrtc.SDPTypeAnswer, SDP: string(sdp)}); err != nil {
		return err
	}
	return p.await(ctx, connected)
}
