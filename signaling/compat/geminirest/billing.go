package geminirest

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"strings"

	"voxgate/bridge"
	"voxgate/bridge/gemini/wire"
	"voxgate/bridge/pricing"
	"voxgate/tools"
)

const (
	// bytesPerToken is the approximate size of a token of text (https://ai.google.dev/gemini-api/docs/tokens).
	bytesPerToken = 4
	// imageTokens is the cost of an image at the default resolution
	// (https://ai.google.dev/gemini-api/docs/media-resolution).
	imageTokens = 1120
	// mediaBytesPerToken is an estimate for audio and other media: MP3 at 64 kbit/s has 8,000 bytes a second, and
	// speech has 32 tokens a second.
	mediaBytesPerToken = 250
	// maxOutput is the assumed maximum length of an answer, in tokens, if the request sets no limit
	// (https://ai.google.dev/gemini-api/docs/models).
	maxOutput = 65_536
	// maxCandidates limits the number of answers (candidates) for which cost is reserved
	// (https://ai.google.dev/api/generate-content).
	maxCandidates = 8
)

// bill tracks the cost of a call.
type bill struct {
	settle         func(cost bridge.Cost) // records the cost with the account; nil if not counted
	price          pricing.ModelPrices
	requestTokens  int         // estimated size of the request in tokens
	reportedTokens wire.Tokens // tokens reported by the backend so far
	answerBytes    int         // length of the answer so far, in bytes of text
	maxMicros      int         // the agent's limit per call, in millionths of a dollar; 0 for no limit
}

// reserveCallCost reserves the maximum cost of a call. maxDollars is the limit per call; 0 means no limit. It returns
// the request to send, which has a lower output limit than the original if the budget is low. The caller must call
// settleCost on the bill.
//
// It returns a [*bridge.Error] if spending is limited in dollars but the model has no price. It returns
// [bridge.ErrBudget] if the budget does not cover the request.
func reserveCallCost(
	host *bridge.Host, account bridge.Account, maxDollars float64, model, method string, request []byte,
) (*bill, []byte, error) {
	tokens, dollars := account.HasLimits()
	dollars = dollars || maxDollars > 0
	m, ok := host.PriceOf(model)
	if dollars && !ok {
		return nil, nil, &bridge.Error{
			Code:    bridge.CodeForbidden,
			Message: fmt.Sprintf("The model %q has no price, but spending is limited in dollars.", tools.Truncate(model, 100)),
		}
	}
	b := &bill{price: m, maxMicros: bridge.ToMicros(maxDollars), requestTokens: len(request) / bytesPerToken}
	if !tokens && !dollars {
		return b, request, nil
	}
	q := parseRequestSize(request)
	b.requestTokens = q.estimateTokens(len(request))
	return b.reserveBudget(account, request, isGenerateMethod(method), q.candidateCount(), q.maxOutputTokens())
}

// maxCost returns the maximum cost of the request with an answer of outputTokens tokens.
func (b *bill) maxCost(outputTokens int) bridge.Cost {
	return bridge.Cost{Tokens: b.requestTokens + outputTokens, Micros: int(b.price.MaxCost(b.requestTokens, outputTokens)) + 1}
}

// reserveBudget reserves the maximum cost of the request. If isGenerate is set, the cost includes answerCount answers
// of at most outputTokens tokens each. If outputTokens is 0, maxOutput is used. It returns the request to send.
func (b *bill) reserveBudget(account bridge.Account, request []byte, isGenerate bool, answerCount, outputTokens int) (
	*bill, []byte, error,
) {
	answerCount = min(max(1, answerCount), maxCandidates)
	if outputTokens <= 0 || outputTokens > maxOutput {
		outputTokens = maxOutput
	}
	if !isGenerate {
		answerCount, outputTokens = 1, 0
	}
	most := b.maxCost(answerCount * outputTokens)
	got, settle, err := account.ReserveCost(most)
	if err != nil {
		return nil, nil, err
	}
	b.settle = settle
	if b.maxMicros > 0 {
		got.Micros = min(got.Micros, b.maxMicros)
	}
	if got == most {
		return b, request, nil
	}
	remaining := got.Tokens - b.requestTokens // lowered below if the dollars cover fewer tokens
	if one := b.price.MaxCost(0, 1); one > 0 {
		remaining = min(remaining, int((float64(got.Micros)-b.price.MaxCost(b.requestTokens, 0))/one))
	}
	limit := remaining / answerCount
	if !isGenerate || limit <= 0 {
		settle(bridge.Cost{})
		return nil, nil, &bridge.Error{
			Code: bridge.CodeBusy, Err: bridge.ErrBudget,
			Message: fmt.Sprintf("The request takes about %d tokens, and less is left of the budget.", b.requestTokens),
		}
	}
	request, err = editRequest(request, func(fields object) {
		setField(ensureSubobject(fields, "generationConfig"), "maxOutputTokens", limit)
	})
	if err != nil {
		settle(bridge.Cost{})
		return nil, nil, err
	}
	return b, request, nil
}

