package geminirest

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/http"
	"time"

	"google.golang.org/genai"

	"voxgate/bridge"
	"voxgate/bridge/gemini/wire"
	"voxgate/tools"
)

// GenerateContent sends a GenerateContentRequest to a model, and calls onPiece with each part of the answer. A part is a
// GenerateContentResponse with all fields that REST clients expect.
//
// It blocks until the answer has ended, onPiece fails, ctx is done, or the backend is silent for 3 minutes. It returns
// the error of onPiece or ctx, or a [*bridge.Error]. The cost is charged to account. A low budget shortens the answer.
func (s *Server) GenerateContent(
	ctx context.Context, account bridge.Account, model string, request json.RawMessage, onPiece func(json.RawMessage) error,
) (cost bridge.Cost, err error) {
	bill, request, err := reserveCallCost(s.Host, account, 0, model, "streamGenerateContent", request)
	if err != nil {
		return cost, err
	}
	err = s.generateParts(ctx, model, request, func(event object) error {
		bill.recordAnswer(event)
		return onPiece(tools.EncodeOrEmpty(event))
	})
	return bill.settleCost(ctx, false), err
}

// CheckModel returns an error if the backend reports that the model does not exist. It returns nil if the backend
// cannot be reached.
func (s *Server) CheckModel(ctx context.Context, model string) error {
	_, err := s.backendFor(model).describeModel(ctx, model)
	if r := (*backendError)(nil); errors.As(err, &r) && r.status == http.StatusNotFound {
		return &bridge.Error{Code: bridge.CodeBadMessage, Message: fmt.Sprintf("There is no model %s.", model)}
	}
	return nil
}

func (s *Server) generateParts(ctx context.Context, model string, request []byte, onPiece func(object) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	watch := time.AfterFunc(maxSilence, func() { cancel(errBackendSilent) })
	defer watch.Stop()
	for event, err := range s.streamContent(ctx, model, request) {
		watch.Reset(maxSilence)
		if err != nil {
			return toBridgeError(ctx, err)
		}
		if said, failed := event["error"].(object); failed {
			return toBridgeError(ctx, &backendError{status: toInt(said["code"]), body: event})
		}
		reason := completeResponse(event, false)
		candidates, _ := event["candidates"].([]any)
		for _, one := range candidates {
			if candidate, ok := one.(object); ok && reason != "" {
				candidate["finishReason"] = reason
			}
		}
		if err := onPiece(event); err != nil {
			return err
		}
	}
	return nil
}

// streamContent requests an answer from the model's backend, and returns the parts of the answer.
func (s *Server) streamContent(ctx context.Context, model string, request []byte) iter.Seq2[object, error] {
	backend := s.backendFor(model)
	if backend == s.google {
		return s.google.streamContent(ctx, model, request)
	}
	return func(yield func(object, error) bool) {
		next, err := backend.startGeneration(ctx, model, requestBody{text: request}, true)
		for err == nil {
			var event object
			if event, err = next(); err == nil && !yield(event, nil) {
				return
			}
		}
		if err != io.EOF {
			yield(nil, err)
		}
	}
}

// toBridgeError converts an error of a backend to a [bridge.Error], or to the cause with which ctx was canceled.
func toBridgeError(ctx context.Context, err error) error {
	if r := (*backendError)(nil); errors.As(err, &r) {
		said, _ := r.body["error"].(object)
		after, _ := time.ParseDuration(cmp.Or(r.retryAfter, "0") + "s") // HTTP dates are not supported; they count as 0
		return newRefusalError(r.status, fmt.Sprint(said["message"]), after)
	}
	if r, ok := errors.AsType[*wire.HandshakeError](err); ok {
		return newRefusalError(r.Status, r.Body, r.Retry)
	}
	if r, ok := errors.AsType[genai.APIError](err); ok { // an error within a stream
		return newRefusalError(r.Code, r.Message, 0)
	}
	if cause := context.Cause(ctx); cause != nil && !errors.Is(cause, errBackendSilent) {
		return cause
	}
	return &bridge.Error{
		Code:    bridge.CodeConnectionFailed,
		Message: "The model cannot be reached, or its answer broke off.",
		Err:     errors.Join(err, context.Cause(ctx)),
	}
}

// newRefusalError returns the error for a response of a backend with this HTTP status.
func newRefusalError(status int, message string, retry time.Duration) *bridge.Error {
	code := bridge.CodeRefused
	switch status {
	case http.StatusTooManyRequests:
		code = bridge.CodeBusy
	case http.StatusUnauthorized, http.StatusForbidden:
		code = bridge.CodeAuthenticationFailed
	case http.StatusInternalServerError, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		code = bridge.CodeConnectionFailed
	}
	return &bridge.Error{Code: code, Status: status, Retry: max(0, retry), Message: "The model does not answer: " + message}
}
