package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/gorilla/websocket"

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
var doors = []struct{ name, path, first, sound, ready string }{
	{"page", "/ws", `{"type":"CONNECT_GEMINI","payload":{"initialConfig":{"systemInstruction":"page"}}}`, `"AUDIO_CHUNK"`, `"SETUP_COMPLETE"`},
	{"expert", "/api/vox/live", `{"type":"start","theme":"expert"}`, "", `"ready"`},
	{"google", "/ws/google.ai.generativelanguage.v1beta.GenerativeService.BidiGenerateContent", `{"setup":{"systemInstruction":{"parts":[{"text":"google"}]}}}`, `"inlineData"`, `"setupComplete"`},
}

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
			if err := sleep(ctx, offset(trial)); err != nil {
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
