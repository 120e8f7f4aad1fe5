package emulator

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"io"
	"math"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"voxgate/bridge/gemini/emulator/live"
)

// methodPath matches the calls of models: https://ai.google.dev/api/generate-content and https://ai.google.dev/api/embeddings.
var methodPath = regexp.MustCompile(`/(?:v1|v1beta|v1alpha|v1beta1)/(?:(?:projects/[^/]+/locations/[^/]+/)?publishers/google/)?models/([^/:]+):(\w+)$`)

// listPath matches the list of models: https://ai.google.dev/api/models#method:-models.list.
var listPath = regexp.MustCompile(`/(?:v1|v1beta|v1alpha)/models/?$`)

// models are those that are listed. Others that begin with gemini- are served, too.
var models = []string{"gemini-3.8-live", "gemini-3.8-flash", "gemini-3.5-flash-lite", "gemini-embedding-001"}

// maxRequest bounds a request: https://ai.google.dev/gemini-api/docs/file-input-methods (20 MB inline).
const maxRequest = 20 << 20

// generateRequest is what of a request the emulator looks at.
type generateRequest struct {
	Contents []content `json:"contents"`
	Content  *content  `json:"content"` // to be embedded
	Tools    []struct {
		FunctionDeclarations []struct{ Name string } `json:"functionDeclarations"`
	} `json:"tools"`
	GenerationConfig struct {
		ResponseMIMEType   string          `json:"responseMimeType"`
		ResponseSchema     json.RawMessage `json:"responseSchema"`
		ResponseJSONSchema json.RawMessage `json:"responseJsonSchema"`
		ThinkingConfig     struct {
			IncludeThoughts bool `json:"includeThoughts"`
		} `json:"thinkingConfig"`
	} `json:"generationConfig"`
	OutputDimensionality int `json:"outputDimensionality"`
	Requests             []struct {
		Content              content `json:"content"`
		OutputDimensionality int     `json:"outputDimensionality"`
	} `json:"requests"`
}

type content struct {
	Role  string `json:"role"`
	Parts []struct {
		Text             string `json:"text"`
		FunctionResponse *struct {
			Name     string          `json:"name"`
			Response json.RawMessage `json:"response"`
		} `json:"functionResponse"`
	} `json:"parts"`
}

// text is all that was typed in it.
func (c content) text() string {
	var texts []string
	for _, p := range c.Parts {
		if p.Text != "" {
			texts = append(texts, p.Text)
		}
	}
	return strings.Join(texts, "\n")
}

// generate answers a call of a model.
func generate(w http.ResponseWriter, r *http.Request, model, method string) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxRequest))
	if err != nil {
		invalid("Request payload size exceeds the limit: %d bytes.", maxRequest).write(w)
		return
	}
	var q generateRequest
	if err := json.Unmarshal(body, &q); err != nil {
		invalid("Invalid JSON payload received. %v", err).write(w)
		return
	}
	if q.Content != nil {
		q.Contents = append(q.Contents, *q.Content)
	}
	if len(q.Contents) == 0 && method != "batchEmbedContents" {
		invalid("* GenerateContentRequest.contents: contents is not specified\n").write(w)
		return
	}
	switch method {
	case "generateContent":
		parts, refused := q.answer()
		if refused != nil {
			refused.write(w)
			return
		}
		writeJSON(w, http.StatusOK, q.chunk(model, parts, "STOP", tokensOf(parts)))
	case "streamGenerateContent":
		parts, refused := q.answer()
		if refused != nil {
			refused.write(w)
			return
		}
		q.stream(w, model, parts, r.URL.Query().Get("alt") == "sse")
	case "countTokens":
		writeJSON(w, http.StatusOK, live.Object{"totalTokens": q.tokens()})
	case "embedContent":
		writeJSON(w, http.StatusOK, live.Object{"embedding": embedding(q.Contents[0].text(), q.OutputDimensionality)})
	case "batchEmbedContents":
		list := []live.Object{}
		for _, one := range q.Requests {
			list = append(list, embedding(one.Content.text(), one.OutputDimensionality))
		}
		writeJSON(w, http.StatusOK, live.Object{"embeddings": list})
	default:
		notFound("models/" + model + " has no method " + method + ".").write(w)
	}
}

