package geminirest

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"voxgate/bridge"
	"voxgate/signaling"
	"voxgate/tools"
)

// streamEvents forwards the backend's events as they arrive, as server-sent events (alt=sse) or a JSON array. Clients
// expect a finishReason only in the last event. So as soon as the backend has sent a finishReason, streamEvents sends
// each event only when the next one has arrived.
func (c *restCall) streamEvents(ctx context.Context, r *http.Request, next func() (object, error)) error {
	out := &eventWriter{call: c, sse: r.URL.Query().Get("alt") == "sse"}
	c.responseWriter.Header().Set("X-Accel-Buffering", "no") // otherwise nginx buffers the response
	c.responseWriter.Header().Set("Content-Type", jsonContentType)
	if out.sse {
		c.responseWriter.Header().Set("Content-Type", "text/event-stream")
	}
	var pendingEvent object // the newest event, if not sent yet
	var reason string
	for {
		event, err := next()
		c.silenceTimer.Reset(maxSilence)
		if err == io.EOF {
			break
		}
		c.bill.recordAnswer(event)
		if failed, ok := event["error"].(object); err == nil && ok {
			return errors.Join(
				fmt.Errorf("the backend ended with %v", failed["message"]),
				out.flushHeld(pendingEvent, reason, false),
				out.writeEvent(event),
				out.closeArray(),
			)
		}
		if err != nil {
			broken := signaling.GoogleError(http.StatusBadGateway, "The backend's answer broke off.", 0)
			if r := (*backendError)(nil); errors.As(err, &r) {
				broken = r.body
			}
			if errors.Is(context.Cause(ctx), bridge.ErrShutdown) {
				broken = signaling.GoogleError(http.StatusServiceUnavailable, shutdownMessage, shutdownRetryAfter)
			}
			return errors.Join(err, context.Cause(ctx), out.flushHeld(pendingEvent, reason, false), out.writeEvent(broken), out.closeArray())
		}
		if err := out.flushHeld(pendingEvent, reason, false); err != nil {
			return err
		}
		pendingEvent = event
		if eventReason := completeResponse(event, false); eventReason != "" {
			reason = eventReason
		}
		if reason == "" { // not the last event: send it at once
			if err := out.writeEvent(pendingEvent); err != nil {
				return err
			}
			c.lastEvent, pendingEvent = pendingEvent, nil
		}
	}
	if pendingEvent == nil { // the backend sent no finishReason
		pendingEvent = object{"usageMetadata": c.lastEvent["usageMetadata"]}
		completeResponse(pendingEvent, false)
	}
	return errors.Join(out.flushHeld(pendingEvent, reason, true), out.closeArray())
}

// eventReader parses server-sent events: https://html.spec.whatwg.org/multipage/server-sent-events.html#parsing-an-event-stream.
type eventReader struct {
	from    *bufio.Reader
	maxSize int // maximum size of an event in bytes, including the comments before it
}

func newEventReader(answer io.Reader, maxSize int) *eventReader {
	return &eventReader{bufio.NewReaderSize(answer, 64<<10), maxSize}
}

// nextEvent returns the data of the next event. The blank line after the last event may be missing.
func (e *eventReader) nextEvent() ([]byte, error) {
	var data []byte
	for size := 0; ; {
		line, err := e.readLine(e.maxSize - size)
		size += len(line)
		line = bytes.TrimRight(line, "\r\n")
		if value, ok := bytes.CutPrefix(line, []byte("data:")); ok {
			data = append(data, bytes.TrimPrefix(value, []byte(" "))...)
		}
		switch {
		case len(data) > 0 && (err == io.EOF || err == nil && len(line) == 0):
			return data, nil
		case err != nil:
			return nil, err
		}
	}
}

// readLine returns a line of at most limit bytes, which is valid until the next call. It does not use bufio.Scanner,
// which would search a long line again at each read.
func (e *eventReader) readLine(limit int) (line []byte, err error) {
	for {
		piece, err := e.from.ReadSlice('\n')
		if len(line)+len(piece) > limit {
			return nil, bufio.ErrTooLong
		}
		if err != bufio.ErrBufferFull && line == nil {
			return piece, err
		}
		line = append(line, piece...)
		if err != bufio.ErrBufferFull {
			return line, err
		}
	}
}

// readAnswer reads a complete JSON response of at most limit bytes.
func readAnswer(from io.Reader, limit int64) ([]byte, error) {
	text, err := io.ReadAll(io.LimitReader(from, limit+1))
	switch {
	case err != nil:
		return nil, err
	case int64(len(text)) > limit:
		return nil, fmt.Errorf("the backend's answer has more than %d bytes", limit)
	case !json.Valid(text):
		return nil, errors.New("the backend's answer is not JSON")
	}
	return text, nil
}

// eventWriter writes the events of a response.
type eventWriter struct {
	call    *restCall
	sse     bool
	written int
}

// flushHeld writes the held event, if there is one. If isLast is set, it first sets the event's finishReason to reason,
// or to STOP if reason is empty.
func (e *eventWriter) flushHeld(held object, reason string, isLast bool) error {
	if held == nil {
		return nil
	}
	if isLast {
		candidates, _ := held["candidates"].([]any)
		for _, one := range candidates {
			if candidate, ok := one.(object); ok {
				candidate["finishReason"] = "STOP"
				if reason != "" {
					candidate["finishReason"] = reason
				}
			}
		}
	}
	return e.writeEvent(held)
}

func (e *eventWriter) writeEvent(event object) error {
	text := tools.EncodeOrEmpty(event)
	switch {
	case e.sse:
		text = append(append([]byte("data: "), text...), "\r\n\r\n"...)
	case e.written == 0:
		text = append([]byte("["), text...)
	default:
		text = append([]byte(",\r\n"), text...)
	}
	e.written++
	_ = e.call.control.SetWriteDeadline(time.Now().Add(writeTimeout))
	if _, err := e.call.responseWriter.Write(text); err != nil {
		return err
	}
	return e.call.control.Flush()
}

// closeArray closes the JSON array.
func (e *eventWriter) closeArray() error {
	if e.sse {
		return nil
	}
	text := "]"
	if e.written == 0 {
		text = "[]"
	}
	_ = e.call.control.SetWriteDeadline(time.Now().Add(writeTimeout))
	_, err := io.WriteString(e.call.responseWriter, text)
	return err
}
