// Package assistant provides the tools of the VOX assistant, which helps a user to build web applications by talking.
// It contains a registry of developer tools, the project of a conversation, and the workspace that stores generated
// apps.
package assistant

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
	Role        string   `json:"role"`   // its role in a project, in a few words for users
	Domain      string   `json:"domain"` // one of Domains
	Description string   `json:"description"`
	Tags        []string `json:"tags"`
	Homepage    string   `json:"homepage"`
	Package     string   `json:"package"`  // its name in Registry
	Registry    string   `json:"registry"` // npm, pypi, go or crates
	Add         string   `json:"add"`      // the command that adds it to a project
}

// Domains lists the domains of the registry. It must not be changed.
var Domains = []string{"general", "saas", "ai-ml", "music", "gaming", "productivity", "social", "ecommerce"}

//go:embed registry.json
var registryFile []byte

// registry holds registry.json, which TestRegistry validates.
var registry = func() (entries []Entry) {
	if err := json.Unmarshal(registryFile, &entries); err != nil {
		panic(fmt.Sprintf("vox/assistant/registry.json: %v", err))
	}
	return entries
}()

// Size returns the number of entries of the registry.
func Size() int { return len(registry) }

// need describes something that a project may need. Its Tools are the recommended tools for that, the best first.
type need struct {
	Need  string   `json:"need"`
	Words []string `json:"words"` // indicate the need; dashes separate the words of a phrase
	Tools []string `json:"tools"` // IDs of the recommended tools
	Needs []string `json:"needs"` // for a kind of project: the needs that it implies, in place of Tools
	First bool     `json:"first"` // its tools go first, because the need leaves little choice, such as a language or a service
	Last  bool     `json:"last"`  // its tools go last, because every project has the need, such as a page
}

//go:embed needs.json
var needsFile []byte

// needs holds needs.json, which TestNeeds validates.
var needs = func() (list []need) {
	if err := json.Unmarshal(needsFile, &list); err != nil {
		panic(fmt.Sprintf("vox/assistant/needs.json: %v", err))
	}
	return list
}()

// Find returns the entry with an ID or name, ignoring case.
func Find(id string) (e Entry, ok bool) {
	id = strings.TrimSpace(id)
	for _, e := range registry {
		if strings.EqualFold(e.ID, id) || strings.EqualFold(e.Name, id) {
			return e, true
		}
	}
	return Entry{}, false
}
