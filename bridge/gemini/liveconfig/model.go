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
		// A name with a slash is a full name, which may include a project. The gateway's credentials may also give
		// access to other people's projects, and the client must not choose one of those.
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
	p.row, p.Model = findModelRow(requested, p.backend)
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

// publisherPrefix matches the part of a full Vertex AI name that comes before the model's short name.
var publisherPrefix = regexp.MustCompile(`^(projects/[^/]+/locations/[^/]+/)?publishers/google/models/`)

// shortName removes the prefixes of both backends from the name of a model.
func shortName(name string) string {
	name = publisherPrefix.ReplaceAllString(name, "")
	for strings.HasPrefix(name, "models/") {
		name = name[len("models/"):]
	}
	return name
}

// fullName returns the model's name for a setup of the Gemini API. It does not change names with a slash, such as
// "tunedModels/x", because they are full names.
func fullName(model string) string {
	if strings.Contains(model, "/") {
		return model
	}
	return "models/" + model
}

// findModelRow returns the row of a model on a backend, and the model's name there. nameThere is "" if the backend does
// not have the model. For a retired model, the row and the name are those of api.DefaultModel.
func findModelRow(model string, wantedBackend backend) (r row, nameThere string) {
	var other *row
	for i := range models {
		candidate := &models[i]
		switch {
		case !strings.HasPrefix(model, candidate.prefix):
		case candidate.on&wantedBackend == 0:
			if other == nil {
				other = candidate
			}
		case other != nil && len(other.prefix) > len(candidate.prefix):
			// A longer prefix matched in a row of the other backend, so the model belongs to that backend.
			if other.twin == "" {
				return *other, ""
			}
			return findModelRow(other.twin, wantedBackend)
		case candidate.retired:
			return findModelRow(api.DefaultModel, wantedBackend)
		default:
			return *candidate, model
		}
	}
	return row{}, "" // unreachable: the last row matches all
}

// IsLive reports whether a model belongs to the Live API, judging by its name. It returns true for retired Live models,
// too.
func IsLive(name string) bool {
	name = shortName(name)
	isKnown := slices.ContainsFunc(models, func(r row) bool { return r.prefix != "" && strings.HasPrefix(name, r.prefix) })
	return name == "" || isKnown || strings.Contains(name, "-live") || strings.Contains(name, "native-audio")
}

// Models returns the names of the models that can speak on one backend. The default model comes first, the others from
// the newest to the oldest.
func Models(isVertex bool) []string {
	on := geminiAPI
	if isVertex {
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
