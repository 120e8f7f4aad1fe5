package setup

import (
	"fmt"
	"strings"
)

// modalities decides what the model answers in.
func (p *parser) modalities(setup, generation, asked map[string]any) error {
	path := p.path + ".generationConfig.responseModalities"
	var text, audio, video bool
	list, _ := generation["responseModalities"].([]any)
	for i, m := range list {
		switch strings.ToUpper(m.(string)) {
		case "TEXT":
			text = true
		case "AUDIO":
			audio = true
		case "VIDEO":
			switch {
			case p.row.output&shows == 0:
				p.warnf("%s[%d] was dropped: %s has no avatar.", path, i, p.Model)
			case setup["avatarConfig"] == nil:
				p.warnf("%s[%d] was dropped: there is no avatarConfig.", path, i)
			default:
				video = true
			}
		case "IMAGE":
			p.warnf("%s[%d] was dropped: a live model answers with speech, not with images.", path, i)
		case "", "MODALITY_UNSPECIFIED":
		default:
			return &FieldError{Field: fmt.Sprintf("%s[%d]", path, i), Problem: `must be "AUDIO" or "TEXT"`}
		}
	}
	modality := "AUDIO"
	switch {
	case p.row.output&speaks == 0:
		modality = "TEXT"
		if audio {
			p.warnf("%s became TEXT: %s does not speak.", path, p.Model)
		}
	case video:
		modality = "VIDEO"
		p.TextToo = text
	case text && !audio && p.row.output&writes != 0:
		modality = "TEXT"
	default: // one modality is all a session has
		p.TextOnly, p.TextToo = text && !audio, text && audio
	}
	generation["responseModalities"] = []any{modality}
	if modality == "TEXT" {
		delete(setup, "outputAudioTranscription") // there is no voice to transcribe
	}
	if (p.TextOnly || p.TextToo) && setup["outputAudioTranscription"] == nil {
		setup["outputAudioTranscription"] = map[string]any{}
		if value, given := asked["outputAudioTranscription"]; given && value == nil {
			p.warnf("%s.outputAudioTranscription stays on: the text of %s is its transcript.", p.path, p.Model)
		}
	}
	return nil
}
