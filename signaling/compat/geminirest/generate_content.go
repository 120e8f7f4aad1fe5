package geminirest

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"voxgate/bridge"
	"voxgate/tools"
)

// GenerateContent lets the backend of a model answer a GenerateContentRequest and calls piece for each part of the answer. Each part is a
// GenerateContentResponse with all fields that REST clients expect; its finishReason is the backend's.
//
// It blocks until the answer has ended, piece returns an error, ctx is done, or the backend is silent for 3 minutes. Errors other than
// those of piece and ctx are a [*bridge.Error]. The cost counts for account; if its budget is low, the answer is shortened.
func (d *Server) GenerateContent(
	ctx context.Context, account bridge.Account, model string, request json.RawMessage, piece func(json.RawMessage) error,
) (cost bridge.Cost, err error) {
	bill, request, err := reserveCallCost(d.Host, account, 0, model, "streamGenerateContent", request)
	if err != nil {
		return cost, err
	}
	err = d.generateParts(ctx, model, request, func(event object) error {
		bill.recordAnswer(event)
		return piece(tools.Encode(event))
	})
	return bill.settleCost(ctx, false), err
}

// CheckModel returns an error if the backend reports that the model does not exist. It returns nil if the backend
// cannot be reached.
func (d *Server) CheckModel(ctx context.Context, model string) error {
	_, err := d.backendFor(model).describeModel(ctx, model)
	if r := (*backendError)(nil); errors.As(err, &r) && r.status == http.StatusNotFound {
		return &bridge.Error{Code: bridge.CodeBadMessage, Message: fmt.Sprintf("There is no model %s.", model)}
	}
	return nil
}

func (d *Server) generateParts(ctx context.Context, model string, request []byte, piece func(object) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	watch := time.AfterFunc(maxSilence, func() { cancel(errBackendSilent) })
	defer watch.Stop()
	next, err := d.backendFor(model).startGeneration(ctx, model, requestBody{text: request}, true)
	if err != nil {
		return publicError(ctx, err)
	}
	for {
		event, err := next()
		watch.Reset(maxSilence)
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return publicError(ctx, err)
		}
		if said, failed := event["error"].(object); failed {
			return publicError(ctx, &backendError{status: toInt(said["code"]), body: event})
		}
		reason := completeResponse(event, false)
		candidates, _ := event["candidates"].([]any)
		for _, one := range candidates {
			if candidate, ok := one.(object); ok && reason != "" {
				candidate["finishReason"] = reason
			}
		}
		if err := piece(event); err != nil {
			return err
		}
	}
}

// publicError converts an error of a backend for callers inside the gateway.
func publicError(ctx context.Context, err error) error {
	if r := (*backendError)(nil); errors.As(err, &r) {
		code := bridge.CodeRefused
		switch r.status {
		case http.StatusTooManyRequests:
			code = bridge.CodeBusy
		case http.StatusUnauthorized, http.StatusForbidden:
			code = bridge.CodeAuthenticationFailed
		case http.StatusInternalServerError, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
			code = bridge.CodeConnectionFailed
		}
		said, _ := r.body["error"].(object)
		after, _ := time.ParseDuration(cmp.Or(r.retryAfter, "0") + "s") // HTTP dates are not supported; they count as 0
		return &bridge.Error{
			Code: code, Status: r.status, Retry: max(0, after), Message: fmt.Sprintf("The model does not answer: %v", said["message"]),
		}
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
