// Package environment reads environment variables and expands ${NAME} in configuration files.
//
// Secrets come from Kubernetes secrets, Docker's --env-file and shell scripts, which may add newlines, carriage
// returns, blanks or quotation marks. If such a value were used unchanged, the gateway would start, but its secret
// would differ from the secret of the other side.
package environment

import (
	"fmt"
	"os"
	"regexp"
	"strings"
	"unicode"
)

// CleanValue trims the value of an environment variable. It fails if a control character or quotation marks remain:
// valid settings have none. The error never contains the value.
func CleanValue(name, value string) (string, error) {
	value = strings.TrimSpace(strings.TrimPrefix(value, "\ufeff"))
	if i := strings.IndexFunc(value, unicode.IsControl); i >= 0 {
		return "", fmt.Errorf("%s contains the control character %q", name, []rune(value[i:])[0])
	}
	if n := len(value); n >= 2 && (value[0] == '"' || value[0] == '\'') && value[n-1] == value[0] {
		return "", fmt.Errorf("%s is in quotation marks: leave them out (docker --env-file keeps them)", name)
	}
	return value, nil
}

// Lookup returns the cleaned value of a variable. It fails if the variable is not set.
func Lookup(name string) (string, error) {
	value, ok := os.LookupEnv(name)
	if !ok {
		return "", fmt.Errorf("environment variable %s is not set", name)
	}
	return CleanValue(name, value)
}

var reference = regexp.MustCompile(`\$\{[A-Za-z_][A-Za-z0-9_]*\}`)

// Expand replaces each ${NAME} in text by the cleaned value of the variable.
func Expand(text string) (string, error) {
	return ExpandAs(text, func(value string) string { return value })
}

// ExpandAs is like [Expand], but quotes the values with quote.
func ExpandAs(text string, quote func(value string) string) (string, error) {
	var failed error
	text = reference.ReplaceAllStringFunc(text, func(r string) string {
		value, err := Lookup(r[2 : len(r)-1])
		if err != nil {
			failed = err
		}
		return quote(value)
	})
	return text, failed
}
