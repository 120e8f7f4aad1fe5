package liveconfig

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"voxgate/bridge/gemini/api"
)

var modelName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._/:@-]{0,199}$`)

// chooseModel reads the name of the model, and selects its row in the table models. An unsuitable name is a
// *FieldError.
func (p *parser) chooseModel(fields map[string]any) error {
	requested := api.DefaultModel
	wrong := func(problem string) error { return &FieldError{Field: p.path + ".model", Problem: problem} }
	switch name := fields["model"].(type) {
	case nil:
	case string:
		if name = shortName(name); name == "" {
			break
		}
		if !modelName.MatchString(name) {
			return wrong("is not the name of a model")
		}
		if p.scope.TextModels && !IsLive(name) {
			p.row, p.Model, p.Profile = textModelRow, name, textModelRow.Profile
			delete(fields, "model")
			return nil
		}
		// A full name (with a slash) belongs to a tuned model. The gateway's credentials may give access to other
		// projects, which the client must not choose.
		if p.backend == vertexAI && strings.Contains(name, "/") && !strings.HasPrefix(name, "projects/"+p.project+"/") {
			return wrong("is not a model of the gateway's project")
		}
		if p.backend == geminiAPI && strings.HasPrefix(name, "projects/") {
			return wrong("is not a model of the Gemini API")
		}
		requested = name
	default:
		return wrong("must be a string")
	}
	delete(fields, "model")
	p.row, p.Model = rowOf(requested, p.backend)
	switch {
	case p.Model == "":
		return wrong(fmt.Sprintf("%s is not a model of %s", requested, p.backend))
	case p.Model == requested:
	case isRetired(requested):
		p.warnf("The model %s was shut down; %s is used in its place.", requested, p.Model)
	default:
		p.warnf("The model %s is called %s on %s.", requested, p.Model, p.backend)
	}
	p.Profile = p.row.Profile
	p.scope.Findings[p.Model].apply(&p.Profile)
	return nil
}

// publisherPrefix matches the part before a model's short name in full names of Google's models on Vertex AI.
var publisherPrefix = regexp.MustCompile(`^(projects/[^/]+/locations/[^/]+/)?publishers/google/models/`)

// shortName removes the prefixes of both backends from the name of a model.
func shortName(name string) string {
	name = publisherPrefix.ReplaceAllString(name, "")
	for strings.HasPrefix(name, "models/") {
		name = name[len("models/"):]
	}
	return name
}

// fullName returns the model's name for a setup of the Gemini API. Names with a slash, such as "tunedModels/x", are full.
func fullName(model string) string {
	if strings.Contains(model, "/") {
		return model
	}
	return "models/" + model
}

// rowOf returns the row of a model on a backend, and the model's name there. The name is "" if the backend does not
// have the model. For a retired model, the row and the name are those of api.DefaultModel.
func rowOf(model string, on backend) (row, string) {
	var other *row
	for i := range models {
		r := &models[i]
		switch {
		case !strings.HasPrefix(model, r.prefix):
		case r.on&on == 0:
			if other == nil {
				other = r
			}
		case other != nil && len(other.prefix) > len(r.prefix):
			// A longer prefix matched in a row of the other backend, so the model belongs to that backend.
			if other.twin == "" {
				return *other, ""
			}
			return rowOf(other.twin, on)
		case r.retired:
			return rowOf(api.DefaultModel, on)
		default:
			return *r, model
		}
	}
	return row{}, "" // unreachable: the last row matches all
}

// IsLive reports whether a model belongs to the Live API, judging by its name. This includes retired models.
func IsLive(name string) bool {
	name = shortName(name)
	isKnown := slices.ContainsFunc(models, func(r row) bool { return r.prefix != "" && strings.HasPrefix(name, r.prefix) })
	return name == "" || isKnown || strings.Contains(name, "-live") || strings.Contains(name, "native-audio")
}

// Models returns the names of the models in the table that speak, for one backend: the default first, then from the
// newest to the oldest.
func Models(vertex bool) []string {
	on := geminiAPI
	if vertex {
		on = vertexAI
	}
	names := []string{api.DefaultModel}
	for _, r := range slices.Backward(models) {
		if r.on&on == 0 || r.retired || r.prefix == "" || r.output&voiceOutput == 0 {
			continue
		}
		if name := cmp.Or(r.whole, r.prefix); !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names
}

// isRetired reports whether the model was shut down.
func isRetired(model string) bool {
	for i := range models {
		if strings.HasPrefix(model, models[i].prefix) {
			return models[i].retired
		}
	}
	return false
}