func isGenerateMethod(method string) bool {
	return method == "generateContent" || method == "streamGenerateContent"
}

// recordAnswer records the text and the reported usage of a part of an answer. In a stream, each reported usage is the
// total so far.
func (b *bill) recordAnswer(answer object) {
	candidates, _ := answer["candidates"].([]any)
	for _, one := range candidates {
		candidate, _ := one.(object)
		content, _ := candidate["content"].(object)
		parts, _ := content["parts"].([]any)
		for _, p := range parts {
			part, _ := p.(object)
			text, _ := part["text"].(string)
			b.answerBytes += len(text)
		}
	}
	usage, _ := answer["usageMetadata"].(object)
	if t, err := wire.ParseTokens(tools.EncodeOrEmpty(usage)); err == nil && t.Total >= b.reportedTokens.Total {
		b.reportedTokens = t
	}
}

// settleCost records the final cost of the call with the account, and returns it. ctx is the context of the call.
// isComplete means that the answer is complete. The caller must call settleCost exactly once.
func (b *bill) settleCost(ctx context.Context, isComplete bool) bridge.Cost {
	t := b.reportedTokens
	// If the backend has reported no tokens, they are estimated from the lengths of the request and of the received text.
	if t.Total == 0 && (isComplete && b.settle != nil || b.answerBytes > 0 || ctx.Err() != nil) {
		said := b.answerBytes / bytesPerToken
		t = wire.Tokens{Prompt: b.requestTokens, Response: said, Total: b.requestTokens + said}
	}
	cost := bridge.Cost{Tokens: t.Total, Micros: int(math.Ceil(b.price.Cost(t)))}
	if b.settle != nil {
		b.settle(cost)
	}
	return cost
}

// requestSize holds the parts of a request that determine its cost. Google also accepts field names in snake_case.
type requestSize struct {
	Content     sizedContent   `json:"content"`
	Contents    []sizedContent `json:"contents"`
	Requests    []requestSize  `json:"requests"`
	Wrapped     *requestSize   `json:"generateContentRequest"`
	Config      outputLimit    `json:"generationConfig"`
	SnakeConfig outputLimit    `json:"generation_config"`
}

type outputLimit struct {
	MaxTokens       int `json:"maxOutputTokens"`
	SnakeMaxTokens  int `json:"max_output_tokens"`
	Candidates      int `json:"candidateCount"`
	SnakeCandidates int `json:"candidate_count"`
}

type sizedContent struct {
	Parts []struct {
		Media    *mediaPart `json:"inlineData"`
		OldMedia *mediaPart `json:"inline_data"`
	} `json:"parts"`
}

type mediaPart struct {
	MIMEType      string     `json:"mimeType"`
	SnakeMIMEType string     `json:"mime_type"`
	Data          jsonLength `json:"data"`
}

// jsonLength is the length of a JSON value. The value itself is discarded.
type jsonLength int

func (j *jsonLength) UnmarshalJSON(text []byte) error {
	*j = jsonLength(len(text))
	return nil
}

// parseRequestSize parses a request. It counts unreadable parts as text, and leaves it to the backend to report them.
func parseRequestSize(request []byte) (q requestSize) {
	_ = json.Unmarshal(request, &q)
	return q
}

// estimateTokens estimates the number of tokens in a request of length bytes. All bytes except media count as text.
func (r *requestSize) estimateTokens(length int) int {
	bytes, tokens := r.estimateMedia()
	return tokens + max(0, length-bytes)/bytesPerToken
}

// estimateMedia returns how many bytes of the request are media, and an estimate of the tokens in the media.
func (r *requestSize) estimateMedia() (bytes, tokens int) {
	for _, c := range append(r.Contents, r.Content) {
		for _, p := range c.Parts {
			for _, m := range []*mediaPart{p.Media, p.OldMedia} {
				switch {
				case m == nil, strings.HasPrefix(m.MIMEType+m.SnakeMIMEType, "text/"):
				case strings.HasPrefix(m.MIMEType+m.SnakeMIMEType, "image/"):
					bytes, tokens = bytes+int(m.Data), tokens+imageTokens
				default:
					bytes, tokens = bytes+int(m.Data), tokens+int(m.Data)/mediaBytesPerToken
				}
			}
		}
	}
	nested := r.Requests
	if r.Wrapped != nil {
		nested = append(nested, *r.Wrapped)
	}
	for i := range nested {
		b, t := nested[i].estimateMedia()
		bytes, tokens = bytes+b, tokens+t
	}
	return bytes, tokens
}

// candidateCount returns the number of answers that the request asks for. maxOutputTokens returns the maximum length of
// each.
func (r *requestSize) candidateCount() int { return max(r.Config.Candidates, r.SnakeConfig.Candidates) }

func (r *requestSize) maxOutputTokens() int {
	return max(r.Config.MaxTokens, r.Config.SnakeMaxTokens, r.SnakeConfig.MaxTokens, r.SnakeConfig.SnakeMaxTokens)
}
