package vox

// Search returns the entries that fit a query best, the best first; most of them at most. Domain is one of Domains, or "" for all.
// Nothing that fits is nil.
func Search(query, domain string, most int) []Entry {
	return nil
}

func recommended(summary string, s Status, most int) []Entry { return nil }
