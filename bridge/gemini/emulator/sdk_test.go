package emulator_test

import (
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/genai"

	"voxgate/media/mediatest"
)

// sdk returns Google's client for an emulator. Live wants ws and REST http in its base URL.
func sdk(t *testing.T, base, key, version string) *genai.Client {
	t.Helper()
	transport := &http.Transport{DisableKeepAlives: true}
	client, err := genai.NewClient(t.Context(), &genai.ClientConfig{
		Backend: genai.BackendGeminiAPI, APIKey: key, HTTPClient: &http.Client{Transport: transport},
		HTTPOptions: genai.HTTPOptions{BaseURL: base, APIVersion: version},
	})
	if err != nil {
		t.Fatal(err)
	}
	return client
}

func live(base string) string { return "ws" + strings.TrimPrefix(base, "http") }

type sdkTurn struct {
	pcm          []int16
	text, heard  string
	calls        []*genai.FunctionCall
	usage        *genai.UsageMetadata
	interruption bool
}

func receive(t *testing.T, session *genai.Session, until func(*genai.LiveServerMessage) bool) sdkTurn {
	t.Helper()
	var turn sdkTurn
	for {
		m, err := session.Receive()
		if err != nil {
			t.Fatal(err)
		}
		if c := m.ServerContent; c != nil {
			if c.ModelTurn != nil {
				for _, p := range c.ModelTurn.Parts {
					if p.InlineData != nil {
						for i := 0; i+1 < len(p.InlineData.Data); i += 2 {
							turn.pcm = append(turn.pcm, int16(uint16(p.InlineData.Data[i])|uint16(p.InlineData.Data[i+1])<<8))
						}
					}
				}
			}
			if c.InputTranscription != nil {
				turn.heard += c.InputTranscription.Text
			}
			if c.OutputTranscription != nil {
				turn.text += c.OutputTranscription.Text
			}
			turn.interruption = turn.interruption || c.Interrupted
		}
		if m.UsageMetadata != nil {
			turn.usage = m.UsageMetadata
		}
		if m.ToolCall != nil {
			turn.calls = m.ToolCall.FunctionCalls
		}
		if until(m) {
			return turn
		}
	}
}

func complete(m *genai.LiveServerMessage) bool {
	return m.ServerContent != nil && m.ServerContent.TurnComplete
}

func TestSDKLive(t *testing.T) {
	client := sdk(t, live(serve(t, silent)), "key", "v1beta")
	session, err := client.Live.Connect(t.Context(), "gemini-3.8-live", &genai.LiveConnectConfig{
		ResponseModalities:       []genai.Modality{genai.ModalityAudio},
		InputAudioTranscription:  &genai.AudioTranscriptionConfig{},
		OutputAudioTranscription: &genai.AudioTranscriptionConfig{},
		SessionResumption:        &genai.SessionResumptionConfig{},
		SpeechConfig:             &genai.SpeechConfig{VoiceConfig: &genai.VoiceConfig{PrebuiltVoiceConfig: &genai.PrebuiltVoiceConfig{VoiceName: "Aoede"}}},
		SystemInstruction:        genai.NewContentFromText("Be brief.", genai.RoleUser),
		ContextWindowCompression: &genai.ContextWindowCompressionConfig{TriggerTokens: new(int64(25600)), SlidingWindow: &genai.SlidingWindow{}},
		Tools: []*genai.Tool{{FunctionDeclarations: []*genai.FunctionDeclaration{{
			Name: "weather", Description: "d",
			Parameters: &genai.Schema{Type: genai.TypeObject, Properties: map[string]*genai.Schema{"my_city": {Type: genai.TypeString}}},
		}}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer session.Close()

	for piece := range slices.Chunk(slices.Concat(tone(16000, 440, time.Second), make([]int16, 16000)), 320) {
		if err := session.SendRealtimeInput(genai.LiveRealtimeInput{Audio: &genai.Blob{Data: littleEndian(piece), MIMEType: "audio/pcm;rate=16000"}}); err != nil {
			t.Fatal(err)
		}
	}
	turn := receive(t, session, complete)
	if mediatest.ToneLevel(turn.pcm, 24000, 440) < 0.5 || turn.usage == nil || !strings.Contains(turn.heard, "of speech") || !strings.HasPrefix(turn.text, "You said") {
		t.Errorf("heard %q, says %q, usage %v", turn.heard, turn.text, turn.usage)
	}

	if err := session.SendClientContent(genai.LiveClientContentInput{
		Turns: []*genai.Content{genai.NewContentFromText(`/tool weather {"my_city":"Rome"}`, genai.RoleUser)},
	}); err != nil {
		t.Fatal(err)
	}
	turn = receive(t, session, complete)
	if len(turn.calls) != 1 || turn.calls[0].Args["my_city"] != "Rome" {
		t.Fatalf("calls %+v", turn.calls)
	}
	if err := session.SendToolResponse(genai.LiveToolResponseInput{FunctionResponses: []*genai.FunctionResponse{
		{ID: turn.calls[0].ID, Name: "weather", Response: map[string]any{"output": "sunny"}, Scheduling: genai.FunctionResponseSchedulingInterrupt},
	}}); err != nil {
		t.Fatal(err)
	}
	if turn = receive(t, session, complete); !strings.Contains(turn.text, `{"output":"sunny"}`) {
		t.Errorf("says %q", turn.text)
	}
}
