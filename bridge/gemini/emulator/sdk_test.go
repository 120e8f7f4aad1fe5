package emulator_test

import (
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/genai"

	"voxgate/bridge/gemini/emulator"
	"voxgate/internal/testkit/mediatest"
)

type sdkTurn struct {
	pcm         []int16
	text, heard string
	calls       []*genai.FunctionCall
	usage       *genai.UsageMetadata
}

// receive collects until a turn is complete.
func receive(t *testing.T, session *genai.Session) sdkTurn {
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
		}
		if m.UsageMetadata != nil {
			turn.usage = m.UsageMetadata
		}
		if m.ToolCall != nil {
			turn.calls = m.ToolCall.FunctionCalls
		}
		if m.ServerContent != nil && m.ServerContent.TurnComplete {
			return turn
		}
	}
}

func TestSDKLive(t *testing.T) {
	e := emulator.New(silent)
	server := httptest.NewServer(e)
	t.Cleanup(func() { e.Close(); server.Close() })
	client, err := genai.NewClient(t.Context(), &genai.ClientConfig{
		Backend: genai.BackendGeminiAPI, APIKey: "key",
		HTTPOptions: genai.HTTPOptions{BaseURL: strings.Replace(server.URL, "http", "ws", 1), APIVersion: "v1beta"},
	})
	if err != nil {
		t.Fatal(err)
	}
	session, err := client.Live.Connect(t.Context(), "gemini-3.8-live", &genai.LiveConnectConfig{
		ResponseModalities:       []genai.Modality{genai.ModalityAudio},
		InputAudioTranscription:  &genai.AudioTranscriptionConfig{},
		OutputAudioTranscription: &genai.AudioTranscriptionConfig{},
		SessionResumption:        &genai.SessionResumptionConfig{},
		SpeechConfig: &genai.SpeechConfig{
			VoiceConfig: &genai.VoiceConfig{PrebuiltVoiceConfig: &genai.PrebuiltVoiceConfig{VoiceName: "Aoede"}},
		},
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
		if err := session.SendRealtimeInput(genai.LiveRealtimeInput{Audio: &genai.Blob{
			Data:     littleEndian(piece),
			MIMEType: "audio/pcm;rate=16000",
		}}); err != nil {
			t.Fatal(err)
		}
	}
	turn := receive(t, session)
	if mediatest.ToneLevel(turn.pcm, 24000, 440) < 0.5 || turn.usage == nil || !strings.Contains(turn.heard, "of speech") ||
		!strings.HasPrefix(turn.text, "You said") {
		t.Errorf("heard %q, says %q, usage %v", turn.heard, turn.text, turn.usage)
	}

	if err := session.SendClientContent(genai.LiveClientContentInput{
		Turns: []*genai.Content{genai.NewContentFromText(`/tool weather {"my_city":"Rome"}`, genai.RoleUser)},
	}); err != nil {
		t.Fatal(err)
	}
	turn = receive(t, session)
	if len(turn.calls) != 1 || turn.calls[0].Args["my_city"] != "Rome" {
		t.Fatalf("calls %+v", turn.calls)
	}
	if err := session.SendToolResponse(genai.LiveToolResponseInput{FunctionResponses: []*genai.FunctionResponse{
		{
			ID: turn.calls[0].ID, Name: "weather", Response: map[string]any{"output": "sunny"},
			Scheduling: genai.FunctionResponseSchedulingInterrupt,
		},
	}}); err != nil {
		t.Fatal(err)
	}
	if turn = receive(t, session); !strings.Contains(turn.text, `{"output":"sunny"}`) {
		t.Errorf("says %q", turn.text)
	}
}
