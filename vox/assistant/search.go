package assistant

import (
	"cmp"
	"encoding/json"
	"maps"
	"math"
	"slices"
	"strings"
	"sync"
	"unicode"

	"github.com/kljensen/snowball/english"
	"golang.org/x/text/unicode/norm"

	"voxgate/tools"
)

// The registry is ranked by our own BM25, on the stems of Snowball's English stemmer. The library bleve v2.6.3 ranks
// the same way, but would make the gateway 10 MB (a quarter) larger, while this whole package adds only 0.4 MB. We
// found no maintained library with only BM25.

// bm25K1 and bm25B are the usual constants of BM25. They are from S. Robertson and H. Zaragoza, The Probabilistic
// Relevance Framework: BM25 and Beyond, 2009, 3.2.
const (
	bm25K1 = 1.2
	bm25B  = 0.75
)

// The weight of a word depends on its place in an entry (BM25F, in the same work, 3.6). The domain has the lowest
// weight, because many entries share it.
const (
	nameWeight        = 3
	tagWeight         = 2
	descriptionWeight = 1
	domainWeight      = 0.5
)

// index holds the BM25 statistics of the registry.
type index struct {
	terms      []map[string]float64 // by entry: weighted count of each term
	length     []float64            // by entry: sum of the counts in terms
	average    float64              // mean of length
	entryCount map[string]float64   // number of entries with a term
}

var registryIndex = sync.OnceValue(func() *index {
	x := &index{entryCount: map[string]float64{}}
	for _, e := range registry {
		terms := map[string]float64{}
		note := func(found []string, weight float64) {
			for _, t := range found {
				terms[t] += weight
			}
		}
		note(sortUnique(stemWords(e.Name+" "+e.ID)), nameWeight) // the name and the ID are spellings of the same words
		note(stemWords(strings.Join(e.Tags, " ")), tagWeight)
		note(stemWords(e.Description), descriptionWeight)
		note(stemWords(e.Domain), domainWeight)
		length := 0.0
		for t, n := range terms {
			x.entryCount[t]++
			length += n
		}
		x.terms, x.length, x.average = append(x.terms, terms), append(x.length, length), x.average+length/float64(len(registry))
	}
	return x
})

// score returns the BM25 score of an entry for the terms of a query. entry is an index in the registry. The score is 0
// if no term matches.
func (i *index) score(entry int, query []string) (sum float64) {
	for _, t := range query {
		if n := i.terms[entry][t]; n > 0 {
			rare := math.Log(1 + (float64(len(i.terms))-i.entryCount[t]+0.5)/(i.entryCount[t]+0.5))
			sum += rare * n * (bm25K1 + 1) / (n + bm25K1*(1-bm25B+bm25B*i.length[entry]/i.average))
		}
	}
	return sum
}

// stemWords returns the stems of a text's words, without stop words. For a word with punctuation, such as Next.js, it
// returns the parts and also the whole word.
func stemWords(text string) (terms []string) {
	mark := func(r rune) bool { return !unicode.IsLetter(r) && !unicode.IsDigit(r) && !unicode.Is(unicode.Mn, r) }
	for word := range strings.FieldsSeq(strings.ToLower(norm.NFKC.String(text))) {
		parts := strings.FieldsFunc(word, mark)
		if len(parts) > 1 {
			parts = append(parts, strings.Join(parts, ""))
		}
		for _, part := range parts {
			switch {
			case english.IsStopWord(part):
			case strings.HasPrefix(part, "animal"): // "animal" and "animation" have the same stem
				terms = append(terms, "animal")
			default:
				terms = append(terms, english.Stem(part, false))
			}
		}
	}
	return terms
}

// sortUnique sorts terms and removes duplicates, because a repeated word does not make a match better.
func sortUnique(terms []string) []string {
	slices.Sort(terms)
	return slices.Compact(terms)
}

// minRelevance is the minimum score of a search result, as a share of the best score. Entries with a lower score match
// only a minor part of the query.
const minRelevance = 0.65

