package rest

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
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

// readEvent reads the data of a server-sent event: https://html.spec.whatwg.org/multipage/server-sent-events.html#parsing-an-event-stream.
func readEvent(lines *bufio.Scanner) ([]byte, error) {
	var data []byte
	for lines.Scan() {
		value, ok := bytes.CutPrefix(lines.Bytes(), []byte("data:"))
		switch {
		case ok && len(data)+len(value) > maxAnswer:
			return nil, bufio.ErrTooLong
		case ok:
			data = append(data, bytes.TrimPrefix(value, []byte(" "))...)
		case len(lines.Bytes()) == 0 && len(data) > 0:
			return data, nil
		}
	}
	if lines.Err() == nil && len(data) > 0 {
		return data, nil // the last event may lack its empty line
	}
	return nil, cmp.Or(lines.Err(), io.EOF)
}

// linesOf are the lines of an answer, of which none may be longer than an answer.
func linesOf(answer io.Reader) *bufio.Scanner {
	lines := bufio.NewScanner(answer)
	lines.Buffer(make([]byte, 0, 64<<10), maxAnswer)
	return lines
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
