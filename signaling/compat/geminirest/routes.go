package geminirest

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path"
	"strings"

	"voxgate/internal/environment"
)

// Route is an entry of the models file. It assigns models to a backend.
type Route struct {
	Model  string  `json:"model"`            // a name, or a pattern of path.Match: "gpt-*", "*"
	OpenAI *OpenAI `json:"openai,omitempty"` // nil for the Gemini API, Vertex AI or the emulator
}

// OpenAI configures a server with the chat completions API.
type OpenAI struct {
	URL   string `json:"url"`             // base URL with the version: "https://api.openai.com/v1"
	Key   string `json:"key,omitempty"`   // "${NAME}" is replaced by an environment variable; no key is sent if empty
	Model string `json:"model,omitempty"` // name of the model on that server; defaults to the requested name
}

// ReadRoutes reads the models file: {"models": [Route, …]}. The first matching route applies.
func ReadRoutes(file string) ([]Route, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	var all struct {
		Models []Route `json:"models"`
	}
	dec := json.NewDecoder(strings.NewReader(string(text)))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&all); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	for i := range all.Models {
		if err := all.Models[i].expandAndValidate(); err != nil {
			return nil, fmt.Errorf("%s: models[%d].%w", file, i, err)
		}
	}
	return all.Models, nil
}

// expandAndValidate expands the environment variable in the key. It returns an error if the route is invalid.
func (r *Route) expandAndValidate() error {
	if _, err := path.Match(r.Model, ""); err != nil || r.Model == "" {
		return fmt.Errorf("model %q is no name and no pattern", r.Model)
	}
	o := r.OpenAI
	if o == nil {
		return nil
	}
	if u, err := url.Parse(o.URL); err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" || u.User != nil {
		return errors.New("openai.url must be http://host/v1 or https://host/v1, without a user")
	}
	if name, ok := strings.CutPrefix(o.Key, "${"); ok && strings.HasSuffix(name, "}") {
		name = strings.TrimSuffix(name, "}")
		var err error
		if o.Key, err = environment.Lookup(name); err != nil {
			return fmt.Errorf("openai.key: %w", err)
		}
	}
	return nil
}

// backendFor returns the backend for a model.
func (s *Server) backendFor(model string) backend {
	for _, r := range s.routes {
		if ok, _ := path.Match(r.model, model); ok {
			return r.backend
		}
	}
	return s.google
}

type route struct {
	model   string
	backend backend
}

func makeRoutes(routes []Route, google backend, client *http.Client) (list []route) {
	for _, r := range routes {
		to := google
		if r.OpenAI != nil {
			to = newChatBackend(*r.OpenAI, client)
		}
		list = append(list, route{r.Model, to})
	}
	return list
}