func invalid(format string, args ...any) *apiError {
	return &apiError{http.StatusBadRequest, "INVALID_ARGUMENT", fmt.Sprintf(format, args...)}
}

// answer is what the model says: parts. The last content decides.
func (q *generateRequest) answer() (parts []live.Object, refused *apiError) {
	last := q.Contents[len(q.Contents)-1]
	if !slices.Contains([]string{"", "user", "function"}, last.Role) {
		return nil, invalid("Please ensure that the last turn is of the role user.") // Google wants a turn to answer
	}
	if q.GenerationConfig.ThinkingConfig.IncludeThoughts {
		parts = append(parts, live.Object{"text": "I shall answer what was said last.", "thought": true})
	}
	for _, p := range last.Parts {
		if f := p.FunctionResponse; f != nil {
			return append(parts, live.Object{"text": "The tool " + f.Name + " says: " + string(f.Response)}), nil
		}
	}
	text := strings.TrimSpace(last.text())
	lines := strings.Split(text, "\n")
	word, rest, _ := strings.Cut(strings.TrimSpace(lines[len(lines)-1]), " ") // clients put much before what a person has typed
	switch {
	case word == "/tool":
		name, args, _ := strings.Cut(rest, " ")
		return q.call(parts, name, cmp.Or(strings.TrimSpace(args), "{}"))
	case word == "/status":
		code, _ := strconv.Atoi(rest)
		if e := refusals[code]; e != nil {
			return nil, e
		}
		return nil, invalid("There is no such status: %s.", rest)
	case q.GenerationConfig.ResponseMIMEType == "application/json":
		schema := q.GenerationConfig.ResponseJSONSchema
		if schema == nil {
			schema = q.GenerationConfig.ResponseSchema
		}
		return append(parts, live.Object{"text": fitting(schema)}), nil
	case strings.Contains(strings.ToLower(text), "html"):
		return append(parts, live.Object{"text": smallApp}), nil
	}
	return append(parts, live.Object{"text": "You said: " + text}), nil
}

// call is a function call, if the function is declared. Gemini 3 signs its thoughts and wants the signature back:
// https://ai.google.dev/gemini-api/docs/thought-signatures.
func (q *generateRequest) call(parts []live.Object, name, args string) ([]live.Object, *apiError) {
	for _, t := range q.Tools {
		for _, f := range t.FunctionDeclarations {
			if f.Name == name && json.Valid([]byte(args)) {
				return append(parts, live.Object{
					"functionCall":     live.Object{"id": newCallID(), "name": name, "args": json.RawMessage(args)},
					"thoughtSignature": "ZW11bGF0ZWQ=",
				}), nil
			}
		}
	}
	return append(parts, live.Object{"text": "No tool is named " + name + "."}), nil
}

const smallApp = "```html\n<!doctype html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n<title>A counter</title>\n" +
	"<button id=\"b\">0</button>\n<script>\nconst b = document.getElementById('b');\nb.onclick = () => b.textContent = Number(b.textContent) + 1;\n</script>\n</html>\n```"

// fitting is a small JSON text that fits a schema.
func fitting(schema json.RawMessage) string {
	text, err := json.Marshal(instance(schema))
	if err != nil {
		return "{}" // what instance makes can be written
	}
	return string(text)
}

func instance(schema json.RawMessage) any {
	var s struct {
		Type       any                        `json:"type"`
		Enum       []any                      `json:"enum"`
		Properties map[string]json.RawMessage `json:"properties"`
		Items      json.RawMessage            `json:"items"`
		AnyOf      []json.RawMessage          `json:"anyOf"`
		Minimum    *float64                   `json:"minimum"`
		MinItems   any                        `json:"minItems"`
	}
	if json.Unmarshal(schema, &s) != nil {
		return map[string]any{}
	}
	if len(s.Enum) > 0 {
		return s.Enum[0]
	}
	if len(s.AnyOf) > 0 {
		return instance(s.AnyOf[0])
	}
	if list, ok := s.Type.([]any); ok && len(list) > 0 {
		s.Type = list[0]
	}
	switch strings.ToLower(fmt.Sprint(s.Type)) {
	case "string":
		return "a string"
	case "integer", "number":
		if s.Minimum != nil {
			return math.Ceil(*s.Minimum)
		}
		return 1
	case "boolean":
		return true
	case "array":
		if s.Items == nil {
			return []any{}
		}
		return []any{instance(s.Items)}
	case "null":
		return nil
	}
	object := map[string]any{}
	for name, property := range s.Properties {
		object[name] = instance(property)
	}
	return object
}

