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

// What a request can make the emulator produce is bounded: it answers anybody on a gateway that has no key.
const (
	maxDimensions = 3072 // https://ai.google.dev/gemini-api/docs/embeddings#controlling-embedding-size
	maxBatch      = 100  // https://ai.google.dev/gemini-api/docs/embeddings#batch-embeddings
	maxDepth      = 64   // levels of a schema; Google refuses "deeply nested" ones without a number
	maxAnswer     = 8192 // tokens of an answer
	maxPieces     = 256  // of a streamed answer
)

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
	OutputDimensionality int            `json:"outputDimensionality"`
	Requests             []embedRequest `json:"requests"`
}

type embedRequest struct {
	Content              content `json:"content"`
	OutputDimensionality int     `json:"outputDimensionality"`
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
	case "generateContent", "streamGenerateContent":
		parts, finish, refused := q.answer()
		switch {
		case refused != nil:
			refused.write(w)
		case method == "generateContent":
			writeJSON(w, http.StatusOK, newChunk(model, parts, finish, q.usage(parts)))
		default:
			q.stream(w, model, parts, finish, r.URL.Query().Get("alt") == "sse")
		}
	case "countTokens":
		writeJSON(w, http.StatusOK, live.Object{"totalTokens": q.tokens()})
	case "embedContent":
		list, refused := embeddings([]embedRequest{{q.Contents[0], q.OutputDimensionality}})
		if refused != nil {
			refused.write(w)
			return
		}
		writeJSON(w, http.StatusOK, live.Object{"embedding": list[0]})
	case "batchEmbedContents":
		list, refused := embeddings(q.Requests)
		if refused != nil {
			refused.write(w)
			return
		}
		writeJSON(w, http.StatusOK, live.Object{"embeddings": list})
	default:
		notFound("models/" + model + " has no method " + method + ".").write(w)
	}
}

func invalid(format string, args ...any) *apiError {
	return &apiError{http.StatusBadRequest, "INVALID_ARGUMENT", fmt.Sprintf(format, args...)}
}

// answer is what the model says, in parts, and why it stops there. The last content decides.
func (q *generateRequest) answer() (parts []live.Object, finish string, refused *apiError) {
	last := q.Contents[len(q.Contents)-1]
	if !slices.Contains([]string{"", "user", "function"}, last.Role) {
		return nil, "", invalid("Please ensure that the last turn is of the role user.") // Google wants a turn to answer
	}
	if q.GenerationConfig.ThinkingConfig.IncludeThoughts {
		parts = append(parts, live.Object{"text": "I shall answer what was said last.", "thought": true})
	}
	part, refused := q.reply(last)
	if refused != nil {
		return nil, "", refused
	}
	finish = "STOP"
	if text, ok := part["text"].(string); ok && len(text) > maxAnswer*perToken {
		part["text"], finish = strings.ToValidUTF8(text[:maxAnswer*perToken], ""), "MAX_TOKENS"
	}
	return append(parts, part), finish, nil
}

// reply answers a content with one part.
func (q *generateRequest) reply(to content) (live.Object, *apiError) {
	for _, p := range to.Parts {
		if f := p.FunctionResponse; f != nil {
			return live.Object{"text": "The tool " + f.Name + " says: " + string(f.Response)}, nil
		}
	}
	text := strings.TrimSpace(to.text())
	line := strings.TrimSpace(text[strings.LastIndexByte(text, '\n')+1:]) // clients put much before what a person has typed
	word, rest, _ := strings.Cut(line, " ")
	switch {
	case word == "/tool":
		name, args, _ := strings.Cut(rest, " ")
		return q.call(name, cmp.Or(strings.TrimSpace(args), "{}")), nil
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
		json, ok := fitting(schema)
		if !ok {
			return nil, invalid("The response schema is too deeply nested: at most %d levels.", maxDepth)
		}
		return live.Object{"text": json}, nil
	case strings.Contains(strings.ToLower(text), "html"):
		return live.Object{"text": smallApp}, nil
	}
	return live.Object{"text": "You said: " + text}, nil
}

// call is a function call, if the function is declared. Gemini 3 signs its thoughts and wants the signature back:
// https://ai.google.dev/gemini-api/docs/thought-signatures.
func (q *generateRequest) call(name, args string) live.Object {
	for _, t := range q.Tools {
		for _, f := range t.FunctionDeclarations {
			if f.Name == name && json.Valid([]byte(args)) {
				return live.Object{
					"functionCall":     live.Object{"id": newCallID(), "name": name, "args": json.RawMessage(args)},
					"thoughtSignature": "ZW11bGF0ZWQ=",
				}
			}
		}
	}
	return live.Object{"text": "No tool is named " + name + "."}
}

const smallApp = "```html\n<!doctype html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n<title>A counter</title>\n" +
	"<button id=\"b\">0</button>\n<script>\nconst b = document.getElementById('b');\nb.onclick = () => b.textContent = Number(b.textContent) + 1;\n</script>\n</html>\n```"

