package canvas

import (
	"errors"
	"net/url"

	"github.com/microcosm-cc/bluemonday"
)

// policy says which HTML a text may contain. Links open in a new window, without a referrer or an opener.
var policy = newPolicy()

func newPolicy() *bluemonday.Policy {
	p := bluemonday.NewPolicy()
	p.AllowElements("b", "i", "u", "em", "strong", "s", "small", "sub", "sup", "br", "p", "h1", "h2", "h3", "h4", "ul", "ol", "li",
		"blockquote", "code", "pre", "span", "hr", "table", "tr", "td", "th", "thead", "tbody")
	p.AllowAttrs("href").OnElements("a")
	p.RequireParseableURLs(true)
	p.AllowURLSchemes("mailto", "tel")
	// Browsers treat "https:host" as a link to another site, but bluemonday does not recognize that. So a host is
	// required.
	p.AllowURLSchemeWithCustomPolicy("https", func(u *url.URL) bool { return u.Host != "" && u.User == nil })
	p.AddTargetBlankToFullyQualifiedLinks(true) // also adds rel="noopener"
	p.RequireNoReferrerOnLinks(true)
	return p
}

// maxPasses limits how often HTML is cleaned. It is cleaned until cleaning changes nothing. HTML that still changes
// after maxPasses was made to trick the cleaner.
const maxPasses = 4

// cleanHTML returns text without the HTML that policy forbids.
func cleanHTML(text string) (string, error) {
	for range maxPasses {
		clean := policy.Sanitize(text)
		if clean == text {
			return clean, nil
		}
		text = clean
	}
	return "", errors.New("is HTML that cannot be made safe")
}
