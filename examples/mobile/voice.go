// Package voice wraps the Go client so that gomobile can bind it for Android and iOS. The app records and plays PCM, and
// receives events by a listener.
//
//	go install golang.org/x/mobile/cmd/gomobile@latest && gomobile init
//	gomobile bind -target=android -androidapi 24 -o voice.aar ./examples/mobile
//	gomobile bind -target=ios,iossimulator -o Voice.xcframework ./examples/mobile
//
// The package is compiled and tested on Linux. It was never run on a phone.
package voice

import (
	"context"
	"encoding/binary"

	"voxgate/client"
)

// MicrophoneRate and VoiceRate are the sample rates of [Conversation.SendAudio] and [Listener.OnAudio], in Hz.
const (
	MicrophoneRate = 16000
	VoiceRate      = client.VoiceRate
)

// Listener receives the events of a conversation, on one thread that is not the app's main thread.
type Listener interface {
	// OnAudio receives a piece of the voice: 16-bit little-endian samples, which the app must play after the previous
	// ones.
	OnAudio(pcm []byte)
	// OnInterrupted means that the person has interrupted the model. The app must discard audio that it has not played
	// yet.
	OnInterrupted()
	// OnText receives a piece of the transcript, of the person or of the model.
	OnText(text string, byPerson bool)
	// OnState receives a state of the protocol, such as live or resuming, and a sentence for the person, which may be empty.
	OnState(state, message string)
	// OnEnd is called once, and no other method is called after it. The reason is empty after Close.
	OnEnd(reason string)
}

// Conversation is a conversation with the model.
type Conversation struct{ client *client.Conversation }

// Dial opens a conversation at a gateway's WebSocket (wss://…/ws) with a token of the app's backend, which may be empty.
// It blocks until the model listens, for 15 s at most.
func Dial(url, token string, listener Listener) (*Conversation, error) {
	c, err := client.Dial(context.Background(), client.Options{
		URL: url, MicrophoneRate: MicrophoneRate, Token: func(context.Context) (string, error) { return token, nil },
	})
	if err != nil {
		return nil, err
	}
	go deliverEvents(c, listener)
	return &Conversation{c}, nil
}

func deliverEvents(c *client.Conversation, listener Listener) {
	for event := range c.Events() {
		switch e := event.(type) {
		case client.Audio:
			pcm := make([]byte, 0, 2*len(e.PCM))
			for _, s := range e.PCM {
				pcm = binary.LittleEndian.AppendUint16(pcm, uint16(s))
			}
			listener.OnAudio(pcm)
		case client.Interrupted:
			listener.OnInterrupted()
		case client.UserText:
			listener.OnText(e.Text, true)
		case client.ModelText:
			listener.OnText(e.Text, false)
		case client.State:
			listener.OnState(e.State, e.Message)
		case client.ConnectionLost:
			listener.OnState("resuming", "")
		}
	}
	reason := ""
	if err := c.Err(); err != nil {
		reason = err.Error()
	}
	listener.OnEnd(reason)
}

// SendAudio sends 16-bit little-endian samples of the microphone, at best 20 to 100 ms.
func (c *Conversation) SendAudio(pcm []byte) error {
	samples := make([]int16, len(pcm)/2)
	for i := range samples {
		samples[i] = int16(binary.LittleEndian.Uint16(pcm[2*i:]))
	}
	return c.client.SendAudio(samples)
}

// SendText sends a typed message.
func (c *Conversation) SendText(text string) error {
	return c.client.SendText(context.Background(), text)
}

// Interrupt stops the model's answer.
func (c *Conversation) Interrupt() error { return c.client.Interrupt(context.Background()) }

// Close ends the conversation.
func (c *Conversation) Close() error { return c.client.Close() }
