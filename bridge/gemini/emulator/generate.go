package emulator

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"voxgate/tools"

	"voxgate/bridge/gemini/emulator/live"
)

// This file implements the emulator's REST API, whose model is an echo: https://ai.google.dev/api/generate-content and
// https://ai.google.dev/api/embeddings.

// Limits of requests and responses. They are needed because anyone may use the emulator on a gateway without a key.
const (
	maxRequest = 20 << 20 // size in bytes: https://ai.google.dev/gemini-api/docs/file-input-methods (20 MB inline)
	maxValues  = 100_000  // values in a request's JSON: 20 MB can hold ten million, and each takes about 100 bytes when decoded
	maxAnswer  = 32 << 10 // text of an answer, in bytes
	maxBatch   = 100      // requests in a batch: https://ai.google.dev/gemini-api/docs/embeddings#batch-embeddings
)

// largeRequests limits how many requests above 1 MB are read at the same time, because each takes five times its length
// in memory. Further requests wait.
var largeRequests = make(chan struct{}, 2)

// request holds the fields of a request that the emulator uses.
type request struct {
	Contents []content
	Tools    []struct {
		FunctionDeclarations []struct{ Name string }
	}
	GenerationConfig struct {
		ResponseMIMEType   string
		ResponseSchema     json.RawMessage
		ResponseJSONSchema json.RawMessage
	}
	Content  *content   // content to embed
	Requests []struct{} // batch of contents to embed

	isGuide bool // the guide explains what it does not understand
}

type content struct {
	Role  string
	Parts []struct {
		Text             string
		FunctionResponse *struct {
			Name     string
			Response json.RawMessage
		}
	}
}

// handleModelMethod handles a request for a method of a model.
func (e *Emulator) handleModelMethod(w http.ResponseWriter, r *http.Request, model, method string) {
	q, asked, refused := readRequest(w, r)
	if refused != nil {
		refused.write(w)
		return
	}
	q.isGuide = e.guide
	var answer live.Object
	switch method {
	case "generateContent", "streamGenerateContent":
		var part live.Object
		if part, refused = q.buildAnswer(); refused != nil {
			break
		}
		if method == "streamGenerateContent" {
			streamAnswer(r.Context(), w, model, part, asked, r.URL.Query().Get("alt") == "sse")
			return
		}
		answer = buildResponseChunk(model, part, "STOP", asked)
	case "countTokens":
		answer = live.Object{"totalTokens": estimateTokens(asked)}
	case "embedContent":
		answer = live.Object{"embedding": embedding}
		if q.Content == nil {
			refused = newInvalidError("* EmbedContentRequest.content: contents is not specified\n")
		}
	case "batchEmbedContents":
		answer = live.Object{"embeddings": slices.Repeat([]live.Object{embedding}, min(len(q.Requests), maxBatch))}
		if len(q.Requests) > maxBatch {
			refused = newInvalidError("* BatchEmbedContentsRequest.requests: at most %d requests can be in one batch\n", maxBatch)
		}
	default:
		refused = newNotFoundError("models/" + model + " has no method " + method + ".")
	}
	if refused != nil {
		refused.write(w)
		return
	}
	writeJSON(w, http.StatusOK, answer)
}

// readRequest reads a request, and returns its length in bytes. A large request waits until others are done.
func readRequest(w http.ResponseWriter, r *http.Request) (q *request, length int, refused *apiError) {
	if r.ContentLength < 0 || r.ContentLength > 1<<20 {
		select {
		case largeRequests <- struct{}{}:
			defer func() { <-largeRequests }()
		case <-r.Context().Done():
			return nil, 0, refusals[http.StatusServiceUnavailable]
		}
	}
	room := max(0, min(r.ContentLength, maxRequest)) + bytes.MinRead
	body := bytes.NewBuffer(make([]byte, 0, room))
	if _, err := body.ReadFrom(http.MaxBytesReader(w, r.Body, maxRequest)); err != nil {
		return nil, 0, newInvalidError("Request payload size exceeds the limit: %d bytes.", maxRequest)
	}
	if live.CountValues(body.Bytes()) > maxValues {
		return nil, 0, newInvalidError("Invalid JSON payload received. There are at most %d values in a request.", maxValues)
	}
	q = new(request)
	tree, err := live.Decode(tools.TrimBOM(body.Bytes()))
	if err == nil {
		var named []byte
		if named, err = json.Marshal(live.ToCamelCase(tree)); err == nil {
			err = tools.ReadLenientJSON(named, q)
		}
	}
	if wrong := (*json.UnmarshalTypeError)(nil); errors.As(err, &wrong) { // err itself names types of this package
		return nil, 0, newInvalidError("Invalid value at '%s': it must not be a JSON %s", wrong.Field, wrong.Value)
	}
	if err != nil {
		return nil, 0, newInvalidError("Invalid JSON payload received. %v", tools.ExplainJSON(err, ""))
	}
	return q, body.Len(), nil
}

// embedding is the vector that the emulator returns for every text.
var embedding = live.Object{"values": append([]float64{1}, make([]float64, 767)...)}

