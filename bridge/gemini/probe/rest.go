package probe

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"strings"

	"google.golang.org/genai"

	"voxgate/bridge/gemini/wire"
	"voxgate/tools"
)

// Names of the models that are probed with REST calls.
const (
	writer   = "gemini-3.8-flash"
	embedder = "gemini-embedding-001"
)

// restModels returns the models that are probed with REST calls on a server. On Vertex AI the model for embeddings is
// omitted, because its API is different there.
func restModels(isVertex bool) []string {
	if isVertex {
		return []string{writer}
	}
	return []string{writer, embedder}
}

// restProbes returns the probes of the calls that the gateway's REST endpoint forwards (docs/rest.md), or nil for a
// model that is not in restModels.
func restProbes(model string) (list []probe) {
	plum := genai.Text("plum")
	plumConfig := &genai.GenerateContentConfig{SystemInstruction: genai.Text(instruction)[0]}
	switch model {
	case writer:
		list = []probe{
			{name: "generateContent", maxVoice: 1, assumed: []string{"answers", "says plum", "counts tokens"}, rest: func(r *run) {
				var answer *genai.GenerateContentResponse
				if r.callSDK(func(ctx context.Context, m *genai.Models) (err error) {
					answer, err = m.GenerateContent(ctx, model, plum, plumConfig)
					return err
				}) {
					r.addFact("answers")
					r.addReplyFacts(answer)
				}
			}},
			{name: "streamGenerateContent", maxVoice: 1, assumed: []string{"streams", "says plum", "counts tokens"}, rest: func(r *run) {
				var pieces []*genai.GenerateContentResponse
				if r.callSDK(func(ctx context.Context, m *genai.Models) error {
					for piece, err := range m.GenerateContentStream(ctx, model, plum, plumConfig) {
						if err != nil {
							return err
						}
						pieces = append(pieces, piece)
					}
					return nil
				}) && len(pieces) > 0 {
					r.addFact("streams")
					r.addReplyFacts(pieces...)
				}
			}},
			{name: "generateContent without contents", assumed: []string{"refused with HTTP 400"}, rest: func(r *run) {
				if r.callSDK(func(ctx context.Context, m *genai.Models) error {
					_, err := m.GenerateContent(ctx, model, []*genai.Content{}, nil)
					return err
				}) {
					r.addFact("answers")
				}
			}},
			{name: "countTokens", assumed: []string{"counts tokens"}, rest: func(r *run) {
				r.callSDK(func(ctx context.Context, m *genai.Models) error {
					counted, err := m.CountTokens(ctx, model, plum, nil)
					if err == nil && counted.TotalTokens > 0 {
						r.addFact("counts tokens")
					}
					return err
				})
			}},
		}
	case embedder:
		list = []probe{{name: "embedContent", assumed: []string{"768 numbers"}, rest: func(r *run) {
			r.callSDK(func(ctx context.Context, m *genai.Models) error {
				made, err := m.EmbedContent(ctx, model, plum, &genai.EmbedContentConfig{OutputDimensionality: genai.Ptr[int32](768)})
				if err == nil && len(made.Embeddings) == 1 {
					r.addFact("%d numbers", len(made.Embeddings[0].Values))
				}
				return err
			})
		}}}
	}
	for i := range list {
		list[i].model = model
	}
	return list
}

// callSDK runs a call of Google's SDK, and stores its messages. If the call fails, it adds a fact and returns false.
func (r *run) callSDK(f func(context.Context, *genai.Models) error) (ok bool) {
	transport := traceTransport{tools.NewTransport(), &r.trace}
	defer transport.CloseIdleConnections()
	sdk, err := r.client.SDK(transport, maxAnswer)
	if err != nil {
		r.addFact("not asked")
		r.addNote("%v", err)
		return false
	}
	ctx, cancel := context.WithTimeout(r.ctx, slowTimeout)
	defer cancel()
	err = f(ctx, sdk.Models)
	refused, isRefused := errors.AsType[*wire.HandshakeError](err)
	switch {
	case err == nil:
		return true
	case isRefused:
		r.addFact("refused with HTTP %d", refused.Status)
		r.recordKeyProblem((&wire.HandshakeError{Status: refused.Status}).Cause())
		r.addNote("%s", refused.Body)
	default:
		r.addFact("no answer")
		r.addNote("%v", err)
	}
	return false
}

// maxAnswer limits a response, in bytes.
const maxAnswer = 1 << 20

// traceTransport stores the bodies of requests and responses in the trace of a probe.
type traceTransport struct {
	*http.Transport
	trace *trace
}

// RoundTrip implements [http.RoundTripper].
func (t traceTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	sent, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	t.trace.add(true, sent)
	r = r.Clone(r.Context())
	r.Body = io.NopCloser(bytes.NewReader(sent))
	res, err := t.Transport.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	answer, err := io.ReadAll(io.LimitReader(res.Body, maxAnswer))
	_ = res.Body.Close()
	t.trace.add(false, answer)
	res.Body = io.NopCloser(bytes.NewReader(answer))
	return res, err
}

// addReplyFacts adds the facts about a response, which may consist of several chunks.
func (r *run) addReplyFacts(pieces ...*genai.GenerateContentResponse) {
	var reply wire.Reply
	var replyText string
	for _, piece := range pieces {
		text, err := reply.AddText(mustEncodeJSON(piece))
		if err != nil {
			r.addNote("%v", err)
		}
		replyText += text
	}
	if strings.Contains(strings.ToLower(replyText), "plum") {
		r.addFact("says plum")
	} else {
		r.addNote("it wrote: %.200s", replyText)
	}
	if reply.Tokens.Total > 0 {
		r.addFact("counts tokens")
		r.addCost(reply.Tokens)
	}
}
