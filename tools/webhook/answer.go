package webhook

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"

	"voxgate/tools"
)

var (
	errTooLarge = fmt.Errorf("the webhook's answer is larger than %d bytes", maxAnswer)
	errNotJSON  = errors.New("the webhook answered with something that is not JSON")
)

// readResult returns the result in a response, or nil if the body is empty.
func readResult(ctx context.Context, response *http.Response) (json.RawMessage, error) {
	body := &io.LimitedReader{R: response.Body, N: maxAnswer + 1}
	if response.StatusCode < 200 || response.StatusCode > 299 {
		return nil, newResponseError(response.StatusCode, body)
	}
	var result json.RawMessage
	var err error
	if kind, _, _ := mime.ParseMediaType(response.Header.Get("Content-Type")); kind == "application/x-ndjson" {
		result, err = readProgressLines(ctx, body)
	} else {
		result, err = io.ReadAll(body)
	}
	switch {
	case err != nil && ctx.Err() != nil:
		return nil, context.Cause(ctx)
	case body.N <= 0:
		return nil, errTooLarge
	case errors.Is(err, errNotJSON):
		return nil, err
	case err != nil:
		return nil, fmt.Errorf("the webhook's response ended early: %w", err)
	}
	if result = bytes.TrimSpace(result); len(result) > 0 && !json.Valid(result) {
		return nil, errNotJSON
	}
	return result, nil
}

// readProgressLines reads lines of JSON, and ignores empty lines. It returns the last line. It reports all lines before
// it as progress.
func readProgressLines(ctx context.Context, body io.Reader) (last json.RawMessage, err error) {
	for lines := bufio.NewReader(body); err == nil; {
		var line []byte
		line, err = lines.ReadBytes('\n')
		if line = bytes.TrimSpace(line); len(line) == 0 {
			continue
		}
		if last != nil {
			if !json.Valid(last) {
				return nil, errNotJSON
			}
			tools.ReportProgress(ctx, tools.BuildOutcome(last, nil).Response)
		}
		last = line
	}
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return last, err
}

// newResponseError returns an error for a failed request. It contains the status, and the endpoint's own text if the
// body is {"error":"…"}.
func newResponseError(status int, body io.Reader) error {
	message := fmt.Sprintf("the webhook answered %d", status)
	if text := http.StatusText(status); text != "" {
		message += " " + text
	}
	var answer struct {
		Error string `json:"error"`
	}
	if b, err := io.ReadAll(body); err != nil || json.Unmarshal(b, &answer) != nil || answer.Error == "" {
		return errors.New(message)
	}
	return fmt.Errorf("%s: %s", message, tools.Truncate(answer.Error, maxErrorText))
}
