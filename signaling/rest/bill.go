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
	// bytesPerToken is about how much text a token is (https://ai.google.dev/gemini-api/docs/tokens).
	bytesPerToken = 4
	// imageTokens is what a picture costs at the default resolution (https://ai.google.dev/gemini-api/docs/media-resolution), and
	// mediaBytesPerToken about how much of other media is a token: speech has 32 a second, and MP3 of 64 kbit/s 8,000 bytes.
	imageTokens, mediaBytesPerToken = 1120, 250
	// maxOutput is the most that a model answers, in tokens, where the request has no limit (https://ai.google.dev/gemini-api/docs/models).
	maxOutput = 65_536
	// maxAnswers is how many answers a request may ask for.
	maxAnswers = 8
)

// bill is what a call costs whoever pays for it.
type bill struct {
	settle   func(cost bridge.Cost) // nil: it is not counted
	price    price.ModelPrices
	question int         // in tokens, by its length
	reported wire.Tokens // by the backend, for all so far
	said     int         // of the answer so far, in bytes of text
	limit    int         // of the agent for each call, in millionths of a dollar; 0: none
}

// newBill is the bill of a call of a model, which may cost so many dollars (0: as many as it takes), for nobody yet. Limited: there is
// somebody who may not spend as they like. It fails where they may spend so many dollars, and the model has no price.
func newBill(host *bridge.Host, account bridge.Account, most float64, model string) (b *bill, limited bool, err error) {
	tokens, dollars := account.HasLimits()
	dollars = dollars || most > 0
	m, ok := host.PriceOf(model)
	if dollars && !ok {
		return nil, false, &bridge.Error{
			Code:    bridge.CodeForbidden,
			Message: fmt.Sprintf("The model %q has no price that this gateway knows, and what may be spent is limited.", tools.Truncate(model, 100)),
		}
	}
	return &bill{price: m, limit: bridge.ToMicros(most)}, tokens || dollars, nil
}

// charge reserves what a call may cost at most, and returns the request as it goes up: where less is left, with a limit to the answer. An
// error is a [*bridge.Error], with [bridge.ErrBudget] beneath it where the request alone costs more. The bill must be paid.
func charge(
	host *bridge.Host, account bridge.Account, most float64, model, method string, request []byte,
) (*bill, []byte, error) {
	b, limited, err := newBill(host, account, most, model)
	if err != nil {
		return nil, nil, err
	}
	b.question = len(request) / bytesPerToken
	if !limited {
		return b, request, nil
	}
	q := read(request)
	b.question = q.tokens(len(request))
	return b.reserve(account, request, generates(method), q.answers(), q.output(), func(fields object, limit int) {
		put(inner(fields, "generationConfig"), "maxOutputTokens", limit)
	})
}

// most is what the question and an answer of so many tokens cost at most.
func (b *bill) most(output int) bridge.Cost {
	return bridge.Cost{Tokens: b.question + output, Micros: int(b.price.MaxCost(b.question, output)) + 1}
}

// reserve reserves the question, and so many answers of so many tokens if there are any: of an output that is not above 0 the most that a
// model answers, and of answers one. Shorten limits the answers in the request.
func (b *bill) reserve(account bridge.Account, request []byte, generates bool, answers, output int,
	shorten func(fields object, limit int),
) (*bill, []byte, error) {
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
	left := got.Tokens - b.question // what an answer of one token more costs is known
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
	request, err = changed(request, func(fields object) { shorten(fields, limit) })
	if err != nil {
		settle(bridge.Cost{})
		return nil, nil, err
	}
	return b, request, nil
}

func generates(method string) bool {
	return method == "generateContent" || method == "streamGenerateContent"
}

// note notes what a piece of an answer says and costs. A stream reports the tokens of all so far, so the newest count.
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

// pay settles the bill of a call with ctx, once, and returns its cost: the tokens that the backend has reported. If it has reported none,
// the length of the text counts, of the question and of the answer until the client left or the stream broke off. answered says that the
// answer is complete.
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

// question is the part of a request that says how much it costs. Google takes its fields in snake_case, too.
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

// size is the length of a value, which is not kept.
type size int

func (s *size) UnmarshalJSON(text []byte) error {
	*s = size(len(text))
	return nil
}

// read reads a request. What cannot be read there counts as text, and the backend will say what is wrong.
func read(request []byte) (q question) {
	_ = json.Unmarshal(request, &q)
	return q
}

// tokens is about how long a request of so many bytes is: all of it is text but for media.
func (q *question) tokens(length int) int {
	bytes, tokens := q.media()
	return tokens + max(0, length-bytes)/bytesPerToken
}

// media is how many bytes of the request are media, and how many tokens those are.
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

// answers is how many are asked for, and output how long each may be.
func (q *question) answers() int { return max(q.Config.Answers, q.OldConfig.Answers) }

func (q *question) output() int {
	return max(q.Config.Most, q.Config.OldMost, q.OldConfig.Most, q.OldConfig.OldMost)
}
