package mediastream

import (
	"maps"
	"slices"
)

// Profiles returns the names of all supported providers.
func Profiles() []string { return slices.Sorted(maps.Keys(profiles)) }