// Search returns at most maxResults entries. The entries that match the query best come first, and then the tools for
// the needs that the query mentions. domain is one of [Domains], or "" for all domains. If nothing matches, Search
// returns nil.
func Search(query, domain string, maxResults int) []Entry {
	terms, name := sortUnique(stemWords(query)), strings.TrimSpace(query)
	isNamed := func(e Entry) bool {
		return strings.EqualFold(e.ID, name) || strings.EqualFold(e.Name, name) || strings.EqualFold(e.Package, name)
	}
	inDomain := func(e Entry) bool { return domain == "" || e.Domain == domain }
	best := 0.0
	for i, e := range registry {
		if inDomain(e) && !strings.EqualFold(name, domain) { // a query for the domain's own name lists all its entries
			best = max(best, registryIndex().score(i, terms))
		}
	}
	found := topEntries(maxResults, func(i int, e Entry) float64 {
		score := registryIndex().score(i, terms)
		switch {
		case !inDomain(e), score < minRelevance*best && !isNamed(e):
			return 0
		case isNamed(e):
			return math.Inf(1)
		}
		return score
	})
	stems := " " + strings.Join(stemWords(query), " ") + " "
	single := maskPhrases(stems)
	for _, n := range needs {
		if words, _ := n.indications(stems, single); words == 0 {
			continue
		}
		for _, id := range n.Tools {
			e, _ := Find(id)
			isKnown := slices.ContainsFunc(found, func(f Entry) bool { return f.ID == id })
			if len(found) < maxResults && !isKnown && !n.Last && inDomain(e) {
				found = append(found, e)
			}
		}
	}
	return found
}

// recommend returns the entries that fit a project best, at most maxResults. Tools that the summary names come first,
// then the best tool for each need that it indicates (needs.json), then the second and the third best tool for each.
// Tools that the project already has are left out.
//
// If the summary neither names a tool nor indicates a need, the client's context is searched for needs. If there are
// still no tools, recommend returns tools that match the words of the summary or the context.
func recommend(summary string, s Status, maxResults int) (best []Entry) {
	has := map[string]bool{}
	for _, e := range s.Tools {
		has[e.ID] = true
	}
	texts := contextTexts(s.Context)
	for _, text := range texts {
		has[strings.ToLower(text)] = true
	}
	roles := map[string]bool{}
	take := func(e Entry, again bool) {
		isOwn := has[e.ID] || has[strings.ToLower(e.Name)] || has[strings.ToLower(e.Package)]
		if len(best) < maxResults && !isOwn && (again || !roles[e.Role]) {
			has[e.ID], roles[e.Role] = true, true
			best = append(best, e)
		}
	}
	summaryTerms := stemWords(summary)
	for _, e := range entriesNamedIn(summaryTerms) {
		take(e, true)
	}
	found := indicatedNeeds(summaryTerms)
	if len(found) == 0 && len(best) == 0 {
		found = indicatedNeeds(stemWords(strings.Join(texts, " ")))
	}
	special := slices.DeleteFunc(slices.Clone(found), func(n need) bool { return n.Last })
	for _, list := range [][]need{special, commonNeeds(found)} {
		for place := range 3 {
			for _, n := range list {
				if place < len(n.Tools) {
					e, _ := Find(n.Tools[place])
					// Only one tool of each role is recommended, except for the further tools of a single need.
					take(e, place > 0 && len(list) == 1)
				}
			}
		}
	}
	if len(best) > 0 {
		return best
	}
	for _, terms := range [][]string{summaryTerms, stemWords(strings.Join(texts, " "))} {
		for _, e := range topEntries(len(registry), func(i int, _ Entry) float64 {
			if score := registryIndex().score(i, sortUnique(terms)); score >= minScore {
				return score
			}
			return 0
		}) {
			take(e, true)
		}
		if len(best) > 0 {
			break
		}
	}
	return best
}

// candidates returns the entries from which a model chooses: first the recommended ones, then other entries that match
// the summary.
func candidates(summary string, s Status) []Entry {
	best := recommend(summary, s, maxCandidates)
	for _, e := range Search(summary, "", maxCandidates) {
		known := func(k Entry) bool { return k.ID == e.ID }
		if len(best) < maxCandidates && !slices.ContainsFunc(best, known) && !slices.ContainsFunc(s.Tools, known) {
			best = append(best, e)
		}
	}
	return best
}

// minScore is the minimum score of an entry that is recommended only because of its words. It is the score of one rare
// word in the tags, or of two in the description.
const minScore = 4

// entriesNamedIn returns the entries whose names are among the terms.
func entriesNamedIn(terms []string) (list []Entry) {
	for _, e := range registry {
		name := stemWords(e.ID)
		isAmbiguous := english.IsStopWord(strings.ToLower(e.Name)) || commonWords[e.ID]
		if len(name) == 1 && slices.Contains(terms, name[0]) && !isAmbiguous {
			list = append(list, e)
		}
	}
	return list
}

// commonWords lists IDs of entries that are also everyday words.
var commonWords = map[string]bool{
	"motion": true, "sharp": true, "square": true, "paddle": true, "tone": true, "three": true, "resend": true, "convex": true,
	"elementary": true, "notion": true, "express": true, "solid": true, "prisma": true, "mollie": true, "axum": true,
	"expo": true, "gin": true,
}

