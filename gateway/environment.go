package main

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"voxgate/internal/environment"
)

// envPrefix begins the names of all environment variables of the gateway, except Google's.
const envPrefix = "VOXGATE_"

// envName returns the environment variable of a flag.
func envName(flagName string) string {
	return envPrefix + strings.ToUpper(strings.ReplaceAll(flagName, "-", "_"))
}

// variables holds environment variables by name.
type variables map[string]string

// readEnvironment parses the pairs that os.Environ returns.
func readEnvironment(pairs []string) variables {
	v := variables{}
	for _, pair := range pairs {
		name, value, _ := strings.Cut(pair, "=")
		v[name] = value
	}
	return v
}

// filterAndClean returns the variables that the program reads. It cleans the values with [environment.CleanValue],
// because files and tools may leave white space around them.
func (v variables) filterAndClean() (variables, error) {
	cleaned := variables{}
	for _, name := range slices.Sorted(maps.Keys(v)) {
		if !strings.HasPrefix(name, envPrefix) && !strings.HasPrefix(name, "GEMINI_") && !strings.HasPrefix(name, "GOOGLE_") {
			continue
		}
		value, err := environment.CleanValue(name, v[name])
		if err != nil {
			return nil, err
		}
		cleaned[name] = value
	}
	return cleaned, nil
}

// otherVariables lists the environment variables that only commands other than serve read.
var otherVariables = []string{"VOXGATE_CHECK_TOKEN", "VOXGATE_CHECK_KEY"}

// serviceVariable matches variables that Kubernetes sets in every container of a namespace with a service named "voxgate" or "voxgate-…".
var serviceVariable = regexp.MustCompile(`^VOXGATE_(.*_)?(SERVICE_(HOST|PORT)(_.*)?|PORT_[0-9]+_(TCP|UDP|SCTP)(_.*)?|PORT)$`)

// isSetByKubernetes reports whether Kubernetes has set a variable. A variable VOXGATE_…_PORT could also be a misspelt
// setting, but Kubernetes sets it to a URL.
func isSetByKubernetes(name, value string) bool {
	return serviceVariable.MatchString(name) && (!strings.HasSuffix(name, "_PORT") || strings.Contains(value, "://") ||
		strings.HasSuffix(name, "_SERVICE_PORT"))
}

// findUnknown returns a sentence for each variable that begins with VOXGATE_ and is not a setting.
func (v variables) findUnknown(known []string) (sentences []string) {
	for _, name := range slices.Sorted(maps.Keys(v)) {
		if !strings.HasPrefix(name, envPrefix) || slices.Contains(known, name) || slices.Contains(otherVariables, name) ||
			isSetByKubernetes(name, v[name]) {
			continue
		}
		sentence := name + " is not a setting"
		nearest := slices.MinFunc(known, func(a, b string) int { return editDistance(name, a) - editDistance(name, b) })
		if editDistance(name, nearest) <= 3 {
			sentence += fmt.Sprintf("; did you mean %s?", nearest)
		}
		sentences = append(sentences, sentence)
	}
	return sentences
}

// editDistance returns the number of bytes to insert, delete or replace to turn text a into b (Levenshtein).
func editDistance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			replaced := diagonal
			if a[i] != b[j] {
				replaced++
			}
			diagonal = row[j+1]
			row[j+1] = min(replaced, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
