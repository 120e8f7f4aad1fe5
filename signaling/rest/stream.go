package rest

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

// stream forwards the backend's events as they arrive: as server-sent events (alt=sse), or as a growing JSON array. Only the last event
// has a finishReason. An event with one is held until the next event or the end of the stream.
func (c *call) stream(ctx context.Context, r *http.Request, next func() (object, error)) error {
	out := &pieces{call: c, sse: r.URL.Query().Get("alt") == "sse"}
	c.w.Header().Set("X-Accel-Buffering", "no") // otherwise nginx buffers the response
	c.w.Header().Set("Content-Type", jsonType)
	if out.sse {
		c.w.Header().Set("Content-Type", "text/event-stream")
	}
	var held object // the newest event, if not sent yet
	var reason string
	for {
		event, err := next()
		c.watch.Reset(silence)
		if err == io.EOF {
			break
		}
		c.bill.note(event)
		if failed, ok := event["error"].(object); err == nil && ok {
			return errors.Join(
				fmt.Errorf("the backend ended with %v", failed["message"]),
				out.flush(held, reason, false),
				out.write(event),
				out.end(),
			)
		}
		if err != nil {
			broken := signaling.GoogleError(http.StatusBadGateway, "The backend's answer broke off.", 0)
			if r := (*refused)(nil); errors.As(err, &r) {
				broken = r.body
			}
			if errors.Is(context.Cause(ctx), bridge.ErrShutdown) {
				broken = signaling.GoogleError(http.StatusServiceUnavailable, stopping, stoppingRetry)
			}
			return errors.Join(err, context.Cause(ctx), out.flush(held, reason, false), out.write(broken), out.end())
		}
		if err := out.flush(held, reason, false); err != nil {
			return err
		}
		held = event
		if said := complete(event, false); said != "" {
			reason = said
		}
		if reason == "" { // not the last event: send it at once
			if err := out.write(held); err != nil {
				return err
			}
			c.last, held = held, nil
		}
	}
	if held == nil { // the backend sent no finishReason
		held = object{"usageMetadata": c.last["usageMetadata"]}
		complete(held, false)
	}
	return errors.Join(out.flush(held, reason, true), out.end())
}

// eventReader parses server-sent events: https://html.spec.whatwg.org/multipage/server-sent-events.html#parsing-an-event-stream.
type eventReader struct {
	from *bufio.Reader
	most int // maximum size of an event in bytes, with preceding comments
}

func newEventReader(answer io.Reader, most int) *eventReader {
	return &eventReader{bufio.NewReaderSize(answer, 64<<10), most}
}

// next returns the data of the next event. The blank line after the last event may be missing.
func (e *eventReader) next() ([]byte, error) {
	var data []byte
	for size := 0; ; {
		line, err := e.readLine(e.most - size)
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

// readLine returns a line of at most most bytes, with its line ending. It is valid until the next call. It avoids bufio.Scanner, which
// searches a long line again whenever more of it arrives.
func (e *eventReader) readLine(most int) (line []byte, err error) {
	for {
		piece, err := e.from.ReadSlice('\n')
		if len(line)+len(piece) > most {
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

// readAnswer reads a complete JSON response of at most most bytes.
func readAnswer(from io.Reader, most int64) ([]byte, error) {
	text, err := io.ReadAll(io.LimitReader(from, most+1))
	switch {
	case err != nil:
		return nil, err
	case int64(len(text)) > most:
		return nil, fmt.Errorf("the backend's answer has more than %d bytes", most)
	case !json.Valid(text):
		return nil, errors.New("the backend's answer is not JSON")
	}
	return text, nil
}

// pieces writes the events of a response.
type pieces struct {
	call    *call
	sse     bool
	written int
}

// flush writes the held event, if any. If last is set, the event gets the finishReason.
func (p *pieces) flush(held object, reason string, last bool) error {
	if held == nil {
		return nil
	}
	if last {
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
	return p.write(held)
}

func (p *pieces) write(event object) error {
	text := tools.Encode(event)
	switch {
	case p.sse:
		text = append(append([]byte("data: "), text...), "\r\n\r\n"...)
	case p.written == 0:
		text = append([]byte("["), text...)
	default:
		text = append([]byte(",\r\n"), text...)
	}
	p.written++
	_ = p.call.control.SetWriteDeadline(time.Now().Add(writeTime))
	if _, err := p.call.w.Write(text); err != nil {
		return err
	}
	return p.call.control.Flush()
}

// end closes the JSON array.
func (p *pieces) end() error {
	if p.sse {
		return nil
	}
	text := "]"
	if p.written == 0 {
		text = "[]"
	}
	_ = p.call.control.SetWriteDeadline(time.Now().Add(writeTime))
	_, err := io.WriteString(p.call.w, text)
	return err
}
