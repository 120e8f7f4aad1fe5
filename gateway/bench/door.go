package main

import (
	"context"
	"encoding/base64"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/gorilla/websocket"

	"voxgate/media"
	"voxgate/media/mediatest"
)

const (
	// An answer begins with less than a frame of the VOX door, as Google's may, and goes on a little later.
	firstPiece = 2 * frame
	nextPiece  = 160 * time.Millisecond
	pieceGap   = 10 * time.Millisecond

	// doorTrial is longer than an answer lasts, with what is sent ahead of it.
	doorTrial = 400 * time.Millisecond
)

// doors are the WebSockets that are compared, and what a client says at them first. The model knows the VOX one by its theme.
var doors = []door{
	{"page", "/ws", `{"type":"CONNECT_GEMINI","payload":{"initialConfig":{"systemInstruction":"page"}}}`, `"AUDIO_CHUNK"`, `"SETUP_COMPLETE"`},
	{"expert", "/api/vox/live", `{"type":"start","theme":"expert"}`, "", `"ready"`},
	{"google", "/ws/google.ai.generativelanguage.v1beta.GenerativeService.BidiGenerateContent", `{"setup":{"systemInstruction":{"parts":[{"text":"google"}]}}}`, `"inlineData"`, `"setupComplete"`},
	{"realtime", "/v1/realtime", `{"type":"session.update","session":{"instructions":"realtime"}}`, `"response.output_audio.delta"`, `"session.updated"`},
}

type door struct{ name, path, first, sound, ready string }

// appends is how a client says something, by the name of the door: what is around the base64 of 16-bit samples at 24 kHz.
var appends = map[string][2]string{
	"page":     {`{"type":"SEND_REALTIME_INPUT","payload":{"audio":{"mimeType":"audio/pcm;rate=24000","data":"`, `"}}}`},
	"realtime": {`{"type":"input_audio_buffer.append","audio":"`, `"}`},
}

// doorCalls is with how many conversations the cost of a door is measured.
const doorCalls = 20

// ear is a client by WebSocket that keeps when it gets sound.
type ear struct {
	ws      *websocket.Conn
	sound   string // is in a message with sound; empty: binary messages are sound
	ready   chan struct{}
	running sync.WaitGroup

	mu     sync.Mutex
	sounds []time.Time
	err    error
}

// listen opens a conversation at a door.
func listen(ctx context.Context, url, path, first, sound, ready string) (*ear, error) {
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	ws, _, err := websocket.DefaultDialer.DialContext(ctx, "ws"+strings.TrimPrefix(url, "http")+path, nil)
	if err != nil {
		return nil, err
	}
	e := &ear{ws: ws, sound: sound, ready: make(chan struct{})}
	isReady := sync.OnceFunc(func() { close(e.ready) })
	e.running.Go(func() {
		for {
			kind, raw, err := ws.ReadMessage()
			at := time.Now()
			if err != nil {
				e.mu.Lock()
				e.err = err
				e.mu.Unlock()
				return
			}
			head := string(raw[:min(len(raw), 60)])
			if sound == "" && kind == websocket.BinaryMessage || sound != "" && strings.Contains(head, sound) {
				e.mu.Lock()
				e.sounds = append(e.sounds, at)
				e.mu.Unlock()
			} else if strings.Contains(head, ready) {
				isReady()
			}
		}
	})
	if err = ws.WriteMessage(websocket.TextMessage, []byte(first)); err == nil {
		select {
		case <-e.ready:
			return e, nil
		case <-ctx.Done():
			err = fmt.Errorf("%s: %w", path, context.Cause(ctx))
		}
	}
	e.close()
	return nil, err
}

func (e *ear) close() {
	e.ws.Close()
	e.running.Wait()
}

// after is when the first sound after a time came.
func (e *ear) after(at time.Time) (time.Time, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	i := slices.IndexFunc(e.sounds, at.Before)
	if i < 0 {
		return at, fmt.Errorf("an answer was not heard: %v", e.err)
	}
	return e.sounds[i], nil
}

