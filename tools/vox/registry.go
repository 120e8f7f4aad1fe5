// Package vox has the tools of the VOX assistant, which helps a person to build web applications by talking: the registry of
// developer tools that it knows, the project of a conversation, and the workspace that keeps the apps it generates.
package vox

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"strings"
)

// Entry is a developer tool or library of the registry.
type Entry struct {
	ID          string   `json:"id"`
	Name        string   `json:"name"`
	Role        string   `json:"role"`   // what it is in a project, in a few words for people
	Domain      string   `json:"domain"` // one of Domains
	Description string   `json:"description"`
	Tags        []string `json:"tags"`
	Homepage    string   `json:"homepage"`
	Package     string   `json:"package"`  // its name in Registry
	Registry    string   `json:"registry"` // npm, pypi, go or crates
	Add         string   `json:"add"`      // the command that adds it to a project
}

// Domains are the fields that the registry covers. They must not be changed.
var Domains = []string{"general", "saas", "ai-ml", "music", "gaming", "productivity", "social", "ecommerce"}

//go:embed registry.json
var registryFile []byte

// registry is registry.json. TestRegistry checks it, so that a mistake in it does not get as far as here.
var registry = func() (entries []Entry) {
	if err := json.Unmarshal(registryFile, &entries); err != nil {
		panic(fmt.Sprintf("tools/vox/registry.json: %v", err))
	}
	return entries
}()

// Size is how many entries the registry has.
func Size() int { return len(registry) }

// need is something that people ask for, and the tools that an engineer takes for it, the best first.
type need struct {
	Need  string   `json:"need"`
	Words []string `json:"words"` // that tell of it; one with a dash is of several words that stand together
	Tools []string `json:"tools"` // ids
	First bool     `json:"first"` // it leaves little choice, as a language or a service does: its tools go first
}

//go:embed needs.json
var needsFile []byte

// needs is needs.json. TestNeeds checks it.
var needs = func() (list []need) {
	if err := json.Unmarshal(needsFile, &list); err != nil {
		panic(fmt.Sprintf("tools/vox/needs.json: %v", err))
	}
	return list
}()

// Find returns the entry with an id or a name; capitals do not matter.
func Find(id string) (Entry, bool) {
	id = strings.TrimSpace(id)
	for _, e := range registry {
		if strings.EqualFold(e.ID, id) || strings.EqualFold(e.Name, id) {
			return e, true
		}
	}
	return Entry{}, false
}