// impliedWeight is the weight of a need that the kind of project implies. If the user's words name a need, its weight
// is the number of these words.
const impliedWeight = 0.8

// indicatedNeeds returns the needs that terms indicate. The need with the highest weight comes first, and among equals
// the need that is named earliest. Terms may also name a kind of project, such as a quiz, which implies needs.
func indicatedNeeds(terms []string) (list []need) {
	together := " " + strings.Join(terms, " ") + " "
	type indicated struct {
		need
		weight float64
		at     int
	}
	all := map[string]*indicated{}
	indicate := func(n need, weight float64, at int) {
		if all[n.Need] == nil {
			all[n.Need] = &indicated{need: n, at: at}
		}
		all[n.Need].weight += weight
		all[n.Need].at = min(all[n.Need].at, at)
	}
	hasFirst := false
	single := maskPhrases(together)
	for _, n := range needs {
		words, at := n.indications(together, single)
		if words == 0 {
			continue
		}
		hasFirst = hasFirst || n.First
		if n.Needs == nil {
			indicate(n, float64(words), at)
		}
		if hasFirst {
			continue // a need such as a bot has already decided the kind of project
		}
		for i, name := range n.Needs {
			implied := needs[slices.IndexFunc(needs, func(n need) bool { return n.Need == name })] // the index is valid: see TestNeeds
			indicate(implied, impliedWeight-float64(i)/100, at)
		}
	}
	sorted := slices.SortedFunc(maps.Values(all), func(a, b *indicated) int {
		return cmp.Or(
			compareBools(b.First, a.First), compareBools(a.Last, b.Last),
			cmp.Compare(b.weight, a.weight), cmp.Compare(a.at, b.at), cmp.Compare(a.Need, b.Need))
	})
	for _, i := range sorted {
		list = append(list, i.need)
	}
	return list
}

// commonNeeds returns the needs that every project has, such as a page. It returns nil if found is empty. It also
// returns nil for a bot, because a bot has no page.
func commonNeeds(found []need) []need {
	if len(found) == 0 || found[0].First {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(needs), func(n need) bool { return !n.Last })
}

// compareBools compares two booleans. false comes before true.
func compareBools(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return 1
	}
	return -1
}

// needStems maps the name of each need to the stems of its words and phrases. Each word or phrase begins and ends with
// a space, and the stems of a phrase are separated by spaces.
var needStems = sync.OnceValue(func() map[string][]string {
	byNeed := map[string][]string{}
	for _, n := range needs {
		for _, word := range n.Words {
			stems := " " + strings.Join(stemWords(strings.ReplaceAll(word, "-", " ")), " ") + " "
			if strings.TrimSpace(stems) != "" && !slices.Contains(byNeed[n.Need], stems) {
				byNeed[n.Need] = append(byNeed[n.Need], stems)
			}
		}
	}
	return byNeed
})

// isPhrase reports whether a word of needStems is a phrase, which has several stems.
func isPhrase(stems string) bool { return strings.Count(stems, " ") > 2 }

// maskPhrases joins the words of each known phrase in a text with "+", so that a single word of the phrase does not
// indicate another need. For example, a "shopping list" does not indicate that a shop is needed.
func maskPhrases(stems string) string {
	for _, n := range needs {
		for _, phrase := range needStems()[n.Need] {
			if isPhrase(phrase) {
				stems = strings.ReplaceAll(stems, phrase, " "+strings.ReplaceAll(strings.TrimSpace(phrase), " ", "+")+" ")
			}
		}
	}
	return stems
}

// indications returns how many of the need's words and phrases occur in a text, and the position of the first. It looks
// for phrases in stems, and for single words in maskedStems, which is the result of [maskPhrases].
func (n *need) indications(stems, maskedStems string) (words, firstIndex int) {
	firstIndex = len(stems)
	for _, word := range needStems()[n.Need] {
		text := maskedStems
		if isPhrase(word) {
			text = stems
		}
		if at := strings.Index(text, word); at >= 0 {
			words++
			firstIndex = min(firstIndex, at)
		}
	}
	return words, firstIndex
}

// topEntries returns the entries with the highest scores, at most maxResults. It omits entries with a score of 0.
// Entries with equal scores keep the order of the registry.
func topEntries(maxResults int, score func(i int, e Entry) float64) (best []Entry) {
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
	for _, s := range all[:min(len(all), max(maxResults, 0))] {
		best = append(best, s.entry)
	}
	return best
}

// contextTexts returns all names and strings in the client's context, at any depth.
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
