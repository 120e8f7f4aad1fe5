package probe

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"voxgate/bridge/gemini"
	"voxgate/bridge/gemini/api"
	"voxgate/bridge/gemini/liveconfig"
	"voxgate/bridge/gemini/traces"
	"voxgate/bridge/gemini/wire"
	"voxgate/media/g711"
)

// Recording configures the recording of one conversation.
type Recording struct {
	Client  *api.Client
	Comment traces.Comment
	Config  json.RawMessage // session config of a client; nil means the default model without settings

	// Steps lists the client's actions: "text WORDS", "speech" (a sentence to remember), "wait 5s", "end"
	// (audioStreamEnd), "mute" and "unmute". Between these actions, the client sends silence in real time.
	Steps []string

	To io.Writer
}

// stepTimeout limits the wait for the answer to a step.
const stepTimeout = 30 * time.Second

// recorder is a conversation being recorded.
type recorder struct {
	conn    *gemini.Conn
	turns   chan struct{} // receives a value for each turnComplete
	endErr  chan error
	todo    chan func(context.Context) error // functions to run in the sending goroutine
	sound   []int16                          // audio to send; used only by the sending goroutine
	isMuted bool                             // no audio is sent; used only by the sending goroutine
}

// Record runs a conversation and writes its messages to o.To. It responds to function calls with {"output":"ok"}. If
// the connection ends with an error, the error is written as well.
func Record(ctx context.Context, o Recording) error {
	for i, step := range o.Steps {
		if _, err := validateStep(step); err != nil {
			return fmt.Errorf("step %d: %w", i+1, err)
		}
	}
	config := o.Config
	if config == nil {
		config = json.RawMessage(`{}`)
	}
	c, err := liveconfig.Parse(config, "config", liveconfig.Scope{Vertex: o.Client.Vertex})
	if err != nil {
		return err
	}
	o.Comment.Model = c.Model
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	writer := traces.NewRecorder(o.To, o.Comment)
	s := c.Setup("", nil)
	s.Trace = writer.Add
	conn, err := gemini.Dial(ctx, o.Client, s)
	if err != nil {
		return endRecording(writer, err)
	}
	r := &recorder{
		conn: conn, turns: make(chan struct{}, 1024), endErr: make(chan error, 2), todo: make(chan func(context.Context) error),
	}
	done := make(chan struct{}, 2)
	go func() { r.endErr <- r.readLoop(ctx); done <- struct{}{} }()
	go func() { r.endErr <- r.sendLoop(ctx); done <- struct{}{} }()
	err = r.runSteps(ctx, o.Steps)
	cancel()
	_ = conn.Close()
	<-done
	<-done
	return endRecording(writer, err)
}

// endRecording writes how the connection has ended. If the server has closed the connection, endRecording returns no
// error.
func endRecording(writer *traces.Recorder, err error) error {
	if closed, ok := errors.AsType[*wire.CloseError](err); ok {
		return writer.Close(closed.Code, closed.Reason)
	}
	return errors.Join(err, writer.Close(0, ""))
}

// validateStep validates a step. It returns the duration of a "wait" step.
func validateStep(step string) (wait time.Duration, err error) {
	word, rest, _ := strings.Cut(step, " ")
	switch {
	case word == "wait":
		if wait, err = time.ParseDuration(rest); err != nil || wait <= 0 {
			return 0, fmt.Errorf(`%q: wait needs a duration, as "wait 5s"`, step)
		}
	case word == "text" && strings.TrimSpace(rest) != "", slices.Contains([]string{"speech", "end", "mute", "unmute"}, step):
	default:
		return 0, fmt.Errorf("%q must be one of: text WORDS, speech, wait DURATION, end, mute, unmute", step)
	}
	return wait, nil
}

// runSteps runs the steps. After "text" and "speech", it waits for the end of the next turn.
func (r *recorder) runSteps(ctx context.Context, steps []string) error {
	for _, step := range steps {
		word, rest, _ := strings.Cut(step, " ")
		wait, err := validateStep(step)
		if err != nil {
			return err
		}
		for len(r.turns) > 0 {
			<-r.turns // discards the ends of earlier turns
		}
		answered := r.turns
		switch word {
		case "wait":
			answered = nil
		case "text":
			wait, err = stepTimeout, r.runInSender(ctx, func(ctx context.Context) error { return r.conn.Send(ctx, textMessage(rest)) })
		case "speech":
			wait, err = stepTimeout, r.runInSender(ctx, func(context.Context) error { r.sound = speechAt16kHz(); return nil })
		case "end":
			err = r.runInSender(ctx, func(ctx context.Context) error {
				return r.conn.Send(ctx, wire.ClientMessage{RealtimeInput: &wire.RealtimeInput{AudioStreamEnd: true}})
			})
		default:
			err = r.runInSender(ctx, func(context.Context) error { r.isMuted = word == "mute"; return nil })
		}
		if err == nil {
			err = r.waitOrTurnEnd(ctx, wait, answered)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// runInSender passes f to the sending goroutine. It blocks until that goroutine takes f, but does not wait for the end
// of f.
func (r *recorder) runInSender(ctx context.Context, f func(context.Context) error) error {
	select {
	case r.todo <- f:
		return nil
	case err := <-r.endErr:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// waitOrTurnEnd blocks for a duration, or until a turn ends.
func (r *recorder) waitOrTurnEnd(ctx context.Context, d time.Duration, turn <-chan struct{}) error {
	if d == 0 {
		return nil
	}
	select {
	case <-time.After(d):
	case <-turn:
	case err := <-r.endErr:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
	return nil
}

// textMessage returns a message with a typed text, in a form that all models accept.
func textMessage(text string) wire.ClientMessage {
	return wire.ClientMessage{RealtimeInput: &wire.RealtimeInput{Text: text}}
}

// speechAt16kHz returns the spoken sentence of the probes at 16 kHz.
func speechAt16kHz() []int16 {
	return repeatSamples(g711.MuLaw.AppendDecoded(nil, speech), 16000/speechRate)
}

// sendLoop sends audio in real time: first the samples in sound, then silence. Between two chunks of audio, it runs the
// functions from todo.
func (r *recorder) sendLoop(ctx context.Context) error {
	ticker := time.NewTicker(frame)
	defer ticker.Stop()
	pcm := make([]int16, 16000/int(time.Second/frame))
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case f := <-r.todo:
			if err := f(ctx); err != nil {
				return err
			}
		case <-ticker.C:
			if r.isMuted {
				continue
			}
			n := copy(pcm, r.sound)
			clear(pcm[n:])
			r.sound = r.sound[n:]
			if err := r.conn.SendAudio(ctx, pcm, 16000); err != nil {
				return err
			}
		}
	}
}

// readLoop receives messages until the connection ends.
func (r *recorder) readLoop(ctx context.Context) error {
	for {
		m, err := r.conn.Recv(ctx)
		if _, broken := errors.AsType[*wire.FrameError](err); broken {
			continue
		}
		if err != nil {
			return err
		}
		for _, call := range m.ToolCalls {
			answer := wire.FunctionResponse{ID: call.ID, Name: call.Name, Response: json.RawMessage(`{"output":"ok"}`)}
			err := r.runInSender(ctx, func(ctx context.Context) error {
				return r.conn.Send(ctx, wire.ClientMessage{ToolResponse: &wire.ToolResponse{FunctionResponses: []wire.FunctionResponse{answer}}})
			})
			if err != nil {
				return err
			}
		}
		if m.Content != nil && m.Content.TurnComplete && len(m.ToolCalls) == 0 {
			select {
			case r.turns <- struct{}{}:
			default:
			}
		}
	}
}
