package telephony

import (
	"maps"
	"slices"
)

// Profiles returns the names of all providers that are served.
func Profiles() []string { return slices.Sorted(maps.Keys(profiles)) }