// perToken is how many bytes a token has, about: https://ai.google.dev/gemini-api/docs/tokens.
const perToken = 4

func (q *generateRequest) tokens() int {
	n := 0
	for _, c := range q.Contents {
		n += len(c.text())
	}
	return 1 + n/perToken
}

func tokensOf(parts []live.Object) int {
	n := 0
	for _, p := range parts {
		n += len(live.Encode(p))
	}
	return 1 + n/perToken
}

// chunk is a GenerateContentResponse; finish "" for one that is not the last. Google leaves index out where it is 0, and the
// ratings where there are none.
func (q *generateRequest) chunk(model string, parts []live.Object, finish string, tokens int) live.Object {
	candidate := live.Object{"content": live.Object{"parts": parts, "role": "model"}}
	if finish != "" {
		candidate["finishReason"] = finish
	}
	prompt := q.tokens()
	return live.Object{
		"candidates":    []live.Object{candidate},
		"usageMetadata": live.Object{"promptTokenCount": prompt, "candidatesTokenCount": tokens, "totalTokenCount": prompt + tokens},
		"modelVersion":  model, "responseId": newCallID(),
	}
}

// stream writes the answer in pieces: each part of its own, text by some words.
func (q *generateRequest) stream(w http.ResponseWriter, model string, parts []live.Object, sse bool) {
	var pieces [][]live.Object
	for _, p := range parts {
		text, ok := p["text"].(string)
		if !ok || p["thought"] != nil {
			pieces = append(pieces, []live.Object{p})
			continue
		}
		for words := strings.SplitAfter(text, " "); len(words) > 0; words = words[min(3, len(words)):] {
			pieces = append(pieces, []live.Object{{"text": strings.Join(words[:min(3, len(words))], "")}})
		}
	}
	head, between, tail, kind := "[", ",\r\n", "]", "application/json; charset=UTF-8"
	if sse {
		head, between, tail, kind = "", "", "", "text/event-stream"
	}
	w.Header().Set("Content-Type", kind)
	flush := http.NewResponseController(w).Flush
	_, _ = io.WriteString(w, head)
	for i, piece := range pieces {
		finish := ""
		if i == len(pieces)-1 {
			finish = "STOP"
		}
		var line bytes.Buffer
		_ = json.Compact(&line, live.Encode(q.chunk(model, piece, finish, tokensOf(parts)))) // what was encoded can be
		switch {
		case sse:
			fmt.Fprintf(w, "data: %s\r\n\r\n", &line)
		case i > 0:
			fmt.Fprintf(w, "%s%s", between, &line)
		default:
			_, _ = line.WriteTo(w)
		}
		_ = flush()
	}
	_, _ = io.WriteString(w, tail)
}

// embedding is a direction that depends on the words alone, so that texts of the same words are near each other.
func embedding(text string, dimensions int) live.Object {
	values := make([]float64, cmp.Or(dimensions, 768))
	norm := 0.0
	for _, word := range strings.Fields(strings.ToLower(text)) {
		h := fnv.New32a()
		h.Write([]byte(word))
		values[int(h.Sum32())%len(values)]++
	}
	for _, v := range values {
		norm += v * v
	}
	for i := range values {
		values[i] /= math.Sqrt(max(norm, 1))
	}
	return live.Object{"values": values}
}

// list is the list of models.
func list(w http.ResponseWriter) {
	all := []live.Object{}
	for _, m := range models {
		all = append(all, describe(m))
	}
	writeJSON(w, http.StatusOK, live.Object{"models": all})
}

func describe(model string) live.Object {
	methods := []string{"generateContent", "countTokens"}
	switch {
	case strings.Contains(model, "live"):
		methods = []string{"bidiGenerateContent"}
	case strings.Contains(model, "embedding"):
		methods = []string{"embedContent"}
	}
	return live.Object{
		"name": "models/" + model, "displayName": model, "version": "001",
		"inputTokenLimit": 131072, "outputTokenLimit": 65536, "supportedGenerationMethods": methods,
	}
}
