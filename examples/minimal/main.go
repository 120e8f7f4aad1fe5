// Command minimal is a small client for Voxgate over WebRTC. It uses the Go client, and shows in one file what an app
// on a phone does. It reads the sound of a microphone from its standard input, as 16-bit samples at 48 kHz, and writes
// the voice to its standard output in the same format:
//
//	arecord -q -t raw -f S16_LE -r 48000 | go run ./examples/minimal | aplay -q -t raw -f S16_LE -r 48000
//
// It sends frames of 10 ms, so the model hears the person 10 ms earlier than with the usual frames of 20 ms. If the
// network changes, the client restarts ICE or continues the same conversation over another connection. What was said is
// printed to standard error.
package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"flag"
	"fmt"
	"io"
	"log"
	"os"
	"os/signal"
	"sync"
	"time"

	"github.com/pion/rtp"

	"voxgate/client"
	"voxgate/client/rtc"
	"voxgate/media/opus/libopus"
)

const (
	rate  = 48_000
	frame = 10 * time.Millisecond
)

func main() {
	log.SetFlags(0)
	url := flag.String("url", "ws://localhost:3001/ws", "the gateway's `WebSocket`")
	token := flag.String("token", "", "`token` from your backend, where the gateway wants one")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := talk(ctx, *url, *token, os.Stdin, os.Stdout, os.Stderr); err != nil {
		log.Fatal(err)
	}
}

// talk holds a conversation until it has ended or ctx is done.
func talk(ctx context.Context, url, token string, microphone io.Reader, speaker, transcript io.Writer) error {
	decoder, err := libopus.NewDecoder(rate, 1)
	if err != nil {
		return err
	}
	audio, err := rtc.New(rtc.Options{OnPacket: func(p *rtp.Packet) { playPacket(decoder, speaker, p) }})
	if err != nil {
		return err
	}
	conversation, err := client.Dial(ctx, client.Options{
		URL: url, WebRTC: audio, Token: func(context.Context) (string, error) { return token, nil },
	})
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancel(ctx)
	var speaking sync.WaitGroup
	defer speaking.Wait()
	defer stop()
	context.AfterFunc(ctx, func() { conversation.Close() })
	speaking.Go(func() {
		if err := sendMicrophone(ctx, audio, microphone); err != nil {
			log.Print("microphone: ", err)
		}
	})
	for event := range conversation.Events() {
		switch e := event.(type) {
		case client.UserText:
			io.WriteString(transcript, e.Text)
		case client.ModelText:
			io.WriteString(transcript, e.Text)
		case client.TurnComplete, client.Interrupted:
			fmt.Fprintln(transcript)
		case client.Failure:
			log.Print(e.Err)
		case client.ConnectionLost:
			log.Print("connecting again: ", e.Err)
		case client.Resumed:
			if e.IsNew {
				log.Print("The conversation could not be kept; this is a new one.")
			}
		}
	}
	return conversation.Err()
}

// sendMicrophone sends the sound of the microphone. After its end it sends silence, so that the model can hear the end of speech.
func sendMicrophone(ctx context.Context, audio *rtc.Audio, microphone io.Reader) error {
	encoder, err := libopus.NewEncoder(rate, 1, libopus.VoIP)
	if err != nil {
		return err
	}
	pcm := make([]int16, rate/100)
	packet := make([]byte, 1000)
	clock := time.NewTicker(frame)
	defer clock.Stop()
	for {
		if err := binary.Read(microphone, binary.LittleEndian, pcm); err != nil {
			clear(pcm)
		}
		n, err := encoder.Encode(pcm, packet)
		if err != nil {
			return err
		}
		select {
		case <-clock.C:
		case <-ctx.Done():
			return nil
		}
		if err := audio.WriteOpus(packet[:n], frame); err != nil {
			return err
		}
	}
}

// playPacket decodes a packet of the voice and writes it to the speaker. A phone would use a jitter buffer here.
func playPacket(decoder *libopus.Decoder, speaker io.Writer, p *rtp.Packet) {
	pcm := make([]int16, rate*120/1000) // the longest packet, RFC 6716, section 2.1.4
	n, err := decoder.Decode(p.Payload, pcm)
	if err != nil {
		return
	}
	var out bytes.Buffer
	binary.Write(&out, binary.LittleEndian, pcm[:n]) // never fails: out is in memory
	speaker.Write(out.Bytes())                       // ignores errors: the conversation goes on without the player
}
