package liveconfig_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"voxgate/bridge/gemini/api"
	"voxgate/bridge/gemini/liveconfig"
)

func TestModelNames(t *testing.T) {
	for _, c := range []struct {
		asked  string
		vertex bool
		want   string // "": refused
		warns  string
	}{
		{"", false, api.DefaultModel, ""},
		{"", true, api.DefaultModel, ""},
		{"models/gemini-3.8-live", true, "gemini-3.8-live", ""},
		{"publishers/google/models/gemini-3.8-live", true, "gemini-3.8-live", ""},
		{"projects/p/locations/l/publishers/google/models/gemini-3.8-live", false, "gemini-3.8-live", ""},
		{"gemini-2.0-flash-live-001", true, api.DefaultModel, "shut down"},
		{"gemini-2.0-flash-exp", false, api.DefaultModel, "shut down"},
		{"gemini-live-2.5-flash-preview", true, api.DefaultModel, "shut down"},
		{"gemini-live-2.5-flash-preview-native-audio-09-2025", true, "gemini-live-2.5-flash-preview-native-audio-09-2025", ""},
		{"gemini-live-2.5-flash-preview-native-audio-09-2025", false, "gemini-2.5-flash-native-audio-preview-12-2025", "is called"},
		{"gemini-live-2.5-flash-native-audio", false, "gemini-2.5-flash-native-audio-preview-12-2025", "is called"},
		{"gemini-2.5-flash-native-audio-latest", true, "gemini-live-2.5-flash-native-audio", "is called"},
		{"gemini-2.5-flash-native-audio-latest", false, "gemini-2.5-flash-native-audio-latest", ""},
		{"gemini-live-2.5-flash", false, "", ""},
		{"gemini-3.1-flash-live-preview", true, "", ""},
		{"gemini-3.8-live-extended-thinking", true, "", ""},
		{"gemini-3.5-transcribe-live", true, "gemini-3.5-transcribe-live-preview", "is called"},
		{"gemini-3.5-transcribe-live-preview", false, "gemini-3.5-transcribe-live", "is called"},
		{"gemini-9-live", false, "gemini-9-live", ""},
		{"gemini-9-live", true, "gemini-9-live", ""},
		{"tunedModels/mine", false, "tunedModels/mine", ""},
		{"projects/a-project/locations/l/endpoints/7", true, "projects/a-project/locations/l/endpoints/7", ""},
		{"projects/another/locations/l/endpoints/7", true, "", ""},
		{"projects/a-project/locations/l/endpoints/7", false, "", ""},
	} {
		config, err := liveconfig.Parse(named(c.asked, `{}`), "c", liveconfig.Scope{Vertex: door(c.vertex).Vertex, Screen: true})
		if c.want == "" {
			if wrong, ok := errors.AsType[*liveconfig.FieldError](err); !ok || wrong.Field != "c.model" {
				t.Errorf("%s on Vertex %v: %v, want an error", c.asked, c.vertex, err)
			}
			continue
		}
		if err != nil || config.Model != c.want || !strings.Contains(strings.Join(config.Warnings, " "), c.warns) ||
			(c.warns == "") != (config.Warnings == nil) {
			t.Errorf("%s on Vertex %v: %s %q %v", c.asked, c.vertex, config.Model, config.Warnings, err)
		}
	}
}

func TestIsLive(t *testing.T) {
	for name, want := range map[string]bool{
		"": true, "gemini-3.8-live": true, "models/gemini-3.8-live": true, "gemini-2.5-flash-native-audio-preview-12-2025": true,
		"gemini-2.0-flash-exp": true, "gemini-9-live": true, "gemini-3.8-flash": false, "gpt-6-astra": false, "qwen-live": true, "alive": false,
	} {
		if got := liveconfig.IsLive(name); got != want {
			t.Errorf("%q: %v", name, got)
		}
	}
}

// TestModels: each model that a page offers is accepted by that name, and speaks.
func TestModels(t *testing.T) {
	want := map[bool][]string{
		false: {
			"gemini-3.8-live",
			"gemini-3.5-live-translate",
			"gemini-3.8-live-extended-thinking",
			"gemini-3.1-flash-live-preview",
			"gemini-2.5-flash-native-audio-preview-12-2025",
		},
		true: {"gemini-3.8-live", "gemini-3.5-live-translate", "gemini-live-2.5-flash", "gemini-live-2.5-flash-native-audio"},
	}
	for vertex, want := range want {
		got := liveconfig.Models(vertex)
		if !slices.Equal(got, want) {
			t.Errorf("vertex %v: %q", vertex, got)
		}
		for _, name := range got {
			config, err := liveconfig.Parse(named(name, `{}`), "c", liveconfig.Scope{Vertex: door(vertex).Vertex, Screen: true})
			if err != nil || config.Model != name || config.Warnings != nil {
				t.Errorf("%s is served as %q: %q %v", name, config.Model, config.Warnings, err)
			}
		}
	}
}
