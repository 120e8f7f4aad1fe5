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

// stream passes the events of the backend on, each as it comes, as server-sent events (alt=sse) or as an array that grows. Exactly one
// of them, the last, has a finishReason: one that has it waits for the next, and is the last if there is none.
func (c *call) stream(ctx context.Context, r *http.Request, next func() (object, error)) error {
	out := &pieces{call: c, sse: r.URL.Query().Get("alt") == "sse"}
	c.w.Header().Set("X-Accel-Buffering", "no") // nginx would keep it
	c.w.Header().Set("Content-Type", jsonType)
	if out.sse {
		c.w.Header().Set("Content-Type", "text/event-stream")
	}
	var held object // the newest event
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
		if reason == "" { // there is more to come: it need not wait
			if err := out.write(held); err != nil {
				return err
			}
			c.last, held = held, nil
		}
	}
	if held == nil { // the backend forgot to say why it ended
		held = object{"usageMetadata": c.last["usageMetadata"]}
		complete(held, false)
	}
	return errors.Join(out.flush(held, reason, true), out.end())
}

// eventReader reads server-sent events: https://html.spec.whatwg.org/multipage/server-sent-events.html#parsing-an-event-stream.
type eventReader struct {
	from *bufio.Reader
	most int // bytes of an event, with the comments before it
}

func newEventReader(answer io.Reader, most int) *eventReader {
	return &eventReader{bufio.NewReaderSize(answer, 64<<10), most}
}

// next reads the data of an event. The last one may lack its empty line.
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

// readLine returns a line of so many bytes at most, with its end. It is good until the next one. A bufio.Scanner would look through a long
// line again with each piece of it.
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

// readAnswer reads a whole answer in JSON of so many bytes at most.
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

// pieces writes what a client reads.
type pieces struct {
	call    *call
	sse     bool
	written int
}

// flush writes an event that was held back: the last one with the reason of the end.
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

// end closes the array.
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
