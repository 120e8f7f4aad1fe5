package rest

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"strings"

	"voxgate/bridge"
	"voxgate/bridge/gemini/wire"
	"voxgate/bridge/price"
	"voxgate/tools"
)

const (
	// bytesPerToken is the approximate size of a token of text (https://ai.google.dev/gemini-api/docs/tokens).
	bytesPerToken = 4
	// imageTokens is the cost of an image at the default resolution (https://ai.google.dev/gemini-api/docs/media-resolution).
	// mediaBytesPerToken is an estimate for other media: speech has 32 tokens/s, and MP3 at 64 kbit/s 8,000 bytes/s.
	imageTokens, mediaBytesPerToken = 1120, 250
	// maxOutput is the longest possible answer, in tokens, if the request sets no limit (https://ai.google.dev/gemini-api/docs/models).
	maxOutput = 65_536
	// maxAnswers limits the answers (candidates) of a request that the reservation counts (https://ai.google.dev/api/generate-content).
	maxAnswers = 8
)

// bill tracks the cost of a call.
type bill struct {
	settle   func(cost bridge.Cost) // records the cost with the account; nil if not counted
	price    price.ModelPrices
	question int         // size of the request in tokens, estimated from its length
	reported wire.Tokens // tokens reported by the backend so far
	said     int         // length of the answer so far, in bytes of text
	limit    int         // the agent's limit per call, in millionths of a dollar; 0 for no limit
}

// charge reserves the maximum cost of a call. most is the limit per call in dollars; 0 for no limit. It returns the request to send, whose
// output limit is lowered if the budget does not cover the maximum. An error is a [*bridge.Error]: a dollar limit applies and the model has
// no price, or the budget does not even cover the request ([bridge.ErrBudget]). The caller must pay the bill.
func charge(
	host *bridge.Host, account bridge.Account, most float64, model, method string, request []byte,
) (*bill, []byte, error) {
	tokens, dollars := account.HasLimits()
	dollars = dollars || most > 0
	m, ok := host.PriceOf(model)
	if dollars && !ok {
		return nil, nil, &bridge.Error{
			Code:    bridge.CodeForbidden,
			Message: fmt.Sprintf("The model %q has no price that this gateway knows, and what may be spent is limited.", tools.Truncate(model, 100)),
		}
	}
	b := &bill{price: m, limit: bridge.ToMicros(most), question: len(request) / bytesPerToken}
	if !tokens && !dollars {
		return b, request, nil
	}
	q := read(request)
	b.question = q.tokens(len(request))
	return b.reserve(account, request, generates(method), q.answers(), q.output())
}

// most returns the maximum cost of the request with output tokens of answer.
func (b *bill) most(output int) bridge.Cost {
	return bridge.Cost{Tokens: b.question + output, Micros: int(b.price.MaxCost(b.question, output)) + 1}
}

// reserve reserves the cost of the request and, if generates is set, of the given number of answers with at most output tokens each. If
// output is not positive, the model's maximum applies; at least one answer counts.
func (b *bill) reserve(account bridge.Account, request []byte, generates bool, answers, output int) (*bill, []byte, error) {
	answers = min(max(1, answers), maxAnswers)
	if output <= 0 || output > maxOutput {
		output = maxOutput
	}
	if !generates {
		answers, output = 1, 0
	}
	most := b.most(answers * output)
	got, settle, err := account.ReserveCost(most)
	if err != nil {
		return nil, nil, err
	}
	b.settle = settle
	if b.limit > 0 {
		got.Micros = min(got.Micros, b.limit)
	}
	if got == most {
		return b, request, nil
	}
	left := got.Tokens - b.question // lowered below if the dollars cover less
	if one := b.price.MaxCost(0, 1); one > 0 {
		left = min(left, int((float64(got.Micros)-b.price.MaxCost(b.question, 0))/one))
	}
	limit := left / answers
	if !generates || limit <= 0 {
		settle(bridge.Cost{})
		return nil, nil, &bridge.Error{
			Code: bridge.CodeBusy, Err: bridge.ErrBudget,
			Message: fmt.Sprintf("The request takes about %d tokens, and fewer are left of what may be spent.", b.question),
		}
	}
	request, err = changed(request, func(fields object) {
		put(inner(fields, "generationConfig"), "maxOutputTokens", limit)
	})
	if err != nil {
		settle(bridge.Cost{})
		return nil, nil, err
	}
	return b, request, nil
}

