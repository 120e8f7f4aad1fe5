package geminirest

import (
	"bytes"
	"crypto/rand"
	"encoding/json"
	"math"
	"strings"
)

// object is a JSON object. Its numbers are of type json.Number, so they keep all digits.
type object = map[string]any

func decodeObject(text []byte, target *object) error {
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.UseNumber()
	return dec.Decode(target)
}

// completeResponse adds the fields that clients rely on. It returns the finishReason of the answer, or "". If isLast is
// set, candidates without a finishReason get STOP. Otherwise every finishReason becomes null.
func completeResponse(answer object, isLast bool) (reason string) {
	candidates, _ := answer["candidates"].([]any)
	if len(candidates) == 0 {
		if isBlocked(answer) { // promptFeedback gives the reason; there are no candidates to complete
			completeUsage(answer)
			return ""
		}
		candidates = []any{object{}}
		answer["candidates"] = candidates
	}
	for i, one := range candidates {
		candidate, ok := one.(object)
		if !ok {
			continue
		}
		completeContent(candidate)
		setDefault(candidate, "index", i)
		setDefault(candidate, "safetyRatings", []any{})
		said, _ := candidate["finishReason"].(string)
		if said != "" {
			reason = said
		}
		switch {
		case isLast && said == "":
			candidate["finishReason"] = "STOP"
		case !isLast:
			candidate["finishReason"] = nil
		}
	}
	feedback, ok := answer["promptFeedback"].(object)
	if !ok {
		feedback = object{}
		answer["promptFeedback"] = feedback
	}
	setDefault(feedback, "safetyRatings", []any{})
	completeUsage(answer)
	return reason
}

// isBlocked reports whether the prompt was blocked. The answer to a blocked prompt has no candidates.
func isBlocked(answer object) bool {
	feedback, _ := answer["promptFeedback"].(object)
	return feedback["blockReason"] != nil
}

func completeContent(candidate object) {
	content, ok := candidate["content"].(object)
	if !ok {
		content = object{}
		candidate["content"] = content
	}
	content["role"] = "model"
	parts, ok := content["parts"].([]any)
	if !ok {
		parts = []any{}
		if text, flat := content["text"].(string); flat { // other servers often send the text without parts
			parts = append(parts, object{"text": text})
			delete(content, "text")
		}
		content["parts"] = parts
	}
	for _, p := range parts {
		part, _ := p.(object)
		call, ok := part["functionCall"].(object)
		if !ok {
			continue
		}
		if _, ok := call["args"].(object); !ok {
			call["args"] = object{}
		}
		if id, _ := call["id"].(string); id == "" {
			call["id"] = "call_" + strings.ToLower(rand.Text()[:16])
		}
	}
}

// completeUsage sets totalTokenCount to the sum of the other counts: https://ai.google.dev/api/generate-content#UsageMetadata.
func completeUsage(answer object) {
	usage, ok := answer["usageMetadata"].(object)
	if !ok {
		usage = object{}
		answer["usageMetadata"] = usage
	}
	setDefault(usage, "promptTokenCount", 0)
	setDefault(usage, "candidatesTokenCount", 0)
	usage["totalTokenCount"] = sumTokens(usage)
}

func sumTokens(usage object) (sum int) {
	for _, name := range []string{"promptTokenCount", "candidatesTokenCount", "toolUsePromptTokenCount", "thoughtsTokenCount"} {
		sum += toInt(usage[name])
	}
	return sum
}

func setDefault(o object, name string, value any) {
	if o[name] == nil {
		o[name] = value
	}
}

func toInt(v any) int {
	switch v := v.(type) {
	case json.Number:
		if n, err := v.Float64(); err == nil && math.Abs(n) <= math.MaxInt32 { // some servers send 7.0
			return int(n)
		}
	case string:
		if v != "" { // some servers send the string "7"
			return toInt(json.Number(v))
		}
	case int:
		return v
	}
	return 0
}