// buildAnswer returns the model's answer, usually an echo of the last content. The last line of that content may be a
// command.
func (r *request) buildAnswer() (live.Object, *apiError) {
	if len(r.Contents) == 0 {
		return nil, newInvalidError("* GenerateContentRequest.contents: contents is not specified\n")
	}
	last := r.Contents[len(r.Contents)-1]
	if !slices.Contains([]string{"", "user", "function"}, last.Role) {
		return nil, newInvalidError("Please ensure that the last turn is of the role user.") // Google requires a user turn at the end
	}
	var texts []string
	for _, p := range last.Parts {
		if f := p.FunctionResponse; f != nil {
			if of := r.buildGuidedPart(""); of != nil {
				return of, nil
			}
			return textPart("The tool " + f.Name + " says: " + string(f.Response)), nil
		}
		texts = append(texts, p.Text)
	}
	text := strings.TrimSpace(strings.Join(texts, "\n"))
	word, rest, _ := strings.Cut(strings.TrimSpace(text[strings.LastIndexByte(text, '\n')+1:]), " ")
	switch {
	case word == "/tool":
		name, args, _ := strings.Cut(rest, " ")
		return r.buildCallPart(name, cmp.Or(strings.TrimSpace(args), "{}")), nil
	case word == "/status":
		code, _ := strconv.Atoi(rest)
		return nil, cmp.Or(refusals[code], newInvalidError("There is no such status: %s.", rest))
	case r.GenerationConfig.ResponseMIMEType == "application/json":
		schema := r.GenerationConfig.ResponseJSONSchema
		if len(schema) == 0 {
			schema = r.GenerationConfig.ResponseSchema
		}
		return textPart(buildSmallestValue(schema)), nil
	case strings.Contains(text, "<<<file index.html>>>") && !strings.Contains(text, "counter"):
		return textPart(writeDemoApp(text)), nil
	case strings.Contains(strings.ToLower(text), "html"):
		return textPart(smallApp), nil
	}
	if call := r.buildGuidedPart(text); call != nil {
		return call, nil
	}
	return textPart("You said: " + text), nil
}

func textPart(text string) live.Object {
	if len(text) > maxAnswer {
		text = strings.ToValidUTF8(text[:maxAnswer], "")
	}
	return live.Object{"text": text}
}

// buildCallPart returns the part of an answer that calls a function, or a text if the function is unknown. The part has
// a thought signature, which Gemini 3 requires in the next request:
// https://ai.google.dev/gemini-api/docs/thought-signatures.
func (r *request) buildCallPart(name, args string) live.Object {
	for _, t := range r.Tools {
		for _, f := range t.FunctionDeclarations {
			if f.Name == name && json.Valid([]byte(args)) {
				call := live.Object{"id": newCallID(), "name": name, "args": json.RawMessage(args)}
				return live.Object{"functionCall": call, "thoughtSignature": "ZW11bGF0ZWQ="}
			}
		}
	}
	return textPart("No tool is named " + name + ".")
}

const smallApp = "```html\n<!doctype html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n<title>A counter</title>\n" +
	"<button id=\"b\">0</button>\n<script>\nconst b = document.getElementById('b');\n" +
	"b.onclick = () => b.textContent = Number(b.textContent) + 1;\n</script>\n</html>\n```"

// estimateTokens estimates the number of tokens of a text from its size in bytes:
// https://ai.google.dev/gemini-api/docs/tokens.
func estimateTokens(bytes int) int { return 1 + bytes/4 }

// buildResponseChunk returns a GenerateContentResponse. finish is the finish reason; it is empty except in the last
// chunk. requestLength is in bytes. Like Google, buildResponseChunk omits an index of 0 and empty ratings.
func buildResponseChunk(model string, part live.Object, finish string, requestLength int) live.Object {
	candidate := live.Object{"content": live.Object{"parts": []live.Object{part}, "role": "model"}}
	if finish != "" {
		candidate["finishReason"] = finish
	}
	prompt, answer := estimateTokens(requestLength), estimateTokens(len(live.Encode(part)))
	return live.Object{
		"candidates": []live.Object{candidate}, "modelVersion": model, "responseId": newCallID(),
		"usageMetadata": live.Object{"promptTokenCount": prompt, "candidatesTokenCount": answer, "totalTokenCount": prompt + answer},
	}
}

// The chunks of a demo of the guide, and the pause before each but the first: people see how VOX shows an app that is
// being written, which takes minutes with Gemini.
const (
	demoChunks = 5
	demoPause  = 400 * time.Millisecond
)

// streamAnswer writes an answer in three chunks, as server-sent events or as one JSON array. A demo of the guide takes
// demoChunks, with pauses. It returns early if ctx is canceled.
func streamAnswer(ctx context.Context, w http.ResponseWriter, model string, part live.Object, requestLength int, asEvents bool) {
	pieces, pause := []live.Object{part}, time.Duration(0)
	if text, ok := part["text"].(string); ok {
		count := 3
		if strings.HasPrefix(text, beginFile) {
			count, pause = demoChunks, demoPause
		}
		words := strings.SplitAfter(text, " ")
		pieces = nil
		for chunk := range slices.Chunk(words, (len(words)+count-1)/count) {
			pieces = append(pieces, live.Object{"text": strings.Join(chunk, "")})
		}
	}
	kind, before, between, after := "application/json; charset=UTF-8", "[", ",\r\n", "]"
	if asEvents {
		kind, before, between, after = "text/event-stream", "data: ", "\r\n\r\ndata: ", "\r\n\r\n"
	}
	w.Header().Set("Content-Type", kind)
	finish := ""
	for i, piece := range pieces {
		if i > 0 && pause > 0 {
			select {
			case <-time.After(pause):
			case <-ctx.Done():
				return
			}
		}
		if i == len(pieces)-1 {
			finish = "STOP"
		}
		// json.Marshal cannot fail, because the chunk consists of maps, strings and numbers.
		line, _ := json.Marshal(buildResponseChunk(model, piece, finish, requestLength))
		fmt.Fprintf(w, "%s%s", before, line)
		before = between
		_ = http.NewResponseController(w).Flush()
	}
	_, _ = io.WriteString(w, after)
}