func generates(method string) bool {
	return method == "generateContent" || method == "streamGenerateContent"
}

// note records the text and the reported usage of a part of an answer. In a stream, each usage is a running total.
func (b *bill) note(answer object) {
	candidates, _ := answer["candidates"].([]any)
	for _, one := range candidates {
		candidate, _ := one.(object)
		content, _ := candidate["content"].(object)
		parts, _ := content["parts"].([]any)
		for _, p := range parts {
			part, _ := p.(object)
			text, _ := part["text"].(string)
			b.said += len(text)
		}
	}
	usage, _ := answer["usageMetadata"].(object)
	if t, err := wire.ParseTokens(tools.Encode(usage)); err == nil && t.Total >= b.reported.Total {
		b.reported = t
	}
}

// pay settles the bill and returns the cost of the tokens that the backend reported. Call it once. Without a report, it estimates tokens
// from the length of the request and of the text received until the client left or the stream broke off. ctx is that of the call;
// answered reports a complete answer.
func (b *bill) pay(ctx context.Context, answered bool) bridge.Cost {
	t := b.reported
	if t.Total == 0 && (answered && b.settle != nil || b.said > 0 || ctx.Err() != nil) {
		said := b.said / bytesPerToken
		t = wire.Tokens{Prompt: b.question, Response: said, Total: b.question + said}
	}
	cost := bridge.Cost{Tokens: t.Total, Micros: int(math.Ceil(b.price.Cost(t)))}
	if b.settle != nil {
		b.settle(cost)
	}
	return cost
}

// question holds the parts of a request that determine its cost. Google also accepts field names in snake_case.
type question struct {
	Content   sizedContent   `json:"content"`
	Contents  []sizedContent `json:"contents"`
	Requests  []question     `json:"requests"`
	Wrapped   *question      `json:"generateContentRequest"`
	Config    outputLimit    `json:"generationConfig"`
	OldConfig outputLimit    `json:"generation_config"`
}

type outputLimit struct {
	Most       int `json:"maxOutputTokens"`
	OldMost    int `json:"max_output_tokens"`
	Answers    int `json:"candidateCount"`
	OldAnswers int `json:"candidate_count"`
}

type sizedContent struct {
	Parts []struct {
		Media    *media `json:"inlineData"`
		OldMedia *media `json:"inline_data"`
	} `json:"parts"`
}

type media struct {
	MIMEType    string `json:"mimeType"`
	OldMIMEType string `json:"mime_type"`
	Data        size   `json:"data"`
}

// size is the length of a JSON value, whose content is discarded.
type size int

func (s *size) UnmarshalJSON(text []byte) error {
	*s = size(len(text))
	return nil
}

// read parses a request. Unreadable parts count as text; the backend reports what is wrong with them.
func read(request []byte) (q question) {
	_ = json.Unmarshal(request, &q)
	return q
}

// tokens estimates the tokens of a request of length bytes: everything except media counts as text.
func (q *question) tokens(length int) int {
	bytes, tokens := q.media()
	return tokens + max(0, length-bytes)/bytesPerToken
}

// media returns the number of bytes of the request that are media, and an estimate of their tokens.
func (q *question) media() (bytes, tokens int) {
	for _, c := range append(q.Contents, q.Content) {
		for _, p := range c.Parts {
			for _, m := range []*media{p.Media, p.OldMedia} {
				switch {
				case m == nil, strings.HasPrefix(m.MIMEType+m.OldMIMEType, "text/"):
				case strings.HasPrefix(m.MIMEType+m.OldMIMEType, "image/"):
					bytes, tokens = bytes+int(m.Data), tokens+imageTokens
				default:
					bytes, tokens = bytes+int(m.Data), tokens+int(m.Data)/mediaBytesPerToken
				}
			}
		}
	}
	inner := q.Requests
	if q.Wrapped != nil {
		inner = append(inner, *q.Wrapped)
	}
	for i := range inner {
		b, t := inner[i].media()
		bytes, tokens = bytes+b, tokens+t
	}
	return bytes, tokens
}

// answers returns the requested number of answers, and output the limit for the length of each.
func (q *question) answers() int { return max(q.Config.Answers, q.OldConfig.Answers) }

func (q *question) output() int {
	return max(q.Config.Most, q.Config.OldMost, q.OldConfig.Most, q.OldConfig.OldMost)
}