// waitForSound waits for the first sound.
func (e *ear) waitForSound(ctx context.Context) error {
	for late := time.After(connectTimeout); ; {
		_, err := e.after(time.Time{})
		if err == nil {
			return nil
		}
		select {
		case <-time.After(frame):
		case <-late:
			return err
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// measureDoors has the model speak, and returns how long its voice takes to the first frame at a client of each of the doors.
func measureDoors(ctx context.Context, o options) (took [][]time.Duration, err error) {
	m, gateway, err := o.startModel(ctx, nil)
	if err != nil {
		return nil, err
	}
	defer m.server.Close()
	defer gateway.stop()
	took = make([][]time.Duration, len(doors))
	first, next := saying(mediatest.Tone(firstPiece, voiceRate, 440, 12000), ""), saying(mediatest.Tone(nextPiece, voiceRate, 440, 12000), "")
	for i, d := range doors {
		e, err := listen(ctx, gateway.url, d.path, d.first, d.sound, d.ready)
		if err != nil {
			return nil, fmt.Errorf("%w\n%s", err, gateway.log())
		}
		defer e.close()
		s := <-m.session(d.name)
		for trial := range o.trials/2 + warmUp {
			if err := sleep(ctx, offset(trial, frame)); err != nil {
				return nil, err
			}
			at := time.Now()
			if err := s.send(first); err != nil {
				return nil, err
			}
			sleep(ctx, pieceGap)
			if err := s.send(next, generated, turnOver); err != nil {
				return nil, err
			}
			if err := sleep(ctx, doorTrial); err != nil {
				return nil, err
			}
			heard, err := e.after(at)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", d.path, err)
			}
			if trial >= warmUp {
				took[i] = append(took[i], heard.Sub(at))
			}
		}
	}
	return took, nil
}

// measureDoorCost has conversations at a door in which both sides talk without a pause, and returns the CPU time of the gateway per
// minute of one.
func measureDoorCost(ctx context.Context, o options, d door) (cpu time.Duration, err error) {
	m, gateway, err := o.startModel(ctx, nil)
	if err != nil {
		return 0, err
	}
	defer m.server.Close()
	defer gateway.stop()
	var talking sync.WaitGroup
	defer talking.Wait()
	ctx, quiet := context.WithCancel(ctx)
	defer quiet()
	ears := make([]*ear, doorCalls)
	for i := range ears {
		name := fmt.Sprint(d.name, i)
		if ears[i], err = listen(ctx, gateway.url, d.path, strings.Replace(d.first, `"`+d.name+`"`, `"`+name+`"`, 1), d.sound, d.ready); err != nil {
			return 0, fmt.Errorf("%s: %w\n%s", d.path, err, gateway.log())
		}
		defer ears[i].close()
		s := <-m.session(name)
		talking.Go(func() { s.chatter(ctx, time.Duration(i)*chatterLength/doorCalls) })
	}
	said := mediatest.Tone(time.Second, voiceRate, 97, roomLevel)
	talking.Go(func() {
		size := len(said) / 50
		pace(ctx, frame, doorCalls, int(time.Hour/frame), func(caller, i int) {
			at := i % 50 * size
			sound := base64.StdEncoding.EncodeToString(media.AppendBytes(nil, said[at:at+size]))
			ears[caller].ws.WriteMessage(websocket.TextMessage, []byte(appends[d.name][0]+sound+appends[d.name][1])) // an ear that fails has heard too little
		})
	})
	for _, e := range ears {
		if err := e.waitForSound(ctx); err != nil {
			return 0, fmt.Errorf("%s: %w", d.path, err)
		}
	}
	if err := sleep(ctx, o.settle); err != nil {
		return 0, err
	}
	before, err := gateway.usage()
	if err == nil {
		err = sleep(ctx, o.window)
	}
	if err != nil {
		return 0, err
	}
	after, err := gateway.usage()
	if err != nil {
		return 0, err
	}
	for _, e := range ears {
		if _, err := e.after(time.Now().Add(-2 * chatterLength)); err != nil {
			return 0, fmt.Errorf("%s: %w", d.path, err)
		}
	}
	return time.Duration(float64(after.cpu-before.cpu) / float64(after.at.Sub(before.at)) * float64(time.Minute) / doorCalls), nil
}
