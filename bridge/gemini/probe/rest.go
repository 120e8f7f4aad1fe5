package probe

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"strings"

	"voxgate/bridge/gemini/wire"
)

// Models for REST calls.
const (
	writer   = "gemini-3.8-flash"
	embedder = "gemini-embedding-001"
)

// restModels returns the models for REST calls on a server. On Vertex AI embeddings are another API.
func restModels(vertex bool) []string {
	if vertex {
		return []string{writer}
	}
	return []string{writer, embedder}
}

// restProbes returns the probes of the calls that the gateway's REST endpoint forwards (docs/rest.md), or nil for other models.
func restProbes(model string) (list []probe) {
	plum := object{"parts": []any{object{"text": "plum"}}}
	plumRequest := object{"contents": []any{plum}, "systemInstruction": object{"parts": []any{object{"text": instruction}}}}
	switch model {
	case writer:
		list = []probe{
			{name: "generateContent", maxVoice: 1, assumed: []string{"answers", "says plum", "counts tokens"}, rest: func(r *run) {
				if answer := r.call("generateContent", "", plumRequest); answer != nil {
					r.addFact("answers")
					r.addReplyFacts(answer)
				}
			}},
			{name: "streamGenerateContent", maxVoice: 1, assumed: []string{"streams", "says plum", "counts tokens"}, rest: probeStream(plumRequest)},
			{name: "generateContent without contents", assumed: []string{"refused with HTTP 400"}, rest: func(r *run) {
				if r.call("generateContent", "", object{"contents": []any{}}) != nil {
					r.addFact("answers")
				}
			}},
			{name: "countTokens", assumed: []string{"counts tokens"}, rest: func(r *run) {
				var counted struct{ TotalTokens int }
				if json.Unmarshal(r.call("countTokens", "", object{"contents": []any{plum}}), &counted) == nil && counted.TotalTokens > 0 {
					r.addFact("counts tokens")
				}
			}},
		}
	case embedder:
		list = []probe{{name: "embedContent", assumed: []string{"768 numbers"}, rest: func(r *run) {
			var made struct{ Embedding struct{ Values []float64 } }
			if json.Unmarshal(r.call("embedContent", "", object{"content": plum, "outputDimensionality": 768}), &made) == nil {
				r.addFact("%d numbers", len(made.Embedding.Values))
			}
		}}}
	}
	for i := range list {
		list[i].model = model
	}
	return list
}

// probeStream requests a response as server-sent events.
func probeStream(asked object) func(*run) {
	return func(r *run) {
		var pieces []json.RawMessage
		for line := range bytes.Lines(r.call("streamGenerateContent", "alt=sse", asked)) {
			if piece, ok := bytes.CutPrefix(line, []byte("data:")); ok {
				pieces = append(pieces, piece)
			}
		}
		if len(pieces) > 0 {
			r.addFact("streams")
			r.addReplyFacts(pieces...)
		}
	}
}

// call calls a method of the probe's model. If that is refused, it adds a fact and returns nil.
func (r *run) call(method, query string, body object) (answer []byte) {
	text := encode(body)
	r.trace.add(true, text)
	req, secret, err := r.client.Request(r.ctx, http.MethodPost, r.model, method, query, bytes.NewReader(text))
	if err != nil {
		r.addFact("not asked")
		r.addNote("%v", err)
		return nil
	}
	req.Header.Set("Content-Type", "application/json")
	client := &http.Client{
		Timeout: slowTimeout,
		// A redirect would carry the key to another host.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	res, err := client.Do(req)
	if err != nil {
		r.addFact("no answer")
		r.addNote("%s", secret.Hide(err.Error()))
		return nil
	}
	defer res.Body.Close()
	answer, _ = io.ReadAll(io.LimitReader(res.Body, 1<<20))
	r.trace.add(false, answer)
	if res.StatusCode == http.StatusOK {
		return answer
	}
	r.addFact("refused with HTTP %d", res.StatusCode)
	r.setUnavailable((&wire.HandshakeError{Status: res.StatusCode}).Cause())
	r.addNote("%s", secret.Hide(string(answer)))
	return nil
}

// addReplyFacts adds the facts of a response in one or more chunks.
func (r *run) addReplyFacts(pieces ...json.RawMessage) {
	var reply wire.Reply
	var said string
	for _, piece := range pieces {
		text, err := reply.AddText(piece)
		if err != nil {
			r.addNote("%v", err)
		}
		said += text
	}
	if strings.Contains(strings.ToLower(said), "plum") {
		r.addFact("says plum")
	} else {
		r.addNote("it wrote: %.200s", said)
	}
	if reply.Tokens.Total > 0 {
		r.addFact("counts tokens")
		r.addCost(reply.Tokens)
	}
}
