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
		raw := make([]byte, 0, 640)
		for _, s := range piece {
			raw = append(raw, byte(s), byte(uint16(s)>>8))
		}
		if err := session.SendRealtimeInput(genai.LiveRealtimeInput{Audio: &genai.Blob{Data: raw, MIMEType: "audio/pcm;rate=16000"}}); err != nil {
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

func TestSDKTokens(t *testing.T) {
	base := serve(t, silent)
	config := &genai.CreateAuthTokenConfig{LiveConnectConstraints: &genai.LiveConnectConstraints{
		Model: "gemini-3.8-live", Config: &genai.LiveConnectConfig{OutputAudioTranscription: &genai.AudioTranscriptionConfig{}},
	}}
	token, err := sdk(t, base, "key", "v1alpha").AuthTokens.Create(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	client := sdk(t, live(base), token.Name, "v1alpha")
	session, err := client.Live.Connect(t.Context(), "gemini-of-the-client", nil) // the token's model holds
	if err != nil {
		t.Fatal(err)
	}
	defer session.Close()
	if err := session.SendRealtimeInput(genai.LiveRealtimeInput{Text: "hello"}); err != nil {
		t.Fatal(err)
	}
	if turn := receive(t, session, complete); turn.text != "You said: hello" {
		t.Errorf("says %q: the token's setup is not in force", turn.text)
	}
	if _, err := client.Live.Connect(t.Context(), "gemini-3.8-live", nil); err == nil {
		t.Error("a token for one use was used twice")
	}
	if _, err := sdk(t, live(base), "auth_tokens/of-nobody", "v1alpha").Live.Connect(t.Context(), "gemini-3.8-live", nil); err == nil {
		t.Error("a token of nobody was accepted")
	}
}

func TestSDKREST(t *testing.T) {
	client := sdk(t, serve(t, silent)+"/prefix", "key", "v1beta")
	ask := genai.Text("good day")
	answer, err := client.Models.GenerateContent(t.Context(), "gemini-3.8-flash", ask, nil)
	if err != nil || answer.Text() != "You said: good day" || answer.Candidates[0].FinishReason != genai.FinishReasonStop {
		t.Errorf("%+v, %v", answer, err)
	}
	text, last := "", genai.FinishReason("")
	for piece, err := range client.Models.GenerateContentStream(t.Context(), "gemini-3.8-flash", ask, nil) {
		if err != nil {
			t.Fatal(err)
		}
		text += piece.Text()
		last = piece.Candidates[0].FinishReason
	}
	if text != "You said: good day" || last != genai.FinishReasonStop {
		t.Errorf("streamed %q, %q", text, last)
	}
	if count, err := client.Models.CountTokens(t.Context(), "gemini-3.8-flash", ask, nil); err != nil || count.TotalTokens == 0 {
		t.Errorf("%+v, %v", count, err)
	}
	if page, err := client.Models.List(t.Context(), nil); err != nil || len(page.Items) == 0 {
		t.Errorf("%+v, %v", page, err)
	}
	if model, err := client.Models.Get(t.Context(), "gemini-3.8-live", nil); err != nil || model.Name != "models/gemini-3.8-live" {
		t.Errorf("%+v, %v", model, err)
	}
}
