package vox

import (
	"cmp"
	"encoding/json"
	"math"
	"slices"
	"strings"
	"sync"
	"unicode"

	"github.com/kljensen/snowball/english"
	"golang.org/x/text/unicode/norm"

	"voxgate/tools"
)

// The registry is ranked by BM25 of our own, on the stems of Snowball's English stemmer. The full-text index bleve v2.6.3 ranks the
// same way and was tried: it makes the gateway 10 MB (a quarter) larger and brings 80 packages, for 158 entries of one sentence; this
// whole package makes it 0.4 MB larger. A library of BM25 alone that is kept was not found.

// bm25K1 and bm25B are BM25's usual constants: S. Robertson and H. Zaragoza, The Probabilistic Relevance Framework: BM25 and
// Beyond, 2009, 3.2.
const (
	bm25K1 = 1.2
	bm25B  = 0.75
)

// A word in the name or the tags of an entry says more of it than one in its description (BM25F, the same work, 3.6). The domain
// counts least: all entries of it have it.
const (
	nameWeight        = 3
	tagWeight         = 2
	descriptionWeight = 1
	domainWeight      = 0.5
)

// contextWeight is what a word of the client's context counts for a recommendation; one of the summary, which is newer, counts 1.
const contextWeight = 0.3

// index is what BM25 needs to know of the registry.
type index struct {
	terms   []map[string]float64 // of each entry: how often it has a term, by weight
	length  []float64            // of each entry: the sum of these
	average float64              // of length
	having  map[string]float64   // how many entries have a term
}

var registryIndex = sync.OnceValue(func() *index {
	x := &index{having: map[string]float64{}}
	for _, e := range registry {
		terms := map[string]float64{}
		note := func(found []string, weight float64) {
			for _, t := range found {
				terms[t] += weight
			}
		}
		note(unique(termsOf(e.Name+" "+e.ID)), nameWeight) // one name in two spellings
		note(termsOf(strings.Join(e.Tags, " ")), tagWeight)
		note(termsOf(e.Description), descriptionWeight)
		note(termsOf(e.Domain), domainWeight)
		length := 0.0
		for t, n := range terms {
			x.having[t]++
			length += n
		}
		x.terms, x.length, x.average = append(x.terms, terms), append(x.length, length), x.average+length/float64(len(registry))
	}
	return x
})

// score is how well an entry of the registry fits the terms of a query; 0: not at all.
func (x *index) score(entry int, query []string) (sum float64) {
	for _, t := range query {
		if n := x.terms[entry][t]; n > 0 {
			rare := math.Log(1 + (float64(len(x.terms))-x.having[t]+0.5)/(x.having[t]+0.5))
			sum += rare * n * (bm25K1 + 1) / (n + bm25K1*(1-bm25B+bm25B*x.length[entry]/x.average))
		}
	}
	return sum
}

// termsOf are the stems of a text's words, without those that say nothing. A word with marks in it, such as Next.js, is there as a
// whole, too.
func termsOf(text string) (terms []string) {
	mark := func(r rune) bool { return !unicode.IsLetter(r) && !unicode.IsDigit(r) && !unicode.Is(unicode.Mn, r) }
	for word := range strings.FieldsSeq(strings.ToLower(norm.NFKC.String(text))) {
		parts := strings.FieldsFunc(word, mark)
		if len(parts) > 1 {
			parts = append(parts, strings.Join(parts, ""))
		}
		for _, part := range parts {
			if !english.IsStopWord(part) {
				terms = append(terms, english.Stem(part, false))
			}
		}
	}
	return terms
}

// unique leaves out what is there twice: a word that is said twice is no better a reason.
func unique(terms []string) []string {
	slices.Sort(terms)
	return slices.Compact(terms)
}

// Search returns the entries that fit a query best, the best first; most of them at most. Domain is one of Domains, or "" for all.
// None is nil.
func Search(query, domain string, most int) []Entry {
	terms, name := unique(termsOf(query)), strings.TrimSpace(query)
	return ranked(most, func(i int, e Entry) float64 {
		switch {
		case domain != "" && e.Domain != domain:
			return 0
		case strings.EqualFold(e.ID, name), strings.EqualFold(e.Name, name), strings.EqualFold(e.Package, name):
			return math.Inf(1)
		}
		return registryIndex().score(i, terms)
	})
}

// recommended returns the entries that fit a project best: what is said of it and, a little, the client's context. Those that the
// project has already are left out.
func recommended(summary string, s Status, most int) []Entry {
	has := map[string]bool{}
	for _, e := range s.Tools {
		has[e.ID] = true
	}
	known := contextTexts(s.Context)
	for _, text := range known {
		has[strings.ToLower(text)] = true
	}
	said, context := unique(termsOf(summary)), unique(termsOf(strings.Join(known, " ")))
	return ranked(most, func(i int, e Entry) float64 {
		if has[e.ID] || has[strings.ToLower(e.Name)] || has[strings.ToLower(e.Package)] {
			return 0
		}
		return registryIndex().score(i, said) + contextWeight*registryIndex().score(i, context)
	})
}

// ranked returns the entries of the highest scores above 0. Of equal ones the first in the registry goes first.
func ranked(most int, score func(i int, e Entry) float64) (best []Entry) {
	type scored struct {
		entry Entry
		score float64
	}
	var all []scored
	for i, e := range registry {
		if s := score(i, e); s > 0 {
			all = append(all, scored{e, s})
		}
	}
	slices.SortStableFunc(all, func(a, b scored) int { return cmp.Compare(b.score, a.score) })
	for _, s := range all[:min(len(all), max(most, 0))] {
		best = append(best, s.entry)
	}
	return best
}

// contextTexts are all names and texts in the client's context, wherever they are.
func contextTexts(context json.RawMessage) (texts []string) {
	if len(context) == 0 {
		return nil
	}
	value, err := tools.Decode(context)
	if err != nil {
		return nil
	}
	var walk func(value any)
	walk = func(value any) {
		switch v := value.(type) {
		case string:
			texts = append(texts, v)
		case []any:
			for _, below := range v {
				walk(below)
			}
		case map[string]any:
			for name, below := range v {
				texts = append(texts, name)
				walk(below)
			}
		}
	}
	walk(value)
	return texts
}