// fitting returns a small JSON text that fits a schema, unless that is nested too deeply.
func fitting(raw json.RawMessage) (string, bool) {
	var s schema
	_ = json.Unmarshal(raw, &s) // what is of another type is left out, as if it were not there
	value, ok := s.instance(maxDepth)
	if !ok {
		return "", false
	}
	text, err := json.Marshal(value)
	if err != nil {
		return "{}", true // what instance makes can be written
	}
	return string(text), true
}

// schema is what of a JSON Schema the emulator looks at.
type schema struct {
	Type       any               `json:"type"`
	Enum       []any             `json:"enum"`
	Properties map[string]schema `json:"properties"`
	Items      *schema           `json:"items"`
	AnyOf      []schema          `json:"anyOf"`
	Minimum    *float64          `json:"minimum"`
}

// instance returns a value that fits, false for a schema of more levels.
func (s *schema) instance(levels int) (any, bool) {
	switch {
	case levels == 0:
		return nil, false
	case len(s.Enum) > 0:
		return s.Enum[0], true
	case len(s.AnyOf) > 0:
		return s.AnyOf[0].instance(levels - 1)
	}
	kind := s.Type
	if list, ok := kind.([]any); ok && len(list) > 0 {
		kind = list[0]
	}
	name, _ := kind.(string)
	switch strings.ToLower(name) {
	case "string":
		return "a string", true
	case "integer", "number":
		if s.Minimum != nil {
			return math.Ceil(*s.Minimum), true
		}
		return 1, true
	case "boolean":
		return true, true
	case "array":
		if s.Items == nil {
			return []any{}, true
		}
		item, ok := s.Items.instance(levels - 1)
		return []any{item}, ok
	case "null":
		return nil, true
	}
	object := map[string]any{}
	for name, property := range s.Properties {
		value, ok := property.instance(levels - 1)
		if !ok {
			return nil, false
		}
		object[name] = value
	}
	return object, true
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

// usage is what a request and its answer cost.
func (q *generateRequest) usage(parts []live.Object) live.Object {
	prompt, answer := q.tokens(), tokensOf(parts)
	return live.Object{"promptTokenCount": prompt, "candidatesTokenCount": answer, "totalTokenCount": prompt + answer}
}

// newChunk is a GenerateContentResponse; finish "" for one that is not the last. Google leaves index out where it is 0, and the
// ratings where there are none.
func newChunk(model string, parts []live.Object, finish string, usage live.Object) live.Object {
	candidate := live.Object{"content": live.Object{"parts": parts, "role": "model"}}
	if finish != "" {
		candidate["finishReason"] = finish
	}
	return live.Object{
		"candidates": []live.Object{candidate}, "usageMetadata": usage, "modelVersion": model, "responseId": newCallID(),
	}
}

// stream writes the answer in pieces: each part of its own, text by some words.
func (q *generateRequest) stream(w http.ResponseWriter, model string, parts []live.Object, finish string, sse bool) {
	var pieces [][]live.Object
	for _, p := range parts {
		text, ok := p["text"].(string)
		if !ok || p["thought"] != nil {
			pieces = append(pieces, []live.Object{p})
			continue
		}
		words := strings.SplitAfter(text, " ")
		for piece := range slices.Chunk(words, max(3, len(words)/maxPieces+1)) {
			pieces = append(pieces, []live.Object{{"text": strings.Join(piece, "")}})
		}
	}
	head, between, tail, kind := "[", ",\r\n", "]", "application/json; charset=UTF-8"
	if sse {
		head, between, tail, kind = "", "", "", "text/event-stream"
	}
	w.Header().Set("Content-Type", kind)
	flush := http.NewResponseController(w).Flush
	_, _ = io.WriteString(w, head)
	usage := q.usage(parts)
	for i, piece := range pieces {
		end := ""
		if i == len(pieces)-1 {
			end = finish
		}
		var line bytes.Buffer
		_ = json.Compact(&line, live.Encode(newChunk(model, piece, end, usage))) // what was encoded can be
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

// embeddings answers a batch.
func embeddings(requests []embedRequest) ([]live.Object, *apiError) {
	if len(requests) > maxBatch {
		return nil, invalid("* BatchEmbedContentsRequest.requests: at most %d requests can be in one batch\n", maxBatch)
	}
	list := []live.Object{}
	for _, one := range requests {
		dimensions := cmp.Or(one.OutputDimensionality, 768)
		if dimensions < 1 || dimensions > maxDimensions {
			return nil, invalid("* EmbedContentRequest.outputDimensionality: must be between 1 and %d\n", maxDimensions)
		}
		list = append(list, embedding(one.Content.text(), dimensions))
	}
	return list, nil
}

// embedding is a direction that depends on the words alone, so that texts of the same words are near each other.
func embedding(text string, dimensions int) live.Object {
	values := make([]float64, dimensions)
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
